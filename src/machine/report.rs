//! From what a pass came to, to the status that people and Cluster API read. Pure.

mod turn;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::decision::{Decision, Failure, Waiting, Wake};
use super::facts::{AddressFact, Facts};
use super::seed;
use crate::api::conditions::{self, Severity, State, V1Beta2Conditions, Wanted};
use crate::api::{
    IpAddresses, MachineAddress, MachineAddressType, NetworkStatus, ProxmoxMachineStatus, reasons,
};
use crate::fault::{Class, Fault};
use crate::hypervisor::{Operation, TaskState};
use crate::ipam::Family;
use crate::pve::NetDevice;

/// A regular look at a machine that is up; changes of its VM wake it earlier.
const REGULAR: Wake = Wake::seconds(600);

/// What a pass came to.
#[derive(Debug)]
pub(super) enum Conclusion {
    /// A decision that ends a pass.
    Decided(Decision),
    /// A step that failed.
    Faulted(Operation, Fault),
    /// Decisions that undo each other.
    Undecided,
}

impl Conclusion {
    /// Whether the next pass has to wait for `status.retryAfter`.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Faulted(..) | Self::Undecided)
    }

    /// Whether it shows that what failed before works now.
    pub(super) fn is_progress(&self) -> bool {
        match self {
            Self::Decided(Decision::Wait(waiting, _)) => !matches!(
                waiting,
                Waiting::Retry
                    | Waiting::Answer
                    | Waiting::Turn(_)
                    | Waiting::Task { .. }
                    | Waiting::Effect(_)
                    | Waiting::Late { .. }
                    | Waiting::Unknown(_)
                    | Waiting::Connection(_)
                    | Waiting::Locked { .. }
                    | Waiting::Paused
            ),
            Self::Decided(_) => true,
            Self::Faulted(..) | Self::Undecided => false,
        }
    }
}

/// When the next pass is due if nothing happens before. Who waits for a change looks now and then too:
/// machines that are up are not woken by every change of their cluster, which may come while the last
/// pass is being written.
pub(super) fn wake(conclusion: &Conclusion, pause: Option<Duration>) -> Wake {
    match (conclusion, pause) {
        (_, Some(pause)) => Wake::After(pause),
        (Conclusion::Decided(Decision::Wait(_, Wake::OnChange) | Decision::Ready(_)), _) => REGULAR,
        (Conclusion::Decided(Decision::Wait(_, wake)), _) => *wake,
        _ => Wake::OnChange,
    }
}

/// The status to write.
pub(super) fn status(
    facts: &Facts,
    conclusion: &Conclusion,
    pause: Option<Duration>,
    now: Timestamp,
) -> ProxmoxMachineStatus {
    let mut status = facts.machine.status.clone().unwrap_or_default();
    match conclusion {
        Conclusion::Decided(Decision::Ready(_)) => status.ready = true,
        Conclusion::Decided(Decision::Fail(Failure { reason, message })) => {
            status.failure_reason = Some((*reason).to_owned());
            status.failure_message = Some(message.clone());
        }
        Conclusion::Faulted(Operation::Clone, _) => {
            let attempts = status.clone_attempts.unwrap_or(0);
            status.clone_attempts = Some(attempts.saturating_add(1));
        }
        _ => {}
    }
    if let Some(word) = vm_status(&status, conclusion) {
        status.vm_status = Some(word.to_owned());
    }
    // A clone is shown beside its template before it moves to where it is asked for.
    let settled = facts.machine.spec.provider_id.is_some();
    if let Some(vm) = facts.vm().filter(|vm| settled && vm.config.lock().is_none()) {
        status.proxmox_node = Some(vm.node.to_string());
    }
    // What was recorded stays until Proxmox was asked about it.
    let asked = matches!(facts.connection, Some(Ok(())));
    if asked {
        status.task_ref = match &facts.task {
            Some(TaskState::Running { upid, .. }) => Some(upid.to_string()),
            _ => None,
        };
    }
    seed::foresee(facts, &mut status);
    status.retry_after = match (pause, conclusion) {
        (None, _) if !asked => status.retry_after,
        (Some(pause), _) => later(now, pause),
        (None, Conclusion::Decided(Decision::Wait(Waiting::Retry, _))) => status.retry_after,
        (None, _) => None,
    };
    addresses(facts, &mut status);
    network(facts, &mut status);
    if let Some(state) = provisioned(facts, conclusion) {
        let wanted: [Wanted; 1] = [(reasons::VM_PROVISIONED, state)];
        status.conditions = conditions::v1beta1(&status.conditions, &wanted, now);
        v1beta2(facts, &mut status, &wanted, now);
    } else {
        v1beta2(facts, &mut status, &[], now);
    }
    status
}

fn v1beta2(facts: &Facts, status: &mut ProxmoxMachineStatus, wanted: &[Wanted], now: Timestamp) {
    let paused = facts.is_paused();
    let generation = facts.machine.metadata.generation;
    let old = status.v1beta2_conditions().to_vec();
    // Without anything new to say only `Paused` is kept up to date.
    let conditions = if wanted.is_empty() {
        conditions::v1beta2_paused(&old, paused, generation, now)
    } else {
        conditions::v1beta2(&old, wanted, paused, generation, now)
    };
    status.v1beta2 = Some(V1Beta2Conditions { conditions });
}

/// Full seconds, which is all that the API server stores; rounded up, never to the past.
fn later(now: Timestamp, pause: Duration) -> Option<Time> {
    let pause = SignedDuration::try_from(pause).ok()?;
    let at = now.checked_add(pause).ok()?.as_second() + 1;
    Timestamp::from_second(at).ok().map(Time)
}

fn vm_status(status: &ProxmoxMachineStatus, conclusion: &Conclusion) -> Option<&'static str> {
    match conclusion {
        Conclusion::Decided(Decision::Ready(_)) => Some(reasons::VM_STATUS_READY),
        Conclusion::Decided(Decision::Wait(Waiting::Lost(_) | Waiting::Foreign(_), _)) => {
            Some(reasons::VM_STATUS_NOT_FOUND)
        }
        Conclusion::Decided(Decision::Wait(waiting, _)) if is_gate(waiting) => None,
        _ if status.ready => None,
        _ => Some(reasons::VM_STATUS_PENDING),
    }
}

/// Waiting for Cluster API, before anything was looked at.
fn is_gate(waiting: &Waiting) -> bool {
    matches!(
        waiting,
        Waiting::Paused
            | Waiting::Failed
            | Waiting::Owner
            | Waiting::Cluster
            | Waiting::InfraCluster
            | Waiting::ClusterInfrastructure
            | Waiting::BootstrapDataName
    )
}

/// Addresses once all of them are known. Those of a guest that has its seed are what they are,
/// whatever the cluster asks for later: nothing is claimed for it any more, so that a family which the
/// cluster got since is none of its own.
fn addresses(facts: &Facts, status: &mut ProxmoxMachineStatus) {
    if facts.is_seeded() && !status.addresses.is_empty() {
        return;
    }
    let came_late =
        |fact: &&AddressFact| facts.is_seeded() && fact.claim.is_none() && fact.address.is_none();
    let own: Vec<_> = facts.addresses.iter().filter(|fact| !came_late(fact)).collect();
    if own.is_empty() || own.iter().any(|fact| fact.address.is_none()) {
        return;
    }
    status.ip_addresses.clear();
    let mut all = vec![MachineAddress {
        type_: MachineAddressType::Hostname,
        address: facts.name().to_owned(),
    }];
    for fact in own {
        let Some(address) = &fact.address else { continue };
        let text = address.ip.to_string();
        all.push(MachineAddress { type_: MachineAddressType::InternalIP, address: text.clone() });
        let device: &mut IpAddresses =
            status.ip_addresses.entry(fact.slot.device.clone()).or_default();
        match fact.slot.family {
            Family::V4 => device.ipv4 = Some(text),
            Family::V6 => device.ipv6 = Some(text),
        }
    }
    // Cluster API takes them for the Node's; before the first start nobody has them.
    if facts.is_seeded() {
        status.addresses = all;
    }
}

/// The VM's network devices, from the moment at which what they are given is known.
fn network(facts: &Facts, status: &mut ProxmoxMachineStatus) {
    let Some(vm) = facts.vm().filter(|_| !status.ip_addresses.is_empty()) else { return };
    let devices = vm.config.net_devices();
    status.network = devices
        .iter()
        .filter_map(|(name, device)| network_device(name, device, &status.ip_addresses))
        .collect();
}

/// A network device as Proxmox configures it, with the addresses that its guest was given.
fn network_device(
    name: &str,
    device: &NetDevice,
    addresses: &BTreeMap<String, IpAddresses>,
) -> Option<NetworkStatus> {
    let given = addresses.get(name);
    let both = given.into_iter().flat_map(|given| [&given.ipv4, &given.ipv6]);
    Some(NetworkStatus {
        connected: Some(device.options().get("link_down") != Some("1")),
        ip_addrs: both.flatten().cloned().collect(),
        mac_addr: device.mac()?.to_owned(),
        network_name: device.bridge().map(str::to_owned),
    })
}

/// What `VMProvisioned` says; `None` where it goes on saying what it said.
fn provisioned(facts: &Facts, conclusion: &Conclusion) -> Option<State> {
    let deleting = facts.is_deleted();
    let was_ready = facts.machine.status.as_ref().is_some_and(|status| status.ready);
    match conclusion {
        Conclusion::Decided(Decision::Ready(_)) => Some(State::True),
        Conclusion::Decided(Decision::Fail(failure)) => {
            Some(State::not(Severity::Error, reasons::VM_PROVISION_FAILED, failure.message.clone()))
        }
        Conclusion::Decided(Decision::Wait(waiting, _)) if deleting => deletion(waiting),
        Conclusion::Decided(Decision::Wait(waiting, _)) => {
            let state = waited(facts, waiting)?;
            // Housekeeping of a machine that is up does not make it less so.
            (!was_ready || concerns_the_vm(waiting)).then_some(state)
        }
        Conclusion::Decided(_) => None,
        Conclusion::Undecided => Some(State::not(
            Severity::Error,
            reasons::VM_PROVISION_FAILED,
            "the decisions for this machine go round in circles; please report this with the \
             controller's log at --v=4",
        )),
        Conclusion::Faulted(operation, fault) => {
            let kept = was_ready && !deleting && *operation != Operation::Start;
            (!kept).then(|| faulted(*operation, fault, deleting))
        }
    }
}

fn concerns_the_vm(waiting: &Waiting) -> bool {
    matches!(
        waiting,
        Waiting::Lost(_)
            | Waiting::Foreign(_)
            | Waiting::Halted { .. }
            | Waiting::Task { operation: Operation::Start, .. }
            | Waiting::Effect(Operation::Start)
    )
}

/// Between a fault and when it is tried again.
const AGAIN: &str = ". It is tried again ";

fn faulted(operation: Operation, fault: &Fault, deleting: bool) -> State {
    let reason = match (operation, fault.class) {
        _ if deleting => reasons::DELETION_FAILED,
        (_, Class::TaskFailed) => reasons::TASK_FAILURE,
        (Operation::Clone, _) => reasons::CLONING_FAILED,
        (Operation::Start, _) => reasons::POWERING_ON_FAILED,
        _ => reasons::VM_PROVISION_FAILED,
    };
    let remedy = match fault.class {
        Class::Denied => "; check the token and its privileges on this path",
        Class::Invalid => "; correct the field that it names",
        _ => "",
    };
    let text =
        format!("could not {}: {fault}{remedy}{AGAIN}at status.retryAfter", operation.verb());
    // Tools that were written for capmox tell by the severity what is tried again by itself.
    let severity = match reason {
        reasons::TASK_FAILURE | reasons::POWERING_ON_FAILED => Severity::Info,
        _ => Severity::Warning,
    };
    State::not(severity, reason, text)
}

fn deletion(waiting: &Waiting) -> Option<State> {
    let state = |severity, text: String| Some(State::not(severity, reasons::DELETING, text));
    match waiting {
        Waiting::Retry | Waiting::Answer | Waiting::Paused => None,
        Waiting::Connection(fault) => state(Severity::Warning, fault.to_string()),
        Waiting::Protected(vmid) => state(
            Severity::Warning,
            format!(
                "VM {vmid} is protected against removal: clear its protection option in Proxmox to \
                 let it be destroyed"
            ),
        ),
        Waiting::Unknown(why) => state(
            Severity::Warning,
            format!("nothing is destroyed while the state of the VM is not known: {why}"),
        ),
        Waiting::Locked { vmid, lock } => state(Severity::Info, locked(*vmid, lock)),
        Waiting::Task { operation, upid, trouble } => {
            state(Severity::Info, task(*operation, upid, trouble.as_deref()))
        }
        Waiting::Effect(operation) => state(Severity::Info, effect(*operation)),
        Waiting::Late { operation, left } => state(
            Severity::Info,
            format!(
                "Proxmox's answer to the call to {} was lost; it may still take effect, so its \
                 outcome is looked at once more in {} s before the machine goes",
                operation.verb(),
                left.as_secs()
            ),
        ),
        _ => state(Severity::Info, String::new()),
    }
}

fn locked(vmid: crate::ids::VmId, lock: &str) -> String {
    if lock == "clone" {
        // Its disks are not whole, and never are going to be.
        return format!(
            "VM {vmid} is being cloned (lock clone); if no clone is running in Proxmox, it was cut \
             short: remove the incomplete VM with: qm destroy {vmid} --skiplock"
        );
    }
    format!(
        "VM {vmid} is locked ({lock}) by an operation in Proxmox; if none is running there, unlock \
         it with: qm unlock {vmid}"
    )
}

fn effect(operation: Operation) -> String {
    format!(
        "waiting for Proxmox to {}: it took the call and named no task, so the effect is waited for",
        operation.verb()
    )
}

fn task(operation: Operation, upid: &str, trouble: Option<&str>) -> String {
    let mut text = format!("waiting for Proxmox to {} (task {upid})", operation.verb());
    if let Some(trouble) = trouble {
        text.push_str("; its state is not known just now: ");
        text.push_str(trouble);
    }
    text
}

fn reason_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Clone => reasons::CLONING,
        Operation::Start => reasons::POWERING_ON,
        _ => reasons::VM_PROVISION_STARTED,
    }
}

fn waited(facts: &Facts, waiting: &Waiting) -> Option<State> {
    let info = |reason, text: String| Some(State::waiting(reason, text));
    let warning = |reason, text: String| Some(State::not(Severity::Warning, reason, text));
    let error = |reason, text: String| Some(State::not(Severity::Error, reason, text));
    match waiting {
        Waiting::BootstrapData(why) => {
            let owner = facts.owner.as_ref();
            let secret = owner.and_then(|owner| owner.spec.bootstrap.data_secret_name.as_deref());
            let secret = secret.unwrap_or_default();
            warning(
                reasons::WAITING_FOR_BOOTSTRAP_DATA,
                format!("bootstrap Secret {secret} of the Machine: {why}"),
            )
        }
        Waiting::Connection(fault) => warning(reasons::PROXMOX_UNREACHABLE, fault.to_string()),
        Waiting::Task { operation, upid, trouble } => {
            info(reason_of(*operation), task(*operation, upid, trouble.as_deref()))
        }
        Waiting::Turn(position) => Some(turn::turn(facts, position)),
        Waiting::Effect(operation) => info(reason_of(*operation), effect(*operation)),
        Waiting::Halted { vmid, word } => warning(
            reasons::POWERING_ON_FAILED,
            format!(
                "VM {vmid} does not go on; QEMU says {word}: see its disks and storage \
                 (io-error), or its console, then resume or reset it in Proxmox"
            ),
        ),
        Waiting::Placement(why) => warning(reasons::CLONING_FAILED, why.clone()),
        Waiting::Unknown(why) => {
            Some(State::Unknown { reason: reasons::UNKNOWN, message: why.clone() })
        }
        Waiting::Lost(vmid) => error(
            reasons::NOT_FOUND,
            format!(
                "VM {vmid} was provisioned and is gone from the Proxmox cluster: delete the Machine \
                 to have it replaced, or restore the VM under this VMID"
            ),
        ),
        Waiting::Foreign(why) => error(
            reasons::NOT_FOUND,
            format!("{why}; it is left alone. Delete the Machine to have it replaced"),
        ),
        Waiting::Locked { vmid, lock } => info(reasons::VM_PROVISION_STARTED, locked(*vmid, lock)),
        Waiting::Addresses(missing) => {
            info(reasons::WAITING_FOR_STATIC_IP_ALLOCATION, missing.clone())
        }
        Waiting::Refused(why) => warning(
            reasons::VM_PROVISION_FAILED,
            format!("the API server refuses what this machine needs: {why}"),
        ),
        Waiting::Invalid(why) => warning(reasons::VM_PROVISION_FAILED, why.clone()),
        Waiting::SeedStorage(node) => warning(
            reasons::VM_PROVISION_FAILED,
            format!(
                "node {node} has no active storage with content type iso for the bootstrap data: \
                 add iso to the content of one of its storages (of one that --iso-storage of the \
                 manager names, if it is given), and give the token Datastore.AllocateTemplate \
                 and Datastore.Audit on it"
            ),
        ),
        gate_or_guest => waited_for_others(facts, gate_or_guest),
    }
}

/// What Cluster API or the guest has to do.
fn waited_for_others(facts: &Facts, waiting: &Waiting) -> Option<State> {
    let info = |reason, text: String| Some(State::waiting(reason, text));
    let cluster = facts.cluster_name().unwrap_or("(none)");
    match waiting {
        Waiting::Owner => info(
            reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            "no Machine owns this object yet: Cluster API sets the owner reference of a \
             ProxmoxMachine that a Machine refers to"
                .to_owned(),
        ),
        Waiting::Cluster => info(
            reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            format!(
                "Cluster {cluster}, named by the label cluster.x-k8s.io/cluster-name, was not found"
            ),
        ),
        Waiting::InfraCluster => info(
            reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            format!("the ProxmoxCluster that Cluster {cluster} refers to was not found"),
        ),
        Waiting::ClusterInfrastructure => info(
            reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            format!("the infrastructure of Cluster {cluster} is not ready: see its ProxmoxCluster"),
        ),
        Waiting::BootstrapDataName => info(
            reasons::WAITING_FOR_BOOTSTRAP_DATA,
            "the Machine names no bootstrap Secret yet (spec.bootstrap.dataSecretName)".to_owned(),
        ),
        Waiting::Agent(said) => info(
            reasons::POWERING_ON,
            format!(
                "waiting for the QEMU guest agent ({said}): the template needs the package \
                 qemu-guest-agent and the option agent: enabled=1, or set \
                 spec.checks.skipQemuGuestAgent"
            ),
        ),
        Waiting::Boot => info(
            reasons::POWERING_ON,
            "the VM was started; its agent and cloud-init are asked when guests of its template \
             are usually up"
                .to_owned(),
        ),
        Waiting::CloudInit => info(
            reasons::POWERING_ON,
            "waiting for cloud-init in the guest to finish (`cloud-init status` says running)"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
