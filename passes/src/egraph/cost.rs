//! What an op costs before it is known which ops are computed together: an analytic estimate.

use std::collections::{BTreeMap, HashSet};

use fornax_ir::op::{AxisRole, OpClass, OpCtx, SourceKind};
use fornax_ir::{BinaryFn, Dim, DimRange, ScalarExpr, Symbol, Type, UnaryFn};

use super::analysis::OpGraph;
use super::language::ENode;

/// Nanoseconds, or a share of them.
pub type Cost = f64;

/// What a node costs beside its operands.
pub trait NodeCost {
    /// The cost of one node; never negative.
    fn cost(&self, egraph: &OpGraph, node: &ENode) -> Cost;
}

/// A roofline of a large GPU (an H200's measured rates, `toolchain.md` section 7), where pointwise and
/// movement ops are taken to be computed with what they feed.
#[derive(Debug, Clone, Copy)]
pub struct Roofline {
    /// Bytes per nanosecond: 4300 for 4.30 TB/s.
    pub bytes: f64,
    /// Multiply-adds of contractions per nanosecond: half of 412 TFLOP/s.
    pub products: f64,
    /// Other functions per nanosecond.
    pub functions: f64,
    /// Nanoseconds a kernel takes at least.
    pub launch: f64,
}

impl Default for Roofline {
    fn default() -> Roofline {
        Roofline { bytes: 4300.0, products: 206_000.0, functions: 30_000.0, launch: 2500.0 }
    }
}

/// How much of the memory traffic of a pointwise or movement op counts: it is mostly computed where it
/// is used.
const INLINED_SHARE: f64 = 0.05;

/// What any op costs at least, so that of two equal graphs the smaller one is chosen.
const LEAST: f64 = 1.0;

/// What an op costs that runs once after loading, as a share: next to nothing, but not nothing.
const PREPARED_SHARE: f64 = 1e-3;

impl NodeCost for Roofline {
    fn cost(&self, egraph: &OpGraph, node: &ENode) -> Cost {
        let operands: Vec<Type> =
            node.children.iter().map(|&id| egraph[id].data.ty.clone()).collect();
        let prepared = node.children.iter().all(|&id| egraph[id].data.prepared);
        let Ok(ty) = fornax_ir::infer(node.op(), node.attrs(), &operands) else {
            return Cost::INFINITY;
        };
        let of = Sizes { dims: &egraph.analysis.dims };
        let ctx = OpCtx { attrs: node.attrs(), operands: &operands };
        let is_source =
            matches!(node.op().class(), OpClass::Source(kind) if *kind != SourceKind::Iota);
        if is_source {
            return 0.0;
        }
        let cost = LEAST + self.time(node, &ctx, &ty, &of);
        if prepared { cost * PREPARED_SHARE } else { cost }
    }
}

impl Roofline {
    fn time(&self, node: &ENode, ctx: &OpCtx<'_>, ty: &Type, of: &Sizes<'_>) -> f64 {
        let written = of.bytes(ty);
        let read: f64 = ctx.operands.iter().map(|ty| of.bytes(ty)).sum();
        let elements = of.size(&ty.shape.elements());
        let anchored = |work: f64| self.launch + ((read + written) / self.bytes).max(work);
        match node.op().class() {
            OpClass::Source(_) | OpClass::Opaque(_) | OpClass::Composite(_) => 0.0,
            // No rule has another form of it to offer.
            OpClass::Recurrent(form) => anchored(of.size(&form(ctx).steps) * self.launch),
            OpClass::Pointwise(body) => {
                let work = elements * weight(&body(ctx)) / self.functions;
                work + written / self.bytes * INLINED_SHARE
            }
            OpClass::Movement(form) => {
                let moved = if is_view(&form(ctx)) { 0.0 } else { written / self.bytes };
                moved * INLINED_SHARE
            }
            OpClass::Reduce(_) | OpClass::Scan(_) => {
                let folded: f64 = of.size(&ctx.shape().elements());
                anchored(folded / self.functions)
            }
            OpClass::Window(form) => {
                let window: f64 = form(ctx).window.iter().map(|size| of.size(size)).product();
                anchored(elements * window / self.functions)
            }
            OpClass::Contraction(form) => {
                let form = form(ctx);
                let size = |role| -> f64 {
                    let axes = form.axes.iter().filter(|(_, of)| *of == role);
                    axes.map(|(size, _)| of.size(size)).product()
                };
                let batch = size(AxisRole::Batch);
                let (rows, columns) = (size(AxisRole::Rows), size(AxisRole::Columns));
                let inner = size(AxisRole::Inner);
                anchored(batch * rows * columns * inner / self.products)
            }
        }
    }
}

/// Whether a movement only repeats, drops or renames axes, so that reading through it costs nothing.
fn is_view(form: &fornax_ir::op::MovementForm) -> bool {
    form.fill.is_none() && form.cases.len() == 1 && form.cases[0].guards.is_empty()
}

/// Sizes for known or typical values of symbols.
struct Sizes<'a> {
    dims: &'a BTreeMap<Symbol, DimRange>,
}

impl Sizes<'_> {
    /// The size; with symbols at the upper end of their ranges, but no more than a common size.
    fn size(&self, size: &Dim) -> f64 {
        if let Some(size) = size.as_const() {
            return size.max(0) as f64;
        }
        let typical: BTreeMap<Symbol, DimRange> = self
            .dims
            .iter()
            .map(|(name, range)| (name.clone(), DimRange { max: range.max.min(1024), ..*range }))
            .collect();
        size.bounds(&typical).1.max(0) as f64
    }

    fn bytes(&self, ty: &Type) -> f64 {
        self.size(&ty.shape.elements()) * ty.dtype.size() as f64
    }
}

/// The number of simple functions of a body, equal parts once; a transcendental counts as eight.
fn weight(expr: &ScalarExpr) -> f64 {
    let mut seen = HashSet::new();
    weight_of_new(expr, &mut seen)
}

fn weight_of_new<'e>(expr: &'e ScalarExpr, seen: &mut HashSet<&'e ScalarExpr>) -> f64 {
    if !seen.insert(expr) {
        return 0.0;
    }
    let mut sum = |parts: &[&'e ScalarExpr]| -> f64 {
        parts.iter().map(|part| weight_of_new(part, seen)).sum()
    };
    match expr {
        ScalarExpr::Arg(_) | ScalarExpr::Const(_) => 0.0,
        ScalarExpr::Unary(function, x) => {
            use UnaryFn::{Abs, Ceil, Floor, IsInf, IsNan, Neg, Not, RoundEven, Sign, Trunc};
            let cheap = matches!(
                function,
                Neg | Abs | Sign | Floor | Ceil | RoundEven | Trunc | Not | IsNan | IsInf
            );
            sum(&[x]) + if cheap { 1.0 } else { 8.0 }
        }
        ScalarExpr::Binary(function, a, b) => {
            use BinaryFn::{Div, Mod, Pow, Rem};
            sum(&[a, b]) + if matches!(function, Pow | Rem | Mod | Div) { 8.0 } else { 1.0 }
        }
        ScalarExpr::Select(a, b, c) => sum(&[a, b, c]) + 1.0,
        ScalarExpr::Cast(_, x) => sum(&[x]) + 1.0,
    }
}
