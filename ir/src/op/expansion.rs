//! Building the expansion of a composite op.

use fornax_bundle::{DType, Dim};

use super::Expansion;
use super::contraction::accumulator;
use crate::{Attrs, Diagnostic, NodeId, Shape, Type, attrs, size_from_back};

type Built = Result<NodeId, Diagnostic>;

impl Expansion<'_> {
    /// The type of a value.
    pub(super) fn ty(&self, x: NodeId) -> Type {
        self.graph.ty(x).clone()
    }

    /// An op of one operand without attributes.
    pub(super) fn unary(&mut self, op: &str, x: NodeId) -> Built {
        self.add(op, Attrs::none(), &[x])
    }

    /// An op of two operands without attributes, which are broadcast against each other.
    pub(super) fn binary(&mut self, op: &str, a: NodeId, b: NodeId) -> Built {
        let shape = broadcast_shape(&self.graph.ty(a).shape, &self.graph.ty(b).shape);
        let (a, b) = (self.broadcast(a, &shape)?, self.broadcast(b, &shape)?);
        self.add(op, Attrs::none(), &[a, b])
    }

    /// An op of two operands without attributes, the second one a number of the first one's type.
    pub(super) fn with_number(&mut self, op: &str, x: NodeId, number: f64) -> Built {
        let number = self.graph.scalar(self.graph.ty(x).dtype, number);
        self.binary(op, x, number)
    }

    /// A number of another value's type in every element of a shape.
    pub(super) fn with_shape(
        &mut self,
        like: NodeId,
        number: f64,
        shape: impl Into<Shape>,
    ) -> Built {
        let number = self.graph.scalar(self.graph.ty(like).dtype, number);
        self.broadcast(number, &shape.into())
    }

    /// `condition ? a : b`, all broadcast to the condition's shape.
    pub(super) fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Built {
        let shape = self.ty(condition).shape;
        let (a, b) = (self.broadcast(a, &shape)?, self.broadcast(b, &shape)?);
        self.add("where", Attrs::none(), &[condition, a, b])
    }

    /// A reduction that keeps the folded axes with size 1.
    pub(super) fn reduce(&mut self, op: &str, x: NodeId, axes: &[i64]) -> Built {
        self.add(op, attrs! { axes: axes, keepdims: true }, &[x])
    }

    /// A value broadcast to a shape, axes aligned at the back.
    pub(super) fn broadcast(&mut self, x: NodeId, shape: &Shape) -> Built {
        if self.graph.ty(x).shape == *shape {
            return Ok(x);
        }
        self.add("broadcast", attrs! { shape: shape.to_vec() }, &[x])
    }

    /// A value in another shape with the same elements.
    pub(super) fn reshape(&mut self, x: NodeId, shape: impl Into<Shape>) -> Built {
        let shape = shape.into();
        if self.graph.ty(x).shape == shape {
            return Ok(x);
        }
        self.add("reshape", attrs! { shape: shape.to_vec() }, &[x])
    }

    /// A value of another element type.
    pub(super) fn cast(&mut self, x: NodeId, dtype: DType) -> Built {
        if self.graph.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.add("cast", attrs! { to: dtype }, &[x])
    }

    /// A float in the precision that statistics are computed in: `f32` for narrower ones.
    pub(super) fn widened(&mut self, x: NodeId) -> Built {
        let dtype = accumulator(self.graph.ty(x).dtype);
        self.cast(x, dtype)
    }

    /// One value per channel, shaped to broadcast along axis 1 of a tensor of rank `rank`.
    pub(super) fn per_channel(&mut self, x: NodeId, rank: usize) -> Built {
        self.along_axis(x, 1, rank)
    }

    /// One value per position of an axis, shaped to broadcast along it.
    pub(super) fn along_axis(&mut self, x: NodeId, axis: usize, rank: usize) -> Built {
        let mut shape = self.ty(x).shape.to_vec();
        shape.resize(rank - axis, Dim::constant(1));
        self.reshape(x, shape)
    }
}

/// The shape two operands of one op are broadcast to.
fn broadcast_shape(a: &Shape, b: &Shape) -> Shape {
    let rank = a.rank().max(b.rank());
    let size = |from_back| {
        let size = size_from_back(a, from_back);
        if size.is(1) { size_from_back(b, from_back) } else { size }
    };
    (0..rank).rev().map(size).collect()
}
