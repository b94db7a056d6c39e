//! Malformed PTX: an error with its line, never a panic.

use fornax_runtime::device::{Device, ModuleSource};
use fornax_runtime::{Emulator, Error};
use proptest::prelude::*;

fn error(body: &str) -> (usize, String) {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n{body}\nret;\n}}\n"
    );
    match Emulator::default().load_module(ModuleSource::ptx(&text)) {
        Err(Error::Ptx { line, text: quoted, message }) => {
            assert_eq!(quoted, text.lines().nth(line - 1).unwrap_or("").trim());
            (line, message)
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted: {body}"),
    }
}

#[test]
fn errors_name_line_and_cause() {
    for (body, line, part) in [
        ("mov.u32 %r0, 1;\nfrob.u32 %r0, 1;", 8, "no instruction `frob`"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 %r0, %r1, %r2, %r3;", 7, "`mma`"),
        ("add.u32 %r0, %r1;", 7, "`add` takes 3 operands, not 2"),
        ("add.u32 %r0, %r1, %d1;", 7, "`%d1` has 64 bits where 32 are needed"),
        ("add.u32 %r9, %r1, %r2;", 7, "must be a register"),
        ("add.v.u32 %r0, %r1, %r2;", 7, "`add` with `.v` is not supported"),
        ("bra NOWHERE;", 7, "label `NOWHERE` is not defined"),
        ("A:\nA:", 8, "defined twice"),
        ("mov.u32 %r0, %nosuch;", 7, "no special register `%nosuch`"),
        ("mov.u64 %d0, nosuch;", 7, "`nosuch` is not declared"),
        ("@%r0 mov.u32 %r0, 1;", 7, "has 32 bits where 1 are needed"),
        ("ld.global.u32 %r0, %d0;", 7, "address in brackets"),
        ("st.param.u32 [p], %r0;", 7, "cannot be written"),
        ("ld.global.u32 %r0, [p];", 7, "parameter memory is accessed as global"),
        ("ld.global.v2.u32 {%r0}, [%d0];", 7, "2 results are needed, not 1"),
        ("cvt.f16.f32 %h0, %r0;", 7, "needs a rounding"),
        ("call foo, (%r0);", 7, "inline the function"),
        ("mov.u32 %r0, 1", 8, "expected `,` or `;`"),
        ("mov.u32 %r0, 99999999999999999999;", 7, "is not a number"),
        ("mov.u32 %r0, #;", 7, "unexpected character"),
        ("setp.ltu.s32 %p0, %r0, %r1;", 7, "does not go with this type"),
        ("vprintf %r0;", 7, "no instruction `vprintf`"),
    ] {
        let (found, message) = error(body);
        assert!(message.contains(part), "{body}: {message}");
        assert_eq!(found, line, "{body}: {message}");
    }
}

#[test]
fn modules_are_checked() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    for (text, part) in [
        (".address_size 32\n".to_owned(), "64-bit"),
        (format!("{head}.visible .func f() {{ ret; }}\n"), "inline them"),
        (format!("{head}.global .u32 a;\n.global .u32 a;\n"), "declared twice"),
        (format!("{head}.global .u8 a[2] = {{1, 2, 3}};\n"), "longer than the variable"),
        (
            format!("{head}.visible .entry k() {{ ret; }}\n.visible .entry k() {{ ret; }}\n"),
            "twice",
        ),
        (
            format!("{head}.visible .entry k() {{\n.shared .align 3 .b8 s[4];\nret;\n}}\n"),
            "power of two",
        ),
        (format!("{head}.visible .entry k() {{ ret;\n"), "the end of the text"),
        (format!("{head}/* no end"), "has no end"),
        (format!("{head}nonsense\n"), "unknown directive"),
    ] {
        let error = Emulator::default().load_module(ModuleSource::ptx(&text)).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

const SAMPLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/ptx/row_sum.ptx"));

#[test]
fn truncated_text_is_an_error() {
    let emulator = Emulator::default();
    let end = SAMPLE.rfind('}').unwrap();
    let start = SAMPLE.find(".visible").unwrap();
    for cut in (start + 9..end).step_by(7).filter(|&cut| SAMPLE.is_char_boundary(cut)) {
        let result = emulator.load_module(ModuleSource::ptx(&SAMPLE[..cut]));
        assert!(matches!(result, Err(Error::Ptx { .. })), "cut at {cut}: {result:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Replacing, inserting and deleting pieces of a module never makes the parser panic.
    #[test]
    fn mutated_text_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..6, "[ -~\\n]{0,4}"), 1..6)
    ) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (place, n_removed, inserted) in edits {
            let start = place.index(bytes.len());
            let end = (start + n_removed).min(bytes.len());
            bytes.splice(start..end, inserted.bytes());
        }
        let text = String::from_utf8(bytes).unwrap();
        let _ = Emulator::default().load_module(ModuleSource::ptx(&text));
    }
}
