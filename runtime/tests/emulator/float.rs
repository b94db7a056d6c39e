//! Single and double precision against the host's arithmetic and against neighbouring numbers.

use crate::elementwise::{check, each, each_by, random, tuples};
use crate::harness::{Arg, emulate, gpu, run_on};
use fornax_runtime::EmulatorOptions;
use fornax_runtime::device::LaunchConfig;
use fornax_runtime::emulator::Approximation;

const NAN: u64 = 0x7fff_ffff;

fn specials() -> Vec<u64> {
    let values = [
        0.0f32,
        1.0,
        1.5,
        0.1,
        3.0e38,
        f32::MAX,
        f32::MIN_POSITIVE,
        1.0e-40,
        f32::from_bits(1),
        f32::INFINITY,
        16_777_216.0,
        0.333_333_34,
    ];
    let mut bits: Vec<u64> =
        values.iter().flat_map(|v| [v.to_bits().into(), (-v).to_bits().into()]).collect();
    bits.extend([0x7fc0_0000, 0xff80_0001, 0x7fff_ffff]);
    bits
}

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits(value: f32) -> u64 {
    if value.is_nan() { NAN } else { value.to_bits().into() }
}

fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

#[test]
fn arithmetic_rounds_to_nearest() {
    let rows = tuples(&specials(), 2);
    let cases: &[(&str, fn(f32, f32) -> f32)] = &[
        ("add.rn.f32", |a, b| a + b),
        ("add.f32", |a, b| a + b),
        ("sub.rn.f32", |a, b| a - b),
        ("mul.rn.f32", |a, b| a * b),
        ("div.rn.f32", |a, b| a / b),
        ("add.ftz.f32", |a, b| flush(flush(a) + flush(b))),
        ("mul.ftz.f32", |a, b| flush(flush(a) * flush(b))),
        ("add.sat.f32", |a, b| if a + b > 0.0 { (a + b).min(1.0) } else { 0.0 }),
    ];
    for (opcode, expected) in cases {
        check(&format!("{opcode} %y, %x0, %x1;"), &[32, 32], 32, &rows, |r| {
            bits(expected(f(r[0]), f(r[1])))
        });
    }
    let rows = tuples(&specials(), 3);
    check("fma.rn.f32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        bits(f(r[0]).mul_add(f(r[1]), f(r[2])))
    });
    check("fma.rn.ftz.f32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        let [a, b, c] = [0, 1, 2].map(|i| flush(f(r[i])));
        bits(flush(a.mul_add(b, c)))
    });
    let rows = tuples(&specials(), 1);
    check("sqrt.rn.f32 %y, %x0;", &[32], 32, &rows, |r| bits(f(r[0]).sqrt()));
    check("rcp.rn.f32 %y, %x0;", &[32], 32, &rows, |r| bits(1.0 / f(r[0])));
    check("neg.f32 %y, %x0;", &[32], 32, &rows, |r| bits(-f(r[0])));
    check("abs.ftz.f32 %y, %x0;", &[32], 32, &rows, |r| bits(flush(f(r[0]).abs())));
}

/// Whether `found` is `exact` rounded in a direction: the neighbour on the wrong side is beyond it.
fn is_rounded(found: f32, exact: f64, direction: &str) -> bool {
    let value = f64::from(found);
    match direction {
        "rm" => value <= exact && f64::from(found.next_up()) > exact,
        "rp" => value >= exact && f64::from(found.next_down()) < exact,
        "rz" if exact >= 0.0 => is_rounded(found, exact, "rm"),
        "rz" => is_rounded(found, exact, "rp"),
        _ => false,
    }
}

#[test]
fn directed_roundings() {
    let mut next = random(1);
    // Exponents close enough that sums, products and products plus a term are exact as doubles.
    let mut value = || f64::from(f(next() & 0x807f_ffff | (124 + next() % 6) << 23));
    let short = |v: f64| f64::from(f(u64::from((v as f32).to_bits()) & 0xffff_f000));
    let triples: Vec<[f64; 3]> =
        (0..500).map(|_| [short(value()), short(value()), value()]).collect();
    let to_bits = |v: f64| u64::from((v as f32).to_bits());
    let rows: Vec<Vec<u64>> =
        triples.iter().map(|t| t.iter().map(|&v| to_bits(v)).collect()).collect();
    for direction in ["rz", "rm", "rp"] {
        let cases: &[(&str, fn(&[f64; 3]) -> f64)] = &[
            ("add.DIR.f32 %y, %x0, %x2;", |t| t[0] + t[2]),
            ("sub.DIR.f32 %y, %x0, %x2;", |t| t[0] - t[2]),
            ("mul.DIR.f32 %y, %x0, %x2;", |t| t[0] * t[2]),
            ("fma.DIR.f32 %y, %x0, %x1, %x2;", |t| t[0] * t[1] + t[2]),
        ];
        for (text, exact) in cases {
            let text = text.replace("DIR", direction);
            for (t, found) in triples.iter().zip(each(&text, &[32; 3], 32, &rows)) {
                let (found, exact) = (f(found), exact(t));
                assert!(
                    is_rounded(found, exact, direction),
                    "{text} {t:?}: {found:e} for {exact:e}"
                );
            }
        }
        // The double-precision quotient and root are inexact, but far closer than a single's ulp.
        let text = format!("div.{direction}.f32 %y, %x0, %x2;");
        for (t, found) in triples.iter().zip(each(&text, &[32; 3], 32, &rows)) {
            assert!(is_rounded(f(found), t[0] / t[2], direction), "{text} {t:?}");
        }
        let text = format!("abs.f32 %x2, %x2; sqrt.{direction}.f32 %y, %x2;");
        for (t, found) in triples.iter().zip(each(&text, &[32; 3], 32, &rows)) {
            assert!(is_rounded(f(found), t[2].abs().sqrt(), direction), "{text} {t:?}");
        }
    }
    // Overflow and cancellation.
    let max = u64::from(f32::MAX.to_bits());
    let one = u64::from(1.0f32.to_bits());
    let rows = vec![vec![max, max], vec![one, one | 1 << 31]];
    let found = |text: &str| each(text, &[32, 32], 32, &rows);
    assert_eq!(found("add.rz.f32 %y, %x0, %x1;"), vec![max, 0]);
    assert_eq!(found("add.rm.f32 %y, %x0, %x1;"), vec![max, 1 << 31]);
    assert_eq!(found("add.rp.f32 %y, %x0, %x1;"), vec![0x7f80_0000, 0]);
}

#[test]
fn minimum_and_maximum() {
    let rows = tuples(&specials(), 2);
    // The order of the PTX ISA: -0.0 is less than +0.0.
    let less = |a: f32, b: f32| a < b || (a == b && a.is_sign_negative());
    let plain = |a: f32, b: f32, max: bool| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => {
            if less(a, b) != max {
                a
            } else {
                b
            }
        }
    };
    let strict =
        |a: f32, b: f32, max| if a.is_nan() || b.is_nan() { f32::NAN } else { plain(a, b, max) };
    check("min.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| bits(plain(f(r[0]), f(r[1]), false)));
    check("max.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| bits(plain(f(r[0]), f(r[1]), true)));
    check("min.NaN.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        bits(strict(f(r[0]), f(r[1]), false))
    });
    check("max.NaN.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        bits(strict(f(r[0]), f(r[1]), true))
    });
    check("max.xorsign.abs.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        let (a, b) = (f(r[0]), f(r[1]));
        let sign = (r[0] ^ r[1]) & 1 << 31;
        let value = plain(a.abs(), b.abs(), true);
        if value.is_nan() { NAN } else { bits(value) | sign }
    });
}

#[test]
fn signs_and_classes() {
    let rows = tuples(&specials(), 2);
    check("copysign.f32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        r[0] & 1 << 31 | r[1] & 0x7fff_ffff
    });
    let rows = tuples(&specials(), 1);
    let classes: &[(&str, fn(f32) -> bool)] = &[
        ("finite", |x| x.is_finite()),
        ("infinite", |x| x.is_infinite()),
        ("number", |x| !x.is_nan()),
        ("notanumber", |x| x.is_nan()),
        ("normal", |x| x.is_normal() || x == 0.0),
        ("subnormal", |x| x.is_subnormal()),
    ];
    for (class, holds) in classes {
        check(&format!("testp.{class}.f32 %y, %x0;"), &[32], 1, &rows, |r| holds(f(r[0])).into());
    }
}

#[test]
fn comparisons_with_nan() {
    let rows = tuples(&specials(), 2);
    let cases: &[(&str, fn(f32, f32) -> bool)] = &[
        ("eq", |a, b| a == b),
        ("ne", |a, b| a < b || a > b),
        ("lt", |a, b| a < b),
        ("ge", |a, b| a >= b),
        ("equ", |a, b| !(a < b || a > b)),
        ("neu", |a, b| a != b),
        ("ltu", |a, b| !(a >= b)),
        ("leu", |a, b| !(a > b)),
        ("gtu", |a, b| !(a <= b)),
        ("geu", |a, b| !(a < b)),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
        ("nan", |a, b| a.is_nan() || b.is_nan()),
    ];
    for (compare, holds) in cases {
        check(&format!("setp.{compare}.f32 %y, %x0, %x1;"), &[32, 32], 1, &rows, |r| {
            holds(f(r[0]), f(r[1])).into()
        });
    }
    check("setp.lt.ftz.f32 %y, %x0, %x1;", &[32, 32], 1, &rows, |r| {
        (flush(f(r[0])) < flush(f(r[1]))).into()
    });
}

#[test]
fn double_precision() {
    let values = [0.0, 1.0, -1.5, 0.1, 1.0e308, f64::MIN_POSITIVE / 8.0, f64::INFINITY, 3.0];
    let mut bits: Vec<u64> = values.iter().map(|v: &f64| v.to_bits()).collect();
    bits.push(f64::NAN.to_bits());
    let g = f64::from_bits;
    // An operand's NaN goes through, made quiet; a new one is negative.
    bits.push(0x7ff4_0000_0000_0123);
    let expect = |v: f64, row: &[u64]| match row.iter().find(|&&bits| g(bits).is_nan()) {
        Some(nan) => nan | 1 << 51,
        None if v.is_nan() => NAN64,
        None => v.to_bits(),
    };
    // Which of several NaN comes out is not laid down.
    let few = |n| {
        let one = |row: &Vec<u64>| row.iter().filter(|&&bits| g(bits).is_nan()).count() < 2;
        tuples(&bits, n).into_iter().filter(one).collect::<Vec<_>>()
    };
    let rows = few(2);
    let cases: &[(&str, fn(f64, f64) -> f64)] = &[
        ("add.rn.f64", |a, b| a + b),
        ("sub.rn.f64", |a, b| a - b),
        ("mul.rn.f64", |a, b| a * b),
        ("div.rn.f64", |a, b| a / b),
    ];
    for (opcode, expected) in cases {
        check(&format!("{opcode} %y, %x0, %x1;"), &[64, 64], 64, &rows, |r| {
            expect(expected(g(r[0]), g(r[1])), r)
        });
    }
    check("setp.lt.f64 %y, %x0, %x1;", &[64, 64], 1, &rows, |r| (g(r[0]) < g(r[1])).into());
    let rows = few(3);
    check("fma.rn.f64 %y, %x0, %x1, %x2;", &[64; 3], 64, &rows, |r| {
        expect(g(r[0]).mul_add(g(r[1]), g(r[2])), r)
    });
    let rows = few(1);
    check("sqrt.rn.f64 %y, %x0;", &[64], 64, &rows, |r| expect(g(r[0]).sqrt(), r));
    check("rcp.rn.f64 %y, %x0;", &[64], 64, &rows, |r| expect(1.0 / g(r[0]), r));
}

/// The NaN of double-precision arithmetic, `CUDART_NAN` in CUDA's headers.
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// Approximate instructions with their exact functions and the bounds of the PTX ISA:
/// relative error, absolute error.
type Approximate = (&'static str, fn(f64) -> f64, f64, f64);

const APPROXIMATE: &[Approximate] = &[
    ("rcp", |x| 1.0 / x, 1.0, 0.0),
    ("sqrt", f64::sqrt, 1.0, 0.0),
    ("rsqrt", |x| 1.0 / x.sqrt(), 1.2, 0.0),
    ("ex2", f64::exp2, 2.0, 0.0),
    ("lg2", f64::log2, 2.0, 2.0),
    ("sin", f64::sin, 0.0, 6.0),
    ("cos", f64::cos, 0.0, 6.0),
    ("tanh", f64::tanh, 4096.0, 0.0),
];

/// An instruction without a GPU beside it, for those that a GPU need not round as the emulator does.
fn emulated(options: &EmulatorOptions, text: &str, widths: &[u32], rows: &[Vec<u64>]) -> Vec<u64> {
    let run = |ptx: &str, kernel: &str, config: LaunchConfig, args: &[Arg<'_>]| {
        emulate(options.clone(), ptx, kernel, config, args)
    };
    each_by(run, text, widths, 32, rows)
}

#[test]
fn approximations_keep_their_bounds() {
    let mut next = random(7);
    let rows: Vec<Vec<u64>> =
        (0..1000).map(|_| vec![bits((next() % 6_000_000) as f32 * 1.0e-6 + 1.0e-3)]).collect();
    let perturbed = EmulatorOptions {
        approximation: Approximation::Perturbed { seed: 3 },
        ..EmulatorOptions::default()
    };
    for (name, exact, relative, absolute) in APPROXIMATE {
        let text = format!("{name}.approx.f32 %y, %x0;");
        let check = |results: &[u64]| {
            for (row, &found) in rows.iter().zip(results) {
                let exact = exact(f64::from(f(row[0])));
                let error = (f64::from(f(found)) - exact).abs();
                let bound = (exact.abs() * relative + absolute) * 2.0f64.powi(-23);
                assert!(error <= bound, "{text} of {}: {error:e} > {bound:e}", f(row[0]));
            }
        };
        let plain = emulated(&EmulatorOptions::default(), &text, &[32], &rows);
        for (row, &found) in rows.iter().zip(&plain) {
            assert_eq!(f(found), exact(f64::from(f(row[0]))) as f32, "{text} of {}", f(row[0]));
        }
        let moved = emulated(&perturbed, &text, &[32], &rows);
        check(&moved);
        let n_moved = plain.iter().zip(&moved).filter(|(plain, moved)| plain != moved).count();
        assert!(n_moved > 200, "{text}: only {n_moved} results moved");
        if let Some(gpu) = gpu() {
            let run = |ptx: &str, kernel: &str, config: LaunchConfig, args: &[Arg<'_>]| {
                run_on(gpu.clone(), ptx, kernel, config, args)
            };
            check(&each_by(run, &text, &[32], 32, &rows));
        }
    }
}

#[test]
fn approximate_special_values() {
    let special = |text: &str, x: f32| {
        f(each(&format!("{text} %y, %x0;"), &[32], 32, &[vec![x.to_bits().into()]])[0])
    };
    assert_eq!(special("rcp.approx.f32", -0.0), f32::NEG_INFINITY);
    assert_eq!(special("rsqrt.approx.f32", 0.0), f32::INFINITY);
    assert!(special("rsqrt.approx.f32", -1.0).is_nan());
    assert_eq!(special("ex2.approx.f32", f32::NEG_INFINITY), 0.0);
    assert_eq!(special("ex2.approx.f32", -140.0), f32::from_bits(1 << 9));
    assert_eq!(special("ex2.approx.ftz.f32", -140.0), 0.0);
    assert_eq!(special("lg2.approx.f32", 0.0), f32::NEG_INFINITY);
    assert!(special("lg2.approx.f32", -1.0).is_nan());
    assert!(special("sin.approx.f32", f32::INFINITY).is_nan());
    assert_eq!(special("tanh.approx.f32", f32::INFINITY), 1.0);
    let divide = |text: &str, a: f32, b: f32| {
        let row = vec![a.to_bits().into(), b.to_bits().into()];
        f(each(&format!("{text} %y, %x0, %x1;"), &[32, 32], 32, &[row])[0])
    };
    assert_eq!(divide("div.approx.f32", 1.0, 2.0f32.powi(127)), 0.0);
    assert_eq!(divide("div.full.f32", 1.0, 2.0f32.powi(127)), 2.0f32.powi(-127));
    assert_eq!(divide("div.approx.f32", 6.0, 3.0), 2.0);
}
