//! Where the two simulators differ, line by line, each with the reason. Ours is left of `|`,
//! fakepve's right; `-` is a key that is not there.

pub(crate) const KNOWN: &[(&str, &[&str])] = &[
    (
        "fakepve fills this endpoint with a generic sample of the schema",
        &[
            "node status: data.cpuinfo.hvm: string | -",
            "node status: data.cpuinfo.mhz: string | -",
            "node status: data.cpuinfo.user_hz: number | -",
            "node status: data.cpuinfo.vendor: - | string",
            "node status: data.idle: number | -",
            "node status: data.ksm: object | -",
            "node status: data.ksm.shared: number | -",
            "node status: data.kversion: string | -",
            "node status: data.wait: number | -",
        ],
    ),
    (
        "shown by real servers, optional in the schema",
        &[
            "resources: data[].cgroup-mode: number | -",
            "resources: data[].hastate: string | -",
            "resources: data[].sdn: string | -",
        ],
    ),
    (
        "fakepve does not check the enumeration; a real server does",
        &[
            "resources of nonsense: status: 400 | 200",
            "resources of nonsense: text: Parameter verification failed. | OK",
            "resources of nonsense: errors: {\"type\":\"value 'x' does not have a value in the \
             enumeration 'vm, storage, node, sdn'\"} | \
             null",
            "resources of nonsense: data: null | array",
        ],
    ),
    (
        "a real server counts disk traffic for every VM",
        &["VM list: data[].diskread: number | -", "VM list: data[].diskwrite: number | -"],
    ),
    (
        "only for VMs with a serial console, which ours has not",
        &["VM list: data[].serial: - | number"],
    ),
    (
        "a real server answers 501, never 404",
        &[
            "unknown path: status: 501 | 404",
            "unknown path: text: Method 'GET /nope' not implemented | Not Found",
        ],
    ),
    (
        "fakepve answers for nodes that are not; a real one cannot look them up",
        &[
            "unknown node: status: 500 | 200",
            "unknown node: text: hostname lookup 'pve7' failed - failed to get address info for: pve7: Name or service not known | \
             OK",
            "unknown node: data: null | array",
        ],
    ),
    (
        "fakepve shows numbers as they were sent: texts",
        &[
            "template config: data.cores: number | string",
            "template config: data.sockets: number | string",
            "clone's config: data.cores: number | string",
            "clone's config: data.sockets: number | string",
            "config after: data.cores: number | string",
            "config after: data.sockets: number | string",
        ],
    ),
    (
        "fakepve keeps the mark outside of the configuration",
        &["template config: data.template: number | -"],
    ),
    (
        "optional figures",
        &[
            "template status: data.balloon: - | number",
            "template status: data.clipboard: - | null",
            "template status: data.serial: - | number",
            "clone's status: data.balloon: - | number",
            "clone's status: data.clipboard: - | null",
            "clone's status: data.serial: - | number",
        ],
    ),
    (
        "a clone looks for the VM's process first, which has another wording",
        &[
            "clone of a missing VM: text: unable to find configuration file for VM 555 on node 'pve1' | \
             Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist",
        ],
    ),
    (
        "fakepve lets it pass; a real server refuses local storage",
        &[
            "clone with local disks to another node: status: 500 | 200",
            "clone with local disks to another node: text: can't clone VM to node 'pve2' (VM uses local storage) | \
             OK",
            "clone with local disks to another node: data: null | upid",
            "clone with local disks to another node: exit: None | Some(\"OK\")",
        ],
    ),
    (
        "fakepve starts a task; a real server refuses at once",
        &[
            "config without options: status: 500 | 200",
            "config without options: text: no options specified | OK",
            "config without options: data: null | upid",
            "config without options: exit: None | Some(\"OK\")",
        ],
    ),
    (
        "fakepve finds out in the task; a real server before it",
        &[
            "config with a bad digest: status: 500 | 200",
            "config with a bad digest: text: checksum mismatch (file change by other user?) | OK",
            "config with a bad digest: data: null | upid",
            "config with a bad digest: exit: None | \
             Some(\"checksum mismatch (file change by other user?)\")",
        ],
    ),
    (
        "fakepve takes any key; a real server knows its options",
        &[
            "config deletes nonsense: status: 400 | 200",
            "config deletes nonsense: text: Parameter verification failed. | OK",
            "config deletes nonsense: errors: {\"delete\":\"unknown option 'nope'\"} | null",
            "config deletes nonsense: data: null | upid",
            "config deletes nonsense: exit: None | Some(\"OK\")",
        ],
    ),
    (
        "fakepve does not look for the file; a real server does",
        &[
            "attach an ISO that is not: status: 500 | 200",
            "attach an ISO that is not: text: volume 'local:iso/none.iso' does not exist | OK",
        ],
    ),
    (
        "a real server sees first that the VM does not run",
        &["agent of a stopped VM: text: VM 101 is not running | QEMU guest agent is not running"],
    ),
    (
        "optional figures, the pressure ones of 9",
        &[
            "status of a running VM: data.balloon: - | number",
            "status of a running VM: data.clipboard: - | null",
            "status of a running VM: data.pressurecpufull: - | number",
            "status of a running VM: data.pressurecpusome: - | number",
            "status of a running VM: data.pressureiofull: - | number",
            "status of a running VM: data.pressureiosome: - | number",
            "status of a running VM: data.pressurememoryfull: - | number",
            "status of a running VM: data.pressurememorysome: - | number",
            "status of a running VM: data.serial: - | number",
        ],
    ),
    (
        "a shutdown looks for the VM's process first, which has another wording",
        &[
            "shut a missing VM down: text: unable to find configuration file for VM 555 on node 'pve1' | \
             Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist",
        ],
    ),
    (
        "fakepve's entries come without the process",
        &["cluster tasks: data[].pid: number | -", "cluster tasks: data[].pstart: number | -"],
    ),
    (
        "9 names the parameter (400); fakepve has the wording of 8 (500)",
        &[
            "status of nonsense: status: 400 | 500",
            "status of nonsense: text: Parameter verification failed. | \
             unable to parse worker upid 'abc'",
            "status of nonsense: errors: {\"upid\":\"unable to parse worker upid\"} | null",
        ],
    ),
    (
        "a real server starts a task, which fails",
        &[
            "start a missing VM: status: 200 | 500",
            "start a missing VM: text: OK | \
             Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist",
            "start a missing VM: data: upid | null",
            "start a missing VM: exit: Some(\"Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist\") | \
             None",
        ],
    ),
    (
        "a real server starts a task, which fails with yet another wording",
        &[
            "stop a missing VM: status: 200 | 500",
            "stop a missing VM: text: OK | \
             Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist",
            "stop a missing VM: data: upid | null",
            "stop a missing VM: exit: Some(\"unable to find configuration file for VM 555 on node 'pve1'\") | \
             None",
        ],
    ),
    (
        "fakepve looks at parameters first; a real server at rights",
        &[
            "bad delete without right: status: 403 | 400",
            "bad delete without right: text: Permission check failed (/vms/9000, VM.Allocate) | \
             Parameter verification failed.",
            "bad delete without right: errors: null | \
             {\"x\":\"property is not defined in schema and the schema does not allow additional properties\"}",
        ],
    ),
    (
        "a real server asks for any right to configure before it looks at keys",
        &[
            "config without right: text: Permission check failed (/vms/9000, VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.HWType|VM.Config.Options|VM.Config.Cloudinit) | \
             Permission check failed (/vms/9000, VM.Config.CPU)",
        ],
    ),
    (
        "fakepve shows numbers as they were sent, for 9001 too",
        &[
            "VM with right: data.cores: number | string",
            "VM with right: data.sockets: number | string",
        ],
    ),
    (
        "fakepve keeps the mark outside of the configuration, for 9001 too",
        &["VM with right: data.template: number | -"],
    ),
];
