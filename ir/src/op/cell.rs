//! What the recurrent ops share: directions, activations, and the oracle of a cell.
//!
//! Gates are in the order of ONNX: input, output, forget, cell for LSTM; update, reset, hidden for GRU.

use fornax_bundle::{DType, Dim, Dims};

use super::{Arity, OpClass, OpCtx, OpDef, OpRef, Violation, by_name, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{Attrs, ScalarExpr, Type};

/// A kind of recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Lstm,
    Gru,
    Rnn,
}

impl Cell {
    /// The number of gates.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Rnn => 1,
        }
    }

    /// The number of states, the hidden one first.
    pub fn states(self) -> usize {
        if self == Cell::Lstm { 2 } else { 1 }
    }

    /// The number of activations.
    pub fn activations(self) -> usize {
        match self {
            Cell::Lstm => 3,
            Cell::Gru => 2,
            Cell::Rnn => 1,
        }
    }

    /// The number of steps that the final cell state takes in the result.
    pub fn extra_steps(self, attrs: &Attrs) -> i64 {
        i64::from(self == Cell::Lstm && attrs.flag("final_cell"))
    }
}

/// For each direction, whether it goes from the last step to the first; nothing for an unknown word.
pub(super) fn reversals(direction: &str) -> Option<Vec<bool>> {
    match direction {
        "forward" => Some(vec![false]),
        "reverse" => Some(vec![true]),
        "bidirectional" => Some(vec![false, true]),
        _ => None,
    }
}

/// [`reversals`] of a node, where inference has checked the word.
pub(super) fn reverse(attrs: &Attrs) -> Vec<bool> {
    reversals(attrs.text("direction")).expect("invariant: inference checks the direction")
}

/// The number of directions, for the violated constraint `(C3)` if it is none.
pub(super) fn directions(ctx: &OpCtx<'_>) -> Result<usize, Violation> {
    let word = ctx.attrs.text("direction");
    let reverse = reversals(word).ok_or_else(|| {
        let message =
            format!("`{word}` is no direction: use `forward`, `reverse` or `bidirectional`");
        Violation::new("C3", message)
    })?;
    Ok(reverse.len())
}

/// Requires `(C4)` activations for a cell in domain order.
pub(super) fn require_activations(ctx: &OpCtx<'_>, cell: Cell) -> Result<(), Violation> {
    let names: Vec<&str> = ctx.attrs.text("activations").split(',').collect();
    require(names.len() == cell.activations(), "C4", || {
        format!("{} activations instead of {}", names.len(), cell.activations())
    })?;
    for name in names {
        require(activation(name).is_some(), "C4", || {
            format!("`{name}` is no function of one float without attributes")
        })?;
    }
    Ok(())
}

/// The op that is an activation: pointwise, of one float that gives a float, without attributes.
fn activation(name: &str) -> Option<&'static OpDef> {
    let def = by_name(name).map(OpRef::def)?;
    let float = [Type::new(DType::F32, Vec::<Dim>::new())];
    let ctx = OpCtx { attrs: &Attrs::none(), operands: &float };
    let is_function = matches!(def.class, OpClass::Pointwise(_))
        && def.arity == Arity::Exactly(1)
        && def.attrs.is_empty();
    (is_function && (def.infer)(&ctx).is_ok_and(|ty| ty == float[0])).then_some(def)
}

fn activations(attrs: &Attrs) -> Vec<&'static OpDef> {
    let find = |name| activation(name).expect("invariant: inference checks activations");
    attrs.text("activations").split(',').map(find).collect()
}

/// The activations as scalar functions of one argument, for lowering.
pub(super) fn activation_bodies(ctx: &OpCtx<'_>) -> Vec<ScalarExpr> {
    let float = [Type::new(ctx.first().dtype, Vec::<Dim>::new())];
    let of = OpCtx { attrs: &Attrs::none(), operands: &float };
    let body = |def: &'static OpDef| match &def.class {
        OpClass::Pointwise(body) => body(&of),
        class => unreachable!("invariant: an activation is pointwise, not {class:?}"),
    };
    activations(ctx.attrs).into_iter().map(body).collect()
}

/// The operands' types: `(C1)` one element type, `(C2)` the shapes, whatever the sizes stand for.
pub(super) fn require_types(
    ctx: &OpCtx<'_>,
    expected: &[(&str, Vec<Dim>)],
) -> Result<(), Violation> {
    let dtype = ctx.first().dtype;
    for ty in ctx.operands {
        require(ty.dtype == dtype, "C1", || {
            format!("element types {dtype} and {} differ", ty.dtype)
        })?;
    }
    require(ctx.operands.len() == expected.len(), "C2", || {
        format!("{} operands instead of {}", ctx.operands.len(), expected.len())
    })?;
    for (ty, (name, shape)) in ctx.operands.iter().zip(expected) {
        let wanted = Type::new(dtype, shape.as_slice());
        require(*ty == wanted, "C2", || format!("the {name} is {ty}, not {wanted}"))?;
    }
    Ok(())
}

/// The sizes of a layer as numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub steps: usize,
    pub hidden: usize,
}

/// One direction of a layer: recurrent weight `[gates * hidden, hidden]`, and what else its cell needs.
pub(super) struct Layer<'a, T> {
    pub weight: &'a [T],
    /// LSTM: the peephole weights of input, output and forget gate. GRU with the reset after the product:
    /// the recurrent bias of the hidden gate.
    pub parameters: Option<&'a [T]>,
}

/// Rows `[count, inner]` times the transposed weight `[outer, inner]`.
pub(super) fn product<T: Real>(rows: &[T], weight: &[T], inner: usize) -> Vec<T> {
    let count = rows.len().checked_div(inner).unwrap_or(0);
    let outer = weight.len().checked_div(inner).unwrap_or(0);
    let mut sums = Vec::with_capacity(count * outer);
    for row in rows.chunks_exact(inner.max(1)) {
        for column in weight.chunks_exact(inner.max(1)) {
            sums.push(row.iter().zip(column).fold(T::zero(), |sum, (&x, &w)| sum + x * w));
        }
    }
    sums
}

/// The cells of a node: the function of all elements of each activation, and the switches.
pub(super) struct Cells<'a> {
    cell: Cell,
    attrs: &'a Attrs,
    dtype: DType,
    activations: Vec<&'static OpDef>,
}

impl<'a> Cells<'a> {
    pub fn new(cell: Cell, ctx: &EvalCtx<'a>) -> Cells<'a> {
        let (attrs, dtype) = (ctx.attrs, ctx.result.dtype);
        Cells { cell, attrs, dtype, activations: activations(attrs) }
    }

    fn activate<T: Real>(&self, number: usize, x: Vec<T>) -> Vec<T> {
        let shape = [x.len()];
        let ty = Type::new(self.dtype, shape.as_slice());
        let (attrs, dims) = (Attrs::none(), Dims::new());
        let operands = [ty.clone()];
        let ctx =
            EvalCtx { attrs: &attrs, operands: &operands, result: &ty, shape: &shape, dims: &dims };
        let function = T::evaluation(&self.activations[number].eval)
            .expect("invariant: pointwise ops are evaluated over reals");
        match function(&ctx, &[&Value::Float(Array::new(shape, x))]) {
            Value::Float(array) => array.data,
            Value::Int(_) => unreachable!("invariant: an activation gives a float"),
        }
    }

    /// One step: `inputs` `[batch, gates * hidden]` and the states, each `[batch, hidden]`.
    fn step<T: Real>(
        &self,
        hidden: usize,
        layer: &Layer<'_, T>,
        inputs: &[T],
        states: &mut [Vec<T>],
    ) {
        match self.cell {
            Cell::Rnn => {
                let sums = added(inputs, &product(&states[0], layer.weight, hidden));
                states[0] = self.activate(0, sums);
            }
            Cell::Gru => states[0] = self.gru(hidden, layer, inputs, &states[0]),
            Cell::Lstm => {
                let sums = added(inputs, &product(&states[0], layer.weight, hidden));
                let (h, c) = self.lstm(hidden, layer, &sums, &states[1]);
                states[0] = h;
                states[1] = c;
            }
        }
    }

    /// The elements of one gate.
    fn gate<T: Real>(&self, hidden: usize, values: &[T], number: usize) -> Vec<T> {
        let each = values.chunks_exact((self.cell.gates() * hidden).max(1));
        each.flat_map(|row| row[number * hidden..][..hidden].to_vec()).collect()
    }

    fn gru<T: Real>(&self, hidden: usize, layer: &Layer<'_, T>, inputs: &[T], h: &[T]) -> Vec<T> {
        let rows = |number: usize| &layer.weight[number * hidden * hidden..][..hidden * hidden];
        let [z, r] = [0, 1].map(|number| {
            let sums = product(h, rows(number), hidden);
            self.activate(0, added(&self.gate(hidden, inputs, number), &sums))
        });
        let recurrent = if self.attrs.flag("linear_before_reset") {
            let bias = layer.parameters.expect("invariant: inference checks the bias");
            let sums = product(h, rows(2), hidden);
            let sums: Vec<T> =
                sums.iter().enumerate().map(|(at, &sum)| sum + bias[at % hidden]).collect();
            times(&r, &sums)
        } else {
            product(&times(&r, h), rows(2), hidden)
        };
        let new = self.activate(1, added(&self.gate(hidden, inputs, 2), &recurrent));
        let one = T::from_i64(1);
        let kept = z.iter().zip(new.iter().zip(h));
        kept.map(|(&z, (&new, &h))| (one - z) * new + z * h).collect()
    }

    /// The hidden and the cell state after a step. `sums`: of all gates.
    fn lstm<T: Real>(
        &self,
        hidden: usize,
        layer: &Layer<'_, T>,
        sums: &[T],
        before: &[T],
    ) -> (Vec<T>, Vec<T>) {
        let gate = |number: usize, peephole: usize, c: &[T]| -> Vec<T> {
            let sums = self.gate(hidden, sums, number);
            let Some(weights) = layer.parameters else { return self.activate(0, sums) };
            let weights = &weights[peephole * hidden..][..hidden];
            let each = sums.iter().zip(c).enumerate();
            self.activate(0, each.map(|(at, (&sum, &c))| sum + weights[at % hidden] * c).collect())
        };
        let i = gate(0, 0, before);
        let f = match self.attrs.flag("input_forget") {
            true => i.iter().map(|&i| T::from_i64(1) - i).collect(),
            false => gate(2, 2, before),
        };
        let new = self.activate(1, self.gate(hidden, sums, 3));
        let c = added(&times(&f, before), &times(&i, &new));
        let o = gate(1, 1, &c);
        (times(&o, &self.activate(2, c.clone())), c)
    }

    /// All steps of one direction. `inputs`: what comes in at a step; `store`: takes the hidden state after it.
    pub fn run<T: Real>(
        &self,
        (sizes, reverse): (Sizes, bool),
        layer: &Layer<'_, T>,
        states: &mut [Vec<T>],
        inputs: impl Fn(usize) -> Vec<T>,
        mut store: impl FnMut(usize, &[T]),
    ) {
        for number in 0..sizes.steps {
            let step = if reverse { sizes.steps - 1 - number } else { number };
            self.step(sizes.hidden, layer, &inputs(step), states);
            store(step, &states[0]);
        }
    }
}

fn added<T: Real>(a: &[T], b: &[T]) -> Vec<T> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

fn times<T: Real>(a: &[T], b: &[T]) -> Vec<T> {
    a.iter().zip(b).map(|(&a, &b)| a * b).collect()
}
