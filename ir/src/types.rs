//! Types of values: an element type and a shape.

use std::fmt;
use std::ops::Deref;

use fornax_bundle::{DType, Dim};

/// Sizes of a tensor, outermost first; rank 0 is a scalar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Shape(Vec<Dim>);

impl Shape {
    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements.
    pub fn elements(&self) -> Dim {
        self.0.iter().product()
    }

    /// The sizes, when none of them is symbolic and none is negative.
    pub fn as_const(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|dim| usize::try_from(dim.as_const()?).ok()).collect()
    }
}

impl Deref for Shape {
    type Target = [Dim];
    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape(dims)
    }
}

impl From<&[Dim]> for Shape {
    fn from(dims: &[Dim]) -> Shape {
        Shape(dims.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        sizes.iter().map(|&size| Dim::from(size)).collect()
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(dims: I) -> Shape {
        Shape(dims.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    /// `[8,N,2*N + 1]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if axis == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Shape,
}

impl Type {
    /// A type.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Type {
        Type { dtype, shape: shape.into() }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The size in bytes.
    pub fn bytes(&self) -> Dim {
        self.shape.elements() * Dim::from(self.dtype.size())
    }
}

impl fmt::Display for Type {
    /// `f32[8,64]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
