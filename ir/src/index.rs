//! Index expressions: how the elements of one tensor map to those of another.

use fornax_bundle::Dim;

/// An integer expression over iteration axes.
///
/// Which axes there are is said where a map is declared (see [`crate::op`]): the axes of a movement's
/// result, the iteration axes of a contraction, and so on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IndexExpr {
    /// The position along an iteration axis.
    Axis(usize),
    /// A size or number that does not depend on the position.
    Size(Dim),
    /// Sum.
    Add(Box<IndexExpr>, Box<IndexExpr>),
    /// Product with a size.
    Mul(Box<IndexExpr>, Dim),
    /// Quotient rounded towards minus infinity, by a positive size.
    FloorDiv(Box<IndexExpr>, Dim),
    /// Remainder of the floor division, by a positive size.
    Mod(Box<IndexExpr>, Dim),
    /// The smaller of two.
    Min(Box<IndexExpr>, Box<IndexExpr>),
    /// The larger of two.
    Max(Box<IndexExpr>, Box<IndexExpr>),
    /// An element of an operand of integer type, such as the indices of a gather.
    Element {
        /// Which operand.
        operand: usize,
        /// Where in it; one expression per axis.
        index: Vec<IndexExpr>,
    },
}

/// A condition on a position. A position is used only where all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Guard {
    /// `low <= value < high`
    Within {
        /// What is compared.
        value: IndexExpr,
        /// Smallest value allowed.
        low: Dim,
        /// First value beyond.
        high: Dim,
    },
    /// `value mod divisor == 0`
    Divisible {
        /// What is divided.
        value: IndexExpr,
        /// By what; positive.
        divisor: Dim,
    },
}

impl IndexExpr {
    /// The position along an axis.
    pub fn axis(axis: usize) -> IndexExpr {
        IndexExpr::Axis(axis)
    }

    /// A size or number.
    pub fn size(size: impl Into<Dim>) -> IndexExpr {
        IndexExpr::Size(size.into())
    }

    /// Whether elements of an operand occur.
    pub fn has_elements(&self) -> bool {
        match self {
            IndexExpr::Axis(_) | IndexExpr::Size(_) => false,
            IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => {
                x.has_elements()
            }
            IndexExpr::Add(a, b) | IndexExpr::Min(a, b) | IndexExpr::Max(a, b) => {
                a.has_elements() || b.has_elements()
            }
            IndexExpr::Element { .. } => true,
        }
    }

    /// The iteration axes that occur, each as often as it does; those of elements' indices are left out.
    pub fn axes(&self) -> Vec<usize> {
        match self {
            IndexExpr::Axis(axis) => vec![*axis],
            IndexExpr::Size(_) | IndexExpr::Element { .. } => Vec::new(),
            IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => x.axes(),
            IndexExpr::Add(a, b) | IndexExpr::Min(a, b) | IndexExpr::Max(a, b) => {
                let mut axes = a.axes();
                axes.extend(b.axes());
                axes
            }
        }
    }

    /// Sum; zero is dropped.
    pub fn plus(self, other: IndexExpr) -> IndexExpr {
        match (&self, &other) {
            (IndexExpr::Size(a), IndexExpr::Size(b)) => IndexExpr::Size(a + b),
            (IndexExpr::Size(zero), _) if zero.is(0) => other,
            (_, IndexExpr::Size(zero)) if zero.is(0) => self,
            _ => IndexExpr::Add(Box::new(self), Box::new(other)),
        }
    }

    /// Product with a size.
    pub fn times(self, factor: impl Into<Dim>) -> IndexExpr {
        let factor = factor.into();
        match self {
            IndexExpr::Size(size) => IndexExpr::Size(size * factor),
            _ if factor.is(0) => IndexExpr::Size(factor),
            _ if factor.is(1) => self,
            _ => IndexExpr::Mul(Box::new(self), factor),
        }
    }

    /// Quotient rounded towards minus infinity, by a positive size.
    pub fn floor_div(self, divisor: impl Into<Dim>) -> IndexExpr {
        let divisor = divisor.into();
        match self {
            IndexExpr::Size(size) => IndexExpr::Size(size.floor_div(&divisor)),
            _ if divisor.is(1) => self,
            _ => IndexExpr::FloorDiv(Box::new(self), divisor),
        }
    }

    /// Remainder of the floor division, by a positive size.
    pub fn modulo(self, divisor: impl Into<Dim>) -> IndexExpr {
        let divisor = divisor.into();
        match self {
            IndexExpr::Size(size) => IndexExpr::Size(size.modulo(&divisor)),
            _ if divisor.is(1) => IndexExpr::size(0i64),
            _ => IndexExpr::Mod(Box::new(self), divisor),
        }
    }

    /// The smaller of two.
    pub fn minimum(self, other: IndexExpr) -> IndexExpr {
        IndexExpr::Min(Box::new(self), Box::new(other))
    }

    /// The larger of two.
    pub fn maximum(self, other: IndexExpr) -> IndexExpr {
        IndexExpr::Max(Box::new(self), Box::new(other))
    }
}

/// Row-major position in a tensor of the given sizes.
pub fn linearize(index: &[IndexExpr], sizes: &[Dim]) -> IndexExpr {
    index.iter().zip(sizes).fold(IndexExpr::size(0i64), |position, (index, size)| {
        position.times(size.clone()).plus(index.clone())
    })
}

/// The index along each axis of a tensor of the given sizes, from the row-major position.
pub fn delinearize(position: &IndexExpr, sizes: &[Dim]) -> Vec<IndexExpr> {
    let mut stride = Dim::constant(1);
    let mut index: Vec<IndexExpr> = Vec::with_capacity(sizes.len());
    for (axis, size) in sizes.iter().enumerate().rev() {
        let quotient = position.clone().floor_div(stride.clone());
        index.push(if axis == 0 { quotient } else { quotient.modulo(size.clone()) });
        stride = stride * size;
    }
    index.reverse();
    index
}
