//! A contraction and reductions of its result, with what stands between and behind them.
//!
//! The reductions fold the same axes of the result, which are rows, or columns, of the product alone, so that
//! one side of a tile runs along them. Every value behind the contraction is computed for a position of the
//! result, or for all those that are folded together; it uses the contraction's result at this position, and
//! reductions of those. As for rows, this holds when the index maps between say so; between axes of a value
//! and of the contraction's result they have to be permutations.
//!
//! Where more is folded than a side of a tile holds, tiles fold parts, and the last of them puts those together:
//! then there is one reduction, and every result is computed from what it gives.

use std::collections::{BTreeMap, BTreeSet};

use fornax_bundle::{Dim, DimRange, Symbol};

use super::rows::reduce_form;
use super::walk::Walk;
use super::{Rejection, RejectionReason};
use crate::op::{AxisRole, ContractionForm, OpClass, OpCtx};
use crate::plan::index::{Index, IndexSpace};
use crate::{Graph, NodeId};

/// Reductions of a contraction's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduced {
    /// The contraction.
    pub contraction: NodeId,
    /// Whether rows or columns of the product are folded.
    pub role: AxisRole,
    /// The contraction's iteration axes that are folded.
    pub axes: Vec<usize>,
    /// The reductions, operands before users.
    pub folds: Vec<ResultFold>,
    /// One for each output of the body.
    pub outputs: Vec<ResultOutput>,
    /// Whether several tiles have the elements that are folded together.
    pub in_parts: bool,
}

/// A reduction of a contraction's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultFold {
    /// The node.
    pub node: NodeId,
    /// For each axis of its operand the axis of the contraction's result that it is; none for size 1.
    pub operand: Vec<Option<usize>>,
}

/// Where the elements of an output lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultOutput {
    /// Whether there is one value for all positions that are folded together.
    pub is_folded: bool,
    /// For each of its axes the axis of the contraction's result that it is; none for size 1.
    pub along: Vec<Option<usize>>,
}

impl Reduced {
    /// Elements along the longest side of a tile.
    pub const MOST_HELD: i64 = 256;

    /// Results of a fold in parts, at most: the tiles of each are counted.
    pub const MOST_COUNTED: i64 = 1 << 16;

    /// The number of elements that are folded together. `form`: the contraction's.
    pub fn length(&self, form: &ContractionForm) -> Dim {
        self.axes.iter().map(|&axis| &form.axes[axis].0).product()
    }
}

/// The index that has the axes of an index where `along` says so, else 0.
fn placed(index: &[Index], along: &[Option<usize>]) -> Vec<Index> {
    along.iter().map(|axis| axis.map_or_else(Index::default, |axis| index[axis].clone())).collect()
}

impl ResultFold {
    /// The index in the fold's operand of a position of the contraction's result.
    pub fn operand_index(&self, index: &[Index]) -> Vec<Index> {
        placed(index, &self.operand)
    }

    /// The index in its result and the positions along the axes that it folds, of a position of the
    /// contraction's result.
    pub fn axes(&self, body: &Graph, index: &[Index]) -> [Vec<Index>; 2] {
        let form = reduce_form(body, self.node);
        let at = self.operand_index(index);
        let kept = (0..at.len()).filter_map(|axis| match form.axes.contains(&axis) {
            true => form.keepdims.then(Index::default),
            false => Some(at[axis].clone()),
        });
        [kept.collect(), form.axes.iter().map(|&axis| at[axis].clone()).collect()]
    }
}

impl ResultOutput {
    /// The index in the output of a position of the contraction's result.
    pub fn index(&self, index: &[Index]) -> Vec<Index> {
        placed(index, &self.along)
    }
}

/// What reductions behind a contraction fold.
pub(super) fn reduced(
    body: &Graph,
    dims: &BTreeMap<Symbol, DimRange>,
    contraction: NodeId,
    folds: Vec<NodeId>,
) -> Result<Reduced, Rejection> {
    let mut space = IndexSpace::new(dims);
    let shape = &body.ty(contraction).shape;
    // Some positions of a contraction lie outside of its result: nothing may follow from its sizes.
    let at: Vec<Index> = shape.iter().map(|_| Index::var(space.add_dependent(&[]))).collect();
    let mut walk = Walk::new(body, space);
    walk.expected.insert(contraction, at.clone());
    let identity = (0..shape.len()).map(|axis| (!shape[axis].is(1)).then_some(axis)).collect();
    let mut places = Places { contraction, known: vec![(contraction, identity)] };
    let mut folded: Option<BTreeSet<usize>> = None;
    let mut found = Vec::new();
    for node in folds {
        let operand = body.operands(node)[0];
        let Some((_, along)) = places.along(&mut walk, operand, true) else {
            return Err(Rejection::at(contraction, RejectionReason::Anchors("contraction")));
        };
        let form = reduce_form(body, node);
        let own: BTreeSet<usize> = form.axes.iter().filter_map(|&axis| along[axis]).collect();
        if *folded.get_or_insert_with(|| own.clone()) != own {
            return Err(Rejection::at(node, RejectionReason::FoldedAxes));
        }
        walk.reach(operand, &placed(&at, &along))?;
        let kept = (0..along.len()).filter_map(|axis| match form.axes.contains(&axis) {
            true => form.keepdims.then_some(None),
            false => Some(along[axis]),
        });
        let kept: Vec<Option<usize>> = kept.collect();
        walk.expected.insert(node, placed(&at, &kept));
        places.known.push((node, kept));
        found.push(ResultFold { node, operand: along });
    }
    let folded = folded.unwrap_or_default();
    let last = found.last().map_or(contraction, |fold| fold.node);
    let (role, axes) = folded_axes(body, dims, contraction, &folded)
        .ok_or_else(|| Rejection::at(last, RejectionReason::FoldedRole))?;
    let mut outputs = Vec::new();
    for output in body.outputs() {
        let missing =
            || Rejection::at(output.value, RejectionReason::RowOutput(output.name.clone()));
        let (is_folded, along) =
            places.along(&mut walk, output.value, false).ok_or_else(missing)?;
        walk.reach(output.value, &placed(&at, &along))?;
        outputs.push(ResultOutput { is_folded, along });
    }
    let mut reduced = Reduced { contraction, role, axes, folds: found, outputs, in_parts: false };
    let length = reduced.length(&form_of(body, contraction));
    if length.bounds(dims).1 > Reduced::MOST_HELD {
        let results = body.ty(last).shape.elements().bounds(dims).1;
        reduced.in_parts = reduced.folds.len() == 1
            && reduced.outputs.iter().all(|output| output.is_folded)
            && results <= Reduced::MOST_COUNTED;
        if !reduced.in_parts {
            let (length, most) = (Box::new(length), Reduced::MOST_HELD);
            return Err(Rejection::at(last, RejectionReason::FoldedLength { length, most }));
        }
    }
    Ok(reduced)
}

/// The anchors that values are known to be computed from, with the axes of the contraction's result that the
/// axes of theirs are.
struct Places {
    contraction: NodeId,
    known: Vec<(NodeId, Vec<Option<usize>>)>,
}

impl Places {
    /// The axes of the contraction's result that the axes of a value are, and whether it has one element for all
    /// positions that are folded together; `whole`: it must not.
    fn along(
        &self,
        walk: &mut Walk<'_>,
        node: NodeId,
        whole: bool,
    ) -> Option<(bool, Vec<Option<usize>>)> {
        let shape = &walk.body.ty(node).shape;
        let result = &walk.body.ty(self.contraction).shape;
        let vars: Vec<Index> =
            shape.iter().map(|size| Index::var(walk.space.add_var(size))).collect();
        let sources = self.known.iter().filter(|(source, _)| !whole || *source == self.contraction);
        for (source, axes) in sources {
            let Some(reached) = walk.reached(node, &vars, *source) else { continue };
            let mut along = vec![None; shape.len()];
            for (at, &axis) in reached.iter().zip(axes) {
                let Some(axis) = axis else { continue };
                let own = vars.iter().position(|var| var == at)?;
                // A part of an axis, as a slice from its first position takes it, is not the axis.
                if shape[own] != result[axis] {
                    return None;
                }
                along[own] = Some(axis);
            }
            let is_complete = (0..shape.len()).all(|own| along[own].is_some() != shape[own].is(1));
            let sizes = axes.iter().flatten().count();
            if is_complete && along.iter().flatten().count() == sizes {
                return Some((*source != self.contraction, along));
            }
        }
        None
    }
}

/// The iteration axes that axes of a contraction's result are, which all are rows, or columns.
fn folded_axes(
    body: &Graph,
    dims: &BTreeMap<Symbol, DimRange>,
    contraction: NodeId,
    folded: &BTreeSet<usize>,
) -> Option<(AxisRole, Vec<usize>)> {
    let form = form_of(body, contraction);
    let shape = &body.ty(contraction).shape;
    let mut space = IndexSpace::new(dims);
    let var = |space: &mut IndexSpace<'_>, size: &Dim| match size.is(1) {
        true => Index::default(),
        false => Index::var(space.add_var(size)),
    };
    let vars: Vec<Index> = form.axes.iter().map(|(size, _)| var(&mut space, size)).collect();
    let mut axes = Vec::new();
    for &axis in folded {
        let index = space.compose(&form.out[axis], &vars, &[]);
        let is_it = |(other, (size, _)): (&Index, &(Dim, AxisRole))| {
            *other == index && *size == shape[axis]
        };
        axes.push(vars.iter().zip(&form.axes).position(is_it)?);
    }
    let role = form.axes[*axes.first()?].1;
    let is_side = matches!(role, AxisRole::Rows | AxisRole::Columns);
    let is_same = axes.iter().all(|&axis| form.axes[axis].1 == role);
    (is_side && is_same).then_some((role, axes))
}

fn form_of(body: &Graph, contraction: NodeId) -> ContractionForm {
    let OpClass::Contraction(form) = body.node(contraction).op.class() else {
        unreachable!("invariant: the anchor before the reductions is a contraction");
    };
    let operands = body.operand_types(contraction);
    form(&OpCtx { attrs: &body.node(contraction).attrs, operands: &operands })
}
