//! The algebra phase: the cheapest graph that equals a canonical one.

use std::collections::BTreeMap;

use fornax_ir::{Graph, NodeId};

use super::convert::{decode, encode};
use super::cost::{Cost, NodeCost, Roofline};
use super::extract::extract;
use super::rule::Rewrites;
use super::saturate::{Saturation, saturate};
use crate::PassError;
use crate::rules;

/// A graph after the algebra phase.
#[derive(Debug, Clone)]
pub struct Optimized {
    /// The cheapest graph found.
    pub graph: Graph,
    /// What saturation did.
    pub saturation: Saturation,
    /// The nodes of the graph that rules made.
    pub applied: BTreeMap<NodeId, Applied>,
    /// The estimated cost of the graph that came in, in nanoseconds.
    pub cost_before: Cost,
    /// The estimated cost of the graph that came out.
    pub cost_after: Cost,
}

/// Why a node is in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The rule that made it; `constant-folding` when that did.
    pub rule: &'static str,
}

/// Rewrites a canonical graph to the cheapest one that the rules prove equal.
///
/// # Errors
/// When a rule breaks a constraint or equates different types (our bug); the error names it.
pub fn optimize(graph: &Graph, rewrites: Rewrites) -> Result<Optimized, PassError> {
    optimize_for(graph, rewrites, &Roofline::default())
}

/// As [`optimize`], for a machine with other costs.
///
/// # Errors
/// As [`optimize`].
pub fn optimize_for(
    graph: &Graph,
    rewrites: Rewrites,
    model: &dyn NodeCost,
) -> Result<Optimized, PassError> {
    let rules = rules::all();
    let mut encoded = encode(graph);
    let cost_before = extract(&encoded.egraph, &encoded.roots, model).cost;
    let saturation = saturate(&mut encoded.egraph, rules, rewrites)?;
    let extraction = extract(&encoded.egraph, &encoded.roots, model);
    let (mut graph, classes) = decode(&encoded.egraph, &encoded.roots, &extraction.choice, graph)?;
    graph.remove_dead();
    let rule_of = |(id, class): (NodeId, egg::Id)| {
        let rule = extraction.choice.get(&class)?.rule?;
        let name = rules.get(usize::from(rule)).map_or("constant-folding", |rule| rule.name);
        Some((id, Applied { rule: name }))
    };
    let applied = classes.into_iter().filter_map(rule_of).collect();
    Ok(Optimized { graph, saturation, applied, cost_before, cost_after: extraction.cost })
}
