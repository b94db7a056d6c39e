//! Reductions over the same positions of the same rows, with what stands between, before and after.
//!
//! A row is what one result of a reduction is folded from. All reductions of the body have as many rows
//! and as many elements a row; the number of a row and the position in it, both row-major over the axes
//! that a reduction keeps and folds, mean the same for all of them. Every value of the body is then
//! computed for a row and a position; it may use results of reductions of that row only. This holds when
//! the index maps between say so, whatever reshapes, transposes and broadcasts lie on the way.

use std::collections::BTreeMap;

use fornax_bundle::{Dim, DimRange, Symbol};

use super::walk::{Walk, without_units};
use super::{Rejection, RejectionReason};
use crate::op::{OpClass, OpCtx, ReduceForm};
use crate::plan::adjacent::{is_adjacent, mapped_offset};
use crate::plan::index::{Index, IndexSpace};
use crate::{Graph, IndexExpr, NodeId, delinearize, linearize};

/// Reductions over the same rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The reductions, operands before users.
    pub anchors: Vec<RowAnchor>,
    /// One for each output of the body.
    pub outputs: Vec<RowOutput>,
}

/// A reduction of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowAnchor {
    /// The node.
    pub node: NodeId,
    /// Sizes that rows are counted by, row-major: those of the result.
    pub outer: Vec<Dim>,
    /// Sizes that positions in a row are counted by, row-major.
    pub inner: Vec<Dim>,
    /// How many reductions stand before it, one using the other's result.
    pub level: usize,
}

/// Where the elements of an output lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOutput {
    /// Whether there is a value for each element of the rows; else one for each row.
    pub per_element: bool,
    /// The anchor, an index into [`Rows::anchors`], whose outer and then inner axes `index` is over.
    pub anchor: usize,
    /// The index in the output; each row (and position) has another one.
    pub index: Vec<IndexExpr>,
}

impl Rows {
    /// The rows that the reductions of a body go along: also of a body that is a single reduction.
    ///
    /// # Errors
    /// When they do not go along the same rows. The body has reductions, and no other anchor.
    pub fn of(body: &Graph, dims: &BTreeMap<Symbol, DimRange>) -> Result<Rows, Rejection> {
        let is_anchor = |id: &NodeId| body.node(*id).op.class().is_anchor();
        let anchors: Vec<NodeId> = body.in_order().into_iter().filter(is_anchor).collect();
        rows(body, dims, &anchors)
    }

    /// Whether neighbouring rows lie side by side in memory, and the elements of one row do not.
    pub fn are_interleaved(&self, body: &Graph, dims: &BTreeMap<Symbol, DimRange>) -> bool {
        let mut space = IndexSpace::new(dims);
        let (row, position) = (space.add_var(&self.count()), space.add_var(&self.length()));
        let offsets = self.anchors.iter().filter_map(|anchor| {
            let axes = anchor.axes(&space, &Index::var(row), &Index::var(position));
            let operand = body.operands(anchor.node)[0];
            mapped_offset(body, &space, operand, &anchor.operand_index(body), &axes)
        });
        let along = |offset: &Index| space.depends(offset, row) && space.depends(offset, position);
        let mut offsets = offsets.filter(along).peekable();
        offsets.peek().is_some()
            && offsets.all(|offset| is_adjacent(&offset, row) && !is_adjacent(&offset, position))
    }

    /// The number of rows.
    pub fn count(&self) -> Dim {
        self.anchors[0].outer.iter().product()
    }

    /// The number of elements in a row.
    pub fn length(&self) -> Dim {
        self.anchors[0].inner.iter().product()
    }
}

impl RowAnchor {
    fn new(body: &Graph, node: NodeId) -> RowAnchor {
        let form = reduce_form(body, node);
        let shape = &body.ty(body.operands(node)[0]).shape;
        let inner = form.axes.iter().map(|&axis| shape[axis].clone()).collect();
        RowAnchor { node, outer: body.ty(node).shape.to_vec(), inner, level: 0 }
    }

    /// The index in the result of a row.
    pub fn index(&self, space: &IndexSpace<'_>, row: &Index) -> Vec<Index> {
        space.delinearize(row, &self.outer)
    }

    /// The outer axes of a row, then the inner axes of a position.
    pub fn axes(&self, space: &IndexSpace<'_>, row: &Index, position: &Index) -> Vec<Index> {
        let mut axes = space.delinearize(row, &self.outer);
        axes.extend(space.delinearize(position, &self.inner));
        axes
    }

    /// The index in the operand, over the outer and then the inner axes.
    pub fn operand_index(&self, body: &Graph) -> Vec<IndexExpr> {
        let form = reduce_form(body, self.node);
        let rank = body.ty(body.operands(self.node)[0]).rank();
        let (mut kept, mut folded) = (0, self.outer.len());
        let mut index = Vec::with_capacity(rank);
        for axis in 0..rank {
            let is_folded = form.axes.contains(&axis);
            let counter = if is_folded { &mut folded } else { &mut kept };
            index.push(IndexExpr::axis(*counter));
            *counter += 1;
            kept += usize::from(is_folded && form.keepdims);
        }
        index
    }
}

pub(super) fn reduce_form(body: &Graph, node: NodeId) -> ReduceForm {
    let OpClass::Reduce(form) = body.node(node).op.class() else {
        unreachable!("invariant: the anchors of rows are reductions");
    };
    form(&OpCtx { attrs: &body.node(node).attrs, operands: &body.operand_types(node) })
}

/// The rows that reductions of a body go along.
pub(super) fn rows(
    body: &Graph,
    dims: &BTreeMap<Symbol, DimRange>,
    anchors: &[NodeId],
) -> Result<Rows, Rejection> {
    let mut anchors: Vec<RowAnchor> =
        anchors.iter().map(|&node| RowAnchor::new(body, node)).collect();
    let sizes = |anchor: &RowAnchor| -> (Dim, Dim) {
        (anchor.outer.iter().product(), anchor.inner.iter().product())
    };
    let (count, length) = sizes(&anchors[0]);
    for anchor in &anchors[1..] {
        let own = sizes(anchor);
        if own != (count.clone(), length.clone()) {
            let reason = RejectionReason::RowSizes {
                rows: Box::new(own.0),
                length: Box::new(own.1),
                other_rows: Box::new(count),
                other_length: Box::new(length),
            };
            return Err(Rejection::at(anchor.node, reason));
        }
    }
    set_levels(body, &mut anchors);
    let mut space = IndexSpace::new(dims);
    let row = Index::var(space.add_var(&count));
    let position = Index::var(space.add_var(&length));
    let mut walk = Walk::new(body, space);
    for anchor in &anchors {
        let at = anchor.index(&walk.space, &row);
        walk.expected.insert(anchor.node, at);
    }
    for anchor in &anchors {
        let axes = anchor.axes(&walk.space, &row, &position);
        let index = walk.composed(&anchor.operand_index(body), &axes);
        walk.reach(body.operands(anchor.node)[0], &index)?;
    }
    let mut outputs = Vec::new();
    for output in body.outputs() {
        let shape = &body.ty(output.value).shape;
        let found = candidates(&mut walk, &anchors, output.value, (&count, &length)).into_iter();
        let mut last = RejectionReason::RowOutput(output.name.clone());
        let mut fits = |candidate: &RowOutput| {
            let axes = anchors[candidate.anchor].axes(&walk.space, &row, &position);
            let index = walk.composed(&candidate.index, &axes);
            let index = without_units(&index, shape);
            let reached = walk.reach(output.value, &index);
            if let Err(rejection) = &reached {
                last = rejection.reason.clone();
                // What was on the way has been found wanting, not done.
                walk.done.clear();
            }
            reached.is_ok()
        };
        match found.into_iter().find(|candidate| fits(candidate)) {
            Some(output) => outputs.push(output),
            None => return Err(Rejection::at(output.value, last)),
        }
    }
    Ok(Rows { anchors, outputs })
}

/// Counts the reductions that stand before each one.
fn set_levels(body: &Graph, anchors: &mut [RowAnchor]) {
    let mut levels: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in body.in_order() {
        let level = body.operands(id).iter().map(|operand| levels[operand]).max().unwrap_or(0);
        let own = anchors.iter_mut().find(|anchor| anchor.node == id);
        let after = own.map_or(level, |anchor| {
            anchor.level = level;
            level + 1
        });
        levels.insert(id, after);
    }
}

/// Ways in which an output may lie along the rows, likely ones first.
fn candidates(
    walk: &mut Walk<'_>,
    anchors: &[RowAnchor],
    output: NodeId,
    (count, length): (&Dim, &Dim),
) -> Vec<RowOutput> {
    let body = walk.body;
    let shape = &body.ty(output).shape;
    let elements = shape.elements();
    let mut found = Vec::new();
    for (number, anchor) in anchors.iter().enumerate() {
        let mut add = |per_element, index| {
            found.push(RowOutput { per_element, anchor: number, index });
        };
        if elements == count * length {
            let position = linearize(
                &anchor.operand_index(body),
                &body.ty(body.operands(anchor.node)[0]).shape,
            );
            add(true, delinearize(&position, shape));
            if let Some(index) = permuted(walk, anchor, output) {
                add(true, index);
            }
        }
        if elements == *count {
            let axes: Vec<IndexExpr> = (0..anchor.outer.len()).map(IndexExpr::axis).collect();
            add(false, delinearize(&linearize(&axes, &anchor.outer), shape));
        }
    }
    found
}

/// The index in an output each of whose axes is an axis of the anchor's operand.
fn permuted(walk: &mut Walk<'_>, anchor: &RowAnchor, output: NodeId) -> Option<Vec<IndexExpr>> {
    let shape = &walk.body.ty(output).shape;
    let vars: Vec<Index> = shape.iter().map(|size| Index::var(walk.space.add_var(size))).collect();
    let reached = walk.reached(output, &without_units(&vars, shape), anchor.node)?;
    let mut index: Vec<Option<IndexExpr>> =
        shape.iter().map(|size| size.is(1).then(|| IndexExpr::size(0i64))).collect();
    for (outer, at) in reached.iter().enumerate().filter(|(outer, _)| !anchor.outer[*outer].is(1)) {
        let axis = vars.iter().position(|var| var == at)?;
        if index[axis].is_some() || shape[axis] != anchor.outer[outer] {
            return None;
        }
        index[axis] = Some(IndexExpr::axis(outer));
    }
    let mut inner = anchor.inner.iter().enumerate().filter(|(_, size)| !size.is(1));
    for (axis, slot) in index.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
        let (number, size) = inner.next()?;
        if *size != shape[axis] {
            return None;
        }
        *slot = Some(IndexExpr::axis(anchor.outer.len() + number));
    }
    inner.next().is_none().then(|| index.into_iter().flatten().collect())
}
