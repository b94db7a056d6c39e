//! Matrix multiplication.

use fornax_bundle::Dim;

use super::contraction::{Ring, accumulator, eval_sum_of_products, require_numbers, zeros};
use super::{
    Arity, AxisRole, ContractionForm, ContractionKind, OpClass, OpCtx, OpDef, OperandMap, Violation, require,
};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{IndexExpr, Type, eval_polynomial, size_from_back};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "matmul",
    arity: Arity::Exactly(2),
    attrs: &[],
    infer,
    eval: eval_polynomial!(eval),
    class: OpClass::Contraction(form),
    doc: "Product of matrices over the last two axes, `a: [..., M, K]` times `b: [..., K, N]`; the \
          axes before are broadcast against each other as in numpy. Integers wrap; floats narrower \
          than 32 bits are accumulated in `f32`. (C1) Both have rank 2 or more. (C2) Both have one \
          element type, a number. (C3) The inner sizes agree. (C4) The sizes before agree or are \
          1. Source: ONNX MatMul, opset 13.",
}];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (a, b) = (&ctx.operands[0], &ctx.operands[1]);
    require(a.rank() >= 2 && b.rank() >= 2, "C1", || {
        format!("ranks {} and {} are not both at least 2", a.rank(), b.rank())
    })?;
    require_numbers(a, b, "C2")?;
    let (rows, inner) = (size_from_back(&a.shape, 1), size_from_back(&a.shape, 0));
    let (other_inner, columns) = (size_from_back(&b.shape, 1), size_from_back(&b.shape, 0));
    require(inner == other_inner, "C3", || {
        format!("inner sizes differ: {inner} of {a} and {other_inner} of {b}")
    })?;
    let mut shape = Vec::new();
    for from_back in (2..a.rank().max(b.rank())).rev() {
        let (left, right) = (size_from_back(&a.shape, from_back), size_from_back(&b.shape, from_back));
        require(left == right || left.is(1) || right.is(1), "C4", || {
            format!("sizes {left} of {a} and {right} of {b} do not broadcast")
        })?;
        shape.push(if left.is(1) { right } else { left });
    }
    shape.extend([rows, columns]);
    Ok(Type::new(a.dtype, shape))
}

/// The role of a batch axis that the operands have with these sizes: one that only one operand runs
/// along is that operand's own.
fn batch_role(left: &Dim, right: &Dim) -> AxisRole {
    match (left.is(1), right.is(1)) {
        (false, true) => AxisRole::Rows,
        (true, false) => AxisRole::Columns,
        _ => AxisRole::Batch,
    }
}

fn form(ctx: &OpCtx<'_>) -> ContractionForm {
    let (a, b) = (&ctx.operands[0], &ctx.operands[1]);
    let batch_rank = a.rank().max(b.rank()) - 2;
    let mut axes = Vec::with_capacity(batch_rank + 3);
    for axis in 0..batch_rank {
        let from_back = batch_rank + 1 - axis;
        let (left, right) = (size_from_back(&a.shape, from_back), size_from_back(&b.shape, from_back));
        let role = batch_role(&left, &right);
        axes.push((if left.is(1) { right } else { left }, role));
    }
    axes.push((size_from_back(&a.shape, 1), AxisRole::Rows));
    axes.push((size_from_back(&b.shape, 0), AxisRole::Columns));
    axes.push((size_from_back(&a.shape, 0), AxisRole::Inner));
    let (rows, columns, inner) = (batch_rank, batch_rank + 1, batch_rank + 2);
    let operand = |ty: &Type, last: [usize; 2]| {
        let batch = ty.rank() - 2;
        let mut index: Vec<IndexExpr> = (0..batch)
            .map(|axis| match ty.shape[axis].is(1) {
                true => IndexExpr::size(0i64),
                false => IndexExpr::axis(batch_rank - batch + axis),
            })
            .collect();
        index.extend(last.map(IndexExpr::axis));
        OperandMap { index, guards: Vec::new() }
    };
    ContractionForm {
        lhs: operand(a, [rows, inner]),
        rhs: operand(b, [inner, columns]),
        out: (0..=columns).map(IndexExpr::axis).collect(),
        accumulator: accumulator(a.dtype),
        axes,
        kind: ContractionKind::Product,
    }
}

fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval_sum_of_products!(ctx, operands, multiply)
}

fn multiply<R: Ring>(ctx: &EvalCtx<'_>, a: &Array<R>, b: &Array<R>) -> Array<R> {
    let mut out = zeros(ctx.shape);
    let (batch_shape, matrix) = ctx.shape.split_at(ctx.shape.len() - 2);
    let (rows, columns, inner) = (matrix[0], matrix[1], a.shape[a.shape.len() - 1]);
    if out.data.is_empty() {
        return out;
    }
    for (batch, product) in out.data.chunks_exact_mut(rows * columns).enumerate() {
        let a = &a.data[matrix_of(batch, batch_shape, &a.shape) * rows * inner..];
        let b = &b.data[matrix_of(batch, batch_shape, &b.shape) * inner * columns..];
        for (row, sums) in product.chunks_exact_mut(columns).enumerate() {
            for k in 0..inner {
                let left = a[row * inner + k];
                for (sum, &right) in sums.iter_mut().zip(&b[k * columns..]) {
                    *sum = sum.add_product(left, right);
                }
            }
        }
    }
    out
}

/// Which matrix of an operand of this shape belongs to the result's matrix number `batch`.
fn matrix_of(batch: usize, batch_shape: &[usize], shape: &[usize]) -> usize {
    let own = &shape[..shape.len() - 2];
    let (mut rest, mut number, mut stride) = (batch, 0, 1);
    for (axis, &size) in batch_shape.iter().enumerate().rev() {
        let position = rest % size;
        rest /= size;
        if let Some(own_axis) = (axis + own.len()).checked_sub(batch_shape.len()) {
            number += if own[own_axis] == 1 { 0 } else { position * stride };
            stride *= own[own_axis];
        }
    }
    number
}
