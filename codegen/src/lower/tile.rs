//! Contractions by tiles: each block computes a tile of the result in registers, from tiles of both
//! operands in shared memory.
//!
//! Operands are pulled as [`super::product`] says.

use fornax_ir::op::OperandMap;
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Scalar};

use super::emit::{Emitter, build_kernel};
use super::epilogue::{self, Finished, Grid};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::product::{Adjacency, Group, Product};
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

/// Products that are added up one after another at most.
const MOST_IN_A_ROW: i64 = 64;

/// A contraction by tiles.
pub(super) struct Tiling<'a> {
    product: Product<'a>,
    sizes: Sizes,
    pub threads: u32,
    /// The tile of the result: rows, columns.
    tile: Layout,
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
    sizes: Sizes,
) -> Result<LoweredRegion, CodegenError> {
    let tiling = Tiling::new(site, anchor, sizes);
    tiling.product.check_tile([sizes.block_m, sizes.block_n])?;
    let blocks = tiling.blocks();
    let name = site.kernel_name("");
    let (kernel, mut launch) = build_kernel(site, &name, tiling.threads, |emitter, b| {
        tiling.emit(emitter, b)?;
        Ok(blocks.iter().product())
    })?;
    launch.bytes = site.bytes();
    launch.flops = tiling.product.flops();
    let workspaces = tiling.grid().workspaces(&tiling.product)?;
    Ok(LoweredRegion { workspaces, ..single(kernel, launch) })
}

impl<'a> Tiling<'a> {
    pub fn new(site: &'a Site<'a>, node: NodeId, sizes: Sizes) -> Tiling<'a> {
        let product = Product::new(site, node);
        let threads = sizes.block_m / sizes.thread_m * (sizes.block_n / sizes.thread_n);
        let tile = result_layout(sizes, u32::from(!product.rows_fastest));
        Tiling { product, sizes, threads, tile }
    }

    /// Blocks along the batch, the rows, the columns, and what is apart in the batch.
    pub fn blocks(&self) -> [Dim; 4] {
        let [batch, apart] = self.product.batch_parts.clone();
        [
            batch,
            self.product.rows.blocks(self.sizes.block_m),
            self.product.columns.blocks(self.sizes.block_n),
            apart,
        ]
    }

    /// The tiles of the result.
    fn grid(&self) -> Grid {
        let [_, rows, columns, _] = self.blocks();
        Grid {
            blocks: [self.product.batch.extent.clone(), rows, columns],
            shape: [self.sizes.block_m, self.sizes.block_n],
            columns_dim: 1,
            first: 0,
        }
    }

    pub fn emit(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
    ) -> Result<(), CodegenError> {
        let blocks = self.blocks();
        let block = emitter.block(b);
        let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
        let place = emitter.space.delinearize(&Index::var(block), &blocks);
        let parts = [place[0].clone(), place[3].clone()];
        let batch_place = emitter.space.linearize(&parts, &self.product.batch_parts);
        let batch = emitter.space.delinearize(&batch_place, &self.product.batch.sizes);
        let mut base = |place: &Index, block: u32| {
            let scaled = emitter.space.scale(place, &Dim::constant(block.into()));
            emitter.index(b, &scaled)
        };
        let row_base = base(&place[1], self.sizes.block_m);
        let column_base = base(&place[2], self.sizes.block_n);
        let sides = self.sides(b, [row_base, column_base]);
        let sums = self.multiply(emitter, b, &batch, &sides)?;

        emitter.set_tile(&self.tile);
        let row = emitter.iterate(&self.product.rows.extent, Some(row_base), Some(0));
        let column = emitter.iterate(&self.product.columns.extent, Some(column_base), Some(1));
        let masks = [
            tail(row, &self.product.rows.extent, self.sizes.block_m.into()),
            tail(column, &self.product.columns.extent, self.sizes.block_n.into()),
        ];
        let axes = self.product.axes(
            &emitter.space,
            &batch,
            &[(&self.product.rows, Index::var(row)), (&self.product.columns, Index::var(column))],
        );
        let at = [batch_place, place[1].clone(), place[2].clone()];
        let tile = Finished { axes: &axes, masks, grid: self.grid(), place: &at, sums };
        epilogue::finish(emitter, b, &self.product, &tile)
    }

    fn sides(&self, b: &mut KernelBuilder, bases: [ValueId; 2]) -> [Side<'_>; 2] {
        let operands = self.product.site.body.operands(self.product.node);
        let buffers = self.buffers();
        let mut side = |number: usize, map, group, block: u32, name: &str| {
            let (adjacency, _) = self.product.adjacency(operands[number], map, group, 1);
            let fast = u32::from(adjacency == Adjacency::Inner);
            let dtype = self.product.site.body.ty(operands[number]).dtype;
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
                memory: b.shared(name, self.product.form.accumulator, elements),
            }
        };
        [
            side(0, &self.product.form.lhs, &self.product.rows, self.sizes.block_m, "tile_a"),
            side(1, &self.product.form.rhs, &self.product.columns, self.sizes.block_n, "tile_b"),
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
        let bytes = elements * self.product.form.accumulator.size() as u32;
        if 2 * bytes <= DOUBLE_BYTES { 2 } else { 1 }
    }

    /// Whether the products of each step are added up on their own: a rounding error grows with the
    /// number of additions in a row.
    fn in_parts(&self) -> bool {
        let steps = self.product.inner.extent.bounds(self.product.site.dims).1;
        self.product.form.accumulator.is_float() && steps > MOST_IN_A_ROW
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
        let end = emitter.size(b, &self.product.inner.extent);
        let mut carried = Vec::new();
        for side in sides {
            carried.push(self.fetch(emitter, b, batch, side, first)?);
        }
        emitter.set_tile(&self.tile);
        carried.push(emitter.full(b, Scalar::new(self.product.form.accumulator, 0.0)));
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
                yields.push(if self.in_parts() {
                    let zeros = emitter.full(b, Scalar::new(self.product.form.accumulator, 0.0));
                    let part = self.multiply_tiles(emitter, b, sides, buffer, zeros);
                    b.add(carried[2], part)
                } else {
                    self.multiply_tiles(emitter, b, sides, buffer, carried[2])
                });
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
        let inner = emitter.iterate(&self.product.inner.extent, Some(at), Some(1));
        let mask = tail(own, &side.group.extent, side.block.into());
        let step = Dim::constant(self.sizes.block_k.into());
        // When steps end where the axis ends, a tile is inside or beyond as a whole.
        let limit = match self.product.inner.extent.divided_exactly(&step) {
            Some(_) => Condition::Below {
                value: emitter.known(at, &[Index::var(inner)]),
                bound: Index::size(self.product.inner.extent.clone()),
            },
            None => within_extent(inner, &self.product.inner.extent),
        };
        let limits = Mask::from([limit]);
        let positions = [(side.group, Index::var(own)), (&self.product.inner, Index::var(inner))];
        let axes = self.product.axes(&emitter.space, batch, &positions);
        let factor = (side.operand, side.map);
        let dtype = self.product.form.accumulator;
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
