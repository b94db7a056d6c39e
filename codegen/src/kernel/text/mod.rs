//! The text form of kernels (`.kir`): what [`std::fmt::Display`] prints, [`parse`] reads.
//!
//! ```text
//! kernel @row threads 32 {
//!   global x: f32
//!   global out: f32 written
//!   scalar n: i32 in 1 to 64 by 1
//!   layout #0 = [64] registers (0 2 1) threads (0 32 2)
//!
//!   %0: i32 = param n
//!   %1: i32#0 = coordinate 0
//!   %2: i32#0 = splat %0
//!   %3: bool#0 = lt %1, %2
//!   %4: f32#0 = load x[%1] vector 2 mask %3 else f32 0.0
//!   %5: f32#0 = exp %4
//!   store out[%1], %5 vector 2 mask %3
//! }
//! ```
//!
//! A mode of a layout is written as dimension, size and stride; `;` begins a comment. Values keep their
//! numbers, so `parse(&kernel.to_string())` equals `kernel`.

mod parser;
mod printer;

pub use parser::{ParseError, parse};

#[cfg(test)]
mod tests {
    use fornax_bundle::{DType, DimRange};
    use fornax_ir::{Float, Scalar, ScalarExpr, UnaryFn};

    use super::super::{
        Factor, Kernel, KernelBuilder, Layout, MmaTile, Mode, Places, Ty, WgmmaTile, verify,
    };
    use super::*;

    fn everything() -> Kernel {
        let layout = Layout {
            shape: vec![4, 64],
            registers: vec![Mode::new(0, 4, 1), Mode::new(1, 2, 1)],
            threads: vec![Mode::new(1, 32, 2)],
        };
        let mut b = KernelBuilder::new("everything", 32);
        let x = b.global("x", DType::F32, false);
        let out = b.global("out", DType::F32, true);
        let n = b.scalar("n", DType::I64, DimRange { min: -3, max: 1 << 40, divisor: 8 });
        let tile = b.shared("tile", DType::I32, 300);
        let block = b.block_index(1);
        let wide = b.cast(DType::I64, block);
        let at = b.coordinate(&layout, 1);
        let inside = b.lt(wide, n);
        let mask = b.splat(inside, &layout);
        let nothing = Scalar::Float(DType::F32, Float(f64::NEG_INFINITY));
        let value = b.load(x, at, Some((mask, nothing)), 2);
        b.store(tile, at, at, None, 1);
        b.barrier();
        let tiny = b.constant(Scalar::Float(DType::F32, Float(1e-45)));
        let odd =
            b.constant(Scalar::Float(DType::F32, Float(f64::from_bits(0x7ff8_0000_0000_0001))));
        let choice = b.select(mask, value, tiny);
        let choice = b.fma(choice, value, odd);
        let arg = ScalarExpr::arg;
        let later = arg(0).binary(fornax_ir::BinaryFn::Lt, arg(2));
        let combine = [
            later.clone().select(arg(2), arg(0).unary(UnaryFn::Neg)),
            later.select(arg(3), ScalarExpr::number(DType::I32, -7.0)),
        ];
        let folded = b.reduce(0, &[choice, at], &combine);
        let sums = b.scan(1, &[folded[0]], &[arg(0) + arg(1)]);
        let zero = b.int(DType::I32, 0);
        let to = b.int(DType::I32, 9);
        let carried = b.for_loop(zero, to, 3, &[sums[0], zero], 4, |b, index, args| {
            let next = b.add(args[1], index);
            vec![args[0], next]
        });
        let counts = b.global("counts", DType::I32, true);
        let of = b.int(DType::I32, 4);
        b.ticket((counts, zero), of);
        let ticket = b.ordered_ticket((counts, zero), of);
        b.meet(counts, ticket, 3);
        let pairs = b.global("pairs", DType::I64, true);
        let one = b.constant(Scalar::new(DType::F32, 1.0));
        let known = b.int(DType::Bool, 1);
        b.send(pairs, zero, (one, ticket), None);
        b.send(pairs, zero, (one, ticket), Some(known));
        b.receive(pairs, zero, ticket, None);
        b.receive(pairs, zero, ticket, Some((known, Scalar::new(DType::F32, 0.5))));
        let at = b.coordinate(&layout.dropped(0), 1);
        b.if_(inside, true, |b| {
            let all = b.broadcast(carried[0], &layout);
            b.unary(UnaryFn::Sqrt, all);
            b.store(out, at, carried[0], None, 2);
        });
        b.if_(inside, false, |_| {});
        let tile = MmaTile { factor: Factor::Tf32, rows: 32, columns: 16, warps_m: 1, warps_n: 1 };
        let factors = b.swizzled("factors", DType::F32, 1024);
        let [left, right] = [tile.left(), tile.right()].map(|layout| {
            let at = b.coordinate(&layout, 2);
            let factor = b.load(factors, at, None, 4);
            b.round_tf32(factor)
        });
        let zeros = Ty::Fragment(DType::F32, tile.sums());
        let zeros = b.constant_of(zeros, Scalar::new(DType::F32, 0.0));
        let sums = b.mma(tile, left, right, zeros);
        let mut turned = tile.sums();
        turned.registers.reverse();
        b.reorder(sums, &turned);
        b.proxy_fence();
        b.finish()
    }

    /// Copies and products that are waited for.
    fn asynchronous() -> Kernel {
        let mut b = KernelBuilder::new("asynchronous", 128);
        b.set_resident(3);
        let x = b.global("x", DType::F32, false);
        let right = b.swizzled("right", DType::F32, 1024);
        let tile =
            WgmmaTile { factor: Factor::Tf32, rows: 64, columns: 8, groups_m: 1, groups_n: 1 };
        let layout = Layout {
            shape: vec![8, 32],
            registers: vec![Mode::new(1, 2, 16)],
            threads: vec![Mode::new(1, 16, 1), Mode::new(0, 8, 1)],
        };
        let [row, column] = [0, 1].map(|dim| b.coordinate(&layout, dim));
        let row = b.mul_int(row, 32);
        let at = b.add(row, column);
        let zero = b.int(DType::I32, 0);
        let masks = [b.lt(zero, at), b.lt(at, row)];
        b.copy((right, at), (x, at), [Some(masks[0]), None], 1);
        b.copy((right, at), (x, at), masks.map(Some), 1);
        b.copy_commit();
        b.copy_wait(0);
        b.proxy_fence();
        b.barrier();
        let table: Vec<i32> = (0..32).map(|inner| 100 * (inner / 8) - inner % 8).collect();
        let at = b.lookup(&tile.left(), 1, &table);
        let left = b.load(x, at, None, 1);
        let zeros = Ty::Fragment(DType::F32, tile.sums());
        let sums = b.constant_of(zeros, Scalar::new(DType::F32, 0.0));
        let sums = b.wgmma_registers(tile, left, (right, zero), sums);
        let sums = b.wgmma(tile, [right; 2], [zero; 2], sums);
        let plain = b.shared("plain", DType::F32, 1024);
        let places =
            Places { stride: 40, across: 1, step: 0, pitch: 0, starts: vec![0, 512, 4, 516] };
        let sums = b.wgmma_places(tile, (plain, zero, places), (right, zero), sums);
        b.wgmma_pending(1);
        b.wgmma_wait(sums);
        b.finish()
    }

    #[test]
    fn text_reads_back() {
        for kernel in [everything(), asynchronous()] {
            assert_eq!(verify(&kernel), Vec::<String>::new());
            let text = kernel.to_string();
            assert_eq!(parse(&text).unwrap(), kernel, "{text}");
            assert_eq!(parse(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn asynchronous_instructions_are_checked() {
        let text = asynchronous().to_string();
        for (from, to, fault) in [
            ("copy right[", "copy x[", "copies go from global to shared memory"),
            ("(0, -1,", "(0, -2,", "do not add up"),
            (" swizzled", "", "no swizzled array of factors"),
            ("plain[", "right[", "no plain shared array of factors"),
            ("stride 40", "stride 42", "the places are not whole parts"),
            ("(0, 512, 4, 516)", "(512, 0, 4, 516)", "the places are not whole parts"),
            ("(0, 512, 4, 516)", "(0, 512, 4)", "the places are not whole parts"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let faults = verify(&parse(&changed).unwrap()).join("; ");
            assert!(faults.contains(fault), "{faults}");
        }
    }

    #[test]
    fn mutated_text_never_panics() {
        let text = everything().to_string();
        for cut in (0..text.len()).step_by(3) {
            let _ = parse(&text[..cut]);
            let mut without = text.clone();
            without.remove(cut);
            let _ = parse(&without);
            let _ = parse(&text.replacen(&text[cut..cut + 1], "9", 5));
        }
    }

    #[test]
    fn errors_name_the_line() {
        let text = everything().to_string();
        let error = parse(&text.replace("scan 1", "scam 1")).unwrap_err().to_string();
        assert!(error.contains("scam") && error.contains("line"), "{error}");
        let error = parse("kernel @k threads 32 {\n  %0: f31 = constant i32 0\n}").unwrap_err();
        assert_eq!(error.to_string(), "line 2: unknown element type `f31`");
        let error = parse("kernel @k threads 32 {\n  barrier\n").unwrap_err();
        assert!(error.to_string().contains("end of the text"), "{error}");
    }
}
