//! Recurrent layers: products of the whole input, then a loop over time.

use fornax_bundle::Dim;

use super::cell::{
    Cell, Cells, Layer, Sizes, directions, product, require_activations, require_types, reverse,
};
use super::domain::Domain;
use super::recurrence::nth;
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, Attrs, Diagnostic, NodeId, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "lstm",
        arity: Arity::AtLeast(6),
        attrs: &[
            ("direction", AttrKind::Text),
            ("activations", AttrKind::Text),
            ("input_forget", AttrKind::Bool),
            ("final_cell", AttrKind::Bool),
        ],
        infer: |ctx| infer(ctx, Cell::Lstm),
        eval: eval_real!(eval_lstm),
        class: OpClass::Composite(|ctx, to| expand(ctx, to, Cell::Lstm)),
        doc: "A layer of long short-term memory, of `x: [T, B, I]`, `w: [D, 4 * H, I]`, `r: [D, 4 * H, H]`, \
              `b: [D, 8 * H]` (of the input, then recurrent), `h0: [D, B, H]`, `c0: [D, B, H]` and, \
              optionally, peephole weights `p: [D, 3 * H]` of the gates i, o, f. With `X = x[t]`, gates in \
              the order i, o, f, c and functions f, g, h: `i = f(X Wi' + H Ri' + pi * C + bi)`, `f` alike, or \
              `1 - i` with `input_forget`, `c = g(X Wc' + H Rc' + bc)`, `C = f * C + i * c`, \
              `o = f(X Wo' + H Ro' + po * C + bo)`, `H = o * h(C)`. Gives `H` after each step, \
              `[T, D, B, H]`; with `final_cell` the last `C` follows as one more step. Floats narrower than \
              32 bits are computed in `f32`. (C1) All are of one float type. (C2) The shapes are these. \
              (C3) `direction` is `forward`, `reverse` (D is 1) or `bidirectional` (D is 2). \
              (C4) `activations` names three functions of one float, with commas between. Source: ONNX \
              LSTM, opset 22.",
    },
    OpDef {
        name: "gru",
        arity: Arity::Exactly(5),
        attrs: &[
            ("direction", AttrKind::Text),
            ("activations", AttrKind::Text),
            ("linear_before_reset", AttrKind::Bool),
        ],
        infer: |ctx| infer(ctx, Cell::Gru),
        eval: eval_real!(eval_gru),
        class: OpClass::Composite(|ctx, to| expand(ctx, to, Cell::Gru)),
        doc: "A layer of gated recurrent units, of `x: [T, B, I]`, `w: [D, 3 * H, I]`, `r: [D, 3 * H, H]`, \
              `b: [D, 6 * H]` (of the input, then recurrent) and `h0: [D, B, H]`. With `X = x[t]`, gates in \
              the order z, r, h and functions f, g: `z = f(X Wz' + H Rz' + wz + rz)`, `r` alike, \
              `h = g(X Wh' + (r * H) Rh' + rh + wh)`, or `g(X Wh' + r * (H Rh' + rh) + wh)` with \
              `linear_before_reset`, `H = (1 - z) * h + z * H`. Gives `H` after each step, `[T, D, B, H]`. \
              Floats narrower than 32 bits are computed in `f32`. (C1) All are of one float type. (C2) The \
              shapes are these. (C3) `direction` as for `lstm`. (C4) `activations` names two functions. \
              Source: ONNX GRU, opset 22.",
    },
    OpDef {
        name: "rnn",
        arity: Arity::Exactly(5),
        attrs: &[("direction", AttrKind::Text), ("activations", AttrKind::Text)],
        infer: |ctx| infer(ctx, Cell::Rnn),
        eval: eval_real!(eval_rnn),
        class: OpClass::Composite(|ctx, to| expand(ctx, to, Cell::Rnn)),
        doc: "A plain recurrent layer, of `x: [T, B, I]`, `w: [D, H, I]`, `r: [D, H, H]`, `b: [D, 2 * H]` (of \
              the input, then recurrent) and `h0: [D, B, H]`: with `X = x[t]`, `H = f(X W' + H R' + wb + rb)`. \
              Gives `H` after each step, `[T, D, B, H]`. Floats narrower than 32 bits are computed in `f32`. \
              (C1) All are of one float type. (C2) The shapes are these. (C3) `direction` as for `lstm`. \
              (C4) `activations` names one function. Source: ONNX RNN, opset 22.",
    },
];

fn infer(ctx: &OpCtx<'_>, cell: Cell) -> Result<Type, Violation> {
    let (x, weight) = (ctx.first(), &ctx.operands[2]);
    Domain::Float.require(x.dtype, "C1")?;
    let count = directions(ctx)?;
    require_activations(ctx, cell)?;
    require(x.rank() == 3 && weight.rank() == 3, "C2", || {
        format!("{x} and {weight} are not both of rank 3")
    })?;
    let [steps, batch, input] = [0, 1, 2].map(|axis| x.shape[axis].clone());
    let (direction, hidden) = (Dim::from(count), weight.shape[2].clone());
    let times = |count: usize| &hidden * &Dim::from(count);
    let gates = times(cell.gates());
    let state = vec![direction.clone(), batch.clone(), hidden.clone()];
    let mut expected = vec![
        ("input", vec![steps.clone(), batch.clone(), input.clone()]),
        ("weight", vec![direction.clone(), gates.clone(), input]),
        ("recurrent weight", vec![direction.clone(), gates, hidden.clone()]),
        ("bias", vec![direction.clone(), times(2 * cell.gates())]),
    ];
    expected.extend(vec![("initial state", state); cell.states()]);
    if cell == Cell::Lstm && ctx.operands.len() > 6 {
        expected.push(("peephole weight", vec![direction.clone(), times(3)]));
    }
    require_types(ctx, &expected)?;
    let steps = steps + Dim::constant(cell.extra_steps(ctx.attrs));
    Ok(Type::new(x.dtype, vec![steps, direction, batch, hidden]))
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
    let &[_, directions, batch, hidden] = ctx.shape else {
        unreachable!("invariant: inference gives four axes")
    };
    let (steps, features) = (operands[0].shape()[0], operands[0].shape()[2]);
    let sizes = Sizes { steps, hidden };
    let own = cell.gates() * hidden;
    let after_reset = cell == Cell::Gru && ctx.attrs.flag("linear_before_reset");
    let mut result = vec![T::zero(); ctx.shape.iter().product()];
    for (direction, reverse) in reverse(ctx.attrs).into_iter().enumerate() {
        let of = |number: usize| -> &[T] { nth(data(number), direction, directions) };
        let (input_bias, recurrent_bias) = of(3).split_at(own);
        let bias = |at: usize| match after_reset && at >= 2 * hidden {
            true => input_bias[at],
            false => input_bias[at] + recurrent_bias[at],
        };
        let parameters = match cell {
            Cell::Gru if after_reset => Some(&recurrent_bias[2 * hidden..]),
            Cell::Lstm if operands.len() > 6 => Some(of(6)),
            _ => None,
        };
        let layer = Layer { weight: of(2), parameters };
        let mut states: Vec<Vec<T>> =
            (0..cell.states()).map(|state| of(4 + state).to_vec()).collect();
        let inputs = |step: usize| -> Vec<T> {
            let x = &data(0)[step * batch * features..][..batch * features];
            let sums = match features {
                0 => vec![T::zero(); batch * own],
                _ => product(x, of(1), features),
            };
            sums.iter().enumerate().map(|(at, &sum)| sum + bias(at % own)).collect()
        };
        let each = batch * hidden;
        let mut write = |step: usize, state: &[T]| {
            result[(step * directions + direction) * each..][..each].copy_from_slice(state);
        };
        cells.run((sizes, reverse), &layer, &mut states, inputs, &mut write);
        if cell.extra_steps(ctx.attrs) > 0 {
            write(steps, &states[1]);
        }
    }
    Value::Float(Array::new(ctx.shape, result))
}

/// The input's products of all steps at once, then the loop.
fn expand(ctx: &OpCtx<'_>, to: &mut Expansion<'_>, cell: Cell) -> Result<NodeId, Diagnostic> {
    let operands = to.operands.iter().map(|&operand| to.widened(operand));
    let operands: Vec<NodeId> = operands.collect::<Result<_, _>>()?;
    let [x, weight, recurrent, bias] = [operands[0], operands[1], operands[2], operands[3]];
    let mut parameters: Vec<NodeId> = operands[4 + cell.states()..].to_vec();

    let weight_shape = to.ty(weight).shape;
    let (direction, gates, input) = (&weight_shape[0], &weight_shape[1], &weight_shape[2]);
    let all = direction * gates;
    let flat = to.reshape(weight, vec![all.clone(), input.clone()])?;
    let columns = to.add("transpose", attrs! { perm: &[1i64, 0][..] }, &[flat])?;
    let products = to.add("matmul", Attrs::none(), &[x, columns])?;

    let of_input = part(to, bias, &Dim::constant(0), gates)?;
    let mut of_recurrence = part(to, bias, gates, gates)?;
    if cell == Cell::Gru && ctx.attrs.flag("linear_before_reset") {
        // The hidden gate's recurrent bias is added within the loop.
        let hidden = &to.ty(recurrent).shape[2].clone();
        let before = hidden * &Dim::constant(2);
        parameters.push(part(to, of_recurrence, &before, hidden)?);
        let others = part(to, of_recurrence, &Dim::constant(0), &before)?;
        let shape = vec![direction.clone(), hidden.clone()];
        let zero = to.with_shape(of_recurrence, 0.0, shape)?;
        of_recurrence = to.add("concat", attrs! { axis: 1i64 }, &[others, zero])?;
    }
    let bias = to.binary("add", of_input, of_recurrence)?;
    let bias = to.reshape(bias, vec![all])?;
    let inputs = to.binary("add", products, bias)?;

    let mut loop_operands = vec![inputs, recurrent];
    loop_operands.extend(&operands[4..4 + cell.states()]);
    loop_operands.extend(parameters);
    let name = match cell {
        Cell::Lstm => "lstm_recurrence",
        Cell::Gru => "gru_recurrence",
        Cell::Rnn => "rnn_recurrence",
    };
    let states = to.add(name, ctx.attrs.clone(), &loop_operands)?;
    let result = to.add("transpose", attrs! { perm: &[0i64, 2, 1, 3][..] }, &[states])?;
    to.cast(result, ctx.first().dtype)
}

/// `size` positions of axis 1 of a matrix, from `start` on.
fn part(to: &mut Expansion<'_>, x: NodeId, start: &Dim, size: &Dim) -> Result<NodeId, Diagnostic> {
    let rows = to.ty(x).shape[0].clone();
    let attrs = attrs! {
        starts: vec![Dim::constant(0), start.clone()],
        sizes: vec![rows, size.clone()],
        steps: &[1i64, 1][..],
    };
    to.add("slice", attrs, &[x])
}
