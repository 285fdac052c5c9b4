//! JSON of Proxmox and of the guest agent, whatever a release, a plugin or a proxy makes of it.

use capmox::pve::{
    AgentExecStatus, AgentInterface, AgentOsInfo, ClusterStatusEntry, Permissions, Resource,
    StorageStatus, TaskSummary, Version, VmConfig, VmStatus,
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::near::{json, object};

const RESOURCE: &[&str] = &[
    "type",
    "id",
    "vmid",
    "node",
    "storage",
    "name",
    "status",
    "template",
    "tags",
    "lock",
    "pool",
    "hastate",
    "maxmem",
    "mem",
    "maxdisk",
    "disk",
    "maxcpu",
    "cpus",
    "uptime",
    "shared",
    "content",
    "plugintype",
];
const CONFIG: &[&str] = &[
    "name",
    "smbios1",
    "tags",
    "description",
    "lock",
    "template",
    "protection",
    "memory",
    "cores",
    "net0",
    "net31",
    "net99999999999",
    "scsi0",
    "ide0",
    "ide2",
    "boot",
    "digest",
];
const STATUS: &[&str] =
    &["status", "qmpstatus", "name", "lock", "agent", "template", "uptime", "maxmem", "maxdisk"];
const AGENT: &[&str] = &[
    "exited",
    "exitcode",
    "signal",
    "out-data",
    "err-data",
    "name",
    "hardware-address",
    "ip-addresses",
    "ip-address",
    "prefix",
    "id",
    "pretty-name",
    "version-id",
];
const OTHER: &[&str] = &[
    "version",
    "release",
    "repoid",
    "type",
    "name",
    "quorate",
    "online",
    "local",
    "ip",
    "upid",
    "starttime",
    "endtime",
    "status",
    "storage",
    "content",
    "shared",
    "active",
    "enabled",
    "avail",
];

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

proptest! {
    #[test]
    fn an_entry_of_the_cluster_is_read_whatever_is_in_it(value in object(RESOURCE)) {
        prop_assert!(read::<Resource>(&value).is_some(), "one bad entry must not hide the others");
    }

    #[test]
    fn a_configuration_is_read_whatever_is_in_it(value in object(CONFIG)) {
        let config = read::<VmConfig>(&value);
        prop_assert!(config.is_some());
        let config = config.unwrap_or_default();
        let _ = (config.name(), config.uuid(), config.tags(), config.description(), config.lock());
        let _ = (config.is_template(), config.is_protected(), config.memory_mib());
        let _ = (config.net_devices(), config.boot_order(), config.number("cores"));
        for key in config.options().keys() {
            let _ = (config.net(key), config.drive(key).and_then(|drive| drive.size()));
        }
    }

    #[test]
    fn a_status_is_read_whatever_is_in_it(value in object(STATUS)) {
        let status = read::<VmStatus>(&value);
        prop_assert!(status.is_some());
        prop_assert!(status.is_none_or(|status| status.is_running() || !status.is_paused()
            || status.status.as_deref() == Some("paused")));
    }

    #[test]
    fn an_agent_may_say_anything(value in object(AGENT)) {
        prop_assert!(read::<AgentExecStatus>(&value).is_some());
        prop_assert!(read::<AgentInterface>(&value).is_some());
        prop_assert!(read::<AgentOsInfo>(&value).is_some());
    }

    #[test]
    fn nothing_else_makes_a_panic(value in prop_oneof![object(OTHER), json()]) {
        let _ = read::<Version>(&value);
        let _ = read::<ClusterStatusEntry>(&value);
        let _ = read::<TaskSummary>(&value);
        let _ = read::<StorageStatus>(&value);
        let _ = read::<Permissions>(&value);
        let _ = read::<Resource>(&value);
        let _ = read::<VmConfig>(&value);
        let _ = read::<VmStatus>(&value);
        let _ = read::<AgentExecStatus>(&value);
    }
}
