//! Saturation: rules applied until nothing new is found or a limit is reached.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use egg::Id;

use super::analysis::OpGraph;
use super::pattern::Match;
use super::rule::{Group, Rewrites, Rule, Site};
use crate::PassError;

/// Rounds of one phase.
const MAX_ITERATIONS: usize = 12;

/// The e-graph may grow to so many nodes for each node of the graph, and some more.
const NODES_PER_NODE: usize = 16;
const MORE_NODES: usize = 1500;

/// Why a phase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// No rule found anything new.
    Saturated,
    /// The limit of rounds.
    Iterations,
    /// The limit of e-nodes.
    Nodes,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Saturated => "saturated",
            Stop::Iterations => "iteration limit",
            Stop::Nodes => "node limit",
        })
    }
}

/// What saturation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saturation {
    /// Phases with their rounds and why they ended.
    pub phases: Vec<(Group, usize, Stop)>,
    /// How often each rule found two classes equal that were not known to be; by the rule's name.
    pub fired: BTreeMap<&'static str, usize>,
    /// E-nodes at the end.
    pub nodes: usize,
    /// E-classes at the end.
    pub classes: usize,
}

/// Applies rules to an e-graph in phases: first what brings it to one form, then algebra, then movement,
/// each phase with the rules of those before.
///
/// # Errors
/// When a rule equates values of different types (our bug); the error names it.
pub fn saturate(
    egraph: &mut OpGraph,
    rules: &[Rule],
    rewrites: Rewrites,
) -> Result<Saturation, PassError> {
    let mut report =
        Saturation { phases: Vec::new(), fired: BTreeMap::new(), nodes: 0, classes: 0 };
    let limit = egraph.total_size() * NODES_PER_NODE + MORE_NODES;
    let mut seen = HashSet::new();
    for group in [Group::Normalise, Group::Algebra, Group::Movement] {
        let of_phase = |rule: &&(usize, &Rule)| rule.1.group <= group;
        let all: Vec<(usize, &Rule)> =
            rules.iter().enumerate().filter(|(_, rule)| rewrites.allow(rule.numerics)).collect();
        let active: Vec<(usize, &Rule)> = all.iter().filter(of_phase).copied().collect();
        let mut stop = Stop::Iterations;
        let mut rounds = 0;
        while rounds < MAX_ITERATIONS {
            rounds += 1;
            if !round(egraph, &active, limit, &mut seen, &mut report.fired)? {
                stop = Stop::Saturated;
                break;
            }
            if egraph.total_size() >= limit {
                stop = Stop::Nodes;
                break;
            }
        }
        report.phases.push((group, rounds, stop));
        if stop == Stop::Nodes {
            break;
        }
    }
    report.nodes = egraph.total_size();
    report.classes = egraph.number_of_classes();
    Ok(report)
}

/// Matches that were applied: they need not be tried again.
type Seen = HashSet<(usize, Match)>;

/// One round of all rules; whether any found something new.
fn round(
    egraph: &mut OpGraph,
    rules: &[(usize, &Rule)],
    limit: usize,
    seen: &mut Seen,
    fired: &mut BTreeMap<&'static str, usize>,
) -> Result<bool, PassError> {
    let found: Vec<Vec<Match>> = rules
        .iter()
        .map(|(number, rule)| {
            let mut found = rule.left.search(egraph);
            found.retain(|found| !seen.contains(&(*number, found.clone())));
            found
        })
        .collect();
    let mut is_new = false;
    for ((number, rule), found) in rules.iter().zip(found) {
        for found in found {
            if egraph.total_size() >= limit {
                break;
            }
            if let Some(equal) = apply(egraph, rule, *number, &found)? {
                if union(egraph, rule, found.root, equal)? {
                    *fired.entry(rule.name).or_insert(0) += 1;
                    is_new = true;
                }
                seen.insert((*number, found));
            }
        }
    }
    egraph.rebuild();
    conflict(egraph, "congruence")?;
    Ok(is_new)
}

/// The right side of a rule at a match, when its premises hold.
fn apply(
    egraph: &mut OpGraph,
    rule: &Rule,
    number: usize,
    found: &Match,
) -> Result<Option<Id>, PassError> {
    let site = Site { egraph, left: &rule.left, found, rule: number as u16 };
    let holds = rule.guards.iter().chain(rule.worth).all(|premise| (premise.holds)(&site));
    if holds { build(egraph, rule, number, found) } else { Ok(None) }
}

/// The right side of a rule at a match, whether its premises hold or not.
///
/// # Errors
/// When its type is not that of the matched value.
pub(crate) fn build(
    egraph: &mut OpGraph,
    rule: &Rule,
    number: usize,
    found: &Match,
) -> Result<Option<Id>, PassError> {
    // What is made stands for all operators that the pattern matched.
    let mut loc = egraph[found.root].data.loc.clone();
    for &inner in &found.inner {
        loc.union(&egraph[inner].data.loc);
    }
    egraph.analysis.loc = loc;
    let equal = rule.build(&mut Site { egraph, left: &rule.left, found, rule: number as u16 });
    egraph.analysis.loc = fornax_ir::LocSet::none();
    if let Some(equal) = equal {
        let (left, right) = (&egraph[found.root].data.ty, &egraph[equal].data.ty);
        if left != right {
            return Err(rule_error(rule.name, left, right));
        }
    }
    Ok(equal)
}

fn union(egraph: &mut OpGraph, rule: &Rule, root: Id, equal: Id) -> Result<bool, PassError> {
    let changed = egraph.union(root, equal);
    conflict(egraph, rule.name)?;
    Ok(changed)
}

fn conflict(egraph: &OpGraph, rule: &'static str) -> Result<(), PassError> {
    match &egraph.analysis.conflict {
        Some((left, right)) => Err(rule_error(rule, left, right)),
        None => Ok(()),
    }
}

fn rule_error(rule: &'static str, left: &fornax_ir::Type, right: &fornax_ir::Type) -> PassError {
    PassError::Rule { rule, left: left.clone(), right: right.clone() }
}
