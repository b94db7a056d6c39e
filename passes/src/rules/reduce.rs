//! Reductions: over nothing, of reductions, of what is uniform or linear.

use egg::Id;
use fornax_ir::{Shape, attrs};

use super::{B_IS_PREPARED, build, premises, rules};
use crate::egraph::{Rule, Site};

/// Whether a value is the same along all axes that `@r` folds.
fn is_uniform(site: &Site<'_>, name: &str) -> bool {
    let data = site.data(site.value(name));
    site.reduction(site.node("r")).axes.iter().all(|&axis| data.is_uniform(axis))
}

premises! {
    S_IS_UNIFORM "s is the same along the folded axes" |site| is_uniform(site, "s");
    B_IS_UNIFORM "b is the same along the folded axes" |site| is_uniform(site, "b");
    IS_FLOAT "the elements are floats" |site| site.ty(site.root()).dtype.is_float();
    INNER_KEEPS_AXES "the inner reduction keeps its axes" |site|
        site.reduction(site.node("q")).keepdims;
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Algebra:
        "sum-of-one" Real "(@r=reduce_sum ?x)" => build(reshaped), if [] when [] "A sum of one element is the element.";
        "mean-of-one" Real "(@r=reduce_mean ?x)" => build(reshaped), if [] when [] "A mean of one element is the element.";
        "prod-of-one" Real "(@r=reduce_prod ?x)" => build(reshaped), if [] when [] "A product of one element is the element.";
        "max-of-one" Bitwise "(@r=reduce_max ?x)" => build(reshaped), if [] when [] "The largest of one element.";
        "min-of-one" Bitwise "(@r=reduce_min ?x)" => build(reshaped), if [] when [] "The smallest of one element.";
        "sum-of-sum" Real "(@r=reduce_sum (@q=reduce_sum ?x))" => build(joined), if [INNER_KEEPS_AXES] when [] "Sums over axes in turn are one sum.";
        "mean-of-mean" Real "(@r=reduce_mean (@q=reduce_mean ?x))" => build(joined), if [INNER_KEEPS_AXES, IS_FLOAT] when [] "Means over axes in turn are one mean.";
        "max-of-max" Bitwise "(@r=reduce_max (@q=reduce_max ?x))" => build(joined), if [INNER_KEEPS_AXES] when [] "Maxima over axes in turn are one maximum.";
        "min-of-min" Bitwise "(@r=reduce_min (@q=reduce_min ?x))" => build(joined), if [INNER_KEEPS_AXES] when [] "Minima over axes in turn are one minimum.";
        "sum-of-scaled" Real "(@r=reduce_sum (mul ?x ?s))" => build(scaled), if [S_IS_UNIFORM] when [] "A factor that is the same for all summands.";
        "mean-of-scaled" Real "(@r=reduce_mean (mul ?x ?s))" => build(scaled), if [S_IS_UNIFORM, IS_FLOAT] when [] "A factor that is the same for all elements.";
        "mean-of-shifted" Real "(@r=reduce_mean (add ?x ?b))" => build(shifted), if [B_IS_UNIFORM, IS_FLOAT] when [] "A summand that is the same for all elements.";
        "mean-of-lowered" Real "(@r=reduce_mean (sub ?x ?b))" => build(lowered), if [B_IS_UNIFORM, IS_FLOAT] when [] "A subtrahend that is the same for all elements.";
        "max-of-shifted" Real "(@r=reduce_max (add ?x ?b))" => build(shifted), if [B_IS_UNIFORM, IS_FLOAT] when [B_IS_PREPARED] "A summand that is the same for all elements.";
        "sum-of-add" Real "(@r=reduce_sum (add ?x ?b))" => build(sum_of_add), if [] when [B_IS_PREPARED] "A sum with a prepared summand.";
        "mean-of-add" Real "(@r=reduce_mean (add ?x ?b))" => build(sum_of_add), if [IS_FLOAT] when [B_IS_PREPARED] "A mean with a prepared summand.";
        "sum-of-sub" Real "(@r=reduce_sum (sub ?x ?b))" => build(sum_of_sub), if [] when [B_IS_PREPARED] "A sum with a prepared subtrahend.";
        "mean-of-sub" Real "(@r=reduce_mean (sub ?x ?b))" => build(sum_of_sub), if [IS_FLOAT] when [B_IS_PREPARED] "A mean with a prepared subtrahend.";
    }
}

/// `x` in the shape of the result, when it has as many elements.
fn reshaped(site: &mut Site<'_>) -> Option<Id> {
    let shape = site.ty(site.root()).shape.clone();
    site.reshape(site.value("x"), shape)
}

/// One reduction over the axes of both.
fn joined(site: &mut Site<'_>) -> Option<Id> {
    let (outer, inner) = (site.node("r").clone(), site.node("q").clone());
    let mut axes: Vec<i64> = outer.attrs().ints("axes").to_vec();
    axes.extend(inner.attrs().ints("axes"));
    axes.sort_unstable();
    axes.dedup();
    let attrs = attrs! { axes: axes, keepdims: true };
    let reduced = site.add(outer.op().name(), attrs, &[site.value("x")])?;
    let shape = site.ty(site.root()).shape.clone();
    site.reshape(reduced, shape)
}

/// A uniform value in the shape of the result: one position along the folded axes.
fn narrowed(site: &mut Site<'_>, name: &str) -> Option<Id> {
    let axes = site.reduction(site.node("r")).axes;
    let narrow = site.narrow(site.value(name), |axis| axes.contains(&axis))?;
    let shape: Shape = site.ty(site.root()).shape.clone();
    site.reshape(narrow, shape)
}

/// The reduction of `x` with a uniform value applied behind it.
fn behind(site: &mut Site<'_>, op: &str, name: &str) -> Option<Id> {
    let node = site.node("r").clone();
    let reduced = site.again(&node, &[site.value("x")])?;
    let narrow = narrowed(site, name)?;
    site.apply(op, &[reduced, narrow])
}

fn scaled(site: &mut Site<'_>) -> Option<Id> {
    behind(site, "mul", "s")
}

fn shifted(site: &mut Site<'_>) -> Option<Id> {
    behind(site, "add", "b")
}

fn lowered(site: &mut Site<'_>) -> Option<Id> {
    behind(site, "sub", "b")
}

/// Both operands reduced.
fn both(site: &mut Site<'_>, op: &str) -> Option<Id> {
    let node = site.node("r").clone();
    let x = site.again(&node, &[site.value("x")])?;
    let b = site.again(&node, &[site.value("b")])?;
    site.apply(op, &[x, b])
}

fn sum_of_add(site: &mut Site<'_>) -> Option<Id> {
    both(site, "add")
}

fn sum_of_sub(site: &mut Site<'_>) -> Option<Id> {
    both(site, "sub")
}
