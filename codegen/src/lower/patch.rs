//! Convolutions whose taps read the left operand from shared memory.
//!
//! A block's tile is a box of positions along the last two axes of the windows. What all taps of these
//! positions read of some channels, the *patch*, is copied to shared memory once, ahead of its use; warps
//! read the factors that they hold from the places that their positions and the step's taps have in it. A
//! step of 32 inner elements is some channels of as many taps as make 32 of them. Only right factors are
//! copied for each step, as in [`super::pipeline`].

use fornax_ir::plan::adjacent::moved_input;
use fornax_ir::plan::index::IndexSpace;
use fornax_ir::plan::windows::{WindowAxis, Windows};
use fornax_ir::{BinaryFn, DType, Dim};

use super::emit::{Array, Emitter};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail};
use super::product::{Group, Product};
use super::tile_mma::{Tiling, Unit};
use super::{CodegenError, pipeline};
use crate::kernel::{KernelBuilder, Layout, Memory, ValueId};

/// Elements that are copied at once where that is aligned (16 bytes).
const PART: u32 = 4;

/// Inner elements of a step.
const STEP: u32 = 32;

/// Steps of a patch, each of them code of its own.
const MOST_STEPS: u32 = 50;

/// Bytes of the patches in shared memory, so that two blocks fit into a multiprocessor.
const MOST_PATCH_BYTES: u32 = 64 * 1024;

/// Channels of a patch.
const HELD: [u32; 4] = [32, 16, 8, 4];

/// Rows of a tile that the lanes of a warp hold side by side.
const ADJACENT_ROWS: u32 = 8;

/// Threads in a warp.
const WARP: u32 = 32;

/// How a convolution is cut into patches.
#[derive(Debug, Clone)]
pub(super) struct Patch {
    windows: Vec<WindowAxis>,
    /// Positions of a block's tile along each of them.
    tile: Vec<u32>,
    /// The axis of the channels that are added up, and their number.
    channel: usize,
    channels: Dim,
    /// Channels of a patch, and taps of a step.
    held: u32,
    taps_held: u32,
    /// Steps of a patch.
    pub steps: u32,
    /// Elements copied at once.
    vector: u32,
    /// Elements before the first one of a row of the patch, so that parts are aligned.
    shift: u32,
    /// Elements from one row along each window axis to the next, and from channel to channel.
    strides: Vec<u32>,
    channel_stride: u32,
}

impl Patch {
    /// The patches of a contraction for tiles of `positions`, `width` of them along the last axis; none where
    /// its windows are of another kind.
    pub fn of(product: &Product<'_>, width: u32, positions: u32) -> Option<Patch> {
        let mut space = IndexSpace::new(product.site.dims);
        let Windows { axes: windows, channel } = Windows::of(&product.form, &mut space)?;
        let channels = product.form.axes[channel].0.clone();
        let number = channels.as_const()?;
        let count = windows.len();
        let mut tile = vec![1; count];
        tile[count - 1] = if count == 1 { positions } else { width.min(positions) };
        if count > 1 {
            tile[count - 2] = positions / tile[count - 1];
        }
        let taps: u32 = windows.iter().map(|window| window.taps).product();
        let last = windows.last()?;
        let body = product.site.body;
        let operand = body.operands(product.node)[0];
        let whole_parts = Dim::constant(PART.into());
        let aligned = moved_input(body, operand) == Some(operand)
            && body.ty(operand).shape.last()?.divided_exactly(&whole_parts).is_some()
            && last.start.is_some()
            && last.step <= 2;
        let start = last.start.unwrap_or(0) + i64::from(last.lowest());
        let (vector, shift) =
            if aligned { (PART, start.rem_euclid(PART.into()) as u32) } else { (1, 0) };
        let mut stride = (last.extent(tile[count - 1]) + shift).next_multiple_of(vector);
        let mut strides = vec![1];
        for (window, &tile) in windows.iter().zip(&tile).rev().skip(1) {
            strides.push(stride);
            stride *= window.extent(tile);
        }
        strides.reverse();
        // Four channels of eight positions in different banks, where that can be.
        let remainder = match (last.step, vector) {
            (1, _) => 8,
            (2, _) => 16,
            _ => 1,
        };
        let channel_stride = stride.saturating_sub(remainder).next_multiple_of(32) + remainder;
        // As many channels as fit, but not twice as many as there are.
        let held = HELD.into_iter().find(|&held| {
            let copies = if number <= i64::from(held) { 1 } else { 2 };
            let bytes = u64::from(channel_stride) * u64::from(held) * 4 * copies;
            (held == 4 || number > i64::from(held) / 2)
                && taps.div_ceil(STEP / held) <= MOST_STEPS
                && bytes <= u64::from(MOST_PATCH_BYTES)
        })?;
        let taps_held = STEP / held;
        let steps = taps.div_ceil(taps_held);
        let fits = tile[count - 1] >= ADJACENT_ROWS;
        fits.then_some(Patch {
            windows,
            tile,
            channel,
            channels,
            held,
            taps_held,
            steps,
            vector,
            shift,
            strides,
            channel_stride,
        })
    }

    /// Elements of a patch.
    fn elements(&self) -> u32 {
        self.held * self.channel_stride
    }

    /// Patches along the channels.
    fn patches(&self) -> Dim {
        self.channels.ceil_div(&Dim::constant(self.held.into()))
    }

    fn tap_sizes(&self) -> Vec<Dim> {
        self.windows.iter().map(|window| Dim::constant(window.taps.into())).collect()
    }

    fn taps(&self) -> u32 {
        self.windows.iter().map(|window| window.taps).product()
    }

    /// Packed inner elements: steps of all patches.
    pub fn packed_inner(&self) -> Dim {
        self.patches() * Dim::constant((self.steps * STEP).into())
    }

    /// The tap and the channel of an inner element of a step, and the conditions under which there are such
    /// ones. `patch` and `step` may be numbers or positions of the kernel.
    fn place(
        &self,
        space: &IndexSpace<'_>,
        (patch, step): (&Index, &Index),
        within: &Index,
    ) -> (Vec<Index>, Index, Mask) {
        let held = Dim::constant(self.held.into());
        let first = space.scale(step, &Dim::constant(self.taps_held.into()));
        let tap = space.add(&first, &space.floor_div(within, &held));
        let channel = space.add(&space.scale(patch, &held), &space.modulo(within, &held));
        let mut mask = Mask::new();
        mask.extend(space.within(&tap, &Dim::constant(0), &Dim::constant(self.taps().into())));
        mask.extend(space.within(&channel, &Dim::constant(0), &self.channels));
        (space.delinearize(&tap, &self.tap_sizes()), channel, mask)
    }

    /// The contraction's axes for an inner element of a step of the packed right operand.
    pub fn packed_axes(&self, space: &IndexSpace<'_>, axes: &mut [Index], inner: &Index) -> Mask {
        let step = Dim::constant(STEP.into());
        let number = space.floor_div(inner, &step);
        let within = space.modulo(inner, &step);
        let steps = Dim::constant(self.steps.into());
        let place = (&space.floor_div(&number, &steps), &space.modulo(&number, &steps));
        let (taps, channel, mask) = self.place(space, place, &within);
        self.set_inner(axes, taps, channel);
        mask
    }

    fn set_inner(&self, axes: &mut [Index], taps: Vec<Index>, channel: Index) {
        for (window, tap) in self.windows.iter().zip(taps) {
            axes[window.tap] = tap;
        }
        axes[self.channel] = channel;
    }

    /// Where each inner element of a step lies in the patch, from where a tile's first position lies.
    fn inner_offsets(&self, step: u32) -> Vec<i32> {
        let offset = |within: u32| {
            let (tap, channel) = (step * self.taps_held + within / self.held, within % self.held);
            let mut rest = if tap < self.taps() { tap } else { 0 };
            let mut offset = (self.shift + channel * self.channel_stride) as i32;
            for (window, &stride) in self.windows.iter().zip(&self.strides).rev() {
                let tap = (rest % window.taps) as i32;
                rest /= window.taps;
                offset += (tap * window.tap_step - window.lowest()) * stride as i32;
            }
            offset
        };
        (0..STEP).map(offset).collect()
    }

    /// Where the first tap of each position of a tile reads, from the first position's.
    fn position_offsets(&self, positions: u32) -> Vec<i32> {
        let offset = |position: u32| {
            let (mut rest, mut offset) = (position, 0);
            let windows = self.windows.iter().zip(&self.tile).zip(&self.strides);
            for ((window, &tile), &stride) in windows.rev() {
                offset += (rest % tile * window.step * stride) as i32;
                rest /= tile;
            }
            offset
        };
        (0..positions).map(offset).collect()
    }

    /// The groups of positions that blocks are laid over: sizes in tiles along each axis of the rows.
    pub fn row_blocks(&self, rows: &Group) -> Vec<Dim> {
        rows.axes
            .iter()
            .zip(&rows.sizes)
            .map(|(&axis, size)| size.ceil_div(&Dim::constant(self.tile_along(axis).into())))
            .collect()
    }

    fn tile_along(&self, axis: usize) -> u32 {
        let window = self.windows.iter().position(|window| window.position == axis);
        window.map_or(1, |window| self.tile[window])
    }

    /// The position along each axis of the rows of an element of the tile, with the conditions under which
    /// there is one. `blocks`: the tile's place along each axis of the rows.
    pub fn positions(
        &self,
        space: &IndexSpace<'_>,
        rows: &Group,
        blocks: &[Index],
        row: &Index,
    ) -> (Vec<(usize, Index)>, Mask) {
        let sizes: Vec<Dim> = self.tile.iter().map(|&tile| Dim::constant(tile.into())).collect();
        let within = space.delinearize(row, &sizes);
        let mut mask = Mask::new();
        let mut positions = Vec::new();
        for ((&axis, size), block) in rows.axes.iter().zip(&rows.sizes).zip(blocks) {
            let tile = Dim::constant(self.tile_along(axis).into());
            let mut position = space.scale(block, &tile);
            if let Some(at) = self.windows.iter().position(|window| window.position == axis) {
                position = space.add(&position, &within[at]);
            }
            if size.divided_exactly(&tile).is_none() {
                let (value, high) = (position.clone(), Some(size.clone()));
                mask.insert(Condition::Within { value, low: None, high });
            }
            positions.push((axis, position));
        }
        (positions, mask)
    }
}

/// A block's tile and what it is made from.
struct Block<'b> {
    batch_number: &'b Index,
    batch: &'b [Index],
    /// The tile's place along each axis of the rows.
    rows: &'b [Index],
    /// The first column.
    column: ValueId,
}

/// A patch and a step of it, as the kernel counts them.
struct Place<'i> {
    patch: &'i Index,
    step: u32,
}

impl<'a> Tiling<'a> {
    /// The sums of products for the block's tile of the result.
    pub fn convolve(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        (batch_number, batch): (&Index, &[Index]),
        (rows, column): (&[Index], ValueId),
    ) -> Result<ValueId, CodegenError> {
        let Unit::Groups(tile) = self.unit else {
            unreachable!("invariant: warpgroups multiply in pipelines")
        };
        let block = Block { batch_number, batch, rows, column };
        let stages = self.sizes.stages;
        let ahead = (stages - 1).min(patch.steps);
        let patches = patch.patches();
        let copies = if patches.is(1) { 1 } else { 2 };
        let left = b.shared("left", DType::F32, copies * patch.elements());
        let right = self.right_tile(b);
        self.pair_blocks(b, copies * patch.elements() + stages * right.elements);
        let count = emitter.size(b, &patches);
        let start = b.int(emitter.index_dtype, 0);
        // What is copied for the last patch's successor is nothing.
        let beyond = &patches + &Dim::constant(1);
        let first = Index::default();
        let no_buffer = b.int(DType::I32, 0);
        self.copy_patch(emitter, b, patch, &block, (&first, left, no_buffer), (0, 1))?;
        for step in 0..ahead {
            let buffer = b.int(DType::I32, step.into());
            let place = Place { patch: &first, step };
            self.copy_factors(emitter, b, patch, &block, &place, (&right, buffer))?;
            b.copy_commit();
        }
        // Copies of the next patch are there when it begins if they are begun so much earlier.
        let parts = if patches.is(1) { 0 } else { patch.steps - ahead + 1 };
        let rows = b.lookup(&tile.left(), 0, &patch.position_offsets(self.sizes.block_m));
        let zeros = self.zeros(b);
        let sums =
            emitter.for_loop(b, (start, count, 1), &[zeros], 1, |emitter, b, at, sums| {
                let this = Index::var(emitter.iterate(&beyond, Some(at), None));
                let next = b.add_int(at, 1);
                let next = Index::var(emitter.iterate(&beyond, Some(next), None));
                let number = b.cast(DType::I32, at);
                let parity = b.binary_with(BinaryFn::Rem, number, 2);
                let current = b.mul_int(parity, patch.elements().into());
                let one = b.int(DType::I32, 1);
                let other = b.sub(one, parity);
                let other = b.mul_int(other, patch.elements().into());
                let base = b.mul_int(number, patch.steps.into());
                let positions = b.add(rows, current);
                let mut sums = sums[0];
                for step in 0..patch.steps {
                    b.copy_wait(ahead - 1);
                    b.proxy_fence();
                    // Behind it all warps have read what the copies that begin now overwrite.
                    b.barrier();
                    let buffer = |b: &mut KernelBuilder, step: u32| {
                        let number = b.add_int(base, step.into());
                        b.binary_with(BinaryFn::Rem, number, stages.into())
                    };
                    let inner = b.lookup(&tile.left(), 1, &patch.inner_offsets(step));
                    let offset = b.add(positions, inner);
                    let factors = b.load(left, offset, None, 1);
                    let from = buffer(b, step);
                    sums = self.multiply_held(b, &tile, factors, &right, from, sums);
                    let later = step + ahead;
                    let place = match later < patch.steps {
                        true => Place { patch: &this, step: later },
                        false => Place { patch: &next, step: later - patch.steps },
                    };
                    let to = buffer(b, later);
                    self.copy_factors(emitter, b, patch, &block, &place, (&right, to))?;
                    if step < parts {
                        let to = (&next, left, other);
                        self.copy_patch(emitter, b, patch, &block, to, (step, parts))?;
                    }
                    b.copy_commit();
                    sums = b.wgmma_wait(sums);
                }
                Ok(vec![sums])
            })?;
        Ok(sums[0])
    }

    /// Copies the right factors of a step.
    fn copy_factors(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        block: &Block<'_>,
        place: &Place<'_>,
        (tile, buffer): (&pipeline::Tile, ValueId),
    ) -> Result<(), CodegenError> {
        let product = &self.product;
        let group = &product.columns;
        emitter.set_tile(&tile.copied);
        let own = emitter.iterate(&group.extent, Some(block.column), Some(0));
        let mut mask = tail(own, &group.extent, self.sizes.block_n.into());
        let within = emitter.iterate(&Dim::constant(STEP.into()), None, Some(1));
        let (own, within) = (Index::var(own), Index::var(within));
        let step = Index::size(Dim::constant(place.step.into()));
        let Some(sizes) = self.packed_sizes() else {
            let mut axes = product.axes(&emitter.space, block.batch, &[(group, own)]);
            let (taps, channel, inside) =
                patch.place(&emitter.space, (place.patch, &step), &within);
            patch.set_inner(&mut axes, taps, channel);
            mask.extend(inside);
            let operand = product.site.body.operands(product.node)[1];
            return self.copy_operand(emitter, b, (operand, 1), &axes, &mask, (tile, buffer));
        };
        let space = &emitter.space;
        let steps = space.scale(place.patch, &Dim::constant(patch.steps.into()));
        let number = space.scale(&space.add(&steps, &step), &Dim::constant(STEP.into()));
        let inner = space.add(&number, &within);
        mask.extend(space.within(place.patch, &Dim::constant(0), &patch.patches()));
        let at = [Index::default(), block.batch_number.clone(), own, inner];
        let offset = space.linearize(&at, &sizes);
        let memory = emitter.array(b, Array::WorkspaceIn(self.packed_workspace(), DType::F32));
        let to = (tile.memory[0], self.targets(b, tile, &tile.copied, buffer));
        emitter.copy(b, to, (memory, &offset), (&mask, None));
        Ok(())
    }

    /// Copies one of `parts` of a patch.
    fn copy_patch(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        block: &Block<'_>,
        (number, memory, start): (&Index, Memory, ValueId),
        (part, parts): (u32, u32),
    ) -> Result<(), CodegenError> {
        let product = &self.product;
        // Lines along the last axis, of each channel.
        let mut sizes = vec![patch.held];
        let extents = patch.windows.iter().zip(&patch.tile);
        sizes.extend(extents.map(|(window, &tile)| window.extent(tile)));
        let length = sizes.pop().expect("invariant: a patch has windows") + patch.shift;
        let count: u32 = sizes.iter().product();
        // Whole parts, the last of which may be longer than the line.
        let whole = length.next_multiple_of(patch.vector);
        let across = (whole / patch.vector).next_power_of_two().min(WARP);
        let lines = self.threads() / across;
        let each = count.div_ceil(parts).next_multiple_of(lines);
        let from = part * each;
        if from >= count {
            return Ok(());
        }
        let span = across * patch.vector;
        let width = whole.next_multiple_of(span);
        let copied = Layout {
            shape: vec![each, width],
            registers: modes(&[
                (1, patch.vector, 1),
                (1, width / span, span),
                (0, each / lines, lines),
            ]),
            threads: modes(&[(1, across, patch.vector), (0, lines, 1)]),
        };
        emitter.set_tile(&copied);
        let line = emitter.iterate(&Dim::constant(each.into()), None, Some(0));
        let along = emitter.iterate(&Dim::constant(width.into()), None, Some(1));
        let space = &emitter.space;
        let line = space.add(&Index::var(line), &Index::size(Dim::constant(from.into())));
        let along = Index::var(along);
        let dims: Vec<Dim> = sizes.iter().map(|&size| Dim::constant(size.into())).collect();
        let mut active = Mask::new();
        active.extend(space.within(&line, &Dim::constant(0), &Dim::constant(count.into())));
        active.extend(space.within(&along, &Dim::constant(0), &Dim::constant(whole.into())));
        let mut at = space.delinearize(&line, &dims);
        let channel = at.remove(0);
        at.push(along);

        // Where it goes.
        let mut target = space.scale(&channel, &Dim::constant(patch.channel_stride.into()));
        for (index, &stride) in at.iter().zip(&patch.strides) {
            target = space.add(&target, &space.scale(index, &Dim::constant(stride.into())));
        }
        // Where it comes from.
        let held = Dim::constant(patch.held.into());
        let channel = space.add(&space.scale(number, &held), &channel);
        let mut axes = product.axes(space, block.batch, &[]);
        let (positions, _) = patch.positions(space, &product.rows, block.rows, &Index::default());
        for (axis, position) in positions {
            axes[axis] = position;
        }
        for (dim, (window, index)) in patch.windows.iter().zip(&at).enumerate() {
            let is_last = dim + 1 == patch.windows.len();
            let shift = if is_last { i64::from(patch.shift) } else { 0 };
            let start = Index::size(Dim::constant(i64::from(window.lowest()) - shift));
            let index = space.add(index, &start);
            match window.step {
                1 => axes[window.position] = space.add(&axes[window.position], &index),
                _ => axes[window.tap] = index,
            }
        }
        let mut mask = Mask::new();
        mask.extend(space.within(&channel, &Dim::constant(0), &patch.channels));
        axes[patch.channel] = channel;
        let target = emitter.index(b, &target);
        let target = b.cast(DType::I32, target);
        let target = b.add(target, start);
        let to = (memory, b.broadcast(target, &copied));
        let operand = product.site.body.operands(product.node)[0];
        let map = &product.form.lhs;
        match emitter.locate_factor(b, (operand, map), &axes, &mask, true)? {
            Some((memory, offset, mask)) => {
                emitter.copy(b, to, (memory, &offset), (&mask, Some(&active)));
            }
            None => {
                let active = emitter.mask(b, &active).map(|active| b.broadcast(active, &copied));
                let zeros = emitter.full(b, fornax_ir::Scalar::new(DType::F32, 0.0));
                b.store(to.0, to.1, zeros, active, 1);
            }
        }
        Ok(())
    }
}
