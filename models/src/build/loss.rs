//! Losses over classes, composed of element-wise operations and sums over the classes.

use fornax_ir::{Attrs, DType, Dim, NodeId};

use super::window::per_channel;
use super::{Build, Result, reduce};

/// What the classes of a loss are.
pub(crate) struct Labels {
    /// The class of each row, `[N, ...]`, integers.
    pub(crate) target: NodeId,
    /// A factor for each class.
    pub(crate) weight: Option<NodeId>,
    /// Rows with this class do not count.
    pub(crate) ignored: Option<i64>,
}

/// The negative log-likelihood of classes under log-probabilities `[N, C, ...]`, one number a row, or reduced
/// by `sum` or `mean` (weighted by the factors of the classes).
pub(crate) fn negative_log_likelihood_of<B: Build>(
    call: &mut B,
    input: NodeId,
    labels: &Labels,
    reduction: &str,
) -> Result<NodeId> {
    let ty = call.graph().ty(input).clone();
    let target = labels.target;
    let target = call.cast(target, DType::I64)?;
    if ty.rank() < 2 {
        return Err(call.invalid(format!("{ty} has no batch and class axis")));
    }
    let mut column = call.graph().ty(target).shape.to_vec();
    if column.len() + 1 != ty.rank() {
        return Err(call.invalid(format!("the target's rank is not one less than that of {ty}")));
    }
    let counted = match labels.ignored {
        Some(ignored) => {
            let ignored = call.scalar_like(ignored as f64, target)?;
            let same = call.add("eq", Attrs::none(), &[target, ignored])?;
            Some(call.add("not", Attrs::none(), &[same])?)
        }
        None => None,
    };
    column.insert(1, Dim::constant(1));
    let spread = |call: &mut B, value| {
        let value = call.reshape(value, &column)?;
        call.broadcast(value, &ty.shape)
    };
    let target = spread(call, target)?;
    let classes = call.positions(1, &ty.shape)?;
    let mut hit = call.add("eq", Attrs::none(), &[classes, target])?;
    if let Some(counted) = counted {
        let counted = spread(call, counted)?;
        hit = call.add("and", Attrs::none(), &[hit, counted])?;
    }
    let zero = call.scalar_like(0.0, input)?;
    let weight = match labels.weight {
        Some(weight) => Some(per_channel(call, weight, input)?),
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
    match reduction {
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
