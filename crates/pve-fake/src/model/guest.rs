//! The inside of a running VM, as far as the agent shows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Model;
use super::option::{Nic, is_nic};
use super::state::Run;

/// Where cloud-init stands in a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloudInit {
    /// Never ran: no data source.
    #[default]
    NotRun,
    /// It is at work.
    Running,
    /// It is through without a fault.
    Done,
    /// Done with recoverable errors: exit code 2.
    Degraded(String),
    /// Failed: exit code 1.
    Error(String),
}

impl CloudInit {
    /// Output and exit code of `cloud-init status`.
    fn status(&self, long: bool) -> (String, i32) {
        let (word, code, detail) = match self {
            Self::NotRun => ("not run", 0, ""),
            Self::Running => ("running", 0, ""),
            Self::Done => ("done", 0, "DataSourceNoCloud [seed=/dev/sr0]"),
            Self::Degraded(text) => ("done", 2, text.as_str()),
            Self::Error(text) => ("error", 1, text.as_str()),
        };
        if !long {
            return (format!("status: {word}\n"), code);
        }
        let extended = match self {
            Self::Degraded(_) => "degraded done",
            Self::Error(_) => "error - done",
            _ => word,
        };
        let errors = match self {
            Self::Degraded(_) | Self::Error(_) => format!("errors:\n\t- {detail}\n"),
            _ => "errors: []\n".to_owned(),
        };
        let text = format!(
            "status: {word}\nextended_status: {extended}\nboot_status_code: enabled-by-generator\n\
             detail: {detail}\n{errors}recoverable_errors: {{}}\n"
        );
        (text, code)
    }
}

/// A network interface as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// MAC address, in any case.
    pub mac: String,
    /// Addresses with their prefix length.
    pub addresses: Vec<(std::net::IpAddr, u8)>,
}

/// Result of a command run through the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// State behind the agent.
#[derive(Clone, Debug, Default)]
pub struct GuestState {
    /// Whether the agent answers.
    pub agent: bool,
    /// Where cloud-init stands.
    pub cloud_init: CloudInit,
    /// The host name, once known.
    pub hostname: Option<String>,
    /// Interfaces besides `lo`.
    pub interfaces: Vec<Interface>,
    /// Files that `file-read` and `cat` find.
    pub files: BTreeMap<String, String>,
    /// Answers of commands by their whole line, before the built-in ones.
    pub commands: BTreeMap<String, Exec>,
    pub(crate) running: BTreeMap<u32, (crate::clock::Millis, Exec)>,
    pub(crate) next_pid: u32,
}

impl GuestState {
    /// Runs a command; none if there is no such program.
    pub(crate) fn exec(&self, command: &[&str], input: &str) -> Option<Exec> {
        if let Some(known) = self.commands.get(&command.join(" ")) {
            return Some(known.clone());
        }
        let ok = |out: String| Some(Exec { out, ..Exec::default() });
        match command {
            ["cloud-init" | "/usr/bin/cloud-init", "status", rest @ ..] => {
                let (out, code) = self.cloud_init.status(rest.contains(&"--long"));
                Some(Exec { code, out, err: String::new() })
            }
            ["hostname"] => ok(format!("{}\n", self.hostname.as_deref().unwrap_or("localhost"))),
            ["cat", path] => match self.files.get(*path) {
                Some(text) => ok(text.clone()),
                None => Some(Exec {
                    code: 1,
                    out: String::new(),
                    err: format!("cat: {path}: No such file or directory\n"),
                }),
            },
            ["cat"] => ok(input.to_owned()),
            ["echo", rest @ ..] => ok(format!("{}\n", rest.join(" "))),
            ["true"] => ok(String::new()),
            _ => None,
        }
    }
}

/// A NIC of a starting VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootNic {
    /// `net0` …
    pub device: String,
    /// MAC address, in any case.
    pub mac: String,
    /// The bridge it is on.
    pub bridge: String,
    /// `virtio`, `e1000` …
    pub model: String,
}

/// A CD-ROM of a starting VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootCdrom {
    /// `ide0` …
    pub device: String,
    /// The volume's id.
    pub volume: String,
    /// The file on it; empty for a drive of Proxmox's own making.
    pub data: Bytes,
}

/// All that a guest can see of its VM when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The VM's id.
    pub vmid: u32,
    /// Counts the starts of this VM.
    pub boot: u64,
    /// Its name.
    pub name: String,
    /// The node's name.
    pub node: String,
    /// SMBIOS UUID, lower case.
    pub uuid: String,
    /// Network devices by name.
    pub nics: Vec<BootNic>,
    /// CD-ROMs with something in them.
    pub cdroms: Vec<BootCdrom>,
    /// Options of the configuration file.
    pub config: BTreeMap<String, String>,
}

/// What a guest tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The agent begins or ceases to answer.
    Agent(bool),
    /// Where cloud-init stands.
    CloudInit(CloudInit),
    /// The host name.
    Hostname(String),
    /// Interfaces besides `lo`.
    Interfaces(Vec<Interface>),
    /// A file that `file-read` and `cat` find.
    File {
        /// A path.
        path: String,
        /// What is in it.
        content: String,
    },
    /// What a command yields.
    Command {
        /// The command with its arguments, joined by blanks.
        line: String,
        /// What it yields.
        result: Exec,
    },
    /// The guest powers itself off.
    PowerOff,
}

impl Model {
    /// Takes a guest's report; one of an earlier run of the VM is dropped.
    pub fn report(&mut self, vmid: u32, boot: u64, report: Report) {
        let Some(vm) = self.vms.get_mut(&vmid) else { return };
        if vm.boot != boot || vm.run == Run::Stopped {
            return;
        }
        match report {
            Report::Agent(up) => vm.guest.agent = up,
            Report::CloudInit(state) => vm.guest.cloud_init = state,
            Report::Hostname(name) => vm.guest.hostname = Some(name),
            Report::Interfaces(list) => vm.guest.interfaces = list,
            Report::File { path, content } => {
                vm.guest.files.insert(path, content);
            }
            Report::Command { line, result } => {
                vm.guest.commands.insert(line, result);
            }
            Report::PowerOff => self.power_off(vmid),
        }
    }

    /// Whether that run of the VM still goes on.
    pub(crate) fn is_running(&self, vmid: u32, boot: u64) -> bool {
        self.vms.get(&vmid).is_some_and(|vm| vm.boot == boot && vm.run != Run::Stopped)
    }

    /// The inside of a VM, for tests that play the guest.
    pub fn guest_mut(&mut self, vmid: u32) -> Option<&mut GuestState> {
        self.vms.get_mut(&vmid).map(|vm| &mut vm.guest)
    }

    /// What the VM's guest sees at its start.
    pub(crate) fn boot_view(&self, vmid: u32) -> Option<Boot> {
        let vm = self.vms.get(&vmid)?;
        let smbios = vm.get("smbios1").unwrap_or_default();
        let uuid = smbios.split(',').find_map(|part| part.strip_prefix("uuid="));
        let nics = vm.config.iter().filter(|(key, _)| is_nic(key));
        let nics = nics.filter_map(|(key, text)| {
            let nic = Nic::parse(text)?;
            Some(BootNic {
                device: key.clone(),
                mac: nic.mac.unwrap_or_default(),
                bridge: nic.rest.get("bridge").cloned().unwrap_or_default(),
                model: nic.model,
            })
        });
        let cdroms = vm.drives().into_iter().filter(|(_, drive)| drive.is_cdrom());
        let cdroms = cdroms.filter_map(|(device, drive)| {
            let volume = self.find_volume(&vm.node, &drive.file)?;
            Some(BootCdrom { device, volume: drive.file.clone(), data: volume.data.clone() })
        });
        Some(Boot {
            vmid,
            boot: vm.boot,
            name: vm.name(vmid),
            node: vm.node.clone(),
            uuid: uuid.unwrap_or_default().to_ascii_lowercase(),
            nics: nics.collect(),
            cdroms: cdroms.collect(),
            config: vm.config.clone(),
        })
    }
}
