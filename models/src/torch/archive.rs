//! Zip archives, read from a memory map: entries that are stored share it.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use bytes::Bytes;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// Most entries of an archive.
const MAX_ENTRIES: usize = 100_000;

/// Most bytes that one entry may inflate to.
const MAX_INFLATED_BYTES: u64 = 256 << 20;

/// Most bytes that all entries together may inflate to.
const MAX_TOTAL_INFLATED_BYTES: u64 = 1 << 30;

/// Most bytes of an entry for each byte of it in the file. Program text compresses about 10 times.
const MAX_RATIO: u64 = 1024;

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It cannot be read at all.
    #[error("the zip archive is truncated or damaged ({0})")]
    Damaged(String),
    /// It holds too many entries.
    #[error("the zip archive has {0} entries, more than {MAX_ENTRIES}")]
    TooManyEntries(usize),
    /// A name that leaves the archive, or that two entries have.
    #[error("the zip archive holds an entry named {name:?}, {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An entry that must be there is missing.
    #[error("the zip archive has no entry {0:?}; the end of the file may be missing")]
    Missing(String),
    /// An entry cannot be read.
    #[error("the entry {entry:?} cannot be read: {reason}")]
    Entry {
        /// The entry.
        entry: String,
        /// What is wrong.
        reason: String,
    },
}

/// An archive with the names of its entries, without the folder that all of them may lie in.
pub(crate) struct Archive {
    bytes: Bytes,
    zip: ZipArchive<Cursor<Bytes>>,
    index: BTreeMap<String, usize>,
    /// How much may still be inflated.
    budget: u64,
}

impl Archive {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn open(bytes: Bytes) -> Result<Self, ArchiveError> {
        // Archives of PyTorch begin where the file does. Looking for another beginning would also misread some of them
        // (zip 9.8.2 takes an offset for one).
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let zip = ZipArchive::with_config(config, Cursor::new(bytes.clone()))
            .map_err(|error| ArchiveError::Damaged(error.to_string()))?;
        if zip.len() > MAX_ENTRIES {
            return Err(ArchiveError::TooManyEntries(zip.len()));
        }
        let mut names = Vec::with_capacity(zip.len());
        for name in zip.file_names_raw() {
            let shown = String::from_utf8_lossy(name);
            let wrong = |why| ArchiveError::Name { name: shown.clone().into_owned(), why };
            let name = std::str::from_utf8(name).map_err(|_| wrong("which is not UTF-8"))?;
            if !is_inside(name) {
                return Err(wrong("which leads out of the archive"));
            }
            names.push(name);
        }
        if zip.has_duplicate_names() {
            return Err(ArchiveError::Damaged("two entries have the same name".to_owned()));
        }
        let root = common_root(&names);
        let entries = names.iter().enumerate().filter(|(_, name)| !name.ends_with('/'));
        let index = entries.map(|(place, name)| (name[root..].to_owned(), place)).collect();
        Ok(Self { bytes, zip, index, budget: MAX_TOTAL_INFLATED_BYTES })
    }

    pub(crate) fn contains(&self, entry: &str) -> bool {
        self.index.contains_key(entry)
    }

    /// The entries' names in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// The contents of an entry; those of a stored one share the archive's bytes.
    ///
    /// # Errors
    /// When there is no such entry, it is damaged, or it is too large.
    pub(crate) fn read(&mut self, entry: &str) -> Result<Bytes, ArchiveError> {
        let place =
            *self.index.get(entry).ok_or_else(|| ArchiveError::Missing(entry.to_owned()))?;
        let wrong = |reason: String| ArchiveError::Entry { entry: entry.to_owned(), reason };
        let file = self.zip.by_index_raw(place).map_err(|error| wrong(error.to_string()))?;
        if file.encrypted() {
            return Err(wrong("it is encrypted".to_owned()));
        }
        let (packed, size) = (file.compressed_size(), file.size());
        if file.compression() == CompressionMethod::Stored {
            let start = file.data_start().and_then(|start| usize::try_from(start).ok());
            let range = start
                .zip(usize::try_from(packed).ok())
                .and_then(|(start, size)| Some(start..start.checked_add(size)?))
                .filter(|range| range.end <= self.bytes.len() && packed == size);
            return range
                .map(|range| self.bytes.slice(range))
                .ok_or_else(|| wrong("it reaches beyond the end of the file".to_owned()));
        }
        drop(file);
        let limit =
            MAX_INFLATED_BYTES.min(self.budget).min(packed.saturating_mul(MAX_RATIO).max(4096));
        let file = self.zip.by_index(place).map_err(|error| wrong(error.to_string()))?;
        let mut data = Vec::new();
        // The declared size may lie: what counts is what comes out.
        file.take(limit + 1).read_to_end(&mut data).map_err(|error| wrong(error.to_string()))?;
        if data.len() as u64 > limit {
            return Err(wrong(format!("it inflates to more than {limit} bytes")));
        }
        self.budget -= data.len() as u64;
        Ok(data.into())
    }

    /// The contents of an entry as text.
    ///
    /// # Errors
    /// As [`Self::read`], and when it is not UTF-8.
    pub(crate) fn text(&mut self, entry: &str) -> Result<String, ArchiveError> {
        let data = self.read(entry)?;
        String::from_utf8(data.to_vec()).map_err(|_| ArchiveError::Entry {
            entry: entry.to_owned(),
            reason: "it is not UTF-8 text".to_owned(),
        })
    }
}

/// Whether a name stays inside the folder someone unpacks the archive into.
fn is_inside(name: &str) -> bool {
    let path = name.strip_suffix('/').unwrap_or(name);
    name.len() <= 4096
        && !name.contains(['\\', '\0'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The length of the folder that all entries lie in, with its slash: PyTorch names it after the file.
fn common_root(names: &[&str]) -> usize {
    let root = |name: &&str| name.find('/').map(|end| end + 1);
    let Some(length) = names.first().and_then(root) else { return 0 };
    let folder = &names[0][..length];
    if names.iter().all(|name| name.starts_with(folder)) { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(entries: &[(&str, &[u8], bool)]) -> Bytes {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, data, packed) in entries {
            let method =
                if *packed { CompressionMethod::Deflated } else { CompressionMethod::Stored };
            let options = SimpleFileOptions::default().compression_method(method);
            writer.start_file(*name, options).unwrap();
            writer.write_all(data).unwrap();
        }
        writer.finish().unwrap().into_inner().into()
    }

    #[test]
    fn stored_entries_share_the_map_and_packed_ones_are_inflated() {
        let bytes = archive(&[("m/data/0", b"0123", false), ("m/code.py", b"pass", true)]);
        let range = bytes.as_ptr_range();
        let mut archive = Archive::open(bytes).unwrap();
        assert!(range.contains(&archive.read("data/0").unwrap().as_ptr()));
        assert_eq!(archive.text("code.py").unwrap(), "pass");
        assert!(matches!(archive.read("none"), Err(ArchiveError::Missing(_))));
    }

    #[test]
    fn names_cannot_leave_the_archive() {
        for name in ["../x", "/x", "a/../../x", "a\\..\\x", "."] {
            let error = Archive::open(archive(&[(name, b"", false)])).err();
            assert!(matches!(error, Some(ArchiveError::Name { .. })), "{name}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = vec![0; 32 << 20];
        let mut archive = Archive::open(archive(&[("bomb", &zeros, true)])).unwrap();
        let error = archive.read("bomb").unwrap_err().to_string();
        assert!(error.contains("inflates to more than"), "{error}");
    }
}
