//! The ledger of a bundle: which rules were used and what became of the model's nodes.

use fornax_bundle::Bundle;
use serde::{Deserialize, Serialize};

use crate::Error;

/// What the compiler decided; `ledger.json` in a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The class of rewrites that were allowed.
    pub rewrites: String,
    /// The rules that found something, by name.
    pub rules: Vec<RuleUse>,
    /// The estimated cost of the canonical graph, and of the one it was rewritten to, in microseconds.
    pub estimated_us: [f64; 2],
    /// The compositions of regions that were looked at.
    #[serde(default)]
    pub fusions: Vec<FusionEntry>,
    /// The regions in execution order.
    pub regions: Vec<RegionEntry>,
}

/// Two regions of the first grouping that could have become one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusionEntry {
    /// The imported model's nodes of the region that runs first.
    pub first: Vec<String>,
    /// Those of the other one.
    pub second: Vec<String>,
    /// The composition rule.
    pub rule: String,
    /// Whether they are one region now.
    pub chosen: bool,
    /// The fact that forbids it, if one does.
    pub rejection: Option<String>,
    /// What they would cost as one, and what they cost as two, in microseconds; none when it is forbidden.
    pub together_and_apart_us: Option<[f64; 2]>,
}

/// How a rule was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleUse {
    /// The rule.
    pub rule: String,
    /// How often it found values equal that were not known to be.
    pub fired: usize,
    /// How many nodes of the chosen graph it made.
    pub kept: usize,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegionEntry {
    /// Its name in the plan.
    pub name: String,
    /// `prepare` or `run`.
    pub phase: String,
    /// What it is: `pointwise`, `contraction`, ...
    pub class: String,
    /// The schedule in text form.
    pub schedule: String,
    /// Its operators, operands before users.
    pub ops: Vec<OpEntry>,
    /// What its kernels take on a large GPU by the roofline, in microseconds; none for symbolic sizes.
    pub predicted_us: Option<f64>,
}

/// An operator of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpEntry {
    /// The operator.
    pub op: String,
    /// Its result's type.
    pub ty: String,
    /// The imported model's nodes it comes from.
    pub origins: Vec<String>,
    /// The rule that made it.
    pub rule: Option<String>,
}

impl Ledger {
    /// The ledger of a bundle.
    ///
    /// # Errors
    /// When the bundle has none, or it does not parse.
    pub fn of(bundle: &Bundle) -> Result<Ledger, Error> {
        let text = bundle.parts().ledger.as_deref().ok_or_else(|| {
            Error::Ledger("the bundle has no ledger; compile the model again".to_owned())
        })?;
        serde_json::from_str(text).map_err(|error| Error::Ledger(format!("ledger.json: {error}")))
    }

    /// The ledger as the bundle's entry.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("invariant: ledgers are plain data")
    }
}

#[cfg(feature = "llvm")]
mod record {
    use std::collections::BTreeMap;

    use fornax_bundle::Dims;
    use fornax_bundle::manifest::TargetPlan;
    use fornax_ir::op::{OpClass, SourceKind};
    use fornax_ir::plan::{Phase, Plan, Region};
    use fornax_ir::{Attrs, LocSet};
    use fornax_passes::egraph::{Optimized, Rewrites, Roofline};
    use fornax_passes::regions::{Considered, Outcome, Regrouped};

    use super::{FusionEntry, Ledger, OpEntry, RegionEntry, RuleUse};

    /// What tells a node of the rewritten graph in a region's body.
    type Key<'a> = (&'static str, &'a Attrs, &'a LocSet);

    impl Ledger {
        /// Records a compilation; the costs are those of a target's kernels.
        pub(crate) fn record(
            rewrites: Rewrites,
            (optimized, fused): (&Optimized, &Regrouped),
            plan: &Plan,
            target: &TargetPlan,
        ) -> Ledger {
            let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
            let mut rules: BTreeMap<Key<'_>, &'static str> = BTreeMap::new();
            for (&id, applied) in &optimized.applied {
                if !optimized.graph.contains(id) {
                    continue;
                }
                *kept.entry(applied.rule).or_insert(0) += 1;
                let node = optimized.graph.node(id);
                rules.insert((node.op.name(), &node.attrs, &node.loc), applied.rule);
            }
            let uses = optimized.saturation.fired.iter().map(|(rule, fired)| RuleUse {
                rule: (*rule).to_owned(),
                fired: *fired,
                kept: kept.get(rule).copied().unwrap_or(0),
            });
            let regions = plan.regions.iter().enumerate().map(|(number, region)| RegionEntry {
                predicted_us: predicted_us(target, number),
                schedule: target.regions[number].schedule.clone(),
                class: target.regions[number].class.clone(),
                ..entry(plan, region, &rules)
            });
            Ledger {
                rewrites: rewrites.to_string(),
                rules: uses.collect(),
                estimated_us: [optimized.cost_before / 1e3, optimized.cost_after / 1e3],
                fusions: fused.considered.iter().map(fusion).collect(),
                regions: regions.collect(),
            }
        }
    }

    fn fusion(considered: &Considered) -> FusionEntry {
        let (chosen, rejection, costs) = match &considered.outcome {
            Outcome::Chosen { together, apart } => (true, None, Some([*together, *apart])),
            Outcome::Dearer { together, apart } => (false, None, Some([*together, *apart])),
            Outcome::Rejected(reason) => (false, Some(reason.clone()), None),
        };
        FusionEntry {
            first: considered.first.clone(),
            second: considered.second.clone(),
            rule: considered.rule.to_string(),
            chosen,
            rejection,
            together_and_apart_us: costs.map(|costs| costs.map(|cost| cost / 1e3)),
        }
    }

    fn entry(plan: &Plan, region: &Region, rules: &BTreeMap<Key<'_>, &'static str>) -> RegionEntry {
        let body = &region.body;
        let is_op = |id: &fornax_ir::NodeId| {
            let class = body.node(*id).op.class();
            !matches!(class, OpClass::Source(SourceKind::Input | SourceKind::Constant))
        };
        let ops = body.in_order().into_iter().filter(is_op).map(|id| {
            let node = body.node(id);
            let origins = plan.sources.names(&node.loc);
            OpEntry {
                op: node.op.name().to_owned(),
                ty: node.ty.to_string(),
                origins: origins.iter().map(ToString::to_string).collect(),
                rule: rules.get(&(node.op.name(), &node.attrs, &node.loc)).map(|r| (*r).to_owned()),
            }
        });
        RegionEntry {
            name: region.name.clone(),
            phase: match region.phase {
                Phase::Prepare => "prepare".to_owned(),
                Phase::Run => "run".to_owned(),
            },
            class: String::new(),
            schedule: String::new(),
            ops: ops.collect(),
            predicted_us: None,
        }
    }

    /// The roofline of a region's kernels.
    fn predicted_us(target: &TargetPlan, region: usize) -> Option<f64> {
        let model = Roofline::default();
        let of_region = target.kernels.iter().filter(|kernel| kernel.region == region);
        let times = of_region.map(|kernel| {
            let bytes = kernel.bytes.eval(&Dims::new()).ok()? as f64;
            let flops = kernel.flops.eval(&Dims::new()).ok()? as f64;
            let rate = match target.regions[region].class.as_str() {
                "contraction" | "reduced" => 2.0 * model.products,
                _ => model.functions,
            };
            Some((model.launch + (bytes / model.bytes).max(flops / rate)) / 1e3)
        });
        times.sum()
    }
}
