//! Kernels for folds by single threads and by blocks.

use std::ops::Range;

use fornax_ir::op::OpClass;
use fornax_ir::{BinaryFn, Dim, NodeId};

use super::emit::{Emitter, build_kernel};
use super::fold::Folding;
use super::index::{Condition, Index, Mask, Var};
use super::pointwise::{modes, tail, whole_or_masked, within_extent};
use super::site::Site;
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, ValueId};

/// Folds of at most this many elements are written out.
pub(super) const WRITTEN_OUT: i64 = 32;

/// Loads of folded elements that a thread has in flight.
const IN_FLIGHT: u32 = 8;

/// Accumulators that a thread keeps for each of its results.
const ITEMS: u32 = 4;

/// Steps that an accumulator is folded over one after another; their result is folded with others of that
/// many. A rounding error grows with the number of additions in a row.
const IN_A_ROW: u32 = 32;

/// So many steps are still taken in a row where they are all.
const MOST_IN_A_ROW: i64 = 64;

/// Positions of a block of steps at most: what an index may lie beyond its extent.
const WIDEST: u32 = 1 << 20;

/// One thread folds each group of `vector` adjacent results alone.
pub(super) fn by_thread(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    vector: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    let tile = i64::from(threads * vector);
    let nest = Nest { groups: &adjacent_axes(site, anchor, &folding), written_out: WRITTEN_OUT };
    // Windows are folded in order.
    let in_order = matches!(site.body.node(anchor).op.class(), OpClass::Window(_));
    let items = if in_order || nest.is_short(&folding.inner) { 1 } else { ITEMS / folding.reads() };
    let layout = Layout {
        shape: vec![threads * vector, items],
        registers: modes(&[(0, vector, 1), (1, items, 1)]),
        threads: modes(&[(0, threads, vector)]),
    };
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, tile);
        let var = emitter.iterate(&total, Some(base), Some(0));
        whole_or_masked(emitter, b, (base, tile), (var, &total), |emitter, b, mask| {
            emitter.set_tile(&layout);
            let outer = emitter.space.delinearize(&Index::var(var), &folding.outer);
            let place = Place { folding: &folding, outer: &outer, mask };
            let sums = place.nested(emitter, b, (nest, Vec::new()), &Mask::new())?;
            let sums = folding.reduce_tile(b, 1, &sums);
            emitter.set_tile(&layout.dropped(1));
            finish(emitter, b, &folding, &outer, mask, &sums)
        })?;
        Ok(total.ceil_div(&Dim::constant(tile)))
    })?;
    launch.bytes = site.bytes();
    launch.flops = folding.flops() + site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// Ranges of folded axes that are adjacent in the operand: one loop goes over all of them.
pub(super) fn adjacent_axes(
    site: &Site<'_>,
    anchor: NodeId,
    folding: &Folding,
) -> Vec<Range<usize>> {
    let count = folding.inner.len();
    let OpClass::Reduce(form) = site.body.node(anchor).op.class() else {
        return (0..count).map(|axis| axis..axis + 1).collect();
    };
    let axes = site.with_ctx(anchor, form).axes;
    let mut groups: Vec<Range<usize>> = Vec::new();
    for position in 0..count {
        match groups.last_mut() {
            Some(last) if axes[position] == axes[position - 1] + 1 => last.end = position + 1,
            _ => groups.push(position..position + 1),
        }
    }
    groups
}

/// Loops over folded axes.
#[derive(Clone, Copy)]
pub(super) struct Nest<'g> {
    /// Ranges of axes, one loop each.
    pub groups: &'g [Range<usize>],
    /// Loops over at most this many elements in all are written out.
    pub written_out: i64,
}

impl Nest<'_> {
    /// How many elements the loops go over, where that is known.
    fn count(&self, inner: &[Dim]) -> Option<i64> {
        let first = self.groups.first().map_or(inner.len(), |group| group.start);
        inner[first..].iter().product::<Dim>().as_const()
    }

    /// Whether the loops are written out.
    fn is_short(&self, inner: &[Dim]) -> bool {
        self.count(inner).is_some_and(|count| (1..=self.written_out).contains(&count))
    }
}

/// Results of a fold.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub folding: &'p Folding,
    /// Their positions.
    pub outer: &'p [Index],
    /// Which of them there are.
    pub mask: &'p Mask,
}

impl Place<'_> {
    /// Folds the elements that loops go over, where the limits hold; the indices of the loops around are
    /// given. The tile's dimension 1 has the accumulators of each result.
    pub fn nested<'a>(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (nest, inner): (Nest<'_>, Vec<Index>),
        limits: &Mask,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let folding = self.folding;
        let start = folding.initial(emitter, b);
        let Some((group, rest)) = nest.groups.split_first() else {
            return folding.step(emitter, b, (self.outer, &inner), (self.mask, limits), &start);
        };
        let sizes = &folding.inner[group.clone()];
        let extent: Dim = sizes.iter().product();
        let loops = (nest, inner);
        if let (true, Some(count)) = (nest.is_short(&folding.inner), extent.as_const()) {
            let many = nest.count(&folding.inner).is_some_and(|count| count > WRITTEN_OUT);
            if !(many && folding.rounds() && !rest.is_empty()) {
                return self.written_out(emitter, b, loops, limits, start);
            }
            let mut sums = start;
            for position in 0..count {
                let inner = extended(emitter, &loops.1, &Index::size(position), sizes);
                let rest = Nest { groups: rest, ..nest };
                let next = self.nested(emitter, b, (rest, inner), limits)?;
                sums = match position {
                    0 => next,
                    _ => folding.combine(emitter, b, &sums, &next),
                };
            }
            return Ok(sums);
        }
        let rest = Nest { groups: rest, ..nest };
        let join: &Join<'_, 'a> = &|emitter, b, x, y| folding.combine(emitter, b, x, y);
        let each = |emitter: &mut Emitter<'a>,
                    b: &mut KernelBuilder,
                    at: Var,
                    limits: &Mask,
                    sums: &[ValueId]| {
            let inner = extended(emitter, &loops.1, &Index::var(at), sizes);
            if rest.groups.is_empty() {
                let masks = (self.mask, limits);
                return folding.step(emitter, b, (self.outer, &inner), masks, sums);
            }
            let next = self.nested(emitter, b, (rest, inner), limits)?;
            Ok(folding.combine(emitter, b, sums, &next))
        };
        let (from, to) = (b.int(emitter.index_dtype, 0), emitter.size(b, &extent));
        if rest.groups.is_empty() || rest.is_short(&folding.inner) {
            let items = emitter.tile().shape[1];
            let stretch = Stretch {
                from,
                to,
                extent: &extent,
                limit: &|at| within_extent(at, &extent),
                unroll: if rest.groups.is_empty() { unroll(folding, items) } else { 1 },
                every: 1,
            };
            return along_row(emitter, b, &stretch, (&start, Some(join)), &each);
        }
        let chain = Chain { from, to, step: 1, unroll: 1, most: most(emitter, &extent) };
        chain.emit(emitter, b, (&start, Some(join)), &|emitter, b, at, sums| {
            let at = emitter.iterate(&extent, Some(at), None);
            each(emitter, b, at, limits, sums)
        })
    }

    /// Folds the elements of loops one after another into the accumulators.
    fn written_out(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        (nest, inner): (Nest<'_>, Vec<Index>),
        limits: &Mask,
        mut sums: Vec<ValueId>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let Some((group, rest)) = nest.groups.split_first() else {
            let masks = (self.mask, limits);
            return self.folding.step(emitter, b, (self.outer, &inner), masks, &sums);
        };
        let sizes = &self.folding.inner[group.clone()];
        let count = sizes.iter().product::<Dim>().as_const();
        for position in 0..count.expect("invariant: what is written out has a known size") {
            let inner = extended(emitter, &inner, &Index::size(position), sizes);
            let rest = Nest { groups: rest, ..nest };
            sums = self.written_out(emitter, b, (rest, inner), limits, sums)?;
        }
        Ok(sums)
    }
}

/// The indices of loops with that of one more, of `sizes`.
fn extended(emitter: &Emitter<'_>, inner: &[Index], position: &Index, sizes: &[Dim]) -> Vec<Index> {
    let mut inner = inner.to_vec();
    inner.extend(emitter.space.delinearize(position, sizes));
    inner
}

/// The largest that a size may be.
fn most(emitter: &Emitter<'_>, size: &Dim) -> i64 {
    size.bounds(emitter.site.dims).1
}

/// Puts two sets of accumulators together; the first one's elements come earlier.
pub(super) type Join<'j, 'a> =
    dyn Fn(&mut Emitter<'a>, &mut KernelBuilder, &[ValueId], &[ValueId]) -> Vec<ValueId> + 'j;

/// A loop over `from, from + step, ..` below `to`.
#[derive(Clone, Copy)]
struct Chain {
    from: ValueId,
    to: ValueId,
    step: u32,
    unroll: u32,
    /// As many steps are taken at most.
    most: i64,
}

/// Goes over all positions of an extent.
pub(super) fn over_all<'a>(
    emitter: &mut Emitter<'a>,
    b: &mut KernelBuilder,
    (extent, unroll): (&Dim, u32),
    (start, join): (&[ValueId], &Join<'_, 'a>),
    round: &Round<'_, 'a>,
) -> Result<Vec<ValueId>, CodegenError> {
    let (from, to) = (b.int(emitter.index_dtype, 0), emitter.size(b, extent));
    let chain = Chain { from, to, step: 1, unroll, most: most(emitter, extent) };
    chain.emit(emitter, b, (start, Some(join)), round)
}

/// A round of a [`Chain`]: from the position and the accumulators to the next ones.
pub(super) type Round<'r, 'a> = dyn Fn(
        &mut Emitter<'a>,
        &mut KernelBuilder,
        ValueId,
        &[ValueId],
    ) -> Result<Vec<ValueId>, CodegenError>
    + 'r;

impl Chain {
    /// Goes over the loop from neutral accumulators on, in blocks of [`IN_A_ROW`] that are joined, blocks of
    /// blocks where those are many; all in a row where nothing joins.
    fn emit<'a>(
        self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        (start, join): (&[ValueId], Option<&Join<'_, 'a>>),
        round: &Round<'_, 'a>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let Some(join) = join else { return self.in_a_row(emitter, b, start, round) };
        let (mut width, mut blocks) = (self.step, self.most);
        while blocks > MOST_IN_A_ROW && width <= WIDEST / IN_A_ROW {
            width *= IN_A_ROW;
            blocks = (blocks as u64).div_ceil(IN_A_ROW.into()) as i64;
        }
        self.blocks(emitter, b, width, (start, join), round)
    }

    fn in_a_row<'a>(
        self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        start: &[ValueId],
        round: &Round<'_, 'a>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let Chain { from, to, step, unroll, .. } = self;
        emitter.for_loop(b, (from, to, step), start, unroll, round)
    }

    /// Goes over the loop in blocks of `width` positions, a power of [`IN_A_ROW`] of steps.
    fn blocks<'a>(
        self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        width: u32,
        (start, join): (&[ValueId], &Join<'_, 'a>),
        round: &Round<'_, 'a>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let Chain { from, to, step, .. } = self;
        if width == step {
            return self.in_a_row(emitter, b, start, round);
        }
        let number =
            |b: &KernelBuilder, value| b.number(value).map(|number| number.to_f64() as i64);
        let is_whole = match (number(b, from), number(b, to)) {
            (Some(from), Some(to)) => (to - from) % i64::from(width) == 0,
            _ => false,
        };
        emitter.for_loop(b, (from, to, width), start, 1, |emitter, b, at, sums| {
            let end = b.add_int(at, width.into());
            let end = if is_whole { end } else { b.binary(BinaryFn::Min, end, to) };
            let block = Chain { from: at, to: end, ..self };
            let next = block.blocks(emitter, b, width / IN_A_ROW, (start, join), round)?;
            Ok(join(emitter, b, sums, &next))
        })
    }
}

/// Finishes the accumulators and writes the region's results.
pub(super) fn finish(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    folding: &Folding,
    outer: &[Index],
    mask: &Mask,
    sums: &[ValueId],
) -> Result<(), CodegenError> {
    let result = folding.finish(emitter, b, sums);
    let result = emitter.spread(b, result);
    let index = folding.result_index(emitter.site, &emitter.space, outer);
    emitter.bind_anchor(folding.node, &index, result);
    emitter.store_outputs(b, &index, mask)
}

/// The tile of blocks that fold `rows` results, each by `threads / rows` threads that take `items` times
/// `vector` elements at once. `across`: adjacent threads take adjacent results, else adjacent elements of
/// one.
pub(super) fn rows_layout(
    threads: u32,
    rows: u32,
    [vector, items]: [u32; 2],
    across: bool,
) -> Layout {
    let each = threads / rows;
    let (results, elements) = ((0, rows, 1), (1, each, vector));
    Layout {
        shape: vec![rows, each * vector * items],
        registers: modes(&[(1, vector, 1), (1, items, each * vector)]),
        threads: modes(&if across { [results, elements] } else { [elements, results] }),
    }
}

/// How many times `width` elements of at most `most` a tile has.
pub(super) fn items(folding: &Folding, width: u32, most: i64) -> u32 {
    let mut items = ITEMS / folding.reads();
    while items > 1 && i64::from(width) * i64::from(items) > most {
        items /= 2;
    }
    items
}

/// How often a loop over tiles is unrolled.
pub(super) fn unroll(folding: &Folding, items: u32) -> u32 {
    (IN_FLIGHT / folding.reads() / items).max(1)
}

/// Part of a row: positions `from..to`, all below `extent`.
pub(super) struct Stretch<'d> {
    pub from: ValueId,
    pub to: ValueId,
    pub extent: &'d Dim,
    /// The condition on a position that it lies below `to`.
    pub limit: &'d dyn Fn(Var) -> Condition,
    /// How many full widths are in flight.
    pub unroll: u32,
    /// Only each `every`-th width is gone over, from `from` on.
    pub every: u32,
}

/// Folds the element at a position into the accumulators, where the limits hold.
pub(super) type Element<'e, 'a> = dyn Fn(
        &mut Emitter<'a>,
        &mut KernelBuilder,
        Var,
        &Mask,
        &[ValueId],
    ) -> Result<Vec<ValueId>, CodegenError>
    + 'e;

/// Goes over a stretch with the tile's dimension 1: full widths first, then the rest with a limit. What the
/// accumulators begin with is neutral where there is a function that joins them.
pub(super) fn along_row<'a>(
    emitter: &mut Emitter<'a>,
    b: &mut KernelBuilder,
    stretch: &Stretch<'_>,
    (start, join): (&[ValueId], Option<&Join<'_, 'a>>),
    element: &Element<'_, 'a>,
) -> Result<Vec<ValueId>, CodegenError> {
    let &Stretch { from, to, extent, limit, unroll, every } = stretch;
    let width = emitter.tile().shape[1];
    let step = width * every;
    let count = b.sub(to, from);
    // Steps that begin a full width before the end: none where fewer elements than that are left.
    let count = b.add_int(count, i64::from(step - width));
    let steps = b.binary_with(BinaryFn::Div, count, step.into());
    let steps = b.binary_with(BinaryFn::Max, steps, 0);
    let whole = b.mul_int(steps, step.into());
    let whole = b.add(from, whole);
    let mut sums = start.to_vec();
    if b.number(steps).is_none_or(|steps| steps.to_f64() > 0.0) {
        let most = most(emitter, extent) / i64::from(step);
        let chain = Chain { from, to: whole, step, unroll, most };
        sums = chain.emit(emitter, b, (start, join), &|emitter, b, at, sums| {
            let at = emitter.iterate(extent, Some(at), Some(1));
            element(emitter, b, at, &Mask::new(), sums)
        })?;
    }
    if b.number(whole).is_none() || b.number(whole) != b.number(to) {
        sums = emitter.for_loop(b, (whole, to, step), &sums, 1, |emitter, b, at, sums| {
            let at = emitter.iterate(extent, Some(at), Some(1));
            element(emitter, b, at, &Mask::from([limit(at)]), sums)
        })?;
    }
    Ok(sums)
}

/// `rows` results a block, each folded by `threads / rows` threads together.
pub(super) fn by_block(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    rows: u32,
    vector: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    let length: Dim = folding.inner.iter().product();
    let items = items(&folding, threads / rows * vector, length.bounds(site.dims).1);
    let across = folding.has_adjacent_results(site);
    let layout = rows_layout(threads, rows, [vector, items], across);
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, rows.into());
        let row = emitter.iterate(&total, Some(base), Some(0));
        let mask = tail(row, &total, rows.into());
        let outer = emitter.space.delinearize(&Index::var(row), &folding.outer);
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, &length),
            extent: &length,
            limit: &|at| within_extent(at, &length),
            unroll: unroll(&folding, items),
            every: 1,
        };
        let sums = folding.initial(emitter, b);
        let join: &Join<'_, '_> = &|emitter, b, x, y| folding.combine(emitter, b, x, y);
        let start = (&sums[..], Some(join));
        let sums = along_row(emitter, b, &stretch, start, &|emitter, b, at, limits, sums| {
            let inner = emitter.space.delinearize(&Index::var(at), &folding.inner);
            folding.step(emitter, b, (&outer, &inner), (&mask, limits), sums)
        })?;
        let sums = folding.reduce_tile(b, 1, &sums);
        emitter.set_tile(&layout.dropped(1));
        finish(emitter, b, &folding, &outer, &mask, &sums)?;
        Ok(total.ceil_div(&Dim::constant(rows.into())))
    })?;
    launch.bytes = site.bytes();
    launch.flops = folding.flops() + site.pointwise_flops();
    Ok(single(kernel, launch))
}
