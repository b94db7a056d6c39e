//! Kernels built by hand, emitted for all targets and assembled by ptxas.
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::Path;

use fornax_bundle::{DType, DimRange};
use fornax_codegen::kernel::{Kernel, KernelBuilder, Layout, Mode};
use fornax_codegen::ptx::Ptxas;
use fornax_codegen::{PtxModule, Target, emit_ptx};
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

/// Emits for the shipped targets, assembles where ptxas is there, and gives the text for `sm_90a`.
fn emit(kernel: &Kernel) -> PtxModule {
    emit_for(kernel, &[Target::Sm80, Target::Sm90a])
}

fn emit_for(kernel: &Kernel, targets: &[Target]) -> PtxModule {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/ptxas");
    let ptxas = Path::new(place).exists().then(|| Ptxas::new(place));
    if ptxas.is_none() {
        let required = std::env::var_os("FORNAX_REQUIRE_ALL").is_some();
        assert!(!required, "there is no {place}; run tools/setup");
        eprintln!("SKIPPED: PTX is not assembled, there is no {place}");
    }
    let emit_one = |&target: &Target| {
        let module = emit_ptx(kernel, target).unwrap_or_else(|error| panic!("{error}"));
        for forbidden in [".local", "call"] {
            let found = module.text.lines().find(|line| line.contains(forbidden));
            assert_eq!(found, None, "{}:\n{}", kernel.name, module.text);
        }
        assert!(module.text.contains(&format!(".maxntid {}", kernel.threads)));
        if let Some(ptxas) = &ptxas {
            let cubin = tempfile::NamedTempFile::new().unwrap();
            let usage = ptxas.assemble(&module, target, cubin.path());
            let usage = usage.unwrap_or_else(|error| panic!("{error}\n{}", module.text));
            assert_eq!((usage.spill_bytes, usage.stack_bytes), (0, 0), "{target}");
            assert!(usage.registers > 0);
        }
        module
    };
    let mut emitted: Vec<PtxModule> = targets.iter().map(emit_one).collect();
    emitted.pop().unwrap()
}

#[test]
fn all_targets_get_the_same_text_every_time() {
    let kernel = row_sum();
    emit_for(&kernel, &Target::ALL);
    for target in Target::ALL {
        assert_eq!(emit_ptx(&kernel, target).unwrap(), emit_ptx(&kernel, target).unwrap());
    }
}

fn linear(threads: u32, vector: u32, groups: u32) -> Layout {
    Layout {
        shape: vec![threads * vector * groups],
        registers: vec![Mode::new(0, vector, 1), Mode::new(0, groups, threads * vector)],
        threads: vec![Mode::new(0, threads, vector)],
    }
}

/// `out = f(a)` on `n` elements, with a mask at the end or without.
fn pointwise(
    from: DType,
    to: DType,
    vector: u32,
    masked: bool,
    f: impl FnOnce(
        &mut KernelBuilder,
        fornax_codegen::kernel::ValueId,
    ) -> fornax_codegen::kernel::ValueId,
) -> Kernel {
    let mut b = KernelBuilder::new("pointwise", 128);
    let a = b.global("a", from, false);
    let out = b.global("out", to, true);
    let n = b.scalar("n", DType::I32, DimRange { min: 1, max: 1 << 30, divisor: 4 });
    let layout = linear(128, vector, 2);
    let block = b.block_index(0);
    let first = b.mul_int(block, layout.shape[0].into());
    let at = b.coordinate(&layout, 0);
    let offset = b.add(first, at);
    let inside = b.lt(offset, n);
    let zero = Scalar::new(from, 0.0);
    let x = b.load(a, offset, masked.then_some((inside, zero)), vector);
    let y = f(&mut b, x);
    b.store(out, offset, y, masked.then_some(inside), vector);
    b.finish()
}

#[test]
fn vectors_move_16_bytes_at_once() {
    let kernel = pointwise(DType::F32, DType::F32, 4, false, |b, x| b.mul(x, x));
    let text = emit(&kernel).text;
    assert_eq!(text.matches("ld.global.nc.v4").count(), 2, "{text}");
    assert_eq!(text.matches("st.global.v4").count(), 2, "{text}");
    let kernel = pointwise(DType::F32, DType::F32, 4, true, |b, x| b.mul(x, x));
    let text = emit(&kernel).text;
    assert_eq!(text.matches("ld.global.nc.v4.b32").count(), 2, "{text}");
    assert_eq!(text.matches("st.global.v4.b32").count(), 2, "{text}");
    assert!(!text.contains("bra"), "masks are predicates: {text}");
}

#[test]
fn every_type_is_read_converted_and_written() {
    for (masked, vector) in [(false, 4), (true, 2)] {
        for from in DType::ALL {
            for to in DType::ALL {
                if [from, to].iter().any(|d| matches!(d, DType::F8E4M3 | DType::F8E5M2)) {
                    continue;
                }
                let kernel = pointwise(from, to, vector, masked, |b, x| b.cast(to, x));
                let module = emit_ptx(&kernel, Target::Sm80).unwrap();
                assert!(!module.text.contains("call"), "{from} to {to}: {}", module.text);
            }
        }
    }
    let pairs = [
        (DType::F64, DType::BF16),
        (DType::I64, DType::F16),
        (DType::Bool, DType::F32),
        (DType::I8, DType::Bool),
        (DType::BF16, DType::I8),
        (DType::F16, DType::F64),
    ];
    for (from, to) in pairs {
        emit(&pointwise(from, to, 8, from.size() == 1, |b, x| b.cast(to, x)));
    }
}

#[test]
fn products_are_fused_only_on_request() {
    let kernel = pointwise(DType::F32, DType::F32, 1, false, |b, x| {
        let product = b.mul(x, x);
        b.add(product, x)
    });
    let text = emit(&kernel).text;
    assert!(text.contains("mul.rn.f32") && text.contains("add.rn.f32"), "{text}");
    assert!(!text.contains("fma"), "{text}");
    let kernel = pointwise(DType::F32, DType::F32, 1, false, |b, x| b.fma(x, x, x));
    assert!(emit(&kernel).text.contains("fma.rn.f32"));
}

#[test]
fn total_functions_of_all_types_are_emitted() {
    use BinaryFn::*;
    let all = [Add, Sub, Mul, Div, Pow, Max, Min, Rem, Mod, And, Or, Xor, Shl, Shr, Eq, Lt, Le];
    for dtype in [DType::I8, DType::U8, DType::I16, DType::I32, DType::U32, DType::I64, DType::U64]
    {
        for function in all {
            let kernel = pointwise(dtype, DType::Bool, 1, false, |b, x| {
                let y = b.unary(UnaryFn::Not, x);
                let z = b.binary(function, x, y);
                b.cast(DType::Bool, z)
            });
            emit_ptx(&kernel, Target::Sm80).unwrap();
        }
    }
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for function in [Add, Sub, Mul, Div, Max, Min, Eq, Lt, Le] {
            let kernel = pointwise(dtype, DType::Bool, 1, false, |b, x| {
                let y = b.unary(UnaryFn::Sqrt, x);
                let z = b.binary(function, x, y);
                b.cast(DType::Bool, z)
            });
            emit(&kernel);
        }
    }
}

/// Sums rows of `n` elements, one a block of 256 threads, with a loop over the row.
fn row_sum() -> Kernel {
    let mut b = KernelBuilder::new("row_sum", 256);
    let x = b.global("x", DType::F32, false);
    let out = b.global("out", DType::F32, true);
    let n = b.scalar("n", DType::I32, DimRange { min: 1, max: 1 << 20, divisor: 1 });
    let layout = linear(256, 1, 4);
    let row = b.block_index(0);
    let start = b.mul(row, n);
    let at = b.coordinate(&layout, 0);
    let zero = b.int(DType::I32, 0);
    let ty = fornax_codegen::kernel::Ty::Fragment(DType::F32, layout.clone());
    let nothing = b.constant_of(ty, Scalar::new(DType::F32, 0.0));
    let sums = b.for_loop(zero, n, layout.shape[0], &[nothing], 1, |b, index, sums| {
        let column = b.add(at, index);
        let inside = b.lt(column, n);
        let offset = b.add(column, start);
        let element = b.load(x, offset, Some((inside, Scalar::new(DType::F32, 0.0))), 1);
        vec![b.add(sums[0], element)]
    });
    let total = b.reduce(0, &sums, &[ScalarExpr::arg(0) + ScalarExpr::arg(1)])[0];
    let row_layout = b.ty(total).layout().unwrap().clone();
    let offset = b.splat(row, &row_layout);
    b.store(out, offset, total, None, 1);
    b.finish()
}

#[test]
fn a_row_is_summed_with_shuffles_and_shared_memory() {
    let text = emit(&row_sum()).text;
    assert_eq!(text.matches("st.global").count(), 1, "{text}");
    assert!(text.lines().any(|l| l.contains("st.global") && l.contains('@')), "one thread: {text}");
    assert_eq!(text.matches("shfl.sync.bfly").count(), 5, "{text}");
    assert_eq!(
        text.matches("bar.sync").count() + text.matches("barrier.sync").count(),
        1,
        "{text}"
    );
}

#[test]
fn functions_have_code_without_calls() {
    use UnaryFn::*;
    let all = [
        Exp, Expm1, Log, Log1p, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh,
        Atanh, Erf, Erfc, Sigmoid, Gelu, Softplus, Mish, Rsqrt, Reciprocal, Floor, Ceil, Trunc,
        RoundEven, Sign, Abs, Neg, IsNan, IsInf,
    ];
    for function in all {
        emit(&pointwise(DType::F32, DType::Bool, 2, false, |b, x| {
            let y = b.unary(function, x);
            b.cast(DType::Bool, y)
        }));
    }
    for function in [BinaryFn::Pow, BinaryFn::Rem, BinaryFn::Mod] {
        emit(&pointwise(DType::BF16, DType::BF16, 2, false, |b, x| {
            let y = b.unary(Neg, x);
            b.binary(function, y, x)
        }));
    }
}
