//! Cross-entropy losses.

use fornax_ir::{NodeId, attrs};

use crate::build::loss::{Labels, negative_log_likelihood_of};
use crate::onnx::call::{Build as _, Call, Result, Value};

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
    let reduction = call.text_or("reduction", "mean")?;
    let ignored = call.int("ignore_index")?;
    let (target, weight) = (call.input(1)?, call.optional(2)?);
    negative_log_likelihood_of(call, input, &Labels { target, weight, ignored }, reduction)
}
