//! Movement: chains made one, what is uniform computed once, parts taken where they come from.

use egg::Id;
use fornax_ir::op::{OpClass, OpCtx};
use fornax_ir::{Dim, IndexExpr, attrs};

use super::{B_IS_PREPARED, build, premises, rules};
use crate::egraph::{Rule, Site};

premises! {
    IS_UNIFORM_SOMEWHERE "the value repeats along some axis" |site| !uniform_axes(site).is_empty();
    IS_NO_NUMBER "the value is not one number" |site| site.data(site.root()).constant.is_none();
    ONLY_UNIT_AXES "axes of size 1 alone come and go" |site| {
        let sizes = |id: Id| -> Vec<Dim> {
            site.ty(id).shape.iter().filter(|size| !size.is(1)).cloned().collect()
        };
        sizes(site.root()) == sizes(site.value("x"))
    };
    MAP_IS_IDENTITY "every element stays where it is" |site| is_identity(site);
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Movement:
        "identity-movement" Bitwise "(@m=movement ?x)" => build(operand), if [MAP_IS_IDENTITY] when [] "A movement that moves nothing.";
        "transpose-transpose" Bitwise "(@t=transpose (@q=transpose ?x))" => build(transpose_transpose), if [] when [] "Two transposes are one.";
        "reshape-reshape" Bitwise "(@m=reshape (reshape ?x))" => build(reshape_reshape), if [] when [] "The last reshape counts.";
        "reshape-of-reduce" Bitwise "(@m=reshape (@r=reduce ?x))" => build(reduced), if [] when [] "A reduction itself keeps the axes that it folds, or leaves them out.";
        "broadcast-broadcast" Bitwise "(@m=broadcast (broadcast ?x))" => build(broadcast_broadcast), if [] when [] "The last broadcast counts.";
        "slice-slice" Bitwise "(@s=slice (@q=slice ?x))" => build(slice_slice), if [] when [] "A part of a part.";
        "slice-of-broadcast" Bitwise "(@s=slice (broadcast ?x))" => build(slice_of_broadcast), if [] when [] "A part of what repeats is a repeated part.";
        "reshape-of-add" Bitwise "(@m=reshape (@n=add ?x ?b))" => build(through), if [] when [B_IS_PREPARED, ONLY_UNIT_AXES] "A reshape goes before a sum with a prepared value.";
        "reshape-of-sub" Bitwise "(@m=reshape (@n=sub ?x ?b))" => build(through), if [] when [B_IS_PREPARED, ONLY_UNIT_AXES] "A reshape goes before a difference from a prepared value.";
        "reshape-of-mul" Bitwise "(@m=reshape (@n=mul ?x ?b))" => build(through), if [] when [B_IS_PREPARED, ONLY_UNIT_AXES] "A reshape goes before a prepared factor.";
        "pointwise-of-uniform" Bitwise "(@n=pointwise *)" => build(once), if [] when [IS_UNIFORM_SOMEWHERE, IS_NO_NUMBER] "What repeats along an axis is computed once and then repeated.";
    }
}

fn is_identity(site: &Site<'_>) -> bool {
    let node = site.node("m");
    let OpClass::Movement(form) = node.op().class() else { return false };
    let types = site.operand_types(node);
    let ty = site.ty(site.root());
    if types.len() != 1 || types[0] != *ty {
        return false;
    }
    let form = form(&OpCtx { attrs: node.attrs(), operands: &types });
    let [case] = form.cases.as_slice() else { return false };
    let keeps = |(axis, expr): (usize, &IndexExpr)| {
        *expr == IndexExpr::Axis(axis) || (ty.shape[axis].is(1) && *expr == IndexExpr::size(0i64))
    };
    form.fill.is_none() && case.guards.is_empty() && case.index.iter().enumerate().all(keeps)
}

fn operand(site: &mut Site<'_>) -> Option<Id> {
    Some(site.value("x"))
}

/// Both operands moved, then combined.
fn through(site: &mut Site<'_>) -> Option<Id> {
    let (movement, node) = (site.node("m").clone(), site.node("n").clone());
    let x = site.again(&movement, &[site.value("x")])?;
    let b = site.again(&movement, &[site.value("b")])?;
    site.again(&node, &[x, b])
}

fn transpose_transpose(site: &mut Site<'_>) -> Option<Id> {
    let (outer, inner) = (site.node("t").attrs().axes("perm"), site.node("q").attrs().axes("perm"));
    let perm: Vec<usize> = outer.iter().map(|&axis| inner[axis]).collect();
    site.transpose(site.value("x"), &perm)
}

fn reshape_reshape(site: &mut Site<'_>) -> Option<Id> {
    let shape = site.ty(site.root()).shape.clone();
    site.reshape(site.value("x"), shape)
}

fn reduced(site: &mut Site<'_>) -> Option<Id> {
    let node = site.node("r").clone();
    let form = site.reduction(&node);
    let mut shape: Vec<Dim> = Vec::new();
    for (axis, size) in site.ty(site.value("x")).shape.iter().enumerate() {
        match form.axes.contains(&axis) {
            true if form.keepdims => {}
            true => shape.push(Dim::constant(1)),
            false => shape.push(size.clone()),
        }
    }
    if site.ty(site.root()).shape[..] != shape[..] {
        return None;
    }
    let mut attrs = node.attrs().clone();
    attrs.insert("keepdims", !form.keepdims);
    site.add(node.op().name(), attrs, &[site.value("x")])
}

fn broadcast_broadcast(site: &mut Site<'_>) -> Option<Id> {
    let shape = site.ty(site.root()).shape.clone();
    site.broadcast(site.value("x"), &shape)
}

fn slice_slice(site: &mut Site<'_>) -> Option<Id> {
    let (outer, inner) = (site.node("s").attrs().clone(), site.node("q").attrs().clone());
    let rank = outer.ints("steps").len();
    let step = |axis: usize| inner.ints("steps")[axis];
    let starts: Vec<Dim> = (0..rank)
        .map(|axis| {
            &inner.dims("starts")[axis] + &outer.dims("starts")[axis] * Dim::constant(step(axis))
        })
        .collect();
    let steps: Vec<i64> = (0..rank).map(|axis| outer.ints("steps")[axis] * step(axis)).collect();
    let sizes = outer.dims("sizes").to_vec();
    site.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[site.value("x")])
}

fn slice_of_broadcast(site: &mut Site<'_>) -> Option<Id> {
    let attrs = site.node("s").attrs().clone();
    let x = site.value("x");
    let from = site.ty(x).shape.clone();
    let result = site.ty(site.root()).shape.clone();
    let leading = result.rank() - from.rank();
    let (mut starts, mut sizes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, size) in from.iter().enumerate() {
        // An axis of one element is repeated, or the part takes that element or nothing.
        let is_one = size.is(1);
        let at = leading + axis;
        let one = (Dim::constant(0), Dim::constant(1), 1);
        let part = (
            attrs.dims("starts")[at].clone(),
            attrs.dims("sizes")[at].clone(),
            attrs.ints("steps")[at],
        );
        let (start, size, step) = if is_one { one } else { part };
        starts.push(start);
        sizes.push(size);
        steps.push(step);
    }
    let part = if sizes[..] == from[..] && steps.iter().all(|&step| step == 1) {
        x
    } else {
        site.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[x])?
    };
    site.broadcast(part, &result)
}

/// The axes with several elements along which the matched value repeats.
fn uniform_axes(site: &Site<'_>) -> Vec<usize> {
    let data = site.data(site.root());
    (0..data.ty.rank())
        .filter(|&axis| data.is_uniform(axis) && !data.ty.shape[axis].is(1))
        // The first position must be there.
        .filter(|&axis| data.ty.shape[axis].bounds(&site.egraph.analysis.dims).0 > 0)
        .collect()
}

fn once(site: &mut Site<'_>) -> Option<Id> {
    let node = site.node("n").clone();
    let axes = uniform_axes(site);
    let operands: Option<Vec<Id>> =
        node.children.iter().map(|&x| site.narrow(x, |axis| axes.contains(&axis))).collect();
    let narrow = site.again(&node, &operands?)?;
    let shape = site.ty(site.root()).shape.clone();
    site.broadcast(narrow, &shape)
}
