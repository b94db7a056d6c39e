//! The PTX emulator: semantics of instructions, what LLVM prints, and the detectors.

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
