//! Schedules for sliding windows: pooling, and convolutions with few channels a group.

use std::collections::BTreeMap;

use fornax_ir::op::{AxisRole, ContractionForm, WindowForm};
use fornax_ir::plan::Schedule;
use fornax_ir::plan::index::{Index, IndexSpace};
use fornax_ir::{Dim, DimRange, Graph, IndexExpr, NodeId, Symbol};

use super::{BLOCKS_TO_FILL, typical};

/// Threads in a block.
const THREADS: u32 = 128;
/// Threads that fill a multiprocessor.
const RESIDENT: i64 = 2048;
/// A contraction with at most this many columns a group and this many products a sum does not fill
/// tensor-core tiles, and reads more than it computes.
const FEW_COLUMNS: i64 = 4;
const FEW_PRODUCTS: i64 = 64;
/// Elements that a thread may fold, written out.
const MOST_FOLDED: i64 = 256;
/// What starting a thread costs, in loads.
const START: f64 = 6.0;

/// The schedule of a window.
pub(super) fn window(
    body: &Graph,
    anchor: NodeId,
    form: &WindowForm,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Schedule {
    let outer = body.ty(anchor).shape.to_vec();
    slide(&outer, &form.window, &form.index, dims)
}

/// The schedule of a contraction that slides over few channels; nothing for others.
pub(super) fn few_channels(
    form: &ContractionForm,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Option<Schedule> {
    let size = |role| -> i64 {
        let of_role = form.axes.iter().filter(|(_, of)| *of == role);
        typical(&of_role.map(|(size, _)| size).product(), dims)
    };
    let slides = form.lhs.index.iter().any(|expr| matches!(expr, IndexExpr::Add(..)))
        || form.rhs.index.iter().any(|expr| matches!(expr, IndexExpr::Add(..)));
    if !slides || size(AxisRole::Columns) > FEW_COLUMNS || size(AxisRole::Inner) > FEW_PRODUCTS {
        return None;
    }
    let sizes = |inner: bool| -> Vec<Dim> {
        let of = form.axes.iter().filter(|(_, role)| (*role == AxisRole::Inner) == inner);
        of.map(|(size, _)| size.clone()).collect()
    };
    let index = if form.lhs.index.len() > 2 { &form.lhs.index } else { &form.rhs.index };
    Some(slide(&sizes(false), &sizes(true), index, dims))
}

fn slide(
    outer: &[Dim],
    window: &[Dim],
    index: &[IndexExpr],
    dims: &BTreeMap<Symbol, DimRange>,
) -> Schedule {
    let folded = typical(&window.iter().product(), dims).max(1);
    let outputs = typical(&outer.iter().product(), dims).max(1);
    let (extent, stride) = along_rows(outer, window, index, dims).unwrap_or((1, 1));
    let cost = |rows: i64| {
        let read = ((rows - 1) * stride + extent).min(rows * extent) * (folded / extent.max(1));
        (read as f64 + START) / rows as f64
    };
    let fits = |rows: i64| {
        rows == 1 || rows * folded <= MOST_FOLDED && outputs / rows >= RESIDENT * BLOCKS_TO_FILL
    };
    let mut best = 1;
    for rows in [2, 4, 8] {
        if fits(rows) && cost(rows) < 0.97 * cost(best) {
            best = rows;
        }
    }
    Schedule::Slide { threads: THREADS, rows: best as u32 }
}

/// The window's extent along the axis that neighbouring rows of the result step along, and that step.
fn along_rows(
    outer: &[Dim],
    window: &[Dim],
    index: &[IndexExpr],
    dims: &BTreeMap<Symbol, DimRange>,
) -> Option<(i64, i64)> {
    let mut space = IndexSpace::new(dims);
    let vars: Vec<_> = outer.iter().chain(window).map(|size| space.add_var(size)).collect();
    let axes: Vec<Index> = vars.iter().map(|&var| Index::var(var)).collect();
    let row = vars[outer.len().checked_sub(2)?];
    index.iter().find_map(|expr| {
        let at = space.compose(expr, &axes, &[]);
        let stride = at.step(row)?.as_const()?;
        let inside = (outer.len()..vars.len()).find(|&axis| at.step(vars[axis]).is_some())?;
        Some((typical(&window[inside - outer.len()], dims), stride))
    })
}
