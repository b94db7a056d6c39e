//! Lowering of fused regions to kernels.
//!
//! Code is made by *pulling*: each family of schedules iterates over the elements of the region's
//! results and asks for their values; a node's value at an index is computed from its operands' values
//! at the index its class maps to. So what stands before the anchor (the prologue), after it (the
//! epilogue) and beside it needs no code of its own.

mod emit;
mod epilogue;
mod fold;
mod fold_kernels;
mod fold_parts;
mod halves;
mod patch;
mod pipeline;
mod pointwise;
mod product;
mod pull;
mod recurrent;
mod row_groups;
mod rows;
mod scan;
mod site;
mod slide;
mod tile;
mod tile_mma;

use std::collections::BTreeMap;

use fornax_ir::op::OpClass;
use fornax_ir::plan::{Arena, Region, Schedule, Structure, adjacent, index};
use fornax_ir::{DType, Dim, DimRange, Symbol};

use crate::CodegenError;
use crate::kernel::Kernel;
use site::Site;

/// The launch group that a region is lowered to.
#[derive(Debug, Clone, PartialEq)]
pub struct LoweredRegion {
    /// The kernels.
    pub kernels: Vec<Kernel>,
    /// Their launches, in order.
    pub launches: Vec<Launch>,
    /// Memory that is alive during the launches.
    pub workspaces: Vec<Workspace>,
}

/// Memory that kernels of one launch group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub elements: Dim,
    /// Where it lies.
    pub arena: Arena,
}

/// The launch of a kernel. A grid with a zero does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Which of the region's kernels.
    pub kernel: usize,
    /// Blocks in the grid.
    pub grid: [Dim; 3],
    /// One argument per parameter of the kernel.
    pub args: Vec<Arg>,
    /// Bytes that must move through device memory: each array read once, each result written once.
    pub bytes: Dim,
    /// Arithmetic operations; a fused multiply-add counts two.
    pub flops: Dim,
    /// Whether it belongs to the prepare program, though the region runs later: it reads weights alone.
    pub prepared: bool,
}

/// An argument of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// The address of an operand of the region.
    Operand(usize),
    /// The address of a result of the region.
    Output(usize),
    /// The address of a workspace.
    Workspace(usize),
    /// A number.
    Scalar(Dim),
}

/// Lowers a region as its schedule says. `dims`: ranges of the symbolic sizes.
///
/// A region is legal when it has a [`structure`](fornax_ir::plan::structure).
///
/// Each node before the anchor is computed as often as its value is used at different indices, so fusing
/// costly ones under a movement that repeats, or into a contraction, is legal but may be slow.
///
/// The schedule must fit the anchor: `Pointwise` without one; `FoldThread` for reduce, window and
/// contraction; `FoldBlock` and `FoldSplit` for reduce and contraction (they do not keep the order of
/// elements, which windows need); `Scan` for scan; `Recurrent` for recurrent; `Tile` for contraction, and `Mma`,
/// `Wgmma`, `Pipeline`, `Patch` and `Halves` for contraction that is added up in `f32` with a precision other than `ieee`. Where a
/// contraction's result is reduced, a side of the tile must hold what is folded together; `Halves` is for others.
///
/// # Errors
/// When the region is not legal or the schedule does not fit.
pub fn lower(
    region: &Region,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Result<LoweredRegion, CodegenError> {
    let site = Site::new(region, dims)?;
    match (&region.schedule, &site.structure) {
        (&Schedule::Pointwise { threads, vector, unroll }, Structure::Pointwise) => {
            pointwise::lower(&site, threads, vector, unroll)
        }
        (&Schedule::Pack { threads, vector }, Structure::Pointwise) => {
            pointwise::pack(&site, threads, vector)
        }
        (
            &Schedule::FoldThread { threads, vector },
            &(Structure::Reduce(anchor)
            | Structure::Window(anchor)
            | Structure::Contraction(anchor)),
        ) => fold_kernels::by_thread(&site, anchor, threads, vector),
        (
            &Schedule::Slide { threads, rows },
            &(Structure::Window(anchor) | Structure::Contraction(anchor)),
        ) => slide::lower(&site, anchor, threads, rows),
        (
            &Schedule::FoldBlock { threads, rows, vector },
            &(Structure::Reduce(anchor) | Structure::Contraction(anchor)),
        ) => fold_kernels::by_block(&site, anchor, threads, rows, vector),
        (
            &Schedule::FoldSplit { threads, vector, parts },
            &(Structure::Reduce(anchor) | Structure::Contraction(anchor)),
        ) => fold_parts::by_parts(&site, anchor, threads, vector, parts),
        (
            &Schedule::Rows { threads, rows: count, vector, items },
            Structure::Reduce(_) | Structure::Rows(_),
        ) => rows::lower(&site, &site.rows()?, rows::Tile { threads, rows: count, vector, items }),
        (
            &Schedule::RowGroups { threads, vector, items, blocks },
            Structure::Reduce(_) | Structure::Rows(_),
        ) => row_groups::lower(
            &site,
            &site.rows()?,
            row_groups::Tile { threads, vector, items, blocks },
        ),
        (&Schedule::Scan { threads, rows, items }, &Structure::Scan(anchor)) => {
            let OpClass::Scan(form) = site.body.node(anchor).op.class() else {
                unreachable!("invariant: a scan's structure has a scan")
            };
            scan::lower(&site, anchor, *form, scan::Tile { threads, rows, items })
        }
        (&Schedule::Recurrent { threads, blocks, batch }, &Structure::Recurrent(anchor)) => {
            let OpClass::Recurrent(form) = site.body.node(anchor).op.class() else {
                unreachable!("invariant: a recurrence's structure has a recurrence")
            };
            let form = site.with_ctx(anchor, form);
            recurrent::lower(&site, anchor, &form, recurrent::Tile { threads, blocks, batch })
        }
        (
            &Schedule::Tile { block_m, block_n, block_k, thread_m, thread_n },
            Structure::Contraction(_) | Structure::Reduced(_),
        ) => {
            let sizes = tile::Sizes { block_m, block_n, block_k, thread_m, thread_n };
            tile::lower(&site, site.contraction(), sizes)
        }
        (
            &Schedule::Mma { block_m, block_n, warps_m, warps_n, stages, splits },
            Structure::Contraction(_) | Structure::Reduced(_),
        ) => {
            let units = [warps_m, warps_n];
            let sizes = tile_mma::Sizes {
                block_m,
                block_n,
                units,
                groups: false,
                stages,
                splits,
                pipeline: None,
                patch: None,
                halves: None,
            };
            tile_mma::lower(&site, site.contraction(), sizes)
        }
        (
            &Schedule::Wgmma { block_m, block_n, groups_m, groups_n, stages, splits },
            Structure::Contraction(_) | Structure::Reduced(_),
        ) => {
            let units = [groups_m, groups_n];
            let (groups, pipeline, patch, halves) = (true, None, None, None);
            let sizes = tile_mma::Sizes {
                block_m,
                block_n,
                units,
                groups,
                stages,
                splits,
                pipeline,
                patch,
                halves,
            };
            tile_mma::lower(&site, site.contraction(), sizes)
        }
        (
            &Schedule::Pipeline { block_m, block_n, groups_m, groups_n, stages, splits, packed },
            Structure::Contraction(_) | Structure::Reduced(_),
        ) => {
            let sizes = tile_mma::Sizes {
                block_m,
                block_n,
                units: [groups_m, groups_n],
                groups: true,
                stages: stages.max(2),
                splits,
                pipeline: Some(pipeline::Pipeline { packed: packed == 1 }),
                patch: None,
                halves: None,
            };
            tile_mma::lower(&site, site.contraction(), sizes)
        }
        (
            &Schedule::Patch { block_m, block_n, groups_m, groups_n, width, stages, packed },
            Structure::Contraction(_) | Structure::Reduced(_),
        ) => {
            let sizes = tile_mma::Sizes {
                block_m,
                block_n,
                units: [groups_m, groups_n],
                groups: true,
                stages: stages.max(2),
                splits: 1,
                pipeline: Some(pipeline::Pipeline { packed: packed == 1 }),
                patch: Some(width),
                halves: None,
            };
            tile_mma::lower(&site, site.contraction(), sizes)
        }
        (
            &Schedule::Halves { block_m, block_n, groups_m, groups_n, stages, prepared },
            Structure::Contraction(_),
        ) => {
            let sizes = tile_mma::Sizes {
                block_m: block_m.max(halves::CHUNK),
                block_n: block_n.max(halves::CHUNK),
                units: [groups_m, groups_n],
                groups: true,
                stages: stages.max(halves::HELD_UNITS + 1),
                splits: 1,
                pipeline: None,
                patch: None,
                halves: Some(halves::Halves { prepared: prepared == 1 }),
            };
            tile_mma::lower(&site, site.contraction(), sizes)
        }
        (schedule, _) => {
            let reason = format!(
                "the schedule {schedule:?} is none for a {} region",
                site.structure.class()
            );
            Err(site.error(site.body.outputs()[0].value, reason))
        }
    }
}

/// Counters that a region may have in an arena of their own.
const MOST_COUNTERS: i64 = 1 << 16;

/// How many counters a number that may depend on symbols takes, unless those are too many: then a kernel in
/// front sets them to zero, or another one behind does what the last block would.
fn most_counters(site: &Site<'_>, count: &Dim) -> Option<Dim> {
    let most = count.bounds(site.dims).1;
    (most <= MOST_COUNTERS).then(|| Dim::constant(most.max(1)))
}

/// A launch group of one kernel.
fn single(kernel: Kernel, launch: Launch) -> LoweredRegion {
    LoweredRegion { kernels: vec![kernel], launches: vec![launch], workspaces: Vec::new() }
}
