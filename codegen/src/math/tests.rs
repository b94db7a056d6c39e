//! All functions against `f64` on the host.

use super::host::{Host, Host64};
use super::{double, fmod, single};

/// Bit patterns that a stride may miss: zeros, ends of ranges, infinities, NaN.
const SPECIAL: [u32; 14] = [
    0,
    1,
    0x007f_ffff,
    0x0080_0000,
    0x3f00_0000,
    0x3f7f_ffff,
    0x3f80_0000,
    0x3f80_0001,
    0x4000_0000,
    0x42b1_7218,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    0x4b80_0001,
];

fn specials() -> impl Iterator<Item = f32> {
    SPECIAL.into_iter().flat_map(|bits| [bits, bits | 0x8000_0000]).map(f32::from_bits)
}

/// The distance in units in the last place of `f32` at `exact`; infinite when they differ in kind.
fn ulps(got: f32, exact: f64) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if exact == 0.0 && (got.to_bits() != (exact as f32).to_bits()) {
        return f64::INFINITY;
    }
    if exact.is_infinite() || (exact as f32).is_infinite() && got.is_infinite() {
        return if got == exact as f32 { 0.0 } else { f64::INFINITY };
    }
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    (f64::from(got) - exact).abs() / 2f64.powi(exponent.clamp(-126, 127) - 23)
}

struct Function {
    name: &'static str,
    ours: fn(&Host, f32) -> f32,
    exact: fn(f64) -> f64,
    /// In units in the last place.
    bound: f64,
    /// Not checked below: a factor of the result is subnormal.
    least: f32,
}

/// The series of `erf` with positive terms only, and beyond 3 the continued fraction of `erfc`
/// (Abramowitz and Stegun 7.1.6 and 7.1.14).
fn erf(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let scale = 2.0 / std::f64::consts::PI.sqrt();
    if x.abs() < 3.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return scale * (-x * x).exp() * sum;
    }
    let t = x.abs().min(30.0);
    let fraction = (1..200).rev().fold(t, |rest, k| t + f64::from(k) / 2.0 / rest);
    (1.0 - scale / 2.0 * (-t * t).exp() / fraction).copysign(x)
}

fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 2.0 {
        return 1.0 - erf(x);
    }
    let t = x.min(30.0);
    let fraction = (1..400).rev().fold(t, |rest, k| t + f64::from(k) / 2.0 / rest);
    (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
}

fn functions() -> Vec<Function> {
    macro_rules! list {
        ($($name:ident: $exact:expr),* $(,)?) => {
            vec![$(Function { name: stringify!($name), ours: single::$name, exact: $exact, bound: 2.0, least: f32::NEG_INFINITY }),*]
        };
    }
    let composed = [
        Function {
            name: "gelu",
            ours: single::gelu,
            exact: gelu,
            bound: 5.0,
            least: f32::NEG_INFINITY,
        },
        Function {
            name: "sigmoid",
            ours: single::sigmoid,
            exact: sigmoid,
            bound: 2.5,
            least: f32::NEG_INFINITY,
        },
        Function {
            name: "softplus",
            ours: single::softplus,
            exact: softplus,
            bound: 2.5,
            least: f32::NEG_INFINITY,
        },
        Function { name: "mish", ours: single::mish, exact: mish, bound: 4.0, least: -87.0 },
    ];
    let mut functions = list![
        exp: f64::exp, expm1: f64::exp_m1, log: f64::ln, log1p: f64::ln_1p, sin: f64::sin,
        cos: f64::cos, tan: f64::tan, asin: f64::asin, acos: f64::acos, atan: f64::atan,
        sinh: f64::sinh, cosh: f64::cosh, tanh: f64::tanh, asinh: asinh, acosh: acosh,
        atanh: f64::atanh, erf: erf, erfc: erfc,
    ];
    functions.extend(composed);
    functions
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

fn mish(x: f64) -> f64 {
    x * softplus(x).tanh()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Rust's own loses digits near 0 and overflows.
fn asinh(x: f64) -> f64 {
    let size = x.abs();
    if size == 0.0 || size.is_infinite() {
        x
    } else {
        (size + size * size / (1.0 + size.hypot(1.0))).ln_1p().copysign(x)
    }
}

fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if x < 1.0 { f64::NAN } else { (t + (t * (t + 2.0)).sqrt()).ln_1p() }
}

fn check(patterns: impl Iterator<Item = u32> + Clone) {
    let mut report = String::new();
    let mut failed = false;
    for Function { name, ours, exact, bound, least } in functions() {
        let mut worst = (0.0, 0f32);
        for x in specials().chain(patterns.clone().map(f32::from_bits)) {
            if x < least {
                continue;
            }
            let error = ulps(ours(&Host, x), exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, x);
            }
        }
        let (error, x) = worst;
        let got = ours(&Host, x);
        report += &format!("{name}: {error:.3} ulp at {x:e} ({got:e}, {:e})\n", exact(x.into()));
        failed |= error > bound;
    }
    println!("{report}");
    assert!(!failed, "more than the bound:\n{report}");
}

#[test]
fn functions_are_within_their_bounds_everywhere() {
    check((0..=u32::MAX).step_by(4001));
}

#[test]
#[ignore = "all bit patterns: an hour"]
fn functions_are_within_their_bounds_for_every_number() {
    check(0..=u32::MAX);
}

/// xorshift32 (Marsaglia 2003).
fn pairs(count: usize) -> impl Iterator<Item = (f32, f32)> {
    let mut state = 0x9e37_79b9u32;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count)
        .map(move |k| {
            let (a, b) = (next(), next());
            // Any two numbers mostly overflow: half of the pairs are of moderate size.
            let moderate = |bits: u32| (bits & 0x81ff_ffff) + 0x3f00_0000;
            match k % 4 {
                0 => (a, b),
                1 => (a & 0x7fff_ffff, moderate(b)),
                2 => (moderate(a) & 0x7fff_ffff, moderate(b)),
                // Near 1, where large powers are finite.
                _ => ((a & 0x000f_ffff) + 0x3f78_0000, (b & 0x83ff_ffff) + 0x4300_0000),
            }
        })
        .map(|(a, b)| (f32::from_bits(a), f32::from_bits(b)))
}

fn check_pairs(ours: fn(&Host, f32, f32) -> f32, exact: fn(f64, f64) -> f64, bound: f64) {
    let whole = [-3.0, -2.0, -1.0, 0.5, 1.0, 2.0, 3.0, 7.0, 1e9, 16777217.0];
    let grid: Vec<f32> = specials().chain(whole).collect();
    let grid = grid.iter().flat_map(|&x| grid.iter().map(move |&y| (x, y))).collect::<Vec<_>>();
    let mut worst = (0.0, 0.0, 0.0);
    for (x, y) in grid.into_iter().chain(pairs(1_000_000)) {
        let error = ulps(ours(&Host, x, y), exact(x.into(), y.into()));
        if error > worst.0 {
            worst = (error, x, y);
        }
    }
    let (error, x, y) = worst;
    println!("{error:.3} ulp at {x:e}, {y:e}");
    let got = ours(&Host, x, y);
    assert!(
        error <= bound,
        "{error} ulp at {x:e}, {y:e}: {got:e}, {:e}",
        exact(x.into(), y.into())
    );
}

#[test]
fn powers_are_within_two_ulp() {
    check_pairs(single::pow, f64::powf, 2.0);
}

#[test]
fn remainders_are_exact() {
    check_pairs(fmod, |x, y| x % y, 0.0);
}

/// Numbers of all sizes, mostly moderate ones, and the special ones.
fn wide_numbers() -> impl Iterator<Item = f64> {
    let special = [
        0.0,
        f64::from_bits(1),
        f64::MIN_POSITIVE,
        0.5,
        1.0,
        709.7,
        710.4,
        710.5,
        f64::MAX,
        f64::INFINITY,
    ];
    let special = special.into_iter().chain([f64::NAN]).flat_map(|x| [x, -x]);
    let any = pairs(40_000)
        .map(|(a, b)| f64::from_bits(u64::from(a.to_bits()) << 32 | u64::from(b.to_bits())));
    let moderate = pairs(200_000).map(|(a, b)| {
        let fraction = f64::from(a.to_bits()) / f64::from(u32::MAX) - 0.5;
        fraction * 2f64.powi((b.to_bits() % 24) as i32 - 12)
    });
    special.chain(any).chain(moderate)
}

#[test]
fn wide_functions_are_within_four_ulp() {
    type Wide = (&'static str, fn(&Host64, f64) -> f64, fn(f64) -> f64);
    let functions: [Wide; 7] = [
        ("exp", double::exp, f64::exp),
        ("expm1", double::expm1, f64::exp_m1),
        ("log", double::log, f64::ln),
        ("log1p", double::log1p, f64::ln_1p),
        ("sinh", double::sinh, f64::sinh),
        ("cosh", double::cosh, f64::cosh),
        ("tanh", double::tanh, f64::tanh),
    ];
    for (name, ours, exact) in functions {
        for x in wide_numbers() {
            let (got, exact) = (ours(&Host64, x), exact(x));
            let apart = got.to_bits().abs_diff(exact.to_bits());
            let same = got.is_nan() && exact.is_nan();
            assert!(same || apart <= 4, "{name} {x:e}: {got:e}, not {exact:e}, {apart} ulp");
        }
    }
}

#[test]
fn wide_remainders_are_exact() {
    let numbers: Vec<f64> = wide_numbers().collect();
    for (&x, &y) in numbers.iter().zip(numbers.iter().skip(1).step_by(7)) {
        let (got, exact) = (fmod(&Host64, x, y), x % y);
        let same = got.is_nan() && exact.is_nan() || got.to_bits() == exact.to_bits();
        assert!(same, "{x:e} {y:e}: {got:e}, not {exact:e}");
    }
}
