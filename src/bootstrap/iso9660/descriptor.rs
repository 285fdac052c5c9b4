//! Volume descriptors and path tables, one pair for each of the two trees.

use super::directory::{self, Extent, Tree};
use super::names::ucs2;
use super::{SECTOR, both16, both32, bytes_in};

/// Bytes of a path table with nothing but the root.
const PATH_TABLE_LEN: u32 = 10;
/// Escape sequence that marks UCS-2 level 3, Joliet's widest.
const JOLIET_ESCAPE: &[u8] = b"%/E";
/// 2000-01-01 00:00:00.00 UTC (ECMA-119 8.4.26.1).
const DATE: &[u8; 17] = b"2000010100000000\0";
/// "Not specified".
const NO_DATE: &[u8; 17] = b"0000000000000000\0";

/// What a volume descriptor says.
#[derive(Debug)]
pub(super) struct Volume<'a> {
    pub(super) tree: Tree,
    pub(super) label: &'a str,
    /// Size of the whole image.
    pub(super) sectors: u32,
    pub(super) root: Extent,
    /// Sector of the little-endian path table; the big-endian one follows it.
    pub(super) path_table: u32,
}

impl Volume<'_> {
    /// The descriptor's sector (ECMA-119 8.4 and 8.5).
    pub(super) fn descriptor(&self) -> Vec<u8> {
        let (kind, escape): (u8, &[u8]) = match self.tree {
            Tree::Primary => (1, b""),
            Tree::Joliet => (2, JOLIET_ESCAPE),
        };
        let mut out = header(kind);
        out.push(0);
        self.text(&mut out, "LINUX", 32);
        self.text(&mut out, self.label, 32);
        out.extend([0; 8]);
        out.extend(both32(self.sectors));
        out.extend(escape);
        out.resize(120, 0);
        out.extend(both16(1)); // volumes in the set
        out.extend(both16(1)); // this one's number
        out.extend(both16(2048)); // bytes in a block
        out.extend(both32(PATH_TABLE_LEN));
        out.extend(self.path_table.to_le_bytes());
        out.extend([0; 4]);
        out.extend((self.path_table + 1).to_be_bytes());
        out.extend([0; 4]);
        out.extend(directory::root_record(self.root));
        // Volume set, publisher, preparer, application; then copyright, abstract, bibliography.
        for len in [128, 128, 128, 128, 37, 37, 37] {
            self.text(&mut out, "", len);
        }
        for date in [DATE, DATE, NO_DATE, NO_DATE] {
            out.extend(date); // created, modified, expires, effective
        }
        out.push(1); // file structure version
        out.resize(SECTOR, 0);
        out
    }

    /// Both path tables, a sector each (ECMA-119 9.4). Only the root is a folder.
    pub(super) fn path_tables(&self) -> Vec<u8> {
        let table = |sector: [u8; 4], parent: [u8; 2]| {
            let mut out = vec![1, 0]; // length of the name, of the extended attributes
            out.extend(sector);
            out.extend(parent);
            out.extend([0, 0]); // the root's name, and padding
            out.resize(SECTOR, 0);
            out
        };
        let sector = self.root.sector;
        let mut tables = table(sector.to_le_bytes(), 1u16.to_le_bytes());
        tables.extend(table(sector.to_be_bytes(), 1u16.to_be_bytes()));
        tables
    }

    /// A text field of `len` bytes, padded with the tree's own spaces.
    fn text(&self, out: &mut Vec<u8>, text: &str, len: usize) {
        let end = out.len() + len;
        match self.tree {
            Tree::Primary => {
                out.extend(text.bytes());
                out.resize(end, b' ');
            }
            Tree::Joliet => {
                out.extend(ucs2(text));
                while out.len() + 1 < end {
                    out.extend([0, b' ']);
                }
                // The three 37-byte fields have an odd byte left over.
                out.resize(end, 0);
            }
        }
    }
}

/// The descriptor that ends the list (ECMA-119 8.3).
pub(super) fn terminator() -> Vec<u8> {
    let mut out = header(255);
    out.resize(SECTOR, 0);
    out
}

fn header(kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes_in(1) as usize);
    out.push(kind);
    out.extend(b"CD001");
    out.push(1); // version
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(tree: Tree) -> Volume<'static> {
        let root = Extent { sector: 23, len: 2048 };
        Volume { tree, label: "cidata", sectors: 30, root, path_table: 19 }
    }

    #[test]
    fn fields_stand_where_the_standard_puts_them() {
        for tree in [Tree::Primary, Tree::Joliet] {
            let out = volume(tree).descriptor();
            assert_eq!(out.len(), SECTOR);
            assert_eq!(out[80..88], both32(30), "volume space size");
            assert_eq!(out[128..132], both16(2048), "block size");
            assert_eq!(out[140..144], 19u32.to_le_bytes(), "path table, little-endian");
            assert_eq!(out[148..152], 20u32.to_be_bytes(), "path table, big-endian");
            assert_eq!(out[156], 34, "length of the root's record");
            assert_eq!(out[813..830], *DATE, "creation date");
            assert_eq!(out[881], 1, "file structure version");
        }
    }

    #[test]
    fn joliet_is_marked_by_its_escape_sequence() {
        assert_eq!(&volume(Tree::Joliet).descriptor()[88..91], b"%/E");
        assert_eq!(volume(Tree::Primary).descriptor()[88..91], [0; 3]);
    }
}
