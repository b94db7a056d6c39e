//! Lowered regions, run on the emulator and held against the reference interpreter.
#![allow(clippy::unwrap_used)]

mod fold;
mod harness;
mod legality;
mod mma;
mod pointwise;
mod recurrent;
mod reduced;
mod rows;
mod scan;
mod tile;
