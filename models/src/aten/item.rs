//! Values of a PyTorch program while it is imported.

use std::cell::RefCell;
use std::rc::Rc;

use fornax_ir::{DType, Dim};

use super::handle::Handle;

/// Deepest nesting of lists.
const MAX_NESTING: usize = 50;

/// Most items in a list and the lists within it.
const MAX_ITEMS: usize = 200_000;

/// A value: what operators take and give.
#[derive(Clone)]
pub(crate) enum Item {
    /// Nothing.
    None,
    Tensor(Handle),
    /// An integer, perhaps a symbolic size.
    Int(Dim),
    Float(f64),
    Bool(bool),
    Text(Rc<str>),
    DType(DType),
    /// A list; two names may mean the same one.
    List(Rc<RefCell<Vec<Item>>>),
    Tuple(Rc<[Item]>),
    /// A dictionary with keys in the order they came in.
    Dict(Rc<RefCell<Vec<(Item, Item)>>>),
    /// A module or another object of the model.
    Object(Rc<Object>),
    /// A function or class of the model, by its full name.
    Function(Rc<str>),
    /// Something without effect on results: a device, a layout, a memory format.
    Placement,
    /// A number or truth value that is known at run time only.
    Unknown,
}

/// A module of a TorchScript model, or an object of another class of it.
pub(crate) struct Object {
    /// The class, such as `__torch__.torch.nn.modules.linear.Linear`.
    pub(crate) class: Rc<str>,
    /// The path in the model, such as `encoder.layers.0`.
    pub(crate) path: Rc<str>,
    pub(crate) fields: RefCell<Vec<(Rc<str>, Item)>>,
}

/// A number of Python.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    Int(Dim),
    Float(f64),
}

impl Number {
    /// The value, when it is not symbolic.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Bool(value) => Some(f64::from(u8::from(*value))),
            Self::Int(dim) => dim.as_const().map(|value| value as f64),
            Self::Float(value) => Some(*value),
        }
    }
}

impl Object {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<Item> {
        let fields = self.fields.borrow();
        fields.iter().find(|(known, _)| &**known == name).map(|(_, item)| item.clone())
    }
}

impl Item {
    pub(crate) fn int(value: i64) -> Self {
        Self::Int(Dim::constant(value))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(RefCell::new(items)))
    }

    pub(crate) fn tuple(items: Vec<Self>) -> Self {
        Self::Tuple(items.into())
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The elements of a list or tuple.
    pub(crate) fn elements(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(list) => Some(list.borrow().clone()),
            Self::Tuple(items) => Some(items.to_vec()),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<Rc<str>> {
        match self {
            Self::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub(crate) fn as_number(&self) -> Option<Number> {
        match self {
            Self::Int(dim) => Some(Number::Int(dim.clone())),
            Self::Float(value) => Some(Number::Float(*value)),
            Self::Bool(value) => Some(Number::Bool(*value)),
            _ => None,
        }
    }

    /// Whether lists, tuples and dictionaries are nested too deeply, or hold too much, to be walked through.
    pub(crate) fn is_unwieldy(&self) -> bool {
        !self.fits(MAX_NESTING, &mut { MAX_ITEMS })
    }

    fn fits(&self, levels: usize, budget: &mut usize) -> bool {
        let (Some(levels), Some(left)) = (levels.checked_sub(1), budget.checked_sub(1)) else {
            return false;
        };
        *budget = left;
        match self {
            Self::List(items) => items.borrow().iter().all(|item| item.fits(levels, budget)),
            Self::Tuple(items) => items.iter().all(|item| item.fits(levels, budget)),
            Self::Dict(pairs) => pairs
                .borrow()
                .iter()
                .all(|(key, item)| key.fits(levels, budget) && item.fits(levels, budget)),
            _ => true,
        }
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Tensor(_) => "a tensor",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a truth value",
            Self::Text(_) => "a text",
            Self::DType(_) => "an element type",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
            Self::Object(_) => "an object",
            Self::Function(_) => "a function",
            Self::Placement => "a placement",
            Self::Unknown => "a value that is known at run time only",
        }
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

impl From<Handle> for Item {
    fn from(handle: Handle) -> Self {
        Self::Tensor(handle)
    }
}

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
