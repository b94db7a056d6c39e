//! What can be wrong with a bundle.

use std::io;
use std::path::PathBuf;

/// A bundle that cannot be read or written. All but [`BundleError::Io`] speak of the file's contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// `open`, `read`, `write`, ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something is wrong with this file.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<BundleError>,
    },
    /// The file is no zip archive, or not a whole one.
    #[error("not a Fornax bundle: {reason}")]
    NotABundle {
        /// Why.
        reason: String,
    },
    /// The bundle was made by a later version.
    #[error("bundle has schema {found}, this fornax reads up to {supported}: upgrade fornax")]
    NewerSchema {
        /// The bundle's schema.
        found: u32,
        /// The newest one that this version reads.
        supported: u32,
    },
    /// An entry that the bundle needs is not there.
    #[error("the bundle has no entry `{entry}`{}", reason(.needed_by))]
    MissingEntry {
        /// The entry's name.
        entry: String,
        /// What needs it; empty when every bundle does.
        needed_by: String,
    },
    /// An entry does not hold what was written.
    #[error("entry `{entry}` is damaged: its contents do not have the recorded hash")]
    HashMismatch {
        /// The entry's name.
        entry: String,
    },
    /// An entry is larger than any real one.
    #[error("entry `{entry}` is larger than {limit_bytes} bytes, the limit for it")]
    TooLarge {
        /// The entry's name.
        entry: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// An entry cannot be used.
    #[error("entry `{entry}`: {reason}")]
    Malformed {
        /// The entry's name.
        entry: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The manifest contradicts itself.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A manifest that is well formed but contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("manifest: {place}: {reason}")]
pub struct ManifestError {
    /// Where, such as `targets[sm_90a].run[3].args[1]`.
    pub place: String,
    /// What is wrong there.
    pub reason: String,
}

impl BundleError {
    pub(crate) fn malformed(entry: &str, reason: impl ToString) -> BundleError {
        BundleError::Malformed { entry: entry.to_owned(), reason: reason.to_string() }
    }
}

fn reason(needed_by: &str) -> String {
    if needed_by.is_empty() { String::new() } else { format!(", which {needed_by} needs") }
}
