//! One life of the process: copies of what is watched, passes when something asks for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::core::DeserializeGuard;
use kube::runtime::events::Reporter;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{reflector, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::memory::Memory;
use super::super::observe::key_of;
use super::super::pass::{Interrupted, Shared};
use super::super::quiet::Bell;
use super::super::stores::{Stored, Stores};
use super::super::traces::Traces;
use super::super::{decision::Wake, pause_after};
use super::kubernetes::{Change, NAMESPACE};
use super::line::Wire;
use super::world::World;
use crate::api::capi::{Cluster, Machine};
use crate::api::ipam::{IPAddress, IPAddressClaim};
use crate::api::{ProxmoxCluster, ProxmoxMachine};
use crate::connections::{Connections, Given, Own, Settings};
use crate::events::Recorder;
use crate::hypervisor::ObjectKey;

/// Fills the copies.
struct Copies {
    machines: Writer<Stored>,
    owners: Writer<Machine>,
    clusters: Writer<Cluster>,
    infra: Writer<DeserializeGuard<ProxmoxCluster>>,
    claims: Writer<IPAddressClaim>,
    addresses: Writer<IPAddress>,
}

fn read<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).expect("an object of ours can be read")
}

fn apply<K>(writer: &mut Writer<K>, object: K, removed: bool)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    writer.apply_watcher_event(&if removed {
        watcher::Event::Delete(object)
    } else {
        watcher::Event::Apply(object)
    });
}

fn fill<K>(writer: &mut Writer<K>, objects: Vec<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    writer.apply_watcher_event(&watcher::Event::Init);
    for object in objects {
        writer.apply_watcher_event(&watcher::Event::InitApply(object));
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
}

impl Copies {
    fn new(listed: &[(super::kubernetes::Key, Value)]) -> (Stores, Self) {
        let (machines, w_machines) = reflector::store();
        let (owners, w_owners) = reflector::store();
        let (clusters, w_clusters) = reflector::store();
        let (infra, w_infra) = reflector::store();
        let (claims, w_claims) = reflector::store();
        let (addresses, w_addresses) = reflector::store();
        let mut copies = Self {
            machines: w_machines,
            owners: w_owners,
            clusters: w_clusters,
            infra: w_infra,
            claims: w_claims,
            addresses: w_addresses,
        };
        let of = |kind: &str| {
            let kind = kind.to_owned();
            listed.iter().filter(move |((of, _), _)| *of == kind).map(|(_, object)| object)
        };
        fill(
            &mut copies.machines,
            of("proxmoxmachines").map(|o| DeserializeGuard(Ok(read(o)))).collect(),
        );
        fill(&mut copies.owners, of("machines").map(read).collect());
        fill(&mut copies.clusters, of("clusters").map(read).collect());
        fill(
            &mut copies.infra,
            of("proxmoxclusters").map(|o| DeserializeGuard(Ok(read(o)))).collect(),
        );
        fill(&mut copies.claims, of("ipaddressclaims").map(read).collect());
        fill(&mut copies.addresses, of("ipaddresses").map(read).collect());
        (Stores { machines, owners, clusters, infra, claims, addresses }, copies)
    }

    /// Takes over a change and says which machine it concerns; all when none is named.
    fn take(&mut self, change: &Change) -> Option<Concerned> {
        let (kind, object, removed) = match change {
            Change::Written(kind, object) => (kind, object, false),
            Change::Removed(kind, object) => (kind, object, true),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let of_claim = || {
            let rest = name.strip_suffix("-inet").unwrap_or(&name);
            Concerned::One(rest.rsplit_once('-').map_or(rest, |(machine, _)| machine).to_owned())
        };
        Some(match kind.as_str() {
            "proxmoxmachines" => {
                apply(&mut self.machines, DeserializeGuard(Ok(read(object))), removed);
                Concerned::Itself(name)
            }
            "machines" => {
                apply(&mut self.owners, read(object), removed);
                Concerned::One(name)
            }
            "clusters" => {
                apply(&mut self.clusters, read(object), removed);
                Concerned::All
            }
            "proxmoxclusters" => {
                apply(&mut self.infra, DeserializeGuard(Ok(read(object))), removed);
                Concerned::All
            }
            "ipaddressclaims" => {
                apply(&mut self.claims, read(object), removed);
                of_claim()
            }
            "ipaddresses" => {
                apply(&mut self.addresses, read(object), removed);
                of_claim()
            }
            _ => return None,
        })
    }
}

/// Whom a change concerns.
enum Concerned {
    /// The machine that it is a change of, by itself perhaps.
    Itself(String),
    /// This machine.
    One(String),
    All,
}

type Done = (String, Result<Wake, Interrupted>);

/// When passes are due, and which are under way.
#[derive(Default)]
struct Schedule {
    due: BTreeMap<String, Instant>,
    running: BTreeSet<String>,
}

impl Schedule {
    fn ask(&mut self, name: &str, at: Instant) {
        let due = self.due.entry(name.to_owned()).or_insert(at);
        *due = at.min(*due);
    }

    fn next(&self) -> Option<Instant> {
        let idle = self.due.iter().filter(|(name, _)| !self.running.contains(*name));
        idle.map(|(_, at)| *at).min()
    }

    fn take(&mut self, now: Instant) -> Vec<String> {
        let idle =
            self.due.iter().filter(|(name, at)| **at <= now && !self.running.contains(*name));
        let names: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.due.remove(name);
            self.running.insert(name.clone());
        }
        names
    }
}

/// What is made when a process starts.
struct Process {
    shared: Arc<Shared>,
    copies: Copies,
    changes: mpsc::UnboundedReceiver<Change>,
    woken: mpsc::UnboundedReceiver<ObjectKey>,
}

fn start(world: &Arc<World>, shutdown: CancellationToken) -> Process {
    let client = Client::new(super::line::api_server(world), NAMESPACE);
    let (wakes, woken) = mpsc::unbounded_channel();
    let given = Given {
        url: "http://proxmox:8006".to_owned(),
        token: super::line::TOKEN.0.into(),
        secret: super::line::TOKEN.1.into(),
        insecure: true,
        root_ca: None,
    };
    let connections = Arc::new(Connections::new(Settings {
        client: client.clone(),
        own: Own::new(given),
        wakes,
        observer: Arc::new(Wire(Arc::clone(world))),
        fence: crate::pve::Fence::default(),
        clones: world.plan.clones,
        shutdown,
    }));
    let (listed, changes) = world.lock().kubernetes.watch();
    let (stores, copies) = Copies::new(&listed);
    let (memory, bell) = (Arc::new(Memory::default()), Bell::default());
    let recorder = Recorder::new(client.clone(), Reporter::from("capmox"));
    let traces = Traces {
        bell: bell.clone(),
        memory: Arc::clone(&memory),
        connections: Arc::clone(&connections),
        recorder: recorder.clone(),
    };
    let (clock, dice) = (Arc::clone(world), Arc::clone(world));
    let shared = Arc::new(Shared {
        recorder,
        client,
        connections,
        stores,
        memory,
        bell,
        traces,
        started: Instant::now(),
        clock: Box::new(move || clock.wall_clock()),
        chance: Box::new(move || dice.lock().dice.next()),
        at_one_endpoint: 10,
        iso_storages: Vec::new(),
    });
    Process { shared, copies, changes, woken }
}

/// Works until it is aborted.
pub(super) async fn live(world: Arc<World>) {
    let shutdown = CancellationToken::new();
    let _ended = shutdown.clone().drop_guard();
    let Process { shared, mut copies, mut changes, mut woken } = start(&world, shutdown);
    let mut schedule = Schedule::default();
    for machine in shared.stores.machines.state() {
        schedule.ask(machine.meta().name.as_deref().unwrap_or_default(), Instant::now());
    }
    let mut passes: JoinSet<Done> = JoinSet::new();
    let mut held: Option<(Instant, Change)> = None;
    loop {
        for name in schedule.take(Instant::now()) {
            let object = shared.stores.machines.find(|m| m.meta().name.as_deref() == Some(&name));
            let machine = object.and_then(|object| object.0.clone().ok());
            let Some(machine) = machine else {
                schedule.running.remove(&name);
                continue;
            };
            passes.spawn(pass(Arc::clone(&shared), name, machine));
        }
        let next = schedule.next().unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
        let arrives = held.as_ref().map(|(at, _)| *at);
        tokio::select! {
            biased;
            Some(done) = passes.join_next() => {
                let (name, result) = done.expect("a pass does not panic");
                schedule.running.remove(&name);
                let pause = match result {
                    Ok(Wake::OnChange) => None,
                    Ok(Wake::After(pause)) => Some(pause),
                    Err(error) => Some(pause_after(&error)),
                };
                if let Some(pause) = pause {
                    schedule.ask(&name, Instant::now() + pause);
                }
            }
            Some(key) = woken.recv() => {
                schedule.ask(&key.name, Instant::now());
                shared.bell.ring(key);
            }
            Some(change) = changes.recv(), if held.is_none() => {
                held = Some((world.arrival(), change));
            }
            () = tokio::time::sleep_until(arrives.unwrap_or(next)), if arrives.is_some() => {
                if let Some((_, change)) = held.take() {
                    forget_removed(&shared, &change);
                    let names = match copies.take(&change) {
                        Some(Concerned::Itself(name)) => {
                            schedule.ask(&name, Instant::now());
                            Vec::new()
                        }
                        Some(Concerned::One(name)) => vec![name],
                        Some(Concerned::All) => {
                            let machines = shared.stores.machines.state();
                            let names = machines.iter().map(|machine| machine.meta().name.clone());
                            names.flatten().collect()
                        }
                        None => Vec::new(),
                    };
                    for name in names {
                        schedule.ask(&name, Instant::now());
                        shared.bell.ring(ObjectKey { namespace: NAMESPACE.to_owned(), name });
                    }
                }
            }
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

fn forget_removed(shared: &Shared, change: &Change) {
    let Change::Removed(kind, object) = change else { return };
    if kind == "proxmoxmachines" {
        let machine: ProxmoxMachine = read(object);
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        shared.traces.forget(&key_of(&machine), &uid);
    }
}

async fn pass(shared: Arc<Shared>, name: String, machine: ProxmoxMachine) -> Done {
    let result = shared.serve(machine).await;
    (name, result)
}

/// The process's slot: at most one is alive.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<tokio::task::JoinHandle<()>>>);

impl Slot {
    pub(super) fn set(&self, handle: Option<tokio::task::JoinHandle<()>>) {
        let mut slot = self.0.lock().expect("nobody panics with it");
        if let Some(old) = std::mem::replace(&mut *slot, handle) {
            old.abort();
        }
    }

    /// Whether the process ended by itself, which it never should.
    pub(super) fn is_over(&self) -> bool {
        self.0
            .lock()
            .expect("nobody panics with it")
            .as_ref()
            .is_some_and(tokio::task::JoinHandle::is_finished)
    }
}
