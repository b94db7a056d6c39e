//! Conversions and moves.

use crate::elementwise::{check, tuples};

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[test]
fn float_to_integer() {
    let values = [
        0.0f32,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.9,
        -0.9,
        3.0e9,
        -3.0e9,
        5.0e18,
        1.0e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0e-40,
        300.0,
        -200.0,
    ];
    let rows: Vec<Vec<u64>> = values.iter().map(|v| vec![v.to_bits().into()]).collect();
    // Rust's casts clamp and send NaN to zero, as PTX does for these types.
    check("cvt.rzi.s32.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]) as i32 as u64);
    check("cvt.rzi.u32.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]) as u32 as u64);
    check("cvt.rni.s32.f32 %y, %x0;", &[32], 32, &rows, |r| {
        f(r[0]).round_ties_even() as i32 as u64
    });
    check("cvt.rmi.s32.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]).floor() as i32 as u64);
    check("cvt.rpi.s32.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]).ceil() as i32 as u64);
    check("cvt.rzi.s8.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]) as i8 as u64);
    check("cvt.rzi.u8.f32 %y, %x0;", &[32], 32, &rows, |r| f(r[0]) as u8 as u64);
    check("cvt.rzi.s64.f32 %y, %x0;", &[32], 64, &rows, |r| {
        if f(r[0]).is_nan() { 1 << 63 } else { f(r[0]) as i64 as u64 }
    });
    check("cvt.rni.f32.f32 %y, %x0;", &[32], 32, &rows, |r| {
        let rounded = f(r[0]).round_ties_even();
        if rounded.is_nan() { 0x7fff_ffff } else { rounded.to_bits().into() }
    });
    check("cvt.rpi.f32.f32 %y, %x0;", &[32], 32, &rows, |r| {
        let rounded = f(r[0]).ceil();
        if rounded.is_nan() { 0x7fff_ffff } else { rounded.to_bits().into() }
    });
    check("cvt.sat.f32.f32 %y, %x0;", &[32], 32, &rows, |r| {
        let x = f(r[0]);
        (if x > 0.0 { x.min(1.0) } else { 0.0 }).to_bits().into()
    });
    let rows: Vec<Vec<u64>> = values.iter().map(|v| vec![f64::from(*v).to_bits()]).collect();
    check("cvt.rzi.s32.f64 %y, %x0;", &[64], 32, &rows, |r| {
        let x = f64::from_bits(r[0]);
        if x.is_nan() { 1 << 31 } else { x as i32 as u64 }
    });
    check("cvt.rzi.u64.f64 %y, %x0;", &[64], 64, &rows, |r| {
        let x = f64::from_bits(r[0]);
        if x.is_nan() { 1 << 63 } else { x as u64 }
    });
}

#[test]
fn integer_to_float() {
    let values = [
        0u64,
        1,
        0xffff_ffff,
        0x8000_0000,
        0x7fff_ffff,
        0x0100_0001,
        0x0100_0003,
        0x7fff_ff80,
        0x7fff_ffc0,
        0x1_0000_0080,
        0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0001,
        0x0020_0000_0000_0001,
        0xffff_ffff_ffff_fc00,
        u64::MAX,
        0x4000_0040_0000_0001,
        0x4000_0040_0000_0000,
    ];
    let rows = tuples(&values, 1);
    check("cvt.rn.f32.s32 %y, %x0;", &[32], 32, &rows, |r| (r[0] as i32 as f32).to_bits().into());
    check("cvt.rn.f32.u32 %y, %x0;", &[32], 32, &rows, |r| (r[0] as u32 as f32).to_bits().into());
    check("cvt.rn.f32.u64 %y, %x0;", &[64], 32, &rows, |r| (r[0] as f32).to_bits().into());
    check("cvt.rn.f32.s64 %y, %x0;", &[64], 32, &rows, |r| (r[0] as i64 as f32).to_bits().into());
    check("cvt.rn.f64.s64 %y, %x0;", &[64], 64, &rows, |r| (r[0] as i64 as f64).to_bits());
    check("cvt.rn.f64.u32 %y, %x0;", &[32], 64, &rows, |r| f64::from(r[0] as u32).to_bits());
    let exact = |value: f32| value as i128;
    check("cvt.rz.f32.u64 %y, %x0;", &[64], 32, &rows, |r| {
        let nearest = r[0] as f32;
        let down = exact(nearest) > i128::from(r[0]);
        (if down { nearest.next_down() } else { nearest }).to_bits().into()
    });
    check("cvt.rp.f32.s64 %y, %x0;", &[64], 32, &rows, |r| {
        let nearest = r[0] as i64 as f32;
        let up = exact(nearest) < i128::from(r[0] as i64);
        (if up { nearest.next_up() } else { nearest }).to_bits().into()
    });
    check("cvt.rn.f16.s32 %y, %x0;", &[32], 16, &[vec![2049], vec![70_000]], |r| {
        if r[0] == 2049 { 0x6800 } else { 0x7c00 }
    });
    check("cvt.rz.f16.u32 %y, %x0;", &[32], 16, &[vec![70_000]], |_| 0x7bff);
}

#[test]
fn between_integers() {
    let values = [0u64, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff_ff80, 0x1_0000_0001, u64::MAX];
    let rows = tuples(&values, 1);
    check("cvt.s32.s8 %y, %x0;", &[32], 32, &rows, |r| r[0] as i8 as u64);
    check("cvt.u32.u8 %y, %x0;", &[32], 32, &rows, |r| u64::from(r[0] as u8));
    check("cvt.s64.s32 %y, %x0;", &[32], 64, &rows, |r| r[0] as i32 as u64);
    check("cvt.u64.u32 %y, %x0;", &[32], 64, &rows, |r| u64::from(r[0] as u32));
    check("cvt.u32.u64 %y, %x0;", &[64], 32, &rows, |r| r[0]);
    check("cvt.u16.u32 %y, %x0;", &[32], 16, &rows, |r| r[0]);
    check("cvt.s16.s8 %y, %x0;", &[16], 16, &rows, |r| r[0] as i8 as u64);
    check("cvt.s8.s32 %y, %x0;", &[32], 32, &rows, |r| r[0] as i8 as u64);
    check("cvt.sat.s8.s32 %y, %x0;", &[32], 32, &rows, |r| (r[0] as i32).clamp(-128, 127) as u64);
    check("cvt.sat.u8.s32 %y, %x0;", &[32], 32, &rows, |r| (r[0] as i32).clamp(0, 255) as u64);
    check("cvt.sat.u32.s64 %y, %x0;", &[64], 32, &rows, |r| {
        (r[0] as i64).clamp(0, i64::from(u32::MAX)) as u64
    });
}

#[test]
fn between_floats() {
    let values = [0.1f64, 1.0 + 1.0e-9, 1.0e300, -1.0e300, 1.0e-50, f64::INFINITY];
    let rows: Vec<Vec<u64>> = values.iter().map(|v| vec![v.to_bits()]).collect();
    let g = f64::from_bits;
    check("cvt.rn.f32.f64 %y, %x0;", &[64], 32, &rows, |r| (g(r[0]) as f32).to_bits().into());
    check("cvt.rz.f32.f64 %y, %x0;", &[64], 32, &rows, |r| {
        let nearest = g(r[0]) as f32;
        let too_large = f64::from(nearest).abs() > g(r[0]).abs();
        let bits = nearest.to_bits();
        (if too_large { bits - 1 } else { bits }).into()
    });
    check("cvt.f64.f32 %y, %x0;", &[32], 64, &[vec![0x3dcc_cccd]], |_| {
        f64::from(f32::from_bits(0x3dcc_cccd)).to_bits()
    });
    // TF32 keeps ten bits after the point; `rna` rounds ties away from zero.
    let rows = vec![vec![0x3f80_1000], vec![0x3f80_0fff], vec![0xbf80_1000], vec![0x3f80_3000]];
    check("cvt.rna.tf32.f32 %y, %x0;", &[32], 32, &rows, |r| match r[0] {
        0x3f80_1000 => 0x3f80_2000,
        0x3f80_0fff => 0x3f80_0000,
        0x3f80_3000 => 0x3f80_4000,
        _ => 0xbf80_2000,
    });
}

#[test]
fn packing_and_unpacking() {
    let rows = vec![vec![0x0123_4567_89ab_cdef]];
    let text =
        "{ .reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %x0; mov.b64 %y, {%h3, %h2, %h1, %h0}; }";
    check(text, &[64], 64, &rows, |_| 0xcdef_89ab_4567_0123);
    let text = "{ .reg .b32 %l; mov.b64 {_, %l}, %x0; cvt.u64.u32 %y, %l; }";
    check(text, &[64], 64, &rows, |_| 0x0123_4567);
    check("mov.f32 %y, 0f3F800000;", &[32], 32, &[vec![0]], |_| 0x3f80_0000);
    check("mov.f32 %y, 0.5;", &[32], 32, &[vec![0]], |_| 0x3f00_0000);
    check("mov.b32 %y, -1;", &[32], 32, &[vec![0]], |_| 0xffff_ffff);
    check("mov.b16 %y, 0x3C00;", &[32], 16, &[vec![0]], |_| 0x3c00);
}
