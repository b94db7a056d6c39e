//! The PTX emulator: semantics of instructions, what LLVM prints, and the detectors.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
// helper functions outside of `#[test]`
// Tables pair an instruction with a function; comparisons are written out for the sake of NaN.
#![allow(clippy::type_complexity, clippy::double_comparisons, clippy::neg_cmp_op_on_partial_ord)]

mod convert;
mod elementwise;
mod faults;
mod float;
mod half_precision;
mod harness;
mod integer;
mod launch;
mod llvm;
mod memory;
mod parse;
mod warp;
