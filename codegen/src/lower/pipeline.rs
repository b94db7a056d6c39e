//! Products of warpgroups whose operands come through asynchronous copies, several steps ahead.
//!
//! The left operand is copied as it lies in memory, 16 bytes at a time where that is aligned, single
//! elements elsewhere (the positions of a convolution's taps), zeros where the contraction has none. Warps
//! read the factors that they hold from the copy and round them in registers, so that no order in memory
//! needs turning: tensor cores take left factors from registers. The right operand they read from shared
//! memory, where it has to lie with inner elements adjacent and rounded already. Weights are stored so by the
//! prepare program; anything else a kernel of its own packs first.

use fornax_ir::plan::adjacent::moved_input;
use fornax_ir::plan::index::IndexSpace;
use fornax_ir::plan::{PACKED_MULTIPLE, PAIRED_BYTES, PAIRED_SUMS, PAIRED_THREADS};
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Scalar, UnaryFn};

use super::emit::{Array, Emitter, build_kernel};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::product::{Adjacency, Group, Product};
use super::tile_mma::{Tiling, Unit};
use super::{CodegenError, Launch};
use crate::kernel::{Kernel, KernelBuilder, Layout, Memory, Ty, ValueId, WgmmaTile};

/// How a contraction is pipelined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pipeline {
    /// Whether the right operand's elements are whole factors.
    pub packed: bool,
}

/// Elements of a part that is copied at once, at most (16 bytes).
const PART: u32 = 4;

/// Elements between the rows of a left tile beyond a row's own, so that what the lanes of a warp read lies in
/// different banks: eight rows of four inner elements where inner elements are adjacent, four rows of eight
/// positions where positions are.
const INNER_PAD: u32 = 4;
const OWN_PAD: u32 = 8;

/// Steps in shared memory from which on products stay under way while the next ones begin.
pub(super) const OVERLAPPED_STAGES: u32 = 4;

/// A block of the kernel that packs: threads, positions and inner elements, of which a thread has some.
const PACK_THREADS: u32 = 256;
const PACK_OWN: u32 = 32;
const PACK_INNER: u32 = 64;
const PACK_HELD: u32 = 8;

/// An operand in shared memory.
pub(super) struct Tile {
    /// Which thread copies which elements: positions of the result, inner positions.
    pub copied: Layout,
    /// Elements from one position, and from one inner position, to the next.
    strides: [u32; 2],
    /// Elements of a step.
    pub elements: u32,
    /// One array for each part of the factors.
    pub memory: Vec<Memory>,
}

/// Whether both operands are of the kinds that are pipelined.
pub(super) fn has_operands(product: &Product<'_>) -> bool {
    let body = product.site.body;
    let [left, right] = [0, 1].map(|side: usize| body.operands(product.node)[side]);
    let f32 = [left, right].iter().all(|&operand| body.ty(operand).dtype == DType::F32);
    f32 && moved_input(body, left).is_some()
}

impl<'a> Tiling<'a> {
    /// The right operand where it is copied as it is.
    fn is_direct(&self, pipeline: Pipeline) -> bool {
        let product = &self.product;
        let operand = product.site.body.operands(product.node)[1];
        pipeline.packed
            && !self.accurate
            && moved_input(product.site.body, operand).is_some()
            && product.adjacency(operand, &product.form.rhs, &product.columns, PART)
                == (Adjacency::Inner, PART)
    }

    /// Sizes of the packed right operand, if a kernel packs it: parts of a factor, batch, columns, inner
    /// elements.
    pub fn packed_sizes(&self) -> Option<[Dim; 4]> {
        if self.is_direct(self.sizes.pipeline?) {
            return None;
        }
        let multiple = Dim::constant(PACKED_MULTIPLE.into());
        let inner = match &self.patch {
            Some(patch) => patch.packed_inner(),
            None => &self.product.inner.extent.ceil_div(&multiple) * &multiple,
        };
        let batch = self.product.batch.extent.clone();
        let parts = Dim::constant(self.parts().into());
        Some([parts, batch, self.product.columns.extent.clone(), inner])
    }

    /// Parts of a right factor.
    fn parts(&self) -> u32 {
        if self.accurate { 2 } else { 1 }
    }

    /// The number of the workspace that the packed operand lies in.
    pub fn packed_workspace(&self) -> usize {
        usize::from(self.sizes.splits > 1)
    }

    /// The kernel that packs the right operand.
    pub fn pack(&self, sizes: &[Dim; 4]) -> Result<(Kernel, Launch), CodegenError> {
        let product = &self.product;
        let site = product.site;
        let columns = &product.columns;
        let layout = Layout {
            shape: vec![PACK_OWN, PACK_INNER],
            registers: modes(&[(1, PACK_HELD, 1)]),
            threads: modes(&[(0, PACK_OWN, 1), (1, PACK_INNER / PACK_HELD, PACK_HELD)]),
        };
        let inner_blocks = sizes[3].ceil_div(&Dim::constant(PACK_INNER.into()));
        let blocks = [product.batch.extent.clone(), columns.blocks(PACK_OWN), inner_blocks];
        let operand = (site.body.operands(product.node)[1], &product.form.rhs);
        let (kernel, mut launch) =
            build_kernel(site, &site.kernel_name("_pack"), PACK_THREADS, |emitter, b| {
                let block = emitter.block(b);
                let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
                let place = emitter.space.delinearize(&Index::var(block), &blocks);
                let batch = emitter.space.delinearize(&place[0], &product.batch.sizes);
                let own = emitter.space.scale(&place[1], &Dim::constant(PACK_OWN.into()));
                let inner = emitter.space.scale(&place[2], &Dim::constant(PACK_INNER.into()));
                let bases = [&own, &inner].map(|base| emitter.index(b, base));
                emitter.set_tile(&layout);
                let own = emitter.iterate(&columns.extent, Some(bases[0]), Some(0));
                let inner = emitter.iterate(&sizes[3], Some(bases[1]), Some(1));
                let mut mask = tail(own, &columns.extent, PACK_OWN.into());
                mask.extend(tail(inner, &sizes[3], PACK_INNER.into()));
                let (own, inner) = (Index::var(own), Index::var(inner));
                let (axes, limits) = self.packed_axes(&emitter.space, &batch, &own, &inner);
                let value = emitter.pull_factor(b, operand, &axes, (&mask, &limits), DType::F32)?;
                let value = emitter.spread(b, value);
                let parts = match self.accurate {
                    true => split(b, value).right().to_vec(),
                    false => vec![b.round_tf32(value)],
                };
                let memory =
                    emitter.array(b, Array::WorkspaceOut(self.packed_workspace(), DType::F32));
                for (number, part) in (0i64..).zip(parts) {
                    let number = Index::size(Dim::constant(number));
                    let at = [number, place[0].clone(), own.clone(), inner.clone()];
                    let offset = emitter.space.linearize(&at, sizes);
                    emitter.store(b, memory, &offset, part, &mask);
                }
                Ok(blocks.iter().product())
            })?;
        launch.bytes = sizes.iter().product::<Dim>() * Dim::constant(4);
        Ok((kernel, launch))
    }

    /// The contraction's axes of a packed element, and the conditions under which there is one.
    fn packed_axes(
        &self,
        space: &IndexSpace<'_>,
        batch: &[Index],
        own: &Index,
        inner: &Index,
    ) -> (Vec<Index>, Mask) {
        let product = &self.product;
        if let Some(patch) = &self.patch {
            let mut axes = product.axes(space, batch, &[(&product.columns, own.clone())]);
            let mask = patch.packed_axes(space, &mut axes, inner);
            return (axes, mask);
        }
        let high = Some(product.inner.extent.clone());
        let limits = Mask::from([Condition::Within { value: inner.clone(), low: None, high }]);
        let positions = [(&product.columns, own.clone()), (&product.inner, inner.clone())];
        (product.axes(space, batch, &positions), limits)
    }

    /// Threads that copy rows of 128 bytes in parts of `vector` elements.
    fn rows_of_parts(&self, block: u32, vector: u32) -> Layout {
        let threads = self.threads();
        let across = self.step() / vector;
        let own = (threads / across).min(block);
        Layout {
            shape: vec![block, self.step()],
            registers: modes(&[(1, vector, 1), (0, block / own, own)]),
            threads: modes(&[(1, across, vector), (0, own, 1), (0, threads / (across * own), 0)]),
        }
    }

    fn left_tile(&self, b: &mut KernelBuilder) -> Tile {
        let product = &self.product;
        let operand = product.site.body.operands(product.node)[0];
        let (block, step) = (self.sizes.block_m, self.step());
        let (adjacency, run) = product.adjacency(operand, &product.form.lhs, &product.rows, PART);
        let (copied, strides, elements) = match adjacency {
            Adjacency::Inner => {
                let pitch = step + INNER_PAD;
                (self.rows_of_parts(block, run), [pitch, 1], block * pitch)
            }
            Adjacency::Own => {
                let threads = self.threads();
                let along = threads.min(block / run);
                let inner = (threads / along).min(step);
                let extra = threads / (along * inner);
                let copied = Layout {
                    shape: vec![block, step],
                    registers: modes(&[
                        (0, run, 1),
                        (1, step / inner, inner),
                        (0, block / (along * run), along * run),
                    ]),
                    threads: modes(&[(0, along, run), (1, inner, 1), (0, extra, 0)]),
                };
                let pitch = block + OWN_PAD;
                (copied, [1, pitch], step * pitch)
            }
        };
        let memory = b.shared("left", DType::F32, self.sizes.stages * elements);
        Tile { copied, strides, elements, memory: vec![memory] }
    }

    pub fn right_tile(&self, b: &mut KernelBuilder) -> Tile {
        let block = self.sizes.block_n;
        let elements = self.tile_elements(block);
        let names: &[&str] = if self.accurate { &["right_high", "right_low"] } else { &["right"] };
        let memory = names
            .iter()
            .map(|&name| b.swizzled(name, DType::F32, self.sizes.stages * elements))
            .collect();
        let copied = self.rows_of_parts(block, PART);
        Tile { copied, strides: [self.step(), 1], elements, memory }
    }

    /// The sums of products for the block's tile of the result, from the step `first` on up to `end`.
    pub fn stream(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (pipeline, batch_number, batch): (Pipeline, &Index, &[Index]),
        bases: [ValueId; 2],
        [first, end]: [ValueId; 2],
    ) -> Result<ValueId, CodegenError> {
        let Unit::Groups(tile) = self.unit else {
            unreachable!("invariant: warpgroups multiply in pipelines")
        };
        let (left, right) = (self.left_tile(b), self.right_tile(b));
        let stages = self.sizes.stages;
        let parts = self.parts();
        let sums = tile.rows * tile.columns / self.threads() * parts;
        if sums <= PAIRED_SUMS {
            self.pair_blocks(b, stages * (left.elements + parts * right.elements));
        }
        let overlaps = stages >= OVERLAPPED_STAGES && !self.accurate;
        let ahead = stages - 1 - u32::from(overlaps);
        let begin = |emitter: &mut Emitter<'a>, b: &mut KernelBuilder, step, buffer| {
            self.copy_left(emitter, b, (batch, bases[0]), &left, (step, buffer))?;
            let place = (batch_number, batch, bases[1]);
            self.copy_right(emitter, b, pipeline, place, &right, (step, buffer))?;
            b.copy_commit();
            Ok::<(), CodegenError>(())
        };
        for number in 0..ahead {
            let step = b.add_int(first, number.into());
            let buffer = b.int(DType::I32, number.into());
            begin(emitter, b, step, buffer)?;
        }
        let zeros = self.zeros(b);
        let sums = emitter.for_loop(b, (first, end, 1), &[zeros], 1, |emitter, b, at, sums| {
            let number = b.sub(at, first);
            let number = b.cast(DType::I32, number);
            let buffer = b.binary_with(BinaryFn::Rem, number, stages.into());
            b.copy_wait(ahead - 1);
            b.proxy_fence();
            // Behind it all warps have read what the copies that begin now overwrite.
            b.barrier();
            if overlaps {
                // Products read left factors from registers until they are done: the next ones need others.
                b.wgmma_pending(0);
            }
            let factors = self.left_factors(b, &tile, &left, buffer);
            let from = if self.accurate { self.zeros(b) } else { sums[0] };
            let begun = self.multiply_held(b, &tile, factors, &right, buffer, from);
            let next = b.add_int(number, ahead.into());
            let next = b.binary_with(BinaryFn::Rem, next, stages.into());
            let later = b.add_int(at, ahead.into());
            begin(emitter, b, later, next)?;
            Ok(vec![match (self.accurate, overlaps) {
                (true, _) => {
                    let step_sums = b.wgmma_wait(begun);
                    b.add(sums[0], step_sums)
                }
                // They go on while the next step's factors are waited for.
                (false, true) => begun,
                (false, false) => b.wgmma_wait(begun),
            }])
        })?;
        Ok(if overlaps { b.wgmma_wait(sums[0]) } else { sums[0] })
    }

    /// Asks for two blocks at once where they have room: `elements` in shared memory each.
    pub fn pair_blocks(&self, b: &mut KernelBuilder, elements: u32) {
        if 4 * elements <= PAIRED_BYTES && self.threads() <= PAIRED_THREADS {
            b.set_resident(2);
        }
    }

    /// The position along a group and the inner position of each element of a step, with the mask outside of
    /// which there are none. `inner`: the extent of inner positions.
    fn positions(
        &self,
        emitter: &mut Emitter<'a>,
        (group, base, block): (&Group, ValueId, u32),
        (step, inner): (ValueId, &Dim),
    ) -> ([Index; 2], Mask) {
        let own = emitter.iterate(&group.extent, Some(base), Some(0));
        let size = Dim::constant(self.step().into());
        let steps = inner.ceil_div(&size);
        let step = emitter.iterate(&steps, Some(step), None);
        let within = emitter.iterate(&size, None, Some(1));
        let start = emitter.space.scale(&Index::var(step), &size);
        let position = emitter.space.add(&start, &Index::var(within));
        let mut mask = tail(own, &group.extent, block.into());
        // When steps end where the group ends, a step is inside or beyond as a whole.
        mask.insert(match inner.divided_exactly(&size) {
            Some(_) => within_extent(step, &steps),
            None => {
                Condition::Within { value: position.clone(), low: None, high: Some(inner.clone()) }
            }
        });
        ([Index::var(own), position], mask)
    }

    /// Where the elements of a step go.
    pub fn targets(
        &self,
        b: &mut KernelBuilder,
        tile: &Tile,
        layout: &Layout,
        buffer: ValueId,
    ) -> ValueId {
        let [own, inner] = [0, 1].map(|dim: u32| {
            let at = b.coordinate(layout, dim);
            b.mul_int(at, tile.strides[dim as usize].into())
        });
        let offset = b.add(own, inner);
        let start = b.mul_int(buffer, tile.elements.into());
        b.add(offset, start)
    }

    fn copy_left(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (batch, base): (&[Index], ValueId),
        tile: &Tile,
        (step, buffer): (ValueId, ValueId),
    ) -> Result<(), CodegenError> {
        let product = &self.product;
        emitter.set_tile(&tile.copied);
        let (group, inner) = (&product.rows, &product.inner);
        let own = (group, base, self.sizes.block_m);
        let ([own, position], mask) = self.positions(emitter, own, (step, &inner.extent));
        let axes = product.axes(&emitter.space, batch, &[(group, own), (inner, position)]);
        let operand = product.site.body.operands(product.node)[0];
        self.copy_operand(emitter, b, (operand, 0), &axes, &mask, (tile, buffer))
    }

    /// Copies a step of an operand of the region.
    pub fn copy_operand(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (operand, side): (NodeId, usize),
        axes: &[Index],
        mask: &Mask,
        (tile, buffer): (&Tile, ValueId),
    ) -> Result<(), CodegenError> {
        let form = &self.product.form;
        let map = if side == 0 { &form.lhs } else { &form.rhs };
        let to = (tile.memory[0], self.targets(b, tile, &tile.copied, buffer));
        match emitter.locate_factor(b, (operand, map), axes, mask, false)? {
            Some((memory, offset, mask)) => emitter.copy(b, to, (memory, &offset), (&mask, None)),
            None => {
                let zeros = b.constant_of(
                    Ty::Fragment(DType::F32, tile.copied.clone()),
                    Scalar::new(DType::F32, 0.0),
                );
                b.store(to.0, to.1, zeros, None, 1);
            }
        }
        Ok(())
    }

    fn copy_right(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        pipeline: Pipeline,
        (batch_number, batch, base): (&Index, &[Index], ValueId),
        tile: &Tile,
        (step, buffer): (ValueId, ValueId),
    ) -> Result<(), CodegenError> {
        let product = &self.product;
        emitter.set_tile(&tile.copied);
        let group = &product.columns;
        let own = (group, base, self.sizes.block_n);
        let Some(sizes) = self.packed_sizes() else {
            debug_assert!(self.is_direct(pipeline));
            let inner = &product.inner;
            let ([own, position], mask) = self.positions(emitter, own, (step, &inner.extent));
            let axes = product.axes(&emitter.space, batch, &[(group, own), (inner, position)]);
            let operand = product.site.body.operands(product.node)[1];
            return self.copy_operand(emitter, b, (operand, 1), &axes, &mask, (tile, buffer));
        };
        let ([own, position], mask) = self.positions(emitter, own, (step, &sizes[3]));
        let memory = emitter.array(b, Array::WorkspaceIn(self.packed_workspace(), DType::F32));
        for (number, &part) in (0i64..).zip(&tile.memory) {
            let number = Index::size(Dim::constant(number));
            let at = [number, batch_number.clone(), own.clone(), position.clone()];
            let offset = emitter.space.linearize(&at, &sizes);
            let to = (part, self.targets(b, tile, &tile.copied, buffer));
            emitter.copy(b, to, (memory, &offset), (&mask, None));
        }
        Ok(())
    }

    /// The left factors of a step that the threads hold, not yet rounded.
    fn left_factors(
        &self,
        b: &mut KernelBuilder,
        tile: &WgmmaTile,
        left: &Tile,
        buffer: ValueId,
    ) -> ValueId {
        let offset = self.targets(b, left, &tile.left(), buffer);
        b.load(left.memory[0], offset, None, 1)
    }

    /// Begins to add a step's products to sums.
    pub fn multiply_held(
        &self,
        b: &mut KernelBuilder,
        tile: &WgmmaTile,
        factors: ValueId,
        right: &Tile,
        buffer: ValueId,
        sums: ValueId,
    ) -> ValueId {
        let offset = b.mul_int(buffer, right.elements.into());
        if !self.accurate {
            let factors = b.round_tf32(factors);
            return b.wgmma_registers(*tile, factors, (right.memory[0], offset), sums);
        }
        let left = split(b, factors);
        left.left().into_iter().zip([0, 1, 0]).fold(sums, |sums, (left, part)| {
            b.wgmma_registers(*tile, left, (right.memory[part], offset), sums)
        })
    }
}

/// A factor as the sum of two of 11 bits (3xTF32, see [`super::tile_mma`]). The products are `low * near`,
/// `near * low` and `high * near` of the left and the right factor; an infinity must meet the other factor
/// itself exactly once, and a number of its own sign elsewhere.
pub(super) struct Split {
    /// The upper part; infinities.
    high: ValueId,
    /// The upper part; 1 or -1 for infinities.
    near: ValueId,
    /// The lower part; 0 for infinities.
    low: ValueId,
    /// The lower part; infinities.
    low_infinite: ValueId,
}

impl Split {
    /// The parts of a left factor in the order of the products.
    pub(super) fn left(&self) -> [ValueId; 3] {
        [self.low, self.near, self.high]
    }

    /// The parts of a right factor.
    fn right(&self) -> [ValueId; 2] {
        [self.near, self.low_infinite]
    }
}

/// Splits factors. Magnitudes that round to an infinity keep their upper bits alone, which the tensor core
/// takes; NaN is in both parts.
pub(super) fn split(b: &mut KernelBuilder, x: ValueId) -> Split {
    let rounded = b.round_tf32(x);
    let overflows = b.unary(UnaryFn::IsInf, rounded);
    let infinite = b.unary(UnaryFn::IsInf, x);
    let zero = b.constant(Scalar::new(DType::F32, 0.0));
    let rest = b.sub(x, rounded);
    let low = b.select(overflows, zero, rest);
    let low = b.round_tf32(low);
    let high = b.select(overflows, x, rounded);
    let sign = b.unary(UnaryFn::Sign, x);
    Split {
        high,
        near: b.select(infinite, sign, high),
        low,
        low_infinite: b.select(infinite, x, low),
    }
}
