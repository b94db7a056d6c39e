//! Losses and distances, composed of element-wise operations and reductions.

use fornax_ir::{Attrs, NodeId, attrs};

use super::pointwise::float_input;
use crate::aten::call::{Build as _, Call, Result};
use crate::build::contraction::scaled;
use crate::build::loss::{Labels, negative_log_likelihood_of};
use crate::build::reduce::fold;

/// What `at::Reduction` says: 0 nothing, 1 the mean, 2 the sum.
fn reduced(call: &mut Call<'_>, loss: NodeId) -> Result<NodeId> {
    let op = match call.int("reduction")? {
        0 => return Ok(loss),
        1 => "reduce_mean",
        2 => "reduce_sum",
        other => return Err(call.invalid(format!("`reduction` is {other}"))),
    };
    everything(call, op, loss)
}

fn everything(call: &mut Call<'_>, op: &str, node: NodeId) -> Result<NodeId> {
    let axes: Vec<usize> = (0..call.graph().ty(node).rank()).collect();
    fold(call, op, node, &axes, false)
}

fn binary(call: &mut Call<'_>, op: &str, a: NodeId, b: NodeId) -> Result<NodeId> {
    let operands = call.broadcast_all(&[a, b])?;
    call.add(op, Attrs::none(), &operands)
}

fn unary(call: &mut Call<'_>, op: &str, a: NodeId) -> Result<NodeId> {
    call.add(op, Attrs::none(), &[a])
}

fn with_number(call: &mut Call<'_>, op: &str, a: NodeId, number: f64) -> Result<NodeId> {
    let number = call.scalar_like(number, a)?;
    call.add(op, Attrs::none(), &[a, number])
}

/// `self - target`.
fn difference(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "target"])?;
    call.add("sub", Attrs::none(), &operands)
}

/// mse_loss: squares of differences.
pub(in crate::aten) fn mse(call: &mut Call<'_>) -> Result<NodeId> {
    let difference = difference(call)?;
    let loss = call.add("mul", Attrs::none(), &[difference, difference])?;
    reduced(call, loss)
}

/// l1_loss: absolute differences.
pub(in crate::aten) fn l1(call: &mut Call<'_>) -> Result<NodeId> {
    let difference = difference(call)?;
    let loss = unary(call, "abs", difference)?;
    reduced(call, loss)
}

/// smooth_l1_loss: `d^2 / (2 * beta)` for `|d| < beta`, else `|d| - beta / 2`. huber_loss is `delta` times that
/// with `beta = delta`.
pub(in crate::aten) fn smooth_l1(
    call: &mut Call<'_>,
    threshold: &str,
    huber: bool,
) -> Result<NodeId> {
    let beta = call.float(threshold)?;
    let difference = difference(call)?;
    let size = unary(call, "abs", difference)?;
    if beta == 0.0 && !huber {
        return reduced(call, size);
    }
    let limit = call.scalar_like(beta, size)?;
    let near = call.add("lt", Attrs::none(), &[size, limit])?;
    let square = call.add("mul", Attrs::none(), &[size, size])?;
    let square = scaled(call, square, if huber { 0.5 } else { 0.5 / beta })?;
    let far = with_number(call, "sub", size, beta / 2.0)?;
    let far = if huber { scaled(call, far, beta)? } else { far };
    let loss = call.add("where", Attrs::none(), &[near, square, far])?;
    reduced(call, loss)
}

/// kl_div of log-probabilities: `target * (log(target) - self)`, 0 where the target is 0.
pub(in crate::aten) fn kl_divergence(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "target"])?;
    let [input, target] = operands[..] else { return Err(call.invalid("two operands are needed")) };
    let loss = if call.flag("log_target")? {
        let weight = unary(call, "exp", target)?;
        let difference = binary(call, "sub", target, input)?;
        binary(call, "mul", weight, difference)?
    } else {
        let zero = call.scalar_like(0.0, target)?;
        let positive = call.add("gt", Attrs::none(), &[target, zero])?;
        let log = unary(call, "log", target)?;
        let own = binary(call, "mul", target, log)?;
        let own = call.add("where", Attrs::none(), &[positive, own, zero])?;
        let cross = binary(call, "mul", target, input)?;
        binary(call, "sub", own, cross)?
    };
    reduced(call, loss)
}

/// binary_cross_entropy: `-(t log(p) + (1 - t) log(1 - p))` with logarithms of at least -100.
pub(in crate::aten) fn binary_cross_entropy(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "target"])?;
    let [input, target] = operands[..] else { return Err(call.invalid("two operands are needed")) };
    let one = call.scalar_like(1.0, input)?;
    let rest = binary(call, "sub", one, input)?;
    let log = |call: &mut Call<'_>, node| {
        let log = unary(call, "log", node)?;
        with_number(call, "max", log, -100.0)
    };
    let (hit, miss) = (log(call, input)?, log(call, rest)?);
    let hit = binary(call, "mul", target, hit)?;
    let other = binary(call, "sub", one, target)?;
    let miss = binary(call, "mul", other, miss)?;
    let sum = binary(call, "add", hit, miss)?;
    let loss = unary(call, "neg", sum)?;
    weighted(call, loss)
}

/// binary_cross_entropy_with_logits: `(1 - t) x + (1 + (w - 1) t) softplus(-x)`.
pub(in crate::aten) fn binary_cross_entropy_with_logits(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "target"])?;
    let [input, target] = operands[..] else { return Err(call.invalid("two operands are needed")) };
    let negative = unary(call, "neg", input)?;
    let mut soft = unary(call, "softplus", negative)?;
    if let Some(weight) = call.optional("pos_weight")? {
        let more = with_number(call, "sub", weight, 1.0)?;
        let factor = binary(call, "mul", more, target)?;
        let factor = with_number(call, "add", factor, 1.0)?;
        soft = binary(call, "mul", factor, soft)?;
    }
    let one = call.scalar_like(1.0, target)?;
    let other = binary(call, "sub", one, target)?;
    let linear = binary(call, "mul", other, input)?;
    let loss = binary(call, "add", linear, soft)?;
    weighted(call, loss)
}

fn weighted(call: &mut Call<'_>, loss: NodeId) -> Result<NodeId> {
    let loss = match call.optional("weight")? {
        Some(weight) => binary(call, "mul", loss, weight)?,
        None => loss,
    };
    reduced(call, loss)
}

/// cross_entropy_loss of scores `[N, C, ...]` (or `[C]`) and classes.
pub(in crate::aten) fn cross_entropy(call: &mut Call<'_>) -> Result<NodeId> {
    if call.float("label_smoothing")? != 0.0 {
        return Err(call.unsupported("`label_smoothing` is not supported"));
    }
    let scores = float_input(call, "self")?;
    let target = call.input("target")?;
    let shape = call.graph().ty(scores).shape.clone();
    if call.graph().ty(target).dtype.is_float() {
        return Err(call.unsupported("class probabilities as targets are not supported"));
    }
    if shape.rank() < 2 {
        return Err(call.unsupported("scores without a batch axis are not supported"));
    }
    let input = call.add("log_softmax", attrs! { axis: 1i64 }, &[scores])?;
    likelihood(call, input, target)
}

/// nll_loss of log-probabilities.
pub(in crate::aten) fn negative_log_likelihood(call: &mut Call<'_>) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    let target = call.input("target")?;
    likelihood(call, input, target)
}

fn likelihood(call: &mut Call<'_>, input: NodeId, target: NodeId) -> Result<NodeId> {
    let labels = Labels {
        target,
        weight: call.optional("weight")?,
        // Classes are not negative: the default stands for none.
        ignored: Some(call.int("ignore_index")?).filter(|&index| index != -100),
    };
    let reduction = match call.int("reduction")? {
        0 => "none",
        1 => "mean",
        2 => "sum",
        other => return Err(call.invalid(format!("`reduction` is {other}"))),
    };
    negative_log_likelihood_of(call, input, &labels, reduction)
}

/// The `p`-norm of `a - b + eps` along the last axis.
fn distance(call: &mut Call<'_>, a: NodeId, b: NodeId, p: f64, eps: f64) -> Result<NodeId> {
    let difference = binary(call, "sub", a, b)?;
    let difference = with_number(call, "add", difference, eps)?;
    let last = call.axis(-1, call.graph().ty(difference).rank())?;
    let keepdim = call.flag("keepdim")?;
    if p == 2.0 || p == 1.0 {
        let op = if p == 2.0 { "reduce_l2" } else { "reduce_l1" };
        return fold(call, op, difference, &[last], keepdim);
    }
    let size = unary(call, "abs", difference)?;
    let powers = with_number(call, "pow", size, p)?;
    let sum = fold(call, "reduce_sum", powers, &[last], keepdim)?;
    with_number(call, "pow", sum, 1.0 / p)
}

/// pairwise_distance.
pub(in crate::aten) fn pairwise_distance(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["x1", "x2"])?;
    let (p, eps) = (call.float("p")?, call.float("eps")?);
    distance(call, operands[0], operands[1], p, eps)
}

/// triplet_margin_loss: `max(0, margin + d(anchor, positive) - d(anchor, negative))`.
pub(in crate::aten) fn triplet_margin(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["anchor", "positive", "negative"])?;
    let [anchor, positive, negative] = operands[..] else {
        return Err(call.invalid("three operands are needed"));
    };
    let (p, eps) = (call.float("p")?, call.float("eps")?);
    let near = distance(call, anchor, positive, p, eps)?;
    let mut far = distance(call, anchor, negative, p, eps)?;
    if call.flag("swap")? {
        let other = distance(call, positive, negative, p, eps)?;
        far = binary(call, "min", far, other)?;
    }
    let margin = call.float("margin")?;
    let near = with_number(call, "add", near, margin)?;
    let loss = binary(call, "sub", near, far)?;
    let loss = unary(call, "relu", loss)?;
    reduced(call, loss)
}

/// cosine_similarity along an axis; norms count as at least `eps`.
pub(in crate::aten) fn cosine_similarity(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["x1", "x2"])?;
    let axis = call.axis_of("dim", call.graph().ty(operands[0]).rank())?;
    let eps = call.float("eps")?;
    let product = binary(call, "mul", operands[0], operands[1])?;
    let product = fold(call, "reduce_sum", product, &[axis], false)?;
    let norm = |call: &mut Call<'_>, node| {
        let norm = fold(call, "reduce_l2", node, &[axis], false)?;
        with_number(call, "max", norm, eps)
    };
    let (left, right) = (norm(call, operands[0])?, norm(call, operands[1])?);
    let norms = binary(call, "mul", left, right)?;
    binary(call, "div", product, norms)
}
