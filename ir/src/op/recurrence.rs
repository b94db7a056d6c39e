//! The loops over time that recurrent layers are made of; the input's products come before.

use fornax_bundle::{DType, Dim};

use super::cell::{
    Cell, Cells, Layer, Sizes, activation_bodies, directions, require_activations, require_types,
    reverse,
};
use super::{
    Arity, OpClass, OpCtx, OpDef, RecurrentForm, RecurrentPhase, Violation, require,
};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, ScalarExpr, Type, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "lstm_recurrence",
        arity: Arity::AtLeast(4),
        attrs: &[
            ("direction", AttrKind::Text),
            ("activations", AttrKind::Text),
            ("input_forget", AttrKind::Bool),
            ("final_cell", AttrKind::Bool),
        ],
        infer: |ctx| infer(ctx, Cell::Lstm),
        eval: eval_real!(eval_lstm),
        class: OpClass::Recurrent(lstm_form),
        doc: "The steps of `lstm` from `g: [T, B, D * 4 * H]`, the products of the input with the biases \
              added, `r: [D, 4 * H, H]`, `h0: [D, B, H]`, `c0: [D, B, H]` and, optionally, peephole weights \
              `p: [D, 3 * H]`: the hidden state after each step, `[T, B, D, H]`; with `final_cell` the last \
              cell state follows as one more step. (C1) All are `f32` or all `f64`. (C2) The shapes are \
              these. (C3) `direction` is `forward`, `reverse` (D is 1) or `bidirectional` (D is 2). \
              (C4) `activations` names three functions of one float, with commas between. Source: ONNX \
              LSTM, opset 22.",
    },
    OpDef {
        name: "gru_recurrence",
        arity: Arity::AtLeast(3),
        attrs: &[
            ("direction", AttrKind::Text),
            ("activations", AttrKind::Text),
            ("linear_before_reset", AttrKind::Bool),
        ],
        infer: |ctx| infer(ctx, Cell::Gru),
        eval: eval_real!(eval_gru),
        class: OpClass::Recurrent(gru_form),
        doc: "The steps of `gru` from `g: [T, B, D * 3 * H]`, the products of the input with the biases \
              added, `r: [D, 3 * H, H]`, `h0: [D, B, H]` and, with `linear_before_reset`, the recurrent bias \
              of the hidden gate `b: [D, H]`, which is not in `g` then: the hidden state after each step, \
              `[T, B, D, H]`. (C1) All are `f32` or all `f64`. (C2) The shapes are these. (C3) `direction` \
              as for `lstm_recurrence`. (C4) `activations` names two functions. Source: ONNX GRU, opset 22.",
    },
    OpDef {
        name: "rnn_recurrence",
        arity: Arity::Exactly(3),
        attrs: &[("direction", AttrKind::Text), ("activations", AttrKind::Text)],
        infer: |ctx| infer(ctx, Cell::Rnn),
        eval: eval_real!(eval_rnn),
        class: OpClass::Recurrent(rnn_form),
        doc: "The steps of `rnn` from `g: [T, B, D * H]`, the products of the input with the biases added, \
              `r: [D, H, H]` and `h0: [D, B, H]`: the hidden state after each step, `[T, B, D, H]`. \
              (C1) All are `f32` or all `f64`. (C2) The shapes are these. (C3) `direction` as for \
              `lstm_recurrence`. (C4) `activations` names one function. Source: ONNX RNN, opset 22.",
    },
];

fn infer(ctx: &OpCtx<'_>, cell: Cell) -> Result<Type, Violation> {
    let dtype = ctx.first().dtype;
    require(matches!(dtype, DType::F32 | DType::F64), "C1", || {
        format!("{dtype} is not f32 or f64")
    })?;
    let count = directions(ctx)?;
    require_activations(ctx, cell)?;
    let (x, weight) = (ctx.first(), &ctx.operands[1]);
    require(x.rank() == 3 && weight.rank() == 3, "C2", || {
        format!("{x} and {weight} are not both of rank 3")
    })?;
    let (steps, batch, hidden) = (&x.shape[0], &x.shape[1], &weight.shape[2]);
    let direction = Dim::from(count);
    let gates = hidden * &Dim::from(cell.gates());
    let parameters = match parameters(ctx, cell) {
        0 => None,
        each => Some(("parameter", vec![direction.clone(), hidden * &Dim::from(each)])),
    };
    let state = vec![direction.clone(), batch.clone(), hidden.clone()];
    let mut expected = vec![
        ("input", vec![steps.clone(), batch.clone(), &direction * &gates]),
        ("recurrent weight", vec![direction.clone(), gates, hidden.clone()]),
    ];
    expected.extend(vec![("initial state", state); cell.states()]);
    expected.extend(parameters);
    require_types(ctx, &expected)?;
    let steps = steps + &Dim::constant(cell.extra_steps(ctx.attrs));
    Ok(Type::new(dtype, vec![steps, batch.clone(), direction, hidden.clone()]))
}

/// The number of parameters of a hidden unit.
fn parameters(ctx: &OpCtx<'_>, cell: Cell) -> usize {
    match cell {
        Cell::Lstm if ctx.operands.len() > 4 => 3,
        Cell::Gru if ctx.attrs.flag("linear_before_reset") => 1,
        _ => 0,
    }
}

fn eval_lstm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval(Cell::Lstm, ctx, operands)
}

fn eval_gru<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval(Cell::Gru, ctx, operands)
}

fn eval_rnn<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval(Cell::Rnn, ctx, operands)
}

fn eval<T: Real>(cell: Cell, ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let cells = Cells::new(cell, ctx);
    let data = |number: usize| &operands[number].float().data[..];
    let &[_, batch, directions, hidden] = ctx.shape else {
        unreachable!("invariant: inference gives four axes")
    };
    let sizes = Sizes { steps: operands[0].shape()[0], hidden };
    let (own, all) = (cell.gates() * hidden, directions * cell.gates() * hidden);
    let mut result = vec![T::zero(); ctx.shape.iter().product()];
    for (direction, reverse) in reverse(ctx.attrs).into_iter().enumerate() {
        let of = |values| -> &[T] { nth(values, direction, directions) };
        let first_parameter = 2 + cell.states();
        let layer = Layer {
            weight: of(data(1)),
            parameters: (operands.len() > first_parameter).then(|| of(data(first_parameter))),
        };
        let mut states: Vec<Vec<T>> =
            (0..cell.states()).map(|state| of(data(2 + state)).to_vec()).collect();
        let mut write = |step: usize, state: &[T]| {
            for at in 0..batch * hidden {
                let row = (step * batch + at / hidden) * directions + direction;
                result[row * hidden + at % hidden] = state[at];
            }
        };
        let inputs = |step: usize| -> Vec<T> {
            let rows = (0..batch).map(|row| (step * batch + row) * all + direction * own);
            rows.flat_map(|start| data(0)[start..][..own].to_vec()).collect()
        };
        cells.run((sizes, reverse), &layer, &mut states, inputs, &mut write);
        if cell.extra_steps(ctx.attrs) > 0 {
            write(sizes.steps, &states[1]);
        }
    }
    Value::Float(Array::new(ctx.shape, result))
}

/// One of `count` equal parts.
pub(super) fn nth<T>(values: &[T], number: usize, count: usize) -> &[T] {
    let each = values.len() / count;
    &values[number * each..][..each]
}

/// The form with the sizes, and the names of the arguments of its expressions.
fn form(ctx: &OpCtx<'_>, cell: Cell) -> (RecurrentForm, Args) {
    let (x, weight) = (ctx.first(), &ctx.operands[1]);
    let form = RecurrentForm {
        steps: x.shape[0].clone(),
        batch: x.shape[1].clone(),
        hidden: weight.shape[2].clone(),
        reverse: reverse(ctx.attrs),
        gates: cell.gates(),
        states: cell.states(),
        parameters: parameters(ctx, cell),
        phases: Vec::new(),
        last: None,
    };
    let args = Args { dtype: x.dtype, gates: cell.gates(), states: cell.states() };
    (form, args)
}

/// The arguments of a phase's expressions.
#[derive(Debug, Clone, Copy)]
struct Args {
    dtype: DType,
    gates: usize,
    states: usize,
}

impl Args {
    fn input(self, gate: usize) -> ScalarExpr {
        ScalarExpr::arg(gate)
    }

    fn sum(self, gate: usize) -> ScalarExpr {
        ScalarExpr::arg(self.gates + gate)
    }

    /// What comes in and the recurrent sum together.
    fn both(self, gate: usize) -> ScalarExpr {
        self.input(gate) + self.sum(gate)
    }

    fn state(self, number: usize) -> ScalarExpr {
        ScalarExpr::arg(2 * self.gates + number)
    }

    fn parameter(self, number: usize) -> ScalarExpr {
        ScalarExpr::arg(2 * self.gates + self.states + number)
    }

    fn one(self) -> ScalarExpr {
        ScalarExpr::number(self.dtype, 1.0)
    }
}

fn lstm_form(ctx: &OpCtx<'_>) -> RecurrentForm {
    let (mut form, args) = form(ctx, Cell::Lstm);
    let functions = activation_bodies(ctx);
    let apply = |number: usize, x: ScalarExpr| functions[number].applied(&[x]);
    let gate = |number: usize, peephole: usize, cell: &ScalarExpr| {
        let sum = args.both(number);
        let sum = match form.parameters {
            0 => sum,
            _ => sum + args.parameter(peephole) * cell.clone(),
        };
        apply(0, sum)
    };
    let before = args.state(1);
    let input = gate(0, 0, &before);
    let forget = match ctx.attrs.flag("input_forget") {
        true => args.one() - input.clone(),
        false => gate(2, 2, &before),
    };
    let cell = forget * before + input * apply(1, args.both(3));
    let hidden = gate(1, 1, &cell) * apply(2, cell.clone());
    form.phases = vec![RecurrentPhase { gates: 0..4, results: vec![hidden, cell] }];
    form.last = ctx.attrs.flag("final_cell").then_some(1);
    form
}

fn gru_form(ctx: &OpCtx<'_>) -> RecurrentForm {
    let (mut form, args) = form(ctx, Cell::Gru);
    let functions = activation_bodies(ctx);
    let apply = |number: usize, x: ScalarExpr| functions[number].applied(&[x]);
    let (update, reset) = (apply(0, args.both(0)), apply(0, args.both(1)));
    let (gates, hidden) = match ctx.attrs.flag("linear_before_reset") {
        true => (0..3, args.input(2) + reset.clone() * (args.sum(2) + args.parameter(0))),
        false => (2..3, args.both(2)),
    };
    if gates.start > 0 {
        let published = reset * args.state(0);
        form.phases.push(RecurrentPhase { gates: 0..2, results: vec![published] });
    }
    let new = apply(1, hidden);
    let result = (args.one() - update.clone()) * new + update * args.state(0);
    form.phases.push(RecurrentPhase { gates, results: vec![result] });
    form
}

fn rnn_form(ctx: &OpCtx<'_>) -> RecurrentForm {
    let (mut form, args) = form(ctx, Cell::Rnn);
    let function = activation_bodies(ctx).remove(0);
    let result = function.applied(&[args.both(0)]);
    form.phases = vec![RecurrentPhase { gates: 0..1, results: vec![result] }];
    form
}
