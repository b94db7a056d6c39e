//! Contractions on tensor cores: tiles of both operands in swizzled shared memory, products of warps by
//! `mma.sync` or of warpgroups by `wgmma`, sums in registers.
//!
//! Operands are pulled as [`super::product`] says, so strides, masks and prologues need no code here. A
//! tile holds 128 bytes of inner elements for each position of the result, whatever the operand's own
//! order is: elements are turned in registers. While a step is multiplied, the next one's elements are
//! on their way from memory to registers; they are rounded as they are written to the other buffer.

use fornax_ir::op::{AxisRole, OperandMap};
use fornax_ir::plan::Arena;
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Precision, Scalar, UnaryFn};

use super::emit::{Array, Emitter, build_kernel};
use super::epilogue::{self, Finished, Grid};
use super::halves::{self, Halves};
use super::index::{Condition, Index, Mask};
use super::patch::Patch;
use super::pipeline::Pipeline;
use super::pointwise::{modes, tail, within_extent};
use super::product::{Adjacency, Group, Product};
use super::pull::union;
use super::site::Site;
use super::{CodegenError, LoweredRegion, Workspace, pipeline};
use crate::kernel::{Factor, KernelBuilder, Layout, Memory, MmaTile, Ty, ValueId, WgmmaTile};

/// The sizes of [`fornax_ir::plan::Schedule::Mma`] and [`fornax_ir::plan::Schedule::Wgmma`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub block_m: u32,
    pub block_n: u32,
    /// Along the rows and the columns.
    pub units: [u32; 2],
    /// Whether units are warpgroups, rather than warps.
    pub groups: bool,
    pub stages: u32,
    pub splits: u32,
    /// Whether operands are copied asynchronously by [`super::pipeline`].
    pub pipeline: Option<Pipeline>,
    /// Positions along the last axis where convolutions are cut into patches ([`super::patch`]).
    pub patch: Option<u32>,
    /// Whether `f32` factors are multiplied as halves by [`super::halves`].
    pub halves: Option<Halves>,
}

/// What multiplies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Warps(MmaTile),
    Groups(WgmmaTile),
}

impl Unit {
    pub fn sums(&self) -> Layout {
        match self {
            Unit::Warps(tile) => tile.sums(),
            Unit::Groups(tile) => tile.sums(),
        }
    }
}

/// Bytes of inner elements of a step, per position of the result.
const STEP_BYTES: u32 = 128;

/// Bytes of adjacent inner elements that are written to shared memory at once.
const PART_BYTES: u32 = 16;

/// Parts of a step.
const PARTS: u32 = STEP_BYTES / PART_BYTES;

/// Threads that hold the parts of one row of a fragment.
const ROW_THREADS: u32 = 4;

/// Threads in a warp.
const WARP: u32 = 32;

/// Threads in a block of the kernel that adds the parts of split sums, and adjacent results of each.
const ADD_THREADS: u32 = 256;
const ADD_VECTOR: u32 = 4;

/// A contraction on tensor cores. The result's tile has the group whose positions are adjacent in the
/// result as its columns, whatever role that has.
pub(super) struct Tiling<'a> {
    pub product: Product<'a>,
    pub sizes: Sizes,
    pub factor: Factor,
    pub unit: Unit,
    /// Whether `f32` factors are split in two, and partial sums kept short, to be as accurate as `f32`.
    pub accurate: bool,
    split_factors: bool,
    pub patch: Option<Patch>,
}

/// One operand and its tiles.
struct Side<'p> {
    operand: NodeId,
    map: &'p OperandMap,
    group: &'p Group,
    block: u32,
    /// The order in which elements come from memory, and that in which they go to shared memory.
    read: Layout,
    written: Layout,
    /// Where the block's tile starts along its group.
    base: ValueId,
    /// One array; where warpgroups multiply split factors one each for [`Split`]'s parts.
    memory: Vec<Memory>,
}

/// Lowers a contraction.
pub(super) fn lower(
    site: &Site<'_>,
    anchor: NodeId,
    sizes: Sizes,
) -> Result<LoweredRegion, CodegenError> {
    let tiling = Tiling::new(site, anchor, sizes)?;
    if let Some(halves) = tiling.sizes.halves {
        return halves::lower(&tiling, halves);
    }
    let threads = tiling.threads();
    let blocks = tiling.blocks();
    let sizes = tiling.sizes;
    let part = if sizes.splits > 1 { "_parts" } else { "" };
    let (kernel, mut launch) =
        build_kernel(site, &site.kernel_name(part), threads, |emitter, b| {
            tiling.emit(emitter, b)?;
            Ok(blocks.iter().product())
        })?;
    launch.bytes = site.bytes();
    launch.flops = tiling.product.flops();
    let mut group = LoweredRegion { kernels: vec![], launches: vec![], workspaces: vec![] };
    let mut add = None;
    if sizes.splits > 1 {
        let elements: Dim = tiling.partial_sizes().iter().product();
        let partial_bytes = &elements * &Dim::constant(4);
        let (add_kernel, mut add_launch) = tiling.add_parts()?;
        launch.bytes = site.bytes() - site.output_bytes() + &partial_bytes;
        add_launch.bytes = partial_bytes + site.output_bytes();
        add_launch.flops = site.pointwise_flops();
        group.workspaces.push(Workspace { dtype: DType::F32, elements, arena: Arena::Phase });
        add = Some((add_kernel, add_launch));
    }
    let mut pack = None;
    if let Some(sizes) = tiling.packed_sizes() {
        let elements = sizes.iter().product();
        group.workspaces.push(Workspace { dtype: DType::F32, elements, arena: Arena::Phase });
        pack = Some(tiling.pack(&sizes)?);
    }
    group.workspaces.extend(tiling.grid().workspaces(&tiling.product)?);
    for (kernel, mut launch) in pack.into_iter().chain([(kernel, launch)]).chain(add) {
        launch.kernel = group.kernels.len();
        group.kernels.push(kernel);
        group.launches.push(launch);
    }
    Ok(group)
}

impl<'a> Tiling<'a> {
    fn new(site: &'a Site<'a>, node: NodeId, sizes: Sizes) -> Result<Tiling<'a>, CodegenError> {
        let product = Product::new(site, node);
        let refused = |reason: &str| Err(site.error(node, format!("tensor cores {reason}")));
        if product.form.accumulator != DType::F32 {
            return refused("add up in f32 only");
        }
        let operands = site.body.operand_types(node);
        let narrow = |dtype| operands.iter().all(|ty| ty.dtype == dtype);
        let precision = site.region.precision;
        let (factor, split_factors) = match precision {
            Precision::Ieee => return refused("are not for the precision `ieee`"),
            _ if narrow(DType::F16) => (Factor::F16, false),
            _ if narrow(DType::BF16) => (Factor::Bf16, false),
            Precision::Fp32 => (Factor::Tf32, true),
            Precision::Tf32 => (Factor::Tf32, false),
            Precision::Bf16 => (Factor::Bf16, false),
            Precision::Fp16 => (Factor::F16, false),
        };
        let mut sizes = sizes;
        if product.reduced().is_some() {
            sizes.splits = 1;
        }
        if factor != Factor::Tf32 || !pipeline::has_operands(&product) {
            sizes.pipeline = None;
        }
        let (factor, split_factors) = match sizes.halves {
            Some(_) if factor == Factor::Tf32 => (Factor::F16, false),
            _ => {
                sizes.halves = None;
                (factor, split_factors)
            }
        };
        let Sizes { block_m: rows, block_n: columns, units: [m, n], .. } = sizes;
        let unit = if sizes.groups {
            let tile = WgmmaTile { factor, rows, columns, groups_m: m, groups_n: n };
            if !tile.is_whole() {
                return refused("multiply 64 rows by 8 to 256 columns per warpgroup");
            }
            Unit::Groups(tile)
        } else {
            let tile = MmaTile { factor, rows, columns, warps_m: m, warps_n: n };
            if !tile.is_whole() {
                return refused("multiply 16 rows by 8 columns per warp, or a multiple");
            }
            Unit::Warps(tile)
        };
        let accurate = precision == Precision::Fp32;
        let patch = sizes
            .patch
            .filter(|_| sizes.pipeline.is_some())
            .filter(|_| {
                product.reduced().is_none_or(|of| of.role == AxisRole::Columns || of.in_parts)
            })
            .and_then(|width| Patch::of(&product, width, rows, Tiling::patch_parts(accurate)));
        let tiling = Tiling { product, sizes, factor, unit, accurate, split_factors, patch };
        let sides = if tiling.is_turned() { [columns, rows] } else { [rows, columns] };
        tiling.product.check_tile(sides)?;
        Ok(tiling)
    }

    /// Whether the tile's rows are columns of the product.
    fn is_turned(&self) -> bool {
        self.product.rows_fastest && self.sizes.pipeline.is_none()
    }

    pub fn threads(&self) -> u32 {
        let [m, n] = self.sizes.units;
        m * n * if self.sizes.groups { 4 * WARP } else { WARP }
    }

    /// The groups of the tile's rows and columns.
    pub fn groups(&self) -> [&Group; 2] {
        let product = &self.product;
        match self.is_turned() {
            true => [&product.columns, &product.rows],
            false => [&product.rows, &product.columns],
        }
    }

    /// Blocks along the parts of sums, the batch, the tile's rows and columns, and what is apart in the batch.
    pub fn blocks(&self) -> [Dim; 5] {
        let [rows, columns] = self.groups();
        let row_blocks = match &self.patch {
            Some(patch) => patch.row_blocks(rows).iter().product(),
            None => rows.blocks(self.sizes.block_m),
        };
        [
            Dim::constant(self.sizes.splits.into()),
            self.product.batch_parts[0].clone(),
            row_blocks,
            columns.blocks(self.sizes.block_n),
            self.product.batch_parts[1].clone(),
        ]
    }

    /// Sizes of the partial sums: parts, batch, rows, columns.
    pub fn partial_sizes(&self) -> [Dim; 4] {
        let [rows, columns] = self.groups();
        let splits = Dim::constant(self.sizes.splits.into());
        let batch = self.product.batch.extent.clone();
        [splits, batch, rows.extent.clone(), columns.extent.clone()]
    }

    /// Inner elements of a step.
    pub fn step(&self) -> u32 {
        STEP_BYTES / self.factor.dtype().size() as u32
    }

    /// Steps along the inner group.
    pub fn steps(&self) -> Dim {
        self.product.inner.blocks(self.step())
    }

    pub fn emit(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
    ) -> Result<(), CodegenError> {
        let blocks = self.blocks();
        let block = emitter.block(b);
        let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
        let place = self.place(emitter, &Index::var(block));
        let batch = emitter.space.delinearize(&place[1], &self.product.batch.sizes);
        if let Some(patch) = &self.patch {
            return self.emit_patches(emitter, b, patch, (&place, &batch));
        }
        let mut base = |place: &Index, block: u32| {
            let scaled = emitter.space.scale(place, &Dim::constant(block.into()));
            emitter.index(b, &scaled)
        };
        let bases = [base(&place[2], self.sizes.block_m), base(&place[3], self.sizes.block_n)];
        let range = self.range(emitter, b, &place[0]);
        let sums = match self.sizes.pipeline {
            Some(pipeline) => {
                self.stream(emitter, b, (pipeline, &place[1], &batch), bases, range)?
            }
            None if self.sizes.halves.is_some() => self.multiply_halves(emitter, b, &place)?,
            None => {
                let sides = self.sides(b, bases);
                self.multiply(emitter, b, &batch, &sides, range)?
            }
        };

        emitter.set_tile(&self.unit.sums());
        let [rows, columns] = self.groups();
        let row = emitter.iterate(&rows.extent, Some(bases[0]), Some(0));
        let column = emitter.iterate(&columns.extent, Some(bases[1]), Some(1));
        let masks = [
            tail(row, &rows.extent, self.sizes.block_m.into()),
            tail(column, &columns.extent, self.sizes.block_n.into()),
        ];
        let (row, column) = (Index::var(row), Index::var(column));
        if self.sizes.splits > 1 {
            let mask = union(&masks[0], &masks[1]);
            let at = [place[0].clone(), place[1].clone(), row, column];
            let offset = emitter.space.linearize(&at, &self.partial_sizes());
            let memory = emitter.array(b, Array::WorkspaceOut(0, DType::F32));
            emitter.store(b, memory, &offset, sums, &mask);
            return Ok(());
        }
        let axes = self.product.axes(&emitter.space, &batch, &[(rows, row), (columns, column)]);
        self.finish(emitter, b, (&axes, Some(&place[1..])), sums, masks)
    }

    /// As [`Tiling::emit`], a block for each box of positions.
    fn emit_patches(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        (place, batch): (&[Index], &[Index]),
    ) -> Result<(), CodegenError> {
        let product = &self.product;
        let (rows, columns) = (&product.rows, &product.columns);
        let blocks = emitter.space.delinearize(&place[2], &patch.row_blocks(rows));
        let column = emitter.space.scale(&place[3], &Dim::constant(self.sizes.block_n.into()));
        let column = emitter.index(b, &column);
        let sums = self.convolve(emitter, b, patch, (&place[1], batch), (&blocks, column))?;
        emitter.set_tile(&self.unit.sums());
        let row = emitter.iterate(&Dim::constant(self.sizes.block_m.into()), None, Some(0));
        let column = emitter.iterate(&columns.extent, Some(column), Some(1));
        let mask = tail(column, &columns.extent, self.sizes.block_n.into());
        let at = patch.positions(&emitter.space, rows, &blocks, &Index::var(row));
        let columns = [(columns, Index::var(column))];
        let mut axes = product.axes(&emitter.space, batch, &columns);
        for (axis, position) in at.0 {
            axes[axis] = position;
        }
        self.finish(emitter, b, (&axes, Some(&place[1..])), sums, [at.1, mask])
    }

    /// The results at positions of the contraction's axes, from the sums.
    fn finish(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (axes, place): (&[Index], Option<&[Index]>),
        sums: ValueId,
        masks: [Mask; 2],
    ) -> Result<(), CodegenError> {
        let grid = self.grid();
        let place = place.unwrap_or_default();
        epilogue::finish(emitter, b, &self.product, &Finished { axes, masks, grid, place, sums })
    }

    /// The tiles of the result.
    fn grid(&self) -> Grid {
        let [_, _, rows, columns, _] = self.blocks();
        Grid {
            blocks: [self.product.batch.extent.clone(), rows, columns],
            shape: [self.sizes.block_m, self.sizes.block_n],
            columns_dim: u32::from(!self.is_turned()),
            first: self.packed_workspace() + usize::from(self.packed_sizes().is_some()),
        }
    }

    /// The steps that a block adds up: first, and first beyond.
    fn range(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        part: &Index,
    ) -> [ValueId; 2] {
        let steps = self.steps();
        let end = emitter.size(b, &steps);
        if self.sizes.splits == 1 {
            return [b.int(emitter.index_dtype, 0), end];
        }
        let each = steps.ceil_div(&Dim::constant(self.sizes.splits.into()));
        let each = emitter.size(b, &each);
        let part = emitter.index(b, part);
        let from = b.mul(part, each);
        let to = b.add(from, each);
        [from, b.binary(BinaryFn::Min, to, end)]
    }

    fn sides(&self, b: &mut KernelBuilder, bases: [ValueId; 2]) -> [Side<'_>; 2] {
        let product = &self.product;
        let operands = product.site.body.operands(product.node);
        let parts: &[&str] = match self.unit {
            Unit::Groups(_) if self.split_factors => &["_high", "_low", "_finite"],
            _ => &[""],
        };
        let mut side = |number: usize, block: u32, base, name: &str| {
            let (map, group) = match number {
                0 => (&product.form.lhs, &product.rows),
                _ => (&product.form.rhs, &product.columns),
            };
            let (read, written) = self.staging(operands[number], map, group, block);
            let elements = self.sizes.stages * self.tile_elements(block);
            let memory = parts
                .iter()
                .map(|part| b.swizzled(format!("{name}{part}"), self.factor.dtype(), elements))
                .collect();
            Side { operand: operands[number], map, group, block, read, written, base, memory }
        };
        // The left operand's positions are rows of the contraction, not always of the tile.
        let left = usize::from(product.rows_fastest);
        [
            side(left, self.sizes.block_m, bases[0], "tile_a"),
            side(1 - left, self.sizes.block_n, bases[1], "tile_b"),
        ]
    }

    /// Elements of an operand's tile in shared memory; a multiple of 1024 bytes.
    pub fn tile_elements(&self, block: u32) -> u32 {
        block.next_multiple_of(8) * self.step()
    }

    /// Which thread moves which elements of a tile (positions of the result, inner positions): the layout
    /// as elements are read, in which those that are adjacent in memory lie in adjacent registers, and the
    /// same with the parts that are written at once in adjacent registers.
    fn staging(
        &self,
        operand: NodeId,
        map: &OperandMap,
        group: &Group,
        block: u32,
    ) -> (Layout, Layout) {
        let dtype = self.product.site.body.ty(operand).dtype;
        let widest = (PART_BYTES / dtype.size() as u32).min(4);
        let (adjacency, run) = self.product.adjacency(operand, map, group, widest);
        let threads = self.threads();
        let part = self.step() / PARTS;
        let vector = if adjacency == Adjacency::Own { run.min(block) } else { 1 };
        // Adjacent threads have adjacent positions where single elements are read along them, and the
        // parts of a row otherwise, which lie in different banks.
        let by_position = adjacency == Adjacency::Own && vector == 1;
        let (own, parts) = if by_position {
            let own = threads.min(block);
            (own, (threads / own).min(PARTS))
        } else {
            let parts = threads.min(PARTS);
            ((threads / parts).min(block / vector), parts)
        };
        let own_digit = (0, own, vector);
        let parts_digit = (1, parts, part * (PARTS / parts));
        let extra = (0, threads / (own * parts), 0);
        let lanes = match by_position {
            true => [own_digit, parts_digit, extra],
            false => [parts_digit, own_digit, extra],
        };
        let rest = [(1, PARTS / parts, part), (0, block / (own * vector), own * vector)];
        let layout = |first: [(u32, u32, u32); 2]| Layout {
            shape: vec![block, self.step()],
            registers: modes(&[first[0], first[1], rest[0], rest[1]]),
            threads: modes(&lanes),
        };
        (layout([(0, vector, 1), (1, part, 1)]), layout([(1, part, 1), (0, vector, 1)]))
    }

    /// The sums of products for the block's tile of the result.
    fn multiply(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        batch: &[Index],
        sides: &[Side<'_>; 2],
        [first, end]: [ValueId; 2],
    ) -> Result<ValueId, CodegenError> {
        let stages = self.sizes.stages;
        let start = b.int(DType::I32, 0);
        let fragments = self.fetch_sides(emitter, b, batch, sides, first)?;
        self.fill_sides(b, sides, start, fragments);
        self.filled(b);
        let zeros = self.zeros(b);
        let sums = emitter.for_loop(b, (first, end, 1), &[zeros], 1, |emitter, b, at, sums| {
            let number = b.sub(at, first);
            let number = b.cast(DType::I32, number);
            let buffer = b.binary_with(BinaryFn::Rem, number, stages.into());
            let number = b.add_int(number, 1);
            let other = b.binary_with(BinaryFn::Rem, number, stages.into());
            let next = b.add_int(at, 1);
            let from = if self.accurate { self.zeros(b) } else { sums[0] };
            let step_sums = match self.unit {
                Unit::Warps(tile) => {
                    let fragments = self.fetch_sides(emitter, b, batch, sides, next)?;
                    let step_sums = self.multiply_step(b, tile, sides, buffer, from);
                    if stages == 1 {
                        b.barrier();
                    }
                    self.fill_sides(b, sides, other, fragments);
                    step_sums
                }
                Unit::Groups(tile) => {
                    let mut step_sums = self.begin_step(b, tile, sides, buffer, from);
                    let fragments = self.fetch_sides(emitter, b, batch, sides, next)?;
                    if stages == 1 {
                        step_sums = b.wgmma_wait(step_sums);
                        b.barrier();
                    }
                    self.fill_sides(b, sides, other, fragments);
                    // Before the barrier: what is read here is written in the next round.
                    if stages > 1 { b.wgmma_wait(step_sums) } else { step_sums }
                }
            };
            self.filled(b);
            Ok(vec![if self.accurate { b.add(sums[0], step_sums) } else { step_sums }])
        })?;
        Ok(sums[0])
    }

    /// Begins to add a step's products to the sums.
    fn begin_step(
        &self,
        b: &mut KernelBuilder,
        tile: WgmmaTile,
        sides: &[Side<'_>; 2],
        buffer: ValueId,
        sums: ValueId,
    ) -> ValueId {
        let offsets = [0, 1]
            .map(|side: usize| b.mul_int(buffer, self.tile_elements(sides[side].block).into()));
        let pairs: &[[usize; 2]] = match self.split_factors {
            true => &[[1, 2], [2, 1], [0, 0]],
            false => &[[0, 0]],
        };
        pairs.iter().fold(sums, |sums, &[left, right]| {
            b.wgmma(tile, [sides[0].memory[left], sides[1].memory[right]], offsets, sums)
        })
    }

    fn fetch_sides(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        batch: &[Index],
        sides: &[Side<'_>; 2],
        step: ValueId,
    ) -> Result<[ValueId; 2], CodegenError> {
        let left = self.fetch(emitter, b, batch, &sides[0], step)?;
        Ok([left, self.fetch(emitter, b, batch, &sides[1], step)?])
    }

    /// Waits until all threads have written their parts of a step.
    fn filled(&self, b: &mut KernelBuilder) {
        if self.sizes.groups {
            b.proxy_fence();
        }
        b.barrier();
    }

    /// Writes a step of both operands to shared memory.
    fn fill_sides(
        &self,
        b: &mut KernelBuilder,
        sides: &[Side<'_>; 2],
        buffer: ValueId,
        fragments: [ValueId; 2],
    ) {
        for (side, fragment) in sides.iter().zip(fragments) {
            self.fill(b, side, buffer, fragment);
        }
    }

    pub fn zeros(&self, b: &mut KernelBuilder) -> ValueId {
        let ty = Ty::Fragment(DType::F32, self.unit.sums());
        b.constant_of(ty, Scalar::new(DType::F32, 0.0))
    }

    /// An operand's elements of a step, as they are in memory; 0 beyond the end.
    fn fetch(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        batch: &[Index],
        side: &Side<'_>,
        step: ValueId,
    ) -> Result<ValueId, CodegenError> {
        emitter.set_tile(&side.read);
        let inner = &self.product.inner;
        let own = emitter.iterate(&side.group.extent, Some(side.base), Some(0));
        let (steps, size) = (self.steps(), Dim::constant(self.step().into()));
        let step = emitter.iterate(&steps, Some(step), None);
        let within = emitter.iterate(&size, None, Some(1));
        let start = emitter.space.scale(&Index::var(step), &size);
        let position = emitter.space.add(&start, &Index::var(within));
        let mask = tail(own, &side.group.extent, side.block.into());
        // When steps end where the group ends, a step is inside or beyond as a whole.
        let limit = match inner.extent.divided_exactly(&size) {
            Some(_) => within_extent(step, &steps),
            None => {
                let high = Some(inner.extent.clone());
                Condition::Within { value: position.clone(), low: None, high }
            }
        };
        let limits = Mask::from([limit]);
        let positions = [(side.group, Index::var(own)), (inner, position)];
        let axes = self.product.axes(&emitter.space, batch, &positions);
        let factor = (side.operand, side.map);
        let value = emitter.pull_factor(b, factor, &axes, (&mask, &limits), DType::F32)?;
        Ok(emitter.spread(b, value))
    }

    /// Rounds a step's elements and writes them to shared memory.
    fn fill(&self, b: &mut KernelBuilder, side: &Side<'_>, buffer: ValueId, fragment: ValueId) {
        let fragment = b.reorder(fragment, &side.written);
        let parts = match self.factor {
            Factor::Tf32 if self.split_factors && self.sizes.groups => {
                let Split { high, low, finite } = split(b, fragment);
                vec![high, low, finite]
            }
            Factor::Tf32 if self.split_factors => vec![fragment],
            Factor::Tf32 => vec![b.round_tf32(fragment)],
            Factor::Bf16 | Factor::F16 => vec![b.cast(self.factor.dtype(), fragment)],
        };
        let own = b.coordinate(&side.written, 0);
        let inner = b.coordinate(&side.written, 1);
        let row = b.mul_int(own, self.step().into());
        let offset = b.add(row, inner);
        let start = b.mul_int(buffer, self.tile_elements(side.block).into());
        let offset = b.add(offset, start);
        for (&memory, part) in side.memory.iter().zip(parts) {
            b.store(memory, offset, part, None, 1);
        }
    }

    /// Adds a step's products to the sums.
    fn multiply_step(
        &self,
        b: &mut KernelBuilder,
        tile: MmaTile,
        sides: &[Side<'_>; 2],
        buffer: ValueId,
        mut sums: ValueId,
    ) -> ValueId {
        for part in 0..PARTS / ROW_THREADS {
            let left = self.fragment(b, &sides[0], &tile.left(), buffer, part);
            let right = self.fragment(b, &sides[1], &tile.right(), buffer, part);
            sums = match self.split_factors {
                true => multiply_split(b, tile, left, right, sums),
                false => b.mma(tile, left, right, sums),
            };
        }
        sums
    }

    /// What a warp multiplies of a step: every second part of each row.
    fn fragment(
        &self,
        b: &mut KernelBuilder,
        side: &Side<'_>,
        layout: &Layout,
        buffer: ValueId,
        part: u32,
    ) -> ValueId {
        let held = self.factor.held();
        let [own, thread, within] = [0, 1, 2].map(|dim| b.coordinate(layout, dim));
        let row = b.mul_int(own, self.step().into());
        let thread = b.mul_int(thread, (held * (PARTS / ROW_THREADS)).into());
        let start = b.mul_int(buffer, self.tile_elements(side.block).into());
        let start = b.add_int(start, (part * held).into());
        let offset = b.add(row, thread);
        let offset = b.add(offset, within);
        let offset = b.add(offset, start);
        b.load(side.memory[0], offset, None, 1)
    }

    /// The kernel that adds the parts of each sum, in order, and finishes the results.
    fn add_parts(&self) -> Result<(crate::kernel::Kernel, super::Launch), CodegenError> {
        let site = self.product.site;
        let sizes = self.partial_sizes();
        let total: Dim = sizes[1..].iter().product();
        let width = ADD_THREADS * ADD_VECTOR;
        let layout = Layout {
            shape: vec![width],
            registers: modes(&[(0, ADD_VECTOR, 1)]),
            threads: modes(&[(0, ADD_THREADS, ADD_VECTOR)]),
        };
        build_kernel(site, &site.kernel_name("_sum"), ADD_THREADS, |emitter, b| {
            emitter.set_tile(&layout);
            let block = emitter.block(b);
            let base = b.mul_int(block, width.into());
            let var = emitter.iterate(&total, Some(base), Some(0));
            let mask = tail(var, &total, width.into());
            let memory = emitter.array(b, Array::WorkspaceIn(0, DType::F32));
            let nothing = Scalar::new(DType::F32, 0.0);
            let mut sums: Option<ValueId> = None;
            for part in 0..self.sizes.splits {
                let start = Index::size(&total * &Dim::constant(part.into()));
                let offset = emitter.space.add(&start, &Index::var(var));
                let next = emitter.load(b, memory, &offset, &mask, nothing);
                sums = Some(sums.map_or(next, |sums| b.add(sums, next)));
            }
            let sums = sums.expect("invariant: there is a part");
            let place = emitter.space.delinearize(&Index::var(var), &sizes[1..]);
            let batch = emitter.space.delinearize(&place[0], &self.product.batch.sizes);
            let [rows, columns] = self.groups();
            let at = [(rows, place[1].clone()), (columns, place[2].clone())];
            let axes = self.product.axes(&emitter.space, &batch, &at);
            self.finish(emitter, b, (&axes, None), sums, [mask, Mask::new()])?;
            Ok(total.ceil_div(&Dim::constant(width.into())))
        })
    }
}

/// Products of `f32` factors as accurate as `f32`: each factor is the sum of two of 11 bits, and the
/// product of the lower ones is left out (3xTF32; Ootomo and Yokota, "Recovering single precision
/// accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022).
fn multiply_split(
    b: &mut KernelBuilder,
    tile: MmaTile,
    left: ValueId,
    right: ValueId,
    sums: ValueId,
) -> ValueId {
    let left = split(b, left);
    let right = split(b, right);
    let sums = b.mma(tile, left.low, right.finite, sums);
    let sums = b.mma(tile, left.finite, right.low, sums);
    b.mma(tile, left.high, right.high, sums)
}

/// A factor as the sum of two.
struct Split {
    high: ValueId,
    low: ValueId,
    /// `high`, and 0 where it is infinite: what `low` of the other factor is multiplied with.
    finite: ValueId,
}

/// Splits `f32` factors. An infinity is all in `high`, so that it meets no 0 of its own making; NaN is in
/// both. Magnitudes that round to an infinity keep their upper bits alone, which the tensor core takes.
fn split(b: &mut KernelBuilder, x: ValueId) -> Split {
    let rounded = b.round_tf32(x);
    let overflows = b.unary(UnaryFn::IsInf, rounded);
    let zero = b.constant(Scalar::new(DType::F32, 0.0));
    let rest = b.sub(x, rounded);
    let low = b.select(overflows, zero, rest);
    Split {
        high: b.select(overflows, x, rounded),
        low: b.round_tf32(low),
        finite: b.select(overflows, zero, rounded),
    }
}
