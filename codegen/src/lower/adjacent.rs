//! Which positions of an iteration are adjacent in memory.

use fornax_ir::op::OpClass;
use fornax_ir::{IndexExpr, NodeId};

use super::index::{Index, IndexSpace, Var};
use super::site::Site;

/// Whether a step of a variable is a step to the next element.
pub(super) fn is_adjacent(offset: &Index, var: Var) -> bool {
    offset.step(var).is_some_and(|step| step.is(1))
}

/// The offset in the region's operand that is read for a node at an index, by which adjacent positions
/// are found; of several operands that of the most involved one. Nothing when no operand is read or the
/// offset is not known without loading.
pub(super) fn memory_offset(
    site: &Site<'_>,
    space: &IndexSpace<'_>,
    node: NodeId,
    index: &[Index],
) -> Option<Index> {
    if site.operand_of(node).is_some() {
        return Some(space.linearize(index, &site.body.ty(node).shape));
    }
    let operands = site.body.operands(node);
    match site.body.node(node).op.class() {
        OpClass::Pointwise(_) => operands
            .iter()
            .filter_map(|&operand| memory_offset(site, space, operand, index))
            .max_by_key(|offset| offset.terms().len()),
        OpClass::Movement(form) => {
            let case = site.with_ctx(node, form).cases.into_iter().next()?;
            mapped_offset(site, space, operands[case.operand], &case.index, index)
        }
        _ => None,
    }
}

/// As [`memory_offset`], at the index that expressions over `axes` give.
pub(super) fn mapped_offset(
    site: &Site<'_>,
    space: &IndexSpace<'_>,
    node: NodeId,
    index: &[IndexExpr],
    axes: &[Index],
) -> Option<Index> {
    if index.iter().any(IndexExpr::has_elements) {
        return None;
    }
    let index: Vec<Index> = index.iter().map(|expr| space.compose(expr, axes, &[])).collect();
    memory_offset(site, space, node, &index)
}
