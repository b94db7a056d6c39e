//! Kernels built by hand, run on the emulator.
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]
#![allow(clippy::type_complexity, reason = "tables of functions")]

use std::sync::Arc;

use fornax_bundle::{DType, DimRange};
use fornax_codegen::kernel::{Kernel, KernelBuilder, Layout, Mode, ValueId};
use fornax_codegen::{Target, emit_ptx};
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};
use fornax_runtime::device::{Buffer, KernelArg, LaunchConfig, ModuleSource, Stream};
use fornax_runtime::{Device, Emulator};

/// Runs a kernel for both shipped targets, checks that they agree, and gives the outputs' bytes.
fn run(
    kernel: &Kernel,
    blocks: u32,
    inputs: &[&[u8]],
    outputs: &[usize],
    numbers: &[i32],
) -> Vec<Vec<u8>> {
    let [portable, tuned] = [Target::Sm80, Target::Sm90a].map(|target| {
        let module = emit_ptx(kernel, target).unwrap();
        let device: Arc<dyn Device> = Arc::new(Emulator::default());
        let buffer = |bytes: &[u8]| Buffer::from_bytes(device.clone(), bytes).unwrap();
        let inputs: Vec<Buffer> = inputs.iter().map(|bytes| buffer(bytes)).collect();
        let outputs: Vec<Buffer> = outputs.iter().map(|&size| buffer(&vec![0xee; size])).collect();
        let mut args: Vec<KernelArg> =
            inputs.iter().chain(&outputs).map(|b| KernelArg::Pointer(b.address())).collect();
        args.extend(numbers.iter().map(|&number| KernelArg::I32(number)));
        let loaded = device.load_module(ModuleSource::ptx(&module.text)).unwrap();
        let entry = device.kernel(&loaded, &module.entry).unwrap();
        let mut config = LaunchConfig::linear(blocks, module.threads);
        config.shared_bytes = module.dynamic_shared_bytes;
        device
            .launch(&entry, &config, &args, Stream::DEFAULT)
            .unwrap_or_else(|error| panic!("{error}\n{}", module.text));
        outputs.iter().map(|b| b.to_bytes(Stream::DEFAULT).unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(portable, tuned, "all targets compute the same");
    tuned
}

fn bytes<T: Copy, const N: usize>(values: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to(value)).collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn i32s(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn linear(threads: u32, vector: u32, groups: u32) -> Layout {
    Layout {
        shape: vec![threads * vector * groups],
        registers: vec![Mode::new(0, vector, 1), Mode::new(0, groups, threads * vector)],
        threads: vec![Mode::new(0, threads, vector)],
    }
}

/// `out = f(inputs)` on `n` elements, all accesses masked.
fn pointwise(
    inputs: &[DType],
    to: DType,
    vector: u32,
    f: impl FnOnce(&mut KernelBuilder, &[ValueId]) -> ValueId,
) -> Kernel {
    let mut b = KernelBuilder::new("pointwise", 64);
    let names = inputs.iter().enumerate().map(|(k, &dtype)| (format!("in{k}"), dtype));
    let arrays: Vec<_> = names.map(|(name, dtype)| b.global(name, dtype, false)).collect();
    let out = b.global("out", to, true);
    let n = b.scalar("n", DType::I32, DimRange { min: 0, max: 1 << 30, divisor: vector.into() });
    let layout = linear(64, vector, 2);
    let block = b.block_index(0);
    let first = b.mul_int(block, layout.shape[0].into());
    let at = b.coordinate(&layout, 0);
    let offset = b.add(first, at);
    let inside = b.lt(offset, n);
    let loaded: Vec<ValueId> = arrays
        .iter()
        .zip(inputs)
        .map(|(&array, &dtype)| {
            b.load(array, offset, Some((inside, Scalar::new(dtype, 1.0))), vector)
        })
        .collect();
    let value = f(&mut b, &loaded);
    b.store(out, offset, value, Some(inside), vector);
    b.finish()
}

fn map(
    inputs: &[(DType, &[u8])],
    to: DType,
    vector: u32,
    f: impl FnOnce(&mut KernelBuilder, &[ValueId]) -> ValueId,
) -> Vec<u8> {
    let dtypes: Vec<DType> = inputs.iter().map(|(dtype, _)| *dtype).collect();
    let data: Vec<&[u8]> = inputs.iter().map(|(_, data)| *data).collect();
    let n = data[0].len() / dtypes[0].size();
    let kernel = pointwise(&dtypes, to, vector, f);
    let blocks = n.div_ceil(128 * vector as usize) as u32;
    run(&kernel, blocks, &data, &[n * to.size()], &[n as i32]).remove(0)
}

/// Bit patterns spread over all numbers, and the special ones.
fn patterns(count: u32) -> Vec<f32> {
    let special =
        [0u32, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7fc0_0000];
    let special = special.into_iter().flat_map(|bits| [bits, bits | 0x8000_0000]);
    let step = u32::MAX / (count - 16);
    let spread = (0..count - 16).map(|k| k * step);
    special.chain(spread).map(f32::from_bits).collect()
}

fn ulps(got: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if nearest.is_nan() || nearest.is_infinite() || got.is_nan() {
        let same = nearest.is_nan() && got.is_nan() || nearest == got;
        return if same { 0.0 } else { f64::INFINITY };
    }
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    (f64::from(got) - exact).abs() / 2f64.powi(exponent.clamp(-126, 127) - 23)
}

#[test]
fn functions_are_within_two_ulp() {
    use UnaryFn::*;
    let functions: [(UnaryFn, fn(f64) -> f64); 26] = [
        (Exp, f64::exp),
        (Expm1, f64::exp_m1),
        (Log, f64::ln),
        (Log1p, f64::ln_1p),
        (Sin, f64::sin),
        (Cos, f64::cos),
        (Tan, f64::tan),
        (Asin, f64::asin),
        (Acos, f64::acos),
        (Atan, f64::atan),
        (Sinh, f64::sinh),
        (Cosh, f64::cosh),
        (Tanh, f64::tanh),
        (Asinh, |x| {
            if x.is_infinite() {
                x
            } else {
                (x.abs() + x * x / (1.0 + x.hypot(1.0))).ln_1p().copysign(x)
            }
        }),
        (Acosh, f64::acosh),
        (Atanh, f64::atanh),
        (Sqrt, f64::sqrt),
        (Rsqrt, |x| 1.0 / x.sqrt()),
        (Reciprocal, |x| 1.0 / x),
        (Floor, f64::floor),
        (Ceil, f64::ceil),
        (Trunc, f64::trunc),
        (RoundEven, f64::round_ties_even),
        (Neg, |x| -x),
        (Abs, f64::abs),
        (Sign, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
    ];
    let x = patterns(2048);
    let data = bytes(&x, f32::to_le_bytes);
    for (function, exact) in functions {
        let got = f32s(&map(&[(DType::F32, &data)], DType::F32, 2, |b, x| b.unary(function, x[0])));
        for (&x, got) in x.iter().zip(got) {
            let exact = exact(x.into());
            assert!(ulps(got, exact) <= 2.0, "{function:?} {x:e}: {got:e}, not {exact:e}");
        }
    }
}

#[test]
fn powers_and_remainders() {
    let functions: [(BinaryFn, fn(f64, f64) -> f64); 6] = [
        (BinaryFn::Pow, f64::powf),
        (BinaryFn::Rem, |x, y| x % y),
        (BinaryFn::Mod, |x, y| {
            let r = x % y;
            if r * y.signum() < 0.0 { f64::from(r as f32 + y as f32) } else { r }
        }),
        (BinaryFn::Max, |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }),
        (BinaryFn::Min, |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) }),
        (BinaryFn::Div, |x, y| x / y),
    ];
    let x = patterns(1024);
    let mut y = x.clone();
    y.rotate_left(37);
    y[100..400].iter_mut().enumerate().for_each(|(k, y)| *y = k as f32 / 16.0 - 8.0);
    let operands = [bytes(&x, f32::to_le_bytes), bytes(&y, f32::to_le_bytes)];
    let operands = [(DType::F32, &operands[0][..]), (DType::F32, &operands[1][..])];
    for (function, exact) in functions {
        let got = map(&operands, DType::F32, 1, |b, x| b.binary(function, x[0], x[1]));
        for ((&x, &y), got) in x.iter().zip(&y).zip(f32s(&got)) {
            let exact = exact(x.into(), y.into());
            assert!(ulps(got, exact) <= 2.0, "{function:?} {x:e} {y:e}: {got:e}, not {exact:e}");
        }
    }
}

#[test]
fn integer_functions_are_total() {
    let numbers =
        [0, 1, -1, 2, -2, 3, -3, 7, 31, 32, 33, 100, -100, i32::MAX, i32::MIN, i32::MIN + 1];
    let pairs: Vec<(i32, i32)> =
        numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).collect();
    let a: Vec<i32> = pairs.iter().map(|p| p.0).collect();
    let b: Vec<i32> = pairs.iter().map(|p| p.1).collect();
    let operands = [bytes(&a, i32::to_le_bytes), bytes(&b, i32::to_le_bytes)];
    let power = |a: i32, b: i32| match (a, b) {
        (1, _) => 1,
        (-1, _) => {
            if b % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        _ => a.wrapping_pow(b as u32),
    };
    let functions: [(BinaryFn, &dyn Fn(i32, i32) -> i32); 7] = [
        (BinaryFn::Div, &|a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        (BinaryFn::Rem, &|a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        (BinaryFn::Mod, &|a, b| {
            if b == 0 {
                0
            } else {
                let r = a.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }
        }),
        (BinaryFn::Pow, &power),
        (BinaryFn::Shl, &|a, b| a.checked_shl(b as u32).unwrap_or(0)),
        (BinaryFn::Shr, &|a, b| a.checked_shr(b as u32).unwrap_or(a >> 31)),
        (BinaryFn::Max, &|a, b| a.max(b)),
    ];
    let operands = [(DType::I32, &operands[0][..]), (DType::I32, &operands[1][..])];
    for (function, expected) in functions {
        let got = map(&operands, DType::I32, 4, |b, x| b.binary(function, x[0], x[1]));
        for (&(a, b), got) in pairs.iter().zip(i32s(&got)) {
            assert_eq!(got, expected(a, b), "{function:?} {a} {b}");
        }
    }
}

#[test]
fn conversions_round_once_and_saturate() {
    let x: Vec<f64> = vec![
        0.0,
        -0.0,
        1.5,
        -2.7,
        1e10,
        -1e10,
        f64::NAN,
        f64::INFINITY,
        300.0,
        -300.0,
        65519.99,
        1e-8,
        7.25,
        -7.25,
        0.1,
        2147483647.5,
    ];
    let data = bytes(&x, f64::to_le_bytes);
    let to = |dtype| map(&[(DType::F64, &data)], dtype, 2, |b, x| b.cast(dtype, x[0]));
    assert_eq!(i32s(&to(DType::I32)), x.iter().map(|&x| x as i32).collect::<Vec<_>>());
    assert_eq!(to(DType::I8), bytes(&x, |x| (x as i8).to_le_bytes()));
    assert_eq!(to(DType::U8), bytes(&x, |x| (x as u8).to_le_bytes()));
    assert_eq!(to(DType::I64), bytes(&x, |x| (x as i64).to_le_bytes()));
    assert_eq!(to(DType::Bool), bytes(&x, |x| [u8::from(x != 0.0)]));
    let numbers: Vec<f64> = x.iter().copied().filter(|x| !x.is_nan()).chain([1.0]).collect();
    let data = bytes(&numbers, f64::to_le_bytes);
    let to = |dtype| map(&[(DType::F64, &data)], dtype, 2, |b, x| b.cast(dtype, x[0]));
    assert_eq!(to(DType::F16), bytes(&numbers, |x| half::f16::from_f64(x).to_le_bytes()));
    assert_eq!(to(DType::BF16), bytes(&numbers, |x| half::bf16::from_f64(x).to_le_bytes()));
    assert_eq!(to(DType::F32), bytes(&numbers, |x| (x as f32).to_le_bytes()));

    let ints: Vec<i64> =
        vec![0, 1, -1, 2049, 65504, -70000, (1 << 60) + 1, (257 << 40) + (1 << 39) + 1];
    let data = bytes(&ints, i64::to_le_bytes);
    let to = |dtype| map(&[(DType::I64, &data)], dtype, 4, |b, x| b.cast(dtype, x[0]));
    assert_eq!(to(DType::F32), bytes(&ints, |x| (x as f32).to_le_bytes()));
    assert_eq!(to(DType::I16), bytes(&ints, |x| (x as i16).to_le_bytes()));
    let halves: Vec<i64> = vec![0, 1, -1, 2049, 65504, -2051, 4099, 8];
    let data = bytes(&halves, i64::to_le_bytes);
    let got = map(&[(DType::I64, &data)], DType::F16, 4, |b, x| b.cast(DType::F16, x[0]));
    assert_eq!(got, bytes(&halves, |x| half::f16::from_f64(x as f64).to_le_bytes()));
}

#[test]
fn narrow_floats_are_computed_wide_and_rounded_when_stored() {
    let x: Vec<half::bf16> =
        (0..256).map(|k| half::bf16::from_f32(k as f32 * 0.37 - 40.0)).collect();
    let data = bytes(&x, half::bf16::to_le_bytes);
    for vector in [1, 2, 8] {
        let got = map(&[(DType::BF16, &data)], DType::BF16, vector, |b, x| {
            let square = b.mul(x[0], x[0]);
            b.add(square, x[0])
        });
        let expected = bytes(&x, |x| {
            let x = x.to_f32();
            half::bf16::from_f32(x * x + x).to_le_bytes()
        });
        assert_eq!(got, expected);
    }
}

#[test]
fn nothing_is_read_where_the_mask_is_false() {
    let kernel = pointwise(&[DType::F32], DType::F32, 4, |_, x| x[0]);
    assert_eq!(run(&kernel, 1, &[&[]], &[0], &[0]), [Vec::<u8>::new()]);
}

/// Folds or scans a tile along a dimension: elements are read in row-major order of the tile.
fn fold_kernel(layout: &Layout, dim: u32, scan: bool, ordered: bool) -> Kernel {
    let threads = layout.thread_count();
    let mut b = KernelBuilder::new("fold", threads);
    let n = if ordered { 2 } else { 1 };
    let inputs: Vec<_> = (0..n).map(|k| b.global(format!("in{k}"), DType::I32, false)).collect();
    let outputs: Vec<_> = (0..n).map(|k| b.global(format!("out{k}"), DType::I32, true)).collect();
    let offset = row_major(&mut b, layout);
    let values: Vec<ValueId> = inputs.iter().map(|&x| b.load(x, offset, None, 1)).collect();
    let arg = ScalarExpr::arg;
    let combine = if ordered {
        // Affine maps one after the other: associative, and the order matters.
        vec![arg(0) * arg(2), arg(1) * arg(2) + arg(3)]
    } else {
        vec![arg(0) + arg(1)]
    };
    let results = if scan {
        b.scan(dim, &values, &combine)[..n].to_vec()
    } else {
        b.reduce(dim, &values, &combine)
    };
    let result_layout = b.ty(results[0]).layout().unwrap().clone();
    let offset = row_major(&mut b, &result_layout);
    for (&array, &value) in outputs.iter().zip(&results) {
        b.store(array, offset, value, None, 1);
    }
    b.finish()
}

fn row_major(b: &mut KernelBuilder, layout: &Layout) -> ValueId {
    (0..layout.shape.len())
        .fold(None, |offset, dim| {
            let at = b.coordinate(layout, dim as u32);
            Some(match offset {
                None => at,
                Some(offset) => {
                    let scaled = b.mul_int(offset, layout.shape[dim].into());
                    b.add(scaled, at)
                }
            })
        })
        .unwrap()
}

fn expected_fold(layout: &Layout, dim: usize, scan: bool, inputs: &[Vec<i32>]) -> Vec<Vec<i32>> {
    let shape: Vec<usize> = layout.shape.iter().map(|&n| n as usize).collect();
    let inner: usize = shape[dim + 1..].iter().product();
    let outer: usize = shape[..dim].iter().product();
    let mut results = vec![Vec::new(); inputs.len()];
    let combine = |a: &[i32], b: &[i32]| match a.len() {
        1 => vec![a[0].wrapping_add(b[0])],
        _ => vec![a[0].wrapping_mul(b[0]), a[1].wrapping_mul(b[0]).wrapping_add(b[1])],
    };
    let mut out =
        vec![vec![0; if scan { shape.iter().product() } else { outer * inner }]; inputs.len()];
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| (o * shape[dim] + k) * inner + i;
            let element = |k: usize| inputs.iter().map(|x| x[at(k)]).collect::<Vec<i32>>();
            let mut total = element(0);
            for k in 0..shape[dim] {
                if k > 0 {
                    total = combine(&total, &element(k));
                }
                let place = if scan { at(k) } else { o * inner + i };
                for (out, &value) in out.iter_mut().zip(&total) {
                    out[place] = value;
                }
            }
        }
    }
    results.clone_from(&out);
    results
}

#[test]
fn folds_and_scans_of_all_layouts() {
    let m = Mode::new;
    let layouts = [
        // A row over registers, lanes and warps; twice, once with registers outside the threads.
        Layout { shape: vec![512], registers: vec![m(0, 4, 1)], threads: vec![m(0, 128, 4)] },
        Layout {
            shape: vec![1024],
            registers: vec![m(0, 4, 1), m(0, 2, 512)],
            threads: vec![m(0, 128, 4)],
        },
        // Rows by warps, columns by some lanes, the others on the other dimension.
        Layout {
            shape: vec![16, 8],
            registers: vec![],
            threads: vec![m(1, 4, 1), m(0, 16, 1), m(1, 2, 4)],
        },
        // The accumulators of mma.m16n8: columns in lanes 0..4, rows in lanes 4..32.
        Layout {
            shape: vec![16, 8],
            registers: vec![m(1, 2, 1), m(0, 2, 8)],
            threads: vec![m(1, 4, 2), m(0, 8, 1)],
        },
        // Warps before lanes in the order of elements, an odd size, and threads that hold the same.
        Layout { shape: vec![4, 32], registers: vec![], threads: vec![m(1, 32, 1), m(0, 4, 1)] },
        Layout {
            shape: vec![3, 64],
            registers: vec![m(0, 3, 1)],
            threads: vec![m(1, 32, 2), m(1, 2, 1), m(0, 2, 0)],
        },
        Layout {
            shape: vec![6, 16],
            registers: vec![m(1, 2, 8)],
            threads: vec![m(0, 6, 1), m(1, 8, 1)],
        },
        // Less than a warp.
        Layout {
            shape: vec![8, 2],
            registers: vec![m(0, 2, 4)],
            threads: vec![m(0, 4, 1), m(1, 2, 1)],
        },
        Layout { shape: vec![1, 32], registers: vec![m(0, 2, 0)], threads: vec![m(1, 32, 1)] },
    ];
    for layout in &layouts {
        let size: u32 = layout.shape.iter().product();
        let inputs: Vec<Vec<i32>> = (0..2)
            .map(|k| (0..size as i32).map(|x| x.wrapping_mul(2654435 + 2 * k) | 1).collect())
            .collect();
        for dim in 0..layout.shape.len() {
            for (scan, ordered) in [(false, false), (false, true), (true, false), (true, true)] {
                let inputs = &inputs[..if ordered { 2 } else { 1 }];
                let expected = expected_fold(layout, dim, scan, inputs);
                let kernel = fold_kernel(layout, dim as u32, scan, ordered);
                let data: Vec<Vec<u8>> =
                    inputs.iter().map(|x| bytes(x, i32::to_le_bytes)).collect();
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let sizes = vec![expected[0].len() * 4; expected.len()];
                let got = run(&kernel, 1, &data, &sizes, &[]);
                let got: Vec<Vec<i32>> = got.iter().map(|out| i32s(out)).collect();
                assert_eq!(got, expected, "{layout:?} along {dim}, scan {scan}, ordered {ordered}");
            }
        }
    }
}

/// Sums through shared memory, twice a round, in a loop: exchanges of earlier rounds do not disturb.
#[test]
fn loops_conditions_and_shared_memory() {
    for len in [256u32, 20_000] {
        let mut b = KernelBuilder::new("loops", 64);
        let x = b.global("x", DType::I32, false);
        let out = b.global("out", DType::I32, true);
        let rounds = b.scalar("rounds", DType::I32, DimRange { min: 0, max: 100, divisor: 1 });
        let tile = b.shared("tile", DType::I32, len);
        let layout = linear(64, 2, 1);
        let at = b.coordinate(&layout, 0);
        let value = b.load(x, at, None, 2);
        let zero = b.int(DType::I32, 0);
        let base = b.int(DType::I32, i64::from(len) - 128);
        let result = b.for_loop(zero, rounds, 1, &[value], 2, |b, index, carried| {
            let place = b.add(at, base);
            b.store(tile, place, carried[0], None, 2);
            b.barrier();
            // The element 37 places on, around the end.
            let shifted = b.add_int(at, 37);
            let shifted = b.binary_with(BinaryFn::Mod, shifted, 128);
            let place = b.add(shifted, base);
            let other = b.load(tile, place, None, 1);
            b.barrier();
            let total = b.reduce(0, &[other], &[ScalarExpr::arg(0) + ScalarExpr::arg(1)])[0];
            let total = b.broadcast(total, &layout);
            let sum = b.add(other, total);
            vec![b.add(sum, index)]
        });
        let many = b.lt(zero, rounds);
        b.if_(many, true, |b| b.store(out, at, result[0], None, 2));
        let kernel = b.finish();

        let mut values: Vec<i32> = (0..128).map(|k| k * k - 1000).collect();
        let data = bytes(&values, i32::to_le_bytes);
        for round in 0..3 {
            let total = values.iter().fold(0i32, |a, &b| a.wrapping_add(b));
            let shifted = (0..128).map(|k| values[(k + 37) % 128]);
            values = shifted.map(|x| x.wrapping_add(total).wrapping_add(round)).collect();
        }
        assert_eq!(i32s(&run(&kernel, 1, &[&data], &[512], &[3])[0]), values);
        assert_eq!(run(&kernel, 1, &[&data], &[512], &[0])[0], [0xee; 512]);
    }
}
