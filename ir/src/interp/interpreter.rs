//! Evaluating graphs and single ops.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Dims, Tensor};

use super::bind::{check_shape, solve_symbols};
use super::{Array, Element, Eval, EvalCtx, InterpError, Value, wrapped};
use crate::op::{OpClass, OpRef, SourceKind};
use crate::{AttrValue, Attrs, Dim, Graph, NodeId, Shape, Type, infer};

/// Evaluates the outputs of a graph.
///
/// `inputs` are in the graph's order; symbolic sizes follow from theirs. `weights` comes before the
/// data that the graph itself holds.
///
/// # Errors
/// When inputs or weights do not fit the graph, or a size has no value. Never for the values themselves.
pub fn evaluate<T: Element>(
    graph: &Graph,
    inputs: &[Tensor],
    weights: &BTreeMap<String, Tensor>,
) -> Result<Vec<Value<T>>, InterpError> {
    Interpreter::new(graph, inputs, weights)?.outputs()
}

/// Evaluates one op. Sizes of `result` and operands may be symbolic where `dims` has their values.
///
/// Integers come back wrapped to the result's type; floats come back as `T`, whatever their width.
///
/// # Errors
/// When the op rejects the operands' types, is a source, needs real numbers where `T` is the field, or a
/// size of the result has no value.
pub fn evaluate_op<T: Element>(
    op: OpRef,
    attrs: &Attrs,
    types: &[Type],
    operands: &[&Value<T>],
    dims: &Dims,
) -> Result<Value<T>, InterpError> {
    let result =
        infer(op, attrs, types).map_err(|diagnostic| InterpError::Invalid(Box::new(diagnostic)))?;
    apply(op, attrs, types, &result, operands, dims)
}

/// A graph with values for its inputs, weights and symbols.
#[derive(Debug, Clone)]
pub struct Interpreter<'g, T> {
    graph: &'g Graph,
    inputs: Vec<Value<T>>,
    weights: BTreeMap<String, Value<T>>,
    dims: Dims,
}

impl<'g, T: Element> Interpreter<'g, T> {
    /// Binds tensors to a graph, as [`evaluate`] does.
    ///
    /// # Errors
    /// When inputs or weights do not fit the graph or a symbol's value follows from no input.
    pub fn new(
        graph: &'g Graph,
        inputs: &[Tensor],
        weights: &BTreeMap<String, Tensor>,
    ) -> Result<Interpreter<'g, T>, InterpError> {
        for (&id, tensor) in graph.inputs().iter().zip(inputs) {
            check_dtype(graph.input_name(id), graph.ty(id), tensor)?;
        }
        let inputs = inputs.iter().map(Value::from_tensor).collect();
        let weights = weight_values(graph, weights)?;
        Interpreter::from_values(graph, inputs, weights, Dims::new())
    }

    /// Binds values to a graph; `dims` gives symbols that follow from no input.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn from_values(
        graph: &'g Graph,
        inputs: Vec<Value<T>>,
        weights: BTreeMap<String, Value<T>>,
        mut dims: Dims,
    ) -> Result<Interpreter<'g, T>, InterpError> {
        let expected = graph.inputs().len();
        if inputs.len() != expected {
            return Err(InterpError::InputCount { expected, actual: inputs.len() });
        }
        let sizes: Vec<(&str, &Type, &[usize])> = graph
            .inputs()
            .iter()
            .zip(&inputs)
            .map(|(&id, value)| (graph.input_name(id), graph.ty(id), value.shape()))
            .collect();
        for ((name, ty, _), value) in sizes.iter().zip(&inputs) {
            check_kind(name, ty, value)?;
        }
        solve_symbols(&sizes, &mut dims)?;
        for (name, ty, shape) in sizes {
            check_shape(name, ty, shape, &dims)?;
        }
        Ok(Interpreter { graph, inputs, weights, dims })
    }

    /// The values of symbols.
    pub fn dims(&self) -> &Dims {
        &self.dims
    }

    /// Evaluates the graph's outputs; values are dropped after their last use.
    ///
    /// # Errors
    /// When a weight has no data, a size has no value, or an op needs real numbers where `T` is the field.
    pub fn outputs(&self) -> Result<Vec<Value<T>>, InterpError> {
        let targets: Vec<NodeId> = self.graph.outputs().iter().map(|output| output.value).collect();
        self.values(&targets)
    }

    /// Evaluates some nodes and what they need; values are dropped after their last use.
    ///
    /// # Errors
    /// As [`Interpreter::outputs`].
    pub fn values(&self, targets: &[NodeId]) -> Result<Vec<Value<T>>, InterpError> {
        let mut uses: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut queue = targets.to_vec();
        while let Some(id) = queue.pop() {
            let count = uses.entry(id).or_insert(0);
            *count += 1;
            if *count == 1 {
                queue.extend(self.graph.operands(id));
            }
        }
        let mut values: BTreeMap<NodeId, Value<T>> = BTreeMap::new();
        for id in
            self.graph.in_order().into_iter().filter(|id| uses.contains_key(id)).collect::<Vec<_>>()
        {
            let operands = self.graph.operands(id);
            let value = self.node(id, &lookup(&values, &operands))?;
            values.insert(id, value);
            for operand in operands {
                let count = uses.entry(operand).or_insert(0);
                *count = count.saturating_sub(1);
                if *count == 0 {
                    values.remove(&operand);
                }
            }
        }
        Ok(targets.iter().map(|target| values[target].clone()).collect())
    }

    /// Evaluates every node and keeps all values, which is what comparing node by node needs.
    ///
    /// # Errors
    /// As [`Interpreter::outputs`].
    pub fn all_values(&self) -> Result<BTreeMap<NodeId, Value<T>>, InterpError> {
        let mut values = BTreeMap::new();
        for id in self.graph.in_order() {
            let value = self.node(id, &lookup(&values, &self.graph.operands(id)))?;
            values.insert(id, value);
        }
        Ok(values)
    }

    /// Evaluates one node on given operands.
    ///
    /// # Errors
    /// As [`Interpreter::outputs`].
    pub fn node(&self, id: NodeId, operands: &[&Value<T>]) -> Result<Value<T>, InterpError> {
        let node = self.graph.node(id);
        match node.op.class() {
            OpClass::Source(SourceKind::Input) => {
                let position = self.graph.inputs().iter().position(|&input| input == id);
                Ok(self.inputs[position.expect("invariant: the graph lists its inputs")].clone())
            }
            OpClass::Source(SourceKind::Weight) => self.weight(id),
            OpClass::Source(SourceKind::Constant) => {
                Ok(Value::from_tensor(node.attrs.tensor("value")))
            }
            OpClass::Source(SourceKind::Iota) => {
                let shape = sizes(node.op, &node.ty.shape, &self.dims)?;
                Ok(wrapped_values(iota(&shape, node.attrs.axis("axis")), node.ty.dtype))
            }
            _ => {
                let types = self.graph.operand_types(id);
                apply(node.op, &node.attrs, &types, &node.ty, operands, &self.dims)
            }
        }
    }

    fn weight(&self, id: NodeId) -> Result<Value<T>, InterpError> {
        let name = self.graph.input_name(id);
        let value = self.weights.get(name).ok_or_else(|| InterpError::Weight(name.to_owned()))?;
        check_kind(name, self.graph.ty(id), value)?;
        check_shape(name, self.graph.ty(id), value.shape(), &self.dims)?;
        Ok(value.clone())
    }
}

fn lookup<'v, T>(values: &'v BTreeMap<NodeId, Value<T>>, ids: &[NodeId]) -> Vec<&'v Value<T>> {
    ids.iter().map(|id| &values[id]).collect()
}

/// The data of all weights of a graph, `given` before the graph's own.
fn weight_values<T: Element>(
    graph: &Graph,
    given: &BTreeMap<String, Tensor>,
) -> Result<BTreeMap<String, Value<T>>, InterpError> {
    let mut values = BTreeMap::new();
    for id in graph.nodes() {
        if !matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Weight)) {
            continue;
        }
        let name = graph.input_name(id);
        if let Some(tensor) = given.get(name).or_else(|| graph.weights().get(name)) {
            check_dtype(name, graph.ty(id), tensor)?;
            values.insert(name.to_owned(), Value::from_tensor(tensor));
        }
    }
    Ok(values)
}

pub(super) fn check_dtype(name: &str, ty: &Type, tensor: &Tensor) -> Result<(), InterpError> {
    if tensor.dtype() == ty.dtype {
        return Ok(());
    }
    let actual = Type::new(tensor.dtype(), tensor.shape());
    Err(InterpError::Type {
        name: name.to_owned(),
        expected: ty.to_string(),
        actual: actual.to_string(),
    })
}

fn check_kind<T>(name: &str, ty: &Type, value: &Value<T>) -> Result<(), InterpError> {
    let is_float = matches!(value, Value::Float(_));
    if is_float == ty.dtype.is_float() {
        return Ok(());
    }
    let actual = if is_float { "a float tensor" } else { "an integer tensor" };
    Err(InterpError::Type {
        name: name.to_owned(),
        expected: ty.to_string(),
        actual: actual.to_owned(),
    })
}

/// Evaluates an op whose operands have been checked and whose result type is known.
fn apply<T: Element>(
    op: OpRef,
    attrs: &Attrs,
    types: &[Type],
    result: &Type,
    operands: &[&Value<T>],
    dims: &Dims,
) -> Result<Value<T>, InterpError> {
    let def = op.def();
    if matches!(def.class, OpClass::Source(_)) {
        return Err(InterpError::Source(def.name));
    }
    for (_, value) in attrs.iter() {
        if let AttrValue::Dims(list) = value {
            numbers(op, list, dims)?;
        }
    }
    let shape = sizes(op, &result.shape, dims)?;
    let ctx = EvalCtx { attrs, operands: types, result, shape: &shape, dims };
    let value = match T::evaluation(&def.eval) {
        Some(function) => function(&ctx, operands),
        None => {
            integers_only(&ctx, &def.eval, operands).ok_or(InterpError::NotPolynomial(def.name))?
        }
    };
    debug_assert_eq!(value.shape(), shape, "the evaluation of `{op}` gives what inference says");
    Ok(wrapped_values(value, result.dtype))
}

/// The evaluation of an op that is no polynomial but has no float operand or result: the numbers that
/// floats are evaluated over do not matter.
fn integers_only<T: Element>(
    ctx: &EvalCtx<'_>,
    eval: &Eval,
    operands: &[&Value<T>],
) -> Option<Value<T>> {
    let integers: Vec<Value<f64>> = operands
        .iter()
        .map(|operand| match operand {
            Value::Int(array) => Some(Value::Int(array.clone())),
            Value::Float(_) => None,
        })
        .collect::<Option<_>>()?;
    let function = f64::evaluation(eval).filter(|_| !ctx.result.dtype.is_float())?;
    match function(ctx, &integers.iter().collect::<Vec<_>>()) {
        Value::Int(array) => Some(Value::Int(array)),
        Value::Float(_) => None,
    }
}

/// The values of sizes.
fn numbers(op: OpRef, sizes: &[Dim], dims: &Dims) -> Result<Vec<i64>, InterpError> {
    let op = op.name();
    let value = |dim: &Dim| dim.eval(dims).map_err(|source| InterpError::Dim { op, source });
    sizes.iter().map(value).collect()
}

/// The numbers of a shape.
pub(super) fn sizes(op: OpRef, shape: &Shape, dims: &Dims) -> Result<Vec<usize>, InterpError> {
    let numbers = numbers(op, shape, dims)?;
    let elements = numbers.iter().try_fold(1i64, |product, &size| product.checked_mul(size));
    let fits = elements.is_some_and(|count| count <= isize::MAX as i64 / 8);
    if !fits || numbers.iter().any(|&size| size < 0) {
        return Err(InterpError::Shape { op: op.name(), sizes: numbers });
    }
    Ok(numbers.into_iter().map(|size| size as usize).collect())
}

/// Integers wrapped to their type.
fn wrapped_values<T>(mut value: Value<T>, dtype: DType) -> Value<T> {
    if let Value::Int(array) = &mut value
        && !matches!(dtype, DType::I64 | DType::U64)
    {
        for element in &mut array.data {
            *element = wrapped(dtype, *element);
        }
    }
    value
}

/// The position along `axis` at each position.
fn iota<T>(shape: &[usize], axis: usize) -> Value<T> {
    let inner: usize = shape[axis + 1..].iter().product();
    let total: usize = shape.iter().product();
    let data = (0..total).map(|position| (position / inner % shape[axis]) as i64).collect();
    Value::Int(Array::new(shape, data))
}
