//! Images that our own writer made and something else damaged, at the reader of the guest, and the
//! guest's other readers.

use capmox::bootstrap::iso9660::{self, File};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use pve_guest::iso9660::Image;
use pve_guest::meta_data::MetaData;
use pve_guest::user_data::CloudConfig;

use crate::near::{damaged, spoiled};

const META: &[&str] = &["instance-id: a\nlocal-hostname: m-0\n", "- a\n", "a: [1, {b: c}]\n"];
const USER: &[&str] = &[
    "#cloud-config\nwrite_files:\n- path: /a\n  encoding: gz+b64\n  content: H4sIAAAA\n",
    "## template: jinja\n#cloud-config\nruncmd: ['{{ ds.meta_data.local_hostname }}']\n",
    "#cloud-config\nruncmd:\n- [kubeadm, init, --config, /run/kubeadm/kubeadm.yaml]\n",
];

fn image() -> Vec<u8> {
    let files = [
        File { name: "user-data", data: b"#cloud-config\n" },
        File { name: "meta-data", data: b"instance-id: a\n" },
        File { name: "network-config", data: b"version: 2\n" },
    ];
    iso9660::image("cidata", &files).expect("fits")
}

/// Damage where it counts: descriptors and directories.
fn hit() -> impl Strategy<Value = Vec<u8>> {
    let sound = image();
    let changes = vec((16 * 2048..sound.len(), any::<u8>()), 1..40);
    changes.prop_map(move |changes| {
        let mut bytes = sound.clone();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn files_come_back_whole(
        files in btree_map("[a-z][a-z0-9-]{0,30}", vec(any::<u8>(), 0..3000), 0..6),
    ) {
        let list: Vec<File<'_>> = files.iter().map(|(name, data)| File { name, data }).collect();
        let image = Image::read(&iso9660::image("cidata", &list).expect("fits")).expect("sound");
        prop_assert_eq!(image.label, "cidata");
        prop_assert_eq!(image.files, files);
    }

    #[test]
    fn a_damaged_image_is_refused_or_read(bytes in prop_oneof![damaged(image()), hit()]) {
        let _ = Image::read(&bytes);
    }

    #[test]
    fn the_guest_takes_or_refuses_whatever_it_finds(
        meta in spoiled(META), user in spoiled(USER), noise in vec(any::<u8>(), 0..200),
    ) {
        if let Ok(meta) = MetaData::parse(&meta) {
            let _ = (meta.instance_id(), meta.hostname(), meta.kubernetes_version());
            let _ = CloudConfig::parse(user.as_bytes(), &meta);
            let _ = CloudConfig::parse(&noise, &meta);
            let _ = meta.render(&user);
        }
    }
}
