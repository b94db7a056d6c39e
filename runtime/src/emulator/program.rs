//! The decoded form of a kernel: what the interpreter runs.
//!
//! Registers are slots of three files (predicates, 32 bits, 64 bits); 16-bit registers live in
//! 32-bit slots with their upper half zero. A slot holds several registers of disjoint lifetimes.

use std::sync::Arc;

use super::parse::{Space, Type};

/// A slot of a register file.
pub(crate) type Slot = u32;

/// A source: a slot, or with the top bit set an index into [`Program::constants`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Src(pub(crate) u32);

/// The bit that tells constants from slots in [`Src`].
pub(crate) const CONSTANT_BIT: u32 = 1 << 31;

/// A predicate source: a slot, or a constant, possibly negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PredSrc {
    /// A slot and whether it is negated.
    Slot(Slot, bool),
    /// All lanes the same.
    Constant(bool),
}

/// Where a data result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dst {
    /// A 16-bit register in a slot of the 32-bit file.
    Half(Slot),
    /// A 32-bit register.
    Word(Slot),
    /// A 64-bit register.
    Wide(Slot),
    /// Nowhere.
    Sink,
}

/// A data source of any width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnySrc {
    /// 16 or 32 bits.
    Word(Src),
    /// 64 bits.
    Wide(Src),
}

/// Integer types that arithmetic is done in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum IntType { U16, S16, U32, S32, U64, S64 }

impl IntType {
    /// The arithmetic type for a PTX type; bits count as unsigned.
    pub(crate) fn of(ty: Type) -> Option<IntType> {
        Some(match ty {
            Type::B16 | Type::U16 => IntType::U16,
            Type::S16 => IntType::S16,
            Type::B32 | Type::U32 => IntType::U32,
            Type::S32 => IntType::S32,
            Type::B64 | Type::U64 => IntType::U64,
            Type::S64 => IntType::S64,
            _ => return None,
        })
    }

    /// Whether values live in the 64-bit file.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, IntType::U64 | IntType::S64)
    }

    /// Width in bits.
    pub(crate) fn n_bits(self) -> u32 {
        match self {
            IntType::U16 | IntType::S16 => 16,
            IntType::U32 | IntType::S32 => 32,
            IntType::U64 | IntType::S64 => 64,
        }
    }
}

/// Integer operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum IntOp1 { Neg, Abs, Not, Cnot, Brev }

/// Integer operations of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum IntOp2 {
    Add, Sub, AddSat, SubSat, MulLo, MulHi, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr,
    Mul24,
    /// `min.relu` and `max.relu`: not less than 0.
    MinRelu, MaxRelu,
}

/// Integer operations of three operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum IntOp3 { MadLo, MadHi, Sad, Bfe }

/// Operations that count or find bits, with a 32-bit result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum CountOp { Popc, Clz, Bfind, BfindShift }

/// Bitwise combinations of predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum BoolOp { And, Or, Xor }

/// Comparisons; the `u` forms are true where an operand is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Compare { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan }

/// Types that comparisons and selections are done in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareType {
    /// An integer type.
    Int(IntType),
    /// A scalar floating-point type.
    Float(FloatType),
}

/// Scalar floating-point types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum FloatType { F16, Bf16, F32, F64 }

/// Directions of rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    NearestAway,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
}

/// Modifiers of floating-point arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatMode {
    /// How inexact results are rounded.
    pub(crate) rounding: Rounding,
    /// Subnormal inputs and results become zeros of their sign.
    pub(crate) ftz: bool,
    /// Results are clamped to [0, 1], NaN to 0.
    pub(crate) saturate: bool,
    /// Results are clamped to at least 0, NaN stays (`.relu`).
    pub(crate) relu: bool,
}

/// Floating-point operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum FloatOp1 { Neg, Abs, Rcp, Sqrt, Approx(Approx) }

/// Operations that the hardware only approximates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Approx { Rcp, Sqrt, Rsqrt, Ex2, Lg2, Sin, Cos, Tanh, Div, DivFull }

/// Floating-point operations of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum FloatOp2 {
    Add, Sub, Mul, Div, Min, Max, MinNan, MaxNan, MinXorsign, MaxXorsign, MinNanXorsign,
    MaxNanXorsign, CopySign, DivApprox, DivFull,
}

/// The classes that `testp` tests for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum TestClass { Finite, Infinite, Number, NotANumber, Normal, Subnormal }

/// Half-precision types, with the number of packed values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HalfType {
    /// bfloat16 rather than binary16.
    pub(crate) bf16: bool,
    /// Two values in 32 bits rather than one in 16.
    pub(crate) packed: bool,
}

/// Special registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// `%tid` along an axis.
    Tid(u8),
    /// `%ntid` along an axis.
    Ntid(u8),
    /// `%ctaid` along an axis.
    Ctaid(u8),
    /// `%nctaid` along an axis.
    Nctaid(u8),
    /// `%cluster_ctaid` along an axis.
    ClusterCtaid(u8),
    /// `%cluster_nctaid` along an axis.
    ClusterNctaid(u8),
    /// `%clusterid` along an axis.
    Clusterid(u8),
    /// `%nclusterid` along an axis.
    Nclusterid(u8),
    /// `%cluster_ctarank`.
    ClusterCtarank,
    /// `%cluster_nctarank`.
    ClusterNctarank,
    /// `%laneid`.
    Laneid,
    /// `%warpid`.
    Warpid,
    /// `%nwarpid`.
    Nwarpid,
    /// `%smid` and other identities of which there is one here.
    Zero,
    /// `%nsmid`.
    Nsmid,
    /// `%lanemask_eq`, `le`, `lt`, `ge`, `gt`.
    LanemaskEq,
    /// Lanes up to and with this one.
    LanemaskLe,
    /// Lanes before this one.
    LanemaskLt,
    /// Lanes from this one.
    LanemaskGe,
    /// Lanes after this one.
    LanemaskGt,
    /// `%clock`, `%clock64`, `%globaltimer`: instructions that the warp has run.
    Clock,
    /// `%dynamic_smem_size`.
    DynamicSharedBytes,
    /// `%total_smem_size`.
    TotalSharedBytes,
}

/// An address: a base and a constant offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// The base; 32 or 64 bits.
    pub(crate) base: AnySrc,
    /// Bytes added to it.
    pub(crate) offset: i32,
}

/// Operands kept outside the instruction: `count` entries from `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    /// First entry.
    pub(crate) start: u32,
    /// Number of entries.
    pub(crate) count: u32,
}

/// What memory an access goes to, and how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// The state space.
    pub(crate) space: Space,
    /// Type of an element.
    pub(crate) ty: Type,
    /// The address.
    pub(crate) address: Address,
    /// Number of this access in the program, for its allocation cache.
    pub(crate) site: u32,
    /// Memory order.
    pub(crate) order: Order,
}

/// Memory order of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Plain and volatile accesses.
    Weak,
    /// Relaxed, acquire and release accesses, and atomics: these do not race with each other.
    Strong,
}

/// Atomic read-modify-write operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum AtomicOp { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec }

/// Modes of `shfl.sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum ShuffleMode { Up, Down, Bfly, Idx }

/// Modes of `vote.sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum VoteMode { All, Any, Uni, Ballot }

/// Operations of `redux.sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum ReduxOp { Add, MinU, MaxU, MinS, MaxS, And, Or, Xor }

/// What a matrix multiply-accumulate multiplies; with it goes its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factors {
    /// `m16n8k8` of TF32 in 32 bits.
    Tf32,
    /// `m16n8k16` of pairs of bfloat16.
    Bf16,
    /// `m16n8k16` of pairs of binary16.
    F16,
}

/// The left factors of an [`AsyncProduct`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftFactors {
    /// In shared memory: the descriptor.
    Shared(Src),
    /// In four registers of each lane.
    Registers(List),
}

/// A `wgmma.mma_async` of 64 rows; operands in shared memory have inner elements adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsyncProduct {
    /// What is multiplied: 32 bytes of inner elements.
    pub(crate) factors: Factors,
    /// Columns of the result.
    pub(crate) n_columns: u16,
    /// The sums' registers, as results.
    pub(crate) dst: List,
    /// The sums' registers, as operands.
    pub(crate) sums: List,
    /// The left operand.
    pub(crate) left: LeftFactors,
    /// The descriptor of the right operand.
    pub(crate) right: Src,
    /// Whether the sums are added to, rather than overwritten.
    pub(crate) adds: PredSrc,
    /// All lanes.
    pub(crate) members: Src,
}

/// What a block barrier does beside waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierAction {
    /// Waits.
    Sync,
    /// Counts its threads in without waiting.
    Arrive,
    /// Waits and counts the threads whose predicate is true.
    Popc(Slot, PredSrc),
    /// Waits and combines the predicates by and or or.
    Combine(BoolOp, Slot, PredSrc),
}

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// Type of the result.
    pub(crate) to: Type,
    /// Type of the operand.
    pub(crate) from: Type,
    /// How inexact results are rounded.
    pub(crate) rounding: Rounding,
    /// Round to an integral value (`.rni` and its kin).
    pub(crate) integral: bool,
    /// Clamp to the range of `to`, or to [0, 1] for floats.
    pub(crate) saturate: bool,
    /// Flush single-precision subnormals.
    pub(crate) ftz: bool,
    /// Clamp to at least 0.
    pub(crate) relu: bool,
}

/// An operation.
#[derive(Debug, Clone, Copy)]
#[rustfmt::skip]
pub(crate) enum Op {
    Mov32 { dst: Slot, a: Src },
    Mov64 { dst: Slot, a: Src },
    MovPred { dst: Slot, a: PredSrc },
    Special { dst: Dst, which: Special },
    Pack { dst: Dst, parts: List, part_bits: u8 },
    Unpack { parts: List, a: AnySrc, part_bits: u8 },

    Int1 { op: IntOp1, ty: IntType, dst: Slot, a: Src },
    Int2 { op: IntOp2, ty: IntType, dst: Slot, a: Src, b: Src },
    Int3 { op: IntOp3, ty: IntType, dst: Slot, a: Src, b: Src, c: Src },
    /// `add`, `min` and `max` of pairs of 16-bit integers.
    IntPair { op: IntOp2, signed: bool, relu: bool, dst: Slot, a: Src, b: Src },
    MulWide { ty: IntType, dst: Slot, a: Src, b: Src },
    MadWide { ty: IntType, dst: Slot, a: Src, b: Src, c: Src },
    /// `add.cc`, `addc`, `sub.cc`, `subc` and so on, through the carry flag.
    Carry { subtract: bool, carry_in: bool, carry_out: bool, wide: bool, dst: Slot, a: Src, b: Src },
    Count { op: CountOp, ty: IntType, dst: Slot, a: Src },
    Bfi { wide: bool, dst: Slot, parts: List },
    Bmsk { wrap: bool, dst: Slot, a: Src, b: Src },
    Szext { signed: bool, wrap: bool, dst: Slot, a: Src, b: Src },
    Prmt { mode: u8, dst: Slot, a: Src, b: Src, c: Src },
    Shf { left: bool, wrap: bool, dst: Slot, a: Src, b: Src, c: Src },
    Lop3 { table: u8, dst: Slot, a: Src, b: Src, c: Src },
    Dp4a { signed_a: bool, signed_b: bool, dst: Slot, a: Src, b: Src, c: Src },
    Dp2a { signed_a: bool, signed_b: bool, high: bool, dst: Slot, a: Src, b: Src, c: Src },
    NotPred { dst: Slot, a: PredSrc },
    BoolPred { op: BoolOp, dst: Slot, a: PredSrc, b: PredSrc },

    Setp { ty: CompareType, compare: Compare, ftz: bool, dst: Slot, inverse: Option<Slot>, a: Src, b: Src, combine: Option<(BoolOp, PredSrc)> },
    /// `setp` of pairs of halves: `dst` compares the lower ones, `high` the upper ones.
    SetpPair { bf16: bool, compare: Compare, ftz: bool, dst: Slot, high: Option<Slot>, a: Src, b: Src, combine: Option<(BoolOp, PredSrc)> },
    /// Like `Setp`, with all ones, or 1.0 where `float`, for true.
    Set { ty: CompareType, compare: Compare, ftz: bool, float: bool, dst: Slot, a: Src, b: Src, combine: Option<(BoolOp, PredSrc)> },
    Selp { wide: bool, dst: Slot, a: Src, b: Src, p: PredSrc },
    /// `slct`: `a` where `c` is not negative, with `c` an s32 or an f32.
    Slct { wide: bool, float: bool, dst: Slot, a: Src, b: Src, c: Src },

    F32One { op: FloatOp1, mode: FloatMode, dst: Slot, a: Src },
    F32Two { op: FloatOp2, mode: FloatMode, dst: Slot, a: Src, b: Src },
    F32Fma { mode: FloatMode, dst: Slot, a: Src, b: Src, c: Src },
    F64One { op: FloatOp1, dst: Slot, a: Src },
    F64Two { op: FloatOp2, dst: Slot, a: Src, b: Src },
    F64Fma { dst: Slot, a: Src, b: Src, c: Src },
    HalfOne { ty: HalfType, op: FloatOp1, mode: FloatMode, dst: Slot, a: Src },
    HalfTwo { ty: HalfType, op: FloatOp2, mode: FloatMode, dst: Slot, a: Src, b: Src },
    HalfFma { ty: HalfType, mode: FloatMode, dst: Slot, a: Src, b: Src, c: Src },
    Testp { wide: bool, class: TestClass, dst: Slot, a: Src },

    Convert { conversion: Conversion, dst: Dst, a: AnySrc },
    /// `cvt.rn.f16x2.f32 d, a, b` and the bf16 form: `a` becomes the upper half.
    ConvertPair { bf16: bool, mode: FloatMode, dst: Slot, a: Src, b: Src },
    /// `cvt.rna.tf32.f32` and the `.rn` form.
    ConvertTf32 { rounding: Rounding, dst: Slot, a: Src },

    Load { access: Access, to: List },
    Store { access: Access, from: List },
    Atomic { access: Access, op: AtomicOp, dst: Dst, b: AnySrc, c: Option<AnySrc> },
    /// Adds `base` (to a generic address) or subtracts it (from one).
    Cvta { dst: Dst, a: AnySrc, space: Space, to_space: bool },
    IsSpace { space: Space, dst: Slot, a: Src },
    AsyncCopy { target: Address, source: Address, n_bytes: u8, source_bytes: Option<Src>, site: u32 },
    AsyncCommit,
    /// Waits until at most `pending` groups are under way; with `all` also for copies in no group.
    AsyncWait { pending: u32, all: bool },
    Fence,
    Nop,

    Shuffle { mode: ShuffleMode, dst: Slot, ok: Option<Slot>, a: Src, b: Src, c: Src, members: Src },
    Vote { mode: VoteMode, dst: Slot, a: PredSrc, members: Src },
    /// `match.sync`; with `all` a predicate says whether all values agree.
    Match { all: bool, ty: IntType, dst: Slot, ok: Option<Slot>, a: Src, members: Src },
    Redux { op: ReduxOp, dst: Slot, a: Src, members: Src },
    Elect { dst: Dst, ok: Slot, members: Src },
    Activemask { dst: Slot },
    /// `mma.sync` with `f32` accumulators: lists of `d`, and of `a`, `b` and `c` in one.
    Mma { factors: Factors, dst: List, operands: List, members: Src },
    /// `wgmma.mma_async`: [`Program::async_products`] has it.
    Wgmma { index: u32 },
    WgmmaCommit,
    /// Waits until at most `pending` groups of `wgmma` are under way.
    WgmmaWait { pending: u32 },
    /// Makes earlier writes of the thread visible to asynchronous operations (`fence.proxy.async`).
    ProxyFence,
    WarpSync { members: Src },

    Branch { target: u32 },
    BranchIndexed { index: Src, targets: List },
    Barrier { id: Src, n_threads: Option<Src>, action: BarrierAction },
    Exit,
    Trap,
}

/// An instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inst {
    /// What to do.
    pub(crate) op: Op,
    /// For which lanes.
    pub(crate) guard: PredSrc,
    /// Its line in the text.
    pub(crate) line: u32,
    /// Whether [`Program::register_checks`] has an entry for it.
    pub(crate) checks_registers: bool,
}

/// Use and definition of registers that may be read before they are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct RegisterCheck {
    /// The instruction.
    pub(crate) pc: u32,
    /// Tracked registers that it reads, as indices into [`Program::tracked_registers`].
    pub(crate) reads: Vec<u32>,
    /// Its guard, if that is tracked.
    pub(crate) guard: Option<u32>,
    /// Tracked registers that it writes.
    pub(crate) writes: Vec<u32>,
}

/// A shared variable's place.
#[derive(Debug, Clone)]
pub(crate) struct SharedRange {
    /// Offset of the first byte.
    pub(crate) offset: u32,
    /// Size in bytes.
    pub(crate) n_bytes: u32,
}

/// A decoded kernel.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: String,
    /// The module's text, for messages.
    pub(crate) text: Arc<str>,
    /// Offset and size of each parameter.
    pub(crate) parameters: Vec<(u32, u32)>,
    /// Limits on the launch.
    pub(crate) max_threads: Option<[u32; 3]>,
    /// The block shape that a launch must have.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// The cluster shape that a launch must have.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// The instructions; the last one is `Exit`.
    pub(crate) code: Vec<Inst>,
    /// Constant operands.
    pub(crate) constants: Vec<u64>,
    /// Destination lists.
    pub(crate) dsts: Vec<Dst>,
    /// Source lists.
    pub(crate) srcs: Vec<AnySrc>,
    /// Branch target lists.
    pub(crate) targets: Vec<u32>,
    /// Operands of [`Op::Wgmma`].
    pub(crate) async_products: Vec<AsyncProduct>,
    /// Sizes of the register files: predicates, 32 bits, 64 bits.
    pub(crate) n_slots: [u32; 3],
    /// Names of the registers whose initialisation is tracked at run time.
    pub(crate) tracked_registers: Vec<String>,
    /// Their uses, by increasing `pc`.
    pub(crate) register_checks: Vec<RegisterCheck>,
    /// Number of global access sites.
    pub(crate) n_sites: u32,
    /// Static shared variables by increasing offset, with gaps between them.
    pub(crate) shared: Vec<SharedRange>,
    /// Their total size without the gaps.
    pub(crate) static_shared_bytes: u32,
    /// Where dynamic shared memory starts.
    pub(crate) dynamic_shared_offset: u32,
    /// Bytes of local memory of a thread.
    pub(crate) local_bytes: u32,
    /// The narrowest shared access in bytes: the grain of the shared-memory shadow.
    pub(crate) shared_grain: u32,
    /// The narrowest global write in bytes.
    pub(crate) global_grain: u32,
}

impl Program {
    /// Whether a thread may look for what other blocks write while they run: it reads global memory in an
    /// order that such writes are seen in.
    pub(crate) fn waits_for_blocks(&self) -> bool {
        self.code.iter().any(|inst| match inst.op {
            Op::Load { access, .. } => {
                access.order == Order::Strong && access.space != Space::Shared
            }
            _ => false,
        })
    }

    /// The entries of a list of sources.
    pub(crate) fn sources(&self, list: List) -> &[AnySrc] {
        &self.srcs[list.start as usize..][..list.count as usize]
    }

    /// The entries of a list of results.
    pub(crate) fn results(&self, list: List) -> &[Dst] {
        &self.dsts[list.start as usize..][..list.count as usize]
    }

    /// The entries of a list of branch targets.
    pub(crate) fn branch_targets(&self, list: List) -> &[u32] {
        &self.targets[list.start as usize..][..list.count as usize]
    }
}

impl Program {
    /// The text of a line, trimmed.
    pub(crate) fn line_text(&self, line: usize) -> String {
        self.text.lines().nth(line.saturating_sub(1)).unwrap_or("").trim().to_owned()
    }
}
