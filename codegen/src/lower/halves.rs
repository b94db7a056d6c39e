//! Products of `f32` factors, as accurate as `f32` or rounded to 11 bits, from tensor cores that multiply `f16`.
//!
//! A kernel for each operand writes its elements as sums of two halves: `x = (high + low / 2^11) / scale`, where
//! `high` and `low` are `f16` and 128 inner elements of a position of the result share the scale, a power of
//! two that brings the largest of them to `2^14` or more. The products `high * high` and, apart from these,
//! `high * low + low * high` are added up by tensor cores for 128 inner elements, then as `f32` with the
//! scales, since tensor cores cut off what does not fit (Ootomo and Yokota, "Recovering single precision
//! accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022; their low parts
//! are scaled alike, their scale is one for all).
//!
//! An element is kept to a relative error of 2^-23, or of 2^-50 of the largest of its 128 where that is more.
//! Where this loses more than 2^-16 of any element, where there are infinities or NaN, or magnitudes of more than
//! 2^78, the scale is NaN; so are the sums then. Tiles with sums that are not finite are marked, and computed
//! again by a last kernel with fused multiply-adds (see [`super::tile`]), whose blocks end at once where there is no
//! mark: three products of TF32 would lose subnormal numbers, and the last bit of factors where a row has one huge
//! element.
//!
//! Rounded products (the precision `tf32`) are `high * high` alone. `f16` has TF32's 11 bits; a scale for each
//! position of the result, which a kernel in front finds, leaves the sums to tensor cores as far as they go. An element
//! is kept to a relative error of 2^-11, or of 2^-39 of the largest of its position where that is more; tiles are
//! computed again as above.
//!
//! Halves lie in chunks of 64 positions by 64 inner elements, as tiles have them in shared memory. A unit of the
//! pipeline is the one or the other half of 64 inner elements of both operands. Where the right operand is known
//! when a bundle is loaded, its halves are made then.

use fornax_ir::op::OperandMap;
use fornax_ir::plan::Arena;
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Scalar, ScalarExpr, UnaryFn};

use super::emit::{Array, Emitter, build_kernel};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::product::Group;
use super::tile_mma::{Tiling, Unit};
use super::{CodegenError, Launch, LoweredRegion, Workspace, tile};
use crate::kernel::{Kernel, KernelBuilder, Layout, Memory, ValueId};

/// How a contraction is multiplied from halves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    /// Whether the right operand's halves are made when the bundle is loaded.
    pub prepared: bool,
}

/// Positions and inner elements of a chunk: rows of 128 bytes.
pub(super) const CHUNK: u32 = 64;

/// Chunks along the inner elements that share a scale.
const CHUNKS: u32 = 2;

/// Halves of an element of accurate products.
const HALVES: u32 = 2;

/// Units of inner elements that share a scale.
const UNITS: u32 = CHUNKS * HALVES;

/// Units in shared memory beside those that copies are under way to: two that are multiplied, and one whose
/// products some warps may still wait for.
pub(super) const HELD_UNITS: u32 = 3;

/// The same of rounded products, each from one unit.
const HELD_ROUNDED: u32 = 2;

/// Positions of a block of the kernel that finds the largest elements, and inner elements that it looks at together.
const MEASURED_OWN: u32 = 8;
const MEASURED_INNER: u32 = 1024;

/// Elements of a part that is copied at once (16 bytes).
const PART: u32 = 8;

/// Threads of a kernel that splits, each with `CHUNK / 2` elements.
const SPLIT_THREADS: u32 = 256;

/// Blocks along the columns that run side by side, at most, so that what they read stays in the L2 cache.
const WIDEST: i64 = 16;

/// The power of two that a scaled maximum has, that of what low halves are multiplied with, and that of what
/// may be lost of an element.
const TOP: i32 = 14;
const LOW: i32 = 11;
const LOST: i32 = -16;

/// Scales are at most two to this power, or its inverse, so that their products with sums are exact.
const MOST_SCALE: i32 = 63;

/// Rows and columns of a block of the last kernel, at most.
const MOST_AGAIN: u32 = 128;

/// The workspace of marks, behind the halves and scales of both operands.
const MARKS: usize = 4;

/// Where a side's parts of units lie in shared memory.
struct Side {
    operand: usize,
    block: u32,
    /// Number of the block along the side.
    place: Index,
    memory: Memory,
    copied: Layout,
}

/// Lowers a contraction whose tiling multiplies halves.
pub(super) fn lower(tiling: &Tiling<'_>, halves: Halves) -> Result<LoweredRegion, CodegenError> {
    let site = tiling.product.site;
    let mut group = LoweredRegion { kernels: vec![], launches: vec![], workspaces: vec![] };
    let mut add = |(kernel, mut launch): (Kernel, Launch), prepared: bool| {
        launch.kernel = group.kernels.len();
        launch.prepared = prepared;
        group.kernels.push(kernel);
        group.launches.push(launch);
    };
    let blocks: Dim = tiling.blocks().iter().product();
    for operand in [0, 1] {
        let prepared = operand == 1 && halves.prepared;
        if !tiling.accurate {
            add(tiling.measure_operand(operand)?, prepared);
        }
        add(tiling.split_operand(operand)?, prepared);
        let halves = tiling.halves_sizes(operand).iter().product();
        let arena = if prepared { Arena::Prepared } else { Arena::Phase };
        group.workspaces.push(Workspace { dtype: DType::F16, elements: halves, arena });
        let scales = tiling.scale_sizes(operand).iter().product();
        group.workspaces.push(Workspace { dtype: DType::F32, elements: scales, arena });
    }
    group.workspaces.push(Workspace {
        dtype: DType::I32,
        elements: blocks.clone(),
        arena: Arena::Phase,
    });
    let (kernel, mut launch) =
        build_kernel(site, &site.kernel_name(""), tiling.threads(), |emitter, b| {
            tiling.emit(emitter, b)?;
            Ok(blocks.clone())
        })?;
    launch.bytes = site.bytes();
    launch.flops = tiling.product.flops();
    add((kernel, launch), false);
    add(again(tiling)?, false);
    Ok(group)
}

/// The kernel that computes marked tiles again.
fn again(tiling: &Tiling<'_>) -> Result<(Kernel, Launch), CodegenError> {
    let product = &tiling.product;
    let mut marked = [tiling.sizes.block_m, tiling.sizes.block_n];
    if product.rows_fastest {
        marked.swap(0, 1);
    }
    let [block_m, block_n] = marked.map(|block| block.min(MOST_AGAIN));
    let sizes = tile::Sizes { block_m, block_n, block_k: 16, thread_m: 8, thread_n: 8 };
    let other = tile::Tiling::new(product.site, product.node, sizes);
    let blocks = other.blocks();
    build_kernel(product.site, &product.site.kernel_name("_again"), other.threads, |emitter, b| {
        let block = emitter.block(b);
        let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
        let mut place = emitter.space.delinearize(&Index::var(block), &blocks);
        for (at, (marked, own)) in place[1..].iter_mut().zip(marked.iter().zip([block_m, block_n]))
        {
            *at = emitter.space.floor_div(at, &Dim::constant((marked / own).into()));
        }
        if product.rows_fastest {
            place.swap(1, 2);
        }
        let offset = emitter.space.linearize(&place, &tiling.blocks()[1..]);
        let memory = emitter.array(b, Array::WorkspaceIn(MARKS, DType::I32));
        let none = Scalar::Int(DType::I32, 0);
        let mark = emitter.load(b, memory, &offset, &Mask::new(), none);
        let zero = b.int(DType::I32, 0);
        let is_marked = b.lt(zero, mark);
        emitter.if_uniform(b, is_marked, |emitter, b| other.emit(emitter, b))?;
        Ok(blocks.iter().product())
    })
}

impl<'a> Tiling<'a> {
    /// An operand of the contraction with the group of positions that it depends on.
    fn halves_operand(&self, operand: usize) -> (NodeId, &OperandMap, &Group) {
        let product = &self.product;
        let node = product.site.body.operands(product.node)[operand];
        match operand {
            0 => (node, &product.form.lhs, &product.rows),
            _ => (node, &product.form.rhs, &product.columns),
        }
    }

    /// Sizes of an operand's halves: batch, chunks of positions, chunks of inner elements, halves, a chunk.
    fn halves_sizes(&self, operand: usize) -> [Dim; 6] {
        let constant = |size: u32| Dim::constant(size.into());
        let (_, _, group) = self.halves_operand(operand);
        let inner = self.product.inner.blocks(CHUNKS * CHUNK) * constant(CHUNKS);
        let batch = self.product.batch.extent.clone();
        let halves = constant(self.halves());
        [batch, group.blocks(CHUNK), inner, halves, constant(CHUNK), constant(CHUNK)]
    }

    /// Halves of an element.
    fn halves(&self) -> u32 {
        if self.accurate { HALVES } else { 1 }
    }

    /// Inner elements of a kernel that splits are as many as share a scale of accurate products.
    fn inner_blocks(&self) -> Dim {
        self.product.inner.blocks(CHUNKS * CHUNK)
    }

    /// Sizes of an operand's scales: batch, those of a position, positions.
    fn scale_sizes(&self, operand: usize) -> [Dim; 3] {
        let (_, _, group) = self.halves_operand(operand);
        let positions = group.blocks(CHUNK) * Dim::constant(CHUNK.into());
        let each = if self.accurate { self.inner_blocks() } else { Dim::constant(1) };
        [self.product.batch.extent.clone(), each, positions]
    }

    /// The kernel that finds the scale of each position of an operand, for rounded products.
    fn measure_operand(&self, operand: usize) -> Result<(Kernel, Launch), CodegenError> {
        let product = &self.product;
        let site = product.site;
        let (node, map, group) = self.halves_operand(operand);
        let lanes = MEASURED_INNER / 256;
        let layout = Layout {
            shape: vec![MEASURED_OWN, MEASURED_INNER],
            registers: modes(&[(1, PART, 1), (1, lanes, 256)]),
            threads: modes(&[(1, 4, PART), (0, MEASURED_OWN, 1), (1, 8, 4 * PART)]),
        };
        let sizes = self.scale_sizes(operand);
        let blocks = [sizes[0].clone(), sizes[2].ceil_div(&Dim::constant(MEASURED_OWN.into()))];
        let name = if operand == 0 { "_left_scale" } else { "_right_scale" };
        let inner = &product.inner;
        let (kernel, mut launch) =
            build_kernel(site, &site.kernel_name(name), SPLIT_THREADS, |emitter, b| {
                let block = emitter.block(b);
                let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
                let place = emitter.space.delinearize(&Index::var(block), &blocks);
                let batch = emitter.space.delinearize(&place[0], &product.batch.sizes);
                let start = emitter.space.scale(&place[1], &Dim::constant(MEASURED_OWN.into()));
                let start = emitter.index(b, &start);
                emitter.set_tile(&layout);
                let zero = emitter.full(b, Scalar::new(DType::F32, 0.0));
                let first = b.int(emitter.index_dtype, 0);
                let steps = inner.blocks(MEASURED_INNER);
                let end = emitter.size(b, &steps);
                let most =
                    emitter.for_loop(b, (first, end, 1), &[zero], 1, |emitter, b, at, most| {
                        let own = emitter.iterate(&group.extent, Some(start), Some(0));
                        let step = Index::var(emitter.iterate(&steps, Some(at), None));
                        let size = Dim::constant(MEASURED_INNER.into());
                        let within = Index::var(emitter.iterate(&size, None, Some(1)));
                        let position = emitter.space.scale(&step, &size);
                        let position = emitter.space.add(&position, &within);
                        // Blocks reach as far as chunks do.
                        let mut limits = tail(own, &group.extent, CHUNK.into());
                        if inner.extent.divided_exactly(&size).is_none() {
                            let (value, high) = (position.clone(), Some(inner.extent.clone()));
                            limits.insert(Condition::Within { value, low: None, high });
                        }
                        let positions = [(group, Index::var(own)), (inner, position)];
                        let axes = product.axes(&emitter.space, &batch, &positions);
                        let (factor, masks) = ((node, map), (&Mask::new(), &limits));
                        let x = emitter.pull_factor(b, factor, &axes, masks, DType::F32)?;
                        let x = emitter.spread(b, x);
                        let size = b.unary(UnaryFn::Abs, x);
                        Ok(vec![b.binary(BinaryFn::Max, most[0], size)])
                    })?;
                let most = b.reduce(1, &most, &[maximum()])[0];
                let (zero, least) = (
                    b.constant(Scalar::new(DType::F32, 0.0)),
                    b.constant(Scalar::new(DType::F32, 2f64.powi(-TOP - MOST_SCALE))),
                );
                let nan = b.constant(Scalar::new(DType::F32, f64::NAN));
                let (is_some, is_small) = (b.lt(zero, most), b.lt(most, least));
                let is_lost = b.and(is_some, is_small);
                let (_, inverse) = scale_for(b, most);
                let inverse = b.select(is_lost, nan, inverse);
                emitter.set_tile(&layout.dropped(1));
                let own = emitter.iterate(&sizes[2], Some(start), Some(0));
                let at = [place[0].clone(), Index::default(), Index::var(own)];
                let offset = emitter.space.linearize(&at, &sizes);
                let memory = emitter.array(b, Array::WorkspaceOut(2 * operand + 1, DType::F32));
                emitter.store(b, memory, &offset, inverse, &Mask::new());
                Ok(blocks.iter().product())
            })?;
        launch.bytes = &sizes[0] * &group.extent * &inner.extent * Dim::constant(4);
        Ok((kernel, launch))
    }

    /// The kernel that splits an operand: a block for each chunk of positions and each scale.
    fn split_operand(&self, operand: usize) -> Result<(Kernel, Launch), CodegenError> {
        let product = &self.product;
        let site = product.site;
        let (node, map, group) = self.halves_operand(operand);
        // The lanes of a warp read 128 adjacent bytes of eight positions, or 32 of 32 inner elements, whichever
        // of them are adjacent.
        let layout = Layout {
            shape: vec![CHUNK, CHUNKS, CHUNK],
            registers: modes(&[(2, PART, 1), (2, CHUNK / 32, 32), (1, CHUNKS, 1)]),
            threads: modes(&[(2, 4, PART), (0, 8, 1), (0, CHUNK / 8, 8)]),
        };
        let (sizes, scale_sizes) = (self.halves_sizes(operand), self.scale_sizes(operand));
        let blocks = [sizes[0].clone(), sizes[1].clone(), self.inner_blocks()];
        let name = site.kernel_name(if operand == 0 { "_left" } else { "_right" });
        let chunk_size = Dim::constant(CHUNK.into());
        let (kernel, mut launch) = build_kernel(site, &name, SPLIT_THREADS, |emitter, b| {
            let block = emitter.block(b);
            let block = emitter.iterate(&blocks.iter().product(), Some(block), None);
            let place = emitter.space.delinearize(&Index::var(block), &blocks);
            let batch = emitter.space.delinearize(&place[0], &product.batch.sizes);
            let starts = [(1, CHUNK), (2, CHUNKS)].map(|(axis, size): (usize, u32)| {
                let start = emitter.space.scale(&place[axis], &Dim::constant(size.into()));
                emitter.index(b, &start)
            });
            emitter.set_tile(&layout);
            let own = emitter.iterate(&group.extent, Some(starts[0]), Some(0));
            let chunk = emitter.iterate(&sizes[2], Some(starts[1]), Some(1));
            let [row, column] =
                [0, 2].map(|dim| Index::var(emitter.iterate(&chunk_size, None, Some(dim))));
            let chunk = Index::var(chunk);
            let start = emitter.space.scale(&chunk, &chunk_size);
            let position = emitter.space.add(&start, &column);
            let mut limits = tail(own, &group.extent, CHUNK.into());
            let inner = &product.inner;
            if inner.extent.divided_exactly(&Dim::constant((CHUNKS * CHUNK).into())).is_none() {
                let (value, high) = (position.clone(), Some(inner.extent.clone()));
                limits.insert(Condition::Within { value, low: None, high });
            }
            let positions = [(group, Index::var(own)), (inner, position)];
            let axes = product.axes(&emitter.space, &batch, &positions);
            let factor = (node, map);
            let masks = (&Mask::new(), &limits);
            let x = emitter.pull_factor(b, factor, &axes, masks, DType::F32)?;
            let x = emitter.spread(b, x);
            let scale_layout = layout.dropped(1).dropped(2);
            let array = match self.accurate {
                true => Array::WorkspaceOut(2 * operand + 1, DType::F32),
                false => Array::WorkspaceIn(2 * operand + 1, DType::F32),
            };
            let scale_memory = emitter.array(b, array);
            emitter.set_tile(&scale_layout);
            let padded = emitter.iterate(&scale_sizes[2], Some(starts[0]), Some(0));
            let which = if self.accurate { place[2].clone() } else { Index::default() };
            let at = [place[0].clone(), which, Index::var(padded)];
            let scale_offset = emitter.space.linearize(&at, &scale_sizes);
            let halves = match self.accurate {
                true => {
                    let split = split(b, x);
                    emitter.store(b, scale_memory, &scale_offset, split.inverse, &Mask::new());
                    vec![split.high, split.low]
                }
                false => {
                    let none = Scalar::new(DType::F32, 0.0);
                    let inverse = emitter.load(b, scale_memory, &scale_offset, &Mask::new(), none);
                    let one = b.constant(Scalar::new(DType::F32, 1.0));
                    let scale = b.binary(BinaryFn::Div, one, inverse);
                    let scale = b.broadcast(scale, &layout);
                    let scaled = b.mul(x, scale);
                    vec![b.cast(DType::F16, scaled)]
                }
            };
            emitter.set_tile(&layout);
            let memory = emitter.array(b, Array::WorkspaceOut(2 * operand, DType::F16));
            for (half, value) in (0i64..).zip(halves) {
                let half = Index::size(Dim::constant(half));
                let (batch, own, chunk) = (place[0].clone(), place[1].clone(), chunk.clone());
                let at = [batch, own, chunk, half, row.clone(), column.clone()];
                let offset = emitter.space.linearize(&at, &sizes);
                emitter.store(b, memory, &offset, value, &Mask::new());
            }
            Ok(blocks.iter().product())
        })?;
        let read = &sizes[0] * &group.extent * &product.inner.extent * Dim::constant(4);
        launch.bytes = read + sizes.iter().product::<Dim>() * Dim::constant(2);
        Ok((kernel, launch))
    }

    /// The place of a block in [`Tiling::blocks`], with its position in the whole batch. Of products from
    /// halves, blocks of some columns run side by side.
    pub fn place(&self, emitter: &Emitter<'_>, block: &Index) -> Vec<Index> {
        let blocks = self.blocks();
        let widths = std::iter::successors(Some(WIDEST), |width| Some(width / 2));
        let width = widths.take_while(|&width| width > 1).find_map(|width| {
            let width = Dim::constant(width);
            Some((blocks[3].divided_exactly(&width)?, width))
        });
        let (Some((rest, width)), Some(_)) = (width, self.sizes.halves) else {
            let mut place = emitter.space.delinearize(block, &blocks);
            let parts = [place[1].clone(), place[4].clone()];
            place[1] = emitter.space.linearize(&parts, &self.product.batch_parts);
            return place;
        };
        let [parts, batch, rows, ..] = blocks;
        let at = emitter.space.delinearize(block, &[parts, batch, rest, rows, width.clone()]);
        let start = emitter.space.scale(&at[2], &width);
        let column = emitter.space.add(&start, &at[4]);
        vec![at[0].clone(), at[1].clone(), at[3].clone(), column, Index::default()]
    }

    /// The sums of products for the block's tile of the result.
    pub fn multiply_halves(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        place: &[Index],
    ) -> Result<ValueId, CodegenError> {
        let Unit::Groups(tile) = self.unit else {
            unreachable!("invariant: warpgroups multiply halves")
        };
        let left = usize::from(self.product.rows_fastest);
        let sides = [(left, self.sizes.block_m, "rows"), (1 - left, self.sizes.block_n, "columns")];
        let mut number = 2;
        let sides = sides.map(|(operand, block, name)| {
            let memory =
                b.swizzled(name, DType::F16, self.sizes.stages * self.tile_elements(block));
            let place = place[number].clone();
            number += 1;
            Side { operand, block, place, memory, copied: self.copied_chunks(block) }
        });
        let halves = self.halves();
        let ahead = self.sizes.stages - if self.accurate { HELD_UNITS } else { HELD_ROUNDED };
        let begin = |emitter: &mut Emitter<'a>, b: &mut KernelBuilder, chunk, unit: u32, buffer| {
            let at = (&place[1], chunk, unit % halves);
            sides.iter().for_each(|side| self.copy_unit(emitter, b, side, at, buffer));
            b.copy_commit();
        };
        for unit in 0..ahead {
            let chunk = b.int(emitter.index_dtype, (unit / halves).into());
            let buffer = b.int(DType::I32, unit.into());
            begin(emitter, b, chunk, unit, buffer);
        }
        let zeros = self.zeros(b);
        let first = b.int(emitter.index_dtype, 0);
        if !self.accurate {
            let end = emitter.size(b, &self.halves_sizes(0)[2]);
            let sums =
                emitter.for_loop(b, (first, end, 1), &[zeros], 1, |emitter, b, at, sums| {
                    let number = b.cast(DType::I32, at);
                    let [this, to] = [0, ahead].map(|later| {
                        let number = b.add_int(number, later.into());
                        b.binary_with(BinaryFn::Rem, number, self.sizes.stages.into())
                    });
                    self.filled_unit(b, ahead);
                    let offsets = [0, 1].map(|side: usize| {
                        b.mul_int(this, self.tile_elements(sides[side].block).into())
                    });
                    let begun = b.wgmma(tile, [sides[0].memory, sides[1].memory], offsets, sums[0]);
                    let chunk = b.add_int(at, ahead.into());
                    begin(emitter, b, chunk, 0, to);
                    b.wgmma_pending(1);
                    Ok(vec![begun])
                })?;
            let sums = b.wgmma_wait(sums[0]);
            let [rows, columns] = self.scales(emitter, b, &sides, (place, &Index::default()));
            let scaled = emitter.binary(b, BinaryFn::Mul, sums, columns);
            let sums = emitter.binary(b, BinaryFn::Mul, scaled, rows);
            self.mark(emitter, b, place, sums);
            return Ok(sums);
        }
        let rounds = self.inner_blocks();
        let end = emitter.size(b, &rounds);
        let sums = emitter.for_loop(b, (first, end, 1), &[zeros], 1, |emitter, b, at, sums| {
            let number = b.cast(DType::I32, at);
            let number = b.mul_int(number, UNITS.into());
            let buffers: Vec<ValueId> = (0..UNITS + ahead)
                .map(|unit| {
                    let number = b.add_int(number, unit.into());
                    b.binary_with(BinaryFn::Rem, number, self.sizes.stages.into())
                })
                .collect();
            let chunk = b.mul_int(at, CHUNKS.into());
            let memory = [sides[0].memory, sides[1].memory];
            // Nothing is under way here, so that sums can be set.
            let zeros = self.zeros(b);
            let (mut high, mut low) = (b.wgmma_wait(zeros), b.wgmma_wait(zeros));
            for unit in 0..UNITS {
                self.filled_unit(b, ahead);
                let offsets = |b: &mut KernelBuilder, unit: u32| {
                    let buffer = buffers[unit as usize];
                    [0, 1].map(|side: usize| {
                        b.mul_int(buffer, self.tile_elements(sides[side].block).into())
                    })
                };
                let these = offsets(b, unit);
                if unit % HALVES == 0 {
                    high = b.wgmma(tile, memory, these, high);
                } else {
                    let highs = offsets(b, unit - 1);
                    low = b.wgmma(tile, memory, [these[0], highs[1]], low);
                    low = b.wgmma(tile, memory, [highs[0], these[1]], low);
                }
                if unit % HALVES == 0 && unit > 0 {
                    b.wgmma_pending(1);
                }
                let later = unit + ahead;
                let chunk = b.add_int(chunk, (later / HALVES).into());
                begin(emitter, b, chunk, later, buffers[later as usize]);
            }
            let round = Index::var(emitter.iterate(&rounds, Some(at), None));
            let scales = self.scales(emitter, b, &sides, (place, &round));
            let (high, low) = (b.wgmma_wait(high), b.wgmma_wait(low));
            let small = b.constant(Scalar::new(DType::F32, 2f64.powi(-LOW)));
            let sum = b.fma(low, small, high);
            let sum = emitter.binary(b, BinaryFn::Mul, sum, scales[1]);
            Ok(vec![emitter.add_product(b, sum, scales[0], sums[0])])
        })?;
        self.mark(emitter, b, place, sums[0]);
        Ok(sums[0])
    }

    /// Threads that copy chunks of a side in parts.
    fn copied_chunks(&self, block: u32) -> Layout {
        let across = CHUNK / PART;
        let threads = self.threads() / across;
        let (own, chunks) = (threads.min(CHUNK), block / CHUNK);
        let along = (threads / own).min(chunks);
        Layout {
            shape: vec![chunks, CHUNK, CHUNK],
            registers: modes(&[(2, PART, 1), (1, CHUNK / own, own), (0, chunks / along, along)]),
            threads: modes(&[
                (2, across, PART),
                (1, own, 1),
                (0, along, 1),
                (0, threads / (own * along), 0),
            ]),
        }
    }

    /// Begins to copy a side's part of a unit: a half of a chunk of inner elements; zeros beyond the end.
    fn copy_unit(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        side: &Side,
        (batch, chunk, half): (&Index, ValueId, u32),
        buffer: ValueId,
    ) {
        let sizes = self.halves_sizes(side.operand);
        let chunks = side.block / CHUNK;
        emitter.set_tile(&side.copied);
        let first = emitter.space.scale(&side.place, &Dim::constant(chunks.into()));
        let first = emitter.index(b, &first);
        let own = emitter.iterate(&sizes[1], Some(first), Some(0));
        let chunk = emitter.iterate(&sizes[2], Some(chunk), None);
        let size = Dim::constant(CHUNK.into());
        let [row, column] = [1, 2].map(|dim| Index::var(emitter.iterate(&size, None, Some(dim))));
        let mut mask = tail(own, &sizes[1], chunks.into());
        mask.insert(within_extent(chunk, &sizes[2]));
        let half = Index::size(Dim::constant(half.into()));
        let at = [batch.clone(), Index::var(own), Index::var(chunk), half, row, column];
        let offset = emitter.space.linearize(&at, &sizes);
        let memory = emitter.array(b, Array::WorkspaceIn(2 * side.operand, DType::F16));
        let places = [(0, CHUNK * CHUNK), (1, CHUNK), (2, 1)].map(|(dim, stride)| {
            let at = b.coordinate(&side.copied, dim);
            b.mul_int(at, i64::from(stride))
        });
        let start = b.mul_int(buffer, self.tile_elements(side.block).into());
        let to = places.into_iter().fold(start, |sum, place| b.add(sum, place));
        emitter.copy(b, (side.memory, to), (memory, &offset), (&mask, None));
    }

    /// What sums of products are multiplied with for each side of the tile; `which`: which of a position's scales.
    fn scales(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        sides: &[Side; 2],
        (place, which): (&[Index], &Index),
    ) -> [ValueId; 2] {
        emitter.set_tile(&self.unit.sums());
        [(0u32, &sides[0]), (1, &sides[1])].map(|(dim, side)| {
            let sizes = self.scale_sizes(side.operand);
            let first = emitter.space.scale(&side.place, &Dim::constant(side.block.into()));
            let first = emitter.index(b, &first);
            let own = emitter.iterate(&sizes[2], Some(first), Some(dim));
            let mask = tail(own, &sizes[2], side.block.into());
            let index = [place[1].clone(), which.clone(), Index::var(own)];
            let offset = emitter.space.linearize(&index, &sizes);
            let memory = emitter.array(b, Array::WorkspaceIn(2 * side.operand + 1, DType::F32));
            emitter.load(b, memory, &offset, &mask, Scalar::new(DType::F32, 0.0))
        })
    }

    /// Waits until a unit's copies are there for all warps. Behind it all warps have read what the copies that begin
    /// then overwrite.
    fn filled_unit(&self, b: &mut KernelBuilder, ahead: u32) {
        b.copy_wait(ahead - 1);
        b.proxy_fence();
        b.barrier();
    }

    /// Marks the block's tile where sums are not finite.
    fn mark(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        place: &[Index],
        sums: ValueId,
    ) {
        let zero = b.constant(Scalar::new(DType::F32, 0.0));
        // NaN for infinities and NaN.
        let nothing = b.mul(sums, zero);
        let add = ScalarExpr::arg(0) + ScalarExpr::arg(1);
        let nothing = b.reduce(1, &[nothing], std::slice::from_ref(&add));
        let nothing = b.reduce(0, &nothing, &[add])[0];
        let is_lost = b.unary(UnaryFn::IsNan, nothing);
        let mark = b.cast(DType::I32, is_lost);
        emitter.set_tile(&self.unit.sums().dropped(0).dropped(1));
        let offset = emitter.space.linearize(&place[1..], &self.blocks()[1..]);
        let memory = emitter.array(b, Array::WorkspaceOut(MARKS, DType::I32));
        emitter.store(b, memory, &offset, mark, &Mask::new());
    }
}

fn maximum() -> ScalarExpr {
    ScalarExpr::arg(0).binary(BinaryFn::Max, ScalarExpr::arg(1))
}

/// The power of two that brings magnitudes of at most `most` to [`TOP`], as far as [`MOST_SCALE`] allows, and its
/// inverse.
fn scale_for(b: &mut KernelBuilder, most: ValueId) -> (ValueId, ValueId) {
    let number = |b: &mut KernelBuilder, value: f64| b.constant(Scalar::new(DType::F32, value));
    let power = |b: &mut KernelBuilder, power: i32| number(b, 2f64.powi(power));
    let (least, beyond) = (power(b, TOP - MOST_SCALE), power(b, TOP + MOST_SCALE));
    let most = b.binary(BinaryFn::Max, most, least);
    let most = b.binary(BinaryFn::Min, most, beyond);
    // The power of two below it (Rump, Ogita and Oishi, "Accurate floating-point summation", 2008: "unit in the
    // first place").
    let (above, below) = (number(b, 2f64.powi(23) + 1.0), number(b, 1.0 - 2f64.powi(-24)));
    let wide = b.mul(most, above);
    let narrow = b.mul(wide, below);
    let first = b.sub(wide, narrow);
    let (top, inverse_top) = (power(b, TOP), power(b, -TOP));
    (b.binary(BinaryFn::Div, top, first), b.mul(first, inverse_top))
}

/// Elements as scaled halves, and what undoes the scale.
struct Split {
    high: ValueId,
    low: ValueId,
    inverse: ValueId,
}

/// Splits the elements of a tile, which share a scale along its last two dimensions.
fn split(b: &mut KernelBuilder, x: ValueId) -> Split {
    let number = |b: &mut KernelBuilder, value: f64| b.constant(Scalar::new(DType::F32, value));
    let power = |b: &mut KernelBuilder, power: i32| number(b, 2f64.powi(power));
    let layout = b.ty(x).layout().expect("invariant: a tile is split").clone();
    let largest = |b: &mut KernelBuilder, x: ValueId| {
        let along = b.reduce(1, &[x], &[maximum()]);
        b.reduce(2, &along, &[maximum()])[0]
    };
    let size = b.unary(UnaryFn::Abs, x);
    let most = largest(b, size);
    let (scale, inverse) = scale_for(b, most);

    let scale = b.broadcast(scale, &layout);
    let scaled = b.mul(x, scale);
    let high = b.cast(DType::F16, scaled);
    let wide_high = b.cast(DType::F32, high);
    let rest = b.sub(scaled, wide_high);
    let up = power(b, LOW);
    let rest = b.mul(rest, up);
    let low = b.cast(DType::F16, rest);
    let wide_low = b.cast(DType::F32, low);
    let left = b.sub(rest, wide_low);
    let left = b.unary(UnaryFn::Abs, left);
    let size = b.unary(UnaryFn::Abs, scaled);
    let bound = power(b, LOST + LOW);
    let bound = b.mul(size, bound);
    let is_kept = b.binary(BinaryFn::Le, left, bound);
    let (zero, one, nan) = (number(b, 0.0), number(b, 1.0), number(b, f64::NAN));
    let lost = b.select(is_kept, zero, one);
    let lost = largest(b, lost);
    let is_lost = b.lt(zero, lost);
    Split { high, low, inverse: b.select(is_lost, nan, inverse) }
}
