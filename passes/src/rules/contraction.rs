//! Contractions of any kind, by the roles of their axes: factors moved into operands, sums over axes of
//! the result, transposes.

use std::collections::BTreeSet;

use egg::Id;
use fornax_ir::op::{ContractionForm, OperandMap};
use fornax_ir::{Dim, IndexExpr, Shape, attrs};

use super::{build, premises, rules};
use crate::egraph::{ENode, Rule, Site};

fn is_prepared(site: &Site<'_>, name: &str) -> bool {
    site.data(site.value(name)).prepared
}

premises! {
    S_IS_PREPARED "s is prepared" |site| is_prepared(site, "s");
    X_IS_COMPUTED "x is computed at each run" |site| !is_prepared(site, "x");
    A_IS_PREPARED "a is prepared" |site| is_prepared(site, "a");
    B_IS_PREPARED "b is prepared" |site| is_prepared(site, "b");
    IS_NO_STATISTIC "no other fold reads the contraction" |site|
        !site.is_statistic_of(site.node("r").children[0]);
    IS_FLOAT "the elements are floats" |site| site.ty(site.root()).dtype.is_float();
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    let algebra = rules! { Algebra:
        "scale-into-right" Real "(mul (@c=contraction ?a ?b) ?s)" => build(scale_right), if [] when [S_IS_PREPARED, B_IS_PREPARED] "A prepared factor that varies along axes of the right operand alone is moved into it (batch norm, scales).";
        "scale-into-left" Real "(mul (@c=contraction ?a ?b) ?s)" => build(scale_left), if [] when [S_IS_PREPARED, A_IS_PREPARED] "A prepared factor that varies along axes of the left operand alone is moved into it.";
        "left-scale-into-right" Real "(@c=contraction (mul ?x ?s) ?b)" => build(across_to_right), if [] when [S_IS_PREPARED, B_IS_PREPARED] "A prepared factor of the left operand along axes that both have is moved to the right one.";
        "right-scale-into-left" Real "(@c=contraction ?a (mul ?x ?s))" => build(across_to_left), if [] when [S_IS_PREPARED, A_IS_PREPARED] "A prepared factor of the right operand along axes that both have is moved to the left one.";
        "sum-of-contraction" Real "(@r=reduce_sum (@c=contraction ?a ?b))" => build(sum_of_contraction), if [] when [IS_NO_STATISTIC] "A sum over axes that one operand brings is a contraction with that operand summed (GEMM to GEMV).";
        "mean-of-contraction" Real "(@r=reduce_mean (@c=contraction ?a ?b))" => build(sum_of_contraction), if [IS_FLOAT] when [IS_NO_STATISTIC] "A mean over axes that one operand brings is a contraction with that operand's mean.";
    };
    let movement = rules! { Movement:
        "transposed-left" Real "(@c=contraction (@t=transpose ?x) ?b)" => build(transposed_left), if [] when [X_IS_COMPUTED] "A contraction reads its left operand in any order (a prepared one is put in order once).";
        "transposed-right" Real "(@c=contraction ?a (@t=transpose ?x))" => build(transposed_right), if [] when [X_IS_COMPUTED] "A contraction reads its right operand in any order.";
        "transposed-result" Real "(@t=transpose (@c=contraction ?a ?b))" => build(transposed_result), if [] when [] "A contraction writes its result in any order.";
    };
    [algebra, movement].concat()
}

/// The axis of a map with this index.
fn axis_of(map: &OperandMap, index: &IndexExpr) -> Option<usize> {
    map.index.iter().position(|other| other == index)
}

/// The axes of `s`, which is shaped as the result or an operand with the given indices, in an operand:
/// pairs of an axis of `s` and one of the operand. Nothing when `s` varies along another axis.
fn axes_in(
    site: &Site<'_>,
    s: Id,
    from: &[IndexExpr],
    map: &OperandMap,
    operand: &Shape,
) -> Option<Vec<(usize, usize)>> {
    let data = site.data(s);
    let varying = (0..from.len()).filter(|&axis| !data.is_uniform(axis));
    varying
        .map(|axis| {
            let to = axis_of(map, &from[axis])?;
            (operand[to] == data.ty.shape[axis]).then_some((axis, to))
        })
        .collect()
}

/// `s`, which varies along the first axes of `pairs` alone, along the second ones of another shape.
fn realigned(site: &mut Site<'_>, s: Id, pairs: &[(usize, usize)], shape: &Shape) -> Option<Id> {
    let kept: BTreeSet<usize> = pairs.iter().map(|(from, _)| *from).collect();
    let narrow = site.narrow(s, |axis| !kept.contains(&axis))?;
    let mut ordered = pairs.to_vec();
    ordered.sort_by_key(|(_, to)| *to);
    let rank = site.ty(narrow).rank();
    let perm: Vec<usize> = ordered
        .iter()
        .map(|(from, _)| *from)
        .chain((0..rank).filter(|axis| !kept.contains(axis)))
        .collect();
    let in_order = ordered.is_sorted();
    let turned = if in_order { narrow } else { site.transpose(narrow, &perm)? };
    let mut sizes = vec![Dim::constant(1); shape.rank()];
    for (_, to) in pairs {
        sizes[*to] = shape[*to].clone();
    }
    let aligned = site.reshape(turned, sizes)?;
    site.broadcast(aligned, shape)
}

/// The operands of `@c` with one of them multiplied by `s`, which is indexed as given.
fn scaled(site: &mut Site<'_>, operands: [Id; 2], which: usize, from: &[IndexExpr]) -> Option<Id> {
    let node = site.node("c").clone();
    let form = site.contraction(&node);
    let map = if which == 0 { &form.lhs } else { &form.rhs };
    let (s, shape) = (site.value("s"), site.ty(operands[which]).shape.clone());
    let pairs = axes_in(site, s, from, map, &shape)?;
    let factor = realigned(site, s, &pairs, &shape)?;
    let mut operands = operands;
    operands[which] = site.apply("mul", &[operands[which], factor])?;
    site.again(&node, &operands)
}

fn scale_result(site: &mut Site<'_>, which: usize) -> Option<Id> {
    let form = site.contraction(site.node("c"));
    let operands = [site.value("a"), site.value("b")];
    scaled(site, operands, which, &form.out)
}

fn scale_right(site: &mut Site<'_>) -> Option<Id> {
    scale_result(site, 1)
}

fn scale_left(site: &mut Site<'_>) -> Option<Id> {
    scale_result(site, 0)
}

fn across_to_right(site: &mut Site<'_>) -> Option<Id> {
    let form = site.contraction(site.node("c"));
    let operands = [site.value("x"), site.value("b")];
    scaled(site, operands, 1, &form.lhs.index)
}

fn across_to_left(site: &mut Site<'_>) -> Option<Id> {
    let form = site.contraction(site.node("c"));
    let operands = [site.value("a"), site.value("x")];
    scaled(site, operands, 0, &form.rhs.index)
}

fn mentions(expr: &IndexExpr, axis: usize) -> bool {
    match expr {
        IndexExpr::Axis(other) => *other == axis,
        IndexExpr::Size(_) => false,
        IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => {
            mentions(x, axis)
        }
        IndexExpr::Add(a, b) | IndexExpr::Min(a, b) | IndexExpr::Max(a, b) => {
            mentions(a, axis) || mentions(b, axis)
        }
        IndexExpr::Element { index, .. } => index.iter().any(|expr| mentions(expr, axis)),
    }
}

/// The operand (0 or 1) that alone brings an axis of the result, and the axis in it.
fn brought_by(form: &ContractionForm, out_axis: usize) -> Option<(usize, usize)> {
    let IndexExpr::Axis(axis) = form.out[out_axis] else { return None };
    let is_in = |map: &OperandMap| map.index.iter().any(|expr| mentions(expr, axis));
    let plain = IndexExpr::Axis(axis);
    let elsewhere =
        form.out.iter().enumerate().any(|(other, expr)| other != out_axis && mentions(expr, axis));
    let alone_in = |map: &OperandMap| {
        let uses = map.index.iter().filter(|expr| mentions(expr, axis)).count();
        axis_of(map, &plain).filter(|_| uses == 1)
    };
    match (is_in(&form.lhs), is_in(&form.rhs)) {
        _ if elsewhere => None,
        (true, false) => Some((0, alone_in(&form.lhs)?)),
        (false, true) => Some((1, alone_in(&form.rhs)?)),
        _ => None,
    }
}

fn sum_of_contraction(site: &mut Site<'_>) -> Option<Id> {
    let (outer, node) = (site.node("r").clone(), site.node("c").clone());
    let form = site.contraction(&node);
    let axes = site.reduction(&outer).axes;
    let mut of_operand = [Vec::new(), Vec::new()];
    for &axis in &axes {
        let (operand, own_axis) = brought_by(&form, axis)?;
        of_operand[operand].push(own_axis);
    }
    let a = site.reduce(outer.op().name(), site.value("a"), &of_operand[0])?;
    let b = site.reduce(outer.op().name(), site.value("b"), &of_operand[1])?;
    let smaller = site.again(&node, &[a, b])?;
    let result = site.ty(site.root()).shape.clone();
    site.reshape(smaller, result)
}

/// The letters of a contraction's operands and result, when each axis has one.
fn letters(form: &ContractionForm) -> Option<[Vec<u8>; 3]> {
    let letter = |expr: &IndexExpr| match expr {
        IndexExpr::Axis(axis) if *axis < 26 => Some(b'a' + *axis as u8),
        _ => None,
    };
    if !form.lhs.guards.is_empty() || !form.rhs.guards.is_empty() {
        return None;
    }
    let of = |index: &[IndexExpr]| index.iter().map(letter).collect::<Option<Vec<u8>>>();
    Some([of(&form.lhs.index)?, of(&form.rhs.index)?, of(&form.out)?])
}

fn einsum(site: &mut Site<'_>, letters: &[Vec<u8>; 3], operands: &[Id]) -> Option<Id> {
    let [left, right, result] =
        letters.each_ref().map(|letters| String::from_utf8_lossy(letters).into_owned());
    let equation = format!("{left},{right}->{result}");
    site.add("einsum", attrs! { equation: equation.as_str() }, operands)
}

/// The letters of a transpose's operand from those of its result.
fn before(transpose: &ENode, letters: &[u8]) -> Vec<u8> {
    let mut from = letters.to_vec();
    for (axis, source) in transpose.attrs().axes("perm").into_iter().enumerate() {
        from[source] = letters[axis];
    }
    from
}

fn transposed_left(site: &mut Site<'_>) -> Option<Id> {
    let mut letters = letters(&site.contraction(site.node("c")))?;
    letters[0] = before(site.node("t"), &letters[0]);
    einsum(site, &letters, &[site.value("x"), site.value("b")])
}

fn transposed_right(site: &mut Site<'_>) -> Option<Id> {
    let mut letters = letters(&site.contraction(site.node("c")))?;
    letters[1] = before(site.node("t"), &letters[1]);
    einsum(site, &letters, &[site.value("a"), site.value("x")])
}

fn transposed_result(site: &mut Site<'_>) -> Option<Id> {
    let mut letters = letters(&site.contraction(site.node("c")))?;
    let perm = site.node("t").attrs().axes("perm");
    letters[2] = perm.iter().map(|&axis| letters[2][axis]).collect();
    einsum(site, &letters, &[site.value("a"), site.value("b")])
}
