//! Lives at servers that say the same in other ways, and refusals in each of Proxmox's own wordings.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::dialect::{ALL, HOMEMADE};
use super::plan::{At, Event, Happening, Mishap, Plan};
use super::tests::{meets, number, report};
use super::{Run, run};

/// Runs all plans on all processors, and gives those that fail.
fn failures(plans: &[Plan], is_bad: impl Fn(&Run) -> bool + Sync) -> Vec<&Plan> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                let run = run(plan);
                if is_bad(&run) {
                    println!("{:?} {:?}: {:?}", plan.dialects, plan.events, run.failure);
                    failed.push(plan);
                }
            }
            failed
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    })
}

/// `CAPMOX_SEEDS` makes it longer, as the search of its neighbour.
#[test]
fn a_server_that_says_the_same_in_other_ways_makes_no_difference() {
    let count = number("CAPMOX_SEEDS").map_or(4, |seeds| seeds.div_ceil(8));
    let first = number("CAPMOX_SEED").unwrap_or(0);
    let singles = ALL.iter().map(std::slice::from_ref);
    let spoken = singles.chain([HOMEMADE]);
    let plans: Vec<Plan> = spoken
        .flat_map(|dialects| {
            (first..first + count).map(move |seed| {
                let mut plan = Plan { dialects, ..Plan::new(seed) };
                // Each is met undisturbed first.
                if seed == first {
                    plan.events.clear();
                }
                plan
            })
        })
        .collect();
    if let Some(plan) = failures(&plans, |run| run.failure.is_some()).first() {
        panic!("{:?}: {}", plan.dialects, report(plan));
    }
}

/// Beginning and end of each call of a life.
const CALLS: &[(&str, &str)] = &[
    ("GET /cluster", "/resources"),
    ("GET /cluster", "/nextid"),
    ("GET /cluster", "/tasks"),
    ("GET /nodes", "/qemu/9000/config"),
    ("GET /nodes", "/qemu/101/config"),
    ("GET /nodes", "/storage"),
    ("GET /nodes", "/status/current"),
    ("GET /nodes", "/exec-status"),
    ("POST", "/clone"),
    ("POST /nodes", "/config"),
    ("PUT", "/resize"),
    ("POST", "/upload"),
    ("POST", "/status/start"),
    ("POST", "/agent/exec"),
    ("POST", "/status/stop"),
    ("DELETE /nodes", ".iso"),
    ("DELETE /nodes", "/qemu/101"),
];

/// Those that start a task.
const TASKS: &[(&str, &str)] = &[
    ("POST", "/clone"),
    ("POST /nodes", "/config"),
    ("PUT", "/resize"),
    ("POST", "/upload"),
    ("POST", "/status/start"),
    ("POST", "/status/stop"),
    ("DELETE /nodes", "/qemu/101"),
];

/// What Proxmox was read or heard to say; whether it is true is another matter.
const TEXTS: &[&str] = &[
    "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout",
    "can't lock file '/var/lock/pve-manager/pve-storage-shared' - got timeout",
    "clone failed: cfs-lock 'storage-shared' error: got lock request timeout",
    "cfs-lock 'file-user_cfg' error: no quorum!",
    "cluster not ready - no quorum?",
    "unable to open file '/etc/pve/nodes/pve1/qemu-server/101.conf.tmp.1' - Permission denied",
    "VM is locked (backup)",
    "VM is locked (clone)",
    "clone failed: write error: No space left on device",
    "unable to create VM 101: config file already exists",
    "VM 101 already exists on node 'pve1'",
    "checksum mismatch (file change by other user?)",
    "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist",
    "unable to find configuration file for VM 101 on node 'pve1'",
    "no such task",
    "unable to parse worker upid",
    "Agent error: PID 701 does not exist",
    "QEMU guest agent is not running",
    "No QEMU guest agent configured",
    "VM 101 qmp command 'guest-exec' failed - got timeout",
    "VM 101 qmp command 'query-status' failed - unable to connect to VM 101 qmp socket",
    "VM 101 is running - destroy failed",
    "VM 101 already running",
    "VM 101 not running",
    "VM quit/powerdown failed - got timeout",
    "volume 'local:iso/user-data-101.iso' does not exist",
    "unable to activate storage 'local' - directory '/var/lib/vz' does not exist or is unreachable",
    "storage 'local' is not online",
    "start failed: QEMU exited with code 1",
    "timeout: no zvol device link for 'vm-101-disk-0' found after 300 sec.",
    "got no worker upid - start worker failed",
    "proxy handler failed",
    "hostname lookup 'pve1' failed - failed to get address info for: pve1: Name or service not known",
    "unexpected status",
    "received interrupt",
    "",
];

/// A life in which one call meets this, and whose machine is deleted in the end.
fn one(begin: &'static str, end: &'static str, mishap: Mishap) -> Plan {
    meets(&[Event { at: At::Asked(begin, end, 1), mishap }])
}

fn come_to_a_good_end(plans: &[Plan]) {
    let happens = |run: &Run| run.trace.iter().any(|line| line.contains("  ! "));
    let bad = failures(plans, |run| run.failure.is_some() || !happens(run));
    if let Some(plan) = bad.first() {
        panic!("{} of {}: {}", bad.len(), plans.len(), report(plan));
    }
}

#[test]
fn whatever_proxmox_says_to_a_call_before_or_after_its_effect_the_machine_comes_up_and_goes() {
    let says = |&(begin, end): &(&'static str, &'static str)| {
        // A file that is said to be gone is not asked for again.
        let is_lie = move |text: &str| end == ".iso" && text.starts_with("volume '");
        TEXTS.iter().filter(move |text| !is_lie(text)).flat_map(move |text| {
            let after =
                (!begin.starts_with("GET")).then(|| one(begin, end, Mishap::SaysAfter(text)));
            after.into_iter().chain([one(begin, end, Mishap::Says(text))])
        })
    };
    come_to_a_good_end(&CALLS.iter().flat_map(says).collect::<Vec<_>>());
}

#[test]
fn whatever_a_task_fails_with_and_whether_it_did_its_work_the_machine_comes_up_and_goes() {
    let says = |&(begin, end): &(&'static str, &'static str)| {
        TEXTS.iter().flat_map(move |&text| {
            let fails = move |with_effect| Mishap::TaskSays { text, with_effect };
            [true, false].map(|with_effect| one(begin, end, fails(with_effect)))
        })
    };
    come_to_a_good_end(&TASKS.iter().flat_map(says).collect::<Vec<_>>());
}

#[test]
fn a_manager_that_starts_beside_many_machines_that_are_up_asks_next_to_nothing() {
    const MACHINES: usize = 20;
    let at = |seconds: u64, happening| Event {
        at: At::Millis(seconds * 1000),
        mishap: Mishap::Happens(happening),
    };
    // The second one keeps the machines until then.
    let mut plan = meets(&[at(240, Happening::Crash), at(300, Happening::Clock { seconds: 0 })]);
    plan.machines = vec![plan.machines[0].clone(); MACHINES];
    plan.addresses = 20;
    let run = run(&plan);
    let trace = run.trace.join("\n");
    assert_eq!(run.failure, None, "{trace}");
    let seconds = |line: &str| line.split(" s ").next().and_then(|at| at.trim().parse().ok());
    let asked: Vec<&String> = run
        .trace
        .iter()
        .filter(|line| line.contains("call ") && !line.contains(" /api"))
        .filter(|line| seconds(line).is_some_and(|at: f64| (240.0..299.0).contains(&at)))
        .collect();
    let is_up = |line: &&String| line.contains("/resources");
    assert!(asked.iter().any(is_up), "it looks at all of them at once: {asked:#?}");
    assert!(asked.len() <= 6, "{asked:#?}");
}
