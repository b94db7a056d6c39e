//! Recurrent layers: lstm, gru, rnn_tanh, rnn_relu.

use fornax_ir::{Dim, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result};
use crate::aten::{Handle, Item};
use crate::build::movement::{join, permute, take_axis};
use crate::build::recurrent::states;

/// What tells the layers apart.
struct Layer {
    op: &'static str,
    /// For each gate of the op, its place among PyTorch's.
    gates: &'static [usize],
    activations: &'static str,
    /// Hidden state, and cell.
    state_count: usize,
}

/// PyTorch has the gates i, f, g, o; the op i, o, f, c.
const LSTM: Layer =
    Layer { op: "lstm", gates: &[0, 3, 1, 2], activations: "sigmoid,tanh,tanh", state_count: 2 };

/// PyTorch has the gates r, z, n; the op z, r, h.
const GRU: Layer =
    Layer { op: "gru", gates: &[1, 0, 2], activations: "sigmoid,tanh", state_count: 1 };

const TANH: Layer = Layer { op: "rnn", gates: &[0], activations: "tanh", state_count: 1 };

const RELU: Layer = Layer { op: "rnn", gates: &[0], activations: "relu", state_count: 1 };

/// lstm: output, last hidden states, last cells.
pub(in crate::aten) fn lstm(call: &mut Call<'_>) -> Result<Item> {
    let states = call.inputs("hx")?;
    layers(call, &LSTM, &states)
}

/// gru: output and last hidden states.
pub(in crate::aten) fn gru(call: &mut Call<'_>) -> Result<Item> {
    let state = call.input("hx")?;
    layers(call, &GRU, &[state])
}

/// rnn_tanh, rnn_relu: output and last hidden states.
pub(in crate::aten) fn rnn(call: &mut Call<'_>, relu: bool) -> Result<Item> {
    let state = call.input("hx")?;
    layers(call, if relu { &RELU } else { &TANH }, &[state])
}

fn layers(call: &mut Call<'_>, layer: &Layer, initial: &[NodeId]) -> Result<Item> {
    if call.flag("train")? && call.float("dropout")? != 0.0 {
        return Err(call
            .unsupported("dropout in training mode draws random numbers")
            .note("export the model after calling .eval()"));
    }
    let directions = if call.flag("bidirectional")? { 2 } else { 1 };
    let biases = call.flag("has_biases")?;
    let count = call.int("num_layers")?;
    let weights = call.inputs("params")?;
    let each = if biases { 4 } else { 2 };
    let expected = usize::try_from(count).unwrap_or(0).saturating_mul(directions * each);
    if weights.len() != expected || expected == 0 || initial.len() != layer.state_count {
        return Err(call.unsupported(format!(
            "{} weights for {count} layers (projections are not supported)",
            weights.len()
        )));
    }
    let batch_first = call.flag("batch_first")?;
    let mut input = call.input("input")?;
    if call.graph().ty(input).rank() != 3 {
        return Err(call.unsupported("a sequence without a batch axis"));
    }
    if batch_first {
        input = permute(call, input, &[1, 0, 2])?;
    }
    let mut last: Vec<Vec<NodeId>> = vec![Vec::new(); layer.state_count];
    for (index, weights) in weights.chunks(directions * each).enumerate() {
        let start = Dim::from(index * directions);
        let mut states = Vec::new();
        for &state in initial {
            states.push(take_axis(call, state, 0, start.clone(), Dim::from(directions))?);
        }
        let (output, ends) = one_layer(call, layer, input, (weights, each), &states)?;
        input = output;
        last.iter_mut().zip(ends).for_each(|(all, end)| all.push(end));
    }
    if batch_first {
        input = permute(call, input, &[1, 0, 2])?;
    }
    let mut items = vec![Handle::new(input).into()];
    for ends in last {
        items.push(Handle::new(join(call, &ends, 0)?).into());
    }
    Ok(Item::tuple(items))
}

/// The output of a layer, `[steps, batch, directions * hidden]`, and its last states.
fn one_layer(
    call: &mut Call<'_>,
    layer: &Layer,
    input: NodeId,
    (weights, each): (&[NodeId], usize),
    initial: &[NodeId],
) -> Result<(NodeId, Vec<NodeId>)> {
    let directions = weights.len() / each;
    let of_kind = |kind: usize| weights.iter().skip(kind).step_by(each).copied();
    let mut operands = vec![input];
    for kind in 0..2 {
        let ordered =
            of_kind(kind).map(|weight| gates(call, layer, weight)).collect::<Result<Vec<_>>>()?;
        operands.push(stacked(call, &ordered)?);
    }
    operands.push(bias(call, layer, (weights, each), operands[2])?);
    operands.extend(initial);
    let mut attrs = attrs! {
        direction: if directions == 2 { "bidirectional" } else { "forward" },
        activations: layer.activations,
    };
    match layer.op {
        "lstm" => {
            attrs.insert("input_forget", false);
            attrs.insert("final_cell", true);
        }
        "gru" => attrs.insert("linear_before_reset", true),
        _ => {}
    }
    let states = states(call, layer.op, attrs, &operands)?;
    let turned = permute(call, states.all, &[0, 2, 1, 3])?;
    let shape = call.graph().ty(turned).shape.clone();
    let output =
        call.reshape(turned, &[shape[0].clone(), shape[1].clone(), &shape[2] * &shape[3]])?;
    Ok((output, std::iter::once(states.hidden).chain(states.cell).collect()))
}

/// A weight or bias with its gates in the op's order.
fn gates(call: &mut Call<'_>, layer: &Layer, weight: NodeId) -> Result<NodeId> {
    if layer.gates.len() == 1 {
        return Ok(weight);
    }
    let rows = call.graph().ty(weight).shape.first().cloned();
    let rows = rows.and_then(|rows| rows.divided_exactly(&Dim::from(layer.gates.len())));
    let rows = rows.ok_or_else(|| call.invalid("a weight's rows are not those of the gates"))?;
    let mut parts = Vec::new();
    for &gate in layer.gates {
        parts.push(take_axis(call, weight, 0, &rows * &Dim::from(gate), rows.clone())?);
    }
    join(call, &parts, 0)
}

/// Weights of the directions along a new first axis.
fn stacked(call: &mut Call<'_>, nodes: &[NodeId]) -> Result<NodeId> {
    let mut parts = Vec::new();
    for &node in nodes {
        let shape = [&[Dim::constant(1)], &call.graph().ty(node).shape[..]].concat();
        parts.push(call.reshape(node, &shape)?);
    }
    join(call, &parts, 0)
}

/// The biases of the input and the recurrent product, one after the other; zeros where there are none.
fn bias(
    call: &mut Call<'_>,
    layer: &Layer,
    (weights, each): (&[NodeId], usize),
    recurrent: NodeId,
) -> Result<NodeId> {
    if each < 4 {
        let ty = call.graph().ty(recurrent).clone();
        let zero = call.scalar(ty.dtype, 0.0);
        return call.broadcast(zero, &[ty.shape[0].clone(), &ty.shape[1] * &Dim::constant(2)]);
    }
    let mut directions = Vec::new();
    for direction in weights.chunks(each) {
        let parts = [gates(call, layer, direction[2])?, gates(call, layer, direction[3])?];
        directions.push(join(call, &parts, 0)?);
    }
    stacked(call, &directions)
}
