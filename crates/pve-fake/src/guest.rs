//! The seam for whoever plays the inside of VMs.

use std::fmt;
use std::sync::Weak;

use futures::future::BoxFuture;

use crate::model::{Boot, CloudInit, Exec, Interface, Report};
use crate::server::Shared;

/// Plays the guests. Events of one VM come one after the other; a slow one delays the next of the
/// same VM only. Long work belongs in a task of the guest's own.
pub trait Guest: Send + Sync {
    /// A VM came up. The guest tells what becomes of it through the handle, at any later time.
    fn started(&self, boot: Boot, handle: GuestHandle) -> BoxFuture<'_, ()>;

    /// A VM went down, in whatever way, or is no more.
    fn stopped(&self, vmid: u32) -> BoxFuture<'_, ()>;
}

/// One run of one VM, from the inside. After the VM has stopped, reports are dropped.
#[derive(Clone)]
pub struct GuestHandle {
    pub(crate) shared: Weak<Shared>,
    pub(crate) vmid: u32,
    pub(crate) boot: u64,
}

impl fmt::Debug for GuestHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestHandle").field("vmid", &self.vmid).finish_non_exhaustive()
    }
}

impl GuestHandle {
    /// The VM.
    pub fn vmid(&self) -> u32 {
        self.vmid
    }

    /// Whether this run of the VM still goes on.
    pub fn is_running(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.is_running(self.vmid, self.boot))
    }

    /// The agent begins or ceases to answer.
    pub fn agent(&self, up: bool) {
        self.report(Report::Agent(up));
    }

    /// Where cloud-init stands.
    pub fn cloud_init(&self, state: CloudInit) {
        self.report(Report::CloudInit(state));
    }

    /// The host name.
    pub fn hostname(&self, name: &str) {
        self.report(Report::Hostname(name.to_owned()));
    }

    /// Network interfaces besides `lo`.
    pub fn interfaces(&self, interfaces: Vec<Interface>) {
        self.report(Report::Interfaces(interfaces));
    }

    /// A file that `file-read` and `cat` find.
    pub fn file(&self, path: &str, content: &str) {
        self.report(Report::File { path: path.to_owned(), content: content.to_owned() });
    }

    /// What a command, given as its whole line, yields.
    pub fn command(&self, line: &str, result: Exec) {
        self.report(Report::Command { line: line.to_owned(), result });
    }

    /// The guest powers itself off.
    pub fn power_off(&self) {
        self.report(Report::PowerOff);
    }

    fn report(&self, report: Report) {
        if let Some(shared) = self.shared.upgrade() {
            shared.report(self.vmid, self.boot, report);
        }
    }
}
