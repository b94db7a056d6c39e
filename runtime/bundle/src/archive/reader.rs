//! Reading a bundle, which may be damaged or hostile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use zip::{CompressionMethod, ZipArchive};

use super::{
    Bundle, BundleParts, CERTIFICATE_ENTRY, CONTENT_ENTRY, GRAPH_ENTRY, LEDGER_ENTRY,
    MANIFEST_ENTRY, MEASURED_ENTRY, PLAN_ENTRY, ReadOptions, WEIGHTS_ENTRY, hex, is_hashed,
    is_module_entry, weights,
};
use crate::BundleError;
use crate::manifest::{Manifest, SCHEMA};

/// A deflated entry may not inflate to more than this.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// All deflated entries together may not inflate to more than this. Deflate expands up to 1032-fold,
/// so a small file could otherwise fill the memory.
const MAX_TOTAL_TEXT_BYTES: u64 = 1 << 30;

/// More entries than this are refused; a bundle has one per module and a handful more.
const MAX_ENTRIES: usize = 1 << 16;

pub(super) fn open(path: &Path, options: ReadOptions) -> Result<Bundle, BundleError> {
    let failed = |source| BundleError::Io { action: "open", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let in_file = |source| BundleError::File { path: path.to_owned(), source: Box::new(source) };
    if !metadata.is_file() {
        let reason = "it is not a regular file".to_owned();
        return Err(in_file(BundleError::NotABundle { reason }));
    }
    if metadata.len() == 0 {
        return Err(in_file(BundleError::NotABundle { reason: "the file is empty".to_owned() }));
    }
    // SAFETY: the mapping is private to this process and read-only. That nobody changes the file in
    // place is asked of the caller in `Bundle::open`; our own writer replaces files by renaming.
    let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
    read(Bytes::from_owner(map), options).map_err(in_file)
}

pub(super) fn read(bytes: Bytes, options: ReadOptions) -> Result<Bundle, BundleError> {
    let mut source = Source::new(bytes)?;
    let manifest_text = source.text(MANIFEST_ENTRY)?;
    check_schema(&manifest_text)?;
    let content = Content::parse(&source.text(CONTENT_ENTRY)?)?;
    content.check_names(&source)?;
    content.verify(MANIFEST_ENTRY, manifest_text.as_bytes())?;

    let manifest: Manifest = serde_json::from_str(&manifest_text)
        .map_err(|error| BundleError::malformed(MANIFEST_ENTRY, error))?;
    manifest.check()?;
    let mut parts = BundleParts::new(manifest, source.text(GRAPH_ENTRY)?);
    content.verify(GRAPH_ENTRY, parts.graph.as_bytes())?;
    for entry in source.names() {
        if !is_hashed(&entry) || matches!(entry.as_str(), MANIFEST_ENTRY | GRAPH_ENTRY) {
            continue;
        }
        let is_sass = is_module_entry(&entry, "sass", "cubin");
        if is_sass || entry == WEIGHTS_ENTRY {
            let data = source.stored(&entry)?;
            if options.verify_data {
                content.verify(&entry, &data)?;
            }
            if is_sass {
                parts.sass.insert(entry, data);
            } else {
                parts.weights = weights::read(&parts.manifest.weights, &data)?;
            }
            continue;
        }
        let data = source.inflated(&entry)?;
        content.verify(&entry, &data)?;
        if is_module_entry(&entry, "ptx", "ptx") {
            let text = to_text(&entry, data)?;
            parts.ptx.insert(entry, text);
        } else if entry == PLAN_ENTRY {
            parts.plan = Some(to_text(&entry, data)?);
        } else if entry == LEDGER_ENTRY {
            parts.ledger = Some(to_text(&entry, data)?);
        }
    }
    parts.certificate = source.optional_text(CERTIFICATE_ENTRY)?;
    parts.measured = source.optional_text(MEASURED_ENTRY)?;
    parts.check_against_manifest()?;
    Ok(Bundle { parts, content_hash: content.hash })
}

/// Refuses a newer schema before anything else of the manifest is looked at.
fn check_schema(manifest: &str) -> Result<(), BundleError> {
    #[derive(Deserialize)]
    struct Header {
        schema: u32,
    }
    let header: Header = serde_json::from_str(manifest)
        .map_err(|error| BundleError::malformed(MANIFEST_ENTRY, error))?;
    match header.schema {
        0 => Err(BundleError::malformed(MANIFEST_ENTRY, "schema 0 never existed")),
        found if found > SCHEMA => Err(BundleError::NewerSchema { found, supported: SCHEMA }),
        _ => Ok(()),
    }
}

/// The archive's entries by name.
struct Source {
    bytes: Bytes,
    zip: ZipArchive<Cursor<Bytes>>,
    index: BTreeMap<String, usize>,
    /// How much may still be inflated.
    text_budget: u64,
}

impl Source {
    fn new(bytes: Bytes) -> Result<Source, BundleError> {
        let not_a_bundle = |reason: String| BundleError::NotABundle { reason };
        let zip = ZipArchive::new(Cursor::new(bytes.clone())).map_err(|error| {
            not_a_bundle(if bytes.starts_with(b"PK\x03\x04") {
                format!("the zip archive is truncated or damaged ({error})")
            } else {
                "it is not a zip archive".to_owned()
            })
        })?;
        if zip.len() > MAX_ENTRIES {
            return Err(not_a_bundle(format!("it has more than {MAX_ENTRIES} entries")));
        }
        if zip.has_duplicate_names() {
            return Err(not_a_bundle("two of its entries have the same name".to_owned()));
        }
        let mut index = BTreeMap::new();
        for (position, name) in zip.file_names_raw().enumerate() {
            let name = std::str::from_utf8(name)
                .ok()
                .filter(|name| is_safe_path(name))
                .ok_or_else(|| {
                    let shown = String::from_utf8_lossy(name);
                    not_a_bundle(format!("`{}` is not an entry's name", shown.escape_debug()))
                })?;
            index.insert(name.to_owned(), position);
        }
        Ok(Source { bytes, zip, index, text_budget: MAX_TOTAL_TEXT_BYTES })
    }

    fn names(&self) -> Vec<String> {
        self.index.keys().cloned().collect()
    }

    fn position(&self, entry: &str) -> Result<usize, BundleError> {
        self.index.get(entry).copied().ok_or_else(|| BundleError::MissingEntry {
            entry: entry.to_owned(),
            needed_by: String::new(),
        })
    }

    fn text(&mut self, entry: &str) -> Result<String, BundleError> {
        let data = self.inflated(entry)?;
        to_text(entry, data)
    }

    fn optional_text(&mut self, entry: &str) -> Result<Option<String>, BundleError> {
        if self.index.contains_key(entry) { self.text(entry).map(Some) } else { Ok(None) }
    }

    /// The contents of an entry, whatever its compression, within the limits.
    fn inflated(&mut self, entry: &str) -> Result<Vec<u8>, BundleError> {
        let position = self.position(entry)?;
        let limit_bytes = MAX_TEXT_BYTES.min(self.text_budget);
        let too_large = || BundleError::TooLarge { entry: entry.to_owned(), limit_bytes };
        let file =
            self.zip.by_index(position).map_err(|error| BundleError::malformed(entry, error))?;
        if file.size() > limit_bytes {
            return Err(too_large());
        }
        let mut data = Vec::new();
        // The declared size may lie: what counts is what comes out.
        file.take(limit_bytes + 1)
            .read_to_end(&mut data)
            .map_err(|error| BundleError::malformed(entry, error))?;
        if data.len() as u64 > limit_bytes {
            return Err(too_large());
        }
        self.text_budget -= data.len() as u64;
        Ok(data)
    }

    /// A stored entry, sharing the archive's bytes.
    fn stored(&mut self, entry: &str) -> Result<Bytes, BundleError> {
        let position = self.position(entry)?;
        let file = self
            .zip
            .by_index_raw(position)
            .map_err(|error| BundleError::malformed(entry, error))?;
        if file.compression() != CompressionMethod::Stored || file.size() != file.compressed_size()
        {
            return Err(BundleError::malformed(entry, "it is compressed, so it cannot be mapped"));
        }
        let start = file.data_start().and_then(|start| usize::try_from(start).ok());
        let size = usize::try_from(file.size()).ok();
        let range = start
            .zip(size)
            .and_then(|(start, size)| Some(start..start.checked_add(size)?))
            .filter(|range| range.end <= self.bytes.len());
        range
            .map(|range| self.bytes.slice(range))
            .ok_or_else(|| BundleError::malformed(entry, "it reaches beyond the end of the file"))
    }
}

/// Names that stay inside the folder someone unpacks the archive into.
fn is_safe_path(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 1024
        && !name.contains(['\\', ':'])
        && !name.contains(char::is_control)
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn to_text(entry: &str, data: Vec<u8>) -> Result<String, BundleError> {
    String::from_utf8(data).map_err(|_| BundleError::malformed(entry, "it is not UTF-8 text"))
}

/// The recorded hashes.
struct Content {
    /// SHA-256 of the list itself.
    hash: String,
    digests: BTreeMap<String, String>,
}

impl Content {
    fn parse(text: &str) -> Result<Content, BundleError> {
        let mut digests = BTreeMap::new();
        for line in text.lines() {
            let (digest, entry) = line.split_once("  ").ok_or_else(|| {
                BundleError::malformed(CONTENT_ENTRY, "a line is not `<sha256>  <entry>`")
            })?;
            digests.insert(entry.to_owned(), digest.to_owned());
        }
        Ok(Content { hash: hex(Sha256::digest(text)), digests })
    }

    /// Checks that the entries are those that were written.
    fn check_names(&self, source: &Source) -> Result<(), BundleError> {
        let there: BTreeSet<_> = source.index.keys().filter(|entry| is_hashed(entry)).collect();
        let listed: BTreeSet<_> = self.digests.keys().collect();
        if let Some(entry) = listed.difference(&there).next() {
            return Err(BundleError::MissingEntry {
                entry: entry.to_string(),
                needed_by: format!("`{CONTENT_ENTRY}`"),
            });
        }
        match there.difference(&listed).next() {
            Some(entry) => Err(BundleError::HashMismatch { entry: entry.to_string() }),
            None => Ok(()),
        }
    }

    fn verify(&self, entry: &str, data: &[u8]) -> Result<(), BundleError> {
        let actual = hex(Sha256::digest(data));
        match self.digests.get(entry) {
            Some(digest) if *digest == actual => Ok(()),
            _ => Err(BundleError::HashMismatch { entry: entry.to_owned() }),
        }
    }
}
