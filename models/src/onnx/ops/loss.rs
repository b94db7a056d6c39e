//! Cross-entropy losses, composed of element-wise operations and sums over the classes.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use super::create::positions;
use super::reduce;
use crate::onnx::call::{Call, Result, Value};

/// NegativeLogLikelihoodLoss of log-probabilities `[N, C, ...]` and classes `[N, ...]`.
pub(in crate::onnx) fn negative_log_likelihood(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let input = call.input(0)?;
    likelihood(call, input)
}

/// SoftmaxCrossEntropyLoss; the log-probabilities are an optional second output.
pub(in crate::onnx) fn softmax_cross_entropy(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let scores = call.input(0)?;
    if call.graph().ty(scores).rank() < 2 {
        return Err(call.invalid("the scores need a batch and a class axis"));
    }
    let input = call.add("log_softmax", attrs! { axis: 1i64 }, &[scores])?;
    let loss = likelihood(call, input)?;
    Ok(vec![loss.into(), input.into()])
}

fn likelihood(call: &mut Call<'_, '_>, input: NodeId) -> Result<NodeId> {
    let ty = call.graph().ty(input).clone();
    let reduction = call.text_or("reduction", "mean")?.to_owned();
    let ignored = call.int("ignore_index")?;
    let target = call.input(1)?;
    let target = call.cast(target, DType::I64)?;
    if ty.rank() < 2 {
        return Err(call.invalid(format!("{ty} has no batch and class axis")));
    }
    let mut column = call.graph().ty(target).shape.to_vec();
    if column.len() + 1 != ty.rank() {
        return Err(call.invalid(format!("the target's rank is not one less than that of {ty}")));
    }
    let counted = match ignored {
        Some(ignored) => {
            let ignored = call.scalar_like(ignored as f64, target)?;
            let same = call.add("eq", Attrs::none(), &[target, ignored])?;
            Some(call.add("not", Attrs::none(), &[same])?)
        }
        None => None,
    };
    column.insert(1, Dim::constant(1));
    let spread = |call: &mut Call<'_, '_>, value| {
        let value = call.reshape(value, &column)?;
        call.broadcast(value, &ty.shape)
    };
    let target = spread(call, target)?;
    let classes = positions(call, 1, &ty.shape)?;
    let mut hit = call.add("eq", Attrs::none(), &[classes, target])?;
    if let Some(counted) = counted {
        let counted = spread(call, counted)?;
        hit = call.add("and", Attrs::none(), &[hit, counted])?;
    }
    let zero = call.scalar_like(0.0, input)?;
    let weight = match call.optional(2)? {
        Some(weight) => Some(super::window::per_channel(call, weight, input)?),
        None => None,
    };
    let weighted = match weight {
        Some(weight) => call.add("mul", Attrs::none(), &[input, weight])?,
        None => input,
    };
    // Summed over the classes first: with what the log-probabilities are made of, along the same rows.
    let chosen = call.add("where", Attrs::none(), &[hit, weighted, zero])?;
    let chosen = reduce::sum(call, chosen, &[1])?;
    let loss = call.add("neg", Attrs::none(), &[chosen])?;
    let everything: Vec<usize> = (0..ty.rank() - 1).collect();
    match reduction.as_str() {
        "none" => Ok(loss),
        "sum" => reduce::sum(call, loss, &everything),
        "mean" => {
            let sum = reduce::sum(call, loss, &everything)?;
            let weights = match (weight, counted) {
                (Some(weight), _) => {
                    let weight = call.add("where", Attrs::none(), &[hit, weight, zero])?;
                    reduce::sum(call, weight, &[1])?
                }
                (None, counted) => {
                    let one = call.scalar_like(1.0, loss)?;
                    match counted {
                        Some(counted) => {
                            let zero = call.scalar_like(0.0, loss)?;
                            call.add("where", Attrs::none(), &[counted, one, zero])?
                        }
                        None => one,
                    }
                }
            };
            let count = reduce::sum(call, weights, &everything)?;
            call.add("div", Attrs::none(), &[sum, count])
        }
        other => Err(call.invalid(format!("`reduction` is {other:?}"))),
    }
}
