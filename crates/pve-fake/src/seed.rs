//! What exists before the first call: nodes, storages, guests, users. Built in code or read from
//! JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

const GIB: u64 = 1 << 30;

/// The privileges a Cluster API provider needs, on every release.
pub const PROVIDER_PRIVILEGES: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Pool.Allocate",
    "Pool.Audit",
    "SDN.Use",
    "Sys.Audit",
    "Sys.Console",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.Unrestricted",
    "VM.Migrate",
    "VM.Monitor",
    "VM.PowerMgmt",
    "VM.Snapshot",
];

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seed {
    /// The cluster's name; empty for a stand-alone node.
    pub cluster: String,
    /// The first one is the node that is talked to.
    pub nodes: Vec<NodeSeed>,
    /// Storage definitions.
    pub storages: Vec<StorageSeed>,
    /// VMs and templates.
    pub vms: Vec<VmSeed>,
    /// Containers; they are only listed.
    pub containers: Vec<ContainerSeed>,
    /// Pools by name with the VMs in them.
    pub pools: BTreeMap<String, Vec<u32>>,
    /// Users.
    pub users: Vec<UserSeed>,
    /// API tokens; the first is the one tests are given.
    pub tokens: Vec<TokenSeed>,
    /// Rights. `root@pam` needs none.
    pub acl: Vec<AclSeed>,
    /// `registered-tags` of the datacenter.
    pub registered_tags: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSeed {
    /// Its name.
    pub name: String,
    /// Bytes.
    #[serde(default = "NodeSeed::memory")]
    pub memory: u64,
    /// Number of CPUs.
    #[serde(default = "NodeSeed::cpus")]
    pub cpus: u32,
    /// Bridges that NICs can be on.
    #[serde(default = "NodeSeed::bridges")]
    pub bridges: Vec<String>,
}

impl NodeSeed {
    fn memory() -> u64 {
        64 * GIB
    }

    fn cpus() -> u32 {
        16
    }

    fn bridges() -> Vec<String> {
        vec!["vmbr0".to_owned(), "vmbr1".to_owned()]
    }

    /// A node with 64 GiB, 16 CPUs, vmbr0 and vmbr1.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory: Self::memory(),
            cpus: Self::cpus(),
            bridges: Self::bridges(),
        }
    }

    /// With another size of memory, in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
}

/// A storage definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSeed {
    /// Its name.
    pub name: String,
    /// dir, nfs, lvmthin, zfspool, rbd …
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether every node sees the same volumes.
    #[serde(default)]
    pub shared: bool,
    /// images, rootdir, iso, vztmpl, backup, snippets, import.
    pub content: Vec<String>,
    /// Nodes it is available on; empty for all.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Bytes, per node unless shared.
    #[serde(default = "StorageSeed::size")]
    pub size: u64,
    /// Bytes in use that are nobody's volume.
    #[serde(default)]
    pub used: u64,
    /// Whether it is switched off.
    #[serde(default)]
    pub disabled: bool,
}

impl StorageSeed {
    fn size() -> u64 {
        500 * GIB
    }

    /// A storage of 500 GiB on every node; content is a comma list.
    pub fn new(name: &str, kind: &str, shared: bool, content: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            shared,
            content: content.split(',').map(str::to_owned).collect(),
            nodes: Vec::new(),
            size: Self::size(),
            used: 0,
            disabled: false,
        }
    }

    /// Only on these nodes.
    #[must_use]
    pub fn on(mut self, nodes: &[&str]) -> Self {
        self.nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        self
    }

    /// With another size, in bytes.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }
}

/// A VM or template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmSeed {
    /// The VM's id.
    pub vmid: u32,
    /// The node's name.
    pub node: String,
    /// Options as in the VM's configuration file. Disks named there come to exist.
    pub config: BTreeMap<String, String>,
    /// Whether its process runs.
    #[serde(default)]
    pub running: bool,
    /// Somebody else's: a write to it is a violation.
    #[serde(default)]
    pub foreign: bool,
}

impl VmSeed {
    /// A VM with two cores, 2 GiB, a NIC on vmbr0 and a disk of 8 GiB on `storage`.
    pub fn new(vmid: u32, node: &str, name: &str, storage: &str) -> Self {
        let disk = format!("{storage}:vm-{vmid}-disk-0,size=8G");
        let mac =
            format!("virtio=BC:24:11:00:{:02X}:{:02X},bridge=vmbr0", vmid >> 8 & 0xff, vmid & 0xff);
        let config = [
            ("agent", "enabled=1"),
            ("boot", "order=scsi0;net0"),
            ("cores", "2"),
            ("memory", "2048"),
            ("name", name),
            ("net0", &mac),
            ("ostype", "l26"),
            ("scsi0", &disk),
            ("scsihw", "virtio-scsi-pci"),
            ("smbios1", &format!("uuid=00000000-0000-4000-8000-{vmid:012}")),
            ("sockets", "1"),
        ];
        Self {
            vmid,
            node: node.to_owned(),
            config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            running: false,
            foreign: false,
        }
    }

    /// Sets an option.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Removes an option.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.config.remove(key);
        self
    }

    /// Makes a template of it.
    #[must_use]
    pub fn template(mut self) -> Self {
        for value in self.config.values_mut() {
            *value = value.replace(":vm-", ":base-");
        }
        self.with("template", "1")
    }

    /// Somebody else's running VM, never to be written to.
    #[must_use]
    pub fn foreign(mut self) -> Self {
        self.foreign = true;
        self.running = true;
        self
    }
}

/// A container; only listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerSeed {
    /// The VM's id.
    pub vmid: u32,
    /// The node's name.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Bytes.
    pub memory: u64,
    /// Whether its process runs.
    #[serde(default)]
    pub running: bool,
}

/// A user with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSeed {
    /// `name@realm`.
    pub id: String,
    /// The password; none can log in with an empty one.
    #[serde(default)]
    pub password: String,
}

impl std::fmt::Debug for UserSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserSeed").field("id", &self.id).finish_non_exhaustive()
    }
}

/// An API token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSeed {
    /// `user@realm!name`.
    pub id: String,
    /// The secret.
    pub secret: String,
    /// Whether the token has only the rights given to itself.
    #[serde(default)]
    pub privsep: bool,
}

impl std::fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenSeed").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Rights of a user or token on a path and everything below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AclSeed {
    /// A path.
    pub path: String,
    /// User or token id.
    pub who: String,
    /// Names of privileges.
    pub privileges: Vec<String>,
}

impl Seed {
    /// Nothing but a user `root@pam` with password `secret` and one node.
    pub fn bare(node: &str) -> Self {
        Self {
            nodes: vec![NodeSeed::new(node)],
            users: vec![UserSeed { id: "root@pam".into(), password: "secret".into() }],
            ..Self::default()
        }
    }

    /// Three nodes; `local` (ISO files), `local-lvm` and `shared`; template 9000 on shared storage
    /// and 9001 on local storage, both on pve1; token `capmox@pve!capi` with a provider's rights.
    pub fn three_nodes() -> Self {
        let user = "capmox@pve";
        Self {
            cluster: "lab".to_owned(),
            nodes: ["pve1", "pve2", "pve3"].map(NodeSeed::new).into(),
            storages: vec![
                StorageSeed::new("local", "dir", false, "iso,vztmpl,snippets,backup"),
                StorageSeed::new("local-lvm", "lvmthin", false, "images,rootdir"),
                StorageSeed::new("shared", "rbd", true, "images,rootdir"),
            ],
            vms: vec![
                VmSeed::new(9000, "pve1", "kube-template", "shared").template(),
                VmSeed::new(9001, "pve1", "kube-template-local", "local-lvm").template(),
            ],
            users: vec![
                UserSeed { id: "root@pam".into(), password: "secret".into() },
                UserSeed { id: user.into(), password: "secret".into() },
            ],
            tokens: vec![TokenSeed {
                id: format!("{user}!capi"),
                secret: "8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b11".into(),
                privsep: false,
            }],
            acl: vec![AclSeed {
                path: "/".into(),
                who: user.into(),
                privileges: PROVIDER_PRIVILEGES.iter().map(|&name| name.to_owned()).collect(),
            }],
            ..Self::default()
        }
    }

    /// Adds or replaces a VM.
    #[must_use]
    pub fn with_vm(mut self, vm: VmSeed) -> Self {
        self.vms.retain(|known| known.vmid != vm.vmid);
        self.vms.push(vm);
        self
    }

    /// Adds or replaces a storage.
    #[must_use]
    pub fn with_storage(mut self, storage: StorageSeed) -> Self {
        self.storages.retain(|known| known.name != storage.name);
        self.storages.push(storage);
        self
    }

    /// Adds or replaces a node.
    #[must_use]
    pub fn with_node(mut self, node: NodeSeed) -> Self {
        match self.nodes.iter_mut().find(|known| known.name == node.name) {
            Some(known) => *known = node,
            None => self.nodes.push(node),
        }
        self
    }

    /// Adds a pool.
    #[must_use]
    pub fn with_pool(mut self, name: &str, vms: &[u32]) -> Self {
        self.pools.insert(name.to_owned(), vms.to_vec());
        self
    }

    /// Gives `who` exactly these rights on `path`.
    #[must_use]
    pub fn with_acl(mut self, path: &str, who: &str, privileges: &[&str]) -> Self {
        self.acl.retain(|entry| !(entry.path == path && entry.who == who));
        self.acl.push(AclSeed {
            path: path.to_owned(),
            who: who.to_owned(),
            privileges: privileges.iter().map(|&name| name.to_owned()).collect(),
        });
        self
    }

    /// Adds a token.
    #[must_use]
    pub fn with_token(mut self, id: &str, secret: &str, privsep: bool) -> Self {
        self.tokens.push(TokenSeed { id: id.into(), secret: secret.into(), privsep });
        self
    }
}
