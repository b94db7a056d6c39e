//! Runs one instruction on many operands.

use crate::harness::{Arg, run};
use fornax_runtime::Error;
use fornax_runtime::device::LaunchConfig;

/// Bit widths of operands, and of results with predicates as 1 bit.
pub type Width = u32;

/// Runs `instruction`, which reads `%x0`, `%x1`, ... and writes `%y`, once for each row of operands.
///
/// Registers have the given widths; a result of width 1 is a predicate `%y` and comes back as 0 or 1.
/// `%t0` to `%t3` are 32-bit registers for free use. Where there is a GPU, it must give the same.
pub fn each(instruction: &str, widths: &[Width], result: Width, rows: &[Vec<u64>]) -> Vec<u64> {
    each_by(run, instruction, widths, result, rows)
}

/// [`each`] by another way to run the kernel `k` of a text.
pub fn each_by(
    run: impl Fn(&str, &str, LaunchConfig, &[Arg<'_>]) -> Result<Vec<Vec<u8>>, Error>,
    instruction: &str,
    widths: &[Width],
    result: Width,
    rows: &[Vec<u64>],
) -> Vec<u64> {
    let mut text = String::from(".version 8.0\n.target sm_90a\n.address_size 64\n");
    let parameters: Vec<String> = (0..=widths.len()).map(|i| format!(".param .u64 p{i}")).collect();
    text += &format!(".visible .entry k({}, .param .u32 n)\n{{\n", parameters.join(", "));
    text += ".reg .b64 %a<4>; .reg .b32 %i, %n, %t<4>; .reg .b16 %s<4>; .reg .pred %p, %q;\n";
    for (i, width) in widths.iter().enumerate() {
        text += &format!(".reg .b{width} %x{i};\n");
    }
    let stored = if result == 1 { 32 } else { result };
    if result == 1 {
        text += ".reg .pred %y; .reg .b32 %z;\n";
    } else {
        text += &format!(".reg .b{result} %y;\n");
    }
    text += "mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t0, %tid.x;\n";
    text += "mad.lo.u32 %i, %i, %n, %t0; ld.param.u32 %n, [n];\n";
    text += "setp.ge.u32 %p, %i, %n; @%p bra DONE;\n";
    for (i, width) in widths.iter().enumerate() {
        text += &format!("ld.param.u64 %a0, [p{i}]; mul.wide.u32 %a1, %i, {};\n", width / 8);
        text += &format!("add.s64 %a0, %a0, %a1; ld.global.b{width} %x{i}, [%a0];\n");
    }
    text += &format!("{instruction}\n");
    text +=
        &format!("ld.param.u64 %a0, [p{}]; mul.wide.u32 %a1, %i, {};\n", widths.len(), stored / 8);
    text += "add.s64 %a0, %a0, %a1;\n";
    if result == 1 {
        text += "selp.b32 %z, 1, 0, %y; st.global.b32 [%a0], %z;\n";
    } else {
        text += &format!("st.global.b{result} [%a0], %y;\n");
    }
    text += "DONE: ret;\n}\n";

    let columns: Vec<Vec<u8>> = widths
        .iter()
        .enumerate()
        .map(|(i, &width)| {
            let n_bytes = width as usize / 8;
            rows.iter().flat_map(|row| row[i].to_le_bytes()[..n_bytes].to_vec()).collect()
        })
        .collect();
    let mut args: Vec<Arg<'_>> = columns.iter().map(|column| Arg::Input(column)).collect();
    let size = stored as usize / 8;
    args.push(Arg::Output((rows.len() * size) as u64));
    args.push(Arg::I32(rows.len() as i32));
    let config = LaunchConfig::linear(rows.len().div_ceil(128) as u32, 128);
    let outputs = run(&text, "k", config, &args).unwrap_or_else(|error| panic!("{error}"));
    outputs[0]
        .chunks_exact(size)
        .map(|bytes| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
        .collect()
}

/// Runs the instruction and compares with `expected` row by row.
pub fn check(
    instruction: &str,
    widths: &[Width],
    result: Width,
    rows: &[Vec<u64>],
    expected: impl Fn(&[u64]) -> u64,
) {
    let found = each(instruction, widths, result, rows);
    let mask = if result == 64 { u64::MAX } else { (1 << result) - 1 };
    for (row, found) in rows.iter().zip(found) {
        let expected = expected(row) & mask;
        assert!(
            found == expected,
            "{instruction}: operands {row:x?} give {found:#x}, expected {expected:#x}"
        );
    }
}

/// All combinations of `n` of the values.
pub fn tuples(values: &[u64], n: usize) -> Vec<Vec<u64>> {
    (0..n).fold(vec![Vec::new()], |rows, _| {
        rows.iter()
            .flat_map(|row| {
                values.iter().map(move |&value| {
                    let mut row = row.clone();
                    row.push(value);
                    row
                })
            })
            .collect()
    })
}

/// A deterministic sequence of numbers (SplitMix64).
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
