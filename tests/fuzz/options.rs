//! Option strings of Proxmox, ids of tasks, tags, sizes.

use capmox::ids::{NodeName, StorageName, VmId};
use capmox::placement::split_tags;
use capmox::pve::{BootOrder, Drive, NetDevice, OptionString, Tags, Upid, parse_size};
use proptest::prelude::*;

use crate::near::spoiled;

const OPTIONS: &[&str] = &[
    "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=4000,mtu=1500,queues=8",
    "model=e1000,macaddr=BC:24:11:00:00:01,bridge=vmbr0",
    "virtio",
    "local:iso/user-data-105.iso,media=cdrom,size=374K",
    "local-lvm:vm-105-cloudinit,media=cdrom",
    "local-lvm:base-9000-disk-0/vm-105-disk-0,discard=on,iothread=1,size=20G,ssd=1",
    "none,media=cdrom",
    "file=shared:105/vm-105-disk-0.qcow2,size=1.5T",
    "order=scsi0;ide0;net0",
    "uuid=9a8b7c6d-0000-4000-8000-000000000001,manufacturer=UUVNVQ==,base64=1",
    "current=4096",
    "enabled=1,fstrim_cloned_disks=1",
];

const TASKS: &[&str] = &[
    "UPID:pve1:000ACD12:00BC614E:679A423B:qmclone:9000:capmox@pve!capi:",
    "UPID:a:1:2:3:imgcopy::root@pam:",
];

proptest! {
    #[test]
    fn an_option_string_is_read_by_everybody_and_printed_as_it_came(text in spoiled(OPTIONS)) {
        prop_assert_eq!(OptionString::parse(&text).to_string(), text.clone());
        let net = NetDevice::parse(&text);
        let _ = (net.model(), net.mac(), net.bridge(), net.vlan(), net.mtu());
        prop_assert_eq!(net.to_string(), text.clone());
        let drive = Drive::parse(&text);
        let _ = (drive.volume(), drive.storage(), drive.is_cdrom(), drive.size());
        prop_assert_eq!(drive.to_string(), text.clone());
        let _ = BootOrder::parse(&text).devices();
        let size = text.split("size=").nth(1).unwrap_or_default();
        let _ = parse_size(size.split(',').next().unwrap_or_default());
    }

    #[test]
    fn what_is_set_in_a_network_device_is_read_back(
        text in spoiled(OPTIONS), bridge in "[a-z][a-z0-9.]{0,9}", tag in 1_u16..4095,
    ) {
        let mut net = NetDevice::parse(&text);
        let mac = net.mac().map(str::to_owned);
        net.set("bridge", &bridge);
        net.set("tag", tag);
        let read = NetDevice::parse(&net.to_string());
        prop_assert_eq!(read.bridge(), Some(bridge.as_str()));
        prop_assert_eq!(read.vlan(), Some(tag));
        prop_assert_eq!(read.mac().map(str::to_owned), mac);
    }

    #[test]
    fn a_task_id_is_printed_as_it_came_and_never_leads_elsewhere(text in spoiled(TASKS)) {
        if let Ok(upid) = text.parse::<Upid>() {
            prop_assert_eq!(upid.to_string(), text.clone());
            let _ = (upid.kind(), upid.id(), upid.vmid(), upid.started(), upid.user());
            prop_assert!(!text.contains(['/', '?', '#', '%', '\\']), "it goes into a path");
            prop_assert_eq!(upid.as_str().parse::<Upid>(), Ok(upid));
        }
    }

    #[test]
    fn names_and_numbers_are_refused_or_printed_as_they_came(text in ".{0,80}") {
        if let Ok(node) = text.parse::<NodeName>() {
            prop_assert_eq!(node.as_str(), text.as_str());
        }
        if let Ok(storage) = text.parse::<StorageName>() {
            prop_assert_eq!(storage.as_str(), text.as_str());
        }
        if let Ok(vmid) = text.parse::<VmId>() {
            prop_assert_eq!(vmid.to_string().parse::<VmId>(), Ok(vmid));
        }
    }

    #[test]
    fn tags_are_read_as_they_are_printed(text in ".{0,60}", other in "[a-z0-9_.+-]{1,12}") {
        let mut tags = Tags::parse(&text);
        prop_assert_eq!(Tags::parse(&tags.to_string()), tags.clone());
        tags.insert(&other);
        prop_assert!(Tags::parse(&tags.to_string()).contains(&other));
        tags.remove(&other);
        prop_assert!(!Tags::parse(&tags.to_string()).contains(&other));
        let split = split_tags(&text);
        prop_assert_eq!(split_tags(&split.join(";")), split);
    }

    #[test]
    fn a_size_is_whole_bytes_or_none(text in "[0-9]{0,30}(\\.[0-9]{0,30})?[KMGTPkmgtx]?.{0,2}") {
        let _ = parse_size(&text);
    }
}
