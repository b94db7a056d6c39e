//! The manifest of a bundle: everything a runtime must know to run it.
//!
//! A manifest holds one [`TargetPlan`] per target it was compiled for. A plan has kernels, buffers and
//! two programs: *prepare* runs once after loading (and again when weights change) and fills buffers
//! that depend on weights alone; *run* maps inputs to outputs. All sizes are [`Dim`]s over the
//! signature's symbols, so that one bundle can serve a range of shapes.

use serde::{Deserialize, Serialize};

use crate::{DType, Dim, DimRange, Precision, Symbol};

/// The manifest version this crate writes. It reads this one and all older ones.
pub const SCHEMA: u32 = 1;

/// Alignment of every buffer in bytes: what `cuMemAlloc` guarantees, and what vector accesses and
/// TMA descriptors need.
pub const BUFFER_ALIGN: u64 = 256;

/// What `manifest.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format, see [`SCHEMA`].
    pub schema: u32,
    /// What wrote the bundle.
    pub producer: Producer,
    /// The model's name, for people.
    pub model: String,
    /// Inputs, outputs and symbolic sizes.
    pub signature: Signature,
    /// The precision policy it was compiled under, such as `ieee`.
    pub precision: String,
    /// The class of rewrites that was allowed: `bitwise`, `real` or `approx`.
    pub rewrites: String,
    /// The imported weights, in the order [`BufferKind::Weight`] counts them.
    pub weights: Vec<WeightDecl>,
    /// One plan per target, best first.
    pub targets: Vec<TargetPlan>,
}

/// Tools that made the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// Version of Fornax.
    pub fornax: String,
    /// Version of LLVM.
    pub llvm: String,
}

/// What a bundle takes and gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Sizes that the caller's inputs decide.
    pub dims: Vec<DimDecl>,
    /// Inputs in order.
    pub inputs: Vec<Port>,
    /// Outputs in order.
    pub outputs: Vec<Port>,
}

/// A symbolic size and the values it may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimDecl {
    /// The name in size expressions.
    pub name: Symbol,
    /// The values allowed.
    pub range: DimRange,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The name in the imported model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; tensors are contiguous.
    pub shape: Vec<Dim>,
}

/// A weight of the imported model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightDecl {
    /// The name in the imported model, and in `weights.safetensors`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Whether `weights.safetensors` holds the data; otherwise it is bound by name at load.
    pub embedded: bool,
}

/// Kernels, buffers and programs for one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetPlan {
    /// The target, such as `sm_90a`.
    pub target: String,
    /// Kernels that the programs launch.
    pub kernels: Vec<Kernel>,
    /// Regions of the model, for people and for bisection.
    pub regions: Vec<Region>,
    /// Memory the kernels read and write.
    pub buffers: Vec<Buffer>,
    /// Bytes of the arena that [`BufferKind::Scratch`] buffers share, during a run.
    pub scratch_bytes: Dim,
    /// Bytes of the arena that [`BufferKind::Prepared`] buffers lie in, as long as the bundle is loaded.
    pub prepared_bytes: Dim,
    /// Bytes of the arena that [`BufferKind::Counters`] buffers lie in.
    #[serde(default)]
    pub counter_bytes: Dim,
    /// Fills the prepared buffers from the weights.
    pub prepare: Vec<Step>,
    /// Computes the outputs from the inputs.
    pub run: Vec<Step>,
}

/// A kernel: an entry point of a PTX module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// The entry's name in the module.
    pub name: String,
    /// The archive entry that holds the module's PTX, such as `ptx/sm_90a/r3_matmul.ptx`.
    pub ptx: String,
    /// Threads in a block.
    pub block: [u32; 3],
    /// Blocks in a cluster; all 1 without clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_shared_bytes: u32,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// The region it computes (or a part of it).
    pub region: usize,
    /// Bytes that must move through device memory: each input read once, each output written once.
    pub bytes: Dim,
    /// Arithmetic operations; a fused multiply-add counts two.
    pub flops: Dim,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Param {
    /// The address of a buffer.
    Pointer {
        /// The parameter's name.
        name: String,
        /// Element type.
        dtype: DType,
        /// Whether the kernel writes through it.
        written: bool,
    },
    /// A number passed by value.
    Scalar {
        /// The parameter's name.
        name: String,
        /// Its type: `i32` or `i64`.
        dtype: DType,
    },
}

/// A region: operators that are computed together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// The name in plans, kernels and reports, such as `r3`.
    pub name: String,
    /// The class that decides how it is lowered: `pointwise`, `reduce`, `contraction`, ...
    pub class: String,
    /// The schedule in text form.
    pub schedule: String,
    /// How accurately its contraction multiplies.
    #[serde(default)]
    pub precision: Precision,
    /// The operators inside, in order.
    pub ops: Vec<RegionOp>,
    /// Buffers it reads, in parameter order.
    pub reads: Vec<usize>,
    /// Buffers it writes, one per output of its body.
    pub writes: Vec<usize>,
}

/// An operator inside a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionOp {
    /// The operator in the graph IR.
    pub op: String,
    /// Names of the imported model's nodes that it comes from.
    pub origins: Vec<String>,
}

/// A piece of device memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// The name in plans and reports.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes of the tensor in it, outermost first; contiguous.
    pub shape: Vec<Dim>,
    /// Where it lies.
    #[serde(flatten)]
    pub kind: BufferKind,
}

/// Where a buffer lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BufferKind {
    /// The caller's input.
    Input {
        /// Which of the signature's inputs.
        index: usize,
    },
    /// The caller's output.
    Output {
        /// Which of the signature's outputs.
        index: usize,
    },
    /// An imported weight.
    Weight {
        /// Which of the manifest's weights.
        index: usize,
    },
    /// Filled by the prepare program.
    Prepared {
        /// Offset into the prepared arena in bytes, a multiple of [`BUFFER_ALIGN`].
        offset: Dim,
    },
    /// Counts blocks of kernels, which leave it so that they can count again: all zeros at first. Runs that may
    /// be under way at once have one each.
    Counters {
        /// Offset into the arena of counters in bytes, a multiple of [`BUFFER_ALIGN`].
        offset: Dim,
    },
    /// Alive between two steps of a run.
    Scratch {
        /// Offset into the scratch arena in bytes, a multiple of [`BUFFER_ALIGN`].
        offset: Dim,
    },
}

/// One step of a program; steps run in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "lowercase")]
pub enum Step {
    /// Launches a kernel.
    Launch(Launch),
    /// Copies a whole buffer onto another of the same size.
    Copy {
        /// The source buffer.
        from: usize,
        /// The destination buffer.
        to: usize,
    },
    /// Sub-plans that compute the same; one of them is run.
    Choice {
        /// What is chosen, for people.
        name: String,
        /// The sub-plan that runs, an index into `alternatives`.
        selected: usize,
        /// The sub-plans.
        alternatives: Vec<Alternative>,
    },
}

/// One sub-plan of a [`Step::Choice`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What is special about it, for people.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// A kernel launch. A grid with a zero does nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Which of the plan's kernels.
    pub kernel: usize,
    /// Blocks in the grid.
    pub grid: [Dim; 3],
    /// One argument per parameter of the kernel.
    pub args: Vec<Arg>,
}

/// A kernel argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "arg", rename_all = "lowercase")]
pub enum Arg {
    /// A buffer's address.
    Buffer {
        /// Which of the plan's buffers.
        buffer: usize,
    },
    /// A number.
    Scalar {
        /// Its value.
        value: Dim,
    },
}

impl Buffer {
    /// The size in bytes, not rounded up.
    pub fn bytes(&self) -> Dim {
        self.shape.iter().product::<Dim>() * Dim::from(self.dtype.size())
    }
}
