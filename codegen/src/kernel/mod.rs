//! The kernel IR: what one kernel does, between fused regions and LLVM.
//!
//! A kernel is structured code (blocks, loops, conditionals) over *scalars*, one per thread, and
//! *fragments*: tiles distributed over the registers of the block's threads by an explicit
//! [`Layout`]. Elementwise instructions apply to both, so pointwise bodies, masks, stores and
//! reductions are written once. Memory is named: parameters and shared arrays, never pointers in
//! values. Every extent is a constant or a scalar parameter with a range and a divisor.
//!
//! Invariants (checked by the verifier): values are defined before use and used inside the block that
//! defines them or a nested one; operands of elementwise instructions have one layout; barriers and
//! block-wide instructions stand only where all threads of the block pass.

mod builder;
mod fold;
mod layout;
mod mma;
mod text;
mod verify;

pub use builder::KernelBuilder;
pub use layout::{Layout, Mode};
pub use mma::{Factor, MmaTile, Places, WgmmaTile};
pub use text::{ParseError, parse};
pub use verify::verify;

use std::hash::{DefaultHasher, Hash, Hasher};

use fornax_bundle::{DType, DimRange};
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The entry's name: tells region and ops, letters, digits and `_` only.
    pub name: String,
    /// Threads in a block.
    pub threads: u32,
    /// Blocks that are to run at once on a multiprocessor: registers are shared out for so many. At least 1.
    pub resident: u32,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Arrays in shared memory.
    pub shared: Vec<Shared>,
    /// The code.
    pub body: Block,
    /// Types of all values.
    pub values: Vec<Ty>,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Param {
    /// An array in global memory, aligned to [`fornax_bundle::manifest::BUFFER_ALIGN`]; arrays do not
    /// overlap unless both are only read.
    Global {
        /// The name, unique among parameters and shared arrays.
        name: String,
        /// Element type.
        dtype: DType,
        /// Whether the kernel writes it; if so it is not read, or only what the same thread wrote, or
        /// other blocks before they met this one ([`Instruction::Meet`]), took an earlier ticket
        /// ([`Instruction::Ticket`]) or sent it ([`Instruction::Send`]).
        written: bool,
        /// A power of two that divides its size in bytes, from the element's size to `BUFFER_ALIGN`.
        multiple: u32,
    },
    /// A number by value.
    Scalar {
        /// The name.
        name: String,
        /// `i32` or `i64`.
        dtype: DType,
        /// The values it may have.
        range: DimRange,
    },
}

/// An array in shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shared {
    /// The name, unique among parameters and shared arrays.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u32,
    /// Whether the eight 16-byte parts of each 128 bytes change places: part `p` of the `r`-th 128 bytes
    /// lies at part `p xor (r mod 8)`, so that equal parts of adjacent rows lie in different banks (the
    /// 128-byte swizzle of PTX ISA, "Swizzling Modes"). Offsets in instructions are those before it.
    pub swizzled: bool,
}

/// A value of a kernel: an index into [`Kernel::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ty {
    /// One element per thread.
    Scalar(DType),
    /// A tile distributed over the threads.
    Fragment(DType, Layout),
}

impl Ty {
    /// The layout of a fragment.
    pub fn layout(&self) -> Option<&Layout> {
        match self {
            Ty::Scalar(_) => None,
            Ty::Fragment(_, layout) => Some(layout),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            Ty::Scalar(dtype) | Ty::Fragment(dtype, _) => *dtype,
        }
    }

    /// The same form with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Ty {
        match self {
            Ty::Scalar(_) => Ty::Scalar(dtype),
            Ty::Fragment(_, layout) => Ty::Fragment(dtype, layout.clone()),
        }
    }
}

impl Param {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Param::Global { name, .. } | Param::Scalar { name, .. } => name,
        }
    }

    /// The element type of an array, the type of a number.
    pub fn dtype(&self) -> DType {
        match self {
            Param::Global { dtype, .. } | Param::Scalar { dtype, .. } => *dtype,
        }
    }
}

impl Kernel {
    /// Whether the code is the same, whatever the names.
    pub fn same_code(&self, other: &Kernel) -> bool {
        let Kernel { name: _, threads, resident, params, shared, body, values } = self;
        (threads, resident, params) == (&other.threads, &other.resident, &other.params)
            && (shared, body, values) == (&other.shared, &other.body, &other.values)
    }

    /// A number that kernels of the same code share.
    pub fn code_hash(&self) -> u64 {
        let Kernel { name: _, threads, resident, params, shared, body, values } = self;
        let mut hasher = DefaultHasher::new();
        (threads, resident, params, shared, body, values).hash(&mut hasher);
        hasher.finish()
    }

    /// The element type of named memory; none if there is no such memory.
    pub fn memory_dtype(&self, memory: Memory) -> Option<DType> {
        match memory {
            Memory::Global(index) => match self.params.get(index as usize)? {
                Param::Global { dtype, .. } => Some(*dtype),
                Param::Scalar { .. } => None,
            },
            Memory::Shared(index) => Some(self.shared.get(index as usize)?.dtype),
        }
    }
}

/// Named memory: an index into the kernel's parameters or shared arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// A [`Param::Global`].
    Global(u32),
    /// A [`Shared`] array.
    Shared(u32),
}

/// Statements in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Block(pub Vec<Statement>);

/// An instruction with its results.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    /// Results; their types are in [`Kernel::values`].
    pub results: Vec<ValueId>,
    /// What is done.
    pub instruction: Instruction,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// A number; in every element for a fragment.
    Constant(Scalar),
    /// A scalar parameter.
    Param(u32),
    /// The block's position in the grid along an axis (0 to 2); `i32`.
    BlockIndex(u32),
    /// Each element's coordinate along a dimension of the tile; an `i32` fragment.
    Coordinate(u32),
    /// Each element's `i32` from a table by its coordinate along a dimension of the tile. What the binary
    /// digits of the thread's part of the coordinate stand for adds up.
    Lookup {
        /// The dimension.
        dim: u32,
        /// A number for each coordinate.
        table: Vec<i32>,
    },
    /// A scalar in every element of a fragment.
    Splat(ValueId),
    /// A fragment with size 1 in some dimensions, repeated along them. The operand's layout is the
    /// result's with those dimensions dropped ([`Layout::dropped`]), so no data moves.
    Broadcast(ValueId),
    /// A function of each element.
    Unary(UnaryFn, ValueId),
    /// A function of two elements.
    Binary(BinaryFn, ValueId, ValueId),
    /// `a * b + c`, rounded once.
    Fma(ValueId, ValueId, ValueId),
    /// The second where the first (bool) is true, else the third.
    Select(ValueId, ValueId, ValueId),
    /// Conversion, as [`ScalarExpr::Cast`].
    Cast(DType, ValueId),
    /// `f32` rounded to the nearest number with 11 bits of precision, ties away from zero; magnitudes
    /// that round beyond the largest become infinite (`cvt.rna.tf32.f32`).
    RoundTf32(ValueId),
    /// A fragment with the digits of its register number in another order; no data moves.
    Reorder(ValueId),
    /// `sums[m][n] + sum over k of left[m][k] * right[n][k]` on tensor cores, in `f32`: the layouts are
    /// [`MmaTile::sums`], [`MmaTile::left`] and [`MmaTile::right`]. Block-wide.
    Mma {
        /// What is multiplied and how it is laid out.
        tile: MmaTile,
        /// Left factors, right factors, sums.
        operands: [ValueId; 3],
    },
    /// Begins to add `sum over k of left[m][k] * right[n][k]` to sums ([`WgmmaTile::sums`]) on tensor
    /// cores, for 128 bytes of inner elements. Each operand is a tile in swizzled shared memory, a row of
    /// 128 bytes per row or column of the sums, from a scalar offset (`i32`, in elements, a multiple of 1024
    /// bytes) on. The sums are there after [`Instruction::WgmmaWait`], up to which the tiles must not be
    /// written. Block-wide.
    Wgmma {
        /// What is multiplied and how it is laid out.
        tile: WgmmaTile,
        /// Where the left and the right tile lie.
        memory: [Memory; 2],
        /// From where on.
        offsets: [ValueId; 2],
        /// What is added to.
        sums: ValueId,
    },
    /// As [`Instruction::Wgmma`] with the left operand in registers ([`WgmmaTile::left`]), which are read until
    /// the sums are there.
    WgmmaRegisters {
        /// What is multiplied and how it is laid out.
        tile: WgmmaTile,
        /// Left factors.
        left: ValueId,
        /// Where the right tile lies, and from where on.
        right: (Memory, ValueId),
        /// What is added to.
        sums: ValueId,
    },
    /// As [`Instruction::Wgmma`] with a left operand whose rows lie where [`Places`] says in shared memory
    /// that is not swizzled, from a scalar offset (`i32`, in elements, a multiple of 16 bytes) on, and for as
    /// many inner elements.
    WgmmaPlaces {
        /// What is multiplied and how it is laid out.
        tile: WgmmaTile,
        /// Where the left operand lies, and from where on.
        left: (Memory, ValueId),
        /// Where its parts lie from there.
        places: Places,
        /// Where the right tile lies, and from where on.
        right: (Memory, ValueId),
        /// What is added to.
        sums: ValueId,
    },
    /// The sums of [`Instruction::Wgmma`] when they are there; all that was begun is. Block-wide.
    WgmmaWait(ValueId),
    /// Waits until of all [`Instruction::Wgmma`] that were begun at most this many, the latest, are under way:
    /// the tiles of the others may be written again. Block-wide.
    WgmmaPending(u32),
    /// Makes what the thread has written to shared memory visible to [`Instruction::Wgmma`] after the next
    /// barrier (`fence.proxy.async`).
    ProxyFence,
    /// Reads elements at an offset (in elements) each.
    Load {
        /// From where.
        memory: Memory,
        /// Offset of each element, `i32` or `i64`; its form is the result's.
        offset: ValueId,
        /// Where to read (bool, same form); everywhere without one.
        mask: Option<(ValueId, Scalar)>,
        /// Registers read at once: groups of that many consecutive registers lie at consecutive
        /// offsets, the first one aligned, and a mask is equal within a group.
        vector: u32,
    },
    /// Writes elements at an offset (in elements) each. Of the threads that hold the same element of a
    /// fragment (stride 0) only the first one writes it; a scalar is written by every thread.
    Store {
        /// To where.
        memory: Memory,
        /// Offset of each element.
        offset: ValueId,
        /// The elements.
        value: ValueId,
        /// Where to write (bool, same form); everywhere without one.
        mask: Option<ValueId>,
        /// As in [`Instruction::Load`].
        vector: u32,
    },
    /// Begins to copy elements from global to shared memory, zeros where a mask does not hold
    /// (`cp.async`). They are there after [`Instruction::CopyWait`], for other threads after a barrier behind
    /// it. Of the threads that hold the same element only the first one copies it.
    Copy {
        /// To where in shared memory, and the offset of each element.
        to: (Memory, ValueId),
        /// From where in global memory, and the offset of each element.
        from: (Memory, ValueId),
        /// Where to read (bool, same form), and where to copy at all; everywhere without one.
        masks: [Option<ValueId>; 2],
        /// As in [`Instruction::Load`]; 4, 8 or 16 bytes, aligned on both sides.
        vector: u32,
    },
    /// Makes the thread's copies that it has begun since the last one a group.
    CopyCommit,
    /// Waits until of the thread's groups of copies at most this many, the latest, are under way.
    CopyWait(u32),
    /// Folds fragments of one layout along a dimension, over all registers and threads that hold it;
    /// results have size 1 there (layout [`Layout::dropped`]). Block-wide.
    Reduce {
        /// The dimension of the tile.
        dim: u32,
        /// Accumulators.
        values: Vec<ValueId>,
        /// As [`fornax_ir::op::Reducer::combine`].
        combine: Vec<ScalarExpr>,
    },
    /// Inclusive prefixes of fragments of one layout along a dimension, and behind them what the whole
    /// dimension is folded to, as [`Instruction::Reduce`]. Block-wide.
    Scan {
        /// The dimension of the tile.
        dim: u32,
        /// Accumulators.
        values: Vec<ValueId>,
        /// As [`fornax_ir::op::Reducer::combine`].
        combine: Vec<ScalarExpr>,
    },
    /// Waits for all threads of the block; shared memory written before is visible after.
    Barrier,
    /// How many blocks have taken a ticket at an offset before; an `i32`, the same in all threads of the
    /// block. Block-wide. Blocks with lower tickets are running or have ended.
    Ticket {
        /// An array of `i32` that counts the tickets; zero before the first is taken and after the last.
        memory: Memory,
        /// Where in it, a scalar.
        offset: ValueId,
        /// How many tickets are taken there, a scalar `i32`.
        of: ValueId,
        /// Whether global memory that blocks wrote before they took lower tickets is visible after.
        ordered: bool,
    },
    /// Waits until a number of blocks have come here with one offset; global memory that they wrote before
    /// is visible after. Block-wide. All of them must be able to run at once.
    Meet {
        /// An array of `i32` that counts them; zero at first, it may serve once in a launch and again in the
        /// next one.
        memory: Memory,
        /// Where in it, a scalar.
        offset: ValueId,
        /// How many.
        blocks: u32,
    },
    /// Writes numbers with a tag, each number and its tag at once, so that other blocks can wait for them:
    /// see [`Instruction::Receive`].
    Send {
        /// A written array of `i64`, an element for each number with its tag.
        memory: Memory,
        /// Offset of each element.
        offset: ValueId,
        /// The numbers, `f32`; of the threads that hold the same one only the first writes it.
        value: ValueId,
        /// The tag, a scalar `i32`.
        tag: ValueId,
        /// Where to write (bool, same form); everywhere without one.
        mask: Option<ValueId>,
    },
    /// Waits for numbers with a tag and reads them; each thread for its own. What sends them must be able to
    /// run, and have been sent by other blocks or before the last barrier.
    Receive {
        /// A written array of `i64`, as in [`Instruction::Send`].
        memory: Memory,
        /// Offset of each element.
        offset: ValueId,
        /// The tag, a scalar `i32`.
        tag: ValueId,
        /// Where to wait and read (bool, same form), and the number elsewhere; everywhere without one.
        mask: Option<(ValueId, Scalar)>,
    },
    /// A loop; runs while `index < to`. Results are the carried values after the last round. All
    /// threads of a block have the same bounds.
    For {
        /// The loop's index; defined in the body, `i32` or `i64`.
        index: ValueId,
        /// First index.
        from: ValueId,
        /// First index beyond.
        to: ValueId,
        /// Step, positive.
        step: u32,
        /// Carried values: initial value, and the value that stands for it in the body.
        carried: Vec<(ValueId, ValueId)>,
        /// The body.
        body: Block,
        /// The carried values' next values, defined in the body.
        yields: Vec<ValueId>,
        /// Rounds to unroll at once; 1: none.
        unroll: u32,
    },
    /// Runs the body where a scalar condition (bool) holds. `uniform`: it is the same in all threads.
    If {
        /// The condition.
        condition: ValueId,
        /// Whether all threads of a block have the same condition.
        uniform: bool,
        /// The body.
        body: Block,
    },
}

impl Instruction {
    /// The name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Instruction::Constant(_) => "constant",
            Instruction::Param(_) => "param",
            Instruction::BlockIndex(_) => "block_index",
            Instruction::Coordinate(_) => "coordinate",
            Instruction::Lookup { .. } => "lookup",
            Instruction::Splat(_) => "splat",
            Instruction::Broadcast(_) => "broadcast",
            Instruction::Unary(function, _) => function.name(),
            Instruction::Binary(function, ..) => function.name(),
            Instruction::Fma(..) => "fma",
            Instruction::Select(..) => "select",
            Instruction::Cast(..) => "cast",
            Instruction::RoundTf32(_) => "round_tf32",
            Instruction::Reorder(_) => "reorder",
            Instruction::Mma { .. } => "mma",
            Instruction::Wgmma { .. } => "wgmma",
            Instruction::WgmmaRegisters { .. } => "wgmma_registers",
            Instruction::WgmmaPlaces { .. } => "wgmma_places",
            Instruction::WgmmaWait(_) => "wgmma_wait",
            Instruction::WgmmaPending(_) => "wgmma_pending",
            Instruction::ProxyFence => "proxy_fence",
            Instruction::Load { .. } => "load",
            Instruction::Store { .. } => "store",
            Instruction::Copy { .. } => "copy",
            Instruction::CopyCommit => "copy_commit",
            Instruction::CopyWait(_) => "copy_wait",
            Instruction::Reduce { .. } => "reduce",
            Instruction::Scan { .. } => "scan",
            Instruction::Barrier => "barrier",
            Instruction::Ticket { .. } => "ticket",
            Instruction::Meet { .. } => "meet",
            Instruction::Send { .. } => "send",
            Instruction::Receive { .. } => "receive",
            Instruction::For { .. } => "for",
            Instruction::If { .. } => "if",
        }
    }
}
