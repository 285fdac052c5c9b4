//! Where the two simulators differ, each with the reason. A line stands for every difference that
//! begins with it; ours is left of `|`, fakepve's right.

pub(crate) const KNOWN: &[(&str, &str)] = &[
    ("node status: data.", "fakepve fills this endpoint with a generic sample of the schema"),
    ("resources: data[].cgroup-mode", "shown by real nodes, optional in the schema"),
    ("resources: data[].hastate", "shown by real nodes, optional in the schema"),
    ("resources of nonsense", "fakepve does not check the enumeration; a real server does"),
    ("VM list: data[].disk", "disk counters are shown for every VM by a real server"),
    ("VM list: data[].serial", "only for VMs with a serial console; ours has none"),
    ("unknown path", "a real server answers 501, never 404"),
    ("unknown node", "fakepve answers for nodes that are not; a real one cannot look them up"),
    ("template config: data.template", "fakepve keeps the mark outside of the configuration"),
    ("template config: data.", "fakepve shows numbers as they were sent: texts"),
    ("template status: data.", "optional figures of schema 9.2"),
    ("clone of a missing VM", "a clone looks for the VM's process first: another wording"),
    (
        "clone with local disks to another node",
        "fakepve lets it pass; a real server refuses local storage",
    ),
    ("clone's config: data.", "fakepve shows numbers as they were sent: texts"),
    ("clone's status: data.", "optional figures of schema 9.2"),
    ("config without options", "fakepve starts a task; a real server refuses at once"),
    ("config with a bad digest", "fakepve finds out in the task; a real server before it"),
    ("config deletes nonsense", "fakepve takes any key; a real server knows its options"),
    ("config after: data.", "fakepve shows numbers as they were sent: texts"),
    ("attach an ISO that is not", "fakepve does not look for the file; a real server does"),
    ("agent of a stopped VM", "a real server sees first that the VM does not run"),
    ("status of a running VM: data.", "optional figures of schema 9.2, pressure among them"),
    ("shut a missing VM down", "a shutdown looks for the VM's process first: another wording"),
    ("cluster tasks: data[].p", "fakepve's entries are without the process"),
    ("status of nonsense", "9 names the parameter (400); fakepve has the wording of 8 (500)"),
];
