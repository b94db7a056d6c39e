//! One node of the model while it is imported: what its handler in [`super::ops`] works with.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use fornax_ir::{
    AttrValue, Attrs, DType, Diagnostic, Dim, Graph, Loc, LocSet, NodeId, Tensor, Type,
};

use super::import::Importer;
use super::known::{Known, MAX_FLOATS};
use super::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto};
use super::{sizes, tensor};

/// What handlers return: a fault is reported at the node.
pub(super) type Result<T> = std::result::Result<T, Diagnostic>;

/// A value of the model.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Computed by the graph.
    Node(NodeId),
    /// Known while importing; becomes a node when the graph needs it.
    Literal(Rc<Literal>),
}

/// A constant of the model, or the result of shape arithmetic.
#[derive(Debug)]
pub(super) struct Literal {
    /// Name of the initializer or of the value.
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) content: Content,
    /// The node, once there is one.
    pub(super) node: Cell<Option<NodeId>>,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The elements, possibly symbolic.
    Known(Known),
    /// The data; `None` for a weight whose data file is missing.
    Tensor(Option<Tensor>),
}

impl Value {
    pub(super) fn known(name: &str, known: Known) -> Self {
        let ty = Type::new(known.dtype, known.shape.as_slice());
        Self::literal(name, ty, Content::Known(known))
    }

    pub(super) fn tensor(name: &str, tensor: Tensor) -> Self {
        let ty = Type::new(tensor.dtype(), tensor.shape());
        Self::literal(name, ty, Content::Tensor(Some(tensor)))
    }

    pub(super) fn literal(name: &str, ty: Type, content: Content) -> Self {
        let name = name.to_owned();
        Self::Literal(Rc::new(Literal { name, ty, content, node: Cell::new(None) }))
    }
}

impl From<NodeId> for Value {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

/// Advice for faults that may be due to symbolic sizes.
const SPECIALISE: &str = "symbolic sizes must be equal for every value; specialise them with --dim or --shape if they are not";

impl Literal {
    pub(super) fn as_known(&self) -> Option<Known> {
        match &self.content {
            Content::Known(known) => Some(known.clone()),
            Content::Tensor(Some(tensor))
                if !tensor.dtype().is_float() || tensor.len() <= MAX_FLOATS =>
            {
                Known::from_tensor(tensor)
            }
            Content::Tensor(_) => None,
        }
    }
}

/// A node of the model with its inputs resolved.
pub(super) struct Call<'a, 'm> {
    pub(super) importer: &'a mut Importer<'m>,
    pub(super) node: &'m NodeProto,
    /// Version of the operator set that the node belongs to.
    pub(super) opset: i64,
    pub(super) loc: Loc,
    inputs: Vec<Option<Value>>,
    /// Names of the attributes that have been asked for.
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a, 'm> Call<'a, 'm> {
    pub(super) fn new(
        importer: &'a mut Importer<'m>,
        node: &'m NodeProto,
        opset: i64,
        loc: Loc,
        inputs: Vec<Option<Value>>,
    ) -> Self {
        Self { importer, node, opset, loc, inputs, read: RefCell::default() }
    }

    /// A fault of this node.
    pub(super) fn fault(&self, code: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, message).at(self.loc)
    }

    /// A fault: something that ONNX allows and Fornax does not support.
    pub(super) fn unsupported(&self, message: impl Into<String>) -> Diagnostic {
        self.fault("onnx-unsupported", message)
    }

    /// A fault: something that ONNX does not allow.
    pub(super) fn invalid(&self, message: impl Into<String>) -> Diagnostic {
        self.fault("onnx-invalid", message)
    }
}

/// Inputs and outputs.
impl Call<'_, '_> {
    /// The number of inputs, omitted ones at the end not counted.
    pub(super) fn input_count(&self) -> usize {
        self.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }

    pub(super) fn has(&self, index: usize) -> bool {
        matches!(self.inputs.get(index), Some(Some(_)))
    }

    /// Whether the model uses the output at a position.
    pub(super) fn wants(&self, output: usize) -> bool {
        self.node
            .output
            .get(output)
            .is_some_and(|name| !name.is_empty() && self.importer.is_used(name))
    }

    pub(super) fn value(&self, index: usize) -> Result<Value> {
        match self.inputs.get(index) {
            Some(Some(value)) => Ok(value.clone()),
            _ => Err(self.invalid(format!("input {index} is required, but missing"))),
        }
    }

    /// The type of an input.
    pub(super) fn ty(&self, index: usize) -> Result<Type> {
        Ok(self.type_of(&self.value(index)?))
    }

    pub(super) fn type_of(&self, value: &Value) -> Type {
        match value {
            Value::Node(node) => self.importer.graph.ty(*node).clone(),
            Value::Literal(literal) => literal.ty.clone(),
        }
    }

    /// An input as a node of the graph.
    pub(super) fn input(&mut self, index: usize) -> Result<NodeId> {
        let value = self.value(index)?;
        self.materialize(&value)
    }

    /// An optional input as a node of the graph.
    pub(super) fn optional(&mut self, index: usize) -> Result<Option<NodeId>> {
        if self.has(index) { self.input(index).map(Some) } else { Ok(None) }
    }

    /// All inputs as nodes; none may be omitted.
    pub(super) fn all_inputs(&mut self) -> Result<Vec<NodeId>> {
        (0..self.input_count()).map(|index| self.input(index)).collect()
    }

    pub(super) fn materialize(&mut self, value: &Value) -> Result<NodeId> {
        self.importer.materialize(value).map_err(|fault| fault.at(self.loc))
    }

    /// The elements of an input, when they are known while importing.
    pub(super) fn known(&self, index: usize) -> Option<Known> {
        match self.inputs.get(index)? {
            Some(Value::Literal(literal)) => literal.as_known(),
            _ => None,
        }
    }

    /// The integers of an input that must be constant.
    pub(super) fn ints(&self, index: usize, what: &str) -> Result<Vec<i64>> {
        self.require_known(index, what, |known| known.ints())
    }

    /// The sizes of an input that must be known up to symbolic sizes.
    pub(super) fn dims(&self, index: usize, what: &str) -> Result<Vec<Dim>> {
        self.require_known(index, what, |known| known.dims())
    }

    /// The numbers of an input that must be constant.
    pub(super) fn floats(&self, index: usize, what: &str) -> Result<Vec<f64>> {
        self.require_known(index, what, |known| known.floats())
    }

    fn require_known<T>(
        &self,
        index: usize,
        what: &str,
        read: impl FnOnce(Known) -> Option<T>,
    ) -> Result<T> {
        self.value(index)?;
        self.known(index).and_then(read).ok_or_else(|| {
            let name = self.node.input.get(index).cloned().unwrap_or_default();
            self.fault(
                "onnx-not-constant",
                format!("input {index} ({what}, {name:?}) must be known at compile time"),
            )
            .note("its value depends on the model's inputs, or on sizes that are not specialised")
        })
    }
}

/// Attributes. Each getter gives `None` when the attribute is absent.
impl<'m> Call<'_, 'm> {
    fn attribute(
        &self,
        name: &'static str,
        kind: AttributeType,
    ) -> Result<Option<&'m AttributeProto>> {
        self.read.borrow_mut().insert(name);
        let Some(attribute) = self.node.attribute.iter().find(|attr| attr.name == name) else {
            return Ok(None);
        };
        let actual = attribute.r#type();
        if !attribute.ref_attr_name.is_empty() {
            Err(self.invalid(format!("attribute `{name}` refers to a function's attribute")))
        } else if actual == kind || actual == AttributeType::Undefined && implied(attribute) == kind
        {
            Ok(Some(attribute))
        } else {
            let message = format!("attribute `{name}` must be {kind:?}, but is {actual:?}");
            Err(self.fault("onnx-attribute", message))
        }
    }

    pub(super) fn int(&self, name: &'static str) -> Result<Option<i64>> {
        Ok(self.attribute(name, AttributeType::Int)?.map(|attribute| attribute.i()))
    }

    pub(super) fn int_or(&self, name: &'static str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// A 0/1 attribute.
    pub(super) fn flag(&self, name: &'static str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    pub(super) fn float(&self, name: &'static str) -> Result<Option<f32>> {
        Ok(self.attribute(name, AttributeType::Float)?.map(|attribute| attribute.f()))
    }

    /// A float attribute as the `f32` it is in the file, widened.
    pub(super) fn float_or(&self, name: &'static str, default: f32) -> Result<f64> {
        Ok(f64::from(self.float(name)?.unwrap_or(default)))
    }

    pub(super) fn int_list(&self, name: &'static str) -> Result<Option<Vec<i64>>> {
        Ok(self.attribute(name, AttributeType::Ints)?.map(|attribute| attribute.ints.clone()))
    }

    pub(super) fn float_list(&self, name: &'static str) -> Result<Option<Vec<f32>>> {
        Ok(self.attribute(name, AttributeType::Floats)?.map(|attribute| attribute.floats.clone()))
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<&'m str>> {
        let Some(attribute) = self.attribute(name, AttributeType::String)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(attribute.s.as_deref().unwrap_or_default());
        text.map(Some).map_err(|_| {
            self.fault("onnx-attribute", format!("attribute `{name}` is not UTF-8 text"))
        })
    }

    pub(super) fn text_list(&self, name: &'static str) -> Result<Option<Vec<String>>> {
        let Some(attribute) = self.attribute(name, AttributeType::Strings)? else {
            return Ok(None);
        };
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec());
        attribute.strings.iter().map(text).collect::<std::result::Result<_, _>>().map(Some).map_err(
            |_| self.fault("onnx-attribute", format!("attribute `{name}` is not UTF-8 text")),
        )
    }

    pub(super) fn text_or<'t>(&self, name: &'static str, default: &'t str) -> Result<&'t str>
    where
        'm: 't,
    {
        Ok(self.text(name)?.unwrap_or(default))
    }

    pub(super) fn tensor(&self, name: &'static str) -> Result<Option<&'m TensorProto>> {
        Ok(self.attribute(name, AttributeType::Tensor)?.and_then(|attribute| attribute.t.as_ref()))
    }

    pub(super) fn subgraph(&self, name: &'static str) -> Result<Option<&'m GraphProto>> {
        Ok(self.attribute(name, AttributeType::Graph)?.and_then(|attribute| attribute.g.as_ref()))
    }

    /// An attribute that is an element type.
    pub(super) fn dtype(&self, name: &'static str) -> Result<Option<DType>> {
        let Some(number) = self.int(name)? else { return Ok(None) };
        let known =
            i32::try_from(number).ok().and_then(|n| super::proto::DataType::try_from(n).ok());
        match known.map(|ty| (ty, tensor::dtype(ty))) {
            Some((_, Some(dtype))) => Ok(Some(dtype)),
            Some((ty, None)) => {
                Err(self.unsupported(format!("element type {ty} is not supported")))
            }
            None => {
                let message = format!("attribute `{name}` is no element type: {number}");
                Err(self.fault("onnx-attribute", message))
            }
        }
    }

    /// Accepts an attribute without effect on the result.
    pub(super) fn ignore(&self, name: &'static str) {
        self.read.borrow_mut().insert(name);
    }

    /// A required attribute's absence.
    pub(super) fn needs(&self, name: &str) -> Diagnostic {
        self.fault("onnx-attribute", format!("attribute `{name}` is required, but missing"))
    }

    /// Attributes that the handler has not asked for would be silently ignored: a fault.
    pub(super) fn check_attributes(&self) -> Result<()> {
        let read = self.read.borrow();
        let unknown = self.node.attribute.iter().find(|attr| !read.contains(attr.name.as_str()));
        match unknown {
            None => Ok(()),
            Some(attribute) => Err(self.fault(
                "onnx-attribute",
                format!("attribute `{}` is not known in opset {}", attribute.name, self.opset),
            )),
        }
    }
}

/// The kind of an attribute that does not say it, as files before 2017 do.
fn implied(attribute: &AttributeProto) -> AttributeType {
    let candidates = [
        (attribute.f.is_some(), AttributeType::Float),
        (attribute.i.is_some(), AttributeType::Int),
        (attribute.s.is_some(), AttributeType::String),
        (attribute.t.is_some(), AttributeType::Tensor),
        (attribute.g.is_some(), AttributeType::Graph),
        (!attribute.floats.is_empty(), AttributeType::Floats),
        (!attribute.ints.is_empty(), AttributeType::Ints),
        (!attribute.strings.is_empty(), AttributeType::Strings),
    ];
    let found = candidates.into_iter().find_map(|(set, kind)| set.then_some(kind));
    found.unwrap_or(AttributeType::Undefined)
}

/// Building the graph. Every new node carries this node's location.
impl Call<'_, '_> {
    pub(super) fn graph(&self) -> &Graph {
        &self.importer.graph
    }

    /// Adds a node to the graph.
    pub(super) fn add(&mut self, op: &str, attrs: Attrs, operands: &[NodeId]) -> Result<NodeId> {
        if let Some(AttrValue::Dims(shape)) = attrs.get("shape") {
            self.check_shape(shape)?;
        }
        let node = self.add_unchecked(op, attrs, operands)?;
        self.check_shape(&self.graph().ty(node).shape)?;
        Ok(node)
    }

    fn check_shape(&self, shape: &[Dim]) -> Result<()> {
        sizes::fault(shape).map_or(Ok(()), |what| Err(self.fault("onnx-size", what)))
    }

    fn add_unchecked(&mut self, op: &str, attrs: Attrs, operands: &[NodeId]) -> Result<NodeId> {
        self.importer.graph.add(op, attrs, operands, LocSet::from(self.loc)).map_err(|fault| {
            let types = operands.iter().zip(b'a'..).map(|(&operand, letter)| {
                format!("%{} is {}", char::from(letter), self.importer.graph.ty(operand))
            });
            let fault = types.fold(fault, |fault, note| fault.note(note));
            let mut shapes = operands.iter().map(|&node| &self.importer.graph.ty(node).shape);
            match shapes.all(|shape| shape.as_const().is_some()) {
                true => fault,
                false => fault.note(SPECIALISE),
            }
        })
    }

    /// A number of rank 0.
    pub(super) fn scalar(&mut self, dtype: DType, value: f64) -> NodeId {
        let node = self.importer.graph.scalar(dtype, value);
        self.importer.graph.node_mut(node).loc = LocSet::from(self.loc);
        node
    }

    /// A number repeated to the shape of another value.
    pub(super) fn scalar_like(&mut self, value: f64, like: NodeId) -> Result<NodeId> {
        let Type { dtype, shape } = self.graph().ty(like).clone();
        let scalar = self.scalar(dtype, value);
        self.broadcast(scalar, &shape)
    }

    /// Repeats a value along new leading axes and axes of size 1.
    pub(super) fn broadcast(&mut self, node: NodeId, shape: &[Dim]) -> Result<NodeId> {
        if self.graph().ty(node).shape[..] == *shape {
            return Ok(node);
        }
        self.add("broadcast", fornax_ir::attrs! { shape: shape.to_vec() }, &[node])
    }

    /// Brings values to their common shape, by the rules of multidirectional broadcasting.
    pub(super) fn broadcast_all(&mut self, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
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
    pub(super) fn cast(&mut self, node: NodeId, dtype: DType) -> Result<NodeId> {
        if self.graph().ty(node).dtype == dtype {
            return Ok(node);
        }
        self.add("cast", fornax_ir::attrs! { to: dtype }, &[node])
    }

    /// The same elements under another shape.
    pub(super) fn reshape(&mut self, node: NodeId, shape: &[Dim]) -> Result<NodeId> {
        if self.graph().ty(node).shape[..] == *shape {
            return Ok(node);
        }
        self.add("reshape", fornax_ir::attrs! { shape: shape.to_vec() }, &[node])
    }

    /// An axis counted from the front, for a tensor of that rank.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        match usize::try_from(from_front) {
            Ok(from_front) if from_front < rank => Ok(from_front),
            _ => Err(self.invalid(format!("axis {axis} is out of range for rank {rank}"))),
        }
    }

    /// Axes counted from the front, sorted; each may be there once.
    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        let mut sorted =
            axes.iter().map(|&axis| self.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.invalid(format!("axis {} is given twice", pair[0]))),
            None => Ok(sorted),
        }
    }
}

/// The common shape of several operands, or what does not fit. A symbolic size counts as more than 1, so
/// it only fits itself and 1.
pub(super) fn common_shape(shapes: &[&[Dim]]) -> std::result::Result<Vec<Dim>, String> {
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
