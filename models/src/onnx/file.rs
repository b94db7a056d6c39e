//! Opening a model file: memory map, first checks, decoding.

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use prost::Message as _;

use super::proto::ModelProto;
use super::wire::{self, Message};
use crate::ImportError;

/// First bytes of files that people mistake for ONNX models, and what to say.
const OTHER_FORMATS: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "a zip archive (TorchScript or .pt2 perhaps); import it from its file"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (b"\x1f\x8b", "a gzip file; unpack it first"),
    (b"\x89HDF", "an HDF5 file (Keras perhaps); export the model to ONNX"),
    (b"\x80\x02", "a pickle (a PyTorch checkpoint perhaps); export the model to ONNX"),
    (b"<!DOCTYPE", "an HTML page (a failed download perhaps)"),
    (b"<html", "an HTML page (a failed download perhaps)"),
    (b"{", "JSON"),
];

/// Maps a regular file into memory. An empty file gives no bytes.
///
/// # Errors
/// Those of the system; `InvalidInput` for anything but a regular file.
pub(crate) fn map(path: &Path) -> io::Result<Bytes> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    let file = File::open(path)?;
    // SAFETY: the map is private and read-only. As with every memory map, another program that
    // truncates the file meanwhile makes an access to it a SIGBUS; that one may not do so is part
    // of the documentation of `import`.
    let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file)? };
    Ok(Bytes::from_owner(map))
}

/// The bytes of a model's file, mapped.
///
/// # Errors
/// [`ImportError`] for what cannot be read or is no file.
pub(crate) fn read(path: &Path) -> Result<Bytes, ImportError> {
    if path.is_dir() {
        return Err(ImportError::NotAFile { path: path.to_owned() });
    }
    map(path).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidInput => ImportError::NotAFile { path: path.to_owned() },
        _ => ImportError::Read { path: path.to_owned(), source },
    })
}

/// Reads a model file; its tensors share the memory map.
///
/// # Errors
/// [`ImportError`] for a file that cannot be read, is empty, truncated, damaged, another
/// format, or exceeds the limits on depth and counts.
pub(crate) fn open(path: &Path) -> Result<ModelProto, ImportError> {
    decode(read(path)?, path)
}

/// Decodes a model; `path` is only for messages.
///
/// # Errors
/// As [`open`].
pub(crate) fn decode(bytes: Bytes, path: &Path) -> Result<ModelProto, ImportError> {
    let path_buf = || path.to_owned();
    if bytes.is_empty() {
        return Err(ImportError::Empty { path: path_buf() });
    }
    if let Some((_, what)) = OTHER_FORMATS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(ImportError::OtherFormat { path: path_buf(), what });
    }
    wire::check(&bytes, Message::Model)
        .map_err(|fault| ImportError::Wire { path: path_buf(), fault })?;
    let model = ModelProto::decode(bytes)
        .map_err(|source| ImportError::Decode { path: path_buf(), source })?;
    let missing = |what| Err(ImportError::Incomplete { path: path_buf(), what });
    if model.graph.is_none() {
        return missing("it holds no graph");
    }
    if model.opset_import.is_empty() {
        return missing("it names no operator set (the end of the file may be missing)");
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{GraphProto, OperatorSetIdProto, TensorProto};

    fn small_model() -> ModelProto {
        let weight = TensorProto {
            name: "w".into(),
            dims: vec![3],
            data_type: 2,
            raw_data: Some(Bytes::from_static(b"abc")),
            ..Default::default()
        };
        ModelProto {
            ir_version: 8,
            graph: Some(GraphProto { initializer: vec![weight], ..Default::default() }),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
            ..Default::default()
        }
    }

    fn message(bytes: &[u8]) -> String {
        decode(Bytes::copy_from_slice(bytes), Path::new("m.onnx")).unwrap_err().to_string()
    }

    #[test]
    fn payloads_share_the_memory_map() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, small_model().encode_to_vec()).unwrap();
        let bytes = map(&path).unwrap();
        let range = bytes.as_ptr_range();
        let model = decode(bytes, &path).unwrap();
        let graph = model.graph.unwrap();
        let payload = graph.initializer[0].raw_data.as_ref().unwrap();
        assert_eq!(&payload[..], b"abc");
        assert!(range.contains(&payload.as_ptr()), "the payload was copied");
    }

    #[test]
    fn each_bad_file_has_its_message() {
        let folder = tempfile::tempdir().unwrap();
        let open_error = |path: &Path| open(path).unwrap_err().to_string();
        assert!(open_error(folder.path()).ends_with("not a file"));
        assert!(open_error(&folder.path().join("none")).contains("cannot read the model"));
        let empty = folder.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        assert!(open_error(&empty).ends_with("the file is empty"));
        assert!(message(b"PK\x03\x04....").contains("zip"));
        assert!(message(b"hello, world\n").contains("not a readable ONNX model"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = small_model().encode_to_vec();
        for end in 0..bytes.len() {
            let text = message(&bytes[..end]);
            assert!(text.starts_with("m.onnx: "), "{end}: {text}");
        }
    }
}
