//! What the importers share: the graph under construction, values known while importing, arithmetic on
//! sizes, and builders of the parts that several formats lower to in the same way.

pub(crate) mod attention;
pub(crate) mod contraction;
pub(crate) mod known;
pub(crate) mod loss;
mod missing;
pub(crate) mod movement;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod reshape;
pub(crate) mod resize;
pub(crate) mod sizes;
pub(crate) mod symbols;
mod value;
pub(crate) mod window;

use std::collections::BTreeSet;

use fornax_ir::{
    AttrValue, Attrs, DType, Diagnostic, Dim, Graph, Loc, LocSet, NodeId, SourceMap, Tensor, Type,
    attrs,
};

pub(crate) use self::missing::Missing;
pub(crate) use self::value::{Content, Value};
use crate::ImportError;
use crate::error::MAX_DIAGNOSTICS;

/// What builders return: a fault is reported at the node.
pub(crate) type Result<T> = std::result::Result<T, Diagnostic>;

/// Integer constants of at most this many elements, and any constant of one element, are constants
/// of the graph; larger ones are weights.
const MAX_CONSTANT_INTS: usize = 64;

/// A graph under construction and the faults found so far.
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    /// Names of the weights of the graph.
    weights: BTreeSet<String>,
    faults: Vec<Diagnostic>,
    /// Faults beyond [`MAX_DIAGNOSTICS`].
    dropped: usize,
}

impl Builder {
    /// An empty graph of that name, imported from `file`.
    pub(crate) fn new(name: &str, file: &str) -> Self {
        let mut graph = Graph::new(name);
        graph.sources = SourceMap::new(file);
        Self { graph, weights: BTreeSet::new(), faults: Vec::new(), dropped: 0 }
    }

    pub(crate) fn report(&mut self, fault: Diagnostic) {
        if self.faults.len() < MAX_DIAGNOSTICS {
            self.faults.push(fault);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn fault_count(&self) -> usize {
        self.faults.len() + self.dropped
    }

    /// Fails with what has been reported so far, if anything.
    pub(crate) fn stop_on_faults(&mut self) -> std::result::Result<(), ImportError> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let diagnostics = std::mem::take(&mut self.faults);
        let mut texts: Vec<String> =
            diagnostics.iter().map(|fault| fault.render(&self.graph.sources)).collect();
        if self.dropped > 0 {
            texts.push(format!("and {} more errors", self.dropped));
        }
        Err(ImportError::Model { diagnostics, rendered: texts.join("\n") })
    }

    /// The node of the graph for a value.
    ///
    /// # Errors
    /// When the value depends on symbolic sizes and so cannot be a constant.
    pub(crate) fn materialize(&mut self, value: &Value, format: &str) -> Result<NodeId> {
        let literal = match value {
            Value::Node(node) => return Ok(*node),
            Value::Literal(literal) => literal,
        };
        if let Some(node) = literal.node.get() {
            return Ok(node);
        }
        let node = match &literal.content {
            Content::Known(known) => match known.to_tensor() {
                Some(tensor) => self.graph.constant(tensor),
                None => {
                    let message = format!(
                        "the value {:?} is computed from sizes that are only known at run time, and \
                         used as data",
                        literal.name
                    );
                    let advice = "specialise the sizes, as in --dim batch=1";
                    let code = format!("{format}-shape-as-data");
                    return Err(Diagnostic::new(code, message).note(advice));
                }
            },
            Content::Tensor(Some(tensor)) if is_constant(tensor) => {
                self.graph.constant(tensor.clone())
            }
            Content::Tensor(tensor) => {
                let name = self.weight_name(&literal.name);
                self.graph.weight(&name, literal.ty.clone(), tensor.clone())?
            }
        };
        literal.node.set(Some(node));
        Ok(node)
    }

    fn weight_name(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        let mut count = 1;
        while !self.weights.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}#{count}");
        }
        unique
    }
}

fn is_constant(tensor: &Tensor) -> bool {
    let limit = if tensor.dtype().is_float() { 1 } else { MAX_CONSTANT_INTS };
    tensor.len() <= limit
}

/// Advice for faults that may be due to symbolic sizes.
const SPECIALISE: &str = "symbolic sizes must be equal for every value; specialise them with --dim or --shape if they are not";

/// A node of the model in the course of being imported: where builders add to the graph, and whose location
/// new nodes and faults carry.
pub(crate) trait Build {
    /// What the codes of faults start with, such as `onnx`.
    const FORMAT: &'static str;

    fn builder(&self) -> &Builder;
    fn builder_mut(&mut self) -> &mut Builder;

    /// The node's location.
    fn loc(&self) -> Loc;

    /// A fault of this node.
    fn fault(&self, code: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(format!("{}-{code}", Self::FORMAT), message).at(self.loc())
    }

    /// A fault: something that the format allows and Fornax does not support.
    fn unsupported(&self, message: impl Into<String>) -> Diagnostic {
        self.fault("unsupported", message)
    }

    /// A fault: something that the format does not allow.
    fn invalid(&self, message: impl Into<String>) -> Diagnostic {
        self.fault("invalid", message)
    }

    fn graph(&self) -> &Graph {
        &self.builder().graph
    }

    fn type_of(&self, value: &Value) -> Type {
        match value {
            Value::Node(node) => self.graph().ty(*node).clone(),
            Value::Literal(literal) => literal.ty.clone(),
        }
    }

    fn materialize(&mut self, value: &Value) -> Result<NodeId> {
        let loc = self.loc();
        self.builder_mut().materialize(value, Self::FORMAT).map_err(|fault| fault.at(loc))
    }

    /// Adds a node to the graph.
    fn add(&mut self, op: &str, attrs: Attrs, operands: &[NodeId]) -> Result<NodeId> {
        if let Some(AttrValue::Dims(shape)) = attrs.get("shape") {
            self.check_shape(shape)?;
        }
        let loc = LocSet::from(self.loc());
        let node = self.builder_mut().graph.add(op, attrs, operands, loc);
        let node = node.map_err(|fault| {
            let types = operands.iter().zip(b'a'..).map(|(&operand, letter)| {
                format!("%{} is {}", char::from(letter), self.graph().ty(operand))
            });
            let fault = types.fold(fault, |fault, note| fault.note(note));
            let mut shapes = operands.iter().map(|&node| &self.graph().ty(node).shape);
            match shapes.all(|shape| shape.as_const().is_some()) {
                true => fault,
                false => fault.note(SPECIALISE),
            }
        })?;
        self.check_shape(&self.graph().ty(node).shape)?;
        Ok(node)
    }

    fn check_shape(&self, shape: &[Dim]) -> Result<()> {
        sizes::fault(shape).map_or(Ok(()), |what| Err(self.fault("size", what)))
    }

    /// A number of rank 0.
    fn scalar(&mut self, dtype: DType, value: f64) -> NodeId {
        let loc = LocSet::from(self.loc());
        let graph = &mut self.builder_mut().graph;
        let node = graph.scalar(dtype, value);
        graph.node_mut(node).loc = loc;
        node
    }

    /// A number repeated to the shape of another value.
    fn scalar_like(&mut self, value: f64, like: NodeId) -> Result<NodeId> {
        let Type { dtype, shape } = self.graph().ty(like).clone();
        let scalar = self.scalar(dtype, value);
        self.broadcast(scalar, &shape)
    }

    /// Repeats a value along new leading axes and axes of size 1.
    fn broadcast(&mut self, node: NodeId, shape: &[Dim]) -> Result<NodeId> {
        if self.graph().ty(node).shape[..] == *shape {
            return Ok(node);
        }
        self.add("broadcast", attrs! { shape: shape.to_vec() }, &[node])
    }

    /// Brings values to their common shape, by the rules of multidirectional broadcasting.
    fn broadcast_all(&mut self, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
        let shapes: Vec<&[Dim]> =
            nodes.iter().map(|&node| &self.graph().ty(node).shape[..]).collect();
        let common = common_shape(&shapes).map_err(|message| {
            match shapes.iter().flat_map(|shape| shape.iter()).all(|size| size.as_const().is_some())
            {
                true => self.invalid(message),
                false => self.invalid(message).note(SPECIALISE),
            }
        })?;
        nodes.iter().map(|&node| self.broadcast(node, &common)).collect()
    }

    /// Converts the element type, where it differs.
    fn cast(&mut self, node: NodeId, dtype: DType) -> Result<NodeId> {
        if self.graph().ty(node).dtype == dtype {
            return Ok(node);
        }
        self.add("cast", attrs! { to: dtype }, &[node])
    }

    /// The same elements under another shape.
    fn reshape(&mut self, node: NodeId, shape: &[Dim]) -> Result<NodeId> {
        if self.graph().ty(node).shape[..] == *shape {
            return Ok(node);
        }
        self.add("reshape", attrs! { shape: shape.to_vec() }, &[node])
    }

    /// An axis counted from the front, for a tensor of that rank.
    fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        match usize::try_from(from_front) {
            Ok(from_front) if from_front < rank => Ok(from_front),
            _ => Err(self.invalid(format!("axis {axis} is out of range for rank {rank}"))),
        }
    }

    /// Axes counted from the front, sorted; each may be there once.
    fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        let mut sorted =
            axes.iter().map(|&axis| self.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.invalid(format!("axis {} is given twice", pair[0]))),
            None => Ok(sorted),
        }
    }

    /// The position along an axis, at every position of a shape.
    fn positions(&mut self, axis: usize, shape: &[Dim]) -> Result<NodeId> {
        let attrs = attrs! { axis: axis as i64, dtype: DType::I64, shape: shape.to_vec() };
        self.add("iota", attrs, &[])
    }
}

/// The common shape of several operands, or what does not fit. A symbolic size counts as more than 1, so
/// it only fits itself and 1.
pub(crate) fn common_shape(shapes: &[&[Dim]]) -> std::result::Result<Vec<Dim>, String> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut common = vec![Dim::constant(1); rank];
    for shape in shapes {
        for (axis, size) in shape.iter().enumerate() {
            let slot = &mut common[axis + rank - shape.len()];
            if slot.is(1) {
                *slot = size.clone();
            } else if slot != size && !size.is(1) {
                let text = |shape: &&[Dim]| fornax_ir::Shape::from(*shape).to_string();
                let shapes: Vec<String> = shapes.iter().map(text).collect();
                return Err(format!(
                    "the shapes {} cannot be broadcast together: {slot} and {size} differ",
                    shapes.join(" and ")
                ));
            }
        }
    }
    Ok(common)
}
