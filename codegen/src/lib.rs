//! Code generation: regions to kernel IR, kernel IR to PTX.

pub mod kernel;
