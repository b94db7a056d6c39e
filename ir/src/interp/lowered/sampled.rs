//! Evaluating some elements of a graph's outputs, and of everything else only what these need.
//!
//! A walk backwards marks which elements of each value are wanted, a walk forwards computes them by the
//! ops' class data. This is what judging a model costs when evaluating all of it would take minutes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use fornax_bundle::{Dims, Tensor};

use super::super::bind::{check_shape, solve_symbols};
use super::super::interpreter::{check_dtype, sizes};
use super::super::{Array, Element, InterpError, Interpreter, Value};
use super::index::{Elements, Space, unflatten};
use super::{Form, Number, no_data};
use crate::op::{OpClass, OpCtx, OperandMap, SourceKind};
use crate::{Graph, Guard, IndexExpr, NodeId, Type};

/// Multiplications, additions and other functions of single elements that evaluating a graph takes, about.
///
/// The graph holds no composites ([`crate::op::expand_composites`]); `dims` has the values of its symbols.
///
/// # Errors
/// When a size has no value.
pub fn operations(graph: &Graph, dims: &Dims) -> Result<u64, InterpError> {
    let mut total = 0u64;
    for id in graph.nodes() {
        let (node, types) = (graph.node(id), graph.operand_types(id));
        let ctx = OpCtx { attrs: &node.attrs, operands: &types };
        let count = |shape: &[crate::Dim]| -> Result<u64, InterpError> {
            let sizes = sizes(node.op, &shape.iter().cloned().collect(), dims)?;
            Ok(sizes.iter().fold(1, |product, &size| product.saturating_mul(size as u64)))
        };
        let result = count(&node.ty.shape)?;
        let operations = match Form::of(node.op.class(), &ctx) {
            None => 0,
            Some(Form::Contraction(form)) => {
                let axes: Vec<crate::Dim> = form.axes.into_iter().map(|(size, _)| size).collect();
                count(&axes)?.saturating_mul(2)
            }
            Some(Form::Recurrent(form)) => {
                let outer = [form.steps, form.batch, form.hidden.clone(), form.hidden];
                let each = 2 * (form.reverse.len() * form.gates) as u64;
                count(&outer)?.saturating_mul(each)
            }
            Some(Form::Window(form)) => result.saturating_mul(count(&form.window)?),
            Some(Form::Reduce(_) | Form::Scan(_)) => count(&types[0].shape)?,
            Some(Form::Pointwise(_) | Form::Movement(_)) => result,
        };
        total = total.saturating_add(operations);
    }
    Ok(total)
}

/// The values of symbols that a graph's inputs imply.
///
/// # Errors
/// When the inputs do not fit the graph.
pub fn symbols(graph: &Graph, inputs: &[Tensor]) -> Result<Dims, InterpError> {
    let expected = graph.inputs().len();
    if inputs.len() != expected {
        return Err(InterpError::InputCount { expected, actual: inputs.len() });
    }
    let mut dims = Dims::new();
    let mut shapes: Vec<(&str, &Type, &[usize])> = Vec::new();
    for (&id, tensor) in graph.inputs().iter().zip(inputs) {
        check_dtype(graph.input_name(id), graph.ty(id), tensor)?;
        shapes.push((graph.input_name(id), graph.ty(id), tensor.shape()));
    }
    solve_symbols(&shapes, &mut dims)?;
    for (name, ty, shape) in shapes {
        check_shape(name, ty, shape, &dims)?;
    }
    Ok(dims)
}

/// Evaluates the elements of each output at row-major positions, in their order, as values of rank 1.
///
/// The graph holds no composites. Nothing comes back when more than `limit` elements would be read on the
/// way: ask for fewer, or for such that need the same ones.
///
/// # Errors
/// As [`super::super::evaluate`], and when class data contradicts itself (our bug).
///
/// # Panics
/// When there is not a list of samples for each output, or a position is outside it.
pub fn evaluate_samples<T: Element>(
    graph: &Graph,
    inputs: &[Tensor],
    weights: &BTreeMap<String, Tensor>,
    samples: &[Vec<usize>],
    limit: u64,
) -> Result<Option<Vec<Value<T>>>, InterpError> {
    assert_eq!(samples.len(), graph.outputs().len(), "invariant: samples for each output");
    let dims = symbols(graph, inputs)?;
    let mut sampler = Sampler::<T> { graph, dims, nodes: BTreeMap::new(), known: BTreeMap::new() };
    sampler.read_sources(inputs, weights)?;
    sampler.read_forms()?;
    sampler.evaluate_indices(inputs, weights)?;
    let Some(wanted) = sampler.wanted(samples, limit)? else { return Ok(None) };
    sampler.compute(wanted)?;
    let outputs = graph.outputs().iter().zip(samples);
    Ok(Some(outputs.map(|(output, positions)| sampler.sampled(output.value, positions)).collect()))
}

/// A node that is computed.
struct Computed {
    types: Vec<Type>,
    operands: Vec<NodeId>,
    form: Form,
}

struct Sampler<'g, T> {
    graph: &'g Graph,
    dims: Dims,
    nodes: BTreeMap<NodeId, Computed>,
    known: BTreeMap<NodeId, Known<T>>,
}

/// A value of which all wanted elements are known.
enum Known<T> {
    Tensor(Tensor),
    Iota { shape: Vec<usize>, axis: usize },
    Whole(Value<T>),
    Some { shape: Vec<usize>, positions: Positions, numbers: Vec<Number<T>> },
}

impl<T: Element> Elements<T> for Known<T> {
    fn shape(&self) -> &[usize] {
        match self {
            Known::Tensor(tensor) => tensor.shape(),
            Known::Iota { shape, .. } | Known::Some { shape, .. } => shape,
            Known::Whole(value) => value.shape(),
        }
    }

    fn number(&self, position: usize) -> Number<T> {
        match self {
            Known::Tensor(tensor) => match tensor.i64_at(position) {
                Some(integer) => Number::Int(integer),
                None => Number::Float(T::from_f64(tensor.f64_at(position))),
            },
            Known::Iota { shape, axis } => {
                let inner: usize = shape[axis + 1..].iter().product();
                Number::Int((position / inner % shape[*axis]) as i64)
            }
            Known::Whole(value) => value.number(position),
            Known::Some { positions, numbers, .. } => numbers[positions.rank(position)],
        }
    }
}

/// A value whose elements are only asked for: it notes which.
struct Wanted<'a, T> {
    shape: &'a [usize],
    positions: &'a RefCell<Positions>,
    reads: &'a Cell<u64>,
    /// What every element is taken to be.
    number: Number<T>,
}

impl<T: Element> Elements<T> for Wanted<'_, T> {
    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn number(&self, position: usize) -> Number<T> {
        self.reads.set(self.reads.get() + 1);
        self.positions.borrow_mut().insert(position);
        self.number
    }
}

impl<T: Element> Sampler<'_, T> {
    fn read_sources(
        &mut self,
        inputs: &[Tensor],
        weights: &BTreeMap<String, Tensor>,
    ) -> Result<(), InterpError> {
        let graph = self.graph;
        for (&id, tensor) in graph.inputs().iter().zip(inputs) {
            self.known.insert(id, Known::Tensor(tensor.clone()));
        }
        for id in graph.nodes() {
            let node = graph.node(id);
            let known = match node.op.class() {
                OpClass::Source(SourceKind::Weight) => {
                    let name = graph.input_name(id);
                    let tensor = weights.get(name).or_else(|| graph.weights().get(name));
                    let tensor = tensor.ok_or_else(|| InterpError::Weight(name.to_owned()))?;
                    check_dtype(name, &node.ty, tensor)?;
                    check_shape(name, &node.ty, tensor.shape(), &self.dims)?;
                    Known::Tensor(tensor.clone())
                }
                OpClass::Source(SourceKind::Constant) => {
                    Known::Tensor(node.attrs.tensor("value").clone())
                }
                OpClass::Source(SourceKind::Iota) => Known::Iota {
                    shape: sizes(node.op, &node.ty.shape, &self.dims)?,
                    axis: node.attrs.axis("axis"),
                },
                _ => continue,
            };
            self.known.insert(id, known);
        }
        Ok(())
    }

    fn read_forms(&mut self) -> Result<(), InterpError> {
        for id in self.graph.nodes().filter(|id| !self.known.contains_key(id)) {
            let (node, types) = (self.graph.node(id), self.graph.operand_types(id));
            let ctx = OpCtx { attrs: &node.attrs, operands: &types };
            let form = Form::of(node.op.class(), &ctx).ok_or_else(|| no_data(node.op))?;
            let operands = self.graph.operands(id);
            self.nodes.insert(id, Computed { types, operands, form });
        }
        Ok(())
    }

    /// Evaluates whole what other elements' positions depend on.
    fn evaluate_indices(
        &mut self,
        inputs: &[Tensor],
        weights: &BTreeMap<String, Tensor>,
    ) -> Result<(), InterpError> {
        let indices: BTreeSet<NodeId> = self
            .nodes
            .values()
            .flat_map(|node| index_operands(&node.form).into_iter().map(|at| node.operands[at]))
            .filter(|id| !self.known.contains_key(id))
            .collect();
        if indices.is_empty() {
            return Ok(());
        }
        let indices: Vec<NodeId> = indices.into_iter().collect();
        let values = Interpreter::<T>::new(self.graph, inputs, weights)?.values(&indices)?;
        for (id, value) in indices.into_iter().zip(values) {
            self.known.insert(id, Known::Whole(value));
        }
        Ok(())
    }

    /// Which elements of each value are wanted; nothing when that takes more than `limit` reads.
    fn wanted(
        &self,
        samples: &[Vec<usize>],
        limit: u64,
    ) -> Result<Option<BTreeMap<NodeId, Positions>>, InterpError> {
        let graph = self.graph;
        let mut wanted: BTreeMap<NodeId, RefCell<Positions>> = BTreeMap::new();
        let mut shapes: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for id in graph.nodes() {
            let shape = sizes(graph.node(id).op, &graph.ty(id).shape, &self.dims)?;
            wanted.insert(id, RefCell::new(Positions::none()));
            shapes.insert(id, shape);
        }
        for (output, positions) in graph.outputs().iter().zip(samples) {
            let mut set = wanted[&output.value].borrow_mut();
            positions.iter().for_each(|&position| set.insert(position));
        }
        let reads = Cell::new(0);
        for id in graph.in_order().into_iter().rev() {
            let Some(node) = self.nodes.get(&id).filter(|_| !self.known.contains_key(&id)) else {
                continue;
            };
            let asked: Vec<Option<Wanted<'_, T>>> = node
                .operands
                .iter()
                .zip(&node.types)
                .map(|(operand, ty)| {
                    let number =
                        if ty.dtype.is_float() { Number::Float(T::zero()) } else { Number::Int(0) };
                    let positions = &wanted[operand];
                    let shape = shapes[operand].as_slice();
                    let is_known = self.known.contains_key(operand);
                    (!is_known).then_some(Wanted { shape, positions, reads: &reads, number })
                })
                .collect();
            let operands: Vec<&dyn Elements<T>> = asked
                .iter()
                .zip(&node.operands)
                .map(|(asked, operand)| match asked {
                    Some(asked) => asked as &dyn Elements<T>,
                    None => &self.known[operand],
                })
                .collect();
            let positions: Vec<usize> = wanted[&id].borrow().iter().collect();
            let within = |_: &[Number<T>]| reads.get() <= limit;
            if self.elements(id, node, &operands, &positions, within)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(wanted.into_iter().map(|(id, positions)| (id, positions.into_inner())).collect()))
    }

    fn compute(&mut self, mut wanted: BTreeMap<NodeId, Positions>) -> Result<(), InterpError> {
        for id in self.graph.in_order() {
            let Some(node) = self.nodes.get(&id).filter(|_| !self.known.contains_key(&id)) else {
                continue;
            };
            let mut positions = wanted.remove(&id).unwrap_or_else(Positions::none);
            let operands: Vec<&dyn Elements<T>> =
                node.operands.iter().map(|operand| &self.known[operand] as _).collect();
            let list: Vec<usize> = positions.iter().collect();
            let numbers = self.elements(id, node, &operands, &list, |_| true)?;
            let numbers = numbers.expect("invariant: nothing stops it");
            positions.index();
            let shape = sizes(self.graph.node(id).op, &self.graph.ty(id).shape, &self.dims)?;
            self.known.insert(id, Known::Some { shape, positions, numbers });
        }
        Ok(())
    }

    /// A node's elements at some positions; nothing when `go_on` says no.
    fn elements(
        &self,
        id: NodeId,
        node: &Computed,
        operands: &[&dyn Elements<T>],
        positions: &[usize],
        go_on: impl Fn(&[Number<T>]) -> bool,
    ) -> Result<Option<Vec<Number<T>>>, InterpError> {
        let result = self.graph.ty(id);
        let op = self.graph.node(id).op;
        let shape = sizes(op, &result.shape, &self.dims)?;
        let space = Space { types: &node.types, operands, dims: &self.dims, result, shape: &shape };
        let wrong = |message| InterpError::Lowering { op: op.name(), message };
        let element = node.form.elements(&space).map_err(wrong)?;
        let mut numbers = Vec::with_capacity(positions.len());
        for &position in positions {
            numbers.push(element(&unflatten(position, &shape)).map_err(wrong)?.number);
            if !go_on(&numbers) {
                return Ok(None);
            }
        }
        Ok(Some(numbers))
    }

    fn sampled(&self, id: NodeId, positions: &[usize]) -> Value<T> {
        let known = &self.known[&id];
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        for &position in positions {
            match known.number(position) {
                Number::Float(number) => floats.push(number),
                Number::Int(number) => ints.push(number),
            }
        }
        if self.graph.ty(id).dtype.is_float() {
            Value::Float(Array::new([floats.len()], floats))
        } else {
            Value::Int(Array::new([ints.len()], ints))
        }
    }
}

/// The operands whose elements are positions in others.
fn index_operands(form: &Form) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let guards = |guards: &[Guard], found: &mut BTreeSet<usize>| {
        for guard in guards {
            let (Guard::Within { value, .. } | Guard::Divisible { value, .. }) = guard;
            index_elements(value, found);
        }
    };
    match form {
        Form::Movement(form) => {
            for case in &form.cases {
                guards(&case.guards, &mut found);
                case.index.iter().for_each(|expr| index_elements(expr, &mut found));
            }
        }
        Form::Contraction(form) => {
            let sides: [&OperandMap; 2] = [&form.lhs, &form.rhs];
            for side in sides {
                guards(&side.guards, &mut found);
                side.index.iter().for_each(|expr| index_elements(expr, &mut found));
            }
        }
        Form::Window(form) => {
            form.index.iter().for_each(|expr| index_elements(expr, &mut found));
        }
        Form::Pointwise(_) | Form::Reduce(_) | Form::Scan(_) | Form::Recurrent(_) => {}
    }
    found
}

fn index_elements(expr: &IndexExpr, found: &mut BTreeSet<usize>) {
    match expr {
        IndexExpr::Axis(_) | IndexExpr::Size(_) => {}
        IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => {
            index_elements(x, found);
        }
        IndexExpr::Add(a, b) | IndexExpr::Min(a, b) | IndexExpr::Max(a, b) => {
            index_elements(a, found);
            index_elements(b, found);
        }
        IndexExpr::Element { operand, index } => {
            found.insert(*operand);
            index.iter().for_each(|expr| index_elements(expr, found));
        }
    }
}

/// A set of positions that says how many come before one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Positions {
    words: Vec<u64>,
    /// Positions in the words before each; made by [`Positions::index`].
    before: Vec<usize>,
}

impl Positions {
    fn none() -> Positions {
        Positions { words: Vec::new(), before: Vec::new() }
    }

    fn insert(&mut self, position: usize) {
        let word = position / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (position % 64);
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * at + bit)
        })
    }

    fn index(&mut self) {
        let mut total = 0;
        self.before = self
            .words
            .iter()
            .map(|word| {
                let before = total;
                total += word.count_ones() as usize;
                before
            })
            .collect();
    }

    /// The number of positions before this one.
    fn rank(&self, position: usize) -> usize {
        let (word, bit) = (position / 64, position % 64);
        let below = self.words[word] & ((1u64 << bit) - 1);
        self.before[word] + below.count_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_graph;

    fn graph(text: &str) -> Graph {
        parse_graph(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_limit_on_reads_stops_early() {
        let graph = graph(
            "graph @product(%x: f32[8,16], %y: f32[16,4]) -> (z: f32[8,4]) {\n  \
             %0 = relu %x : f32[8,16]\n  %1 = matmul %0, %y : f32[8,4]\n  return %1\n}\n",
        );
        let inputs =
            [Tensor::from_f32(&[8, 16], &[1.0; 128]), Tensor::from_f32(&[16, 4], &[2.0; 64])];
        let none = BTreeMap::new();
        let two = [vec![0, 31]];
        // Two rows of 16 elements are asked of the relu; the inputs cost nothing.
        assert!(evaluate_samples::<f64>(&graph, &inputs, &none, &two, 31).unwrap().is_none());
        let values = evaluate_samples::<f64>(&graph, &inputs, &none, &two, 32).unwrap().unwrap();
        assert_eq!(values[0].float().data, [32.0, 32.0]);
        assert_eq!(operations(&graph, &Dims::new()), Ok(8 * 16 + 2 * 8 * 16 * 4));
    }

    #[test]
    fn positions_count_those_before() {
        let mut positions = Positions::none();
        [200, 3, 64, 127, 3].into_iter().for_each(|position| positions.insert(position));
        positions.index();
        assert_eq!(positions.iter().collect::<Vec<_>>(), [3, 64, 127, 200]);
        assert_eq!([3, 64, 127, 200].map(|position| positions.rank(position)), [0, 1, 2, 3]);
    }
}
