//! Convolutions whose taps read the left operand from shared memory.
//!
//! A block's tile is a box of positions along the last two axes of the windows. What all taps of these
//! positions read of some channels, the *patch*, is rounded and written to shared memory once, four channels
//! of a place together, so that a warpgroup multiplies 64 positions from where a tap reads them: only the
//! start differs between taps. A step of 32 inner elements is some channels of as many taps as make 32 of
//! them. While a patch is multiplied, the next one's elements are on their way through registers. Right
//! factors are copied for each step, as in [`super::pipeline`].

use std::collections::VecDeque;

use fornax_ir::plan::PAIRED_SUMS;
use fornax_ir::plan::index::IndexSpace;
use fornax_ir::plan::windows::{PatchShape, WindowAxis, Windows};
use fornax_ir::{BinaryFn, DType, Dim, Scalar};

use super::emit::{Array, Emitter};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail};
use super::product::{Group, Product};
use super::tile_mma::{Tiling, Unit};
use super::{CodegenError, pipeline};
use crate::kernel::{KernelBuilder, Layout, Memory, Places, ValueId, WgmmaTile};

/// Channels of a place that lie together (16 bytes).
const PART: u32 = 4;

/// Inner elements of a step, and parts of it that one instruction multiplies.
const STEP: u32 = PatchShape::STEP;
const INSTRUCTION_PARTS: usize = 2;

/// Positions of a product, and adjacent ones of them at least.
const BOX: u32 = PatchShape::BOX;
const ADJACENT: u32 = PatchShape::ADJACENT;

/// Parts of a patch that a thread has on their way at once while nothing is multiplied.
const FIRST_PARTS: u32 = 4;

/// Steps from where a part of the next patch is asked for to where it is written.
const STEPS_BETWEEN: u32 = 2;

/// Patches of a left factor's parts in shared memory where it is split.
const SPLIT_PARTS: u32 = 3;

/// How a convolution is cut into patches.
#[derive(Debug, Clone)]
pub(super) struct Patch {
    windows: Vec<WindowAxis>,
    /// The axis of the channels that are added up, and their number.
    channel: usize,
    channels: Dim,
    shape: PatchShape,
}

impl Patch {
    /// The patches of a contraction for tiles of `positions`, `width` of them along the last axis; none where
    /// its windows are of another kind or such tiles are no boxes. `parts`: patches of each factor's parts.
    pub fn of(product: &Product<'_>, width: u32, positions: u32, parts: u32) -> Option<Patch> {
        let mut space = IndexSpace::new(product.site.dims);
        let windows = Windows::of(&product.form, &mut space)?;
        let channels = product.form.axes[windows.channel].0.clone();
        let shapes = windows.patches(channels.as_const()?, positions, width, parts);
        let mut patches = shapes.map(|shape| Patch {
            windows: windows.axes.clone(),
            channel: windows.channel,
            channels: channels.clone(),
            shape,
        });
        patches.find(|patch| (0..patch.steps()).all(|step| patch.places(step).is_whole(4)))
    }

    /// Elements of a patch.
    fn elements(&self) -> u32 {
        self.shape.elements()
    }

    /// Steps of a patch.
    fn steps(&self) -> u32 {
        self.shape.steps
    }

    /// Patches along the channels.
    fn patches(&self) -> Dim {
        self.channels.ceil_div(&Dim::constant(self.shape.held.into()))
    }

    fn tap_sizes(&self) -> Vec<Dim> {
        self.windows.iter().map(|window| Dim::constant(window.taps.into())).collect()
    }

    fn taps(&self) -> u32 {
        self.windows.iter().map(|window| window.taps).product()
    }

    /// Packed inner elements: steps of all patches.
    pub fn packed_inner(&self) -> Dim {
        self.patches() * Dim::constant((self.steps() * STEP).into())
    }

    /// The tap and the channel of an inner element of a step, and the conditions under which there are such
    /// ones. `patch` and `step` may be numbers or positions of the kernel.
    fn place(
        &self,
        space: &IndexSpace<'_>,
        (patch, step): (&Index, &Index),
        within: &Index,
    ) -> (Vec<Index>, Index, Mask) {
        let held = Dim::constant(self.shape.held.into());
        let first = space.scale(step, &Dim::constant(self.shape.taps_held.into()));
        let tap = space.add(&first, &space.floor_div(within, &held));
        let channel = space.add(&space.scale(patch, &held), &space.modulo(within, &held));
        let mut mask = Mask::new();
        mask.extend(space.within(&tap, &Dim::constant(0), &Dim::constant(self.taps().into())));
        mask.extend(space.within(&channel, &Dim::constant(0), &self.channels));
        let taps = space.delinearize(&tap, &self.tap_sizes());
        let taps = self.windows.iter().zip(taps).map(|(window, number)| match order(window) {
            Order::Rising => number,
            Order::Falling => {
                let last = Index::size(Dim::constant((window.taps - 1).into()));
                space.add(&last, &space.scale(&number, &Dim::constant(-1)))
            }
            Order::ByLine(each) => {
                let each = Dim::constant(each.into());
                let line = space.floor_div(&number, &each);
                let within = space.modulo(&number, &each);
                space.add(&space.scale(&within, &Dim::constant(window.step.into())), &line)
            }
        });
        (taps.collect(), channel, mask)
    }

    /// The contraction's axes for an inner element of a step of the packed right operand.
    pub fn packed_axes(&self, space: &IndexSpace<'_>, axes: &mut [Index], inner: &Index) -> Mask {
        let step = Dim::constant(STEP.into());
        let number = space.floor_div(inner, &step);
        let within = space.modulo(inner, &step);
        let steps = Dim::constant(self.steps().into());
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

    /// Where the positions of a tile read their inner elements of a step, from where the patch starts.
    fn places(&self, step: u32) -> Places {
        let count = self.windows.len();
        let along = PART * ADJACENT;
        let above = count.checked_sub(2);
        let pitch =
            above.map_or(0, |axis| PART * self.windows[axis].step * self.shape.strides[axis]);
        let across = self.shape.tile[count - 1] / self.shape.box_width;
        let (stride, step_across, lines) = match self.shape.box_width {
            BOX => (along, PART * BOX, 1),
            _ => (pitch, along, BOX / ADJACENT),
        };
        let channels = self.channels.as_const().filter(|_| self.patches().is(1));
        let has = |part: u32| {
            let (tap, channel) = self.inner(step, part);
            tap < self.taps() && channels.is_none_or(|channels| i64::from(channel) < channels)
        };
        // Instructions without any elements are left out, and what has none reads what is there.
        let parts = (0..STEP / PART).rfind(|&part| has(part)).map_or(0, |last| last + 1);
        let mut starts: Vec<u32> = Vec::new();
        for part in 0..parts.next_multiple_of(INSTRUCTION_PARTS as u32) {
            let (tap, channel) = self.inner(step, part);
            starts.push(match starts.last() {
                Some(&last) if tap >= self.taps() => last,
                _ => channel * self.shape.places + PART * self.tap_offset(tap),
            });
        }
        Places { stride, across, step: step_across, pitch: lines * pitch, starts }
    }

    /// The tap and the channel of the first inner element of a part of a step.
    fn inner(&self, step: u32, part: u32) -> (u32, u32) {
        let within = PART * part;
        (step * self.shape.taps_held + within / self.shape.held, within % self.shape.held)
    }

    /// Places from what a position's lowest element is to what a tap reads.
    fn tap_offset(&self, tap: u32) -> u32 {
        let (mut rest, mut offset) = (tap, 0);
        for (axis, (window, &stride)) in
            self.windows.iter().zip(&self.shape.strides).enumerate().rev()
        {
            let number = rest % window.taps;
            rest /= window.taps;
            let tap = match order(window) {
                Order::Rising | Order::Falling => number,
                Order::ByLine(each) => number % each * window.step + number / each,
            };
            let element = tap * window.tap_step.unsigned_abs();
            offset += match axis + 1 == self.windows.len() {
                true => element % window.step * self.shape.line + element / window.step,
                false => element * stride,
            };
        }
        offset
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
        window.map_or(1, |window| self.shape.tile[window])
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
        let within = self.within_tile(space, row);
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

impl Patch {
    /// The position along each window axis, from the tile's first one, of a row of the tile.
    fn within_tile(&self, space: &IndexSpace<'_>, row: &Index) -> Vec<Index> {
        let count = self.windows.len();
        let dim = |size: u32| Dim::constant(size.into());
        let across = self.shape.tile[count - 1] / self.shape.box_width;
        let high = BOX / self.shape.box_width;
        let above = count.checked_sub(2).map_or(1, |axis| self.shape.tile[axis]);
        let sizes = [above / high, across, high, self.shape.box_width].map(dim);
        let [line, number, row, column] = &space.delinearize(row, &sizes)[..] else {
            unreachable!("invariant: as many indices as sizes")
        };
        let mut within = vec![Index::default(); count];
        within[count - 1] = space.add(&space.scale(number, &dim(self.shape.box_width)), column);
        if let Some(axis) = count.checked_sub(2) {
            within[axis] = space.add(&space.scale(line, &dim(high)), row);
        }
        within
    }
}

/// In which order the taps of an axis are multiplied.
enum Order {
    Rising,
    /// Where later taps read lower elements.
    Falling,
    /// Those of a line of places one after another, so many of each line but the last.
    ByLine(u32),
}

/// The order in which places rise.
fn order(window: &WindowAxis) -> Order {
    let each = window.taps.div_ceil(window.step);
    if window.tap_step < 0 {
        Order::Falling
    } else if window.step > 1 && window.step - 2 + (each - 1) * window.step < window.taps {
        Order::ByLine(each)
    } else {
        Order::Rising
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

/// Elements of a patch on their way.
struct Fetched {
    value: ValueId,
    /// Where they go in the patch, and where there are any.
    target: ValueId,
    active: Option<ValueId>,
}

impl<'a> Tiling<'a> {
    /// Patches of each left factor's parts.
    pub fn patch_parts(accurate: bool) -> u32 {
        if accurate { SPLIT_PARTS } else { 1 }
    }

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
        let overlaps = stages >= pipeline::OVERLAPPED_STAGES && !self.accurate && patch.steps() > 1;
        let ahead = (stages - 1 - u32::from(overlaps)).min(patch.steps());
        let patches = patch.patches();
        let copies = if patches.is(1) { 1 } else { 2 };
        let names: &[&str] = match self.accurate {
            true => &["left_low", "left_near", "left_high"],
            false => &["left"],
        };
        let left: Vec<Memory> = names
            .iter()
            .map(|&name| b.shared(name, DType::F32, copies * patch.elements()))
            .collect();
        let right = self.right_tile(b);
        self.pair_patches(b, left.len() as u32 * copies * patch.elements(), &right);
        let count = emitter.size(b, &patches);
        let start = b.int(emitter.index_dtype, 0);
        // What is copied for the last patch's successor is nothing.
        let beyond = &patches + &Dim::constant(1);
        let first = Index::default();
        let no_buffer = b.int(DType::I32, 0);
        for step in 0..ahead {
            let buffer = b.int(DType::I32, step.into());
            let place = Place { patch: &first, step };
            self.copy_factors(emitter, b, patch, &block, &place, (&right, buffer))?;
            b.copy_commit();
        }
        self.fill_first(emitter, b, patch, &block, &left)?;
        // Parts of the next patch are written some steps after they are asked for.
        let between = STEPS_BETWEEN.min(patch.steps() - 1);
        let parts = if patches.is(1) { 0 } else { patch.steps() - between };
        let parts = self.patch_units(patch, parts.max(1)).1.min(parts);
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
                let base = b.mul_int(number, patch.steps().into());
                let from = if copies == 1 { no_buffer } else { current };
                let mut sums = sums[0];
                let mut fetched: VecDeque<Fetched> = VecDeque::new();
                for step in 0..patch.steps() {
                    b.copy_wait(ahead - 1);
                    b.proxy_fence();
                    // Behind it all warps have read what is overwritten from now on.
                    b.barrier();
                    let buffer = |b: &mut KernelBuilder, step: u32| {
                        let number = b.add_int(base, step.into());
                        b.binary_with(BinaryFn::Rem, number, stages.into())
                    };
                    let factors = buffer(b, step);
                    let into = if self.accurate { self.zeros(b) } else { sums };
                    let places = (&left[..], from, patch.places(step));
                    let begun = self.multiply_patch(b, &tile, places, (&right, factors), into);
                    // Products of the step before last, which may read the other patch, are done.
                    if step >= between.max(1)
                        && let Some(fetched) = fetched.pop_front()
                    {
                        self.store_patch(b, &left, &fetched, other);
                    }
                    if step < parts {
                        let part = (step, parts);
                        let part = self.fetch_patch(emitter, b, patch, &block, &next, part)?;
                        fetched.push_back(part);
                    }
                    let later = step + ahead;
                    let place = match later < patch.steps() {
                        true => Place { patch: &this, step: later },
                        false => Place { patch: &next, step: later - patch.steps() },
                    };
                    let to = buffer(b, later);
                    self.copy_factors(emitter, b, patch, &block, &place, (&right, to))?;
                    b.copy_commit();
                    sums = match (self.accurate, overlaps) {
                        (true, _) => {
                            let step_sums = b.wgmma_wait(begun);
                            let sums = b.add(sums, step_sums);
                            // The sums of all steps would be kept up to the end if they were not needed here.
                            b.wgmma_wait(sums)
                        }
                        (false, true) => {
                            b.wgmma_pending(1);
                            begun
                        }
                        (false, false) => b.wgmma_wait(begun),
                    };
                }
                for fetched in fetched {
                    self.store_patch(b, &left, &fetched, other);
                }
                Ok(vec![sums])
            })?;
        Ok(if overlaps { b.wgmma_wait(sums[0]) } else { sums[0] })
    }

    /// Asks for two blocks at once where they have room: `elements` of patches in shared memory each.
    fn pair_patches(&self, b: &mut KernelBuilder, elements: u32, right: &pipeline::Tile) {
        let parts = right.memory.len() as u32;
        let sums = self.sizes.block_m * self.sizes.block_n / self.threads() * parts;
        if sums <= PAIRED_SUMS {
            self.pair_blocks(b, elements + self.sizes.stages * parts * right.elements);
        }
    }

    /// Begins to add a step's products to sums.
    fn multiply_patch(
        &self,
        b: &mut KernelBuilder,
        tile: &WgmmaTile,
        (left, from, places): (&[Memory], ValueId, Places),
        (right, buffer): (&pipeline::Tile, ValueId),
        sums: ValueId,
    ) -> ValueId {
        let offset = b.mul_int(buffer, right.elements.into());
        // Of split factors as in [`super::pipeline`]: low, near, high by near, low, near.
        let parts = left.iter().zip([0, 1, 0]);
        parts.fold(sums, |sums, (&left, part)| {
            let right = (right.memory[part], offset);
            b.wgmma_places(*tile, (left, from, places.clone()), right, sums)
        })
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
        let steps = space.scale(place.patch, &Dim::constant(patch.steps().into()));
        let number = space.scale(&space.add(&steps, &step), &Dim::constant(STEP.into()));
        let inner = space.add(&number, &within);
        mask.extend(space.within(place.patch, &Dim::constant(0), &patch.patches()));
        let memory = emitter.array(b, Array::WorkspaceIn(self.packed_workspace(), DType::F32));
        for (part, &to) in (0i64..).zip(&tile.memory) {
            let part = Index::size(Dim::constant(part));
            let at = [part, block.batch_number.clone(), own.clone(), inner.clone()];
            let offset = emitter.space.linearize(&at, &sizes);
            let to = (to, self.targets(b, tile, &tile.copied, buffer));
            emitter.copy(b, to, (memory, &offset), (&mask, None));
        }
        Ok(())
    }

    /// Fills the first patch.
    fn fill_first(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        block: &Block<'_>,
        left: &[Memory],
    ) -> Result<(), CodegenError> {
        let parts = (patch.elements() / PART).div_ceil(self.threads() * FIRST_PARTS);
        let parts = self.patch_units(patch, parts).1;
        let (first, start) = (Index::default(), b.int(DType::I32, 0));
        let mut before: Option<Fetched> = None;
        for part in 0..parts {
            let fetched = self.fetch_patch(emitter, b, patch, block, &first, (part, parts))?;
            if let Some(before) = before.replace(fetched) {
                self.store_patch(b, left, &before, start);
            }
        }
        if let Some(before) = before {
            self.store_patch(b, left, &before, start);
        }
        Ok(())
    }

    /// Places and channels that the threads write together in one of at most `parts` parts of a patch, and how
    /// many parts it then has.
    fn patch_units(&self, patch: &Patch, parts: u32) -> (u32, u32) {
        let units = patch.elements() / PART;
        let each = units.div_ceil(parts).next_multiple_of(self.threads());
        (each, units.div_ceil(each))
    }

    /// Begins to read one of `parts` of a patch.
    fn fetch_patch(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        patch: &Patch,
        block: &Block<'_>,
        number: &Index,
        (part, parts): (u32, u32),
    ) -> Result<Fetched, CodegenError> {
        let product = &self.product;
        let threads = self.threads();
        let units = patch.elements() / PART;
        let (each, _) = self.patch_units(patch, parts);
        let layout = Layout {
            shape: vec![each, PART],
            registers: modes(&[(1, PART, 1), (0, each / threads, threads)]),
            threads: modes(&[(0, threads, 1)]),
        };
        emitter.set_tile(&layout);
        let dim = |size: u32| Dim::constant(size.into());
        let unit = emitter.iterate(&dim(each), None, Some(0));
        let channel = Index::var(emitter.iterate(&dim(PART), None, Some(1)));
        let space = &emitter.space;
        let unit = space.add(&Index::var(unit), &Index::size(dim(part * each)));
        let mut active = Mask::new();
        active.extend(space.within(&unit, &Dim::constant(0), &dim(units)));
        let target = space.add(&space.scale(&unit, &dim(PART)), &channel);

        // Its channels, and where it is along the windows.
        let extents = patch.windows.iter().zip(&patch.shape.tile);
        let mut sizes = vec![patch.shape.held / PART];
        sizes.extend(extents.map(|(window, &tile)| window.extent(tile)));
        sizes.pop();
        let last = patch.windows.last().expect("invariant: a patch has windows");
        sizes.extend([last.step, patch.shape.line]);
        let dims: Vec<Dim> = sizes.iter().map(|&size| dim(size)).collect();
        let mut at = space.delinearize(&unit, &dims);
        let plane = space.scale(&at.remove(0), &dim(PART));
        let along = at.pop().expect("invariant: a line has places");
        let line = at.pop().expect("invariant: a patch has lines");
        at.push(space.add(&space.scale(&along, &dim(last.step)), &line));
        let held = space.scale(number, &dim(patch.shape.held));
        let channel = space.add(&held, &space.add(&plane, &channel));

        let mut axes = product.axes(space, block.batch, &[]);
        let (positions, _) = patch.positions(space, &product.rows, block.rows, &Index::default());
        for (axis, position) in positions {
            axes[axis] = position;
        }
        for (window, index) in patch.windows.iter().zip(&at) {
            let start = Index::size(Dim::constant(window.lowest().into()));
            let index = space.add(index, &start);
            match window.step {
                1 => axes[window.position] = space.add(&axes[window.position], &index),
                _ => axes[window.tap] = index,
            }
        }
        let mut mask = Mask::new();
        mask.extend(space.within(&channel, &Dim::constant(0), &patch.channels));
        axes[patch.channel] = channel;
        let operand = product.site.body.operands(product.node)[0];
        let map = &product.form.lhs;
        let zero = Scalar::new(DType::F32, 0.0);
        let value = match emitter.locate_factor(b, (operand, map), &axes, &mask, true)? {
            Some((memory, offset, mask)) => emitter.load(b, memory, &offset, &mask, zero),
            None => emitter.full(b, zero),
        };
        let value = emitter.spread(b, value);
        let target = emitter.index(b, &target);
        let target = b.cast(DType::I32, target);
        let active = emitter.mask(b, &active).map(|active| b.broadcast(active, &layout));
        Ok(Fetched { value, target: b.broadcast(target, &layout), active })
    }

    /// Writes what was read to the patch that begins at `start`.
    fn store_patch(
        &self,
        b: &mut KernelBuilder,
        left: &[Memory],
        fetched: &Fetched,
        start: ValueId,
    ) {
        let target = b.add(fetched.target, start);
        let parts = match self.accurate {
            true => pipeline::split(b, fetched.value).left().to_vec(),
            false => vec![b.round_tf32(fetched.value)],
        };
        for (&memory, part) in left.iter().zip(parts) {
            b.store(memory, target, part, fetched.active, 1);
        }
    }
}
