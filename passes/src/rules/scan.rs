//! Scans: in the other direction, and of the elements before.

use egg::Id;
use fornax_ir::op::{OpClass, OpCtx, ScanForm};
use fornax_ir::{Attrs, Dim};

use super::{build, rules};
use crate::egraph::{ENode, Rule, Site};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Movement:
        "scan-of-reversed" Bitwise "(@s=slice (@n=scan (@q=slice ?x)))" => build(reversed), if [] when [] "A scan of what is reversed, reversed again, goes in the other direction.";
        "sums-behind-zero" Real "(concat 0 (@n=cum_sum (@q=slice ?x)))" => build(behind_zero), if [] when [] "A zero before the sums of all but the last elements: the sums of the elements before.";
    }
}

/// How a scan node scans.
fn form(site: &Site<'_>, node: &ENode) -> Option<ScanForm> {
    let types = site.operand_types(node);
    match node.op().class() {
        OpClass::Scan(form) => Some(form(&OpCtx { attrs: node.attrs(), operands: &types })),
        _ => None,
    }
}

/// Whether a slice takes, of `shape`, all along most axes and along one axis what `start`, `step` and `size`
/// say.
fn takes(slice: &Attrs, shape: &[Dim], axis: usize, (start, step, size): (Dim, i64, Dim)) -> bool {
    let all = |at: usize| (Dim::constant(0), 1, shape[at].clone());
    (0..shape.len()).all(|at| {
        let taken = if at == axis { (start.clone(), step, size.clone()) } else { all(at) };
        (&slice.dims("starts")[at], slice.ints("steps")[at], &slice.dims("sizes")[at])
            == (&taken.0, taken.1, &taken.2)
    })
}

fn reversed(site: &mut Site<'_>) -> Option<Id> {
    let (outer, node, inner) = (site.node("s"), site.node("n").clone(), site.node("q"));
    let axis = form(site, &node)?.axis;
    let shape = &site.ty(site.value("x")).shape;
    let length = &shape[axis];
    let reverses = |slice: &ENode| {
        let last = length - &Dim::constant(1);
        takes(slice.attrs(), shape, axis, (last, -1, length.clone()))
    };
    if !reverses(outer) || !reverses(inner) {
        return None;
    }
    scan(site, &node, "reverse")
}

fn behind_zero(site: &mut Site<'_>) -> Option<Id> {
    let (node, inner) = (site.node("n").clone(), site.node("q"));
    let form = form(site, &node)?;
    let shape = &site.ty(site.value("x")).shape;
    let rest = &shape[form.axis] - &Dim::constant(1);
    let is_rest = takes(inner.attrs(), shape, form.axis, (Dim::constant(0), 1, rest));
    // The zero stands along the axis of the sums: else the result would have another shape.
    if !is_rest || form.exclusive || form.reverse || site.ty(site.root()).shape != *shape {
        return None;
    }
    scan(site, &node, "exclusive")
}

/// The scan of `x` with a flag turned.
fn scan(site: &mut Site<'_>, node: &ENode, flag: &'static str) -> Option<Id> {
    let mut attrs = node.attrs().clone();
    attrs.insert(flag, !node.attrs().flag(flag));
    site.add(node.op().name(), attrs, &[site.value("x")])
}
