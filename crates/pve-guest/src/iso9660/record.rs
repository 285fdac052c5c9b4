//! Directory records: one each for a file or a directory.

use super::{IsoError, SECTOR, damaged};

/// Set in the flags of a directory.
const DIRECTORY: u8 = 0x02;
/// Set when the file goes on in the next record.
const MULTI_EXTENT: u8 = 0x80;

/// One directory record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    extent: u32,
    size: u32,
    flags: u8,
    /// Identifier as it stands there.
    pub(super) name: &'a [u8],
    /// What extensions such as Rock Ridge have added.
    pub(super) system_use: &'a [u8],
    length: usize,
}

/// The bytes at an offset.
fn bytes<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], IsoError> {
    let bytes = data.get(at..at.saturating_add(N)).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| damaged("a number is cut off"))
}

/// A number that is given twice, little and big endian; the two must agree.
pub(super) fn both32(data: &[u8], at: usize) -> Result<u32, IsoError> {
    let little = u32::from_le_bytes(bytes(data, at)?);
    let big = u32::from_be_bytes(bytes(data, at.saturating_add(4))?);
    if little != big {
        return Err(damaged(format!("a number reads {little} and {big}")));
    }
    Ok(little)
}

/// The same in 16 bits.
pub(super) fn both16(data: &[u8], at: usize) -> Result<u16, IsoError> {
    let little = u16::from_le_bytes(bytes(data, at)?);
    let big = u16::from_be_bytes(bytes(data, at.saturating_add(2))?);
    if little != big {
        return Err(damaged(format!("a number reads {little} and {big}")));
    }
    Ok(little)
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `area`; none where the sector's records end.
    pub(super) fn parse(area: &'a [u8]) -> Result<Option<Self>, IsoError> {
        let length = usize::from(*area.first().unwrap_or(&0));
        if length == 0 {
            return Ok(None);
        }
        let record = area.get(..length).ok_or_else(|| damaged("a directory record is cut off"))?;
        let name_length = usize::from(*record.get(32).ok_or_else(|| damaged("a short record"))?);
        let name = record.get(33..33 + name_length).ok_or_else(|| damaged("a name is cut off"))?;
        // A padding byte keeps the system use area at an even offset.
        let after = 33 + name_length + usize::from(name_length.is_multiple_of(2));
        Ok(Some(Self {
            extent: both32(record, 2)?,
            size: both32(record, 10)?,
            flags: *record.get(25).unwrap_or(&0),
            name,
            system_use: record.get(after..).unwrap_or_default(),
            length,
        }))
    }

    pub(super) fn is_directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    /// What the record points at.
    pub(super) fn content<'d>(&self, data: &'d [u8]) -> Result<&'d [u8], IsoError> {
        if self.flags & MULTI_EXTENT != 0 {
            return Err(damaged("a file has more than one extent"));
        }
        let outside = || damaged("a file lies outside of the image");
        let start = usize::try_from(self.extent).map_err(|_| outside())?;
        let start = start.checked_mul(SECTOR).ok_or_else(outside)?;
        let size = usize::try_from(self.size).map_err(|_| outside())?;
        let end = start.checked_add(size).ok_or_else(outside)?;
        data.get(start..end).ok_or_else(outside)
    }
}

/// The records of a directory, from its own on. Records do not cross sectors.
pub(super) fn records<'a>(
    data: &'a [u8],
    directory: &Record<'a>,
) -> Result<impl Iterator<Item = Result<Record<'a>, IsoError>> + use<'a>, IsoError> {
    if !directory.is_directory() {
        return Err(damaged("the root directory is no directory"));
    }
    let content = directory.content(data)?;
    Ok(content.chunks(SECTOR).flat_map(|sector| {
        let mut rest = sector;
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let record = Record::parse(rest).transpose()?;
            match &record {
                Ok(record) => rest = rest.get(record.length..).unwrap_or_default(),
                Err(_) => failed = true,
            }
            Some(record)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_readings_of_a_number_must_agree() {
        assert_eq!(both32(&[1, 2, 0, 0, 0, 0, 2, 1], 0), Ok(0x0201));
        assert!(both32(&[1, 2, 0, 0, 0, 0, 2, 2], 0).is_err());
        assert!(both32(&[1, 2], 0).is_err());
        assert_eq!(both16(&[0, 8, 8, 0], 0), Ok(2048));
        assert!(both16(&[0, 8, 0, 8], 0).is_err());
    }

    #[test]
    fn records_that_are_cut_off_are_damage() {
        assert!(Record::parse(&[]).unwrap().is_none());
        assert!(Record::parse(&[40, 0, 0]).is_err());
        assert!(Record::parse(&[3, 0, 0]).is_err());
        let mut record = [0; 34];
        record[0] = 34;
        record[32] = 9;
        assert!(Record::parse(&record).is_err());
    }
}
