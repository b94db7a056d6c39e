//! What a region reads of its operands.

use std::collections::BTreeMap;

use fornax_bundle::{Dim, DimRange, Symbol};

use super::index::{Index, IndexSpace};
use crate::op::{OpClass, OpCtx};
use crate::{Graph, NodeId};

/// How many positions of an input along each axis a body may read (see [`read_range`]).
pub fn read_box(body: &Graph, input: NodeId, dims: &BTreeMap<Symbol, DimRange>) -> Vec<Dim> {
    (0..body.ty(input).rank())
        .map(|axis| {
            let (first, end) = read_range(body, input, axis, dims);
            end - first
        })
        .collect()
}

/// The positions of an input along an axis that a body may read: from the first to before the second.
/// Movements that use the input are looked at; anything else reads all of it.
pub fn read_range(
    body: &Graph,
    input: NodeId,
    axis: usize,
    dims: &BTreeMap<Symbol, DimRange>,
) -> (Dim, Dim) {
    let whole = (Dim::constant(0), body.ty(input).shape[axis].clone());
    if body.outputs().iter().any(|output| output.value == input) {
        return whole;
    }
    let mut range: Option<(Dim, Dim)> = None;
    for user in body.users(input) {
        let OpClass::Movement(form) = body.node(user).op.class() else { return whole };
        let types = body.operand_types(user);
        let form = form(&OpCtx { attrs: &body.node(user).attrs, operands: &types });
        let mut space = IndexSpace::new(dims);
        let axes: Vec<Index> =
            body.ty(user).shape.iter().map(|size| Index::var(space.add_var(size))).collect();
        let operands = body.operands(user);
        for case in form.cases.iter().filter(|case| operands[case.operand] == input) {
            // Guards narrow a case further, which slices do not need.
            if case.index[axis].has_elements() {
                return whole;
            }
            let index = space.compose(&case.index[axis], &axes, &[]);
            let (Some(low), Some(high)) = space.bounds(&index) else { return whole };
            // Where guards keep a case from reading outside, its index may still lie there.
            let is_outside = low.as_const().is_some_and(|low| low < 0);
            let low = if is_outside { whole.0.clone() } else { low };
            let end = high + Dim::constant(1);
            let beyond = (&whole.1 - &end).as_const().is_some_and(|rest| rest < 0);
            let end = if beyond { whole.1.clone() } else { end };
            range = Some(match range {
                None => (low, end),
                Some((first, last)) => {
                    match ((&low - &first).as_const(), (&end - &last).as_const()) {
                        (Some(below), Some(above)) => (
                            if below < 0 { low } else { first },
                            if above > 0 { end } else { last },
                        ),
                        _ => return whole,
                    }
                }
            });
        }
    }
    range.unwrap_or(whole)
}
