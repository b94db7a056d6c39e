//! Attributes of operators: compile-time values beside the operands.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fornax_bundle::{DType, Dim, Tensor};

/// A float that compares and hashes by its bits, so that attributes have a total order.
#[derive(Debug, Clone, Copy)]
pub struct Float(pub f64);

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Float) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Float {
    fn cmp(&self, other: &Float) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Float {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttrValue {
    /// A number, such as an axis. Axes are counted from the front, never negative.
    Int(i64),
    /// Numbers, such as a permutation.
    Ints(Vec<i64>),
    /// Sizes, possibly symbolic, such as the shape a reshape gives.
    Dims(Vec<Dim>),
    /// A real number.
    Float(Float),
    /// A switch.
    Bool(bool),
    /// A word, such as a mode or an equation.
    Text(Arc<str>),
    /// An element type.
    DType(DType),
    /// A tensor, such as the value of a constant.
    Tensor(Tensor),
}

/// The kind of an attribute's value, as an op declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttrKind {
    /// [`AttrValue::Int`]
    Int,
    /// [`AttrValue::Ints`]
    Ints,
    /// [`AttrValue::Dims`]
    Dims,
    /// [`AttrValue::Float`]
    Float,
    /// [`AttrValue::Bool`]
    Bool,
    /// [`AttrValue::Text`]
    Text,
    /// [`AttrValue::DType`]
    DType,
    /// [`AttrValue::Tensor`]
    Tensor,
}

impl AttrValue {
    /// The kind of this value.
    pub fn kind(&self) -> AttrKind {
        match self {
            AttrValue::Int(_) => AttrKind::Int,
            AttrValue::Ints(_) => AttrKind::Ints,
            AttrValue::Dims(_) => AttrKind::Dims,
            AttrValue::Float(_) => AttrKind::Float,
            AttrValue::Bool(_) => AttrKind::Bool,
            AttrValue::Text(_) => AttrKind::Text,
            AttrValue::DType(_) => AttrKind::DType,
            AttrValue::Tensor(_) => AttrKind::Tensor,
        }
    }
}

impl fmt::Display for AttrKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttrKind::Int => "an integer",
            AttrKind::Ints => "a list of integers",
            AttrKind::Dims => "a list of dimensions",
            AttrKind::Float => "a number",
            AttrKind::Bool => "true or false",
            AttrKind::Text => "a text",
            AttrKind::DType => "an element type",
            AttrKind::Tensor => "a tensor",
        })
    }
}

macro_rules! into_attr_value {
    ($($from:ty => $convert:expr),* $(,)?) => {$(
        impl From<$from> for AttrValue {
            fn from(value: $from) -> AttrValue {
                #[allow(clippy::redundant_closure_call)]
                ($convert)(value)
            }
        }
    )*};
}
into_attr_value! {
    i64 => AttrValue::Int,
    Vec<i64> => AttrValue::Ints,
    &[i64] => |value: &[i64]| AttrValue::Ints(value.to_vec()),
    Vec<Dim> => AttrValue::Dims,
    f64 => |value| AttrValue::Float(Float(value)),
    bool => AttrValue::Bool,
    &str => |value: &str| AttrValue::Text(value.into()),
    DType => AttrValue::DType,
    Tensor => AttrValue::Tensor,
}

/// The attributes of one node, by name.
///
/// The graph checks names and kinds against the op's declaration when a node is added, so the typed
/// getters are for declared attributes only and panic on others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Attrs(BTreeMap<&'static str, AttrValue>);

/// Attributes by name: `attrs! { axis: 1i64, keepdims: true }`.
#[macro_export]
macro_rules! attrs {
    ($($name:ident : $value:expr),* $(,)?) => {
        $crate::Attrs::from_iter([$((stringify!($name), $crate::AttrValue::from($value))),*])
    };
}

impl FromIterator<(&'static str, AttrValue)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (&'static str, AttrValue)>>(values: I) -> Attrs {
        Attrs(values.into_iter().collect())
    }
}

impl Attrs {
    /// No attributes.
    pub fn none() -> Attrs {
        Attrs::default()
    }

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        self.0.get(name)
    }

    /// Sets an attribute.
    pub fn insert(&mut self, name: &'static str, value: impl Into<AttrValue>) {
        self.0.insert(name, value.into());
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &AttrValue)> {
        self.0.iter().map(|(&name, value)| (name, value))
    }
}

macro_rules! typed_getters {
    ($($(#[$doc:meta])* $method:ident $variant:ident($pattern:ident) -> $ty:ty { $result:expr })*) => {
        impl Attrs {$(
            $(#[$doc])*
            ///
            /// # Panics
            /// When the op declares no such attribute of this kind.
            pub fn $method(&self, name: &str) -> $ty {
                match self.0.get(name) {
                    Some(AttrValue::$variant($pattern)) => $result,
                    other => panic!("invariant: attribute `{name}` is declared, found {other:?}"),
                }
            }
        )*}
    };
}
typed_getters! {
    /// An integer attribute.
    int Int(value) -> i64 { *value }
    /// A list of integers.
    ints Ints(values) -> &[i64] { values }
    /// A list of sizes.
    dims Dims(dims) -> &[Dim] { dims }
    /// A real number.
    float Float(value) -> f64 { value.0 }
    /// A switch.
    flag Bool(value) -> bool { *value }
    /// A word.
    text Text(text) -> &str { text }
    /// An element type.
    dtype DType(dtype) -> DType { *dtype }
    /// A tensor.
    tensor Tensor(tensor) -> &Tensor { tensor }
}

impl Attrs {
    /// An integer attribute that is an axis, size or count.
    ///
    /// # Panics
    /// When the op declares no such attribute, or it is negative (inference rejects that).
    pub fn axis(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).expect("invariant: inference rejects negative axes")
    }

    /// A list of axes.
    ///
    /// # Panics
    /// As [`Attrs::axis`].
    pub fn axes(&self, name: &str) -> Vec<usize> {
        let to_axis = |&axis: &i64| {
            usize::try_from(axis).expect("invariant: inference rejects negative axes")
        };
        self.ints(name).iter().map(to_axis).collect()
    }
}
