use std::sync::atomic::{AtomicU64, Ordering};

use super::plan::{At, Event, Happening, Mishap, Plan, Wish};
use super::{minimise, run};

#[expect(clippy::disallowed_methods, reason = "a test that is told how long to search")]
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What a person needs to see what went wrong.
pub(super) fn report(plan: &Plan) -> String {
    let least = minimise(plan);
    let run = run(&least);
    let tail =
        run.trace.len().saturating_sub(number("CAPMOX_TAIL").unwrap_or(150).try_into().unwrap());
    format!(
        "seed {}: {}\nmachines: {:#?}\nmishaps: {:#?}\n{}",
        plan.seed,
        run.failure.unwrap_or_default(),
        least.machines,
        least.events,
        run.trace[tail..].join("\n")
    )
}

#[test]
fn whatever_goes_wrong_every_machine_comes_up_or_goes_and_nothing_is_left() {
    let first = number("CAPMOX_SEED").unwrap_or(0);
    let count = number("CAPMOX_SEEDS").unwrap_or(200);
    let keep_on = number("CAPMOX_KEEP_ON").is_some();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<Plan> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + count || (!failed.is_empty() && !keep_on) {
                            return failed;
                        }
                        let plan = Plan::new(seed);
                        let run = run(&plan);
                        if number("CAPMOX_TRACE").is_some() {
                            println!(
                                "seed {seed}: {} calls, {} s: {:?}",
                                run.calls,
                                run.millis / 1000,
                                run.failure
                            );
                            if count == 1 {
                                println!("{plan:#?}\n{}", run.trace.join("\n"));
                            }
                        }
                        if let Some(failure) = run.failure {
                            println!("seed {seed}: {failure}");
                            failed.push(plan);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    if let Some(plan) = failures.first() {
        let seeds: Vec<u64> = failures.iter().map(|plan| plan.seed).collect();
        panic!("{} of {count} seeds fail: {seeds:?}\n{}", failures.len(), report(plan));
    }
}

#[test]
fn seeds_that_failed_once_do_not_again() {
    // A late upload behind a node that joined; a copy that stays old; a choice that a copy undid.
    for seed in [4_100_522, 987_654_029, 987_654_310] {
        let plan = Plan::new(seed);
        let failure = run(&plan).failure;
        assert_eq!(failure, None, "{}", report(&plan));
    }
}

#[test]
fn a_seed_repeats_exactly() {
    let plan = Plan::new(5);
    assert_eq!(run(&plan).trace, run(&plan).trace);
}

/// A plan of one machine of the plainest kind that meets these mishaps.
pub(super) fn meets(events: &[Event]) -> Plan {
    let wish = Wish {
        created: 0,
        deleted: None,
        skip_agent: false,
        skip_cloud_init: false,
        full: true,
        grows: true,
        description: None,
        ranged: false,
        recorded: None,
    };
    Plan {
        seed: 0,
        machines: vec![wish],
        events: events.to_vec(),
        spread: false,
        addresses: 1,
        tight: false,
        release: pve_fake::Release::V9,
        clone_seconds: 6,
        clones: crate::hypervisor::CloneLimits::default(),
        dialects: &[],
    }
}

#[test]
fn what_was_found_once_stays_found() {
    let at = |begin, end, nth, mishap| Event { at: At::Asked(begin, end, nth), mishap };
    let (off, gone) = (
        Happening::StorageOff { storage: "local", millis: 90_000 },
        Happening::SeedGone { machine: 0 },
    );
    // Somebody was faster, and the server refuses to start what runs at once, not by a failed task.
    let mut runs = vec![at("POST", "/status/start", 1, Mishap::RefuseAfter(500))];
    runs.extend((2..60).map(|nth| at("POST", "/status/start", nth, Mishap::Refuse(500))));
    let moved = |begin, end, nth| {
        let goes = Happening::VmMoved { machine: 0, node: 2 };
        vec![at(begin, end, nth, Mishap::Happens(goes))]
    };
    for (case, events) in [
        ("the VM is moved before its ISO is stored", moved("GET /api/v1", "-data", 1)),
        ("the VM is moved while its ISO is stored", moved("GET /cluster", "/tasks", 12)),
        ("the VM is moved before its ISO is in the drive", moved("POST /nodes", "/config", 1)),
        ("the VM is moved with its ISO before its start", moved("POST", "/status/start", 1)),
        ("the VM is moved with its ISO while its guest boots", moved("POST", "/agent/exec", 1)),
        ("the VM is moved when its ISO is about to be ejected", moved("POST /nodes", "/config", 2)),
        ("a VM that runs is refused to be started", runs),
        (
            "the storage of the ISO is off while the ISO is to be deleted",
            vec![at("DELETE", ".iso", 1, Mishap::Happens(off))],
        ),
        (
            "the ISO vanishes between its upload and its way into the drive",
            vec![at("POST /nodes", "/config", 1, Mishap::Happens(gone))],
        ),
    ] {
        let run = run(&meets(&events));
        let trace = run.trace.join("\n");
        assert_eq!(run.failure, None, "{case}:\n{trace}");
        assert!(trace.contains("  ! "), "{case} does not happen:\n{trace}");
    }
}

#[test]
fn what_a_process_asked_for_before_it_died_is_not_left_behind_however_late_it_comes() {
    for end in ["/clone", "/upload"] {
        let at = |mishap| Event { at: At::Asked("POST", end, 1), mishap };
        let gone = Happening::VmGone { machine: 0 };
        let mut plan = meets(&[
            at(Mishap::Late(25_000)),
            at(Mishap::Happens(Happening::Crash)),
            at(Mishap::Happens(gone)),
        ]);
        plan.machines[0].deleted = Some(8_000);
        let run = run(&plan);
        let trace = run.trace.join("\n");
        assert_eq!(run.failure, None, "{end}:\n{trace}");
        assert!(trace.contains("the process dies"), "{end}:\n{trace}");
    }
}

#[test]
fn an_upload_of_a_process_that_died_is_not_left_behind_a_node_that_joined() {
    let at = |mishap| Event { at: At::Asked("POST", "/upload", 1), mishap };
    let mut plan = meets(&[at(Mishap::Late(28_000)), at(Mishap::Happens(Happening::Crash))]);
    plan.machines[0].skip_agent = true;
    let run = run(&plan);
    assert_eq!(run.failure, None, "{}", run.trace.join("\n"));
}

#[test]
fn a_seed_on_a_dead_node_is_left_with_an_event_alone() {
    // The VM leaves its ISO behind on one of the nodes, which then is off for good.
    let mut told = 0;
    for off in 0..3 {
        let at = |mishap| Event { at: At::Asked("POST /nodes", "/config", 1), mishap };
        let moved = Happening::VmMoved { machine: 0, node: 2 };
        let dark = Happening::NodeOffline { node: off, millis: 600_000 };
        let mut plan = meets(&[at(Mishap::Happens(moved)), at(Mishap::Happens(dark))]);
        plan.machines[0].deleted = Some(60_000);
        let run = run(&plan);
        let trace = run.trace.join("\n");
        assert_eq!(run.failure, None, "{off}:\n{trace}");
        told += usize::from(trace.contains(".iso stays on node"));
    }
    assert_eq!(told, 1, "just one of the nodes has it");
}

#[test]
fn a_vm_comes_up_without_the_dead_node_that_it_left_its_seed_on() {
    let mut told = 0;
    for off in 0..2 {
        let at = |mishap| Event { at: At::Asked("POST /nodes", "/config", 1), mishap };
        let moved = Happening::VmMoved { machine: 0, node: 2 };
        let dark = Happening::NodeOffline { node: off, millis: 600_000 };
        let run = run(&meets(&[at(Mishap::Happens(moved)), at(Mishap::Happens(dark))]));
        let trace = run.trace.join("\n");
        assert_eq!(run.failure, None, "{off}:\n{trace}");
        // The VM is up, and its ISO is deleted once the node has joined, while the other is out of reach.
        let left = run.trace.iter().position(|line| line.contains(".iso stays on node"));
        let rest = left.map(|at| run.trace[at..].join("\n")).unwrap_or_default();
        told += usize::from(rest.contains("/upload") && rest.contains("/agent/"));
    }
    assert_eq!(told, 1, "one of the nodes has it");
}

#[test]
fn of_two_machines_that_record_one_number_the_second_waits_for_the_vm_of_the_first() {
    let mut plan = meets(&[]);
    plan.machines = vec![plan.machines[0].clone(); 2];
    plan.addresses = 2;
    plan.machines[0].recorded = Some((500, 60));
    plan.machines[1].recorded = Some((500, 0));
    plan.machines[1].created = 5_000;
    let run = run(&plan);
    let trace = run.trace.join("\n");
    assert_eq!(run.failure, None, "{trace}");
    let at = |text: &str| run.trace.iter().position(|line| line.contains(text));
    let told = at("is recorded by another machine too").expect(&trace);
    let cloned = at("\"newid\", \"500\"").expect(&trace);
    let other = run.trace.iter().rposition(|line| line.contains("\"newid\""));
    assert!(told < cloned && Some(cloned) < other, "{trace}");
}

#[test]
fn a_clone_that_was_not_sent_is_no_attempt() {
    for (mishap, attempts) in [(Mishap::NotConnected, 0), (Mishap::Refuse(500), 1)] {
        let event = Event { at: At::Asked("POST", "/clone", 1), mishap };
        let run = run(&meets(&[event]));
        let trace = run.trace.join("\n");
        assert_eq!(run.failure, None, "{trace}");
        assert!(trace.contains(&format!("failed clones: {attempts}")), "{mishap:?}:\n{trace}");
    }
}

#[test]
fn a_template_that_could_not_be_read_is_no_clone_that_failed() {
    // The second machine has its turn when what was read of the template is too old.
    let at = |nth| At::Asked("GET", "/qemu/9000/config", nth);
    let events: Vec<_> =
        (2..8).map(|nth| Event { at: at(nth), mishap: Mishap::NotConnected }).collect();
    let mut plan = meets(&events);
    plan.machines = vec![plan.machines[0].clone(); 2];
    plan.addresses = 2;
    plan.clone_seconds = 60;
    plan.clones.endpoint = 1;
    let run = run(&plan);
    let trace = run.trace.join("\n");
    assert_eq!(run.failure, None, "{trace}");
    assert!(!trace.contains("failed clones: 1"), "{trace}");
    assert!(trace.contains("  ! "), "{trace}");
}

#[test]
fn who_waits_for_a_clone_asks_proxmox_for_nothing_even_after_a_restart() {
    const MACHINES: usize = 6;
    let mut plan =
        meets(&[Event { at: At::Millis(30_000), mishap: Mishap::Happens(Happening::Crash) }]);
    plan.machines = vec![plan.machines[0].clone(); MACHINES];
    plan.addresses = 20;
    plan.clone_seconds = 200;
    plan.clones.endpoint = 1;
    let run = run(&plan);
    assert_eq!(run.failure, None, "{}", run.trace.join("\n"));
    // The last one waits for a quarter of an hour.
    let looks = run.trace.iter().filter(|line| line.contains("/cluster/nextid")).count();
    assert!(looks <= 4 * MACHINES, "{looks} looks:\n{}", run.trace.join("\n"));
}
