//! Losses.

use fornax_bundle::{DType, Dim};

use super::domain::Domain;
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "nll_loss",
    arity: Arity::AtLeast(2),
    attrs: &[("ignore_index", AttrKind::Ints), ("reduction", AttrKind::Text)],
    infer,
    eval: eval_real!(eval),
    class: OpClass::Composite(expand),
    doc: "Negative log likelihood: `-x[n, target[n, d], d] * weight[target[n, d]]` for operands \
          `x: [N, C, d...]`, `target: [N, d...]` and optionally `weight: [C]` (else 1). Where the \
          target is `ignore_index` (a list of one or none), loss and weight are 0. `reduction` is \
          `none`, `sum`, or `mean`: the sum of the losses divided by the sum of their weights. \
          Other targets outside `[0, C)` are taken as `gather_elements` takes them. Floats \
          narrower than 32 bits are computed in `f32`. (C1) Two or three operands; `x` is float, \
          `weight` has its type, `target` is `i64` or `i32`. (C2) `x` has rank 2 or more, `target` \
          its shape without axis 1, and `weight` the shape of that axis. (C3) `ignore_index` has \
          at most one entry. (C4) `reduction` is one of the words. Source: ONNX \
          NegativeLogLikelihoodLoss, opset 22.",
}];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, target) = (&ctx.operands[0], &ctx.operands[1]);
    require(ctx.operands.len() <= 3, "C1", || format!("{} operands", ctx.operands.len()))?;
    Domain::Float.require(x.dtype, "C1")?;
    require(matches!(target.dtype, DType::I64 | DType::I32), "C1", || {
        format!("target is {}, not i64 or i32", target.dtype)
    })?;
    require(x.rank() >= 2 && target.shape == positions(x).into(), "C2", || {
        format!("target {target} does not go with {x}")
    })?;
    if let Some(weight) = ctx.operands.get(2) {
        require(weight.dtype == x.dtype, "C1", || {
            format!("weight is {}, not {}", weight.dtype, x.dtype)
        })?;
        require(weight.rank() == 1 && weight.shape[0] == x.shape[1], "C2", || {
            format!("weight {weight} does not go with {x}")
        })?;
    }
    let ignored = ctx.attrs.ints("ignore_index");
    require(ignored.len() <= 1, "C3", || format!("`ignore_index` is {ignored:?}"))?;
    let shape = match ctx.attrs.text("reduction") {
        "none" => target.shape.clone(),
        "sum" | "mean" => Vec::<Dim>::new().into(),
        other => return Err(Violation::new("C4", format!("`{other}` is no reduction"))),
    };
    Ok(Type::new(x.dtype, shape))
}

/// The shape without the axis of classes.
fn positions(x: &Type) -> Vec<Dim> {
    let mut shape = x.shape.to_vec();
    if shape.len() > 1 {
        shape.remove(1);
    }
    shape
}

fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (x, target) = (operands[0].float(), operands[1].int());
    let (classes, inner) = (x.shape[1], x.shape[2..].iter().product::<usize>());
    let ignored = ctx.attrs.ints("ignore_index");
    let mut weights = Vec::with_capacity(target.data.len());
    let mut losses = Vec::with_capacity(target.data.len());
    for (i, &class) in target.data.iter().enumerate() {
        if ignored.contains(&class) {
            weights.push(0.0);
            losses.push(T::zero());
            continue;
        }
        let class = if class < 0 { class.saturating_add(classes as i64) } else { class };
        let class = class.min(classes as i64 - 1).max(0) as usize;
        // Without classes there is nothing to take: 0.
        let taken = |values: &[T], position| values.get(position).copied().unwrap_or(T::zero());
        let weight =
            operands.get(2).map_or(1.0, |weight| taken(&weight.float().data, class).to_f64());
        let likelihood = taken(&x.data, (i / inner * classes + class) * inner + i % inner);
        weights.push(weight);
        losses.push(likelihood.map(|likelihood| -likelihood * weight));
    }
    let total = || losses.iter().fold(T::zero(), |sum, &loss| sum + loss);
    let data = match ctx.attrs.text("reduction") {
        "sum" => vec![total()],
        "mean" => vec![total().map(|total| total / weights.iter().sum::<f64>())],
        _ => losses,
    };
    Value::Float(Array::new(ctx.shape, data))
}

fn expand(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let mut target = to.operands[1];
    let shape = to.ty(target).shape;
    let ignored = match ctx.attrs.ints("ignore_index").first() {
        Some(&ignored) => {
            let ignored = to.graph.scalar(to.ty(target).dtype, ignored as f64);
            let is_ignored = to.binary("eq", target, ignored)?;
            let first = to.graph.scalar(to.ty(target).dtype, 0.0);
            target = to.select(is_ignored, first, target)?;
            Some(is_ignored)
        }
        None => None,
    };
    let mut one_class = ctx.shape().to_vec();
    one_class[1] = Dim::constant(1);
    let index = to.reshape(target, one_class)?;
    let likelihood = to.add("gather_elements", attrs! { axis: 1i64 }, &[x, index])?;
    let likelihood = to.reshape(likelihood, shape.clone())?;
    let mut loss = to.unary("neg", likelihood)?;
    let mut weights = to.graph.scalar(to.ty(x).dtype, 1.0);
    if let Some(&weight) = to.operands.get(2) {
        let weight = to.widened(weight)?;
        weights = to.add("gather", attrs! { axis: 0i64 }, &[weight, target])?;
        loss = to.binary("mul", loss, weights)?;
    }
    weights = to.broadcast(weights, &shape)?;
    if let Some(is_ignored) = ignored {
        let zero = to.graph.scalar(to.ty(x).dtype, 0.0);
        loss = to.select(is_ignored, zero, loss)?;
        weights = to.select(is_ignored, zero, weights)?;
    }
    let axes: Vec<i64> = (0..shape.rank() as i64).collect();
    let all = attrs! { axes: axes, keepdims: false };
    let reduced = match ctx.attrs.text("reduction") {
        "none" => loss,
        "sum" => to.add("reduce_sum", all, &[loss])?,
        _ => {
            let total = to.add("reduce_sum", all.clone(), &[loss])?;
            let weight = to.add("reduce_sum", all, &[weights])?;
            to.binary("div", total, weight)?
        }
    };
    to.cast(reduced, ctx.first().dtype)
}
