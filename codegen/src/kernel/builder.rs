//! Building kernels.

use std::collections::{BTreeMap, HashMap};

use fornax_bundle::manifest::BUFFER_ALIGN;
use fornax_bundle::{DType, DimRange};
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

use super::fold::{self, Folded};
use super::{
    Block, Instruction, Kernel, Layout, Memory, MmaTile, Param, Places, Shared, Statement, Ty,
    ValueId, WgmmaTile,
};

/// Builds a [`Kernel`] statement by statement.
///
/// Where an instruction takes a scalar together with fragments, the scalar is splatted. Known integers
/// are folded, an instruction that stands already in this block or one around it is used again, and
/// what is computed from splatted scalars alone is computed on the scalars.
///
/// # Panics
/// Methods panic when operands do not fit together: that is a fault of the lowering that calls them.
#[derive(Debug)]
pub struct KernelBuilder {
    kernel: Kernel,
    scopes: Vec<Scope>,
    numbers: BTreeMap<ValueId, Scalar>,
    splats: BTreeMap<ValueId, ValueId>,
}

/// An open block: its statements and the pure instructions among them.
#[derive(Debug, Default)]
struct Scope {
    statements: Vec<Statement>,
    known: HashMap<(Instruction, Ty), ValueId>,
}

impl KernelBuilder {
    /// A kernel without parameters and statements.
    pub fn new(name: impl Into<String>, threads: u32) -> KernelBuilder {
        KernelBuilder {
            kernel: Kernel {
                name: name.into(),
                threads,
                resident: 1,
                params: Vec::new(),
                shared: Vec::new(),
                body: Block::default(),
                values: Vec::new(),
            },
            scopes: vec![Scope::default()],
            numbers: BTreeMap::new(),
            splats: BTreeMap::new(),
        }
    }

    /// Asks for several blocks on a multiprocessor: see [`Kernel::resident`].
    pub fn set_resident(&mut self, blocks: u32) {
        self.kernel.resident = blocks;
    }

    /// The kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.close();
        assert!(self.scopes.is_empty(), "invariant: blocks are closed where they are opened");
        self.kernel
    }

    /// Adds an array in global memory as the next parameter.
    pub fn global(&mut self, name: impl Into<String>, dtype: DType, written: bool) -> Memory {
        self.global_of(name, dtype, written, 1)
    }

    /// As [`KernelBuilder::global`], of a number of elements that is a multiple of `elements`.
    pub fn global_of(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        written: bool,
        elements: i64,
    ) -> Memory {
        let name = name.into();
        // A size of 0 is a multiple of everything.
        let power = elements.trailing_zeros().min(BUFFER_ALIGN.trailing_zeros());
        let multiple = ((dtype.size() as u32) << power).min(BUFFER_ALIGN as u32);
        self.kernel.params.push(Param::Global { name, dtype, written, multiple });
        Memory::Global(self.kernel.params.len() as u32 - 1)
    }

    /// Adds a number (`i32` or `i64`) as the next parameter, and gives its value.
    pub fn scalar(&mut self, name: impl Into<String>, dtype: DType, range: DimRange) -> ValueId {
        self.kernel.params.push(Param::Scalar { name: name.into(), dtype, range });
        self.param(self.kernel.params.len() as u32 - 1)
    }

    /// Adds an array of `len` elements in shared memory.
    pub fn shared(&mut self, name: impl Into<String>, dtype: DType, len: u32) -> Memory {
        self.kernel.shared.push(Shared { name: name.into(), dtype, len, swizzled: false });
        Memory::Shared(self.kernel.shared.len() as u32 - 1)
    }

    /// As [`KernelBuilder::shared`], swizzled: see [`Shared::swizzled`].
    pub fn swizzled(&mut self, name: impl Into<String>, dtype: DType, len: u32) -> Memory {
        self.kernel.shared.push(Shared { name: name.into(), dtype, len, swizzled: true });
        Memory::Shared(self.kernel.shared.len() as u32 - 1)
    }

    /// The kernel as far as it is built: parameters, shared arrays and value types, not yet the code.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &Ty {
        &self.kernel.values[value.0 as usize]
    }

    /// The number that a value is in every element, if that is known.
    pub fn number(&self, value: ValueId) -> Option<Scalar> {
        self.numbers.get(&value).copied()
    }

    /// A scalar with a known number.
    pub fn constant(&mut self, number: Scalar) -> ValueId {
        self.constant_of(Ty::Scalar(number.dtype()), number)
    }

    /// A scalar integer (or bool) with a known number.
    pub fn int(&mut self, dtype: DType, number: i64) -> ValueId {
        self.constant(fold::wrap(dtype, number))
    }

    /// A value of type `ty` with a known number in every element.
    pub fn constant_of(&mut self, ty: Ty, number: Scalar) -> ValueId {
        assert_eq!(ty.dtype(), number.dtype(), "invariant: a number's type is the constant's");
        let value = self.pure(Instruction::Constant(number), ty);
        self.numbers.insert(value, number);
        value
    }

    /// The value of the scalar parameter at `index`.
    pub fn param(&mut self, index: u32) -> ValueId {
        let ty = match &self.kernel.params[index as usize] {
            Param::Scalar { dtype, .. } => Ty::Scalar(*dtype),
            Param::Global { name, .. } => panic!("invariant: parameter {name} is no scalar"),
        };
        self.pure(Instruction::Param(index), ty)
    }

    /// The block's position in the grid along an axis (0 to 2), an `i32`.
    pub fn block_index(&mut self, axis: u32) -> ValueId {
        self.pure(Instruction::BlockIndex(axis), Ty::Scalar(DType::I32))
    }

    /// Each element's coordinate along a dimension of a tile, an `i32` fragment.
    pub fn coordinate(&mut self, layout: &Layout, dim: u32) -> ValueId {
        let ty = Ty::Fragment(DType::I32, layout.clone());
        if layout.shape[dim as usize] == 1 {
            return self.constant_of(ty, Scalar::Int(DType::I32, 0));
        }
        self.pure(Instruction::Coordinate(dim), ty)
    }

    /// Each element's number from a table: see [`Instruction::Lookup`].
    pub fn lookup(&mut self, layout: &Layout, dim: u32, table: &[i32]) -> ValueId {
        let ty = Ty::Fragment(DType::I32, layout.clone());
        self.pure(Instruction::Lookup { dim, table: table.to_vec() }, ty)
    }

    /// A scalar in every element of a fragment; a fragment of that layout stays as it is.
    pub fn splat(&mut self, value: ValueId, layout: &Layout) -> ValueId {
        if let Some(found) = self.ty(value).layout() {
            assert_eq!(found, layout, "invariant: a fragment is not laid out anew by a splat");
            return value;
        }
        let ty = Ty::Fragment(self.ty(value).dtype(), layout.clone());
        if let Some(number) = self.number(value) {
            return self.constant_of(ty, number);
        }
        let fragment = self.pure(Instruction::Splat(value), ty);
        self.splats.insert(fragment, value);
        fragment
    }

    /// A fragment with size 1 in some dimensions, or a scalar, repeated to `layout`.
    pub fn broadcast(&mut self, value: ValueId, layout: &Layout) -> ValueId {
        let from = match self.ty(value).layout() {
            None => return self.splat(value, layout),
            Some(from) if from == layout => return value,
            Some(from) => from.clone(),
        };
        assert!(
            from.broadcasts_to(layout),
            "invariant: {from:?} is {layout:?} with dimensions dropped"
        );
        if let Some(scalar) = self.scalar_of(value) {
            return self.splat(scalar, layout);
        }
        let ty = Ty::Fragment(self.ty(value).dtype(), layout.clone());
        self.pure(Instruction::Broadcast(value), ty)
    }

    /// A function of each element.
    pub fn unary(&mut self, function: UnaryFn, x: ValueId) -> ValueId {
        let ty = match function {
            UnaryFn::IsNan | UnaryFn::IsInf => self.ty(x).with_dtype(DType::Bool),
            _ => self.ty(x).clone(),
        };
        if let Some(number) = self.number(x).and_then(|x| fold::unary(function, x)) {
            return self.constant_of(ty, number);
        }
        self.on_scalars(&[x], |b, x| b.unary(function, x[0]))
            .unwrap_or_else(|| self.pure(Instruction::Unary(function, x), ty))
    }

    /// A function of two elements of one type.
    pub fn binary(&mut self, function: BinaryFn, a: ValueId, b: ValueId) -> ValueId {
        let [a, b] = self.alike([a, b]);
        assert_eq!(self.ty(a), self.ty(b), "invariant: operands of {function:?} have one type");
        let ty = match function {
            BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le => self.ty(a).with_dtype(DType::Bool),
            _ => self.ty(a).clone(),
        };
        match fold::binary(function, self.number(a), self.number(b)) {
            Some(Folded::Number(number)) => return self.constant_of(ty, number),
            Some(Folded::Left) => return a,
            Some(Folded::Right) => return b,
            None => {}
        }
        self.on_scalars(&[a, b], |builder, x| builder.binary(function, x[0], x[1]))
            .unwrap_or_else(|| self.pure(Instruction::Binary(function, a, b), ty))
    }

    /// `a + b`
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFn::Add, a, b)
    }

    /// `a - b`
    pub fn sub(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFn::Sub, a, b)
    }

    /// `a * b`
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFn::Mul, a, b)
    }

    /// `a < b`
    pub fn lt(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFn::Lt, a, b)
    }

    /// Whether both hold.
    pub fn and(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFn::And, a, b)
    }

    /// `a` combined with a number of its type.
    pub fn binary_with(&mut self, function: BinaryFn, a: ValueId, number: i64) -> ValueId {
        let dtype = self.ty(a).dtype();
        let number = self.int(dtype, number);
        self.binary(function, a, number)
    }

    /// `a + number`, for an integer `a`.
    pub fn add_int(&mut self, a: ValueId, number: i64) -> ValueId {
        self.binary_with(BinaryFn::Add, a, number)
    }

    /// `a * number`, for an integer `a`.
    pub fn mul_int(&mut self, a: ValueId, number: i64) -> ValueId {
        self.binary_with(BinaryFn::Mul, a, number)
    }

    /// `a * b + c`, rounded once.
    pub fn fma(&mut self, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        let [a, b, c] = self.alike([a, b, c]);
        let ty = self.ty(a).clone();
        assert!(
            *self.ty(b) == ty && *self.ty(c) == ty,
            "invariant: operands of a multiply-add have one type"
        );
        self.pure(Instruction::Fma(a, b, c), ty)
    }

    /// `then` where `condition` (bool) is true, else `otherwise`.
    pub fn select(&mut self, condition: ValueId, then: ValueId, otherwise: ValueId) -> ValueId {
        let [condition, then, otherwise] = self.alike([condition, then, otherwise]);
        let ty = self.ty(then).clone();
        assert_eq!(ty, *self.ty(otherwise), "invariant: both choices have one type");
        match self.number(condition) {
            Some(Scalar::Int(_, 0)) => return otherwise,
            Some(_) => return then,
            None => {}
        }
        if then == otherwise {
            return then;
        }
        self.on_scalars(&[condition, then, otherwise], |b, x| b.select(x[0], x[1], x[2]))
            .unwrap_or_else(|| self.pure(Instruction::Select(condition, then, otherwise), ty))
    }

    /// Conversion to another element type, as [`ScalarExpr::Cast`].
    pub fn cast(&mut self, dtype: DType, x: ValueId) -> ValueId {
        if self.ty(x).dtype() == dtype && !matches!(dtype, DType::F16 | DType::BF16) {
            return x;
        }
        let ty = self.ty(x).with_dtype(dtype);
        if let Some(number) = self.number(x).and_then(|x| fold::cast(dtype, x)) {
            return self.constant_of(ty, number);
        }
        self.on_scalars(&[x], |b, x| b.cast(dtype, x[0]))
            .unwrap_or_else(|| self.pure(Instruction::Cast(dtype, x), ty))
    }

    /// Rounding to 11 bits: see [`Instruction::RoundTf32`].
    pub fn round_tf32(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        assert_eq!(ty.dtype(), DType::F32, "invariant: f32 is rounded to tf32");
        self.pure(Instruction::RoundTf32(x), ty)
    }

    /// A fragment with its registers in the order of another layout: see [`Instruction::Reorder`].
    pub fn reorder(&mut self, x: ValueId, layout: &Layout) -> ValueId {
        if self.ty(x).layout() == Some(layout) {
            return x;
        }
        let ty = Ty::Fragment(self.ty(x).dtype(), layout.clone());
        self.pure(Instruction::Reorder(x), ty)
    }

    /// Sums of products on tensor cores: see [`Instruction::Mma`].
    pub fn mma(&mut self, tile: MmaTile, left: ValueId, right: ValueId, sums: ValueId) -> ValueId {
        let ty = self.ty(sums).clone();
        self.push(Instruction::Mma { tile, operands: [left, right, sums] }, vec![ty])[0]
    }

    /// Begins to add products on tensor cores: see [`Instruction::Wgmma`].
    pub fn wgmma(
        &mut self,
        tile: WgmmaTile,
        memory: [Memory; 2],
        offsets: [ValueId; 2],
        sums: ValueId,
    ) -> ValueId {
        let ty = self.ty(sums).clone();
        self.push(Instruction::Wgmma { tile, memory, offsets, sums }, vec![ty])[0]
    }

    /// Begins to add products of left factors in registers: see [`Instruction::WgmmaRegisters`].
    pub fn wgmma_registers(
        &mut self,
        tile: WgmmaTile,
        left: ValueId,
        right: (Memory, ValueId),
        sums: ValueId,
    ) -> ValueId {
        let ty = self.ty(sums).clone();
        self.push(Instruction::WgmmaRegisters { tile, left, right, sums }, vec![ty])[0]
    }

    /// Begins to add products of left factors in plain shared memory: see [`Instruction::WgmmaPlaces`].
    pub fn wgmma_places(
        &mut self,
        tile: WgmmaTile,
        (memory, offset, places): (Memory, ValueId, Places),
        right: (Memory, ValueId),
        sums: ValueId,
    ) -> ValueId {
        let ty = self.ty(sums).clone();
        let left = (memory, offset);
        self.push(Instruction::WgmmaPlaces { tile, left, places, right, sums }, vec![ty])[0]
    }

    /// Waits for all but the latest products: see [`Instruction::WgmmaPending`].
    pub fn wgmma_pending(&mut self, pending: u32) {
        self.push(Instruction::WgmmaPending(pending), vec![]);
    }

    /// The sums when they are there: see [`Instruction::WgmmaWait`].
    pub fn wgmma_wait(&mut self, sums: ValueId) -> ValueId {
        let ty = self.ty(sums).clone();
        self.push(Instruction::WgmmaWait(sums), vec![ty])[0]
    }

    /// Makes writes visible to tensor cores: see [`Instruction::ProxyFence`].
    pub fn proxy_fence(&mut self) {
        self.push(Instruction::ProxyFence, vec![]);
    }

    /// The value of a scalar expression, element by element: a fragment as soon as one argument is.
    pub fn evaluate(&mut self, expr: &ScalarExpr, args: &[ValueId]) -> ValueId {
        let value = self.evaluate_node(expr, args);
        match args.iter().find_map(|&arg| self.ty(arg).layout()) {
            Some(layout) => {
                let layout = layout.clone();
                self.splat(value, &layout)
            }
            None => value,
        }
    }

    fn evaluate_node(&mut self, expr: &ScalarExpr, args: &[ValueId]) -> ValueId {
        match expr {
            ScalarExpr::Arg(index) => args[*index],
            ScalarExpr::Const(number) => self.constant(*number),
            ScalarExpr::Unary(function, x) => {
                let x = self.evaluate_node(x, args);
                self.unary(*function, x)
            }
            ScalarExpr::Binary(function, a, b) => {
                let a = self.evaluate_node(a, args);
                let b = self.evaluate_node(b, args);
                self.binary(*function, a, b)
            }
            ScalarExpr::Select(condition, then, otherwise) => {
                let condition = self.evaluate_node(condition, args);
                let then = self.evaluate_node(then, args);
                let otherwise = self.evaluate_node(otherwise, args);
                self.select(condition, then, otherwise)
            }
            ScalarExpr::Cast(dtype, x) => {
                let x = self.evaluate_node(x, args);
                self.cast(*dtype, x)
            }
        }
    }

    /// Reads elements: see [`Instruction::Load`]. A scalar mask holds for all elements.
    pub fn load(
        &mut self,
        memory: Memory,
        offset: ValueId,
        mask: Option<(ValueId, Scalar)>,
        vector: u32,
    ) -> ValueId {
        let dtype = self.memory_dtype(memory);
        let ty = self.ty(offset).with_dtype(dtype);
        let mask = match mask {
            Some((mask, otherwise)) => match self.number(mask) {
                Some(Scalar::Int(_, 0)) => return self.constant_of(ty, otherwise),
                Some(_) => None,
                None => Some((self.formed_as(mask, offset), otherwise)),
            },
            None => None,
        };
        self.push(Instruction::Load { memory, offset, mask, vector }, vec![ty])[0]
    }

    /// Writes elements: see [`Instruction::Store`]. A scalar value or mask holds for all elements.
    pub fn store(
        &mut self,
        memory: Memory,
        offset: ValueId,
        value: ValueId,
        mask: Option<ValueId>,
        vector: u32,
    ) {
        assert_eq!(
            self.ty(value).dtype(),
            self.memory_dtype(memory),
            "invariant: elements are stored to an array of their type"
        );
        let value = self.formed_as(value, offset);
        let mask = match mask {
            Some(mask) => match self.number(mask) {
                Some(Scalar::Int(_, 0)) => return,
                Some(_) => None,
                None => Some(self.formed_as(mask, offset)),
            },
            None => None,
        };
        self.push(Instruction::Store { memory, offset, value, mask, vector }, vec![]);
    }

    /// Begins to copy elements to shared memory: see [`Instruction::Copy`]. Scalar masks hold for all.
    pub fn copy(
        &mut self,
        to: (Memory, ValueId),
        from: (Memory, ValueId),
        masks: [Option<ValueId>; 2],
        vector: u32,
    ) {
        assert_eq!(
            self.memory_dtype(to.0),
            self.memory_dtype(from.0),
            "invariant: elements are copied to an array of their type"
        );
        let from = (from.0, self.formed_as(from.1, to.1));
        let masks = masks.map(|mask| match self.number(mask?) {
            Some(Scalar::Int(_, number)) if number != 0 => None,
            _ => Some(self.formed_as(mask?, to.1)),
        });
        self.push(Instruction::Copy { to, from, masks, vector }, vec![]);
    }

    /// Closes a group of copies: see [`Instruction::CopyCommit`].
    pub fn copy_commit(&mut self) {
        self.push(Instruction::CopyCommit, vec![]);
    }

    /// Waits for copies: see [`Instruction::CopyWait`].
    pub fn copy_wait(&mut self, pending: u32) {
        self.push(Instruction::CopyWait(pending), vec![]);
    }

    /// Folds fragments along a dimension: see [`Instruction::Reduce`].
    pub fn reduce(&mut self, dim: u32, values: &[ValueId], combine: &[ScalarExpr]) -> Vec<ValueId> {
        let types = values.iter().map(|&value| {
            let layout = self.ty(value).layout().expect("invariant: fragments are reduced");
            Ty::Fragment(self.ty(value).dtype(), layout.dropped(dim))
        });
        let types = types.collect();
        let instruction =
            Instruction::Reduce { dim, values: values.to_vec(), combine: combine.to_vec() };
        self.push(instruction, types)
    }

    /// Inclusive prefixes of fragments along a dimension, then what all of it is folded to: see
    /// [`Instruction::Scan`].
    pub fn scan(&mut self, dim: u32, values: &[ValueId], combine: &[ScalarExpr]) -> Vec<ValueId> {
        let prefixes = values.iter().map(|&value| self.ty(value).clone());
        let totals = values.iter().map(|&value| {
            let layout = self.ty(value).layout().expect("invariant: fragments are scanned");
            Ty::Fragment(self.ty(value).dtype(), layout.dropped(dim))
        });
        let types = prefixes.chain(totals).collect();
        let instruction =
            Instruction::Scan { dim, values: values.to_vec(), combine: combine.to_vec() };
        self.push(instruction, types)
    }

    /// Waits for all threads of the block.
    pub fn barrier(&mut self) {
        self.push(Instruction::Barrier, vec![]);
    }

    /// How many blocks have asked before: see [`Instruction::Ticket`].
    pub fn ticket(&mut self, (memory, offset): (Memory, ValueId), of: ValueId) -> ValueId {
        self.take_ticket((memory, offset), of, false)
    }

    /// As [`KernelBuilder::ticket`], for blocks that read what those before them have written.
    pub fn ordered_ticket(&mut self, (memory, offset): (Memory, ValueId), of: ValueId) -> ValueId {
        self.take_ticket((memory, offset), of, true)
    }

    fn take_ticket(
        &mut self,
        (memory, offset): (Memory, ValueId),
        of: ValueId,
        ordered: bool,
    ) -> ValueId {
        let of = self.cast(DType::I32, of);
        let instruction = Instruction::Ticket { memory, offset, of, ordered };
        self.push(instruction, vec![Ty::Scalar(DType::I32)])[0]
    }

    /// Waits for other blocks: see [`Instruction::Meet`].
    pub fn meet(&mut self, memory: Memory, offset: ValueId, blocks: u32) {
        self.push(Instruction::Meet { memory, offset, blocks }, vec![]);
    }

    /// Writes numbers with a tag: see [`Instruction::Send`].
    pub fn send(
        &mut self,
        memory: Memory,
        offset: ValueId,
        (value, tag): (ValueId, ValueId),
        mask: Option<ValueId>,
    ) {
        let value = self.formed_as(value, offset);
        let mask = mask.map(|mask| self.formed_as(mask, offset));
        self.push(Instruction::Send { memory, offset, value, tag, mask }, vec![]);
    }

    /// Waits for numbers with a tag: see [`Instruction::Receive`].
    pub fn receive(
        &mut self,
        memory: Memory,
        offset: ValueId,
        tag: ValueId,
        mask: Option<(ValueId, Scalar)>,
    ) -> ValueId {
        let ty = self.ty(offset).with_dtype(DType::F32);
        let mask = mask.map(|(mask, otherwise)| (self.formed_as(mask, offset), otherwise));
        self.push(Instruction::Receive { memory, offset, tag, mask }, vec![ty])[0]
    }

    /// A loop over `from, from + step, ...` below `to` with carried values: see [`Instruction::For`].
    ///
    /// `body` gets the index and the carried values of the round, and gives the next round's, which have
    /// the types of `carried` (scalars are splatted).
    pub fn for_loop(
        &mut self,
        from: ValueId,
        to: ValueId,
        step: u32,
        carried: &[ValueId],
        unroll: u32,
        body: impl FnOnce(&mut KernelBuilder, ValueId, &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let types: Vec<Ty> = carried.iter().map(|&value| self.ty(value).clone()).collect();
        let index = self.value(self.ty(from).clone());
        let args: Vec<ValueId> = types.iter().map(|ty| self.value(ty.clone())).collect();
        self.scopes.push(Scope::default());
        let next = body(self, index, &args);
        assert_eq!(next.len(), args.len(), "invariant: a loop yields what it carries");
        let yields = next.iter().zip(&args).map(|(&next, &arg)| self.formed_as(next, arg));
        let yields: Vec<ValueId> = yields.collect();
        let body = self.close();
        let carried = carried.iter().copied().zip(args).collect();
        let instruction = Instruction::For { index, from, to, step, carried, body, yields, unroll };
        self.push(instruction, types)
    }

    /// Code that runs where a scalar condition holds: see [`Instruction::If`].
    pub fn if_(
        &mut self,
        condition: ValueId,
        uniform: bool,
        body: impl FnOnce(&mut KernelBuilder),
    ) {
        match self.number(condition) {
            Some(Scalar::Int(_, 0)) => return,
            Some(_) => return body(self),
            None => {}
        }
        self.scopes.push(Scope::default());
        body(self);
        let body = self.close();
        self.push(Instruction::If { condition, uniform, body }, vec![]);
    }

    fn memory_dtype(&self, memory: Memory) -> DType {
        self.kernel.memory_dtype(memory).expect("invariant: memory is declared before it is used")
    }

    fn value(&mut self, ty: Ty) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("invariant: a block is open until the kernel is finished")
    }

    fn close(&mut self) -> Block {
        Block(self.scopes.pop().expect("invariant: a block is open").statements)
    }

    fn push(&mut self, instruction: Instruction, types: Vec<Ty>) -> Vec<ValueId> {
        let results: Vec<ValueId> = types.into_iter().map(|ty| self.value(ty)).collect();
        self.scope().statements.push(Statement { results: results.clone(), instruction });
        results
    }

    fn pure(&mut self, instruction: Instruction, ty: Ty) -> ValueId {
        let key = (instruction, ty);
        if let Some(&value) = self.scopes.iter().find_map(|scope| scope.known.get(&key)) {
            return value;
        }
        let value = self.push(key.0.clone(), vec![key.1.clone()])[0];
        self.scope().known.insert(key, value);
        value
    }

    /// The scalar that a fragment holds in every element, if there is one.
    fn scalar_of(&mut self, value: ValueId) -> Option<ValueId> {
        if matches!(self.ty(value), Ty::Scalar(_)) {
            return Some(value);
        }
        match self.number(value) {
            Some(number) => Some(self.constant(number)),
            None => self.splats.get(&value).copied(),
        }
    }

    /// Computes on scalars and splats the result where all operands are fragments made of scalars.
    fn on_scalars(
        &mut self,
        operands: &[ValueId],
        compute: impl FnOnce(&mut KernelBuilder, &[ValueId]) -> ValueId,
    ) -> Option<ValueId> {
        let layout = self.ty(operands[0]).layout()?.clone();
        if !operands.iter().all(|x| self.splats.contains_key(x) || self.numbers.contains_key(x)) {
            return None;
        }
        let scalars: Option<Vec<ValueId>> = operands.iter().map(|&x| self.scalar_of(x)).collect();
        let scalar = compute(self, &scalars?);
        Some(self.splat(scalar, &layout))
    }

    /// Operands with scalars splatted as soon as one is a fragment.
    fn alike<const N: usize>(&mut self, operands: [ValueId; N]) -> [ValueId; N] {
        match operands.iter().find(|&&x| self.ty(x).layout().is_some()) {
            Some(&fragment) => operands.map(|x| self.formed_as(x, fragment)),
            None => operands,
        }
    }

    /// A scalar splatted to the layout of another value.
    fn formed_as(&mut self, value: ValueId, like: ValueId) -> ValueId {
        match self.ty(like).layout().cloned() {
            Some(layout) => self.splat(value, &layout),
            None => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Layout {
        Layout {
            shape: vec![256],
            registers: vec![super::super::Mode::new(0, 2, 1)],
            threads: vec![super::super::Mode::new(0, 128, 2)],
        }
    }

    #[test]
    fn index_arithmetic_folds() {
        let mut b = KernelBuilder::new("k", 128);
        let x = b.block_index(0);
        let one = b.int(DType::I32, 1);
        assert_eq!(b.mul(one, x), x);
        assert_eq!(b.add_int(x, 0), x);
        let seven = b.int(DType::I32, 7);
        let product = b.mul_int(seven, 3);
        assert_eq!(b.number(product), Some(Scalar::Int(DType::I32, 21)));
        let wrapped = b.int(DType::I32, i64::from(i32::MAX));
        let wrapped = b.add_int(wrapped, 1);
        assert_eq!(b.number(wrapped), Some(Scalar::Int(DType::I32, i32::MIN.into())));
    }

    #[test]
    fn what_is_uniform_stays_scalar() {
        let mut b = KernelBuilder::new("k", 128);
        let layout = row();
        let block = b.block_index(0);
        let block = b.splat(block, &layout);
        let base = b.mul_int(block, 256);
        let at = b.coordinate(&layout, 0);
        let offset = b.add(base, at);
        assert_eq!(b.mul_int(block, 256), base);
        let kernel = b.finish();
        let products: Vec<_> = kernel
            .body
            .0
            .iter()
            .filter(|s| matches!(s.instruction, Instruction::Binary(BinaryFn::Mul, ..)))
            .collect();
        assert_eq!(products.len(), 1);
        assert_eq!(kernel.values[products[0].results[0].0 as usize], Ty::Scalar(DType::I32));
        assert_eq!(kernel.values[offset.0 as usize], Ty::Fragment(DType::I32, layout));
    }

    #[test]
    fn instructions_of_a_closed_block_are_not_used_after_it() {
        let mut b = KernelBuilder::new("k", 128);
        let x = b.block_index(0);
        let zero = b.int(DType::I32, 0);
        let condition = b.lt(zero, x);
        let mut inside = None;
        b.if_(condition, true, |b| inside = Some(b.add(x, x)));
        let after = b.add(x, x);
        assert_ne!(inside, Some(after));
    }

    #[test]
    fn loops_carry_values() {
        let mut b = KernelBuilder::new("k", 128);
        let from = b.int(DType::I32, 0);
        let to = b.scalar("n", DType::I32, DimRange::ANY);
        let sum = b.for_loop(from, to, 1, &[from], 4, |b, index, args| vec![b.add(args[0], index)]);
        assert_eq!(*b.ty(sum[0]), Ty::Scalar(DType::I32));
        let kernel = b.finish();
        let Some(Instruction::For { body, yields, .. }) =
            kernel.body.0.last().map(|s| &s.instruction)
        else {
            panic!("no loop")
        };
        assert_eq!(body.0.len(), 1);
        assert_eq!(body.0[0].results, *yields);
    }
}
