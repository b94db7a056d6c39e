//! Lowering of fused regions to kernels.
mod index;
