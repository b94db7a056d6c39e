//! Models of PyTorch: the same module through ONNX, `.pt2` and TorchScript gives what torch gave, and damaged or
//! unsupported files are refused with what is wrong, where, and what to do.

#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fornax_ir::Dim;
use fornax_models::{ImportError, ImportOptions, import, import_archive};
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

#[path = "support/recorded.rs"]
mod recorded;

use recorded::Recording;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn data(name: &str) -> PathBuf {
    folder().join("tests/data").join(name)
}

fn check(model: &Path, recording: &Path) {
    let recording = Recording::read(recording).unwrap();
    let graph = recording.import(model).unwrap_or_else(|error| panic!("{error}"));
    recording.check(&graph).unwrap_or_else(|error| panic!("{}: {error}\n{graph}", model.display()));
}

#[test]
fn small_modules_give_what_torch_gave() {
    for name in ["attention", "branches", "changes", "recurrent"] {
        for kind in ["pt2", "pt"] {
            check(&data(&format!("{name}.{kind}")), &data(&format!("{name}.npz")));
        }
    }
    check(&data("old_layout.pt2"), &data("attention.npz"));
}

#[test]
fn the_zoo_gives_the_same_in_all_formats() {
    for name in ["depthwise_cnn", "recommender"] {
        let file = |kind: &str| folder().join("zoo").join(format!("{name}.{kind}"));
        for kind in ["onnx", "pt2", "pt"] {
            check(&file(kind), &file("npz"));
        }
    }
}

#[test]
fn names_and_ranges_come_from_the_file() {
    let graph =
        import(&folder().join("zoo/depthwise_cnn.pt2"), &ImportOptions::default()).unwrap().graph;
    let (symbol, range) = graph.dims.first_key_value().unwrap();
    assert_eq!((range.min, range.max), (1, 64), "{symbol}");
    let text = graph.to_string();
    assert!(text.contains("@\"depthwise.0/conv2d_2\""), "{text}");
    assert!(text.contains("\"depthwise.0.weight\""), "{text}");
    let options = ImportOptions {
        shapes: [("x".to_owned(), vec![Dim::constant(4), Dim::constant(8)])].into(),
        ..ImportOptions::default()
    };
    let graph = import(&data("changes.pt"), &options).unwrap().graph;
    assert_eq!(graph.ty(graph.inputs()[0]).to_string(), "f32[4,8]");
    let error = import(&data("branches.pt"), &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("--shape x="), "{error}");
}

/// The entries of a committed file, changed.
fn changed(name: &str, change: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) -> Bytes {
    let mut old = ZipArchive::new(Cursor::new(std::fs::read(data(name)).unwrap())).unwrap();
    let mut new = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..old.len() {
        let mut entry = old.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        if let Some(data) = change(&name, data) {
            let stored = zip::CompressionMethod::Stored;
            new.start_file(&name, SimpleFileOptions::default().compression_method(stored)).unwrap();
            new.write_all(&data).unwrap();
        }
    }
    new.finish().unwrap().into_inner().into()
}

/// As [`changed`], replacing text in entries whose names end so.
fn replaced(name: &str, entry: &str, from: &str, to: &str) -> Bytes {
    changed(name, |found, data| {
        if !found.ends_with(entry) {
            return Some(data);
        }
        let text = String::from_utf8(data).unwrap();
        assert!(text.contains(from), "{text}");
        Some(text.replace(from, to).into_bytes())
    })
}

fn refusal(bytes: Bytes) -> String {
    let error = import_archive(bytes, Path::new("m.bin"), &ImportOptions::default()).unwrap_err();
    error.to_string()
}

#[track_caller]
fn says(bytes: Bytes, parts: &[&str]) {
    let error = refusal(bytes);
    for part in parts {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
}

#[test]
fn what_a_pt2_needs_and_fornax_lacks_is_named() {
    let json = "model.json";
    says(
        replaced("attention.pt2", json, "aten.layer_norm.default", "aten.no_such.default"),
        &["m.bin", "aten.no_such.default", "norm/layer_norm", "1 node"],
    );
    says(
        replaced(
            "attention.pt2",
            json,
            "torch.ops.aten.layer_norm.default",
            "torch.ops.higher_order.cond",
        ),
        &["higher_order.cond", "graphs of their own"],
    );
    says(
        replaced("attention.pt2", json, "\"major\": 8", "\"major\": 99"),
        &["version 99", "versions 5 to 8"],
    );
    says(
        replaced(
            "attention.pt2",
            json,
            "{\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": \"add\"}}}}",
            "{\"buffer_mutation\": {\"arg\": {\"name\": \"add\"}, \"buffer_name\": \"b.n\"}}",
        ),
        &["pt2-mutation", "\"b.n\"", ".eval()"],
    );
    says(
        replaced("changes.pt2", json, "aten.mul.Tensor", "aten.mul_.Tensor"),
        &["its input \"x\"", "clone"],
    );
    says(replaced("attention.pt2", json, "\"as_float\"", "\"as_unheard_of\""), &["as_unheard_of"]);
}

#[test]
fn missing_weights_are_named_or_left_open() {
    let bytes = changed("attention.pt2", |name, data| {
        (!name.ends_with("weights/weight_0")).then_some(data)
    });
    says(bytes.clone(), &["norm.weight", "not in the file"]);
    let options = ImportOptions { allow_missing_weights: true, ..ImportOptions::default() };
    let graph = import_archive(bytes, Path::new("m"), &options).unwrap().graph;
    assert!(!graph.weights().contains_key("norm.weight"));
    assert!(graph.weights().contains_key("norm.bias"));
}

#[test]
fn what_torchscript_needs_and_fornax_lacks_is_named() {
    let code = "__torch__.py";
    says(
        replaced("changes.pt", code, "torch.zeros_like", "torch.no_such"),
        &["m.bin", "aten.no_such", "line"],
    );
    says(
        replaced("changes.pt", code, "torch.zeros_like", "ops.other.thing"),
        &["ops.other.thing", "not supported"],
    );
    says(
        replaced("changes.pt", code, "    w = ", "    self.count = 1\n    w = "),
        &["torchscript-mutation", "`count`"],
    );
    says(
        replaced(
            "changes.pt",
            code,
            "    w = ",
            "    if torch.gt(torch.sum(x), 0):\n      pass\n    w = ",
        ),
        &["torchscript-control-flow", "run time"],
    );
    says(replaced("changes.pt", code, "    w = ", "    w w = "), &["code/__torch__", "line"]);
    says(
        replaced("changes.pt", code, "    w = ", "    while True:\n      pass\n    w = "),
        &["loop without end"],
    );
    says(
        replaced(
            "changes.pt",
            code,
            "    w = ",
            "    l = [x]\n    while True:\n      l = [l]\n    w = ",
        ),
        &["nested too deeply"],
    );
    let again = "    _9 = (self).again()\n    w = ";
    let bytes = changed("changes.pt", |name, data| {
        if !name.ends_with(code) {
            return Some(data);
        }
        let text = String::from_utf8(data).unwrap().replace("    w = ", again);
        Some(
            format!("{text}  def again(self: Any) -> Any:\n    return (self).again()\n")
                .into_bytes(),
        )
    });
    says(bytes, &["nested too deeply"]);
}

#[test]
fn other_archives_are_told_apart() {
    says(
        changed("changes.pt", |name, data| (!name.contains("code/")).then_some(data)),
        &["checkpoint"],
    );
    says(
        changed("changes.pt", |name, data| name.ends_with("version").then_some(data)),
        &["no model of PyTorch"],
    );
    says(Bytes::from_static(b"PK\x03\x04"), &["m.bin", "damaged"]);
    let error =
        import_archive(Bytes::new(), Path::new("m"), &ImportOptions::default()).unwrap_err();
    assert!(matches!(error, ImportError::Archive { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Damaged files are refused or imported, never a panic.
    #[test]
    fn damaged_files_do_not_panic(
        name in prop::sample::select(vec!["changes.pt2", "changes.pt", "recurrent.pt", "old_layout.pt2"]),
        end in 0.0f64..1.0,
        flips in prop::collection::vec((0.0f64..1.0, any::<u8>()), 0..6),
        cut in any::<bool>(),
    ) {
        let mut bytes = std::fs::read(data(name)).unwrap();
        let length = bytes.len();
        for (place, byte) in flips {
            bytes[(place * length as f64) as usize] = byte;
        }
        if cut {
            bytes.truncate((end * length as f64) as usize);
        }
        let _ = import_archive(bytes.into(), Path::new("m"), &ImportOptions::default());
    }

    /// The same for the entries, behind the archive's own checks.
    #[test]
    fn damaged_entries_do_not_panic(
        name in prop::sample::select(vec!["changes.pt2", "attention.pt2", "branches.pt2", "branches.pt", "recurrent.pt"]),
        place in 0.0f64..1.0,
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let bytes = changed(name, |entry, mut data| {
            if (entry.ends_with(".json") || entry.ends_with(".py") || entry.ends_with(".pkl")) && !data.is_empty() {
                let at = (place * data.len() as f64) as usize;
                if cut { data.truncate(at) } else { data[at] = byte }
            }
            Some(data)
        });
        let _ = import_archive(bytes, Path::new("m"), &ImportOptions::default());
    }
}
