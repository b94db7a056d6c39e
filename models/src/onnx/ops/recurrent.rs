//! Recurrent layers: LSTM, GRU, RNN.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::movement::permute;
use crate::build::recurrent;
use crate::onnx::call::{Build as _, Call, Result, Value};

/// What tells the layers apart.
struct Layer {
    op: &'static str,
    gates: i64,
    /// Inputs of initial states, and of peephole weights.
    states: &'static [usize],
    peepholes: Option<usize>,
    activations: &'static [&'static str],
}

const LSTM: Layer = Layer {
    op: "lstm",
    gates: 4,
    states: &[5, 6],
    peepholes: Some(7),
    activations: &["Sigmoid", "Tanh", "Tanh"],
};

const GRU: Layer =
    Layer { op: "gru", gates: 3, states: &[5], peepholes: None, activations: &["Sigmoid", "Tanh"] };

const RNN: Layer =
    Layer { op: "rnn", gates: 1, states: &[5], peepholes: None, activations: &["Tanh"] };

/// Activations of ONNX that have no parameters, and the ops that they are.
const ACTIVATIONS: [(&str, &str); 5] = [
    ("Relu", "relu"),
    ("Sigmoid", "sigmoid"),
    ("Softplus", "softplus"),
    ("Softsign", "softsign"),
    ("Tanh", "tanh"),
];

/// LSTM: the hidden state after each step, the last hidden and the last cell state.
pub(in crate::onnx) fn lstm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let input_forget = call.flag("input_forget", false)?;
    let mut attrs = common(call, &LSTM)?;
    attrs.insert("input_forget", input_forget);
    attrs.insert("final_cell", call.wants(2));
    layer(call, &LSTM, attrs)
}

/// GRU: the hidden state after each step and the last one.
pub(in crate::onnx) fn gru(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let linear_before_reset = call.flag("linear_before_reset", false)?;
    let mut attrs = common(call, &GRU)?;
    attrs.insert("linear_before_reset", linear_before_reset);
    layer(call, &GRU, attrs)
}

/// RNN: the hidden state after each step and the last one.
pub(in crate::onnx) fn rnn(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let attrs = common(call, &RNN)?;
    layer(call, &RNN, attrs)
}

/// The attributes that all layers have.
fn common(call: &Call<'_, '_>, layer: &Layer) -> Result<Attrs> {
    let direction = call.text_or("direction", "forward")?;
    let directions = if direction == "bidirectional" { 2 } else { 1 };
    if call.float("clip")?.is_some_and(|clip| clip != 0.0) {
        return Err(call.unsupported("clipping the gates (`clip`) is not supported"));
    }
    // Activations with parameters are refused, others have none to take.
    call.ignore("activation_alpha");
    call.ignore("activation_beta");
    let defaults: Vec<String> =
        layer.activations.repeat(directions).into_iter().map(str::to_owned).collect();
    let names = call.text_list("activations")?.unwrap_or(defaults);
    let own = layer.activations.len();
    if names.len() != own * directions {
        return Err(call.invalid(format!(
            "{} activations for {directions} directions of {own} each",
            names.len()
        )));
    }
    if names.chunks(own).any(|other| other != &names[..own]) {
        return Err(call.unsupported("directions with different activations are not supported"));
    }
    let mut ops = Vec::new();
    for name in &names[..own] {
        match ACTIVATIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, op)) => ops.push(*op),
            None => {
                let known: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
                return Err(call.unsupported(format!(
                    "the activation {name:?} is not supported; supported are {}",
                    known.join(", ")
                )));
            }
        }
    }
    Ok(attrs! { direction: direction, activations: ops.join(",").as_str() })
}

fn layer(call: &mut Call<'_, '_>, layer: &Layer, attrs: Attrs) -> Result<Vec<Value>> {
    let batch_first = match call.int_or("layout", 0)? {
        0 => false,
        1 => true,
        other => return Err(call.invalid(format!("`layout` is {other}, not 0 or 1"))),
    };
    let directions: i64 = if attrs.text("direction") == "bidirectional" { 2 } else { 1 };
    let mut x = call.input(0)?;
    let (weight, recurrent) = (call.input(1)?, call.input(2)?);
    if call.graph().ty(x).rank() != 3 || call.graph().ty(recurrent).rank() != 3 {
        return Err(call.invalid("the input and the recurrent weight must have rank 3"));
    }
    if batch_first {
        x = permute(call, x, &[1, 0, 2])?;
    }
    let [steps, batch] = [0, 1].map(|axis| call.graph().ty(x).shape[axis].clone());
    let hidden = call.graph().ty(recurrent).shape[2].clone();
    if let Some(declared) = call.int("hidden_size")?
        && hidden != Dim::constant(declared)
    {
        let message = format!("`hidden_size` is {declared}, but the recurrent weight has {hidden}");
        return Err(call.invalid(message));
    }
    whole_sequences(call, &steps)?;

    let directions_size = Dim::constant(directions);
    let bias = [directions_size.clone(), &hidden * &Dim::constant(2 * layer.gates)];
    let bias = optional(call, 3, x, &bias)?;
    let mut operands = vec![x, weight, recurrent, bias];
    for &index in layer.states {
        let shape = [directions_size.clone(), batch.clone(), hidden.clone()];
        operands.push(match call.has(index) && batch_first {
            true => {
                let state = call.input(index)?;
                permute(call, state, &[1, 0, 2])?
            }
            false => optional(call, index, x, &shape)?,
        });
    }
    if let Some(index) = layer.peepholes
        && let Some(peepholes) = call.optional(index)?
    {
        operands.push(peepholes);
    }
    let states = recurrent::states(call, layer.op, attrs, &operands)?;
    let order = |all: [usize; 4]| if batch_first { all } else { [0, 1, 2, 3] };
    let mut outputs = vec![
        permute(call, states.all, &order([2, 0, 1, 3]))?.into(),
        state(call, states.hidden, batch_first)?.into(),
    ];
    if let Some(cell) = states.cell {
        outputs.push(state(call, cell, batch_first)?.into());
    }
    Ok(outputs)
}

/// An optional input, zeros where it is omitted.
fn optional(call: &mut Call<'_, '_>, index: usize, like: NodeId, shape: &[Dim]) -> Result<NodeId> {
    match call.optional(index)? {
        Some(node) => Ok(node),
        None => {
            let zero = call.scalar(call.graph().ty(like).dtype, 0.0);
            call.broadcast(zero, shape)
        }
    }
}

/// A state in the layout of the model.
fn state(call: &mut Call<'_, '_>, node: NodeId, batch_first: bool) -> Result<NodeId> {
    permute(call, node, if batch_first { &[1, 0, 2] } else { &[0, 1, 2] })
}

/// Lengths of the sequences are accepted where they are known to be whole.
fn whole_sequences(call: &Call<'_, '_>, steps: &Dim) -> Result<()> {
    if !call.has(4) {
        return Ok(());
    }
    let lengths = call.known(4).and_then(|known| known.ints());
    match (lengths, steps.as_const()) {
        (Some(lengths), Some(steps)) if lengths.iter().all(|&length| length == steps) => Ok(()),
        _ => {
            Err(call
                .unsupported("sequences of different lengths (`sequence_lens`) are not supported"))
        }
    }
}
