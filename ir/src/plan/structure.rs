//! What a region's body is: which kind of schedule can lower it, or the fact that forbids it.
//!
//! Fusion asks before it puts nodes together, code generation works from the answer: legality is
//! decided here alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fornax_bundle::{Dim, DimRange, Symbol};

use crate::op::{OpClass, SourceKind};
use crate::{Graph, NodeId, Shape, Type};

mod reduced;
mod rows;
mod walk;

pub use reduced::{Reduced, ResultFold, ResultOutput};
pub use rows::{RowAnchor, RowOutput, Rows};

/// What a region's body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Structure {
    /// Pointwise and movement nodes alone; all results have one shape.
    Pointwise,
    /// One reduction, which only pointwise nodes use; all results have its shape.
    Reduce(NodeId),
    /// One scan, likewise.
    Scan(NodeId),
    /// One window, likewise.
    Window(NodeId),
    /// One contraction, likewise.
    Contraction(NodeId),
    /// One recurrence, the only result.
    Recurrent(NodeId),
    /// Reductions over the same positions of the same rows.
    Rows(Rows),
    /// A contraction with reductions of its result.
    Reduced(Reduced),
}

impl Structure {
    /// The name by which schedule families say what they can lower, such as `rows`.
    pub fn class(&self) -> &'static str {
        match self {
            Structure::Pointwise => "pointwise",
            Structure::Reduce(_) => "reduce",
            Structure::Scan(_) => "scan",
            Structure::Window(_) => "window",
            Structure::Contraction(_) => "contraction",
            Structure::Recurrent(_) => "recurrent",
            Structure::Rows(_) => "rows",
            Structure::Reduced(_) => "reduced",
        }
    }

    /// The anchor that the others stand behind; none for a pointwise body or rows.
    pub fn anchor(&self) -> Option<NodeId> {
        match self {
            Structure::Pointwise | Structure::Rows(_) => None,
            Structure::Reduced(reduced) => Some(reduced.contraction),
            Structure::Reduce(anchor)
            | Structure::Scan(anchor)
            | Structure::Window(anchor)
            | Structure::Contraction(anchor)
            | Structure::Recurrent(anchor) => Some(*anchor),
        }
    }
}

/// Why a body cannot be a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The node that it is about; none when the body has no output.
    pub node: Option<NodeId>,
    /// The fact.
    pub reason: RejectionReason,
}

/// The fact that forbids a region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectionReason {
    /// The body computes nothing.
    #[error("the region has no output")]
    NoOutput,
    /// A node that stands for others, or that nothing can lower.
    #[error("a {0} cannot be computed inside a region")]
    Class(&'static str),
    /// A constant that is not one number.
    #[error("the constant of type {0} has different elements")]
    Constant(Type),
    /// A result of a region with one shape has another one.
    #[error("output `{output}` is {ty}, not of shape {shape}")]
    OutputShape {
        /// Its name.
        output: String,
        /// Its type.
        ty: Type,
        /// The shape of the region's results.
        shape: Shape,
    },
    /// A node that is not pointwise depends on the anchor.
    #[error(
        "only pointwise operators may use the result of the region's reduction, scan, window or \
         contraction"
    )]
    AfterAnchor,
    /// Something is computed from a recurrence.
    #[error("nothing may use the result of the region's recurrence, whose steps need each other's")]
    AfterRecurrence,
    /// Several anchors, of which this is no reduction.
    #[error("a {0} cannot be computed beside another reduction, scan, window or contraction")]
    Anchors(&'static str),
    /// Reductions over different numbers of rows or of elements a row.
    #[error(
        "it folds {rows} rows of {length} elements, the reduction before it {other_rows} of {other_length}"
    )]
    RowSizes {
        /// Its rows.
        rows: Box<Dim>,
        /// Elements of each.
        length: Box<Dim>,
        /// The rows of the first reduction.
        other_rows: Box<Dim>,
        /// Elements of each.
        other_length: Box<Dim>,
    },
    /// A value computed from one row is used for another one.
    #[error("its result is used at another position")]
    Position,
    /// Reductions of a contraction's result along different axes of it.
    #[error("it folds other axes of the contraction's result than the reduction before it")]
    FoldedAxes,
    /// A reduction along something else than axes of a contraction's result that are rows, or columns, of the
    /// product alone.
    #[error(
        "it does not fold whole axes of the contraction's result that are its rows or its columns"
    )]
    FoldedRole,
    /// More elements are folded than a tile of a contraction has along one side.
    #[error("it folds {length} elements of the contraction's result, of which a tile holds {most}")]
    FoldedLength {
        /// Elements.
        length: Box<Dim>,
        /// What a tile holds.
        most: i64,
    },
    /// A result that has neither a value for each row nor one for each element.
    #[error("output `{0}` does not go along the rows of the region's reductions")]
    RowOutput(String),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Rejection {}

impl Rejection {
    fn at(node: NodeId, reason: RejectionReason) -> Rejection {
        Rejection { node: Some(node), reason }
    }
}

/// What a body is. `dims`: ranges of the symbolic sizes.
///
/// # Errors
/// What forbids that the body is computed as one region.
pub fn structure(body: &Graph, dims: &BTreeMap<Symbol, DimRange>) -> Result<Structure, Rejection> {
    let Some(first) = body.outputs().first() else {
        return Err(Rejection { node: None, reason: RejectionReason::NoOutput });
    };
    let order = body.in_order();
    for &id in &order {
        check_node(body, id)?;
    }
    let anchors: Vec<NodeId> =
        order.iter().copied().filter(|&id| body.node(id).op.class().is_anchor()).collect();
    let is_reduce = |&id: &NodeId| matches!(body.node(id).op.class(), OpClass::Reduce(_));
    match anchors[..] {
        [] => {
            one_shape(body, &body.ty(first.value).shape)?;
            Ok(Structure::Pointwise)
        }
        [anchor] if matches!(body.node(anchor).op.class(), OpClass::Recurrent(_)) => {
            match body.outputs().iter().find(|output| output.value != anchor) {
                None => Ok(Structure::Recurrent(anchor)),
                Some(other) => Err(Rejection::at(other.value, RejectionReason::AfterRecurrence)),
            }
        }
        [anchor] => {
            let simple = one_shape(body, &body.ty(anchor).shape)
                .and_then(|()| pointwise_after(body, &order, anchor));
            match (simple, body.node(anchor).op.class()) {
                (Ok(()), OpClass::Reduce(_)) => Ok(Structure::Reduce(anchor)),
                (Ok(()), OpClass::Scan(_)) => Ok(Structure::Scan(anchor)),
                (Ok(()), OpClass::Window(_)) => Ok(Structure::Window(anchor)),
                (Ok(()), _) => Ok(Structure::Contraction(anchor)),
                (Err(_), OpClass::Reduce(_)) => {
                    Ok(Structure::Rows(rows::rows(body, dims, &anchors)?))
                }
                (Err(rejection), _) => Err(rejection),
            }
        }
        _ => {
            let others: Vec<NodeId> = anchors.iter().copied().filter(|id| !is_reduce(id)).collect();
            match others[..] {
                [] => Ok(Structure::Rows(rows::rows(body, dims, &anchors)?)),
                [other] if matches!(body.node(other).op.class(), OpClass::Contraction(_)) => {
                    let folds = anchors.iter().copied().filter(is_reduce).collect();
                    Ok(Structure::Reduced(reduced::reduced(body, dims, other, folds)?))
                }
                [other, ..] => {
                    let class = body.node(other).op.class().name();
                    Err(Rejection::at(other, RejectionReason::Anchors(class)))
                }
            }
        }
    }
}

/// Whether a node may stand in a body at all.
fn check_node(body: &Graph, id: NodeId) -> Result<(), Rejection> {
    let class = body.node(id).op.class();
    let reason = match class {
        OpClass::Source(SourceKind::Weight) => RejectionReason::Class("weight"),
        OpClass::Composite(_) | OpClass::Opaque(_) => RejectionReason::Class(class.name()),
        OpClass::Source(SourceKind::Constant) => {
            let value = body.node(id).attrs.tensor("value");
            let mut elements = value.bytes().chunks_exact(value.dtype().size());
            let first = elements.next();
            if elements.all(|element| Some(element) == first) {
                return Ok(());
            }
            RejectionReason::Constant(body.ty(id).clone())
        }
        _ => return Ok(()),
    };
    Err(Rejection::at(id, reason))
}

fn one_shape(body: &Graph, shape: &Shape) -> Result<(), Rejection> {
    for output in body.outputs() {
        let ty = body.ty(output.value);
        if ty.shape != *shape {
            let (output_name, ty, shape) = (output.name.clone(), ty.clone(), shape.clone());
            let reason = RejectionReason::OutputShape { output: output_name, ty, shape };
            return Err(Rejection::at(output.value, reason));
        }
    }
    Ok(())
}

fn pointwise_after(body: &Graph, order: &[NodeId], anchor: NodeId) -> Result<(), Rejection> {
    let mut after = BTreeSet::from([anchor]);
    for &id in order {
        if body.operands(id).iter().any(|operand| after.contains(operand)) {
            if !matches!(body.node(id).op.class(), OpClass::Pointwise(_)) {
                return Err(Rejection::at(id, RejectionReason::AfterAnchor));
            }
            after.insert(id);
        }
    }
    Ok(())
}
