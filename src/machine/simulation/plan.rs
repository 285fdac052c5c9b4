//! What is going to happen in one run: which machines are wanted and when, and what goes wrong.

use pve_fake::Release;

use super::dialect::Dialect;
use super::dice::Dice;
use crate::hypervisor::CloneLimits;

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) machines: Vec<Wish>,
    pub(super) events: Vec<Event>,
    /// Nodes that the cluster allows; the template's when none.
    pub(super) spread: bool,
    /// Addresses of the pool: few, so that one that is given back is given again at once.
    pub(super) addresses: u64,
    /// Nodes have memory for two machines each.
    pub(super) tight: bool,
    pub(super) release: Release,
    /// Seconds that a full clone takes.
    pub(super) clone_seconds: u64,
    /// Clones at once.
    pub(super) clones: CloneLimits,
    /// How the server differs from Proxmox.
    pub(super) dialects: &'static [Dialect],
}

/// A machine that somebody wants.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct Wish {
    /// Milliseconds from the start.
    pub(super) created: u64,
    /// When it is deleted; at the end if never.
    pub(super) deleted: Option<u64>,
    pub(super) skip_agent: bool,
    pub(super) skip_cloud_init: bool,
    pub(super) full: bool,
    pub(super) grows: bool,
    pub(super) description: Option<&'static str>,
    pub(super) ranged: bool,
    /// What was recorded before, as in an object that is restored: a VMID for which a clone failed, and
    /// in how many seconds from the start the next is due.
    pub(super) recorded: Option<(u32, i64)>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) at: At,
    pub(super) mishap: Mishap,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// At the call of this number, to Proxmox or to the API server, counted from the start.
    Call(u64),
    /// At the call of this number among those whose method and path begin and end so.
    Asked(&'static str, &'static str, u64),
    /// So many milliseconds after the start.
    Millis(u64),
}

/// What.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    /// The process dies before the call has its effect.
    CrashBefore,
    /// The process dies when the call has had its effect.
    CrashAfter,
    /// No connection comes about, so that nothing is sent.
    NotConnected,
    /// The connection breaks before the effect.
    BreakBefore,
    /// The connection breaks after the effect.
    BreakAfter,
    /// No effect, and no answer.
    HangBefore,
    /// The effect, and no answer.
    HangAfter,
    /// A refusal with this status.
    Refuse(u16),
    /// The effect, and an error all the same.
    RefuseAfter(u16),
    /// A refusal by status 500 with this text.
    Says(&'static str),
    /// The effect, and this text all the same.
    SaysAfter(&'static str),
    /// The task that is started fails with this text.
    TaskSays { text: &'static str, with_effect: bool },
    /// The answer takes so many milliseconds.
    Delay(u64),
    /// The call takes so many milliseconds to arrive.
    Late(u64),
    /// The task that is started is reported failed.
    FailTask { with_effect: bool },
    /// Nobody knows the task that is started.
    LoseTask,
    /// To the world, whatever is being asked. What lasts has its time in milliseconds.
    Happens(Happening),
}

/// What happens to the world. Machines and nodes are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    Crash,
    NodeOffline {
        node: usize,
        millis: u64,
    },
    NodeSilent {
        node: usize,
        millis: u64,
    },
    QuorumLost {
        millis: u64,
    },
    TokenRevoked {
        millis: u64,
    },
    StorageFull {
        storage: &'static str,
        millis: u64,
    },
    StorageOff {
        storage: &'static str,
        millis: u64,
    },
    TemplateGone {
        millis: u64,
    },
    VmGone {
        machine: usize,
    },
    VmMoved {
        machine: usize,
        node: usize,
    },
    VmStopped {
        machine: usize,
    },
    VmRenamed {
        machine: usize,
    },
    VmLocked {
        machine: usize,
        millis: u64,
    },
    /// Somebody makes a VM under the number that the machine has chosen.
    Stranger {
        machine: usize,
    },
    /// The seed's file is deleted by hand.
    SeedGone {
        machine: usize,
    },
    ClaimDeleted {
        machine: usize,
    },
    SecretGone {
        machine: usize,
        millis: u64,
    },
    /// The wall clock jumps by so many seconds.
    Clock {
        seconds: i64,
    },
    /// What is watched arrives late.
    Stale {
        millis: u64,
    },
    /// The IPAM provider does nothing.
    IpamAsleep {
        millis: u64,
    },
    /// The Cluster is paused.
    Paused {
        millis: u64,
    },
    VmSuspended {
        machine: usize,
    },
    VmProtected {
        machine: usize,
        millis: u64,
    },
    /// Numbers in answers become texts.
    TextNumbers,
}

const MINUTE: u64 = 60_000;

/// Proxmox gives up on a call between nodes after half a minute.
const LATEST: u64 = 30_000;

const STORAGES: [&str; 2] = ["shared", "local"];

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = dice.between(1, 4);
        let machines: Vec<Wish> = (0..count).map(|_| wish(&mut dice)).collect();
        let most = if dice.percent(25) { 30 } else { 7 };
        let events = (0..dice.between(0, most)).map(|_| event(&mut dice, machines.len())).collect();
        Self {
            seed,
            machines,
            events,
            spread: dice.percent(70),
            addresses: count + dice.roll(2),
            tight: dice.percent(50),
            release: *dice.pick(&[Release::V7, Release::V8, Release::V9, Release::V9]),
            clone_seconds: dice.between(2, 30),
            clones: clones(&mut dice),
            dialects: &[],
        }
    }
}

/// Few, so that turns are waited for.
fn clones(dice: &mut Dice) -> CloneLimits {
    if dice.percent(40) {
        return CloneLimits::default();
    }
    let mut limit = || dice.index(3);
    CloneLimits { endpoint: limit(), node: limit(), storage: limit() }
}

fn wish(dice: &mut Dice) -> Wish {
    let created = if dice.percent(50) { 0 } else { dice.roll(MINUTE) };
    Wish {
        created,
        deleted: dice.percent(50).then(|| created + dice.between(1, 3 * MINUTE)),
        skip_agent: dice.percent(10),
        skip_cloud_init: dice.percent(10),
        full: dice.percent(60),
        grows: dice.percent(60),
        description: dice.percent(30).then_some("rack 7"),
        ranged: dice.percent(40),
        recorded: None,
    }
}

fn event(dice: &mut Dice, machines: usize) -> Event {
    if dice.percent(60) {
        // A life takes some sixty calls of either kind.
        let at = At::Call(dice.between(1, 70 * machines as u64));
        return Event { at, mishap: of_a_call(dice) };
    }
    let at = if dice.percent(50) {
        At::Call(dice.between(1, 70 * machines as u64))
    } else {
        At::Millis(dice.between(100, 3 * MINUTE))
    };
    Event { at, mishap: Mishap::Happens(of_the_world(dice, machines)) }
}

fn of_a_call(dice: &mut Dice) -> Mishap {
    match dice.roll(15) {
        0 | 1 => Mishap::CrashBefore,
        2 | 3 => Mishap::CrashAfter,
        4 => Mishap::BreakBefore,
        5 | 6 => Mishap::BreakAfter,
        7 => Mishap::HangBefore,
        8 => Mishap::HangAfter,
        9 => Mishap::Refuse(*dice.pick(&[409, 429, 500, 403, 401, 595, 596])),
        10 => Mishap::RefuseAfter(*dice.pick(&[500, 504, 596, 599])),
        11 => Mishap::Delay(dice.between(100, 50_000)),
        12 => Mishap::Late(dice.between(100, LATEST)),
        13 => Mishap::FailTask { with_effect: dice.percent(50) },
        _ => Mishap::LoseTask,
    }
}

fn of_the_world(dice: &mut Dice, machines: usize) -> Happening {
    let machine = dice.index(machines);
    let node = dice.index(3);
    let millis = dice.between(500, 90_000);
    match dice.roll(24) {
        0 => Happening::Crash,
        1 => Happening::NodeOffline { node, millis },
        2 => Happening::NodeSilent { node, millis },
        3 => Happening::QuorumLost { millis },
        4 => Happening::TokenRevoked { millis },
        5 => Happening::StorageFull { storage: dice.pick::<&str>(&STORAGES), millis },
        6 => Happening::StorageOff { storage: dice.pick::<&str>(&STORAGES), millis },
        7 => Happening::TemplateGone { millis },
        8 => Happening::VmGone { machine },
        9 => Happening::VmMoved { machine, node },
        10 => Happening::VmStopped { machine },
        11 => Happening::VmRenamed { machine },
        12 => Happening::VmLocked { machine, millis },
        13 => Happening::Stranger { machine },
        14 => Happening::SeedGone { machine },
        15 => Happening::ClaimDeleted { machine },
        16 => Happening::SecretGone { machine, millis },
        17 => {
            let seconds = i64::try_from(dice.between(1, 7200)).unwrap_or_default();
            Happening::Clock { seconds: if dice.percent(50) { seconds } else { -seconds } }
        }
        18 => Happening::Stale { millis: millis / 3 },
        19 => Happening::IpamAsleep { millis },
        20 => Happening::VmSuspended { machine },
        21 => Happening::VmProtected { machine, millis },
        22 => Happening::TextNumbers,
        _ => Happening::Paused { millis },
    }
}
