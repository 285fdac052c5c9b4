//! The root folder of each tree: directory records, with Rock Ridge fields in the primary one.

use super::names::Named;
use super::{SECTOR, both16, both32, pad_to_sector, sectors_for};

/// 2000-01-01 00:00:00 UTC (ECMA-119 9.1.5).
const DATE: [u8; 7] = [100, 1, 1, 0, 0, 0, 0];
const FLAG_FOLDER: u8 = 2;
/// POSIX modes (RRIP 4.1.1). A seed holds secrets, and only root has business reading it.
const MODE_FOLDER: u32 = 0o040_555;
const MODE_FILE: u32 = 0o100_400;
/// Rock Ridge fields in a record besides PX: NM is flag 8, TF is flag 128, PX is flag 1.
const RR_OF_FOLDER: u8 = 0x81;
const RR_OF_FILE: u8 = 0x89;

/// Which of the two name spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tree {
    /// Plain names with Rock Ridge beside them.
    Primary,
    /// UCS-2 names.
    Joliet,
}

/// Where a file or folder lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// First sector.
    pub(super) sector: u32,
    /// Length in bytes.
    pub(super) len: u32,
}

/// The root's record inside a volume descriptor, which has no room for Rock Ridge.
pub(super) fn root_record(root: Extent) -> Vec<u8> {
    record(root, FLAG_FOLDER, &[0], &[])
}

/// Sectors that the root folder of `tree` needs.
pub(super) fn sectors(tree: Tree, files: &[Named<'_>]) -> u32 {
    // The length of a record does not depend on where its file lies.
    let nowhere = Extent { sector: 0, len: 0 };
    let extents = vec![nowhere; files.len()];
    let len = folder(tree, files, &extents, nowhere).len();
    sectors_for(u32::try_from(len).unwrap_or(u32::MAX))
}

/// The root folder of `tree`, padded to whole sectors.
pub(super) fn folder(tree: Tree, files: &[Named<'_>], extents: &[Extent], root: Extent) -> Vec<u8> {
    let (this, parent, mut records) = match tree {
        Tree::Primary => (rock_ridge_of_root(), rock_ridge_of_folder(), primary(files, extents)),
        Tree::Joliet => (Vec::new(), Vec::new(), joliet(files, extents)),
    };
    // ECMA-119 9.3: records are sorted by name.
    records.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut out = record(root, FLAG_FOLDER, &[0], &this);
    let records = records.into_iter().map(|(_, record)| record);
    for record in std::iter::once(record(root, FLAG_FOLDER, &[1], &parent)).chain(records) {
        // A record does not cross the end of a sector.
        if out.len() / SECTOR != (out.len() + record.len() - 1) / SECTOR {
            pad_to_sector(&mut out);
        }
        out.extend(record);
    }
    pad_to_sector(&mut out);
    out
}

fn primary(files: &[Named<'_>], extents: &[Extent]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let one = |(file, extent): (&Named<'_>, &Extent)| {
        let name = file.plain.as_bytes();
        (name.to_vec(), record(*extent, 0, name, &rock_ridge_of_file(file.name)))
    };
    files.iter().zip(extents).map(one).collect()
}

fn joliet(files: &[Named<'_>], extents: &[Extent]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let one = |(file, extent): (&Named<'_>, &Extent)| {
        let name = file.joliet();
        (name.clone(), record(*extent, 0, &name, &[]))
    };
    files.iter().zip(extents).map(one).collect()
}

/// A directory record (ECMA-119 9.1). Every name here is at most 128 bytes long and every system
/// use area at most 140, and never both: see the test below.
fn record(extent: Extent, flags: u8, name: &[u8], system_use: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0]; // length, filled in below; length of the extended attributes
    out.extend(both32(extent.sector));
    out.extend(both32(extent.len));
    out.extend(DATE);
    out.push(flags);
    out.extend([0, 0]); // not interleaved
    out.extend(both16(1)); // volume number
    out.push(byte_len(name.len()));
    out.extend(name);
    // The system use area starts, and the record ends, at an even offset.
    for part in [&[][..], system_use] {
        out.extend(part);
        if out.len() % 2 == 1 {
            out.push(0);
        }
    }
    let len = byte_len(out.len());
    if let Some(first) = out.first_mut() {
        *first = len;
    }
    out
}

fn rock_ridge_of_root() -> Vec<u8> {
    // SP must be the first field of the first record; ER names the extension in use.
    let mut out = field(*b"SP", &[0xBE, 0xEF, 0]);
    out.extend(rock_ridge_of_folder());
    let id = b"RRIP_1991A";
    let mut er = vec![byte_len(id.len()), 0, 0, 1]; // no description, no source, version 1
    er.extend(id);
    out.extend(field(*b"ER", &er));
    out
}

fn rock_ridge_of_folder() -> Vec<u8> {
    let mut out = field(*b"RR", &[RR_OF_FOLDER]);
    out.extend(posix(MODE_FOLDER, 2));
    out.extend(times());
    out
}

fn rock_ridge_of_file(name: &str) -> Vec<u8> {
    let mut out = field(*b"RR", &[RR_OF_FILE]);
    let mut nm = vec![0]; // flags: the whole name is in this field
    nm.extend(name.bytes());
    out.extend(field(*b"NM", &nm));
    out.extend(posix(MODE_FILE, 1));
    out.extend(times());
    out
}

/// PX: mode, links, and root as owner and group (RRIP 4.1.1).
fn posix(mode: u32, links: u32) -> Vec<u8> {
    field(*b"PX", &[mode, links, 0, 0].map(both32).concat())
}

/// TF: modification, access and attribute change (RRIP 4.1.6).
fn times() -> Vec<u8> {
    let mut data = vec![0x0E];
    data.extend([DATE, DATE, DATE].concat());
    field(*b"TF", &data)
}

/// A System Use Sharing Protocol field: signature, length, version 1, data.
fn field(signature: [u8; 2], data: &[u8]) -> Vec<u8> {
    let mut out = signature.to_vec();
    out.extend([byte_len(data.len() + 4), 1]);
    out.extend(data);
    out
}

/// A length that fits into a byte by the limits that `names` enforces.
fn byte_len(len: usize) -> u8 {
    debug_assert!(u8::try_from(len).is_ok(), "{len} does not fit into one byte");
    u8::try_from(len).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{File, names};
    use super::*;

    #[test]
    fn the_longest_names_fit_into_their_records() {
        let long = "n".repeat(64);
        let files = [File { name: &long, data: b"" }];
        let files = names::named(&files).expect("valid");
        let extents = [Extent { sector: 1, len: 0 }];
        for (_, record) in primary(&files, &extents).into_iter().chain(joliet(&files, &extents)) {
            assert_eq!(usize::from(record[0]), record.len());
            assert_eq!(record.len() % 2, 0);
        }
    }

    #[test]
    fn a_record_does_not_cross_a_sector() {
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "x".repeat(50))).collect();
        let files: Vec<File<'_>> = names.iter().map(|name| File { name, data: b"" }).collect();
        let files = names::named(&files).expect("valid");
        let extents = vec![Extent { sector: 9, len: 0 }; files.len()];
        for tree in [Tree::Primary, Tree::Joliet] {
            let folder = folder(tree, &files, &extents, extents[0]);
            let mut found = 0;
            for sector in folder.chunks(SECTOR) {
                let mut at = 0;
                while at < SECTOR && sector[at] != 0 {
                    found += 1;
                    at += usize::from(sector[at]);
                }
                assert!(at <= SECTOR);
            }
            assert_eq!(found, files.len() + 2, "two records for the folder and its parent");
        }
    }
}
