//! Fusion decided by extraction.
//!
//! The regions of a first grouping are the seeds. Composition rules grow *candidates* from them: a consumer
//! joins its producer (epilogue), a producer its consumer (prologue), reductions of the same rows join each
//! other and the contraction whose result they fold, and so do neighbours that read the same value; what is still needed elsewhere stays a result, so
//! that a candidate may have several. Legality is `ir::plan::structure`'s alone. A candidate is known by its
//! members and results, and has one entry however it was found.
//!
//! Values in memory are classes, candidates the alternatives that give them: a candidate is a node over the
//! classes it reads, and each of its results a projection of it. The cheapest acyclic choice is extracted by
//! what regions cost, where a candidate that gives several values counts once; it is never dearer than the
//! seeds.

mod candidates;
mod cost;
mod growth;
mod rebuild;
mod rule;

use fornax_ir::PrecisionPolicy;
use fornax_ir::plan::Plan;

pub use cost::{Priced, RegionCost};
pub use rule::Rule;

use crate::PassError;
use crate::egraph::{Cost, Roofline};
use candidates::Candidates;

/// What users ask of fusion, by names of the imported model's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steering {
    /// Pairs of nodes that must end in one region.
    pub pins: Vec<(String, String)>,
    /// Edges whose value must be stored: from the first node to the second.
    pub forbids: Vec<(String, String)>,
}

/// A composition that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Considered {
    /// The imported model's nodes of the first region.
    pub first: Vec<String>,
    /// Those of the second one, which runs later.
    pub second: Vec<String>,
    /// The composition rule.
    pub rule: Rule,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a composition.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The regions are one.
    Chosen {
        /// What the one region costs, in nanoseconds.
        together: Cost,
        /// What the two cost.
        apart: Cost,
    },
    /// It was legal, but something else is cheaper.
    Dearer {
        /// What the one region would cost, in nanoseconds.
        together: Cost,
        /// What the two cost.
        apart: Cost,
    },
    /// A fact forbids it.
    Rejected(String),
}

/// A plan after fusion.
#[derive(Debug, Clone)]
pub struct Regrouped {
    /// The plan.
    pub plan: Plan,
    /// The compositions that were looked at, in order.
    pub considered: Vec<Considered>,
    /// What the run's regions cost in the first grouping, in nanoseconds.
    pub cost_before: Cost,
    /// What they cost now.
    pub cost_after: Cost,
}

/// Chooses the regions of a plan's run program. `policy`: as for [`crate::fuse`].
///
/// # Errors
/// When two nodes cannot be pinned together; the error says what forbids it.
pub fn regroup(
    plan: Plan,
    policy: PrecisionPolicy,
    steering: &Steering,
) -> Result<Regrouped, PassError> {
    regroup_for(plan, policy, steering, &Roofline::default())
}

/// As [`regroup`], with other costs.
///
/// # Errors
/// As [`regroup`].
pub fn regroup_for(
    plan: Plan,
    policy: PrecisionPolicy,
    steering: &Steering,
    model: &dyn RegionCost,
) -> Result<Regrouped, PassError> {
    let candidates = Candidates::grow(&plan, policy, steering, model)?;
    let choice = candidates.extract();
    let considered = candidates.considered(&choice);
    let (cost_before, cost_after) = (candidates.seed_cost(), choice.cost);
    let plan = rebuild::rebuild(&plan, &candidates, &choice, policy)?;
    Ok(Regrouped { plan, considered, cost_before, cost_after })
}
