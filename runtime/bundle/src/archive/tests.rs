use std::io::{Cursor, Write};

use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::*;
use crate::DType;
use crate::manifest::*;

/// A bundle that doubles `x: f32[N, 3]` and adds a weight.
fn sample() -> BundleParts {
    let dim = |text: &str| text.parse().unwrap();
    let manifest: Manifest = serde_json::from_value(serde_json::json!({
        "schema": 1,
        "producer": {"fornax": "0.1.0", "llvm": "22.1.8"},
        "model": "sample",
        "signature": {
            "dims": [{"name": "N", "range": {"min": 1, "max": 64, "divisor": 1}}],
            "inputs": [{"name": "x", "dtype": "f32", "shape": ["N", 3]}],
            "outputs": [{"name": "y", "dtype": "f32", "shape": ["N", 3]}],
        },
        "precision": "ieee",
        "rewrites": "real",
        "weights": [
            {"name": "b\"1, 2", "dtype": "f32", "shape": [3], "embedded": true},
            {"name": "mask", "dtype": "bool", "shape": [5], "embedded": true},
            {"name": "table", "dtype": "f16", "shape": [2, 2], "embedded": true},
            {"name": "none", "dtype": "i64", "shape": [0], "embedded": true},
            {"name": "late", "dtype": "f32", "shape": [7], "embedded": false},
        ],
        "targets": [{
            "target": "sm_80",
            "kernels": [{
                "name": "twice", "ptx": "ptx/sm_80/twice.ptx",
                "block": [128, 1, 1], "cluster": [1, 1, 1], "dynamic_shared_bytes": 0,
                "params": [
                    {"kind": "pointer", "name": "x", "dtype": "f32", "written": false},
                    {"kind": "pointer", "name": "y", "dtype": "f32", "written": true},
                    {"kind": "scalar", "name": "n", "dtype": "i32"},
                ],
                "region": 0, "bytes": "24*N", "flops": "6*N",
            }],
            "regions": [{
                "name": "r0", "class": "pointwise", "schedule": "",
                "ops": [{"op": "add", "origins": ["a"]}],
                "reads": [0, 1], "writes": [3],
            }],
            "buffers": [
                {"name": "x", "dtype": "f32", "shape": ["N", 3], "kind": "input", "index": 0},
                {"name": "b", "dtype": "f32", "shape": [3], "kind": "weight", "index": 0},
                {"name": "t", "dtype": "f32", "shape": ["N", 3], "kind": "scratch", "offset": 0},
                {"name": "y", "dtype": "f32", "shape": ["N", 3], "kind": "output", "index": 0},
                {"name": "p", "dtype": "f32", "shape": [3], "kind": "prepared", "offset": 256},
            ],
            "scratch_bytes": "256*floordiv(12*N + 255, 256)",
            "prepared_bytes": 512,
            "prepare": [{"step": "copy", "from": 1, "to": 4}],
            "run": [
                {"step": "launch", "kernel": 0, "grid": ["floordiv(3*N + 127, 128)", 1, 1], "args": [
                    {"arg": "buffer", "buffer": 0}, {"arg": "buffer", "buffer": 2},
                    {"arg": "scalar", "value": "3*N"},
                ]},
                {"step": "choice", "name": "c", "selected": 0, "alternatives": [
                    {"name": "a", "steps": [{"step": "copy", "from": 2, "to": 3}]},
                    {"name": "b", "steps": [{"step": "copy", "from": 0, "to": 3}]},
                ]},
            ],
        }],
    }))
    .unwrap();
    assert_eq!(manifest.targets[0].kernels[0].bytes, dim("24*N"));
    let mut parts = BundleParts::new(manifest, "graph @sample() {}\n");
    parts.ptx.insert("ptx/sm_80/twice.ptx".into(), ".version 7.0\n".repeat(100));
    parts.sass.insert("sass/sm_80/twice.cubin".into(), Bytes::from_static(b"\x7fELF"));
    let tensor = |dtype, shape: &[usize], data: Vec<u8>| Tensor::new(dtype, shape, data).unwrap();
    parts.weights = [
        ("b\"1, 2", Tensor::from_f32(&[3], &[1.0, -0.0, f32::NAN])),
        ("mask", tensor(DType::Bool, &[5], vec![1, 0, 1, 1, 0])),
        ("table", tensor(DType::F16, &[2, 2], vec![0, 60, 1, 2, 3, 4, 5, 6])),
        ("none", tensor(DType::I64, &[0], vec![])),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into();
    parts.plan = Some("plan".into());
    parts.ledger = Some("[]".into());
    parts
}

fn failure(bytes: impl Into<Bytes>) -> String {
    Bundle::from_bytes(bytes).unwrap_err().to_string()
}

/// The archive with some entries replaced, added or, given as `None`, left out; hashes are made anew when
/// `rehash` says so.
fn rewritten(parts: &BundleParts, changes: &[(&str, Option<&[u8]>)], rehash: bool) -> Vec<u8> {
    let mut old = ZipArchive::new(Cursor::new(parts.to_bytes().unwrap())).unwrap();
    let mut entries = BTreeMap::new();
    for index in 0..old.len() {
        let mut file = old.by_index(index).unwrap();
        let mut data = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut data).unwrap();
        entries.insert(file.name().unwrap().into_owned(), data);
    }
    for (entry, data) in changes {
        match data {
            Some(data) => entries.insert((*entry).to_owned(), data.to_vec()),
            None => entries.remove(*entry),
        };
    }
    if rehash {
        use sha2::Digest;
        let lines = entries.iter().filter(|(entry, _)| is_hashed(entry));
        let content: String = lines
            .map(|(entry, data)| format!("{}  {entry}\n", hex(sha2::Sha256::digest(data))))
            .collect();
        entries.insert(CONTENT_ENTRY.to_owned(), content.into_bytes());
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (entry, data) in entries {
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(entry, stored).unwrap();
        zip.write_all(&data).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The sample's manifest with a JSON value replaced, in a bundle whose hashes agree.
fn with_manifest(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let parts = sample();
    let mut json = serde_json::to_value(&parts.manifest).unwrap();
    change(&mut json);
    rewritten(&parts, &[(MANIFEST_ENTRY, Some(json.to_string().as_bytes()))], true)
}

#[test]
fn parts_read_back() {
    let mut parts = sample();
    parts.certificate = Some(r#"{"ulp":2}"#.into());
    parts.measured = Some("{}".into());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sample.fnx");
    parts.write(&path).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    assert_eq!(bundle.parts(), &parts);
    assert_eq!(std::fs::read(&path).unwrap(), parts.to_bytes().unwrap());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file stays");
    let unverified = Bundle::open_with(&path, ReadOptions { verify_data: false }).unwrap();
    assert_eq!(unverified.content_hash(), bundle.content_hash());
}

#[test]
fn equal_parts_give_equal_bytes() {
    assert_eq!(sample().to_bytes().unwrap(), sample().to_bytes().unwrap());
}

#[test]
fn the_content_hash_leaves_out_certificate_and_measurements() {
    let hash = |parts: &BundleParts| {
        Bundle::from_bytes(parts.to_bytes().unwrap()).unwrap().content_hash().to_owned()
    };
    let plain = sample();
    let mut certified = sample();
    certified.certificate = Some("{}".into());
    certified.measured = Some("{}".into());
    assert_eq!(hash(&plain), hash(&certified));
    let mut other = sample();
    other.graph.push('\n');
    assert_ne!(hash(&plain), hash(&other));
    assert_eq!(hash(&plain).len(), 64);
}

#[test]
fn data_is_aligned_in_the_file() {
    let bytes = Bytes::from(sample().to_bytes().unwrap());
    let bundle = Bundle::from_bytes(bytes.clone()).unwrap();
    let data = bundle.parts().weights.values().map(Tensor::bytes);
    let sass = bundle.parts().sass.values();
    let mut offsets = Vec::new();
    for data in data.chain(sass).filter(|data| !data.is_empty()) {
        let offset = data.as_ptr() as usize - bytes.as_ptr() as usize;
        assert!(offset < bytes.len(), "shares the file's bytes");
        assert_eq!(offset as u64 % DATA_ALIGN, 0);
        offsets.push(offset);
    }
    assert_eq!(offsets.len(), 4);
}

#[test]
fn a_newer_schema_names_both() {
    // Whatever else has changed in the newer manifest.
    let manifest = br#"{"schema": 3, "kernels": "elsewhere"}"#;
    let bytes = rewritten(&sample(), &[(MANIFEST_ENTRY, Some(manifest))], true);
    assert_eq!(failure(bytes), "bundle has schema 3, this fornax reads up to 1: upgrade fornax");
}

#[test]
fn later_additions_are_ignored() {
    let bytes = with_manifest(|json| json["targets"][0]["kernels"][0]["note"] = "new".into());
    assert!(Bundle::from_bytes(bytes).is_ok());
    let bytes = rewritten(&sample(), &[("later/notes.txt", Some(b"new"))], true);
    assert!(Bundle::from_bytes(bytes).is_ok());
}

#[test]
fn damage_is_named() {
    let parts = sample();
    let changed =
        |entry: &str, data: Option<&[u8]>| failure(rewritten(&parts, &[(entry, data)], false));
    let damaged = "is damaged: its contents do not have the recorded hash";
    for entry in [
        MANIFEST_ENTRY,
        GRAPH_ENTRY,
        PLAN_ENTRY,
        "ptx/sm_80/twice.ptx",
        LEDGER_ENTRY,
        WEIGHTS_ENTRY,
    ] {
        let data = if entry == MANIFEST_ENTRY { b"{\"schema\":1}".as_slice() } else { b"x" };
        assert_eq!(changed(entry, Some(data)), format!("entry `{entry}` {damaged}"));
    }
    assert_eq!(
        changed("ptx/sm_80/more.ptx", Some(b"")),
        format!("entry `ptx/sm_80/more.ptx` {damaged}")
    );
    assert_eq!(changed(MANIFEST_ENTRY, None), "the bundle has no entry `manifest.json`");
    assert_eq!(
        changed(WEIGHTS_ENTRY, None),
        "the bundle has no entry `weights.safetensors`, which `content.sha256` needs"
    );
    let without = failure(rewritten(&parts, &[("ptx/sm_80/twice.ptx", None)], true));
    assert!(without.ends_with("which kernel `twice` of target sm_80 needs"), "{without}");
    let without = failure(rewritten(&parts, &[(WEIGHTS_ENTRY, None)], true));
    assert_eq!(without, "entry `weights.safetensors`: the weight `b\"1, 2` is missing");
    let not_json = failure(rewritten(&parts, &[(MANIFEST_ENTRY, Some(b"{"))], true));
    assert!(not_json.starts_with("entry `manifest.json`: EOF"), "{not_json}");
}

#[test]
fn other_files_are_no_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.fnx");
    let error = |contents: &[u8]| {
        std::fs::write(&path, contents).unwrap();
        let text = Bundle::open(&path).unwrap_err().to_string();
        text.replace(path.to_str().unwrap(), "x.fnx")
    };
    assert_eq!(error(b""), "x.fnx: not a Fornax bundle: the file is empty");
    assert_eq!(error(b"\x08\x0aonnx"), "x.fnx: not a Fornax bundle: it is not a zip archive");
    let whole = sample().to_bytes().unwrap();
    let cut = error(&whole[..whole.len() / 2]);
    assert!(cut.starts_with("x.fnx: not a Fornax bundle: the zip archive is truncated"), "{cut}");
    let none = Bundle::open(folder.path().join("none.fnx")).unwrap_err().to_string();
    assert!(none.starts_with("cannot open ") && none.contains("none.fnx"), "{none}");
    let this = Bundle::open(folder.path()).unwrap_err().to_string();
    assert!(this.ends_with("it is not a regular file"), "{this}");
}

#[test]
fn paths_that_leave_the_folder_are_refused() {
    for name in ["../x", "/x", "a/../../x", "a\\x", "a//x", "C:x"] {
        let error = failure(rewritten(&sample(), &[(name, Some(b""))], true));
        assert!(error.contains("is not an entry's name"), "{name}: {error}");
    }
}

#[test]
fn a_zip_bomb_is_refused() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file(MANIFEST_ENTRY, SimpleFileOptions::default()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..=256 {
        zip.write_all(&zeros).unwrap();
    }
    let bytes = zip.finish().unwrap().into_inner();
    assert!(bytes.len() < 1 << 20);
    let error = failure(bytes.clone());
    assert_eq!(error, "entry `manifest.json` is larger than 268435456 bytes, the limit for it");
    // The same with a declared size that lies: local header at 22, central directory at +24.
    let mut lying = bytes;
    let central = lying.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    lying[central + 24..central + 28].copy_from_slice(&64u32.to_le_bytes());
    assert!(Bundle::from_bytes(lying).is_err());
}

#[test]
fn weights_must_be_as_declared() {
    let mut parts = sample();
    parts.weights.insert("table".into(), Tensor::from_f32(&[4], &[0.0; 4]));
    assert_eq!(
        parts.to_bytes().unwrap_err().to_string(),
        "entry `weights.safetensors`: weight `table` is f32[4], the manifest says f16[2, 2]"
    );
    let mut parts = sample();
    parts.weights.insert("late".into(), Tensor::from_f32(&[7], &[0.0; 7]));
    let error = parts.to_bytes().unwrap_err().to_string();
    assert!(error.ends_with("the manifest declares no embedded weight `late`"), "{error}");
    let bytes = with_manifest(|json| json["weights"][2]["shape"] = serde_json::json!([2, 3]));
    assert_eq!(
        failure(bytes),
        "entry `weights.safetensors`: weight `table` is f16[2, 2], the manifest says f16[2, 3]"
    );
}

#[test]
fn contradictions_in_the_manifest_are_named() {
    let cases: &[(&str, serde_json::Value, &str)] = &[
        ("/schema", 0.into(), "schema 0 never existed"),
        ("/targets", serde_json::json!([]), "targets: there is none"),
        ("/targets/0/target", "gfx90".into(), "`gfx90` is not a target"),
        ("/signature/dims/0/name", "N + 1".into(), "not a symbol's name"),
        ("/signature/dims/0/range/max", 0.into(), "the range 1..=0 step 1 makes no sense"),
        ("/signature/dims/0/range/divisor", 0.into(), "makes no sense"),
        ("/signature/inputs/0/shape/0", "N*N".into(), "no input's shape determines it"),
        (
            "/signature/outputs/0/shape/0",
            "M".into(),
            "outputs[y]: the dimension `M` is not declared",
        ),
        ("/signature/outputs/0/shape/0", (-1).into(), "the size -1 is negative"),
        ("/weights/1/name", "table".into(), "weights: two are named `table`"),
        ("/weights/4/shape", serde_json::json!([u64::MAX, 2]), "weights[late]: its size overflows"),
        ("/targets/0/kernels/0/name", "a b".into(), "`a b` is not a PTX identifier"),
        ("/targets/0/kernels/0/ptx", "../twice.ptx".into(), "is not ptx/<target>/<module>.ptx"),
        ("/targets/0/kernels/0/block/0", 2048.into(), "cannot be in a block"),
        ("/targets/0/kernels/0/cluster/1", 0.into(), "cannot be in a cluster"),
        ("/targets/0/kernels/0/dynamic_shared_bytes", 232449.into(), "shared memory are too many"),
        ("/targets/0/kernels/0/region", 1.into(), "kernels[0]: there is no region 1"),
        ("/targets/0/kernels/0/params/2/dtype", "f32".into(), "`n` is f32, not i32 or i64"),
        ("/targets/0/kernels/0/params/0/dtype", "f16".into(), "`x` points to f16, not f32"),
        ("/targets/0/kernels/0/flops", "M".into(), "the dimension `M` is not declared"),
        ("/targets/0/regions/0/reads/0", 9.into(), "regions[0]: there is no buffer 9"),
        ("/targets/0/buffers/0/index", 1.into(), "buffers[0]: there is no input 1"),
        ("/targets/0/buffers/1/index", 9.into(), "buffers[1]: there is no weight 9"),
        ("/targets/0/buffers/3/shape/1", 4.into(), "it must hold f32[N, 3]"),
        ("/targets/0/buffers/2/offset", 128.into(), "the offset 128 is not a multiple of 256"),
        ("/targets/0/buffers/2/offset", "128*N".into(), "is not a multiple of 256"),
        ("/targets/0/buffers/4/offset", "256*N".into(), "place depends on a symbol"),
        ("/targets/0/prepared_bytes", "N".into(), "prepared_bytes: it depends on a symbol"),
        ("/targets/0/prepare/0/to", 1.into(), "prepare[0]: buffer 1 is an input or weight"),
        ("/targets/0/prepare/0/from", 0.into(), "uses the caller's buffer 0"),
        ("/targets/0/prepare/0/to", 2.into(), "the prepare program depends on `N`"),
        (
            "/targets/0/buffers/4/shape/0",
            4.into(),
            "prepare[0]: source and destination differ in size",
        ),
        ("/targets/0/run/0/kernel", 7.into(), "run[0]: there is no kernel 7"),
        ("/targets/0/run/0/grid/0", "M".into(), "the dimension `M` is not declared"),
        ("/targets/0/run/0/args/0/buffer", 99.into(), "run[0].args[0]: there is no buffer 99"),
        ("/targets/0/run/0/args/0/buffer", 2.into(), "(`t`) is read before it is written"),
        ("/targets/0/run/0/args/1/buffer", 4.into(), "writes the prepared buffer 4"),
        (
            "/targets/0/run/0/args/2",
            serde_json::json!({"arg": "buffer", "buffer": 0}),
            "`n` takes a number",
        ),
        (
            "/targets/0/run/0/args/0",
            serde_json::json!({"arg": "scalar", "value": 1}),
            "`x` takes a buffer",
        ),
        ("/targets/0/run/0/args", serde_json::json!([]), "0 arguments, but `twice` takes 3"),
        ("/targets/0/run/1/selected", 2.into(), "run[1]: there is no alternative 2"),
        (
            "/targets/0/run/1/alternatives/1/steps",
            serde_json::json!([]),
            "targets[sm_80].run: no step writes output 0",
        ),
    ];
    for (pointer, value, expected) in cases {
        let bytes = with_manifest(|json| *json.pointer_mut(pointer).unwrap() = value.clone());
        let error = failure(bytes);
        assert!(error.contains(expected), "{pointer} = {value}: {error}");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let mut steps = serde_json::json!([]);
    for _ in 0..30 {
        steps = serde_json::json!([{"step": "choice", "name": "", "selected": 0,
            "alternatives": [{"name": "", "steps": steps}]}]);
    }
    let error = failure(with_manifest(|json| json["targets"][0]["run"] = steps));
    assert!(error.contains("nested too deeply") || error.contains("recursion limit"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn mutated_bundles_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().to_bytes().unwrap();
        for (index, value) in changes {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = Bundle::from_bytes(bytes);
    }

    #[test]
    fn mutated_manifests_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[0-9a-zN*\\-\"{},]"), 1..4),
    ) {
        let parts = sample();
        let mut json = serde_json::to_string(&parts.manifest).unwrap().into_bytes();
        for (index, value) in changes {
            let index = index.index(json.len());
            json[index] = value.as_bytes()[0];
        }
        let bytes = rewritten(&parts, &[(MANIFEST_ENTRY, Some(&json))], true);
        let _ = Bundle::from_bytes(bytes);
    }

    #[test]
    fn sizes_read_back_or_are_refused(text in "[0-9N(),*+ -]{0,40}|(floordiv|mod|max|min)\\([0-9N*-]{1,20}, [0-9N-]{1,4}\\)") {
        if let Ok(dim) = text.parse::<crate::Dim>() {
            prop_assert_eq!(dim.to_string().parse::<crate::Dim>(), Ok(dim));
        }
    }
}
