//! What no sane client does. A broken rule is written down and fails the test by itself.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Model;
use super::request::Request;
use super::route::Call;
use super::state::Run;
use crate::clock::Millis;

/// The rules that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Two VMs made under one name.
    NameTwice,
    /// An ISO of a VM that is no more.
    LeakedIso,
    /// A write to somebody else's VM.
    ForeignTouched,
    /// One address in the tags of two VMs.
    AddressTwice,
    /// Destruction asked for while the VM runs.
    DestroyRunning,
    /// CPU or memory of a running VM changed.
    ConfigureRunning,
    /// A path with a VMID that cannot be.
    BadVmid,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Milliseconds since the epoch.
    pub at: u64,
    /// The text of the status line, or of the task's exit.
    pub text: String,
}

impl Model {
    pub(crate) fn violate(&mut self, rule: Rule, text: String) {
        let Millis(at) = self.now;
        self.violations.push(Violation { rule, at, text });
    }

    /// Takes the rules broken so far; what is taken fails nothing.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// The rules broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Every method but GET on a VM of somebody else, and every VMID below 100.
    pub(crate) fn check_vmid_of_path(&mut self, call: &Call, request: &Request) {
        let (vmid, what) = (call.vmid(), format!("{} {}", request.method, request.path));
        if vmid < 100 {
            self.violate(Rule::BadVmid, what);
            return;
        }
        let reads = request.method == http::Method::GET || request.path.ends_with("/agent/ping");
        // A clone reads its source.
        let clones = request.path.ends_with("/clone");
        if self.vms.get(&vmid).is_some_and(|vm| vm.foreign) && !reads && !clones {
            self.violate(Rule::ForeignTouched, what);
        }
    }

    /// A clone under the name of a VM that lives or is being made.
    pub(crate) fn check_clone_name(&mut self, name: &str, newid: u32) {
        let living = self.vms.iter().filter(|(_, vm)| vm.get("name") == Some(name));
        let making = self.tasks.values().filter_map(|task| match &task.work {
            Some(super::work::Work::Clone(work))
                if work.config.get("name").is_some_and(|other| other == name) =>
            {
                Some(work.newid)
            }
            _ => None,
        });
        let others: Vec<u32> =
            living.map(|(&vmid, _)| vmid).chain(making).filter(|&vmid| vmid != newid).collect();
        if let Some(other) = others.first() {
            let text = format!("clone {newid} is named {name} as VM {other} is");
            self.violate(Rule::NameTwice, text);
        }
    }

    pub(crate) fn check_destroy(&mut self, vmid: u32) {
        if self.vms.get(&vmid).is_some_and(|vm| vm.run != Run::Stopped) {
            self.violate(Rule::DestroyRunning, format!("VM {vmid}"));
        }
    }

    pub(crate) fn check_config_keys<'a>(
        &mut self,
        vmid: u32,
        keys: impl Iterator<Item = (&'a String, &'a String)>,
    ) {
        let Some(vm) = self.vms.get(&vmid).filter(|vm| vm.run != Run::Stopped) else { return };
        let sizes = ["cores", "sockets", "memory"];
        let changed: Vec<String> = keys
            .filter(|(key, value)| sizes.contains(&key.as_str()) && vm.get(key) != Some(value))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if !changed.is_empty() {
            self.violate(Rule::ConfigureRunning, format!("VM {vmid}: {}", changed.join(" ")));
        }
    }

    /// After a configuration was written: an address tag belongs to one VM.
    pub(crate) fn check_after_config(&mut self, vmid: u32) {
        let mut owners: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (&id, vm) in &self.vms {
            let tags = vm.get("tags").unwrap_or_default().split(';');
            for tag in tags.filter(|tag| is_address_tag(tag)) {
                owners.entry(tag).or_default().push(id);
            }
        }
        let twice: Vec<String> = owners
            .iter()
            .filter(|(_, vms)| vms.len() > 1 && vms.contains(&vmid))
            .map(|(tag, vms)| format!("{tag} on VMs {vms:?}"))
            .collect();
        for text in twice {
            self.violate(Rule::AddressTwice, text);
        }
    }

    /// ISO files named for a VM (`user-data-<vmid>.iso`) that is not there to own them.
    pub fn leaked_isos(&self) -> Vec<String> {
        let owned = |volid: &str| {
            let (_, file) = volid.split_once(":iso/user-data-")?;
            let digits: String = file.chars().take_while(char::is_ascii_digit).collect();
            Some(digits.parse::<u32>().is_ok_and(|vmid| self.vms.contains_key(&vmid)))
        };
        let leaked = self.volumes.keys().filter(|(_, volid)| owned(volid) == Some(false));
        leaked.map(|(node, volid)| format!("{volid} on {node:?}")).collect()
    }

    /// Writes leaked ISO files down as violations.
    pub fn check_no_leaks(&mut self) {
        for text in self.leaked_isos() {
            self.violate(Rule::LeakedIso, text);
        }
    }
}

/// `ip_net0_10.0.0.1` and the like, as the provider tags its VMs.
fn is_address_tag(tag: &str) -> bool {
    tag.strip_prefix("ip_net").is_some_and(|rest| {
        let index = rest.split('_').next().unwrap_or_default();
        !index.is_empty() && index.chars().all(|c| c.is_ascii_digit())
    })
}
