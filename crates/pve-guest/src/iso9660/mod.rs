//! Reads the files of an ISO 9660 image the way a Linux guest mounts it: Rock Ridge names if the
//! image has them, else Joliet names, else the plain ones in lower case.
//!
//! Must not share code with whoever writes such images: it is the second opinion on them.

mod record;
mod susp;

use std::collections::BTreeMap;

use record::{Record, records};

/// Size of a sector, and the only logical block size that is in use.
const SECTOR: usize = 2048;

/// Why an image cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsoError {
    /// There is no ISO 9660 volume at all.
    #[error("the CD-ROM holds no ISO 9660 volume")]
    NoVolume,
    /// A structure contradicts itself or the standard.
    #[error("the ISO 9660 image is damaged: {0}")]
    Damaged(String),
}

fn damaged(what: impl Into<String>) -> IsoError {
    IsoError::Damaged(what.into())
}

/// Which names a mount shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// POSIX names of the Rock Ridge extension.
    RockRidge,
    /// Unicode names of a Joliet volume.
    Joliet,
    /// Upper-case 8.3 names, shown in lower case without version.
    Plain,
}

/// A mounted image.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Volume identifier of the primary volume, without the padding.
    pub label: String,
    /// Which names the files have.
    pub names: Names,
    /// Files of the root directory.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<&String> = self.files.keys().collect();
        f.debug_struct("Image")
            .field("label", &self.label)
            .field("files", &files)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Mounts an image.
    ///
    /// # Errors
    /// [`IsoError`] when a mount would fail or a file lies outside of the image.
    pub fn read(data: &[u8]) -> Result<Self, IsoError> {
        let volumes = Volumes::find(data)?;
        let label = text(volumes.primary.get(40..72).unwrap_or_default());
        let root = root_record(volumes.primary)?;
        let own = records(data, &root)?.next().transpose()?;
        let own = own.ok_or_else(|| damaged("the root directory is empty"))?;
        if let Some(skip) = susp::start(own.system_use) {
            let files = files(data, &root, |record| susp::name(data, record, skip))?;
            return Ok(Self { label, names: Names::RockRidge, files });
        }
        if let Some(joliet) = volumes.joliet {
            let root = root_record(joliet)?;
            let files = files(data, &root, |record| Ok(Some(ucs2(record.name)?)))?;
            return Ok(Self { label, names: Names::Joliet, files });
        }
        let files = files(data, &root, |record| Ok(Some(plain(record.name))))?;
        Ok(Self { label, names: Names::Plain, files })
    }
}

/// The descriptors that a mount looks at.
struct Volumes<'a> {
    primary: &'a [u8],
    joliet: Option<&'a [u8]>,
}

impl<'a> Volumes<'a> {
    fn find(data: &'a [u8]) -> Result<Self, IsoError> {
        let (mut primary, mut joliet) = (None, None);
        for sector in data.chunks_exact(SECTOR).skip(16) {
            if sector.get(1..6) != Some(b"CD001") {
                break;
            }
            match sector.first() {
                Some(1) => primary = primary.or(Some(sector)),
                Some(2) if is_joliet(sector) => joliet = joliet.or(Some(sector)),
                Some(255) => {
                    let primary = primary.ok_or(IsoError::NoVolume)?;
                    return Ok(Self { primary, joliet });
                }
                _ => {}
            }
        }
        match primary {
            Some(_) => Err(damaged("the volume descriptors have no end")),
            None => Err(IsoError::NoVolume),
        }
    }
}

/// The three levels of Joliet, by their escape sequences.
fn is_joliet(descriptor: &[u8]) -> bool {
    matches!(descriptor.get(88..91), Some(b"%/@" | b"%/C" | b"%/E"))
}

fn root_record(descriptor: &[u8]) -> Result<Record<'_>, IsoError> {
    let block = record::both16(descriptor, 128)?;
    if usize::from(block) != SECTOR {
        return Err(damaged(format!("its logical block size is {block}")));
    }
    let area = descriptor.get(156..190).unwrap_or_default();
    Record::parse(area)?.ok_or_else(|| damaged("the root directory has no record"))
}

/// The files of a directory under the names that `name` gives; none keeps the plain one.
fn files<'a>(
    data: &'a [u8],
    directory: &Record<'a>,
    name: impl Fn(&Record<'a>) -> Result<Option<String>, IsoError>,
) -> Result<BTreeMap<String, Vec<u8>>, IsoError> {
    let mut files = BTreeMap::new();
    for record in records(data, directory)? {
        let record = record?;
        if record.is_directory() {
            continue;
        }
        let name = name(&record)?.unwrap_or_else(|| plain(record.name));
        if files.insert(name.clone(), record.content(data)?.to_vec()).is_some() {
            return Err(damaged(format!("two files are named {name}")));
        }
    }
    Ok(files)
}

/// The plain name as Linux shows it: lower case, no version, no empty extension.
fn plain(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let name = name.split(';').next().unwrap_or_default();
    name.strip_suffix('.').unwrap_or(name).to_owned()
}

/// A Joliet name: big-endian UCS-2, which may carry a version too.
fn ucs2(name: &[u8]) -> Result<String, IsoError> {
    let units = name.chunks(2).map(|pair| match pair {
        [high, low] => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(damaged("a Joliet name has an odd length")),
    });
    let units = units.collect::<Result<Vec<u16>, _>>()?;
    let name = String::from_utf16(&units).map_err(|_| damaged("a Joliet name is no Unicode"))?;
    Ok(name.strip_suffix(";1").unwrap_or(&name).to_owned())
}

fn text(padded: &[u8]) -> String {
    String::from_utf8_lossy(padded).trim_end_matches([' ', '\0']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_said_to_be_none() {
        for data in [vec![], vec![0; 100], vec![0; 40 * SECTOR]] {
            assert_eq!(Image::read(&data), Err(IsoError::NoVolume));
        }
    }

    #[test]
    fn descriptors_without_an_end_are_damage() {
        let mut data = vec![0; 17 * SECTOR];
        data[16 * SECTOR] = 1;
        data[16 * SECTOR + 1..16 * SECTOR + 6].copy_from_slice(b"CD001");
        assert!(matches!(Image::read(&data), Err(IsoError::Damaged(_))));
    }

    #[test]
    fn names_are_shown_as_linux_shows_them() {
        assert_eq!(plain(b"USER_DAT.;1"), "user_dat");
        assert_eq!(plain(b"README.TXT;1"), "readme.txt");
        assert_eq!(ucs2(b"\0u\0s\0;\x001").unwrap(), "us");
        assert!(ucs2(b"\0u\0").is_err());
    }
}
