//! Random calls at random times: whatever is asked, nothing is left hanging. (A node that dies in
//! the middle of a task does leave its lock behind, as a real one: see `tasks`.)

use http::Method;
use pve_fake::{Change, Release, Seed};

use crate::world::World;

/// SplitMix64: a failing seed is printed and can be run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        let count = u64::try_from(list.len()).unwrap();
        list[usize::try_from(self.roll(count)).unwrap()]
    }
}

fn act(world: &mut World, dice: &mut Dice) {
    let id = (100 + dice.roll(6)).to_string();
    let node = dice.pick(&["pve1", "pve1", "pve2", "pve3"]);
    let vm = format!("/nodes/{node}/qemu/{id}");
    let name = format!("m{id}");
    match dice.roll(14) {
        0 | 1 => {
            let source = dice.pick(&["9000", "9001"]);
            let target = dice.pick(&["pve1", "pve2"]);
            let full = dice.pick(&["0", "1"]);
            let params =
                [("newid", id.as_str()), ("name", &name), ("target", target), ("full", full)];
            world.post(&format!("/nodes/pve1/qemu/{source}/clone"), &params);
        }
        2 => {
            world.post(&format!("{vm}/config"), &[("cores", "3"), ("scsi1", "shared:1")]);
        }
        3 => {
            world.put(&format!("{vm}/config"), &[("delete", "scsi1"), ("tags", "a;b")]);
        }
        4 | 5 => {
            let power = dice.pick(&["start", "stop", "shutdown", "reboot", "suspend", "resume"]);
            world.post(&format!("{vm}/status/{power}"), &[]);
        }
        6 => {
            world.put(&format!("{vm}/resize"), &[("disk", "scsi0"), ("size", "+1G")]);
        }
        7 => {
            world.delete(&vm, &[("purge", "1")]);
        }
        8 => {
            world.upload(node, "local", &format!("user-data-{id}.iso"), "x");
        }
        9 => {
            let path = format!("/nodes/{node}/storage/local/content/local:iso/user-data-{id}.iso");
            world.delete(&path, &[]);
        }
        10 => {
            world.post(&format!("{vm}/snapshot"), &[("snapname", "s1")]);
        }
        11 => {
            let task = world.model.tasks().pop();
            let upid = task.map(|task| task.upid).unwrap_or_default();
            let node = upid.split(':').nth(1).unwrap_or("pve1").to_owned();
            world.delete(&format!("/nodes/{node}/tasks/{upid}"), &[]);
        }
        12 => {
            let node = node.to_owned();
            let change = match dice.roll(4) {
                0 => Change::NodeSilent { node, millis: Some(9000) },
                1 => Change::QuorumLost { millis: Some(3000) },
                2 => Change::StorageFull { storage: "shared".into(), full: dice.roll(2) == 0 },
                _ => Change::NodeOnline { node },
            };
            world.model.change(change);
        }
        _ => world.pass(dice.roll(15)),
    }
}

#[test]
fn whatever_is_asked_every_task_ends_and_no_lock_or_volume_is_left_over() {
    for seed in 0..200 {
        let mut world = World::of(Seed::three_nodes(), Release::V9);
        let mut dice = Dice(seed);
        for _ in 0..150 {
            act(&mut world, &mut dice);
        }
        for node in ["pve1", "pve2", "pve3"] {
            world.model.change(Change::NodeOnline { node: node.into() });
        }
        world.pass(600);
        for task in world.model.tasks() {
            assert!(task.exit.is_some(), "seed {seed}: {task:?} does not end");
        }
        for vm in world.model.vms() {
            assert_eq!(vm.lock, None, "seed {seed}: VM {} is locked", vm.vmid);
            let path = format!("/nodes/{}/qemu/{}/config", vm.node, vm.vmid);
            assert_eq!(world.send(Method::GET, &path, &[]).status, 200, "seed {seed}");
        }
        let vms: Vec<u32> = world.model.vms().iter().map(|vm| vm.vmid).collect();
        for (node, volid, _) in world.model.volumes() {
            let owner = volid.rsplit_once("vm-").map(|(_, rest)| rest.split('-').next().unwrap());
            if let Some(owner) = owner {
                let owner: u32 = owner.parse().unwrap();
                assert!(vms.contains(&owner), "seed {seed}: {volid} on {node:?} is nobody's");
            }
        }
    }
}
