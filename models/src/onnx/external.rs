//! Tensor payloads that lie in other files beside the model.
//!
//! Source: `TensorProto.external_data` in `onnx.proto`: `location` is relative to the model's
//! folder, `offset` and `length` are decimal numbers of bytes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::file;
use super::proto::StringStringEntryProto;

/// What is wrong with a tensor's external data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalError {
    /// The file does not exist.
    #[error("its data file {} does not exist; put it beside the model", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("its data file {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The location is not one inside the model's folder.
    #[error("its data file {location:?} is refused: {why}")]
    Outside {
        /// The location as written in the model.
        location: String,
        /// Why it is refused.
        why: &'static str,
    },
    /// The entry does not say where the data is, or says it badly.
    #[error("its external data entry {key:?} is missing or is not valid: {value:?}")]
    Entry {
        /// The entry.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// The range lies outside the file.
    #[error(
        "its data is said to be bytes {offset}..{offset}+{length} of {}, which has {size}",
        path.display()
    )]
    Range {
        /// The file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Size of the file in bytes.
        size: u64,
    },
    /// The model was read from memory, so there is no folder to look in.
    #[error("its data is in another file, but the model was not read from a file")]
    NoFolder,
}

/// The files of external data of one model, each mapped once.
#[derive(Debug, Default)]
pub(crate) struct ExternalFiles {
    /// The model's folder, with symbolic links resolved.
    folder: Option<PathBuf>,
    maps: BTreeMap<PathBuf, Bytes>,
}

impl ExternalFiles {
    /// Files beside the model at `model_path`.
    ///
    /// # Errors
    /// Those of the system when the folder cannot be resolved.
    pub(crate) fn beside(model_path: &Path) -> io::Result<Self> {
        let folder = match model_path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Self { folder: Some(folder.canonicalize()?), maps: BTreeMap::new() })
    }

    /// The bytes that `entries` point at, sharing the file's memory map. Without a `length`, the
    /// data has `expected` bytes.
    ///
    /// # Errors
    /// [`ExternalError`].
    pub(crate) fn bytes(
        &mut self,
        entries: &[StringStringEntryProto],
        expected: u64,
    ) -> Result<Bytes, ExternalError> {
        let location = entry(entries, "location")
            .ok_or_else(|| ExternalError::Entry { key: "location", value: String::new() })?;
        let offset = number(entries, "offset")?.unwrap_or(0);
        let length = number(entries, "length")?.unwrap_or(expected);
        let path = self.resolve(location)?;
        let map = self.map(&path)?;
        let size = map.len() as u64;
        let end = offset.checked_add(length).filter(|&end| end <= size);
        match end {
            // Both are at most the length of the map, which is a usize.
            Some(end) => Ok(map.slice(offset as usize..end as usize)),
            None => Err(ExternalError::Range { path, offset, length, size }),
        }
    }

    fn resolve(&self, location: &str) -> Result<PathBuf, ExternalError> {
        let folder = self.folder.as_ref().ok_or(ExternalError::NoFolder)?;
        let refuse = |why| ExternalError::Outside { location: location.to_owned(), why };
        let relative = Path::new(location);
        for component in relative.components() {
            match component {
                Component::Normal(_) | Component::CurDir => {}
                Component::ParentDir => return Err(refuse("it contains `..`")),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(refuse("it is an absolute path"));
                }
            }
        }
        if relative.file_name().is_none() || location.contains('\0') {
            return Err(refuse("it names no file"));
        }
        let path = folder.join(relative);
        let resolved = path.canonicalize().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ExternalError::Missing { path: path.clone() },
            _ => ExternalError::Read { path: path.clone(), source },
        })?;
        if resolved.starts_with(folder) {
            Ok(resolved)
        } else {
            Err(refuse("a symbolic link leads out of the model's folder; copy the file into it"))
        }
    }

    fn map(&mut self, path: &Path) -> Result<Bytes, ExternalError> {
        if let Some(map) = self.maps.get(path) {
            return Ok(map.clone());
        }
        let map = file::map(path)
            .map_err(|source| ExternalError::Read { path: path.to_owned(), source })?;
        self.maps.insert(path.to_owned(), map.clone());
        Ok(map)
    }
}

fn entry<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Option<&'a str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

fn number(
    entries: &[StringStringEntryProto],
    key: &'static str,
) -> Result<Option<u64>, ExternalError> {
    entry(entries, key)
        .map(|value| {
            value.parse().map_err(|_| ExternalError::Entry { key, value: value.to_owned() })
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        pairs
            .iter()
            .map(|&(key, value)| StringStringEntryProto { key: key.into(), value: value.into() })
            .collect()
    }

    /// A folder `model/` with `w.bin` of 10 bytes inside and `secret` of 4 bytes beside it.
    fn folder() -> (tempfile::TempDir, ExternalFiles) {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("model");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("w.bin"), b"0123456789").unwrap();
        std::fs::write(folder.path().join("secret"), b"none").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("w.bin", inside.join("alias")).unwrap();
        let files = ExternalFiles::beside(&inside.join("model.onnx")).unwrap();
        (folder, files)
    }

    #[test]
    fn ranges_are_read_and_files_are_mapped_once() {
        let (_guard, mut files) = folder();
        let all = files.bytes(&entries(&[("location", "w.bin")]), 10).unwrap();
        let part = entries(&[("location", "./w.bin"), ("offset", "2"), ("length", "3")]);
        let part = files.bytes(&part, 3).unwrap();
        assert_eq!(&part[..], b"234");
        assert_eq!(part.as_ptr(), all[2..].as_ptr());
        let alias = files.bytes(&entries(&[("location", "alias"), ("offset", "9")]), 1).unwrap();
        assert_eq!(&alias[..], b"9");
        assert_eq!(files.maps.len(), 1);
    }

    #[test]
    fn the_folder_cannot_be_left() {
        let (guard, mut files) = folder();
        let absolute = guard.path().join("secret").display().to_string();
        for location in ["../secret", "x/../../secret", &absolute, "link", "", ".", "a\0b"] {
            let error = files.bytes(&entries(&[("location", location)]), 4).unwrap_err();
            assert!(matches!(error, ExternalError::Outside { .. }), "{location:?}: {error}");
        }
    }

    #[test]
    fn bad_ranges_and_entries_are_errors() {
        let (_guard, mut files) = folder();
        for (offset, length) in [("0", "11"), ("11", "0"), ("18446744073709551615", "2")] {
            let part = entries(&[("location", "w.bin"), ("offset", offset), ("length", length)]);
            let error = files.bytes(&part, 1).unwrap_err();
            assert!(matches!(error, ExternalError::Range { size: 10, .. }), "{error}");
        }
        let negative = entries(&[("location", "w.bin"), ("offset", "-1")]);
        assert!(matches!(files.bytes(&negative, 1), Err(ExternalError::Entry { .. })));
        assert!(matches!(files.bytes(&[], 1), Err(ExternalError::Entry { .. })));
        let missing = entries(&[("location", "none")]);
        assert!(matches!(files.bytes(&missing, 1), Err(ExternalError::Missing { .. })));
        let folder = ExternalFiles::default().bytes(&missing, 1);
        assert!(matches!(folder, Err(ExternalError::NoFolder)));
    }
}
