//! Candidates: what could be one region, grown from the seeds by composition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fornax_ir::PrecisionPolicy;
use fornax_ir::op::OpClass;
use fornax_ir::plan::{Plan, Region, ValueRef};

use super::growth::Growth;
use super::{Considered, Outcome, Priced, RegionCost, Rule, Steering};
use crate::PassError;
use crate::egraph::{Alternative, Cost, Dag, Positions};

/// Seeds in one candidate.
const MAX_MEMBERS: usize = 5;

/// Candidates in all, for each seed and some more: growth stops there.
const CANDIDATES_PER_SEED: usize = 8;
const MORE_CANDIDATES: usize = 64;

/// A candidate's identity: its seeds, and the results it leaves in memory.
pub(super) type Key = (Vec<usize>, Vec<(usize, usize)>);

/// What could be one region.
pub(super) struct Candidate {
    /// The seeds, operands before users.
    pub members: Vec<usize>,
    /// The results: seed and output.
    pub exposed: Vec<(usize, usize)>,
    /// What it costs at each run, in nanoseconds.
    pub cost: Cost,
}

/// Seeds, candidates and what was rejected.
pub(super) struct Candidates<'a> {
    pub plan: &'a Plan,
    pub all: Vec<Candidate>,
    /// The position of each seed's own candidate.
    seeds: BTreeMap<usize, usize>,
    /// Pairs of seeds that were looked at.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Groups of seeds that must be in one region.
    pinned: Vec<BTreeSet<usize>>,
    /// The values of other run regions that each seed reads.
    reads: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

/// Two seeds that were looked at.
struct Pair {
    /// By which rule they would join.
    rule: Rule,
    /// The candidate, or what forbids it.
    found: Result<usize, String>,
}

/// A choice of candidates.
pub(super) struct Choice {
    /// The chosen candidates with the results that are needed, operands before users.
    pub chosen: Vec<(usize, Vec<(usize, usize)>)>,
    pub cost: Cost,
}

/// A cost that no choice has unless it must: of breaking a pin.
const FORBIDDEN: Cost = 1e15;

impl<'a> Candidates<'a> {
    /// Grows all candidates.
    pub fn grow(
        plan: &'a Plan,
        policy: PrecisionPolicy,
        steering: &Steering,
        model: &dyn RegionCost,
    ) -> Result<Candidates<'a>, PassError> {
        let growth = Growth::new(plan, policy, steering, model);
        let seeds: Vec<usize> = growth.run_regions().collect();
        let mut candidates = Candidates {
            plan,
            all: Vec::new(),
            seeds: BTreeMap::new(),
            pairs: BTreeMap::new(),
            pinned: growth.pinned(steering)?,
            reads: growth.reads.clone(),
        };
        let mut known: BTreeMap<Key, Option<usize>> = BTreeMap::new();
        for &seed in &seeds {
            let region = &plan.regions[seed];
            let exposed = (0..region.body.outputs().len()).map(|output| (seed, output)).collect();
            let (body, schedule) = (&region.body, &region.schedule);
            let cost = model.cost(&Priced { body, precision: region.precision, schedule });
            candidates.seeds.insert(seed, candidates.all.len());
            candidates.all.push(Candidate { members: vec![seed], exposed, cost });
        }
        let limit = seeds.len() * CANDIDATES_PER_SEED + MORE_CANDIDATES;
        let mut queue: VecDeque<usize> = (0..candidates.all.len()).collect();
        while let Some(at) = queue.pop_front() {
            let members = candidates.all[at].members.clone();
            let is_pinned =
                candidates.pinned.iter().any(|pin| members.iter().any(|m| pin.contains(m)));
            if members.len() >= MAX_MEMBERS && !is_pinned {
                continue;
            }
            for (other, rule) in growth.neighbours(&members) {
                let mut joined: Vec<usize> = members.clone();
                joined.push(other);
                joined.sort_unstable();
                for exposed in growth.exposures(&joined) {
                    let key = (joined.clone(), exposed);
                    if known.contains_key(&key) || candidates.all.len() >= limit {
                        continue;
                    }
                    let outcome = growth.compose(&key, other, rule);
                    if let [a, b] = joined[..] {
                        let position = candidates.all.len();
                        let found = outcome.as_ref().map(|_| position).map_err(Clone::clone);
                        candidates.pairs.entry((a, b)).or_insert(Pair { rule, found });
                    }
                    known.insert(key, outcome.as_ref().ok().map(|_| candidates.all.len()));
                    if let Ok(candidate) = outcome {
                        queue.push_back(candidates.all.len());
                        candidates.all.push(candidate);
                    }
                }
            }
        }
        candidates.check_pins(&growth)?;
        Ok(candidates)
    }

    /// Each pin must have a candidate that holds all of it; otherwise the error says what forbids it.
    fn check_pins(&self, growth: &Growth<'_>) -> Result<(), PassError> {
        for pin in &self.pinned {
            let holds = |candidate: &Candidate| pin.iter().all(|m| candidate.members.contains(m));
            if self.all.iter().any(holds) {
                continue;
            }
            let members: Vec<usize> = pin.iter().copied().collect();
            let reason = growth
                .exposures(&members)
                .into_iter()
                .find_map(|exposed| growth.legal(&(members.clone(), exposed)).err())
                .unwrap_or_else(|| {
                    "there are regions between them that cannot join, or too many".to_owned()
                });
            let names = |seed: usize| names_of(self.plan, &self.plan.regions[seed]).join(", ");
            let regions: Vec<String> = members.iter().map(|&m| format!("[{}]", names(m))).collect();
            return Err(PassError::Pin { regions: regions.join(" and "), reason });
        }
        Ok(())
    }

    /// What the seeds cost.
    pub fn seed_cost(&self) -> Cost {
        self.seeds.values().map(|&at| self.all[at].cost).sum()
    }

    /// The cheapest choice.
    pub fn extract(&self) -> Choice {
        let mut dag = Dag::default();
        let mut class_of: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for &seed in self.seeds.keys() {
            for output in 0..self.plan.regions[seed].body.outputs().len() {
                class_of.insert((seed, output), class_of.len());
            }
        }
        let values = class_of.len();
        dag.alternatives = vec![Vec::new(); values];
        let mut givers: Vec<Vec<usize>> = vec![Vec::new(); values];
        for (number, candidate) in self.all.iter().enumerate() {
            let read = self.read_by(&candidate.members);
            let children = read.iter().map(|value| class_of[value]).collect();
            let cost = candidate.cost + self.penalty(candidate);
            dag.alternatives.push(vec![Alternative { children, cost }]);
            for value in &candidate.exposed {
                let class = class_of[value];
                givers[class].push(number);
                let projection = Alternative { children: vec![values + number], cost: 0.0 };
                dag.alternatives[class].push(projection);
            }
        }
        dag.roots = self.roots().iter().map(|value| class_of[value]).collect();
        // Each value by its own seed, which is its first alternative.
        let seeds: Positions = vec![Some(0); dag.alternatives.len()];
        let solution = dag.cheapest(Some(seeds)).expect("invariant: the seeds give all values");
        let mut needed: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        let is_needed: BTreeSet<usize> = solution.needed.iter().copied().collect();
        for (&value, &class) in class_of.iter().filter(|(_, class)| is_needed.contains(class)) {
            let at = solution.positions[class].expect("invariant: needed classes are chosen");
            needed.entry(givers[class][at]).or_default().push(value);
        }
        let order = solution.needed.iter().filter_map(|&class| class.checked_sub(values));
        let chosen = order.filter_map(|number| Some((number, needed.remove(&number)?)));
        Choice { chosen: chosen.collect(), cost: solution.cost }
    }

    /// What was looked at, with what became of it.
    pub fn considered(&self, choice: &Choice) -> Vec<Considered> {
        let names = |seed: usize| names_of(self.plan, &self.plan.regions[seed]);
        let is_chosen = |a: usize, b: usize| {
            choice.chosen.iter().any(|(number, _)| {
                let members = &self.all[*number].members;
                members.contains(&a) && members.contains(&b)
            })
        };
        let of_pair = |(&(a, b), pair): (&(usize, usize), &Pair)| {
            let apart = self.all[self.seeds[&a]].cost + self.all[self.seeds[&b]].cost;
            let outcome = match &pair.found {
                Err(reason) => Outcome::Rejected(reason.clone()),
                Ok(number) => {
                    let together = self.all[*number].cost;
                    match is_chosen(a, b) {
                        true => Outcome::Chosen { together, apart },
                        false => Outcome::Dearer { together, apart },
                    }
                }
            };
            Considered { first: names(a), second: names(b), rule: pair.rule, outcome }
        };
        self.pairs.iter().map(of_pair).collect()
    }

    /// The values of other run regions that a candidate reads.
    pub fn read_by(&self, members: &[usize]) -> BTreeSet<(usize, usize)> {
        let read = members.iter().flat_map(|member| &self.reads[member]).copied();
        read.filter(|(seed, _)| !members.contains(seed)).collect()
    }

    /// The values that the plan gives.
    fn roots(&self) -> Vec<(usize, usize)> {
        let mut roots = BTreeSet::new();
        for output in &self.plan.outputs {
            match output.value {
                ValueRef::Region { region, output } if self.seeds.contains_key(&region) => {
                    roots.insert((region, output));
                }
                ValueRef::Shared(shared) => {
                    for &seed in self.seeds.keys() {
                        let parts = self.plan.regions[seed].parts.iter();
                        let of_array = parts.filter(|(_, part)| part.shared == shared);
                        roots.extend(of_array.map(|(&output, _)| (seed, output)));
                    }
                }
                _ => {}
            }
        }
        roots.into_iter().collect()
    }

    /// What a candidate costs beside its time: it may hold all of a pin or nothing.
    fn penalty(&self, candidate: &Candidate) -> Cost {
        let breaks = self.pinned.iter().any(|pin| {
            let held = pin.iter().filter(|member| candidate.members.contains(member)).count();
            held > 0 && held < pin.len()
        });
        if breaks { FORBIDDEN } else { 0.0 }
    }
}

/// Whether a region computes a node of the imported model.
pub(super) fn has(plan: &Plan, region: &Region, name: &str) -> bool {
    region.body.nodes().any(|id| {
        plan.sources.names(&region.body.node(id).loc).iter().any(|other| &**other == name)
    })
}

/// The imported model's nodes that a region computes.
fn names_of(plan: &Plan, region: &Region) -> Vec<String> {
    let mut all = fornax_ir::LocSet::none();
    for id in region.body.nodes() {
        if !matches!(region.body.node(id).op.class(), OpClass::Source(_)) {
            all.union(&region.body.node(id).loc);
        }
    }
    plan.sources.names(&all).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
