//! Finding and parsing the program in the archive.

use std::path::Path;

use super::schema::{Header, MAJOR_VERSIONS, Program};
use crate::ImportError;
use crate::torch::archive::Archive;

/// Where files of PyTorch up to 2.7 have the program.
pub(super) const OLD_PROGRAM: &str = "serialized_exported_program.json";

/// Whether an archive is one of `torch.export.save`.
pub(crate) fn is_exported(archive: &Archive) -> bool {
    archive.contains(OLD_PROGRAM)
        || archive.contains("archive_format")
        || models(archive).next().is_some()
}

/// The names of the programs in an archive of PyTorch 2.8 or later.
fn models(archive: &Archive) -> impl Iterator<Item = &str> {
    archive.names().filter_map(|name| name.strip_prefix("models/")?.strip_suffix(".json"))
}

/// The program's name and contents. Files before PyTorch 2.8 have no names: it is empty.
///
/// # Errors
/// [`ImportError`].
pub(super) fn open(archive: &mut Archive, path: &Path) -> Result<(String, Program), ImportError> {
    let malformed = |what: String| ImportError::Exported { path: path.to_owned(), what };
    let (name, entry) = if archive.contains(OLD_PROGRAM) {
        (String::new(), OLD_PROGRAM.to_owned())
    } else {
        let names: Vec<String> = models(archive).map(str::to_owned).collect();
        let name = match &names[..] {
            [] => {
                let what = "it holds no program of torch.export (a compiled package of AOTInductor \
                            perhaps); save the exported program with torch.export.save";
                return Err(malformed(what.to_owned()));
            }
            [one] => one.clone(),
            many if many.iter().any(|name| name == "model") => "model".to_owned(),
            many => {
                let what = format!(
                    "it holds several programs, {}, and none is named \"model\"; save one alone",
                    many.join(", ")
                );
                return Err(malformed(what));
            }
        };
        let entry = format!("models/{name}.json");
        (name, entry)
    };
    let damaged = |source| ImportError::Archive { path: path.to_owned(), source };
    let text = archive.text(&entry).map_err(damaged)?;
    let json = |error: serde_json::Error| malformed(format!("its entry {entry:?}: {error}"));
    let header: Header = serde_json::from_str(&text).map_err(json)?;
    if !MAJOR_VERSIONS.contains(&header.schema_version.major) {
        let what = format!(
            "its schema has version {}.{} (PyTorch {}); versions {} to {} are read",
            header.schema_version.major,
            header.schema_version.minor,
            header.torch_version,
            MAJOR_VERSIONS.start(),
            MAJOR_VERSIONS.end()
        );
        return Err(malformed(what));
    }
    let program = serde_json::from_str(&text).map_err(json)?;
    Ok((name, program))
}
