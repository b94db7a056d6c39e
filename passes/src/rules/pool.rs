//! Pooling: of one element, of everything, of pooling, of what is uniform.

use egg::Id;
use fornax_ir::{Attrs, attrs};

use super::{B_IS_PREPARED, build, premises, rules};
use crate::egraph::{ENode, Rule, Site};

/// How the windows of a pooling node lie.
pub(super) struct Windows {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub pads_begin: Vec<i64>,
    pub pads_end: Vec<i64>,
    pub dilations: Vec<i64>,
    pub ceil_mode: bool,
}

impl Windows {
    pub fn of(attrs: &Attrs) -> Windows {
        let ints = |name| attrs.ints(name).to_vec();
        Windows {
            kernel: ints("kernel"),
            strides: ints("strides"),
            pads_begin: ints("pads_begin"),
            pads_end: ints("pads_end"),
            dilations: ints("dilations"),
            ceil_mode: attrs.flag("ceil_mode"),
        }
    }

    pub fn is_padded(&self) -> bool {
        self.pads_begin.iter().chain(&self.pads_end).any(|&pad| pad != 0)
    }

    /// Whether every window lies inside the operand, its positions side by side.
    pub fn is_plain(&self) -> bool {
        !self.is_padded() && !self.ceil_mode && self.dilations.iter().all(|&dilation| dilation == 1)
    }
}

fn windows(site: &Site<'_>, name: &str) -> Windows {
    Windows::of(site.node(name).attrs())
}

/// The spatial sizes of a value, when they are known.
pub(super) fn spatial_sizes(site: &Site<'_>, id: Id) -> Option<Vec<i64>> {
    site.ty(id).shape.get(2..)?.iter().map(|size| size.as_const()).collect()
}

/// Whether a value repeats along the spatial axes.
fn is_uniform(site: &Site<'_>, name: &str) -> bool {
    let data = site.data(site.value(name));
    (2..data.ty.rank()).all(|axis| data.is_uniform(axis))
}

premises! {
    WINDOW_IS_ONE "the window is one element, everywhere" |site| {
        let windows = windows(site, "p");
        windows.kernel.iter().chain(&windows.strides).all(|&size| size == 1)
            && !windows.is_padded()
    };
    WINDOW_IS_ALL "the window is the whole operand" |site| {
        let windows = windows(site, "p");
        windows.is_plain() && spatial_sizes(site, site.value("x")).as_ref() == Some(&windows.kernel)
    };
    OUTER_IS_PLAIN "the outer windows lie inside, without gaps" |site| windows(site, "p").is_plain();
    INNER_IS_PLAIN "the inner windows lie inside, without gaps" |site| windows(site, "q").is_plain();
    INNER_DOES_NOT_OVERLAP "the inner windows lie side by side" |site| {
        let windows = windows(site, "q");
        windows.kernel == windows.strides
    };
    S_IS_UNIFORM "s repeats along the spatial axes" |site| is_uniform(site, "s");
    B_IS_UNIFORM "b repeats along the spatial axes" |site| is_uniform(site, "b");
    PADDING_DOES_NOT_COUNT "padding does not count" |site| {
        let node = site.node("p");
        !windows(site, "p").is_padded() || !node.attrs().flag("count_include_pad")
    };
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Algebra:
        "max-pool-of-one" Bitwise "(@p=max_pool ?x)" => build(operand), if [WINDOW_IS_ONE] when [] "The largest of windows of one element.";
        "avg-pool-of-one" Real "(@p=avg_pool ?x)" => build(operand), if [WINDOW_IS_ONE] when [] "The mean of windows of one element.";
        "max-pool-of-all" Bitwise "(@p=max_pool ?x)" => build(reduced_max), if [WINDOW_IS_ALL] when [] "Global max pooling is a reduction.";
        "avg-pool-of-all" Real "(@p=avg_pool ?x)" => build(reduced_mean), if [WINDOW_IS_ALL] when [] "Global average pooling is a reduction.";
        "max-pool-of-max-pool" Bitwise "(@p=max_pool (@q=max_pool ?x))" => build(composed), if [OUTER_IS_PLAIN, INNER_IS_PLAIN] when [] "The largest of largest elements.";
        "avg-pool-of-avg-pool" Real "(@p=avg_pool (@q=avg_pool ?x))" => build(composed), if [OUTER_IS_PLAIN, INNER_IS_PLAIN, INNER_DOES_NOT_OVERLAP] when [] "The mean of means of windows side by side.";
        "avg-pool-of-scaled" Real "(@p=avg_pool (mul ?x ?s))" => build(scaled), if [S_IS_UNIFORM] when [] "A factor that repeats along the spatial axes.";
        "avg-pool-of-add" Real "(@p=avg_pool (add ?x ?b))" => build(of_add), if [] when [B_IS_PREPARED] "An average pooling of a sum with a prepared summand.";
        "avg-pool-of-shifted" Real "(@p=avg_pool (add ?x ?b))" => build(shifted), if [B_IS_UNIFORM, PADDING_DOES_NOT_COUNT] when [] "A summand that repeats along the spatial axes.";
        "avg-pool-of-lowered" Real "(@p=avg_pool (sub ?x ?b))" => build(lowered), if [B_IS_UNIFORM, PADDING_DOES_NOT_COUNT] when [] "A subtrahend that repeats along the spatial axes.";
    }
}

fn operand(site: &mut Site<'_>) -> Option<Id> {
    Some(site.value("x"))
}

fn of_add(site: &mut Site<'_>) -> Option<Id> {
    let node: ENode = site.node("p").clone();
    let x = site.again(&node, &[site.value("x")])?;
    let b = site.again(&node, &[site.value("b")])?;
    site.apply("add", &[x, b])
}

fn reduced(site: &mut Site<'_>, op: &str) -> Option<Id> {
    let x = site.value("x");
    let axes: Vec<usize> = (2..site.ty(x).rank()).collect();
    site.reduce(op, x, &axes)
}

fn reduced_max(site: &mut Site<'_>) -> Option<Id> {
    reduced(site, "reduce_max")
}

fn reduced_mean(site: &mut Site<'_>) -> Option<Id> {
    reduced(site, "reduce_mean")
}

/// One pooling: a window reaches from the first element of its first inner window to the last one of its
/// last inner window.
fn composed(site: &mut Site<'_>) -> Option<Id> {
    let (outer, inner) = (windows(site, "p"), windows(site, "q"));
    let axes = 0..outer.kernel.len();
    let kernel: Vec<i64> = axes
        .clone()
        .map(|axis| inner.kernel[axis] + (outer.kernel[axis] - 1) * inner.strides[axis])
        .collect();
    let strides: Vec<i64> = axes.map(|axis| outer.strides[axis] * inner.strides[axis]).collect();
    let node = site.node("p").clone();
    let mut attrs = node.attrs().clone();
    attrs.insert("kernel", kernel);
    attrs.insert("strides", strides);
    site.add(node.op().name(), attrs, &[site.value("x")])
}

/// The pooling of `x` with a value that repeats along the spatial axes applied behind it.
fn behind(site: &mut Site<'_>, op: &str, name: &str) -> Option<Id> {
    let node: ENode = site.node("p").clone();
    let pooled = site.again(&node, &[site.value("x")])?;
    let shape = site.ty(pooled).shape.clone();
    let narrow = site.narrow(site.value(name), |axis| axis >= 2)?;
    let spread = site.broadcast(narrow, &shape)?;
    site.apply(op, &[pooled, spread])
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

/// Attributes of an average pooling that counts padding, so that it divides by the window's size.
pub(super) fn counted(
    kernel: &[i64],
    strides: &[i64],
    pads_begin: &[i64],
    pads_end: &[i64],
    dilations: &[i64],
) -> Attrs {
    attrs! {
        kernel: kernel, strides: strides, pads_begin: pads_begin, pads_end: pads_end,
        dilations: dilations, ceil_mode: false, count_include_pad: true,
    }
}
