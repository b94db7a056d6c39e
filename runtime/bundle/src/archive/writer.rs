//! Writing a bundle.

use std::io::{self, BufWriter, Cursor, Seek, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipWriter};

use super::weights::Layout;
use super::{
    BundleParts, CERTIFICATE_ENTRY, CONTENT_ENTRY, DATA_ALIGN, GRAPH_ENTRY, LEDGER_ENTRY,
    MANIFEST_ENTRY, MEASURED_ENTRY, PLAN_ENTRY, WEIGHTS_ENTRY, hex, is_module_entry,
};
use crate::BundleError;

pub(super) fn to_bytes(parts: &BundleParts) -> Result<Vec<u8>, BundleError> {
    check(parts)?;
    write_archive(parts, Cursor::new(Vec::new()))
        .map(Cursor::into_inner)
        .map_err(|error| BundleError::NotABundle { reason: error.to_string() })
}

pub(super) fn write(parts: &BundleParts, path: &Path) -> Result<(), BundleError> {
    check(parts)?;
    let failed =
        |source: io::Error| BundleError::Io { action: "write", path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".fornax-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new file: the umask takes away what it should.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder).map_err(failed)?;
    let writer = write_archive(parts, BufWriter::with_capacity(1 << 20, file)).map_err(failed)?;
    let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn check(parts: &BundleParts) -> Result<(), BundleError> {
    parts.check()?;
    let ptx = parts.ptx.keys().filter(|entry| !is_module_entry(entry, "ptx", "ptx"));
    let sass = parts.sass.keys().filter(|entry| !is_module_entry(entry, "sass", "cubin"));
    match ptx.chain(sass).next() {
        Some(entry) => Err(BundleError::malformed(
            entry,
            "modules are named ptx/<target>/<module>.ptx and sass/<target>/<module>.cubin",
        )),
        None => Ok(()),
    }
}

fn write_archive<W: Write + Seek>(parts: &BundleParts, to: W) -> io::Result<W> {
    let mut archive = Archive { zip: ZipWriter::new(to), content: String::new() };
    let manifest = serde_json::to_string_pretty(&parts.manifest).map_err(io::Error::other)?;
    archive.text(MANIFEST_ENTRY, &manifest)?;
    archive.text(GRAPH_ENTRY, &parts.graph)?;
    if let Some(plan) = &parts.plan {
        archive.text(PLAN_ENTRY, plan)?;
    }
    for (entry, ptx) in &parts.ptx {
        archive.text(entry, ptx)?;
    }
    for (entry, sass) in &parts.sass {
        archive.stored(entry, sass.len() as u64, |to| to.write_all(sass))?;
    }
    if let Some(ledger) = &parts.ledger {
        archive.text(LEDGER_ENTRY, ledger)?;
    }
    if !parts.weights.is_empty() {
        let layout = Layout::new(&parts.weights);
        archive.stored(WEIGHTS_ENTRY, layout.n_bytes(), |to| layout.write(to))?;
    }
    let content = std::mem::take(&mut archive.content);
    archive.text(CONTENT_ENTRY, &content)?;
    for (entry, text) in
        [(CERTIFICATE_ENTRY, &parts.certificate), (MEASURED_ENTRY, &parts.measured)]
    {
        if let Some(text) = text {
            archive.text(entry, text)?;
        }
    }
    Ok(archive.zip.finish()?)
}

struct Archive<W: Write + Seek> {
    zip: ZipWriter<W>,
    /// The lines of [`CONTENT_ENTRY`] so far.
    content: String,
}

impl<W: Write + Seek> Archive<W> {
    fn text(&mut self, entry: &str, text: &str) -> io::Result<()> {
        let options = options(text.len() as u64)
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(6));
        self.entry(entry, options, |to| to.write_all(text.as_bytes()))
    }

    fn stored(
        &mut self,
        entry: &str,
        n_bytes: u64,
        write: impl FnOnce(&mut Hashing<&mut ZipWriter<W>>) -> io::Result<()>,
    ) -> io::Result<()> {
        let options = options(n_bytes)
            .compression_method(CompressionMethod::Stored)
            .with_alignment(DATA_ALIGN as u16);
        self.entry(entry, options, write)
    }

    fn entry(
        &mut self,
        entry: &str,
        options: SimpleFileOptions,
        write: impl FnOnce(&mut Hashing<&mut ZipWriter<W>>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.zip.start_file(entry, options)?;
        let mut hashing = Hashing { to: &mut self.zip, hasher: Sha256::new() };
        write(&mut hashing)?;
        let digest = hex(hashing.hasher.finalize());
        self.content.push_str(&format!("{digest}  {entry}\n"));
        Ok(())
    }
}

/// Options that depend on nothing but the size.
fn options(n_bytes: u64) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .last_modified_time(DateTime::default())
        .system(System::Unix)
        .unix_permissions(0o644)
        .large_file(n_bytes >= u64::from(u32::MAX))
}

struct Hashing<W> {
    to: W,
    hasher: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
