//! One node of the model while it is imported: what its handler in [`super::ops`] works with.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fornax_ir::{DType, Diagnostic, Dim, Loc, NodeId, Type};

use super::import::Importer;
use super::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto};
use super::tensor;
use crate::build::known::Known;
pub(super) use crate::build::{Build, Builder, Result, Value, common_shape};

/// A node of the model with its inputs resolved.
pub(super) struct Call<'a, 'm> {
    pub(super) importer: &'a mut Importer<'m>,
    pub(super) node: &'m NodeProto,
    /// Version of the operator set that the node belongs to.
    pub(super) opset: i64,
    loc: Loc,
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
}

impl Build for Call<'_, '_> {
    const FORMAT: &'static str = "onnx";

    fn builder(&self) -> &Builder {
        &self.importer.builder
    }

    fn builder_mut(&mut self) -> &mut Builder {
        &mut self.importer.builder
    }

    fn loc(&self) -> Loc {
        self.loc
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
            Err(self.fault("attribute", message))
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
        text.map(Some)
            .map_err(|_| self.fault("attribute", format!("attribute `{name}` is not UTF-8 text")))
    }

    pub(super) fn text_list(&self, name: &'static str) -> Result<Option<Vec<String>>> {
        let Some(attribute) = self.attribute(name, AttributeType::Strings)? else {
            return Ok(None);
        };
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec());
        attribute
            .strings
            .iter()
            .map(text)
            .collect::<std::result::Result<_, _>>()
            .map(Some)
            .map_err(|_| self.fault("attribute", format!("attribute `{name}` is not UTF-8 text")))
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
                Err(self.fault("attribute", message))
            }
        }
    }

    /// Accepts an attribute without effect on the result.
    pub(super) fn ignore(&self, name: &'static str) {
        self.read.borrow_mut().insert(name);
    }

    /// A required attribute's absence.
    pub(super) fn needs(&self, name: &str) -> Diagnostic {
        self.fault("attribute", format!("attribute `{name}` is required, but missing"))
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
