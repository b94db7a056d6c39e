//! The kernel IR's invariants, checked.

use std::collections::{BTreeMap, BTreeSet};

use fornax_bundle::DType;
use fornax_bundle::manifest::BUFFER_ALIGN;
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

use super::{
    Block, Instruction, Kernel, Layout, Memory, MmaTile, Param, Statement, Ty, ValueId, WgmmaTile,
};

/// The most threads a block may have (CUDA C++ Programming Guide, compute capabilities).
const MAX_THREADS: u32 = 1024;

/// All faults of a kernel; none if it is well formed.
pub fn verify(kernel: &Kernel) -> Vec<String> {
    let mut verifier = Verifier {
        kernel,
        faults: Vec::new(),
        visible: Vec::new(),
        defined: BTreeSet::new(),
        divergent: false,
    };
    verifier.declarations();
    verifier.block(&kernel.body, &[]);
    for index in 0..kernel.values.len() as u32 {
        if !verifier.defined.contains(&index) {
            verifier.faults.push(format!("%{index} is never defined"));
        }
    }
    verifier.faults
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    faults: Vec<String>,
    /// Values of the open blocks.
    visible: Vec<BTreeSet<u32>>,
    /// Values of all blocks.
    defined: BTreeSet<u32>,
    /// Whether threads of a block may have parted.
    divergent: bool,
}

/// What is wrong with a statement.
type Check = Result<(), String>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

impl Verifier<'_> {
    fn fault(&mut self, message: impl Into<String>) {
        self.faults.push(message.into());
    }

    fn declarations(&mut self) {
        let kernel = self.kernel;
        if !is_name(&kernel.name) {
            self.fault(format!("`{}` is no name of letters, digits and _", kernel.name));
        }
        if !(1..=MAX_THREADS).contains(&kernel.threads) {
            self.fault(format!("{} threads; a block has 1 to {MAX_THREADS}", kernel.threads));
        }
        if kernel.resident == 0 {
            self.fault("no block is to run");
        }
        let mut names = BTreeSet::new();
        let params = kernel.params.iter().map(Param::name);
        for name in params.chain(kernel.shared.iter().map(|array| array.name.as_str())) {
            if !is_name(name) || !names.insert(name) {
                self.fault(format!("`{name}` is no name, or there twice"));
            }
        }
        for param in &kernel.params {
            match param {
                Param::Scalar { name, dtype, range } => {
                    if !matches!(dtype, DType::I32 | DType::I64) {
                        self.fault(format!("`{name}` is {dtype}; scalars are i32 or i64"));
                    }
                    if range.min > range.max || range.divisor < 1 {
                        self.fault(format!("`{name}` has no possible value"));
                    }
                }
                Param::Global { name, dtype, multiple, .. } => {
                    let possible = dtype.size() as u32..=BUFFER_ALIGN as u32;
                    if !multiple.is_power_of_two() || !possible.contains(multiple) {
                        self.fault(format!("`{name}` has an impossible multiple, {multiple}"));
                    }
                }
            }
        }
        for array in &kernel.shared {
            if array.len == 0 {
                self.fault(format!("`{}` has no elements", array.name));
            }
            if array.swizzled && !(array.len as usize * array.dtype.size()).is_multiple_of(1024) {
                self.fault(format!("`{}` is swizzled and no multiple of 1024 bytes", array.name));
            }
        }
        let layouts: BTreeMap<_, _> =
            kernel.values.iter().zip(0..).filter_map(|(ty, k)| Some((k, ty.layout()?))).collect();
        for (index, layout) in layouts {
            if let Err(message) = check_layout(layout, kernel.threads) {
                self.fault(format!("the layout of %{index}: {message}"));
            }
        }
    }

    /// `before`: values that are there when the block begins.
    fn block(&mut self, block: &Block, before: &[ValueId]) {
        self.visible.push(BTreeSet::new());
        for &value in before {
            self.define(value);
        }
        for statement in &block.0 {
            if let Err(message) = self.statement(statement) {
                let results: Vec<String> =
                    statement.results.iter().map(|value| format!("%{}", value.0)).collect();
                let name = statement.instruction.name();
                self.fault(format!("{name} {}: {message}", results.join(", ")));
            }
            for &value in &statement.results {
                self.define(value);
            }
        }
    }

    fn define(&mut self, value: ValueId) {
        if value.0 as usize >= self.kernel.values.len() {
            self.fault(format!("%{} has no type", value.0));
        } else if !self.defined.insert(value.0) {
            self.fault(format!("%{} is defined twice", value.0));
        }
        if let Some(block) = self.visible.last_mut() {
            block.insert(value.0);
        }
    }

    /// The type of an operand.
    fn ty(&self, value: ValueId) -> Result<&Ty, String> {
        let visible = self.visible.iter().any(|block| block.contains(&value.0));
        ensure!(visible, "%{} is not defined here", value.0);
        self.kernel.values.get(value.0 as usize).ok_or_else(|| format!("%{} has no type", value.0))
    }

    fn results(&self, statement: &Statement, count: usize) -> Result<Vec<&Ty>, String> {
        let results = &statement.results;
        ensure!(results.len() == count, "{} results instead of {count}", results.len());
        results
            .iter()
            .map(|value| {
                let ty = self.kernel.values.get(value.0 as usize);
                ty.ok_or_else(|| format!("%{} has no type", value.0))
            })
            .collect()
    }

    fn statement(&mut self, statement: &Statement) -> Check {
        match &statement.instruction {
            Instruction::Store { memory, offset, value, mask, vector } => {
                self.results(statement, 0)?;
                let element = self.array(*memory)?;
                if let Memory::Global(index) = memory
                    && let Param::Global { name, written: false, .. } =
                        &self.kernel.params[*index as usize]
                {
                    return Err(format!("`{name}` is not declared as written"));
                }
                let value = self.ty(*value)?;
                ensure!(value.dtype() == element, "{} is stored to {element}", value.dtype());
                self.access(value, *offset, *mask, *vector)
            }
            Instruction::Reduce { .. } | Instruction::Scan { .. } => self.fold(statement),
            Instruction::Barrier => {
                self.results(statement, 0)?;
                self.together()
            }
            Instruction::ProxyFence | Instruction::CopyCommit | Instruction::CopyWait(_) => {
                self.results(statement, 0).map(|_| ())
            }
            Instruction::WgmmaPending(_) => {
                self.results(statement, 0)?;
                self.together()
            }
            Instruction::Copy { to, from, masks, vector } => {
                self.results(statement, 0)?;
                self.copy(*to, *from, *masks, *vector)
            }
            Instruction::Ticket { memory, offset, of, ordered: _ } => {
                let result = self.results(statement, 1)?[0];
                ensure!(*result == Ty::Scalar(DType::I32), "the result is no i32");
                let is_number = self.ty(*of)? == &Ty::Scalar(DType::I32);
                ensure!(is_number, "the number of tickets is no scalar i32");
                self.counter(*memory, *offset)
            }
            Instruction::Meet { memory, offset, blocks } => {
                self.results(statement, 0)?;
                ensure!(*blocks > 0, "a block meets at least itself");
                self.counter(*memory, *offset)
            }
            Instruction::Send { memory, offset, value, tag, mask } => {
                self.results(statement, 0)?;
                self.exchanged(*memory, *tag)?;
                let value = self.ty(*value)?;
                ensure!(value.dtype() == DType::F32, "{} is sent instead of f32", value.dtype());
                self.access(value, *offset, *mask, 1)
            }
            Instruction::Receive { memory, offset, tag, mask } => {
                let result = self.results(statement, 1)?[0];
                self.exchanged(*memory, *tag)?;
                let others = mask.map(|(_, otherwise)| otherwise.dtype());
                let fits = [Some(result.dtype()), others].into_iter().flatten();
                ensure!(fits.into_iter().all(|dtype| dtype == DType::F32), "the result is no f32");
                self.access(result, *offset, mask.map(|(mask, _)| mask), 1)
            }
            Instruction::For { .. } => self.for_loop(statement),
            Instruction::If { condition, uniform, body } => {
                self.results(statement, 0)?;
                let ty = self.ty(*condition)?;
                ensure!(*ty == Ty::Scalar(DType::Bool), "the condition is no scalar bool");
                let divergent = self.divergent;
                self.divergent |= !uniform;
                self.block(body, &[]);
                self.visible.pop();
                self.divergent = divergent;
                Ok(())
            }
            instruction => {
                let ty = self.results(statement, 1)?[0];
                self.value(instruction, ty)
            }
        }
    }

    /// Instructions with one result of type `ty` and no blocks.
    fn value(&self, instruction: &Instruction, ty: &Ty) -> Check {
        let expected = match instruction {
            Instruction::Constant(number) => ty.with_dtype(number.dtype()),
            Instruction::Param(index) => match self.kernel.params.get(*index as usize) {
                Some(Param::Scalar { dtype, .. }) => Ty::Scalar(*dtype),
                _ => return Err(format!("parameter {index} is no scalar")),
            },
            Instruction::BlockIndex(axis) => {
                ensure!(*axis < 3, "a grid has no axis {axis}");
                Ty::Scalar(DType::I32)
            }
            Instruction::Coordinate(dim) => {
                let layout = ty.layout().ok_or("a scalar has no coordinates")?;
                ensure!((*dim as usize) < layout.shape.len(), "no dimension {dim}");
                Ty::Fragment(DType::I32, layout.clone())
            }
            Instruction::Lookup { dim, table } => {
                let layout = ty.layout().ok_or("a scalar has no coordinates")?;
                check_table(layout, *dim, table)?;
                Ty::Fragment(DType::I32, layout.clone())
            }
            Instruction::Splat(x) => {
                let x = self.ty(*x)?;
                ensure!(x.layout().is_none(), "the operand is no scalar");
                ensure!(ty.layout().is_some(), "the result is no fragment");
                ty.with_dtype(x.dtype())
            }
            Instruction::Broadcast(x) => {
                let x = self.ty(*x)?;
                let (Some(from), Some(to)) = (x.layout(), ty.layout()) else {
                    return Err("scalars are splatted".into());
                };
                ensure!(
                    from.broadcasts_to(to),
                    "the result's layout does not drop to the operand's"
                );
                ty.with_dtype(x.dtype())
            }
            Instruction::Unary(function, x) => {
                let x = self.ty(*x)?;
                check_unary(*function, x.dtype())?;
                match function {
                    UnaryFn::IsNan | UnaryFn::IsInf => x.with_dtype(DType::Bool),
                    _ => x.clone(),
                }
            }
            Instruction::Binary(function, a, b) => {
                let (a, b) = (self.ty(*a)?, self.ty(*b)?);
                ensure!(a == b, "the operands' types differ");
                check_binary(*function, a.dtype())?;
                match function {
                    BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le => a.with_dtype(DType::Bool),
                    _ => a.clone(),
                }
            }
            Instruction::Fma(a, b, c) => {
                let a = self.ty(*a)?;
                ensure!(a == self.ty(*b)? && a == self.ty(*c)?, "the operands' types differ");
                ensure!(a.dtype() != DType::Bool, "bool has no products");
                a.clone()
            }
            Instruction::Select(condition, then, otherwise) => {
                let (condition, then) = (self.ty(*condition)?, self.ty(*then)?);
                ensure!(then == self.ty(*otherwise)?, "the choices' types differ");
                ensure!(*condition == then.with_dtype(DType::Bool), "the condition does not fit");
                then.clone()
            }
            Instruction::Cast(dtype, x) => self.ty(*x)?.with_dtype(*dtype),
            Instruction::RoundTf32(x) => {
                let x = self.ty(*x)?;
                ensure!(x.dtype() == DType::F32, "{} is not rounded to tf32", x.dtype());
                x.clone()
            }
            Instruction::Reorder(x) => {
                let x = self.ty(*x)?;
                let (Some(from), Some(to)) = (x.layout(), ty.layout()) else {
                    return Err("scalars have no order".into());
                };
                ensure!(from.reorders_to(to), "the result's layout has other digits");
                ty.with_dtype(x.dtype())
            }
            Instruction::Mma { tile, operands } => self.mma(tile, operands)?,
            Instruction::Wgmma { tile, memory, offsets, sums } => {
                self.together()?;
                ensure!(tile.is_whole(), "the tile is not made of whole products");
                for (&memory, &offset) in memory.iter().zip(offsets) {
                    self.factors(tile, memory, offset)?;
                }
                self.sums(tile, *sums)?
            }
            Instruction::WgmmaRegisters { tile, left, right, sums } => {
                self.together()?;
                ensure!(tile.is_whole(), "the tile is not made of whole products");
                let expected = Ty::Fragment(tile.factor.dtype(), tile.left());
                let fits = *self.ty(*left)? == expected;
                ensure!(fits, "%{} is not the tile's {}", left.0, describe(&expected));
                self.factors(tile, right.0, right.1)?;
                self.sums(tile, *sums)?
            }
            Instruction::WgmmaPlaces { tile, left, places, right, sums } => {
                self.together()?;
                ensure!(tile.is_whole(), "the tile is not made of whole products");
                let dtype = tile.factor.dtype();
                let plain = matches!(left.0, Memory::Shared(index)
                    if self.kernel.shared.get(index as usize).is_some_and(|of| !of.swizzled));
                let fits = plain && self.array(left.0)? == dtype;
                ensure!(fits, "{:?} is no plain shared array of factors", left.0);
                ensure!(places.is_whole(dtype.size() as u32), "the places are not whole parts");
                ensure!(tile.products().is_power_of_two(), "the products make no lines");
                let scalar = *self.ty(left.1)? == Ty::Scalar(DType::I32);
                ensure!(scalar, "%{} is no scalar i32", left.1.0);
                self.factors(tile, right.0, right.1)?;
                self.sums(tile, *sums)?
            }
            Instruction::WgmmaWait(sums) => {
                self.together()?;
                self.ty(*sums)?.clone()
            }
            Instruction::Load { memory, offset, mask, vector } => {
                let element = self.array(*memory)?;
                if let Some((_, otherwise)) = mask {
                    let given = otherwise.dtype();
                    ensure!(given == element, "{given} stands for missing {element}");
                }
                self.access(ty, *offset, mask.map(|(mask, _)| mask), *vector)?;
                ty.with_dtype(element)
            }
            other => return Err(format!("{} has no result", other.name())),
        };
        ensure!(*ty == expected, "the result is {}, not {}", describe(ty), describe(&expected));
        Ok(())
    }

    /// The type of the sums.
    fn mma(&self, tile: &MmaTile, operands: &[ValueId; 3]) -> Result<Ty, String> {
        self.together()?;
        ensure!(tile.is_whole(), "the tile is not made of whole products");
        let factors = tile.factor.dtype();
        let expected = [
            Ty::Fragment(factors, tile.left()),
            Ty::Fragment(factors, tile.right()),
            Ty::Fragment(DType::F32, tile.sums()),
        ];
        for (&operand, expected) in operands.iter().zip(&expected) {
            let fits = self.ty(operand)? == expected;
            ensure!(fits, "%{} is not the tile's {}", operand.0, describe(expected));
        }
        let [.., sums] = expected;
        Ok(sums)
    }

    /// An operand of asynchronous products in shared memory.
    fn factors(&self, tile: &WgmmaTile, memory: Memory, offset: ValueId) -> Check {
        let swizzled = match memory {
            Memory::Shared(index) => {
                self.kernel.shared.get(index as usize).is_some_and(|of| of.swizzled)
            }
            Memory::Global(_) => false,
        };
        let fits = swizzled && self.array(memory)? == tile.factor.dtype();
        ensure!(fits, "{memory:?} is no swizzled array of factors");
        let scalar = *self.ty(offset)? == Ty::Scalar(DType::I32);
        ensure!(scalar, "%{} is no scalar i32", offset.0);
        Ok(())
    }

    fn sums(&self, tile: &WgmmaTile, sums: ValueId) -> Result<Ty, String> {
        let expected = Ty::Fragment(DType::F32, tile.sums());
        ensure!(*self.ty(sums)? == expected, "%{} are not the tile's sums", sums.0);
        Ok(expected)
    }

    fn copy(
        &self,
        to: (Memory, ValueId),
        from: (Memory, ValueId),
        masks: [Option<ValueId>; 2],
        vector: u32,
    ) -> Check {
        let places = (to.0, from.0);
        let fits = matches!(places, (Memory::Shared(_), Memory::Global(_)));
        ensure!(fits, "copies go from global to shared memory");
        let element = self.array(to.0)?;
        ensure!(self.array(from.0)? == element, "copies do not convert elements");
        let value = self.ty(to.1)?.with_dtype(element);
        self.access(&value, to.1, masks[0], vector)?;
        self.access(&value, from.1, masks[1], vector)?;
        let bytes = vector * element.size() as u32;
        ensure!(matches!(bytes, 4 | 8 | 16), "{bytes} bytes are copied at once");
        Ok(())
    }

    fn array(&self, memory: Memory) -> Result<DType, String> {
        self.kernel.memory_dtype(memory).ok_or_else(|| format!("{memory:?} is no array"))
    }

    /// Offset, mask and vector of an access to elements of type `value`.
    fn access(&self, value: &Ty, offset: ValueId, mask: Option<ValueId>, vector: u32) -> Check {
        let offset = self.ty(offset)?;
        ensure!(matches!(offset.dtype(), DType::I32 | DType::I64), "the offset is no i32 or i64");
        ensure!(offset.layout() == value.layout(), "offset and elements are laid out differently");
        if let Some(mask) = mask {
            let fits = *self.ty(mask)? == value.with_dtype(DType::Bool);
            ensure!(fits, "the mask is no bool of the elements' form");
        }
        let registers = value.layout().map_or(1, Layout::register_count);
        ensure!(
            vector.is_power_of_two() && registers.is_multiple_of(vector),
            "{registers} registers are no groups of {vector}"
        );
        Ok(())
    }

    /// A place that counts blocks.
    fn counter(&self, memory: Memory, offset: ValueId) -> Check {
        let written = match memory {
            Memory::Global(index) => matches!(
                self.kernel.params.get(index as usize),
                Some(Param::Global { dtype: DType::I32, written: true, .. })
            ),
            Memory::Shared(_) => false,
        };
        ensure!(written, "blocks are counted in a written array of i32");
        let offset = self.ty(offset)?;
        let fits = matches!(offset, Ty::Scalar(DType::I32 | DType::I64));
        ensure!(fits, "the offset is no scalar i32 or i64");
        self.together()
    }

    /// An array of numbers with tags, and a tag.
    fn exchanged(&self, memory: Memory, tag: ValueId) -> Check {
        let written = match memory {
            Memory::Global(index) => matches!(
                self.kernel.params.get(index as usize),
                Some(Param::Global { dtype: DType::I64, written: true, .. })
            ),
            Memory::Shared(_) => false,
        };
        ensure!(written, "numbers are exchanged in a written array of i64");
        ensure!(*self.ty(tag)? == Ty::Scalar(DType::I32), "the tag is no scalar i32");
        Ok(())
    }

    fn together(&self) -> Check {
        ensure!(!self.divergent, "not all threads of the block may pass here");
        Ok(())
    }

    fn fold(&self, statement: &Statement) -> Check {
        let (dim, values, combine, scan) = match &statement.instruction {
            Instruction::Reduce { dim, values, combine } => (*dim, values, combine, false),
            Instruction::Scan { dim, values, combine } => (*dim, values, combine, true),
            _ => unreachable!("only reductions and scans are folds"),
        };
        self.together()?;
        let types: Vec<&Ty> = values.iter().map(|&v| self.ty(v)).collect::<Result<_, _>>()?;
        let Some(layout) = types.first().and_then(|ty| ty.layout()) else {
            return Err("fragments are folded, at least one".into());
        };
        ensure!(types.iter().all(|ty| ty.layout() == Some(layout)), "the layouts differ");
        ensure!((dim as usize) < layout.shape.len(), "no dimension {dim}");
        ensure!(combine.len() == types.len(), "{} combined values", combine.len());
        let dtypes: Vec<DType> = types.iter().map(|ty| ty.dtype()).collect();
        let args: Vec<DType> = dtypes.iter().chain(&dtypes).copied().collect();
        for (expr, &dtype) in combine.iter().zip(&dtypes) {
            let found = expression(expr, &args)?;
            ensure!(found == dtype, "{found} is combined for {dtype}");
        }
        let mut expected = Vec::new();
        if scan {
            expected.extend(dtypes.iter().map(|&dtype| Ty::Fragment(dtype, layout.clone())));
        }
        let dropped = layout.dropped(dim);
        expected.extend(dtypes.iter().map(|&dtype| Ty::Fragment(dtype, dropped.clone())));
        let results = self.results(statement, expected.len())?;
        for (result, expected) in results.into_iter().zip(&expected) {
            ensure!(result == expected, "the result is not {}", describe(expected));
        }
        Ok(())
    }

    fn for_loop(&mut self, statement: &Statement) -> Check {
        let Instruction::For { index, from, to, step, carried, body, yields, unroll } =
            &statement.instruction
        else {
            unreachable!("only loops are loops")
        };
        let bound = self.ty(*from)?.clone();
        ensure!(
            matches!(bound, Ty::Scalar(DType::I32 | DType::I64)) && bound == *self.ty(*to)?,
            "the bounds are not scalars of one type, i32 or i64"
        );
        ensure!(*step > 0 && *unroll > 0, "step and unrolling are positive");
        let mut types = Vec::new();
        for &(value, _) in carried {
            types.push(self.ty(value)?.clone());
        }
        let mut before = vec![*index];
        before.extend(carried.iter().map(|&(_, inside)| inside));
        self.block(body, &before);
        let checked = self.loop_types(&before, &bound, &types, yields);
        self.visible.pop();
        checked?;
        let results = self.results(statement, types.len())?;
        ensure!(results.iter().zip(&types).all(|(a, b)| *a == b), "the results' types differ");
        Ok(())
    }

    /// Inside a loop's body: its own values and what it yields have the right types.
    fn loop_types(
        &self,
        before: &[ValueId],
        bound: &Ty,
        types: &[Ty],
        yields: &[ValueId],
    ) -> Check {
        ensure!(self.ty(before[0])? == bound, "the index has not the bounds' type");
        ensure!(yields.len() == types.len(), "{} values are yielded", yields.len());
        for ((&inside, &next), ty) in before[1..].iter().zip(yields).zip(types) {
            ensure!(self.ty(inside)? == ty, "%{} has not the carried value's type", inside.0);
            ensure!(self.ty(next)? == ty, "%{} has not the carried value's type", next.0);
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn describe(ty: &Ty) -> String {
    match ty {
        Ty::Scalar(dtype) => dtype.to_string(),
        Ty::Fragment(dtype, layout) => format!("{dtype}{:?}", layout.shape),
    }
}

/// Every element is held once, or by all values of digits with stride 0.
fn check_layout(layout: &Layout, threads: u32) -> Check {
    let modes = || layout.registers.iter().chain(&layout.threads);
    ensure!(modes().all(|mode| mode.size > 0), "a digit has no values");
    let in_range = modes().all(|mode| (mode.dim as usize) < layout.shape.len());
    ensure!(in_range, "a digit moves along no dimension");
    let count = layout.thread_count();
    ensure!(count == threads, "{count} threads instead of {threads}");
    for (dim, &size) in (0..).zip(&layout.shape) {
        let mut steps: Vec<(u32, u32)> = modes()
            .filter(|mode| mode.dim == dim && mode.stride > 0 && mode.size > 1)
            .map(|mode| (mode.stride, mode.size))
            .collect();
        steps.sort_unstable();
        let covered = steps
            .iter()
            .try_fold(1u32, |covered, &(stride, size)| (stride == covered).then(|| covered * size));
        ensure!(covered == Some(size), "dimension {dim} is not covered once");
    }
    Ok(())
}

/// The table has a number for each coordinate, and those of the thread's binary digits add up.
fn check_table(layout: &Layout, dim: u32, table: &[i32]) -> Check {
    let size = layout.shape.get(dim as usize).copied().ok_or(format!("no dimension {dim}"))?;
    ensure!(size as usize == table.len(), "{} numbers for {size} coordinates", table.len());
    let at = |coordinate: u32| i64::from(table[coordinate as usize]);
    for thread in 0..layout.thread_count() {
        let part = layout.thread_coordinate(thread)[dim as usize];
        let steps = layout.thread_steps(thread, dim);
        let moved: i64 = steps.iter().map(|&step| at(step) - at(0)).sum();
        for register in 0..layout.register_count() {
            let own = layout.register_coordinate(register)[dim as usize];
            ensure!(
                at(own + part) == at(own) + moved,
                "the digits of {} do not add up",
                own + part
            );
        }
    }
    Ok(())
}

fn check_unary(function: UnaryFn, dtype: DType) -> Check {
    let fits = match function {
        UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Sign => dtype != DType::Bool,
        UnaryFn::Not => !dtype.is_float(),
        UnaryFn::IsNan | UnaryFn::IsInf => true,
        UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Trunc | UnaryFn::RoundEven => {
            dtype != DType::Bool
        }
        _ => dtype.is_float(),
    };
    ensure!(fits, "{} takes no {dtype}", function.name());
    Ok(())
}

fn check_binary(function: BinaryFn, dtype: DType) -> Check {
    let fits = match function {
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor => !dtype.is_float(),
        BinaryFn::Shl | BinaryFn::Shr => dtype.is_int(),
        BinaryFn::Max | BinaryFn::Min | BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le => true,
        _ => dtype != DType::Bool,
    };
    ensure!(fits, "{} takes no {dtype}", function.name());
    Ok(())
}

/// The type of an expression, or what is wrong with it.
fn expression(expr: &ScalarExpr, args: &[DType]) -> Result<DType, String> {
    match expr {
        ScalarExpr::Arg(index) => {
            args.get(*index).copied().ok_or_else(|| format!("there is no argument {index}"))
        }
        ScalarExpr::Const(Scalar::Float(dtype, _) | Scalar::Int(dtype, _)) => Ok(*dtype),
        ScalarExpr::Unary(function, x) => {
            check_unary(*function, expression(x, args)?)?;
            Ok(expr.dtype(args))
        }
        ScalarExpr::Binary(function, a, b) => {
            let (a, b) = (expression(a, args)?, expression(b, args)?);
            ensure!(a == b, "{} of {a} and {b}", function.name());
            check_binary(*function, a)?;
            Ok(expr.dtype(args))
        }
        ScalarExpr::Select(condition, then, otherwise) => {
            let condition = expression(condition, args)?;
            let (then, otherwise) = (expression(then, args)?, expression(otherwise, args)?);
            ensure!(condition == DType::Bool && then == otherwise, "the choices do not fit");
            Ok(then)
        }
        ScalarExpr::Cast(dtype, x) => {
            expression(x, args)?;
            Ok(*dtype)
        }
    }
}

#[cfg(test)]
mod tests {
    use fornax_bundle::DimRange;

    use super::super::{KernelBuilder, Mode};
    use super::*;

    fn layout() -> Layout {
        Layout {
            shape: vec![64],
            registers: vec![Mode::new(0, 2, 1)],
            threads: vec![Mode::new(0, 32, 2)],
        }
    }

    /// `out[i] = sum of x` in a loop, with everything that a kernel may have.
    fn sound() -> Kernel {
        let mut b = KernelBuilder::new("sound", 32);
        let x = b.global("x", DType::F32, false);
        let out = b.global("out", DType::F32, true);
        let n = b.scalar("n", DType::I32, DimRange::ANY);
        let at = b.coordinate(&layout(), 0);
        let value = b.load(x, at, None, 2);
        let zero = b.int(DType::I32, 0);
        let results = b.for_loop(zero, n, 1, &[value], 1, |b, _, args| {
            let sum = ScalarExpr::arg(0) + ScalarExpr::arg(1);
            let total = b.reduce(0, args, &[sum])[0];
            vec![b.broadcast(total, &layout())]
        });
        let some = b.lt(zero, n);
        b.if_(some, true, |b| b.store(out, at, results[0], None, 2));
        b.finish()
    }

    /// The faults after a change.
    fn faults(change: impl FnOnce(&mut Kernel)) -> String {
        let mut kernel = sound();
        change(&mut kernel);
        verify(&kernel).join("; ")
    }

    fn find(kernel: &mut Kernel, wanted: impl Fn(&Instruction) -> bool) -> &mut Statement {
        fn search<'b>(
            block: &'b mut Block,
            wanted: &dyn Fn(&Instruction) -> bool,
        ) -> Option<&'b mut Statement> {
            for statement in &mut block.0 {
                if wanted(&statement.instruction) {
                    return Some(statement);
                }
                if let Instruction::For { body, .. } | Instruction::If { body, .. } =
                    &mut statement.instruction
                    && let Some(found) = search(body, wanted)
                {
                    return Some(found);
                }
            }
            None
        }
        search(&mut kernel.body, &wanted).unwrap()
    }

    #[test]
    fn a_sound_kernel_has_no_faults() {
        assert_eq!(verify(&sound()), Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_named() {
        let expect = |message: &str, change: &dyn Fn(&mut Kernel)| {
            let found = faults(change);
            assert!(found.contains(message), "`{message}` is not in `{found}`");
        };
        expect("is no name", &|k| k.name = "a b".into());
        expect("a block has 1 to 1024", &|k| k.threads = 2000);
        expect("instead of 16", &|k| k.threads = 16);
        expect("there twice", &|k| k.params[1] = k.params[0].clone());
        expect("is never defined", &|k| k.values.push(Ty::Scalar(DType::I32)));
        expect("not declared as written", &|k| {
            k.params[1] = Param::Global {
                name: "out".into(),
                dtype: DType::F32,
                written: false,
                multiple: 4,
            };
        });
        for wrong in [0, 2, 12, 512] {
            expect("impossible multiple", &|k| {
                let Param::Global { multiple, .. } = &mut k.params[0] else { unreachable!() };
                *multiple = wrong;
            });
        }
        expect("no groups of 4", &|k| {
            let load = find(k, |i| matches!(i, Instruction::Load { .. }));
            let Instruction::Load { vector, .. } = &mut load.instruction else { unreachable!() };
            *vector = 4;
        });
        expect("not all threads", &|k| {
            let barrier = Statement { results: vec![], instruction: Instruction::Barrier };
            let branch = find(k, |i| matches!(i, Instruction::If { .. }));
            let Instruction::If { body, uniform, .. } = &mut branch.instruction else {
                unreachable!()
            };
            *uniform = false;
            body.0.push(barrier);
        });
        expect("is not defined here", &|k| {
            let inside = find(k, |i| matches!(i, Instruction::Reduce { .. })).results[0];
            let store = find(k, |i| matches!(i, Instruction::Store { .. }));
            let Instruction::Store { value, .. } = &mut store.instruction else { unreachable!() };
            *value = inside;
        });
        expect("there is no argument 7", &|k| {
            let fold = find(k, |i| matches!(i, Instruction::Reduce { .. }));
            let Instruction::Reduce { combine, .. } = &mut fold.instruction else { unreachable!() };
            combine[0] = ScalarExpr::arg(7);
        });
        expect("does not drop", &|k| {
            let broadcast = find(k, |i| matches!(i, Instruction::Broadcast(_))).results[0];
            let ty = &mut k.values[broadcast.0 as usize];
            let Ty::Fragment(_, layout) = ty else { unreachable!() };
            layout.registers = vec![Mode::new(0, 2, 32)];
            layout.threads = vec![Mode::new(0, 16, 1), Mode::new(0, 2, 16)];
        });
        expect("is not covered once", &|k| {
            for ty in &mut k.values {
                if let Ty::Fragment(_, layout) = ty {
                    layout.registers.clear();
                }
            }
        });
        expect("a written array of i32", &|k| {
            let offset = find(k, |i| matches!(i, Instruction::Constant(_))).results[0];
            let memory = Memory::Global(0);
            let instruction = Instruction::Meet { memory, offset, blocks: 2 };
            let last = k.body.0.len() - 1;
            k.body.0.insert(last, Statement { results: vec![], instruction });
        });
        expect("a written array of i64", &|k| {
            let offset = find(k, |i| matches!(i, Instruction::Constant(_))).results[0];
            let (memory, value, tag, mask) = (Memory::Global(0), offset, offset, None);
            let instruction = Instruction::Send { memory, offset, value, tag, mask };
            let last = k.body.0.len() - 1;
            k.body.0.insert(last, Statement { results: vec![], instruction });
        });
        expect("step and unrolling", &|k| {
            let statement = find(k, |i| matches!(i, Instruction::For { .. }));
            let Instruction::For { step, .. } = &mut statement.instruction else { unreachable!() };
            *step = 0;
        });
    }
}
