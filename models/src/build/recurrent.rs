//! Recurrent layers: what their ops give, taken apart.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::movement::take_axis;
use super::{Build, Result};

/// The states of a recurrent layer.
pub(crate) struct States {
    /// After each step: `[steps, directions, batch, hidden]`.
    pub(crate) all: NodeId,
    /// After the last step of each direction: `[directions, batch, hidden]`.
    pub(crate) hidden: NodeId,
    /// The cells after the last step of each direction, if the attributes ask for them.
    pub(crate) cell: Option<NodeId>,
}

/// Adds a layer; the first operand is the input, `[steps, batch, features]`.
pub(crate) fn states(
    call: &mut impl Build,
    op: &str,
    attrs: Attrs,
    operands: &[NodeId],
) -> Result<States> {
    let directions: i64 = if attrs.text("direction") == "bidirectional" { 2 } else { 1 };
    let final_cell = attrs.get("final_cell").is_some() && attrs.flag("final_cell");
    let reverse = attrs.text("direction") != "forward";
    let steps = match operands.first() {
        Some(&input) => call.graph().ty(input).shape[0].clone(),
        None => return Err(call.invalid("a recurrent layer has no input")),
    };
    let states = call.add(op, attrs, operands)?;
    let all = take_axis(call, states, 0, Dim::constant(0), steps.clone())?;
    let last = &steps - &Dim::constant(1);
    let hidden = last_states(call, states, (&last, directions, reverse))?;
    let hidden = without_steps(call, hidden)?;
    let cell = match final_cell {
        true => {
            let cell = take_axis(call, states, 0, steps, Dim::constant(1))?;
            Some(without_steps(call, cell)?)
        }
        false => None,
    };
    Ok(States { all, hidden, cell })
}

/// A state without its axis of one step.
fn without_steps(call: &mut impl Build, node: NodeId) -> Result<NodeId> {
    let shape = call.graph().ty(node).shape[1..].to_vec();
    call.reshape(node, &shape)
}

/// The state after the last step of each direction, `[1, directions, batch, hidden]`.
fn last_states(
    call: &mut impl Build,
    states: NodeId,
    (last, directions, reverse): (&Dim, i64, bool),
) -> Result<NodeId> {
    let one = Dim::constant(1);
    let first = Dim::constant(0);
    if directions == 1 {
        let step = if reverse { first } else { last.clone() };
        return take_axis(call, states, 0, step, one);
    }
    let mut parts = Vec::new();
    for (direction, step) in [last.clone(), first].into_iter().enumerate() {
        let part = take_axis(call, states, 0, step, one.clone())?;
        parts.push(take_axis(call, part, 1, Dim::from(direction), one.clone())?);
    }
    call.add("concat", attrs! { axis: 1i64 }, &parts)
}
