//! Half precision against a search for the nearest representable number.

use crate::elementwise::{check, random, tuples};
use half::{bf16, f16};

/// A half-precision format: its name in PTX, the value of bits, and all finite values in order.
struct Format {
    name: &'static str,
    value: fn(u16) -> f64,
    sorted: Vec<u16>,
}

impl Format {
    fn new(name: &'static str, value: fn(u16) -> f64) -> Format {
        let mut sorted: Vec<u16> =
            (0..=u16::MAX).filter(|&bits| value(bits).is_finite() && bits != 0x8000).collect();
        sorted.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
        Format { name, value, sorted }
    }

    fn f16() -> Format {
        Format::new("f16", |bits| f16::from_bits(bits).to_f64())
    }

    fn bf16() -> Format {
        Format::new("bf16", |bits| bf16::from_bits(bits).to_f64())
    }

    /// The bits nearest to a value, ties to the even one; values past the largest are left out.
    fn nearest(&self, exact: f64) -> Option<u16> {
        let above = self.sorted.partition_point(|&bits| (self.value)(bits) < exact);
        let (low, high) = (*self.sorted.get(above.checked_sub(1)?)?, *self.sorted.get(above)?);
        let (to_low, to_high) = (exact - (self.value)(low), (self.value)(high) - exact);
        Some(if to_low < to_high || (to_low == to_high && low & 1 == 0) { low } else { high })
    }

    fn operands(&self, seed: u64) -> Vec<Vec<u64>> {
        let mut next = random(seed);
        let mut operand = || {
            // Half of them near each other, where cancellation and ties happen.
            let bits = next() as u16;
            let middle = if self.name == "f16" { 0x3c00 } else { 0x3f80 };
            u64::from(if next().is_multiple_of(2) { middle + bits % 64 } else { bits })
        };
        (0..3000)
            .map(|_| vec![operand(), operand(), operand()])
            .filter(|row| row.iter().all(|&bits| (self.value)(bits as u16).is_finite()))
            .collect()
    }
}

/// Checks against the exact result where it is exact as a double and in range.
fn check_format(format: &Format) {
    let v = |bits: u64| (format.value)(bits as u16);
    let rows = format.operands(11);
    type Case = (&'static str, fn(f64, f64, f64) -> f64, fn(f64, f64, f64) -> f64);
    // The second function is the rounding error of the first.
    let cases: &[Case] = &[
        ("add.rn.F %y, %x0, %x1;", |a, b, _| a + b, |a, b, _| two_sum_error(a, b)),
        ("sub.rn.F %y, %x0, %x1;", |a, b, _| a - b, |a, b, _| two_sum_error(a, -b)),
        ("mul.rn.F %y, %x0, %x1;", |a, b, _| a * b, |_, _, _| 0.0),
        ("fma.rn.F %y, %x0, %x1, %x2;", |a, b, c| a * b + c, |a, b, c| two_sum_error(a * b, c)),
    ];
    for (text, exact, error) in cases {
        let text = text.replace('F', format.name);
        let rows: Vec<Vec<u64>> = rows
            .iter()
            .filter(|r| error(v(r[0]), v(r[1]), v(r[2])) == 0.0)
            .filter(|r| {
                let exact = exact(v(r[0]), v(r[1]), v(r[2]));
                exact != 0.0 && format.nearest(exact).is_some()
            })
            .cloned()
            .collect();
        assert!(rows.len() > 1000, "{text}: {} rows", rows.len());
        check(&text, &[16; 3], 16, &rows, |r| {
            let exact = exact(v(r[0]), v(r[1]), v(r[2]));
            let nearest = format.nearest(exact).unwrap();
            // The search has one zero only.
            u64::from(if nearest == 0 && exact < 0.0 { 0x8000 } else { nearest })
        });
    }
}

fn two_sum_error(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    (a - (sum - part)) + (b - part)
}

#[test]
fn f16_arithmetic() {
    check_format(&Format::f16());
}

#[test]
fn bf16_arithmetic() {
    check_format(&Format::bf16());
}

#[test]
fn fused_bf16_rounds_once() {
    // 1 + 2^-8 is a tie between 1 and 1 + 2^-7; a tiny third term decides it.
    let one = 0x3f80;
    let tiny_up = u64::from(bf16::from_f64(2.0f64.powi(-100)).to_bits());
    let eighth = u64::from(bf16::from_f64(2.0f64.powi(-8)).to_bits());
    let rows = vec![vec![one, eighth, one], vec![tiny_up, one, one]];
    check("fma.rn.bf16 %y, %x0, %x1, %x2;", &[16; 3], 16, &rows, |_| one);
    // (1 + 2^-7) * (1 + 2^-7) = 1 + 2^-6 + 2^-14: below the tie at 1 + 2^-6 + 2^-8 even with the
    // largest term that keeps it there, above with one more.
    let a = 0x3f81;
    let term = |v: f64| u64::from(bf16::from_f64(v).to_bits());
    let rows = vec![
        vec![a, a, term(2.0f64.powi(-8) - 2.0f64.powi(-14))],
        vec![a, a, term(2.0f64.powi(-8))],
    ];
    check("fma.rn.bf16 %y, %x0, %x1, %x2;", &[16; 3], 16, &rows, |r| {
        if r[2] == rows[0][2] { 0x3f82 } else { 0x3f83 }
    });
}

#[test]
fn packed_halves() {
    let rows = vec![vec![0x3c00_4000, 0x4200_3c00], vec![0x7e00_3c00, 0x3c00_bc00]];
    check("add.f16x2 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        if r[0] == 0x3c00_4000 { 0x4400_4200 } else { 0x7fff_0000 }
    });
    check("max.f16x2 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        if r[0] == 0x3c00_4000 { 0x4200_4000 } else { 0x3c00_3c00 }
    });
    check("max.NaN.f16x2 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        if r[0] == 0x3c00_4000 { 0x4200_4000 } else { 0x7fff_3c00 }
    });
    check("neg.bf16x2 %y, %x0;", &[32], 32, &[vec![0x3f80_bf80]], |_| 0xbf80_3f80);
    check(
        "fma.rn.relu.bf16x2 %y, %x0, %x1, %x1;",
        &[32, 32],
        32,
        &[vec![0x3f80_bf80, 0xbf80_4000]],
        |_| 0,
    );
    check("fma.rn.sat.f16 %y, %x0, %x0, %x0;", &[16], 16, &[vec![0x4000], vec![0xbc00]], |r| {
        if r[0] == 0x4000 { 0x3c00 } else { 0 }
    });
}

#[test]
fn conversions_from_and_to_single() {
    let all: Vec<Vec<u64>> = (0..=0xffff).map(|bits| vec![bits]).collect();
    check("cvt.f32.f16 %y, %x0;", &[16], 32, &all, |r| {
        let value = f16::from_bits(r[0] as u16).to_f32();
        if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
    });
    check("cvt.f32.bf16 %y, %x0;", &[16], 32, &all, |r| r[0] << 16);
    let mut next = random(5);
    for format in [Format::f16(), Format::bf16()] {
        let middle = if format.name == "f16" { 103 } else { 1 };
        let span = if format.name == "f16" { 38 } else { 250 };
        let rows: Vec<Vec<u64>> = (0..4000)
            .map(|i| {
                let tail = if i % 4 == 0 { 0x1000 } else { next() & 0x1fff };
                let word = next();
                vec![(word & 0x807f_e000) | tail | (middle + word / 977 % span) << 23]
            })
            .collect();
        let value = |bits: u64| f64::from(f32::from_bits(bits as u32));
        let in_range: Vec<Vec<u64>> =
            rows.into_iter().filter(|r| format.nearest(value(r[0])).is_some()).collect();
        assert!(in_range.len() > 3000);
        let text = format!("cvt.rn.{}.f32 %y, %x0;", format.name);
        check(&text, &[32], 16, &in_range, |r| {
            let nearest = format.nearest(value(r[0])).unwrap();
            // The search has one zero only.
            u64::from(if nearest == 0 && r[0] >> 31 == 1 { 0x8000 } else { nearest })
        });
        let text = format!("cvt.rz.{}.f32 %y, %x0;", format.name);
        check(&text, &[32], 16, &in_range, |r| {
            let magnitude = value(r[0]).abs();
            let above = format.sorted.partition_point(|&b| (format.value)(b) <= magnitude);
            u64::from(format.sorted[above - 1]) | (r[0] >> 31) << 15
        });
    }
    let pair = "cvt.rn.bf16x2.f32 %y, %x0, %x1;";
    check(pair, &[32, 32], 32, &[vec![0x3f80_0000, 0x4000_8000]], |_| 0x3f80_4000);
    let pair = "cvt.rn.relu.f16x2.f32 %y, %x0, %x1;";
    check(pair, &[32, 32], 32, &[vec![0xbf80_0000, 0x4000_0000]], |_| 0x0000_4000);
}

#[test]
fn half_comparisons_and_approximations() {
    let values = [0u64, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0x7e00, 1];
    let g = |bits: u64| f16::from_bits(bits as u16).to_f32();
    check("setp.lt.f16 %y, %x0, %x1;", &[16, 16], 1, &tuples(&values, 2), |r| {
        (g(r[0]) < g(r[1])).into()
    });
    check("setp.geu.f16 %y, %x0, %x1;", &[16, 16], 1, &tuples(&values, 2), |r| {
        u64::from(!(g(r[0]) < g(r[1])))
    });
    check("ex2.approx.f16 %y, %x0;", &[16], 16, &[vec![0x4200], vec![0xbc00]], |r| {
        if r[0] == 0x4200 { 0x4800 } else { 0x3800 }
    });
    check("tanh.approx.bf16 %y, %x0;", &[16], 16, &[vec![0x7f80], vec![0]], |r| {
        if r[0] == 0 { 0 } else { 0x3f80 }
    });
}

#[test]
fn pairs_are_compared_half_by_half() {
    let value = |bits: u64| f16::from_bits(bits as u16).to_f64();
    let values = [0x3c00_0000u64, 0x8000_3c00, 0x7e00_c000, 0x7c00_7e00, 0x4000_8000];
    let rows = tuples(&values, 2);
    check("setp.lt.f16x2 %y|_, %x0, %x1;", &[32, 32], 1, &rows, |row| {
        (value(row[0]) < value(row[1])).into()
    });
    let upper = "{ .reg .pred %q; setp.neu.f16x2 %q|%y, %x0, %x1; }";
    check(upper, &[32, 32], 1, &rows, |row| (value(row[0] >> 16) != value(row[1] >> 16)).into());
    let bfloats = "setp.nan.bf16x2 %y|_, %x0, %x1;";
    check(bfloats, &[32, 32], 1, &rows, |row| {
        row.iter().any(|&bits| bf16::from_bits(bits as u16).is_nan()).into()
    });
}
