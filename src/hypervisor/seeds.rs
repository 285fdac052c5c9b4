//! Which storages of a node take the ISO images with bootstrap data, and in which order.

use crate::ids::StorageName;
use crate::pve::StorageStatus;

/// Bytes that the largest seed may take.
const ROOM: u64 = 4 << 20;

/// The storages that take ISO images: those that are named, in that order, else all as Proxmox lists
/// them. One that is full comes last.
pub fn for_seeds<'a>(
    storages: &'a [StorageStatus],
    named: &[StorageName],
) -> Vec<&'a StorageStatus> {
    let rank = |storage: &StorageStatus| named.iter().position(|name| *name == storage.storage);
    let mut usable: Vec<&StorageStatus> = storages
        .iter()
        .filter(|storage| storage.takes("iso"))
        .filter(|storage| named.is_empty() || rank(storage).is_some())
        .collect();
    usable.sort_by_key(|storage| rank(storage));
    // A full one may have room again when there is no other.
    let (roomy, full): (Vec<_>, Vec<_>) =
        usable.into_iter().partition(|storage| storage.avail.is_none_or(|avail| avail >= ROOM));
    roomy.into_iter().chain(full).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn seeds_go_to_the_storages_that_are_named_or_to_any_in_proxmoxs_order() {
        let storage = |name: &str, content: &str, avail: u64| -> StorageStatus {
            let value = serde_json::json!({"storage": name, "content": content, "avail": avail});
            serde_json::from_value(value).expect("a storage")
        };
        let all = [
            storage("full", "iso", 1),
            storage("local", "iso,vztmpl", ROOM),
            storage("disks", "images", ROOM),
            storage("cephfs", "iso", ROOM),
        ];
        let chosen = |named: &[&str]| {
            let named: Vec<StorageName> =
                named.iter().map(|name| name.parse().expect("a name")).collect();
            let chosen = for_seeds(&all, &named);
            chosen.iter().map(|one| one.storage.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), ["local", "cephfs", "full"]);
        assert_eq!(chosen(&["cephfs"]), ["cephfs"]);
        assert_eq!(chosen(&["full", "cephfs", "local"]), ["cephfs", "local", "full"]);
        assert!(chosen(&["disks", "gone"]).is_empty());
    }
}
