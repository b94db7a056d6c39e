//! Which positions of an iteration are adjacent in memory.

use super::index::{Index, IndexSpace, Var};
use crate::op::{OpClass, OpCtx, SourceKind};
use crate::{Graph, Guard, IndexExpr, NodeId, Scalar};

/// Whether a step of a variable is a step to the next element.
pub fn is_adjacent(offset: &Index, var: Var) -> bool {
    offset.step(var).is_some_and(|step| step.is(1))
}

/// The offset in the operand of a region that is read for a node of its body at an index, by which
/// adjacent positions are found; of several operands that of the most involved one. Nothing when no
/// operand is read or the offset is not known without loading.
pub fn memory_offset(
    body: &Graph,
    space: &IndexSpace<'_>,
    node: NodeId,
    index: &[Index],
) -> Option<Index> {
    let operands = body.operands(node);
    match body.node(node).op.class() {
        OpClass::Source(SourceKind::Input) => Some(space.linearize(index, &body.ty(node).shape)),
        OpClass::Pointwise(_) => operands
            .iter()
            .filter_map(|&operand| memory_offset(body, space, operand, index))
            .max_by_key(|offset| offset.terms().len()),
        OpClass::Movement(form) => {
            let ctx = OpCtx { attrs: &body.node(node).attrs, operands: &body.operand_types(node) };
            let case = form(&ctx).cases.into_iter().next()?;
            mapped_offset(body, space, operands[case.operand], &case.index, index)
        }
        _ => None,
    }
}

/// As [`memory_offset`], at the index that expressions over `axes` give.
pub fn mapped_offset(
    body: &Graph,
    space: &IndexSpace<'_>,
    node: NodeId,
    index: &[IndexExpr],
    axes: &[Index],
) -> Option<Index> {
    if index.iter().any(IndexExpr::has_elements) {
        return None;
    }
    let index: Vec<Index> = index.iter().map(|expr| space.compose(expr, axes, &[])).collect();
    memory_offset(body, space, node, &index)
}

/// The input of a region's body whose elements a node has, moved by known indices alone, with zeros where a
/// movement has none.
pub fn moved_input(body: &Graph, node: NodeId) -> Option<NodeId> {
    let form = match body.node(node).op.class() {
        OpClass::Source(SourceKind::Input) => return Some(node),
        OpClass::Movement(form) => form,
        _ => return None,
    };
    let operands = body.operands(node);
    let types = body.operand_types(node);
    let form = form(&OpCtx { attrs: &body.node(node).attrs, operands: &types });
    let [case] = form.cases.as_slice() else { return None };
    let zero = |fill: &Scalar| matches!(fill, Scalar::Float(_, value) if value.0 == 0.0);
    let guards = case.guards.iter().map(|guard| match guard {
        Guard::Within { value, .. } | Guard::Divisible { value, .. } => value,
    });
    let known = !case.index.iter().chain(guards).any(IndexExpr::has_elements);
    match known && form.fill.as_ref().is_none_or(zero) {
        true => moved_input(body, operands[case.operand]),
        false => None,
    }
}
