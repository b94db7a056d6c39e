//! Recurrences by blocks that stay: each has the recurrent weights of some hidden units in registers, and all
//! blocks of a group exchange the hidden state through memory after each step.
//!
//! A group runs some sequences in one direction from the first step to the last. In each step, a block sums
//! the products of its weights and the state, which lies in its shared memory, by threads that have parts of
//! the sum; other threads add the parts and compute the new states of the block's units, which they keep.
//! Blocks take tickets, so that a group's blocks run at once, whatever else runs.

use fornax_ir::op::RecurrentForm;
use fornax_ir::plan::Arena;
use fornax_ir::{BinaryFn, DType, Dim, NodeId, Scalar, ScalarExpr};

use super::emit::{Array, Emitter, build_kernel};
use super::index::{Condition, Index, Mask};
use super::pointwise::modes;
use super::row_groups;
use super::site::Site;
use super::{CodegenError, LoweredRegion, Workspace, single};
use crate::kernel::{KernelBuilder, Layout, Memory, ValueId};

/// Registers of 32 bits for weights, of the 128 that each of 512 threads has (CUDA C++ Programming Guide,
/// "Technical Specifications": 65536 a multiprocessor); what does not fit is read again in each step.
const MOST_HELD: u32 = 80;

/// Rounds of the sum that are written out where weights are read again.
const UNROLLED: u32 = 4;

/// The schedule's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub threads: u32,
    pub blocks: u32,
    pub batch: u32,
}

/// Lowers a recurrence.
pub(super) fn lower(
    site: &Site<'_>,
    node: NodeId,
    form: &RecurrentForm,
    tile: Tile,
) -> Result<LoweredRegion, CodegenError> {
    let recurrence = Recurrence::new(site, node, form, tile)?;
    let (kernel, mut launch) =
        build_kernel(site, &site.kernel_name(""), tile.threads, |emitter, b| {
            recurrence.emit(emitter, b)?;
            Ok(recurrence.parts().iter().product())
        })?;
    launch.bytes = site.bytes();
    launch.flops = recurrence.flops();
    if recurrence.blocks == 1 {
        return Ok(single(kernel, launch));
    }
    let workspaces = recurrence.workspaces();
    // What is exchanged without tags is not looked at before it is written.
    let zeroed = workspaces.iter().enumerate().take(if recurrence.is_tagged() { 2 } else { 1 });
    let zeroed = zeroed.map(|(number, of)| (number, of.dtype, of.elements.clone()));
    let (start, start_launch) = row_groups::start(site, &zeroed.collect::<Vec<_>>())?;
    launch.kernel = 1;
    Ok(LoweredRegion {
        kernels: vec![start, kernel],
        launches: vec![start_launch, launch],
        workspaces,
    })
}

/// A recurrence and how it is distributed.
struct Recurrence<'s> {
    operands: Vec<NodeId>,
    form: &'s RecurrentForm,
    dtype: DType,
    hidden: u32,
    /// Hidden units of a block.
    units: u32,
    /// Blocks of a group.
    blocks: u32,
    /// Sequences of a group.
    batch: u32,
    /// Threads along the units, and those with parts of a sum: in a warp, and warps.
    lanes: [u32; 3],
    /// Inner positions of each such part.
    rounds: u32,
    /// The tiles of new states and of the state in shared memory.
    units_tile: Layout,
    state_tile: Layout,
}

/// Where a block's work lies, and its shared memory.
struct Place {
    direction: Index,
    /// The group among those of all directions.
    group: Index,
    /// The first sequence.
    row: Index,
    /// The first unit.
    unit: Index,
    /// The published state, positions outside, sequences inside.
    state: Memory,
    /// Parts of sums.
    partial: Memory,
}

/// The weights of a phase where they stay in registers, round by round.
type Held = Option<Vec<ValueId>>;

/// Dimensions of the tile of products: gates, units, parts of a sum in a warp, such warps, sequences.
const GATE: u32 = 0;
const UNIT: u32 = 1;
const LANE: u32 = 2;
const WARP: u32 = 3;
const ROW: u32 = 4;

impl<'s> Recurrence<'s> {
    fn new(
        site: &Site<'_>,
        node: NodeId,
        form: &'s RecurrentForm,
        tile: Tile,
    ) -> Result<Recurrence<'s>, CodegenError> {
        let hidden = form.hidden.as_const().and_then(|hidden| u32::try_from(hidden).ok());
        let hidden = hidden.ok_or_else(|| {
            site.error(node, format!("{} hidden units are not known", form.hidden))
        })?;
        let Tile { threads, batch, .. } = tile;
        let units = hidden.div_ceil(tile.blocks).next_power_of_two();
        let lanes = [units.min(threads).min(32), 1, 1];
        let lanes = [lanes[0], threads.min(32) / lanes[0], threads / threads.min(32)];
        let across = [units.min(threads), batch.min(threads / units.min(threads))];
        let parts = lanes[1] * lanes[2];
        let rounds = hidden.div_ceil(parts);
        let positions = (rounds * parts).max(units).next_multiple_of(threads);
        Ok(Recurrence {
            operands: site.body.operands(node),
            form,
            dtype: site.body.ty(node).dtype,
            hidden,
            units,
            blocks: hidden.div_ceil(units).max(1),
            batch,
            lanes,
            rounds,
            units_tile: Layout {
                shape: vec![units, batch],
                registers: modes(&[
                    (0, units / across[0], across[0]),
                    (1, batch / across[1], across[1]),
                ]),
                threads: modes(&[
                    (0, across[0], 1),
                    (1, across[1], 1),
                    (1, threads / (across[0] * across[1]), 0),
                ]),
            },
            state_tile: Layout {
                shape: vec![positions, batch],
                registers: modes(&[(1, batch, 1), (0, positions / threads, threads)]),
                threads: modes(&[(0, threads, 1)]),
            },
        })
    }

    fn directions(&self) -> Dim {
        Dim::from(self.form.reverse.len())
    }

    /// Groups of each direction.
    fn groups(&self) -> Dim {
        self.form.batch.ceil_div(&Dim::constant(self.batch.into()))
    }

    /// Directions, groups of each, blocks of each.
    fn parts(&self) -> [Dim; 3] {
        [self.directions(), self.groups(), Dim::constant(self.blocks.into())]
    }

    /// Whether blocks exchange numbers with tags; else they meet after each phase. A number and its tag are
    /// accessed at once, which wider numbers than `f32` leave no room for.
    fn is_tagged(&self) -> bool {
        self.dtype == DType::F32
    }

    /// A ticket counter, with one for each time that a group's blocks meet, and what they exchange.
    fn workspaces(&self) -> Vec<Workspace> {
        let one = Dim::constant(1);
        let exchanged: Dim = self.exchanged().iter().product();
        if self.is_tagged() {
            return vec![
                Workspace { dtype: DType::I32, elements: one, arena: Arena::Phase },
                Workspace { dtype: DType::I64, elements: exchanged, arena: Arena::Phase },
            ];
        }
        let meetings = self.form.steps.clone() * Dim::from(self.form.phases.len());
        let counters = one + self.directions() * self.groups() * meetings;
        let mut workspaces =
            vec![Workspace { dtype: DType::I32, elements: counters, arena: Arena::Phase }];
        if self.form.phases.len() > 1 {
            workspaces.push(Workspace {
                dtype: self.dtype,
                elements: exchanged,
                arena: Arena::Phase,
            });
        }
        workspaces
    }

    /// The workspace by which blocks exchange what they publish: phases, even and odd steps, groups,
    /// sequences, units.
    fn exchanged(&self) -> [Dim; 5] {
        let [batch, hidden] = [self.batch, self.hidden].map(|size| Dim::constant(size.into()));
        let phases = Dim::from(self.form.phases.len());
        [phases, Dim::constant(2), self.directions() * self.groups(), batch, hidden]
    }

    fn flops(&self) -> Dim {
        let RecurrentForm { steps, batch, hidden, gates, .. } = self.form;
        let sums = steps * batch * hidden * self.directions() * Dim::from(2 * gates);
        sums * hidden
    }

    fn zero(&self) -> Scalar {
        Scalar::new(self.dtype, 0.0)
    }

    fn emit(&self, emitter: &mut Emitter<'_>, b: &mut KernelBuilder) -> Result<(), CodegenError> {
        let place = self.place(emitter, b);
        let weights = self.held_weights(emitter, b, &place)?;
        self.fill_initial(emitter, b, &place)?;
        b.barrier();

        let first = b.int(emitter.index_dtype, 0);
        let end = emitter.size(b, &self.form.steps);
        let parameters = self.parameters(emitter, b, &place)?;
        let mut carried = Vec::new();
        for state in 0..self.form.states {
            carried.push(self.initial(emitter, b, &place, state)?);
        }
        carried.extend(self.inputs(emitter, b, &place, first)?);
        let last =
            emitter.for_loop(b, (first, end, 1), &carried, 1, |emitter, b, number, carried| {
                let (states, inputs) = carried.split_at(self.form.states);
                let known = Known { states, inputs, parameters: &parameters, weights: &weights };
                self.step(emitter, b, &place, number, known)
            })?;
        if let Some(state) = self.form.last {
            let step = Index::size(self.form.steps.clone());
            self.store_result(emitter, b, &place, &step, last[state]);
        }
        Ok(())
    }

    /// Finds the block's group and part; shared memory is declared.
    fn place(&self, emitter: &mut Emitter<'_>, b: &mut KernelBuilder) -> Place {
        let parts = self.parts();
        let number = match self.blocks {
            1 => emitter.block(b),
            _ => {
                let counters = emitter.array(b, Array::WorkspaceOut(0, DType::I32));
                let zero = b.int(DType::I32, 0);
                let of = emitter.size(b, &parts.iter().product());
                let ticket = b.ticket((counters, zero), of);
                b.cast(emitter.index_dtype, ticket)
            }
        };
        let number = emitter.iterate(&parts.iter().product(), Some(number), None);
        let at = emitter.space.delinearize(&Index::var(number), &parts);
        let mut counted = |index: &Index, extent: &Dim| {
            let value = emitter.index(b, index);
            Index::var(emitter.iterate(extent, Some(value), None))
        };
        let [direction, group, block] = [0, 1, 2].map(|axis| counted(&at[axis], &parts[axis]));
        let state = b.shared("state", self.dtype, self.state_tile.shape[0] * self.batch);
        let gates = self.form.phases.iter().map(|phase| phase.gates.len() as u32).max();
        let partial = self.lanes[2] * gates.unwrap_or(1) * self.batch * self.units;
        let space = &emitter.space;
        let of_direction = space.scale(&direction, &self.groups());
        Place {
            group: space.add(&of_direction, &group),
            direction,
            row: space.scale(&group, &Dim::constant(self.batch.into())),
            unit: space.scale(&block, &Dim::constant(self.units.into())),
            state,
            partial: b.shared("partial", self.dtype, partial),
        }
    }

    /// A coordinate along a dimension of the current tile, from a base on.
    fn along(&self, emitter: &mut Emitter<'_>, base: &Index, dim: u32) -> Index {
        let extent = Dim::constant(emitter.tile().shape[dim as usize].into());
        let own = emitter.iterate(&extent, None, Some(dim));
        emitter.space.add(base, &Index::var(own))
    }

    /// The conditions that a unit and a sequence exist.
    fn exist(&self, emitter: &Emitter<'_>, unit: &Index, row: Option<&Index>) -> Mask {
        let zero = Dim::constant(0);
        let unit = emitter.space.within(unit, &zero, &self.form.hidden);
        let row = row.and_then(|row| emitter.space.within(row, &zero, &self.form.batch));
        unit.into_iter().chain(row).collect()
    }

    /// The tile of products for some gates.
    fn products_tile(&self, gates: usize) -> Layout {
        let [units, lanes, warps] = self.lanes;
        Layout {
            shape: vec![gates as u32, self.units, lanes, warps, self.batch],
            registers: modes(&[
                (ROW, self.batch, 1),
                (GATE, gates as u32, 1),
                (UNIT, self.units / units, units),
            ]),
            threads: modes(&[(UNIT, units, 1), (LANE, lanes, 1), (WARP, warps, 1)]),
        }
    }

    /// The weights of each phase, where all of them fit.
    fn held_weights(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
    ) -> Result<Vec<Held>, CodegenError> {
        let words = self.dtype.size() as u32 / 4;
        let each = self.form.gates as u32 * self.units / self.lanes[0] * self.rounds * words;
        let mut held = Vec::new();
        for phase in 0..self.form.phases.len() {
            if each > MOST_HELD {
                held.push(None);
                continue;
            }
            let rounds = (0..self.rounds).map(|round| {
                let round = Index::size(i64::from(round));
                self.weight(emitter, b, place, (phase, &round))
            });
            held.push(Some(rounds.collect::<Result<_, _>>()?));
        }
        Ok(held)
    }

    /// The inner position of each part of a sum in a round; the tile of products is set.
    fn position(&self, emitter: &mut Emitter<'_>, round: &Index) -> Index {
        let [_, lanes, warps] = self.lanes;
        let from = emitter.space.scale(round, &Dim::constant((lanes * warps).into()));
        let base = Index::size(0i64);
        let warp = self.along(emitter, &base, WARP);
        let warp = emitter.space.scale(&warp, &Dim::constant(lanes.into()));
        let lane = self.along(emitter, &warp, LANE);
        emitter.space.add(&from, &lane)
    }

    /// The weights of a round for the gates of a phase; 0 beyond the hidden units.
    fn weight(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (phase, round): (usize, &Index),
    ) -> Result<ValueId, CodegenError> {
        let gates = &self.form.phases[phase].gates;
        emitter.set_tile(&self.products_tile(gates.len()));
        let first = Index::size(gates.start as i64);
        let gate = self.along(emitter, &first, GATE);
        let unit = self.along(emitter, &place.unit, UNIT);
        let position = self.position(emitter, round);
        let mut guards = self.exist(emitter, &unit, None);
        guards.extend(self.exist(emitter, &position, None));
        let row = emitter.space.scale(&gate, &self.form.hidden);
        let row = emitter.space.add(&row, &unit);
        let index = [place.direction.clone(), row, position];
        emitter.pull_or(b, self.operands[1], &index, (&Mask::new(), &guards), self.zero())
    }

    /// Puts the initial state into shared memory.
    fn fill_initial(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
    ) -> Result<(), CodegenError> {
        emitter.set_tile(&self.state_tile);
        let position = self.along(emitter, &Index::size(0i64), 0);
        let row = self.along(emitter, &place.row, 1);
        let guards = self.exist(emitter, &position, Some(&row));
        let index = [place.direction.clone(), row, position];
        let none = Mask::new();
        let value = emitter.pull_or(b, self.operands[2], &index, (&none, &guards), self.zero())?;
        self.fill(emitter, b, place, value);
        Ok(())
    }

    /// Puts the published state into shared memory; the tile of the state is set.
    fn fill(&self, emitter: &Emitter<'_>, b: &mut KernelBuilder, place: &Place, value: ValueId) {
        let value = emitter.spread(b, value);
        let tile = &self.state_tile;
        let (position, row) = (b.coordinate(tile, 0), b.coordinate(tile, 1));
        let offset = b.mul_int(position, self.batch.into());
        let offset = b.add(offset, row);
        b.store(place.state, offset, value, None, 1);
    }

    /// An initial state of the block's units.
    fn initial(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        state: usize,
    ) -> Result<ValueId, CodegenError> {
        let (unit, row, guards) = self.own(emitter, place);
        let index = [place.direction.clone(), row, unit];
        let (operand, none) = (self.operands[2 + state], Mask::new());
        let value = emitter.pull_or(b, operand, &index, (&none, &guards), self.zero())?;
        Ok(emitter.spread(b, value))
    }

    /// The block's units and sequences, and that they exist; sets their tile.
    fn own(&self, emitter: &mut Emitter<'_>, place: &Place) -> (Index, Index, Mask) {
        emitter.set_tile(&self.units_tile);
        let unit = self.along(emitter, &place.unit, 0);
        let row = self.along(emitter, &place.row, 1);
        let guards = self.exist(emitter, &unit, Some(&row));
        (unit, row, guards)
    }

    /// The parameters of the block's units.
    fn parameters(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let (unit, _, _) = self.own(emitter, place);
        let guards = self.exist(emitter, &unit, None);
        let mut values = Vec::new();
        for number in 0..self.form.parameters {
            let first = Index::size(self.form.hidden.clone() * Dim::from(number));
            let index = [place.direction.clone(), emitter.space.add(&first, &unit)];
            let (operand, none) = (self.operands[2 + self.form.states], Mask::new());
            let value = emitter.pull_or(b, operand, &index, (&none, &guards), self.zero())?;
            values.push(emitter.spread(b, value));
        }
        Ok(values)
    }

    /// Which step the loop is at, in the order of the sequences.
    fn step_at(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        number: ValueId,
    ) -> Index {
        let last = emitter.size(b, &(&self.form.steps - &Dim::constant(1)));
        let backwards = b.sub(last, number);
        let direction = emitter.index(b, &place.direction);
        let mut step = number;
        for (at, _) in self.form.reverse.iter().enumerate().filter(|(_, reverse)| **reverse) {
            let here = b.binary_with(BinaryFn::Eq, direction, at as i64);
            step = b.select(here, backwards, step);
        }
        Index::var(emitter.iterate(&self.form.steps, Some(step), None))
    }

    /// What comes in at a step for the block's units, gate by gate.
    fn inputs(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        number: ValueId,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let step = self.step_at(emitter, b, place, number);
        let (unit, row, mut guards) = self.own(emitter, place);
        if !emitter.space.is_positive(&self.form.steps) {
            let bound = Index::size(self.form.steps.clone());
            guards.insert(Condition::Below { value: Index::size(0i64), bound });
        }
        let gates = Dim::from(self.form.gates);
        let mut values = Vec::new();
        for gate in 0..self.form.gates {
            let gate = Index::size(gate as i64);
            let gate = emitter.space.add(&emitter.space.scale(&place.direction, &gates), &gate);
            let column = emitter.space.scale(&gate, &self.form.hidden);
            let column = emitter.space.add(&column, &unit);
            let index = [step.clone(), row.clone(), column];
            let (operand, none) = (self.operands[0], Mask::new());
            let value = emitter.pull_or(b, operand, &index, (&none, &guards), self.zero())?;
            values.push(emitter.spread(b, value));
        }
        Ok(values)
    }

    /// One step: the states after it, and what comes in at the next one.
    fn step(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        number: ValueId,
        known: Known<'_>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let count = self.form.phases.len();
        let step = self.step_at(emitter, b, place, number);
        let mut sums = vec![None; self.form.gates];
        for (phase, own) in self.form.phases.iter().enumerate() {
            let parts = self.products(emitter, b, place, (phase, &known.weights[phase]))?;
            self.store_partial(emitter, b, place, parts);
            b.barrier();
            for (at, gate) in own.gates.clone().enumerate() {
                sums[gate] = Some(self.sum(emitter, b, place, (at, own.gates.len())));
            }
            let zero = emitter.full(b, self.zero());
            let sums = sums.iter().map(|sum| sum.unwrap_or(zero));
            let mut args = known.inputs.to_vec();
            args.extend(sums);
            args.extend(known.states.iter().chain(known.parameters));
            let results: Vec<ValueId> =
                own.results.iter().map(|expr| b.evaluate(expr, &args)).collect();
            if phase + 1 < count {
                self.publish(emitter, b, place, (number, phase, &step), results[0])?;
                continue;
            }
            let more = b.add_int(number, 1);
            let last = emitter.size(b, &(&self.form.steps - &Dim::constant(1)));
            let next = b.binary(BinaryFn::Min, more, last);
            self.store_result(emitter, b, place, &step, results[0]);
            let inputs = self.inputs(emitter, b, place, next)?;
            self.publish(emitter, b, place, (number, phase, &step), results[0])?;
            return Ok([results, inputs].concat());
        }
        unreachable!("invariant: a recurrence has a phase")
    }

    /// The parts of the recurrent sums of a phase.
    fn products(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (phase, held): (usize, &Held),
    ) -> Result<ValueId, CodegenError> {
        let tile = self.products_tile(self.form.phases[phase].gates.len());
        emitter.set_tile(&tile);
        let zero = emitter.full(b, self.zero());
        let sums = match held {
            Some(weights) => {
                let mut sums = zero;
                for (round, &weight) in weights.iter().enumerate() {
                    let round = Index::size(round as i64);
                    sums = self.add_products(emitter, b, place, (&round, weight), sums);
                }
                sums
            }
            None => {
                let from = b.int(emitter.index_dtype, 0);
                let to = b.int(emitter.index_dtype, self.rounds.into());
                let bounds = (from, to, 1);
                emitter.for_loop(b, bounds, &[zero], UNROLLED, |emitter, b, round, sums| {
                    let extent = Dim::constant(self.rounds.into());
                    let round = Index::var(emitter.iterate(&extent, Some(round), None));
                    let weight = self.weight(emitter, b, place, (phase, &round))?;
                    Ok(vec![self.add_products(emitter, b, place, (&round, weight), sums[0])])
                })?[0]
            }
        };
        if tile.shape[LANE as usize] == 1 {
            return Ok(sums);
        }
        let sum = ScalarExpr::arg(0) + ScalarExpr::arg(1);
        Ok(b.reduce(LANE, &[sums], &[sum])[0])
    }

    /// Adds the products of a round; the tile of products is set.
    fn add_products(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (round, weight): (&Index, ValueId),
        sums: ValueId,
    ) -> ValueId {
        let position = self.position(emitter, round);
        let position = emitter.space.scale(&position, &Dim::constant(self.batch.into()));
        let offset = self.along(emitter, &position, ROW);
        let offset = emitter.index(b, &offset);
        let state = b.load(place.state, offset, None, 1);
        let (weight, state) = (emitter.spread(b, weight), emitter.spread(b, state));
        b.fma(weight, state, sums)
    }

    /// Writes the parts of sums to shared memory; the tile of products is set.
    fn store_partial(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        parts: ValueId,
    ) {
        let none = Index::size(0i64);
        let index = [WARP, GATE, ROW, UNIT].map(|dim| self.along(emitter, &none, dim));
        let shape = &emitter.tile().shape;
        let sizes = [WARP, GATE, ROW, UNIT].map(|dim| Dim::constant(shape[dim as usize].into()));
        let offset = emitter.space.linearize(&index, &sizes);
        let offset = emitter.index(b, &offset);
        let tile = emitter.tile().dropped(LANE);
        let (offset, parts) = (b.broadcast(offset, &tile), b.broadcast(parts, &tile));
        b.store(place.partial, offset, parts, None, 1);
    }

    /// The recurrent sum of a gate of the current phase for the block's units; sets their tile.
    fn sum(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (gate, gates): (usize, usize),
    ) -> ValueId {
        emitter.set_tile(&self.units_tile);
        let none = Index::size(0i64);
        let (unit, row) = (self.along(emitter, &none, 0), self.along(emitter, &none, 1));
        let sizes = [self.lanes[2], gates as u32, self.batch, self.units];
        let sizes = sizes.map(|size| Dim::constant(size.into()));
        let mut sum: Option<ValueId> = None;
        for warp in 0..self.lanes[2] {
            let index =
                [Index::size(i64::from(warp)), Index::size(gate as i64), row.clone(), unit.clone()];
            let offset = emitter.space.linearize(&index, &sizes);
            let offset = emitter.index(b, &offset);
            let part = b.load(place.partial, offset, None, 1);
            let part = emitter.spread(b, part);
            sum = Some(sum.map_or(part, |sum| b.add(sum, part)));
        }
        sum.expect("invariant: a block has a warp")
    }

    /// Writes a state of the block's units to the result.
    fn store_result(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        step: &Index,
        value: ValueId,
    ) {
        let (unit, row, guards) = self.own(emitter, place);
        let index = vec![step.clone(), row, place.direction.clone(), unit];
        let offset = emitter.output_offset(0, &index);
        let memory = emitter.array(b, Array::Output(0));
        emitter.store(b, memory, &offset, value, &guards);
    }

    /// Brings what the group's blocks publish after a phase into the shared memory of each. After the last
    /// phase that is the hidden state, which is in the result already.
    fn publish(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (number, phase, step): (ValueId, usize, &Index),
        value: ValueId,
    ) -> Result<(), CodegenError> {
        if self.blocks == 1 {
            self.keep(emitter, b, place, value);
            b.barrier();
            return Ok(());
        }
        if self.is_tagged() {
            self.exchange(emitter, b, place, (number, phase), value);
            return Ok(());
        }
        let is_last = phase + 1 == self.form.phases.len();
        let memory = if is_last { Array::Output(0) } else { Array::WorkspaceOut(1, self.dtype) };
        let memory = emitter.array(b, memory);
        if !is_last {
            let (unit, _, _) = self.own(emitter, place);
            let guards = self.exist(emitter, &unit, None);
            let offset = self.exchange_place(emitter, place, (number, phase), unit);
            emitter.store(b, memory, &offset, value, &guards);
        }
        self.meet(emitter, b, place, (number, phase));

        emitter.set_tile(&self.state_tile);
        let position = self.along(emitter, &Index::size(0i64), 0);
        let row = self.along(emitter, &place.row, 1);
        let (offset, guards) = if is_last {
            let guards = self.exist(emitter, &position, Some(&row));
            let index = vec![step.clone(), row, place.direction.clone(), position];
            (emitter.output_offset(0, &index), guards)
        } else {
            let guards = self.exist(emitter, &position, None);
            (self.exchange_place(emitter, place, (number, phase), position), guards)
        };
        let value = emitter.load(b, memory, &offset, &guards, self.zero());
        self.fill(emitter, b, place, value);
        b.barrier();
        Ok(())
    }

    /// Where a unit's number of the current tile's sequences lies in the workspace of exchanged numbers.
    fn exchange_place(
        &self,
        emitter: &mut Emitter<'_>,
        place: &Place,
        (number, phase): (ValueId, usize),
        unit: Index,
    ) -> Index {
        let row = self.along(emitter, &Index::size(0i64), 1);
        let number = Index::var(emitter.iterate(&self.form.steps, Some(number), None));
        let parity = emitter.space.modulo(&number, &Dim::constant(2));
        let index = [Index::size(phase as i64), parity, place.group.clone(), row, unit];
        emitter.space.linearize(&index, &self.exchanged())
    }

    /// Exchanges what a phase publishes, each number with the step as its tag. Those of even and of odd steps
    /// have places of their own: who sends in a step has all numbers of the step before, so that all blocks
    /// have read those before.
    fn exchange(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (number, phase): (ValueId, usize),
        value: ValueId,
    ) {
        let memory = emitter.array(b, Array::WorkspaceOut(1, DType::I64));
        let tag = b.cast(DType::I32, number);
        let tag = b.add_int(tag, 1);
        let (unit, _, _) = self.own(emitter, place);
        let guards = self.exist(emitter, &unit, None);
        let mask = emitter.mask(b, &guards);
        let mask = mask.map(|mask| emitter.spread(b, mask));
        let offset = self.exchange_place(emitter, place, (number, phase), unit);
        let offset = emitter.index(b, &offset);
        let offset = emitter.spread(b, offset);
        b.send(memory, offset, (value, tag), mask);
        // A block's own numbers are there before it waits, for its threads may run one after another.
        b.barrier();

        emitter.set_tile(&self.state_tile);
        let position = self.along(emitter, &Index::size(0i64), 0);
        let guards = self.exist(emitter, &position, None);
        let mask = emitter.mask(b, &guards);
        let mask = mask.map(|mask| (emitter.spread(b, mask), self.zero()));
        let offset = self.exchange_place(emitter, place, (number, phase), position);
        let offset = emitter.index(b, &offset);
        let offset = emitter.spread(b, offset);
        let value = b.receive(memory, offset, tag, mask);
        self.fill(emitter, b, place, value);
        b.barrier();
    }

    /// Writes what the only block of a group publishes to its shared memory.
    fn keep(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        value: ValueId,
    ) {
        emitter.set_tile(&self.units_tile);
        let none = Index::size(0i64);
        let unit = self.along(emitter, &none, 0);
        let first = emitter.space.scale(&unit, &Dim::constant(self.batch.into()));
        let offset = self.along(emitter, &first, 1);
        emitter.store(b, place.state, &offset, value, &Mask::new());
    }

    /// Waits for the group's blocks.
    fn meet(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: &Place,
        (number, phase): (ValueId, usize),
    ) {
        let phases = Dim::from(self.form.phases.len());
        let number = Index::var(emitter.iterate(&self.form.steps, Some(number), None));
        let space = &emitter.space;
        let counter = space.scale(&place.group, &self.form.steps);
        let counter = space.scale(&space.add(&counter, &number), &phases);
        let counter = space.add(&counter, &Index::size(1 + phase as i64));
        let counter = emitter.index(b, &counter);
        let counters = emitter.array(b, Array::WorkspaceOut(0, DType::I32));
        b.meet(counters, counter, self.blocks);
    }
}

/// What a step begins with.
#[derive(Clone, Copy)]
struct Known<'k> {
    states: &'k [ValueId],
    inputs: &'k [ValueId],
    parameters: &'k [ValueId],
    weights: &'k [Held],
}
