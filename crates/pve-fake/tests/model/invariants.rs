//! Rules that fail a test by themselves.

use pve_fake::{Release, Rule, Seed, VmSeed};

use crate::world::{World, world};

fn broken(world: &mut World) -> Vec<Rule> {
    world.model.take_violations().into_iter().map(|broken| broken.rule).collect()
}

#[test]
fn two_vms_of_one_name() {
    let mut world = world();
    let path = "/nodes/pve1/qemu/9000/clone";
    world.post(path, &[("newid", "101"), ("name", "m1")]);
    world.post(path, &[("newid", "102"), ("name", "m1")]);
    assert_eq!(broken(&mut world), [Rule::NameTwice]);
    world.pass(60);
    world.post(path, &[("newid", "103"), ("name", "m1")]);
    assert_eq!(broken(&mut world), [Rule::NameTwice]);
    for id in [101, 102, 103] {
        world.pass(60);
        world.delete(&format!("/nodes/pve1/qemu/{id}"), &[]);
    }
    world.pass(60);
    world.post(path, &[("newid", "101"), ("name", "m1")]);
    assert_eq!(broken(&mut world), [], "a name is free again when its VM is gone");
}

#[test]
fn an_iso_without_its_vm() {
    let mut world = world();
    world.upload("pve1", "local", "user-data-101.iso", "x");
    world.upload("pve1", "local", "debian.iso", "x");
    world.pass(5);
    world.model.check_no_leaks();
    assert_eq!(broken(&mut world), [Rule::LeakedIso]);
    world.cloned("101", "m1");
    world.model.check_no_leaks();
    assert_eq!(broken(&mut world), []);
}

#[test]
fn a_write_to_somebody_elses_vm() {
    let seed = Seed::three_nodes().with_vm(VmSeed::new(200, "pve2", "db", "shared").foreign());
    let mut world = World::of(seed, Release::V9);
    let vm = "/nodes/pve2/qemu/200";
    world.get(&format!("{vm}/config"));
    world.post(&format!("{vm}/agent/ping"), &[]);
    assert_eq!(broken(&mut world), []);
    world.post(&format!("{vm}/status/stop"), &[]);
    world.put(&format!("{vm}/config"), &[("tags", "x")]);
    world.delete(vm, &[]);
    let rules = broken(&mut world);
    assert_eq!(rules[..3], [Rule::ForeignTouched; 3]);
}

#[test]
fn one_address_on_two_vms() {
    let mut world = world();
    for (id, name) in [("101", "m1"), ("102", "m2")] {
        let vm = world.cloned(id, name);
        world.put(&format!("{vm}/config"), &[("tags", "ip_net0_10.0.0.1;other")]);
    }
    assert_eq!(broken(&mut world), [Rule::AddressTwice]);
}

#[test]
fn destroying_and_resizing_what_runs() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let started = world.post(&format!("{vm}/status/start"), &[]);
    world.exit(&started);
    world.delete(&vm, &[]);
    world.post(&format!("{vm}/config"), &[("cores", "2"), ("tags", "x")]);
    assert_eq!(broken(&mut world), [Rule::DestroyRunning], "what stays as it is may be sent");
    world.post(&format!("{vm}/config"), &[("cores", "8")]);
    assert_eq!(broken(&mut world), [Rule::ConfigureRunning]);
}

#[test]
fn a_vmid_of_zero() {
    let mut world = world();
    assert_eq!(world.post("/nodes/pve1/qemu/0/status/start", &[]).status, 400);
    assert_eq!(broken(&mut world), [Rule::BadVmid]);
}
