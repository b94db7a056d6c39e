//! Products of matrices.

use fornax_ir::{Attrs, NodeId};

use crate::aten::call::{Build as _, Call, Result};
use crate::build::contraction::{self, scaled};
use crate::build::movement::permute;

/// mm, bmm, matmul, mv, dot.
pub(in crate::aten) fn matmul(call: &mut Call<'_>, left: &str, right: &str) -> Result<NodeId> {
    let (a, b) = (call.input(left)?, call.input(right)?);
    contraction::matmul(call, a, b)
}

/// addmm, baddbmm: `beta * self + alpha * (a @ b)`.
pub(in crate::aten) fn add_matmul(call: &mut Call<'_>, left: &str, right: &str) -> Result<NodeId> {
    let product = matmul(call, left, right)?;
    let alpha = call.float("alpha")?;
    let product = scaled(call, product, alpha)?;
    let beta = call.float("beta")?;
    if beta == 0.0 {
        return Ok(product);
    }
    let addend = call.input("self")?;
    let addend = scaled(call, addend, beta)?;
    let operands = call.broadcast_all(&[product, addend])?;
    call.add("add", Attrs::none(), &operands)
}

/// linear: `input @ weight' + bias`.
pub(in crate::aten) fn linear(call: &mut Call<'_>) -> Result<NodeId> {
    let (input, weight) = (call.input("input")?, call.input("weight")?);
    let weight = match call.graph().ty(weight).rank() {
        2 => permute(call, weight, &[1, 0])?,
        _ => weight,
    };
    let product = contraction::matmul(call, input, weight)?;
    let Some(bias) = call.optional("bias")? else { return Ok(product) };
    let operands = call.broadcast_all(&[product, bias])?;
    call.add("add", Attrs::none(), &operands)
}

/// einsum.
pub(in crate::aten) fn einsum(call: &mut Call<'_>) -> Result<NodeId> {
    let equation = call.text("equation")?;
    let nodes = call.inputs("tensors")?;
    contraction::einsum(call, &equation, &nodes)
}

/// outer: a column times a row.
pub(in crate::aten) fn outer(call: &mut Call<'_>) -> Result<NodeId> {
    let nodes = [call.input("self")?, call.input("vec2")?];
    contraction::einsum(call, "i,j->ij", &nodes)
}
