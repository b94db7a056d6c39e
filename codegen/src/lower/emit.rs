//! The state of one kernel under construction: arrays, sizes, iteration variables and index values.

use std::collections::BTreeMap;

use fornax_ir::{BinaryFn, DType, Dim, DimRange, NodeId, Scalar, Type};

use super::index::{Condition, Index, IndexSpace, Mask, Term, Var};
use super::site::Site;
use super::{Arg, CodegenError, Launch};
use crate::kernel::{Kernel, KernelBuilder, Layout, Memory, Ty, ValueId};

/// Index values stay this far below 2^31, so that what threads beyond the extents compute (at most a
/// tile further) does not wrap either.
const NARROW: i64 = (1 << 31) - (1 << 20);

/// An array that a kernel gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Array {
    /// An operand of the region.
    Operand(usize),
    /// A result of the region.
    Output(usize),
    /// A workspace that the kernel reads.
    WorkspaceIn(usize, DType),
    /// A workspace that the kernel writes.
    WorkspaceOut(usize, DType),
}

/// How a variable's value is computed in the kernel.
#[derive(Debug, Clone, Copy)]
enum VarValue {
    /// A scalar, plus the coordinate along a dimension of the tile.
    Iteration { base: Option<ValueId>, dim: Option<u32> },
    /// A value that is there already.
    Known(ValueId),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Index(Index),
    Condition(Condition),
    Node(NodeId, Vec<Index>, Mask),
    /// A node with a number where the mask does not hold.
    Filled(NodeId, Vec<Index>, Mask, Scalar),
}

/// The kernel's state beside the [`KernelBuilder`], which is passed along because loops are built by
/// closures over it.
#[derive(Debug)]
pub(super) struct Emitter<'a> {
    pub site: &'a Site<'a>,
    pub space: IndexSpace<'a>,
    pub index_dtype: DType,
    tile: Layout,
    /// Whether 32-bit indices have turned out too narrow.
    overflows: bool,
    vars: BTreeMap<Var, VarValue>,
    loaded: BTreeMap<ValueId, Var>,
    arrays: BTreeMap<Array, Memory>,
    sizes: BTreeMap<Dim, u32>,
    args: Vec<Arg>,
    anchors: BTreeMap<NodeId, (Vec<Index>, ValueId)>,
    scopes: Vec<BTreeMap<Key, ValueId>>,
}

/// Builds a kernel and its launch. `body` gives the grid and is run again with 64-bit indices when
/// 32 bits do not hold all of them.
pub(super) fn build_kernel<'a>(
    site: &'a Site<'a>,
    name: &str,
    threads: u32,
    body: impl Fn(&mut Emitter<'a>, &mut KernelBuilder) -> Result<Dim, CodegenError>,
) -> Result<(Kernel, Launch), CodegenError> {
    let attempt = |index_dtype| {
        let mut builder = KernelBuilder::new(name, threads);
        let mut emitter = Emitter::new(site, index_dtype);
        let blocks = body(&mut emitter, &mut builder)?;
        Ok((emitter, builder, blocks))
    };
    let (mut emitter, mut builder, mut blocks) = attempt(DType::I32)?;
    if emitter.overflows {
        (emitter, builder, blocks) = attempt(DType::I64)?;
    }
    let mut kernel = builder.finish();
    crate::vectorize::vectorize(&mut kernel);
    let one = Dim::constant(1);
    let launch = Launch {
        kernel: 0,
        grid: [blocks, one.clone(), one],
        args: emitter.args,
        bytes: Dim::constant(0),
        flops: Dim::constant(0),
        prepared: false,
    };
    Ok((kernel, launch))
}

impl<'a> Emitter<'a> {
    fn new(site: &'a Site<'a>, index_dtype: DType) -> Emitter<'a> {
        Emitter {
            site,
            space: IndexSpace::new(site.dims),
            index_dtype,
            tile: Layout { shape: Vec::new(), registers: Vec::new(), threads: Vec::new() },
            overflows: false,
            vars: BTreeMap::new(),
            loaded: BTreeMap::new(),
            arrays: BTreeMap::new(),
            sizes: BTreeMap::new(),
            args: Vec::new(),
            anchors: BTreeMap::new(),
            scopes: vec![BTreeMap::new()],
        }
    }

    /// The tile that values are computed over from now on. Each value has this layout with the
    /// dimensions dropped that it does not depend on.
    pub fn set_tile(&mut self, tile: &Layout) {
        self.tile = tile.clone();
    }

    /// The tile that values are computed over.
    pub fn tile(&self) -> &Layout {
        &self.tile
    }

    /// What an anchor has computed at an index.
    pub fn bind_anchor(&mut self, node: NodeId, index: &[Index], value: ValueId) {
        self.anchors.insert(node, (index.to_vec(), value));
    }

    /// What [`Emitter::bind_anchor`] has bound to a node.
    pub fn bound(&self, node: NodeId) -> Option<&(Vec<Index>, ValueId)> {
        self.anchors.get(&node)
    }

    /// An iteration variable in `0..extent`: `base` plus the coordinate along `dim` of the tile.
    pub fn iterate(&mut self, extent: &Dim, base: Option<ValueId>, dim: Option<u32>) -> Var {
        self.check_bound(extent.bounds(self.site.dims).1);
        let var = self.space.add_var(extent);
        self.vars.insert(var, VarValue::Iteration { base, dim });
        var
    }

    /// The index that a scalar of the index type stands for, of which no bounds are known; `decides`:
    /// indices whose validity it decides about.
    pub fn known(&mut self, value: ValueId, decides: &[Index]) -> Index {
        let var = self.space.add_dependent(decides);
        self.vars.insert(var, VarValue::Known(value));
        Index::var(var)
    }

    /// The index that an integer value, loaded from a place that depends on `at`, stands for.
    pub fn loaded_index(&mut self, b: &mut KernelBuilder, value: ValueId, at: &[Index]) -> Index {
        if let Some(&var) = self.loaded.get(&value) {
            return Index::var(var);
        }
        let var = self.space.add_dependent(at);
        let index = self.to_index_dtype(b, value);
        self.vars.insert(var, VarValue::Known(index));
        self.loaded.insert(value, var);
        Index::var(var)
    }

    /// Converts to the index type; what it cannot hold becomes its ends, which no axis reaches.
    fn to_index_dtype(&self, b: &mut KernelBuilder, value: ValueId) -> ValueId {
        let dtype = b.ty(value).dtype();
        if dtype.size() <= self.index_dtype.size() && dtype.is_signed_int() {
            return b.cast(self.index_dtype, value);
        }
        let mut value = value;
        let most = if self.index_dtype == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        if dtype.size() >= self.index_dtype.size() {
            value = b.binary_with(BinaryFn::Min, value, most);
        }
        if dtype.is_signed_int() {
            value = b.binary_with(BinaryFn::Max, value, -most);
        }
        b.cast(self.index_dtype, value)
    }

    /// The block's number in the grid.
    pub fn block(&mut self, b: &mut KernelBuilder) -> ValueId {
        let block = b.block_index(0);
        b.cast(self.index_dtype, block)
    }

    fn check_bound(&mut self, most: i64) {
        self.overflows |= self.index_dtype == DType::I32 && most >= NARROW;
    }

    /// A size as a scalar of the index type: a constant, or a parameter that the launch computes.
    pub fn size(&mut self, b: &mut KernelBuilder, size: &Dim) -> ValueId {
        let (min, max) = size.bounds(self.site.dims);
        self.check_bound(max.max(min.saturating_neg()));
        if let Some(constant) = size.as_const() {
            return b.int(self.index_dtype, constant);
        }
        if let Some(&param) = self.sizes.get(size) {
            return b.param(param);
        }
        let divisor = size.divisor(self.site.dims);
        let name = format!("n{}", self.sizes.len());
        let value = b.scalar(name, self.index_dtype, DimRange { min, max, divisor });
        self.sizes.insert(size.clone(), b.kernel().params.len() as u32 - 1);
        self.args.push(Arg::Scalar(size.clone()));
        value
    }

    /// The memory of an array; it becomes a parameter on first use.
    pub fn array(&mut self, b: &mut KernelBuilder, array: Array) -> Memory {
        if let Some(&memory) = self.arrays.get(&array) {
            return memory;
        }
        let of_type = |b: &mut KernelBuilder, name: String, ty: &Type, written: bool| {
            b.global_of(name, ty.dtype, written, ty.shape.elements().divisor(self.site.dims))
        };
        let (memory, arg) = match array {
            Array::Operand(i) => {
                let ty = self.site.operand_type(i);
                (of_type(b, format!("x{i}"), ty, false), Arg::Operand(i))
            }
            Array::Output(i) => {
                let mut ty = self.site.output_type(i).clone();
                if let Some(part) = self.site.region.parts.get(&i) {
                    ty.shape = part.whole.clone();
                }
                (of_type(b, format!("y{i}"), &ty, true), Arg::Output(i))
            }
            Array::WorkspaceIn(i, dtype) => {
                (b.global(format!("w{i}"), dtype, false), Arg::Workspace(i))
            }
            Array::WorkspaceOut(i, dtype) => {
                (b.global(format!("w{i}"), dtype, true), Arg::Workspace(i))
            }
        };
        self.arrays.insert(array, memory);
        self.args.push(arg);
        memory
    }

    /// The smallest layout over the tile that all values can be repeated to; none for scalars only.
    fn joined(&self, b: &KernelBuilder, values: &[ValueId]) -> Option<Layout> {
        let layouts: Vec<&Layout> = values.iter().filter_map(|&v| b.ty(v).layout()).collect();
        let first = layouts.first()?;
        if layouts.iter().all(|layout| layout == first) {
            return Some((*first).clone());
        }
        let dropped = (0..self.tile.shape.len() as u32)
            .filter(|&dim| layouts.iter().all(|layout| layout.shape[dim as usize] == 1));
        Some(dropped.fold(self.tile.clone(), |layout, dim| layout.dropped(dim)))
    }

    /// Repeats values to the smallest layout that holds all of them.
    pub fn unified(&self, b: &mut KernelBuilder, values: &[ValueId]) -> Vec<ValueId> {
        match self.joined(b, values) {
            Some(layout) => values.iter().map(|&value| b.broadcast(value, &layout)).collect(),
            None => values.to_vec(),
        }
    }

    /// A function of two values.
    pub fn binary(
        &self,
        b: &mut KernelBuilder,
        function: BinaryFn,
        x: ValueId,
        y: ValueId,
    ) -> ValueId {
        let xy = self.unified(b, &[x, y]);
        b.binary(function, xy[0], xy[1])
    }

    /// `then` where `condition` holds, else a number.
    pub fn select_or(
        &self,
        b: &mut KernelBuilder,
        condition: ValueId,
        then: ValueId,
        otherwise: Scalar,
    ) -> ValueId {
        let otherwise = b.constant(otherwise);
        let all = self.unified(b, &[condition, then, otherwise]);
        b.select(all[0], all[1], all[2])
    }

    /// Folds values with a function, those with the fewest dimensions first.
    fn folded(
        &self,
        b: &mut KernelBuilder,
        function: BinaryFn,
        mut values: Vec<ValueId>,
    ) -> Option<ValueId> {
        let extent = |b: &KernelBuilder, value: ValueId| {
            b.ty(value).layout().map_or(0, |layout| layout.shape.iter().product::<u32>())
        };
        values.sort_by_key(|&value| extent(b, value));
        values.into_iter().reduce(|sum, value| self.binary(b, function, sum, value))
    }

    fn cached(&self, key: &Key) -> Option<ValueId> {
        self.scopes.iter().rev().find_map(|scope| scope.get(key)).copied()
    }

    fn remember(&mut self, key: Key, value: ValueId) -> ValueId {
        self.scopes.last_mut().expect("invariant: one scope is open").insert(key, value);
        value
    }

    /// What `compute` gives for a node at an index, computed once per block.
    pub fn once_per_node(
        &mut self,
        b: &mut KernelBuilder,
        (node, index, mask): (NodeId, &[Index], &Mask),
        compute: impl FnOnce(&mut Self, &mut KernelBuilder) -> Result<ValueId, CodegenError>,
    ) -> Result<ValueId, CodegenError> {
        let key = Key::Node(node, index.to_vec(), mask.clone());
        if let Some(value) = self.cached(&key) {
            return Ok(value);
        }
        let value = compute(self, b)?;
        Ok(self.remember(key, value))
    }

    /// As [`Emitter::once_per_node`], for a value that is `fill` where the mask does not hold.
    pub fn once_per_fill(
        &mut self,
        b: &mut KernelBuilder,
        (node, index, mask): (NodeId, &[Index], &Mask),
        fill: Scalar,
        compute: impl FnOnce(&mut Self, &mut KernelBuilder) -> Result<ValueId, CodegenError>,
    ) -> Result<ValueId, CodegenError> {
        let key = Key::Filled(node, index.to_vec(), mask.clone(), fill);
        if let Some(value) = self.cached(&key) {
            return Ok(value);
        }
        let value = compute(self, b)?;
        Ok(self.remember(key, value))
    }

    /// The value of an index, in the index type.
    pub fn index(&mut self, b: &mut KernelBuilder, index: &Index) -> ValueId {
        if let Some(size) = index.as_size() {
            return self.size(b, size);
        }
        let key = Key::Index(index.clone());
        if let Some(value) = self.cached(&key) {
            return value;
        }
        let (low, high) = self.space.bounds(index);
        let low = low.map_or(0, |low| low.bounds(self.site.dims).0);
        let high = high.map_or(0, |high| high.bounds(self.site.dims).1);
        self.check_bound(high.max(low.saturating_neg()));
        let mut values = Vec::new();
        for (term, coefficient) in index.terms() {
            let value = self.term(b, term);
            let coefficient = self.size(b, coefficient);
            values.push(self.binary(b, BinaryFn::Mul, value, coefficient));
        }
        if !index.constant().is(0) {
            values.push(self.size(b, index.constant()));
        }
        let sum = self
            .folded(b, BinaryFn::Add, values)
            .expect("invariant: an index without terms is a size");
        self.remember(key, sum)
    }

    fn term(&mut self, b: &mut KernelBuilder, term: &Term) -> ValueId {
        match term {
            Term::Var(var) => self.var(b, *var),
            Term::FloorDiv(x, by) if self.space.at_least(x, &Dim::constant(0)) => {
                self.unsigned(b, BinaryFn::Div, x, by)
            }
            Term::FloorDiv(x, by) => {
                let (x, by) = (self.index(b, x), self.size(b, by));
                let rest = self.binary(b, BinaryFn::Mod, x, by);
                let exact = self.binary(b, BinaryFn::Sub, x, rest);
                self.binary(b, BinaryFn::Div, exact, by)
            }
            Term::Mod(x, by) if self.space.at_least(x, &Dim::constant(0)) => {
                self.unsigned(b, BinaryFn::Rem, x, by)
            }
            Term::Mod(x, by) => {
                let (x, by) = (self.index(b, x), self.size(b, by));
                self.binary(b, BinaryFn::Mod, x, by)
            }
            Term::Min(x, y) => {
                let (x, y) = (self.index(b, x), self.index(b, y));
                self.binary(b, BinaryFn::Min, x, y)
            }
            Term::Max(x, y) => {
                let (x, y) = (self.index(b, x), self.index(b, y));
                self.binary(b, BinaryFn::Max, x, y)
            }
        }
    }

    /// A function of numbers that are not negative, as unsigned ones: without the corrections that
    /// rounding towards zero needs.
    fn unsigned(
        &mut self,
        b: &mut KernelBuilder,
        function: BinaryFn,
        x: &Index,
        by: &Dim,
    ) -> ValueId {
        let (x, by) = (self.index(b, x), self.size(b, by));
        let (x, by) = (b.cast(self.unsigned_dtype(), x), b.cast(self.unsigned_dtype(), by));
        let value = self.binary(b, function, x, by);
        b.cast(self.index_dtype, value)
    }

    fn unsigned_dtype(&self) -> DType {
        if self.index_dtype == DType::I32 { DType::U32 } else { DType::U64 }
    }

    fn var(&mut self, b: &mut KernelBuilder, var: Var) -> ValueId {
        match self.vars[&var] {
            VarValue::Known(value) => value,
            VarValue::Iteration { base, dim } => {
                let coordinate = dim.map(|dim| {
                    let others = (0..self.tile.shape.len() as u32).filter(|&other| other != dim);
                    let along = others.fold(self.tile.clone(), |tile, other| tile.dropped(other));
                    let coordinate = b.coordinate(&along, dim);
                    b.cast(self.index_dtype, coordinate)
                });
                match (base, coordinate) {
                    (Some(base), Some(coordinate)) => b.add(base, coordinate),
                    (Some(value), None) | (None, Some(value)) => value,
                    (None, None) => b.int(self.index_dtype, 0),
                }
            }
        }
    }

    /// Whether a condition holds, as bool.
    fn condition(&mut self, b: &mut KernelBuilder, condition: &Condition) -> ValueId {
        let key = Key::Condition(condition.clone());
        if let Some(value) = self.cached(&key) {
            return value;
        }
        let holds = match condition {
            Condition::Within { value, low: Some(low), high: Some(high) }
                if self.space.is_nonnegative(&(high - low)) =>
            {
                let value = self.index(b, value);
                // One unsigned comparison: what is below `low` wraps to a large number.
                let offset = self.size(b, &-low);
                let value = self.binary(b, BinaryFn::Add, value, offset);
                let count = self.size(b, &(high - low));
                let unsigned = self.unsigned_dtype();
                let (value, count) = (b.cast(unsigned, value), b.cast(unsigned, count));
                self.binary(b, BinaryFn::Lt, value, count)
            }
            Condition::Below { value, bound } => {
                let (value, bound) = (self.index(b, value), self.index(b, bound));
                self.binary(b, BinaryFn::Lt, value, bound)
            }
            Condition::Within { value, low, high } => {
                let value = self.index(b, value);
                let mut sides = Vec::new();
                if let Some(low) = low {
                    let low = self.size(b, low);
                    sides.push(self.binary(b, BinaryFn::Le, low, value));
                }
                if let Some(high) = high {
                    let high = self.size(b, high);
                    sides.push(self.binary(b, BinaryFn::Lt, value, high));
                }
                self.folded(b, BinaryFn::And, sides)
                    .expect("invariant: a condition has a side that may fail")
            }
            Condition::Divisible { value, divisor } => {
                let rest = self.space.modulo(value, divisor);
                let rest = self.index(b, &rest);
                b.binary_with(BinaryFn::Eq, rest, 0)
            }
        };
        self.remember(key, holds)
    }

    /// Whether all conditions of a mask hold, as bool; none for an empty mask.
    pub fn mask(&mut self, b: &mut KernelBuilder, mask: &Mask) -> Option<ValueId> {
        let values = mask.iter().map(|condition| self.condition(b, condition)).collect();
        self.folded(b, BinaryFn::And, values)
    }

    /// Reads elements of an array at an offset, where the conditions that decide about the offset hold;
    /// elsewhere the value is `fill`.
    pub fn load(
        &mut self,
        b: &mut KernelBuilder,
        memory: Memory,
        offset: &Index,
        mask: &Mask,
        fill: Scalar,
    ) -> ValueId {
        let mask = self.space.relevant(mask, offset);
        let mask = self.mask(b, &mask);
        let offset = self.index(b, offset);
        match mask {
            Some(mask) => {
                let both = self.unified(b, &[offset, mask]);
                b.load(memory, both[0], Some((both[1], fill)), 1)
            }
            None => b.load(memory, offset, None, 1),
        }
    }

    /// Writes a value to an array at an offset, where a mask holds.
    pub fn store(
        &mut self,
        b: &mut KernelBuilder,
        memory: Memory,
        offset: &Index,
        value: ValueId,
        mask: &Mask,
    ) {
        let mask = self.mask(b, mask);
        let offset = self.index(b, offset);
        let tile = self.tile.clone();
        let offset = b.broadcast(offset, &tile);
        let value = b.broadcast(value, &tile);
        let mask = mask.map(|mask| b.broadcast(mask, &tile));
        b.store(memory, offset, value, mask, 1);
    }

    /// Begins to copy elements of an array to shared memory, zeros where a mask does not hold; nothing where
    /// the second one does not.
    pub fn copy(
        &mut self,
        b: &mut KernelBuilder,
        to: (Memory, ValueId),
        (memory, offset): (Memory, &Index),
        (mask, active): (&Mask, Option<&Mask>),
    ) {
        let masks = [Some(mask), active].map(|mask| self.mask(b, mask?));
        let offset = self.index(b, offset);
        let tile = self.tile.clone();
        let offset = b.broadcast(offset, &tile);
        let masks = masks.map(|mask| Some(b.broadcast(mask?, &tile)));
        b.copy(to, (memory, offset), masks, 1);
    }

    /// A number in every element of the tile.
    pub fn full(&self, b: &mut KernelBuilder, number: Scalar) -> ValueId {
        b.constant_of(Ty::Fragment(number.dtype(), self.tile.clone()), number)
    }

    /// Repeats a value to the whole tile.
    pub fn spread(&self, b: &mut KernelBuilder, value: ValueId) -> ValueId {
        b.broadcast(value, &self.tile)
    }

    /// A loop; see [`KernelBuilder::for_loop`].
    pub fn for_loop(
        &mut self,
        b: &mut KernelBuilder,
        (from, to, step): (ValueId, ValueId, u32),
        carried: &[ValueId],
        unroll: u32,
        body: impl FnOnce(
            &mut Self,
            &mut KernelBuilder,
            ValueId,
            &[ValueId],
        ) -> Result<Vec<ValueId>, CodegenError>,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let mut failure = None;
        self.scopes.push(BTreeMap::new());
        let results = b.for_loop(from, to, step, carried, unroll, |b, index, args| {
            body(self, b, index, args).unwrap_or_else(|error| {
                failure = Some(error);
                args.to_vec()
            })
        });
        self.scopes.pop();
        failure.map_or(Ok(results), Err)
    }

    /// Code that runs where a condition holds that is the same in all threads of the block.
    pub fn if_uniform(
        &mut self,
        b: &mut KernelBuilder,
        condition: ValueId,
        body: impl FnOnce(&mut Self, &mut KernelBuilder) -> Result<(), CodegenError>,
    ) -> Result<(), CodegenError> {
        let mut result = Ok(());
        self.scopes.push(BTreeMap::new());
        b.if_(condition, true, |b| result = body(self, b));
        self.scopes.pop();
        result
    }
}
