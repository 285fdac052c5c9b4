//! The System Use Sharing Protocol and, in it, the names of Rock Ridge.

use super::record::{Record, both32};
use super::{IsoError, SECTOR, damaged};

/// The name goes on in the next NM entry.
const CONTINUES: u8 = 0x01;
/// An end to chains of continuation areas that lead into each other.
const MAX_CONTINUATIONS: usize = 16;

/// Whether the protocol is in use, told by the root directory's own record: how many bytes to skip
/// in each system use area.
pub(super) fn start(system_use: &[u8]) -> Option<usize> {
    match system_use {
        [b'S', b'P', 7, 1, 0xbe, 0xef, skip, ..] => Some(usize::from(*skip)),
        _ => None,
    }
}

/// The Rock Ridge name of a record, if it has one.
pub(super) fn name(
    data: &[u8],
    record: &Record<'_>,
    skip: usize,
) -> Result<Option<String>, IsoError> {
    let mut area = record.system_use.get(skip..).unwrap_or_default();
    let mut name: Option<Vec<u8>> = None;
    for _ in 0..MAX_CONTINUATIONS {
        let mut continuation = None;
        while let Some(entry) = next(&mut area)? {
            match entry {
                [b'N', b'M', _, _, flags, part @ ..] => {
                    name.get_or_insert_default().extend_from_slice(part);
                    if flags & CONTINUES == 0 {
                        let name = name.unwrap_or_default();
                        let name = String::from_utf8(name);
                        return name.map(Some).map_err(|_| damaged("a name is no UTF-8"));
                    }
                }
                [b'C', b'E', ..] => continuation = Some(continued(data, entry)?),
                [b'S', b'T', ..] => break,
                _ => {}
            }
        }
        match continuation {
            Some(next) => area = next,
            None => break,
        }
    }
    match name {
        Some(_) => Err(damaged("a Rock Ridge name has no end")),
        None => Ok(None),
    }
}

/// Takes the next entry off the area. What is shorter than an entry is padding.
fn next<'a>(area: &mut &'a [u8]) -> Result<Option<&'a [u8]>, IsoError> {
    let Some(length) = area.get(2).map(|length| usize::from(*length)) else { return Ok(None) };
    if area.starts_with(&[0]) {
        return Ok(None);
    }
    if length < 4 || length > area.len() {
        return Err(damaged("a system use entry is cut off"));
    }
    let (entry, rest) = area.split_at(length);
    *area = rest;
    Ok(Some(entry))
}

fn continued<'a>(data: &'a [u8], entry: &[u8]) -> Result<&'a [u8], IsoError> {
    let number = |at| both32(entry, at).map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let (block, offset, length) = (number(4)?, number(12)?, number(20)?);
    let start = block.checked_mul(SECTOR).and_then(|start| start.checked_add(offset));
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    let area = range.and_then(|range| data.get(range));
    area.ok_or_else(|| damaged("a continuation area lies outside of the image"))
}
