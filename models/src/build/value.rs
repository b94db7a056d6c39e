//! Values of a model while it is imported.

use std::cell::Cell;
use std::rc::Rc;

use fornax_ir::{NodeId, Tensor, Type};

use super::known::{Known, MAX_FLOATS};

/// A value of the model.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Computed by the graph.
    Node(NodeId),
    /// Known while importing; becomes a node when the graph needs it.
    Literal(Rc<Literal>),
}

/// A constant of the model, or the result of shape arithmetic.
#[derive(Debug)]
pub(crate) struct Literal {
    /// Name of the weight or of the value.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) content: Content,
    /// The node, once there is one.
    pub(crate) node: Cell<Option<NodeId>>,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// The elements, possibly symbolic.
    Known(Known),
    /// The data; `None` for a weight whose data file is missing.
    Tensor(Option<Tensor>),
}

impl Value {
    pub(crate) fn known(name: &str, known: Known) -> Self {
        let ty = Type::new(known.dtype, known.shape.as_slice());
        Self::literal(name, ty, Content::Known(known))
    }

    pub(crate) fn tensor(name: &str, tensor: Tensor) -> Self {
        let ty = Type::new(tensor.dtype(), tensor.shape());
        Self::literal(name, ty, Content::Tensor(Some(tensor)))
    }

    pub(crate) fn literal(name: &str, ty: Type, content: Content) -> Self {
        let name = name.to_owned();
        Self::Literal(Rc::new(Literal { name, ty, content, node: Cell::new(None) }))
    }
}

impl From<NodeId> for Value {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl Literal {
    pub(crate) fn as_known(&self) -> Option<Known> {
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
