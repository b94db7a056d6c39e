//! Plans: what fusion decides and code generation lowers.
//!
//! A plan is a list of regions in execution order. A region is a small graph that is computed
//! together, with the schedule it is lowered by. Values that pass between regions lie in memory.

use std::collections::BTreeMap;

use fornax_bundle::{Dim, DimRange, Precision, Symbol, Tensor};

use crate::{Graph, Shape, SourceMap, Type};

pub mod adjacent;
pub mod index;
mod join;
mod schedule;
mod shared;
mod structure;
pub mod windows;

pub use join::{Joined, join};
pub use schedule::{
    PACKED_MULTIPLE, PAIRED_BYTES, PAIRED_SUMS, PAIRED_THREADS, Schedule, ScheduleError,
};
pub use shared::{read_box, read_range};
pub use structure::{
    Reduced, Rejection, RejectionReason, ResultFold, ResultOutput, RowAnchor, RowOutput, Rows,
    Structure, structure,
};

/// A fused model.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The model's name.
    pub name: String,
    /// Ranges of the symbolic sizes.
    pub dims: BTreeMap<Symbol, DimRange>,
    /// Where nodes come from; shared by all region bodies.
    pub sources: SourceMap,
    /// The model's inputs, in order.
    pub inputs: Vec<Value>,
    /// The weights that regions read.
    pub weights: Vec<Value>,
    /// Weights that the compiler itself made (outlined constants): always embedded in the bundle.
    pub constants: BTreeMap<String, Tensor>,
    /// Arrays of the run program that regions write parts of (see [`Part`]).
    pub shared: Vec<Value>,
    /// Regions, operands before users, those of the prepare program first.
    pub regions: Vec<Region>,
    /// The model's outputs, in order.
    pub outputs: Vec<PlanOutput>,
}

impl Plan {
    /// The type of a value in memory.
    ///
    /// # Panics
    /// When the plan has no such value.
    pub fn ty(&self, value: ValueRef) -> &Type {
        self.try_ty(value).expect("invariant: the plan has the value")
    }

    /// The type of a value in memory; nothing when there is no such value.
    pub fn try_ty(&self, value: ValueRef) -> Option<&Type> {
        match value {
            ValueRef::Input(index) => self.inputs.get(index).map(|input| &input.ty),
            ValueRef::Weight(index) => self.weights.get(index).map(|weight| &weight.ty),
            ValueRef::Shared(index) => self.shared.get(index).map(|shared| &shared.ty),
            ValueRef::Region { region, output } => {
                let body = &self.regions.get(region)?.body;
                let output = body.outputs().get(output)?;
                body.contains(output.value).then(|| body.ty(output.value))
            }
        }
    }
}

impl Plan {
    /// Whether a region reads what another one leaves in memory.
    pub fn reads(&self, region: usize, from: usize) -> bool {
        let written = &self.regions[from].parts;
        let reader = &self.regions[region];
        reader.operands.iter().zip(reader.body.inputs()).any(|(operand, &input)| match *operand {
            ValueRef::Region { region, .. } => region == from,
            ValueRef::Shared(shared) => written.iter().any(|(&output, part)| {
                let outputs = self.regions[from].body.outputs();
                let size = &self.regions[from].body.ty(outputs[output].value).shape[part.axis];
                let (first, end) = read_range(&reader.body, input, part.axis, &self.dims);
                let is_apart = |low: &Dim, high: &Dim| (low - high).bounds(&self.dims).0 >= 0;
                let part_end = &part.start + size;
                part.shared == shared
                    && !is_apart(&first, &part_end)
                    && !is_apart(&part.start, &end)
            }),
            ValueRef::Input(_) | ValueRef::Weight(_) => false,
        })
    }
}

/// A named value of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The name in the imported model.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// A named result of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOutput {
    /// The name in the imported model.
    pub name: String,
    /// Which value it is.
    pub value: ValueRef,
}

/// A value in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueRef {
    /// An input of the plan.
    Input(usize),
    /// A weight of the plan.
    Weight(usize),
    /// A shared array of the plan. Who reads it reads only what earlier regions have written.
    Shared(usize),
    /// An output of a region that is no part of a shared array.
    Region {
        /// Which region.
        region: usize,
        /// Which of its outputs.
        output: usize,
    },
}

/// Where an output lies in a shared array: along `axis`, from `start` on; along the other axes it has all
/// elements. A concatenation whose operands are written like this needs no kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which shared array.
    pub shared: usize,
    /// The axis.
    pub axis: usize,
    /// The first position.
    pub start: Dim,
    /// The shape of the shared array.
    pub whole: Shape,
}

/// When a region runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Once after loading: it depends on weights alone.
    Prepare,
    /// At each run.
    Run,
}

/// Operators that are computed together; nothing inside touches device memory unless the schedule
/// says so.
#[derive(Debug, Clone)]
pub struct Region {
    /// The name, unique in the plan, such as `r3`.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// What is computed: `operands[i]` is bound to the body's input `i`; the body has no weights, and
    /// its constants have one element or are splats.
    pub body: Graph,
    /// The values it reads.
    pub operands: Vec<ValueRef>,
    /// The outputs that are written into shared arrays.
    pub parts: BTreeMap<usize, Part>,
    /// How accurately its contraction multiplies.
    pub precision: Precision,
    /// How it is lowered.
    pub schedule: Schedule,
}

impl Region {
    /// What the body is.
    ///
    /// # Errors
    /// What forbids that it is computed as one region.
    pub fn structure(&self) -> Result<Structure, Rejection> {
        structure(&self.body, &self.body.dims)
    }

    /// The name of the body's structure (see [`Structure::class`]); `illegal` without one.
    pub fn class(&self) -> &'static str {
        self.structure().map_or("illegal", |structure| structure.class())
    }
}

/// What a workspace of a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arena {
    /// Memory that is alive while the region runs, in its phase.
    Phase,
    /// Filled by the prepare program, it stays, though the region runs later.
    Prepared,
    /// Counters of a known size, zero at first, which kernels leave as they need them again.
    Counters,
}

/// Where the values between regions lie, and the workspaces of launch groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryPlan {
    /// Bytes of the arena for values of the run program.
    pub scratch_bytes: Dim,
    /// Bytes of the arena for values of the prepare program.
    pub prepared_bytes: Dim,
    /// Bytes of the arena for counters of blocks.
    pub counter_bytes: Dim,
    /// Offset in bytes of each region output in its phase's arena. Outputs of the plan that are no
    /// input or weight have none: they lie in the caller's memory. Parts have their shared array's.
    pub offsets: BTreeMap<ValueRef, Dim>,
    /// Offset in bytes of each region's workspaces in their arenas.
    pub workspaces: BTreeMap<(usize, usize), Dim>,
}
