//! Contractions by tiles: each block computes a tile of the result in registers, from tiles of both
//! operands in shared memory.
//!
//! The iteration axes are grouped by role, each group linearised: a batch of matrix products `M x K` by
//! `K x N`. Operands are pulled element by element where the group's positions map to, so convolution is
//! implicit GEMM and whatever stands before an operand is computed as its tile is filled.

use fornax_ir::op::{AxisRole, ContractionForm, OpCtx, OperandMap};
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Scalar};

use super::adjacent::{is_adjacent, mapped_offset};
use super::emit::{Emitter, build_kernel};
use super::fold::axis_order;
use super::index::{Condition, Index, IndexSpace, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::site::Site;
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, Memory, ValueId};

/// The sizes of [`fornax_ir::plan::Schedule::Tile`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub block_m: u32,
    pub block_n: u32,
    pub block_k: u32,
    pub thread_m: u32,
    pub thread_n: u32,
}

/// Elements between the rows of a tile in shared memory that keep banks apart and rows aligned.
const PAD: u32 = 4;

/// Adjacent elements of the result per thread: with 4-byte elements one access of 16 bytes.
const GROUP: u32 = 4;

/// Bytes of shared memory up to which tiles are kept twice, so that one barrier a step is enough.
const DOUBLE_BYTES: u32 = 48 * 1024;

/// Bytes of the widest access.
const ACCESS_BYTES: u32 = 16;

/// A contraction as a batch of matrix products.
struct Product<'a> {
    site: &'a Site<'a>,
    node: NodeId,
    form: ContractionForm,
    sizes: Sizes,
    threads: u32,
    batch: Group,
    rows: Group,
    columns: Group,
    inner: Group,
    /// The tile of the result: rows, columns.
    tile: Layout,
}

/// The iteration axes of one role, the slowest first.
struct Group {
    axes: Vec<usize>,
    sizes: Vec<Dim>,
    extent: Dim,
}

/// One operand: its tiles have the positions of the result along dimension 0 and the inner ones along
/// dimension 1. In shared memory, positions of the result are adjacent.
struct Side<'p> {
    operand: NodeId,
    map: &'p OperandMap,
    group: &'p Group,
    block: u32,
    tile: Layout,
    /// Where the block's tile starts along its group.
    base: ValueId,
    memory: Memory,
}

/// Lowers a contraction.
pub(super) fn lower(
    site: &Site<'_>,
    anchor: NodeId,
    form: fn(&OpCtx<'_>) -> ContractionForm,
    sizes: Sizes,
) -> Result<LoweredRegion, CodegenError> {
    let product = Product::new(site, anchor, site.with_ctx(anchor, form), sizes);
    let blocks = product.blocks();
    let name = site.kernel_name("");
    let (kernel, mut launch) = build_kernel(site, &name, product.threads, |emitter, b| {
        product.emit(emitter, b)?;
        Ok(blocks.iter().product())
    })?;
    let axes: Dim = product.form.axes.iter().map(|(size, _)| size).product();
    launch.bytes = site.bytes();
    launch.flops = axes * Dim::constant(2) + site.pointwise_flops();
    Ok(single(kernel, launch))
}

impl<'a> Product<'a> {
    fn new(site: &'a Site<'a>, node: NodeId, form: ContractionForm, sizes: Sizes) -> Product<'a> {
        let (order, inner) = axis_order(site, node, &form);
        let group = |role: AxisRole| {
            let axes: Vec<usize> = order
                .iter()
                .chain(&inner)
                .copied()
                .filter(|&axis| form.axes[axis].1 == role)
                .collect();
            let sizes: Vec<Dim> = axes.iter().map(|&axis| form.axes[axis].0.clone()).collect();
            Group { extent: sizes.iter().product(), axes, sizes }
        };
        let last = order.iter().rev().find(|&&axis| !form.axes[axis].0.is(1));
        let rows_fastest = last.is_some_and(|&axis| form.axes[axis].1 == AxisRole::Rows);
        let threads = sizes.block_m / sizes.thread_m * (sizes.block_n / sizes.thread_n);
        Product {
            batch: group(AxisRole::Batch),
            rows: group(AxisRole::Rows),
            columns: group(AxisRole::Columns),
            inner: group(AxisRole::Inner),
            tile: result_layout(sizes, u32::from(!rows_fastest)),
            site,
            node,
            form,
            sizes,
            threads,
        }
    }

    /// Blocks along the batch, the rows and the columns.
    fn blocks(&self) -> [Dim; 3] {
        let along = |group: &Group, block: u32| group.extent.ceil_div(&Dim::constant(block.into()));
        [
            self.batch.extent.clone(),
            along(&self.rows, self.sizes.block_m),
            along(&self.columns, self.sizes.block_n),
        ]
    }

    fn emit(&self, emitter: &mut Emitter<'a>, b: &mut KernelBuilder) -> Result<(), CodegenError> {
        let blocks = self.blocks();
        let block = emitter.block(b);
        let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
        let place = emitter.space.delinearize(&Index::var(block), &blocks);
        let batch = emitter.space.delinearize(&place[0], &self.batch.sizes);
        let mut base = |place: &Index, block: u32| {
            let scaled = emitter.space.scale(place, &Dim::constant(block.into()));
            emitter.index(b, &scaled)
        };
        let row_base = base(&place[1], self.sizes.block_m);
        let column_base = base(&place[2], self.sizes.block_n);
        let sides = self.sides(b, [row_base, column_base]);
        let sums = self.multiply(emitter, b, &batch, &sides)?;

        emitter.set_tile(&self.tile);
        let row = emitter.iterate(&self.rows.extent, Some(row_base), Some(0));
        let column = emitter.iterate(&self.columns.extent, Some(column_base), Some(1));
        let mut mask = tail(row, &self.rows.extent, self.sizes.block_m.into());
        mask.extend(tail(column, &self.columns.extent, self.sizes.block_n.into()));
        let axes = self.axes(
            &emitter.space,
            &batch,
            &[(&self.rows, Index::var(row)), (&self.columns, Index::var(column))],
        );
        let out = self.form.out.iter().map(|expr| emitter.space.compose(expr, &axes, &[]));
        let index: Vec<Index> = out.collect();
        let result = b.cast(self.site.body.ty(self.node).dtype, sums);
        emitter.bind_anchor(self.node, &index, result);
        emitter.store_outputs(b, &index, &mask)
    }

    fn sides(&self, b: &mut KernelBuilder, bases: [ValueId; 2]) -> [Side<'_>; 2] {
        let operands = self.site.body.operands(self.node);
        let buffers = self.buffers();
        let mut side = |number: usize, map, group, block: u32, name: &str| {
            let fast = self.fast_dim(operands[number], map, group);
            let dtype = self.site.body.ty(operands[number]).dtype;
            let each = (block * self.sizes.block_k / self.threads).max(1);
            let vector = (ACCESS_BYTES / dtype.size() as u32).min(each);
            let tile = blocked([block, self.sizes.block_k], fast, vector, self.threads);
            let elements = buffers * self.tile_elements(block);
            Side {
                operand: operands[number],
                map,
                group,
                block,
                tile,
                base: bases[number],
                memory: b.shared(name, self.form.accumulator, elements),
            }
        };
        [
            side(0, &self.form.lhs, &self.rows, self.sizes.block_m, "tile_a"),
            side(1, &self.form.rhs, &self.columns, self.sizes.block_n, "tile_b"),
        ]
    }

    /// Elements of an operand's tile in shared memory.
    fn tile_elements(&self, block: u32) -> u32 {
        (block + PAD) * self.sizes.block_k
    }

    /// How many tiles of each operand there are in shared memory.
    fn buffers(&self) -> u32 {
        let elements =
            self.tile_elements(self.sizes.block_m) + self.tile_elements(self.sizes.block_n);
        let bytes = elements * self.form.accumulator.size() as u32;
        if 2 * bytes <= DOUBLE_BYTES { 2 } else { 1 }
    }

    /// The dimension of an operand's tile along which its elements are adjacent in memory.
    fn fast_dim(&self, operand: NodeId, map: &OperandMap, group: &Group) -> u32 {
        let mut space = IndexSpace::new(self.site.dims);
        let batch = vec![Index::default(); self.batch.axes.len()];
        let own = space.add_var(&group.extent);
        let inner = space.add_var(&self.inner.extent);
        let positions = [(group, Index::var(own)), (&self.inner, Index::var(inner))];
        let axes = self.axes(&space, &batch, &positions);
        let offset = mapped_offset(self.site.body, &space, operand, &map.index, &axes);
        let adjacent = |var| offset.as_ref().is_some_and(|offset| is_adjacent(offset, var));
        u32::from(!adjacent(own) && (adjacent(inner) || group.extent.is(1)))
    }

    /// The position along each of the contraction's axes; those of groups that are not given are 0.
    fn axes(
        &self,
        space: &IndexSpace<'_>,
        batch: &[Index],
        groups: &[(&Group, Index)],
    ) -> Vec<Index> {
        let mut axes = vec![Index::default(); self.form.axes.len()];
        for (&axis, index) in self.batch.axes.iter().zip(batch) {
            axes[axis] = index.clone();
        }
        for (group, position) in groups {
            let index = space.delinearize(position, &group.sizes);
            for (&axis, index) in group.axes.iter().zip(index) {
                axes[axis] = index;
            }
        }
        axes
    }

    /// The sums of products for the block's tile of the result.
    fn multiply(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        batch: &[Index],
        sides: &[Side<'_>; 2],
    ) -> Result<ValueId, CodegenError> {
        let first = b.int(emitter.index_dtype, 0);
        let end = emitter.size(b, &self.inner.extent);
        let mut carried = Vec::new();
        for side in sides {
            carried.push(self.fetch(emitter, b, batch, side, first)?);
        }
        emitter.set_tile(&self.tile);
        carried.push(emitter.full(b, Scalar::new(self.form.accumulator, 0.0)));
        let step = self.sizes.block_k;
        let sums =
            emitter.for_loop(b, (first, end, step), &carried, 1, |emitter, b, at, carried| {
                let number = b.binary_with(BinaryFn::Div, at, step.into());
                let number = b.cast(DType::I32, number);
                let buffer = b.binary_with(BinaryFn::Rem, number, self.buffers().into());
                for (side, &fragment) in sides.iter().zip(carried) {
                    self.fill(b, side, buffer, fragment);
                }
                b.barrier();
                let next = b.add_int(at, step.into());
                let mut yields = Vec::new();
                for side in sides {
                    yields.push(self.fetch(emitter, b, batch, side, next)?);
                }
                emitter.set_tile(&self.tile);
                yields.push(self.multiply_tiles(emitter, b, sides, buffer, carried[2]));
                if self.buffers() == 1 {
                    b.barrier();
                }
                Ok(yields)
            })?;
        Ok(sums[2])
    }

    /// An operand's tile from the inner position `at` on, in the accumulator's type; 0 beyond the end.
    fn fetch(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        batch: &[Index],
        side: &Side<'_>,
        at: ValueId,
    ) -> Result<ValueId, CodegenError> {
        emitter.set_tile(&side.tile);
        let own = emitter.iterate(&side.group.extent, Some(side.base), Some(0));
        let inner = emitter.iterate(&self.inner.extent, Some(at), Some(1));
        let mask = tail(own, &side.group.extent, side.block.into());
        let step = Dim::constant(self.sizes.block_k.into());
        // When steps end where the axis ends, a tile is inside or beyond as a whole.
        let limit = match self.inner.extent.divided_exactly(&step) {
            Some(_) => Condition::Below {
                value: emitter.known(at, &[Index::var(inner)]),
                bound: Index::size(self.inner.extent.clone()),
            },
            None => within_extent(inner, &self.inner.extent),
        };
        let limits = Mask::from([limit]);
        let positions = [(side.group, Index::var(own)), (&self.inner, Index::var(inner))];
        let axes = self.axes(&emitter.space, batch, &positions);
        let factor = (side.operand, side.map);
        let dtype = self.form.accumulator;
        let value = emitter.pull_factor(b, factor, &axes, (&mask, &limits), dtype)?;
        Ok(emitter.spread(b, value))
    }

    /// Writes an operand's tile to shared memory.
    fn fill(&self, b: &mut KernelBuilder, side: &Side<'_>, buffer: ValueId, fragment: ValueId) {
        let own = b.coordinate(&side.tile, 0);
        let inner = b.coordinate(&side.tile, 1);
        let row = b.mul_int(inner, (side.block + PAD).into());
        let offset = b.add(row, own);
        let start = b.mul_int(buffer, self.tile_elements(side.block).into());
        let offset = b.add(offset, start);
        b.store(side.memory, offset, fragment, None, 1);
    }

    /// Adds the products of the tiles in shared memory to the sums.
    fn multiply_tiles(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        sides: &[Side<'_>; 2],
        buffer: ValueId,
        mut sums: ValueId,
    ) -> ValueId {
        for inner in 0..self.sizes.block_k {
            let mut factors = [sums; 2];
            for (dim, side) in sides.iter().enumerate() {
                let along = self.tile.dropped(1 - dim as u32);
                let own = b.coordinate(&along, dim as u32);
                let start = b.mul_int(buffer, self.tile_elements(side.block).into());
                let start = b.add_int(start, (inner * (side.block + PAD)).into());
                let offset = b.add(start, own);
                factors[dim] = b.load(side.memory, offset, None, 1);
            }
            sums = emitter.add_product(b, factors[0], factors[1], sums);
        }
        sums
    }
}

/// The result's tile: adjacent threads hold adjacent groups along dimension `fast`.
fn result_layout(sizes: Sizes, fast: u32) -> Layout {
    let blocks = [sizes.block_m, sizes.block_n];
    let threads = [sizes.thread_m, sizes.thread_n];
    let mut registers = Vec::new();
    let mut lanes = Vec::new();
    for dim in [fast, 1 - fast] {
        let (block, thread) = (blocks[dim as usize], threads[dim as usize]);
        let group = thread.min(GROUP);
        let across = block / thread;
        registers.extend([(dim, group, 1), (dim, thread / group, across * group)]);
        lanes.push((dim, across, group));
    }
    Layout { shape: blocks.to_vec(), registers: modes(&registers), threads: modes(&lanes) }
}

/// A tile whose elements along dimension `fast` lie in groups of `vector` in adjacent threads. Threads
/// that are too many hold what others hold.
fn blocked(shape: [u32; 2], fast: u32, vector: u32, threads: u32) -> Layout {
    let slow = 1 - fast;
    let (along, across) = (shape[fast as usize], shape[slow as usize]);
    let vector = vector.min(along);
    let fast_threads = threads.min(along / vector);
    let slow_threads = (threads / fast_threads).min(across);
    let extra = threads / (fast_threads * slow_threads);
    Layout {
        shape: shape.to_vec(),
        registers: modes(&[
            (fast, vector, 1),
            (fast, along / (vector * fast_threads), vector * fast_threads),
            (slow, across / slow_threads, slow_threads),
        ]),
        threads: modes(&[(fast, fast_threads, vector), (slow, slow_threads, 1), (slow, extra, 0)]),
    }
}
