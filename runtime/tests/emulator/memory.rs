//! Loads, stores, address spaces, variables, atomics and copies.

use std::sync::Arc;

use crate::elementwise::{check, each, each_by};
use crate::harness::{Arg, emulate, run, words};
use fornax_runtime::device::{Buffer, Device, LaunchConfig, Stream};
use fornax_runtime::{Emulator, EmulatorOptions, Error};

fn kernel(declarations: &str, parameters: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{declarations}\n\
         .visible .entry k({parameters})\n{{\n.reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<16>;\n\
         .reg .b64 %d<16>;\n{body}\nret;\n}}\n"
    )
}

/// Runs one block of 32 threads; the single output has a word for each.
fn run_words(declarations: &str, body: &str) -> Vec<u32> {
    let text = kernel(
        declarations,
        ".param .u64 p0",
        &format!(
            "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4;\n\
             add.s64 %d0, %d0, %d1;\n{body}\nst.global.u32 [%d0], %r1;"
        ),
    );
    let config = LaunchConfig::linear(1, 32);
    match run(&text, "k", config, &[Arg::Output(128)]) {
        Ok(outputs) => words(&outputs[0]),
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn narrow_loads_extend() {
    let text = |ty: &str| {
        format!(
            "{{ .shared .align 4 .b8 s[512]; mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 2; mov.u32 %t1, s;
               add.u32 %t0, %t0, %t1; st.shared.b32 [%t0], %x0; ld.shared.{ty} %y, [%t0]; }}"
        )
    };
    let rows: Vec<Vec<u64>> =
        [0x7f, 0x80, 0x1234_ff80, 0x8000, 0xffff_7fff].map(|v| vec![v]).to_vec();
    check(&text("u8"), &[32], 32, &rows, |r| u64::from(r[0] as u8));
    check(&text("s8"), &[32], 32, &rows, |r| r[0] as i8 as u64);
    check(&text("u16"), &[32], 32, &rows, |r| u64::from(r[0] as u16));
    check(&text("s16"), &[32], 64, &rows, |r| r[0] as i16 as u64);
    check(&text("s8"), &[32], 16, &rows, |r| r[0] as i8 as u64);
    check(&text("s32"), &[32], 64, &rows, |r| r[0] as i32 as u64);
}

#[test]
fn variables_have_their_initial_values() {
    let declarations = ".global .align 4 .b8 table[16] = {1, 0, 0, 0, 253, 255, 255, 255, 4};\n\
        .const .align 4 .f32 numbers[3] = {0f3F800000, 0fC0000000, 1.5};\n\
        .global .align 8 .u64 pointers[2] = {table, generic(table)+4};\n\
        .global .align 4 .u32 empty[2];";
    let body = "mov.u64 %d2, pointers; ld.global.u64 %d3, [%d2+8]; ld.global.s32 %r1, [%d3];\n\
        ld.const.b32 %r2, [numbers+4]; add.u32 %r1, %r1, %r2; ld.global.u32 %r3, [table+8];\n\
        add.u32 %r1, %r1, %r3; ld.global.u32 %r4, [empty+4]; add.u32 %r1, %r1, %r4;\n\
        ld.global.u32 %r5, [table+12]; add.u32 %r1, %r1, %r5;";
    assert_eq!(run_words(declarations, body), vec![0xc000_0000 - 3 + 4; 32]);
}

#[test]
fn generic_addresses_reach_every_space() {
    let body = ".shared .align 4 .b8 s[128]; .local .align 4 .b8 l[8];\n\
        mov.u64 %d2, s; add.s64 %d2, %d2, %d1; cvta.shared.u64 %d3, %d2;\n\
        mov.u64 %d4, l; cvta.local.u64 %d5, %d4;\n\
        setp.lt.u32 %p0, %r0, 8; setp.lt.u32 %p1, %r0, 16;\n\
        selp.b64 %d6, %d3, %d5, %p0; selp.b64 %d6, %d6, %d0, %p1;\n\
        add.u32 %r2, %r0, 100; st.u32 [%d6], %r2; ld.u32 %r1, [%d6];\n\
        cvta.to.shared.u64 %d7, %d3; isspacep.shared %p2, %d6; @%p2 ld.shared.u32 %r3, [%d7];\n\
        @%p2 add.u32 %r1, %r1, %r3;";
    let expected: Vec<u32> = (0..32).map(|i| if i < 8 { 2 * (i + 100) } else { i + 100 }).collect();
    assert_eq!(run_words("", body), expected);
}

#[test]
fn parameters_by_value_and_by_address() {
    let text = kernel(
        "",
        ".param .u64 .ptr .global .align 4 out, .param .u8 small, .param .align 64 .b8 blob[128]",
        "ld.param.u64 %d0, [out]; mov.b64 %d1, blob; ld.param.u32 %r1, [%d1+8];\n\
         cvta.param.u64 %d2, %d1; ld.u32 %r2, [%d2+12]; ld.param.v2.u32 {%r3, %r4}, [blob+16];\n\
         ld.param.u8 %h0, [small]; cvt.u32.u16 %r5, %h0;\n\
         st.global.v4.u32 [%d0], {%r1, %r2, %r3, %r5};",
    );
    let blob: Vec<u8> = (0..128).collect();
    let args = [Arg::Output(16), Arg::Bytes(&[9]), Arg::Bytes(&blob)];
    let outputs = run(&text, "k", LaunchConfig::linear(1, 1), &args).unwrap();
    assert_eq!(words(&outputs[0]), [0x0b0a_0908, 0x0f0e_0d0c, 0x1312_1110, 9]);
}

#[test]
fn atomics_on_shared_and_global_memory() {
    let shared = |operation: &str, initial: &str| {
        let body = format!(
            ".shared .align 8 .b8 s[8]; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.b32 [s], {initial};\n\
             bar.sync 0; {operation} bar.sync 0; ld.shared.u32 %r1, [s];"
        );
        run_words("", &body)[0]
    };
    assert_eq!(shared("atom.shared.add.u32 %r2, [s], %r0;", "5"), 5 + 31 * 16);
    assert_eq!(shared("red.shared.max.s32 [s], %r0;", "-1"), 31);
    assert_eq!(shared("red.shared.min.s32 [s], %r0;", "-1"), u32::MAX);
    assert_eq!(shared("red.shared.min.u32 [s], %r0;", "-1"), 0);
    assert_eq!(shared("red.shared.or.b32 [s], %r0;", "64"), 95);
    assert_eq!(shared("red.shared.xor.b32 [s], 3;", "1"), 1);
    assert_eq!(shared("red.shared.inc.u32 [s], 6;", "0"), 32 % 7);
    assert_eq!(shared("red.shared.dec.u32 [s], 6;", "0"), 7 - 32 % 7);
    assert_eq!(shared("atom.shared.exch.b32 %r2, [s], 8;", "0"), 8);
    assert_eq!(shared("atom.shared.cas.b32 %r2, [s], %r0, 40;", "17"), 40);
    assert_eq!(shared("red.shared.add.f32 [s], 0f3F000000;", "0f3F800000"), 17.0f32.to_bits());

    let text = kernel(
        "",
        ".param .u64 sum, .param .u64 wide, .param .u64 half, .param .u64 double",
        "ld.param.u64 %d0, [sum]; ld.param.u64 %d1, [wide]; ld.param.u64 %d2, [half];\n\
         ld.param.u64 %d3, [double]; mov.u32 %r0, %tid.x; cvt.u64.u32 %d4, %r0;\n\
         atom.global.add.u32 %r1, [%d0], %r0; red.relaxed.gpu.global.max.u64 [%d1], %d4;\n\
         mov.b32 %r2, 0x3c003c00; red.global.add.noftz.f16x2 [%d2], %r2;\n\
         mov.b64 %d5, 0d3FF0000000000000; atom.add.f64 %d6, [%d3], %d5;",
    );
    let zeros = [0; 8];
    let args =
        [Arg::InOut(&zeros[..4]), Arg::InOut(&zeros), Arg::InOut(&zeros[..4]), Arg::InOut(&zeros)];
    let config = LaunchConfig::linear(3, 64);
    let outputs = run(&text, "k", config, &args).unwrap();
    assert_eq!(words(&outputs[0]), [3 * 63 * 32]);
    assert_eq!(words(&outputs[1]), [63, 0]);
    assert_eq!(words(&outputs[2]), [0x5a00_5a00]);
    assert_eq!(outputs[3], 192.0f64.to_le_bytes());
}

#[test]
fn asynchronous_copies_arrive_with_zero_fill() {
    let text = kernel(
        "",
        ".param .u64 from, .param .u64 to",
        ".shared .align 16 .b8 s[512];\n\
         ld.param.u64 %d0, [from]; ld.param.u64 %d1, [to]; mov.u32 %r0, %tid.x;\n\
         mul.wide.u32 %d2, %r0, 16; add.s64 %d0, %d0, %d2; add.s64 %d1, %d1, %d2; mov.u64 %d3, s;\n\
         add.s64 %d3, %d3, %d2; and.b32 %r1, %r0, 3; shl.b32 %r1, %r1, 2;\n\
         cp.async.ca.shared.global [%d3], [%d0], 16, %r1; cp.async.commit_group;\n\
         cp.async.wait_group 0; ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%d3];\n\
         st.global.v4.u32 [%d1], {%r2, %r3, %r4, %r5};",
    );
    let input: Vec<u8> = (0..512).map(|i| (i % 251) as u8 + 1).collect();
    let args = [Arg::Input(&input), Arg::Output(512)];
    let outputs = run(&text, "k", LaunchConfig::linear(1, 32), &args).unwrap();
    let expected: Vec<u8> = input
        .iter()
        .enumerate()
        .map(|(i, &byte)| if i % 16 < (i / 16 % 4) * 4 { byte } else { 0 })
        .collect();
    assert_eq!(outputs[0], expected);
}

#[test]
fn vectors_of_all_widths() {
    let rows: Vec<Vec<u64>> = (0..40).map(|i| vec![i * 0x0101_0101]).collect();
    let text = "{ .shared .align 16 .b8 s[2048]; .reg .b32 %v<4>; .reg .b16 %w<4>;
        mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 4; mov.u32 %t1, s; add.u32 %t0, %t0, %t1;
        not.b32 %t2, %x0; st.shared.v4.b32 [%t0], {%x0, %t2, %x0, 7};
        ld.shared.v2.b64 {%a2, %a3}, [%t0]; ld.shared.v4.b16 {%w0, %w1, %w2, %w3}, [%t0+8];
        mov.b64 {%v0, %v1}, %a2; mov.b64 {%v2, %v3}, %a3; add.u32 %v2, %v2, %v1;
        cvt.u32.u16 %v0, %w2; add.u32 %y, %v2, %v0; }";
    // x + !x = -1, plus the 7 of the last word.
    check(text, &[32], 32, &rows, |_| 6);
}

#[test]
fn memory_of_the_host_side() {
    let device: Arc<dyn Device> = Arc::new(Emulator::default());
    let buffer = Buffer::new(device.clone(), 100).unwrap();
    let mut bytes = vec![0; 100];
    let unwritten = device.copy_to_host(&mut bytes, buffer.address(), Stream::DEFAULT);
    assert!(matches!(unwritten, Err(Error::Memory { .. })), "{unwritten:?}");
    device.fill(buffer.address(), 3, 50, Stream::DEFAULT).unwrap();
    device.copy_to_device(buffer.address() + 50, &[4; 50], Stream::DEFAULT).unwrap();
    device
        .copy_on_device(buffer.address() + 10, buffer.address() + 60, 5, Stream::DEFAULT)
        .unwrap();
    device.copy_to_host(&mut bytes, buffer.address(), Stream::DEFAULT).unwrap();
    let expected: Vec<u8> =
        (0..100).map(|i| if i >= 50 || (10..15).contains(&i) { 4 } else { 3 }).collect();
    assert_eq!(bytes, expected);

    device.discard(buffer.address() + 20, 7).unwrap();
    let error = device.copy_to_host(&mut bytes, buffer.address(), Stream::DEFAULT).unwrap_err();
    assert!(error.to_string().contains("byte 20 of it has not been written"), "{error}");
    device.copy_to_host(&mut bytes[..73], buffer.address() + 27, Stream::DEFAULT).unwrap();

    let past = device.copy_to_host(&mut bytes, buffer.address() + 1, Stream::DEFAULT).unwrap_err();
    assert!(past.to_string().contains("has 100 bytes"), "{past}");
    let address = buffer.address();
    drop(buffer);
    assert!(device.copy_to_host(&mut bytes, address, Stream::DEFAULT).is_err());
    assert!(device.free(address).is_err());
    let (one, two) = (device.alloc(0).unwrap(), device.alloc(0).unwrap());
    assert!(one != two && one % 256 == 0);
}

#[test]
fn special_registers() {
    let rows: Vec<Vec<u64>> = (0..300).map(|i| vec![i]).collect();
    let lane = each("mov.u32 %y, %laneid;", &[32], 32, &rows);
    assert!(lane.iter().enumerate().all(|(i, &lane)| lane == i as u64 % 32));
    // On a GPU, warps may be numbered otherwise.
    let emulated = |ptx: &str, kernel: &str, config: LaunchConfig, args: &[Arg<'_>]| {
        emulate(EmulatorOptions::default(), ptx, kernel, config, args)
    };
    let warp = each_by(emulated, "mov.u32 %y, %warpid;", &[32], 32, &rows);
    assert!(warp.iter().enumerate().all(|(i, &warp)| warp == i as u64 % 128 / 32));
    let mask = each("mov.u32 %y, %lanemask_lt;", &[32], 32, &rows);
    assert!(mask.iter().enumerate().all(|(i, &mask)| mask == (1 << (i % 32)) - 1));
    let grid = each("mov.u32 %y, %nctaid.x;", &[32], 32, &rows);
    assert!(grid.iter().all(|&grid| grid == 3));
}

#[test]
fn copies_keep_what_is_not_written() {
    let device = Emulator::default();
    let (from, to) = (device.alloc(32).unwrap(), device.alloc(32).unwrap());
    device.copy_to_device(from, &[1; 13], Stream::DEFAULT).unwrap();
    device.fill(to, 2, 32, Stream::DEFAULT).unwrap();
    device.copy_on_device(to, from, 16, Stream::DEFAULT).unwrap();
    let mut bytes = [0; 32];
    let error = device.copy_to_host(&mut bytes, to, Stream::DEFAULT).unwrap_err();
    assert!(error.to_string().contains("byte 13 of it"), "{error}");
    device.copy_to_host(&mut bytes[..16], to + 16, Stream::DEFAULT).unwrap();
    assert_eq!(bytes[..16], [2; 16]);
}
