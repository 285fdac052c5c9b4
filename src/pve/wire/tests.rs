use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Probe {
    #[serde(deserialize_with = "number")]
    n: Option<u64>,
    #[serde(deserialize_with = "boolean")]
    b: Option<bool>,
    #[serde(deserialize_with = "flag")]
    f: bool,
    #[serde(deserialize_with = "text")]
    t: Option<String>,
    #[serde(deserialize_with = "text_list")]
    l: Vec<String>,
}

fn probe(value: Value) -> Probe {
    serde_json::from_value(value).unwrap()
}

#[test]
fn numbers_come_as_numbers_texts_and_floats() {
    for (value, wanted) in [
        (json!(5), Some(5)),
        (json!("5"), Some(5)),
        (json!(" 5 "), Some(5)),
        (json!(5.9), Some(5)),
        (json!("5.9"), Some(5)),
        (json!(1e30), None),
        (json!(-1), None),
        (json!(""), None),
        (json!("x"), None),
        (json!("NaN"), None),
        (json!(null), None),
        (json!([1]), None),
        (json!({"a": 1}), None),
    ] {
        assert_eq!(probe(json!({"n": value})).n, wanted, "{value}");
    }
    assert_eq!(probe(json!({})), Probe::default());
}

#[test]
fn booleans_come_in_every_form() {
    for (value, wanted) in [
        (json!(1), Some(true)),
        (json!(0), Some(false)),
        (json!("1"), Some(true)),
        (json!("0"), Some(false)),
        (json!(""), Some(false)),
        (json!("on"), Some(true)),
        (json!(true), Some(true)),
        (json!(false), Some(false)),
        (json!(null), None),
    ] {
        let read = probe(json!({"b": value, "f": value}));
        assert_eq!((read.b, read.f), (wanted, wanted.unwrap_or(false)), "{value}");
    }
}

#[test]
fn texts_and_lists_come_in_every_form() {
    assert_eq!(probe(json!({"t": 2048})).t.as_deref(), Some("2048"));
    assert_eq!(probe(json!({"t": ""})).t, None);
    assert_eq!(probe(json!({"l": "iso, vztmpl,"})).l, ["iso", "vztmpl"]);
    assert_eq!(probe(json!({"l": ["iso", 1]})).l, ["iso", "1"]);
    assert!(probe(json!({"l": null})).l.is_empty());
    assert_eq!(value_list::<Probe>(json!([{"n": 1}, "strange", {"n": 2}])).unwrap().len(), 2);
    assert_eq!(value_list::<Probe>(Value::Null).unwrap(), []);
    assert!(value_list::<Probe>(json!({})).is_err());
}

#[test]
fn a_net_device_is_read_in_each_form_and_edited_in_place() {
    let printed = "virtio=BC:24:11:AA:BB:CC,bridge=vmbr0,future=1,tag=7,trunks=10;20-30";
    let mut net = NetDevice::parse(printed);
    assert_eq!(net.model(), Some("virtio"));
    assert_eq!(net.mac(), Some("BC:24:11:AA:BB:CC"));
    assert_eq!((net.bridge(), net.vlan(), net.mtu()), (Some("vmbr0"), Some(7), None));
    net.set("bridge", "vmbr1");
    net.set("mtu", 1500);
    net.remove("tag");
    net.set_model("e1000");
    assert_eq!(
        net.to_string(),
        "e1000=BC:24:11:AA:BB:CC,bridge=vmbr1,future=1,trunks=10;20-30,mtu=1500"
    );
    let long = NetDevice::parse("model=virtio,macaddr=bc:24:11:00:00:01,bridge=vmbr0");
    assert_eq!((long.model(), long.mac()), (Some("virtio"), Some("bc:24:11:00:00:01")));
    let mut new = NetDevice::new("virtio");
    new.set("bridge", "vmbr0");
    assert_eq!((new.model(), new.mac()), (Some("virtio"), None));
    new.set_model("e1000");
    assert_eq!(new.to_string(), "e1000,bridge=vmbr0");
}

#[test]
fn a_drive_tells_its_volume_size_and_kind() {
    let disk = Drive::parse("local-lvm:vm-100-disk-0,discard=on,size=8G,ssd=1");
    assert_eq!(disk.volume(), Some("local-lvm:vm-100-disk-0"));
    assert_eq!((disk.storage(), disk.size()), (Some("local-lvm"), Some(8 << 30)));
    assert!(!disk.is_cdrom());
    let iso = Drive::parse("file=local:iso/user-data-100.iso,media=cdrom,size=374K");
    assert_eq!(iso.volume(), Some("local:iso/user-data-100.iso"));
    assert!(iso.is_cdrom());
    let empty = Drive::parse("none,media=cdrom");
    assert_eq!((empty.volume(), empty.storage(), empty.size()), (Some("none"), None, None));
}

#[test]
fn sizes_are_powers_of_1024() {
    for (text, bytes) in [
        ("8G", Some(8 << 30)),
        ("2252M", Some(2252 << 20)),
        ("374K", Some(374 << 10)),
        ("1.5T", Some(3 << 39)),
        ("512", Some(512)),
        ("0", Some(0)),
        ("", None),
        ("G", None),
        ("1.G", None),
        ("-1G", None),
        ("+1G", None),
        ("8X", None),
        ("8\u{e4}", None),
        ("99999999999T", None),
    ] {
        assert_eq!(parse_size(text), bytes, "{text:?}");
    }
}

#[test]
fn tags_are_compared_in_lower_case_and_kept_as_written() {
    let tags = Tags::parse("B;a, C a");
    assert_eq!(tags.to_string(), "a;B;C");
    assert!(tags.contains("A") && !tags.contains("d"));
    assert!(tags.is_superset(&Tags::parse("c,B")));
    assert!(Tags::parse("").is_empty() && Tags::parse(" ;").is_empty());
}

#[test]
fn a_boot_order_names_devices() {
    let order = BootOrder::parse("order=scsi0;ide0;net0");
    assert_eq!(order.devices(), ["scsi0", "ide0", "net0"]);
    assert_eq!(order.to_string(), "order=scsi0;ide0;net0");
    assert!(BootOrder::parse("cdn").devices().is_empty());
    assert!(BootOrder::from_iter(["scsi0"]).contains("scsi0"));
}

proptest! {
    #[test]
    fn an_option_string_is_printed_as_it_was_read(text in ".*") {
        prop_assert_eq!(OptionString::parse(&text).to_string(), text);
    }

    #[test]
    fn setting_one_key_leaves_all_others(
        text in "[a-z]{1,3}(=[a-z0-9:;]{0,4})?(,[a-z]{1,3}=[a-z0-9:;]{0,4}){0,5}",
        key in "[a-z]{1,3}",
        value in "[a-z0-9]{0,5}",
    ) {
        let before = OptionString::parse(&text);
        let mut after = before.clone();
        after.set(&key, &value);
        prop_assert_eq!(after.get(&key), Some(value.as_str()));
        let others = |options: &OptionString| -> Vec<(String, String)> {
            options
                .pairs()
                .filter(|(name, _)| *name != key)
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        };
        prop_assert_eq!(others(&before), others(&after));
        prop_assert_eq!(before.bare(), after.bare());
        prop_assert_eq!(OptionString::parse(&after.to_string()), after);
    }

    #[test]
    fn the_mac_address_survives_every_edit(
        mac in "([0-9A-F]{2}:){5}[0-9A-F]{2}",
        bridge in "[a-z]{1,8}[0-9]",
        tag in 1_u16..4095,
    ) {
        let mut net = NetDevice::parse(&format!("virtio={mac},bridge=vmbr9,firewall=1"));
        net.set("bridge", &bridge);
        net.set("tag", tag);
        net.set_model("vmxnet3");
        let net = NetDevice::parse(&net.to_string());
        prop_assert_eq!(net.mac(), Some(mac.as_str()));
        prop_assert_eq!(net.vlan(), Some(tag));
        prop_assert_eq!(net.options().get("firewall"), Some("1"));
    }

    #[test]
    fn tags_read_what_they_print(text in "[a-zA-Z0-9_.+;, -]{0,40}") {
        let tags = Tags::parse(&text);
        prop_assert_eq!(Tags::parse(&tags.to_string()), tags);
    }
}
