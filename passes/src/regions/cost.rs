//! What a region costs, before anything is measured.

use fornax_ir::op::{AxisRole, OpClass, OpCtx};
use fornax_ir::plan::{Schedule, Structure, read_box, structure};
use fornax_ir::{Dim, Graph, Precision};

use crate::egraph::{Cost, Roofline};
use crate::schedule::{functions_of, slowdown, typical};

/// What is priced: a body with the schedule it would be lowered by.
#[derive(Debug, Clone, Copy)]
pub struct Priced<'a> {
    /// What is computed.
    pub body: &'a Graph,
    /// How accurately its contraction multiplies.
    pub precision: Precision,
    /// How it is lowered.
    pub schedule: &'a Schedule,
}

/// Prices regions; nanoseconds, never negative.
pub trait RegionCost {
    /// What a region takes at each run.
    fn cost(&self, region: &Priced<'_>) -> Cost;
}

/// Threads of a large GPU (132 multiprocessors of 2048 on an H200): with less than one element for each, it
/// does not reach its bandwidth.
const THREADS: f64 = 132.0 * 2048.0;

/// The share of the bandwidth that even a single block reaches: latency bounds it.
const LEAST_SHARE: f64 = 0.02;

/// A contraction's rate against that of TF32, which [`Roofline::products`] is: half of it where a value is
/// split in two, less without tensor cores (51 of 412 TFLOP/s, `toolchain.md` section 7).
fn rate(precision: Precision) -> f64 {
    match precision {
        Precision::Ieee => 0.12,
        Precision::Fp32 => 0.35,
        Precision::Tf32 => 1.0,
        _ => 1.9,
    }
}

impl RegionCost for Roofline {
    fn cost(&self, region: &Priced<'_>) -> Cost {
        let body = region.body;
        let size = |size: &Dim| typical(size, &body.dims) as f64;
        let mut bytes = 0.0;
        for &input in body.inputs() {
            let elements: Dim = read_box(body, input, &body.dims).into_iter().product();
            bytes += size(&elements) * body.ty(input).dtype.size() as f64;
        }
        let mut results: f64 = 1.0;
        for output in body.outputs() {
            let ty = body.ty(output.value);
            let elements = size(&ty.shape.elements());
            results = results.max(elements);
            bytes += elements * ty.dtype.size() as f64;
        }
        let (mut products, mut functions, mut widest) = (0.0, 0.0, results);
        for id in body.nodes() {
            let node = body.node(id);
            let types = body.operand_types(id);
            let ctx = OpCtx { attrs: &node.attrs, operands: &types };
            let elements = size(&node.ty.shape.elements());
            match node.op.class() {
                OpClass::Pointwise(_) => functions += elements * functions_of(body, id),
                OpClass::Reduce(_) | OpClass::Scan(_) => {
                    let folded = size(&types[0].shape.elements());
                    functions += folded;
                    widest = widest.max(folded);
                }
                OpClass::Window(form) => {
                    functions += elements * form(&ctx).window.iter().map(size).product::<f64>();
                }
                OpClass::Contraction(form) => {
                    let form = form(&ctx);
                    let inner = form.axes.iter().filter(|(_, role)| *role == AxisRole::Inner);
                    products += elements * inner.map(|(extent, _)| size(extent)).product::<f64>();
                }
                _ => {}
            }
        }
        let share = (widest / THREADS).clamp(LEAST_SHARE, 1.0);
        let time = (bytes / (self.bytes * share))
            .max(products / (self.products * rate(region.precision)))
            .max(functions / self.functions);
        launches(region.schedule) * self.launch + time + held(region)
    }
}

/// What a contraction takes longer where a side of its tiles holds what is folded behind it.
fn held(region: &Priced<'_>) -> Cost {
    let (body, dims) = (region.body, &region.body.dims);
    match structure(body, dims) {
        Ok(of @ Structure::Reduced(_)) => slowdown(body, &of, region.precision, dims),
        _ => 0.0,
    }
}

/// How many kernels a schedule takes.
fn launches(schedule: &Schedule) -> f64 {
    match schedule {
        Schedule::Recurrent { blocks, .. } if *blocks > 1 => 2.0,
        Schedule::Mma { splits, .. } | Schedule::Wgmma { splits, .. } if *splits > 1 => 2.0,
        _ => 1.0,
    }
}
