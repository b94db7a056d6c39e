//! Sums of products: MatMul, Gemm, Einsum.

use fornax_ir::{Attrs, NodeId};

use super::movement::permute;
use crate::build::contraction::{self, scaled};
use crate::onnx::call::{Build as _, Call, Result};

/// MatMul.
pub(in crate::onnx) fn matmul(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    contraction::matmul(call, a, b)
}

/// Einsum.
pub(in crate::onnx) fn einsum(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let text = call.text("equation")?.ok_or_else(|| call.needs("equation"))?;
    let nodes = call.all_inputs()?;
    contraction::einsum(call, text, &nodes)
}

/// Gemm: `alpha * A' * B' + beta * C`.
pub(in crate::onnx) fn gemm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (alpha, beta) = (call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?);
    let a = matrix(call, 0, "transA")?;
    let b = matrix(call, 1, "transB")?;
    let product = call.add("matmul", Attrs::none(), &[a, b])?;
    let product = scaled(call, product, alpha)?;
    let Some(addend) = call.optional(2)? else { return Ok(product) };
    let addend = scaled(call, addend, beta)?;
    let shape = call.graph().ty(product).shape.clone();
    let addend = call.broadcast(addend, &shape)?;
    call.add("add", Attrs::none(), &[product, addend])
}

fn matrix(call: &mut Call<'_, '_>, index: usize, turned: &'static str) -> Result<NodeId> {
    let turned = call.flag(turned, false)?;
    let node = call.input(index)?;
    let ty = call.graph().ty(node);
    if ty.rank() != 2 {
        return Err(call.invalid(format!("operand {index} must be a matrix, but is {ty}")));
    }
    if turned { permute(call, node, &[1, 0]) } else { Ok(node) }
}
