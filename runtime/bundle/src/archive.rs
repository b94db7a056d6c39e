//! The bundle file (`.fnx`): a zip archive.
//!
//! | entry | holds | hashed |
//! |---|---|---|
//! | `manifest.json` | the [`Manifest`] | yes |
//! | `graph.gir` | the imported graph, the reference that validation goes back to | yes |
//! | `plan.txt` | the plan of fused regions that the kernels were made from (optional) | yes |
//! | `ptx/<target>/<module>.ptx` | a PTX module that kernels name | yes |
//! | `sass/<target>/<module>.cubin` | the same module assembled (optional) | yes |
//! | `ledger.json` | accepted and rejected fusion candidates (optional) | yes |
//! | `weights.safetensors` | the embedded weights (absent when there is none) | yes |
//! | `content.sha256` | `sha256sum` lines of all entries above, by name | |
//! | `certificate.json` | the numerics certificate (optional) | no |
//! | `measured.json` | measured costs (optional) | no |
//!
//! The *content hash* is the SHA-256 of `content.sha256`. Certificate and measurements can be added
//! without changing what the bundle is.
//!
//! Text is deflated. Weights and SASS are stored, begin at a multiple of [`DATA_ALIGN`] bytes in the
//! file, and so does each tensor inside `weights.safetensors`, so that a mapped file can be used in
//! place. The safetensors format allows no holes: the gaps are tensors named `.pad.<n>`.
//!
//! Equal parts give equal bytes: entries come in the order above, with a fixed time stamp.
//!
//! **Compatibility.** A reader ignores entries and JSON fields that it does not know (they are under
//! the hash all the same). Whatever a reader must understand to run the bundle rightly raises
//! [`SCHEMA`](crate::manifest::SCHEMA), which an older reader refuses.

mod reader;
mod weights;
mod writer;

pub use weights::read_safetensors;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use crate::manifest::Manifest;
use crate::{BundleError, Tensor};

/// Alignment of stored entries in the file, and of tensors in `weights.safetensors`, in bytes.
pub const DATA_ALIGN: u64 = 64;

/// The entry that holds the manifest.
pub const MANIFEST_ENTRY: &str = "manifest.json";
/// The entry that holds the imported graph.
pub const GRAPH_ENTRY: &str = "graph.gir";
/// The entry that holds the plan of fused regions.
pub const PLAN_ENTRY: &str = "plan.txt";
/// The entry that holds the ledger of fusion decisions.
pub const LEDGER_ENTRY: &str = "ledger.json";
/// The entry that holds the embedded weights.
pub const WEIGHTS_ENTRY: &str = "weights.safetensors";
/// The entry that lists the hashes of the others.
pub const CONTENT_ENTRY: &str = "content.sha256";
/// The entry that holds the numerics certificate.
pub const CERTIFICATE_ENTRY: &str = "certificate.json";
/// The entry that holds measured costs.
pub const MEASURED_ENTRY: &str = "measured.json";

/// What a bundle is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct BundleParts {
    /// The manifest.
    pub manifest: Manifest,
    /// Text of the imported graph.
    pub graph: String,
    /// Text of the plan of fused regions, for bisection and inspection.
    pub plan: Option<String>,
    /// PTX text by entry name, such as `ptx/sm_90a/r3_matmul.ptx`.
    pub ptx: BTreeMap<String, String>,
    /// Assembled modules by entry name, such as `sass/sm_90a/r3_matmul.cubin`.
    pub sass: BTreeMap<String, Bytes>,
    /// The embedded weights by name: those that the manifest declares embedded.
    pub weights: BTreeMap<String, Tensor>,
    /// The ledger of fusion decisions, JSON.
    pub ledger: Option<String>,
    /// The numerics certificate, JSON.
    pub certificate: Option<String>,
    /// Measured costs, JSON.
    pub measured: Option<String>,
}

impl BundleParts {
    /// Parts with a manifest, a graph and no more.
    pub fn new(manifest: Manifest, graph: impl Into<String>) -> BundleParts {
        BundleParts {
            manifest,
            graph: graph.into(),
            plan: None,
            ptx: BTreeMap::new(),
            sass: BTreeMap::new(),
            weights: BTreeMap::new(),
            ledger: None,
            certificate: None,
            measured: None,
        }
    }

    /// The bundle file's bytes.
    ///
    /// # Errors
    /// When the manifest contradicts itself or the other parts.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        writer::to_bytes(self)
    }

    /// Writes the bundle file. It appears under its name only when it is whole.
    ///
    /// # Errors
    /// When the manifest contradicts itself or the other parts, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), BundleError> {
        writer::write(self, path.as_ref())
    }

    /// Checks that the manifest is sound and that it agrees with the other parts.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), BundleError> {
        self.manifest.check()?;
        self.check_against_manifest()
    }

    fn check_against_manifest(&self) -> Result<(), BundleError> {
        for target in &self.manifest.targets {
            if let Some(kernel) = target.kernels.iter().find(|k| !self.ptx.contains_key(&k.ptx)) {
                return Err(BundleError::MissingEntry {
                    entry: kernel.ptx.clone(),
                    needed_by: format!("kernel `{}` of target {}", kernel.name, target.target),
                });
            }
        }
        weights::check(&self.manifest.weights, &self.weights)
    }
}

/// A bundle that was read and found sound.
#[derive(Debug, Clone)]
pub struct Bundle {
    parts: BundleParts,
    content_hash: String,
}

/// How to read a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether to hash the weights and SASS, at about a gigabyte a second; everything else is always
    /// hashed.
    pub verify_data: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { verify_data: true }
    }
}

impl Bundle {
    /// Opens a bundle file by mapping it.
    ///
    /// Weights stay in the mapping. The file must not be changed in place while it is open; writing
    /// a new one under the same name, as [`BundleParts::write`] does, is harmless.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, newer than this reader, or contradicts itself.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        Bundle::open_with(path, ReadOptions::default())
    }

    /// Opens a bundle file by mapping it; see [`Bundle::open`].
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Bundle, BundleError> {
        reader::open(path.as_ref(), options)
    }

    /// Reads a bundle from memory. Weights share the bytes.
    ///
    /// # Errors
    /// When the bytes are damaged, newer than this reader, or contradict themselves.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Bundle, BundleError> {
        reader::read(bytes.into(), ReadOptions::default())
    }

    /// What is in it.
    pub fn parts(&self) -> &BundleParts {
        &self.parts
    }

    /// What is in it, to change and write anew.
    pub fn into_parts(self) -> BundleParts {
        self.parts
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.parts.manifest
    }

    /// SHA-256 over everything but certificate and measurements, in hexadecimal.
    pub fn content_hash(&self) -> &str {
        &self.content_hash
    }
}

/// Whether the content hash covers the entry.
fn is_hashed(entry: &str) -> bool {
    !matches!(entry, CONTENT_ENTRY | CERTIFICATE_ENTRY | MEASURED_ENTRY)
}

/// Whether this is a name a module entry may have: `<folder>/<target>/<module>.<extension>`.
pub(crate) fn is_module_entry(entry: &str, folder: &str, extension: &str) -> bool {
    let mut parts = entry.split('/');
    let (Some(top), Some(target), Some(file), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    top == folder
        && plain(target)
        && file.strip_suffix(extension).and_then(|stem| stem.strip_suffix('.')).is_some_and(plain)
}

/// Lower-case hexadecimal.
fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
