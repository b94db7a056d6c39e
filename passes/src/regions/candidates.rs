//! Candidates: what could be one region, grown from the seeds by composition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fornax_ir::PrecisionPolicy;
use fornax_ir::op::OpClass;
use fornax_ir::plan::{Joined, Phase, Plan, Region, Structure, ValueRef, join, structure};

use super::{Considered, Outcome, Priced, RegionCost, Steering};
use crate::PassError;
use crate::egraph::{Alternative, Cost, Dag, Positions};
use crate::schedule::{choose, is_worth_chaining, precision};

/// Seeds in one candidate.
const MAX_MEMBERS: usize = 5;

/// Candidates in all, for each seed and some more: growth stops there.
const CANDIDATES_PER_SEED: usize = 8;
const MORE_CANDIDATES: usize = 64;

/// Nodes and operands of one body; keeps kernels small enough to compile in milliseconds and within the
/// registers.
const MAX_NODES: usize = 96;
const MAX_OPERANDS: usize = 48;

/// A candidate's identity: its seeds, and the results it leaves in memory.
type Key = (Vec<usize>, Vec<(usize, usize)>);

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
    rule: &'static str,
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

/// What growing candidates needs.
struct Growth<'a> {
    plan: &'a Plan,
    policy: PrecisionPolicy,
    steering: &'a Steering,
    model: &'a dyn RegionCost,
    /// The run regions that read each one's results, without those in shared arrays.
    users: BTreeMap<usize, BTreeSet<usize>>,
    /// Run regions by the values they read.
    readers: BTreeMap<ValueRef, BTreeSet<usize>>,
    structures: BTreeMap<usize, Structure>,
    /// The values of other run regions that each one reads, those in shared arrays included.
    reads: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

impl<'a> Growth<'a> {
    fn new(
        plan: &'a Plan,
        policy: PrecisionPolicy,
        steering: &'a Steering,
        model: &'a dyn RegionCost,
    ) -> Growth<'a> {
        let mut growth = Growth {
            plan,
            policy,
            steering,
            model,
            users: BTreeMap::new(),
            readers: BTreeMap::new(),
            structures: BTreeMap::new(),
            reads: BTreeMap::new(),
        };
        let seeds: Vec<usize> = growth.run_regions().collect();
        for seed in seeds {
            growth.reads.insert(seed, growth.read_by(seed));
            let region = &plan.regions[seed];
            if let Ok(structure) = region.structure() {
                growth.structures.insert(seed, structure);
            }
            for operand in &region.operands {
                growth.readers.entry(*operand).or_default().insert(seed);
                if let ValueRef::Region { region: from, .. } = operand
                    && plan.regions[*from].phase == Phase::Run
                {
                    growth.users.entry(*from).or_default().insert(seed);
                }
            }
        }
        growth
    }

    fn read_by(&self, seed: usize) -> BTreeSet<(usize, usize)> {
        let plan = self.plan;
        let mut read = BTreeSet::new();
        for operand in &plan.regions[seed].operands {
            match *operand {
                ValueRef::Region { region, output } if plan.regions[region].phase == Phase::Run => {
                    read.insert((region, output));
                }
                ValueRef::Shared(shared) => {
                    for from in 0..seed {
                        let parts = plan.regions[from].parts.iter();
                        let of_array: Vec<usize> = parts
                            .filter(|(_, part)| part.shared == shared)
                            .map(|(&output, _)| output)
                            .collect();
                        if !of_array.is_empty() && plan.reads(seed, from) {
                            read.extend(of_array.into_iter().map(|output| (from, output)));
                        }
                    }
                }
                _ => {}
            }
        }
        read
    }

    fn run_regions(&self) -> impl Iterator<Item = usize> + use<'a> {
        let plan = self.plan;
        (0..plan.regions.len()).filter(|&number| plan.regions[number].phase == Phase::Run)
    }

    /// The seeds that compute the two nodes of each pin.
    fn pinned(&self, steering: &Steering) -> Result<Vec<BTreeSet<usize>>, PassError> {
        let computing = |name: &str| -> Result<BTreeSet<usize>, PassError> {
            let computes = |&number: &usize| has(self.plan, &self.plan.regions[number], name);
            let found: BTreeSet<usize> = self.run_regions().filter(computes).collect();
            match found.is_empty() {
                true => Err(PassError::Steering {
                    node: name.to_owned(),
                    reason:
                        "no region of the run computes it: it is no node of the model, depends on \
                             weights alone, or rewriting left nothing of it"
                            .to_owned(),
                }),
                false => Ok(found),
            }
        };
        let mut pins = Vec::new();
        for (a, b) in &steering.pins {
            let (of_a, of_b) = (computing(a)?, computing(b)?);
            // Where one region computes parts of both, they are together.
            if of_a.intersection(&of_b).next().is_none() {
                let last = |of: &BTreeSet<usize>| of.iter().next_back().copied();
                pins.push([last(&of_a), last(&of_b)].into_iter().flatten().collect());
            }
        }
        Ok(pins)
    }

    /// The seeds that may join some others, each with the rule by which it would.
    fn neighbours(&self, members: &[usize]) -> BTreeMap<usize, &'static str> {
        let mut found = BTreeMap::new();
        let is_pointwise =
            |seed: usize| matches!(self.structures.get(&seed), Some(Structure::Pointwise));
        for member in members {
            for operand in &self.plan.regions[*member].operands {
                let of_value = self.readers.get(operand).into_iter().flatten();
                // Weights are read by everyone; that is no reason to compute together.
                if !matches!(operand, ValueRef::Weight(_)) && of_value.clone().count() <= 8 {
                    for &other in of_value {
                        found.entry(other).or_insert("siblings");
                    }
                }
            }
        }
        for member in members {
            for operand in &self.plan.regions[*member].operands {
                if let ValueRef::Region { region, .. } = *operand
                    && self.plan.regions[region].phase == Phase::Run
                {
                    let rule = if is_pointwise(region) { "prologue" } else { "reduction-chain" };
                    found.insert(region, rule);
                }
            }
            for &user in self.users.get(member).into_iter().flatten() {
                found.insert(user, if is_pointwise(user) { "epilogue" } else { "reduction-chain" });
            }
        }
        found.retain(|other, _| !members.contains(other));
        found
    }

    /// The results that members may leave: all that others need, or the last member's alone, where others
    /// then compute the rest again.
    fn exposures(&self, members: &[usize]) -> Vec<Vec<(usize, usize)>> {
        let is_needed = |&(seed, output): &(usize, usize)| {
            let value = ValueRef::Region { region: seed, output };
            let read = self.readers.get(&value).into_iter().flatten();
            let outside = read.clone().any(|reader| !members.contains(reader));
            let is_result = self.plan.outputs.iter().any(|output| output.value == value);
            outside || is_result || self.plan.regions[seed].parts.contains_key(&output)
        };
        let outputs = |seed: &usize| {
            let seed = *seed;
            (0..self.plan.regions[seed].body.outputs().len()).map(move |output| (seed, output))
        };
        let all: Vec<(usize, usize)> = members.iter().flat_map(outputs).filter(is_needed).collect();
        let last: Vec<(usize, usize)> =
            members.last().into_iter().flat_map(outputs).filter(is_needed).collect();
        let is_part =
            |(seed, output): &(usize, usize)| self.plan.regions[*seed].parts.contains_key(output);
        match all == last || last.is_empty() || all.iter().any(is_part) {
            true => vec![all],
            false => vec![all, last],
        }
    }

    /// The candidate of a key, or what forbids it.
    fn compose(&self, key: &Key, joining: usize, rule: &'static str) -> Result<Candidate, String> {
        self.may_join(key, joining, rule)?;
        let (joined, structure) = self.legal(key)?;
        if let Structure::Rows(rows) = &structure
            && !is_worth_chaining(rows, &self.plan.dims)
        {
            return Err("the rows do not fit on the chip, so that nothing is read less".to_owned());
        }
        let precision = precision(&joined.body, self.policy);
        let schedule = choose(&joined.body, precision, &self.plan.dims)
            .map_err(|rejection| rejection.to_string())?;
        let priced = Priced { body: &joined.body, precision, schedule: &schedule };
        let cost = self.model.cost(&priced);
        let (members, exposed) = key.clone();
        Ok(Candidate { members, exposed, cost })
    }

    /// What `structure` does not know: what users forbid, arrays that are read while they are written, and
    /// work that would be done once for each tile.
    fn may_join(&self, (members, _): &Key, joining: usize, rule: &str) -> Result<(), String> {
        let anchored = |seed: &usize| {
            matches!(
                self.structures.get(seed),
                Some(
                    Structure::Contraction(_)
                        | Structure::Window(_)
                        | Structure::Scan(_)
                        | Structure::Recurrent(_)
                )
            )
        };
        let reads_joining =
            |member: &usize| self.users.get(&joining).is_some_and(|users| users.contains(member));
        let is_prologue = members.iter().any(|member| anchored(member) && reads_joining(member));
        if rule == "prologue" && is_prologue {
            return Err("it would be computed again for every tile that reads it".to_owned());
        }
        if rule == "siblings" && members.iter().any(anchored) {
            return Err("neighbours of a scan, window or contraction share no positions".to_owned());
        }
        for &a in members {
            for &b in members {
                let names =
                    |seed: usize, name: &str| has(self.plan, &self.plan.regions[seed], name);
                if a == b {
                    continue;
                }
                let reads = self.reads[&b].iter().any(|(seed, _)| *seed == a);
                let directly = self.users.get(&a).is_some_and(|users| users.contains(&b));
                if reads && !directly {
                    return Err("the value lies in an array that both write and read".to_owned());
                }
                let forbidden =
                    |(from, to): &&(String, String)| reads && names(a, from) && names(b, to);
                if let Some((from, to)) = self.steering.forbids.iter().find(forbidden) {
                    return Err(format!("--forbid {from}->{to}"));
                }
            }
        }
        Ok(())
    }

    /// The joined body of a key and what it is, or the fact that forbids it.
    fn legal(&self, (members, exposed): &Key) -> Result<(Joined, Structure), String> {
        if exposed.is_empty() {
            return Err("nothing needs its results".to_owned());
        }
        let joined = join(self.plan, members, exposed).map_err(|error| error.to_string())?;
        let nodes = joined.body.nodes().count();
        if nodes > MAX_NODES || joined.operands.len() > MAX_OPERANDS {
            let operands = joined.operands.len();
            return Err(format!(
                "{nodes} operators on {operands} values are too many for a kernel"
            ));
        }
        let structure = structure(&joined.body, &self.plan.dims).map_err(|rejection| {
            match rejection.node.filter(|&id| joined.body.contains(id)) {
                Some(id) => {
                    let node = joined.body.node(id);
                    let at = self.plan.sources.names(&node.loc).join(", ");
                    format!("{rejection} (at `{}` {at})", node.op)
                }
                None => rejection.to_string(),
            }
        })?;
        Ok((joined, structure))
    }
}

/// Whether a region computes a node of the imported model.
fn has(plan: &Plan, region: &Region, name: &str) -> bool {
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
mod tests {
    use fornax_ir::text::parse_graph;

    use super::*;
    use crate::canonicalize;
    use crate::egraph::Roofline;

    /// All ways to part `rest` into groups, each found once.
    fn partitions(rest: &[usize]) -> Vec<Vec<Vec<usize>>> {
        let Some((&first, rest)) = rest.split_first() else { return vec![Vec::new()] };
        let mut all = Vec::new();
        for smaller in partitions(rest) {
            for at in 0..smaller.len() {
                let mut grown = smaller.clone();
                grown[at].insert(0, first);
                all.push(grown);
            }
            let mut alone = smaller;
            alone.push(vec![first]);
            all.push(alone);
        }
        all
    }

    /// Whether groups can run one after the other.
    fn is_acyclic(candidates: &Candidates<'_>, groups: &[Vec<usize>]) -> bool {
        let mut done: BTreeSet<usize> = BTreeSet::new();
        let mut left: Vec<&Vec<usize>> = groups.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|group| {
                let ready = candidates.read_by(group).iter().all(|(seed, _)| done.contains(seed));
                if ready {
                    done.extend(group.iter());
                }
                !ready
            });
            if left.len() == before {
                return false;
            }
        }
        true
    }

    /// A random graph of pointwise ops and row reductions, some of whose values are results.
    fn random(state: &mut u64) -> String {
        let mut below = |count: usize| {
            *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((*state >> 33) % count as u64) as usize
        };
        let full = "f32[512,640]";
        let mut nodes = String::new();
        let mut values = vec!["%x".to_owned(), "%y".to_owned()];
        for number in 0..7 {
            let (a, b) = (values[below(values.len())].clone(), values[below(values.len())].clone());
            let text = match below(4) {
                0 => format!("  %{number} = add {a}, {b} : {full}\n"),
                1 => format!("  %{number} = tanh {a} : {full}\n"),
                2 => format!("  %{number} = exp {a} : {full}\n"),
                _ => format!(
                    "  %r{number} = reduce_max {a} {{axes = [1], keepdims = true}} : f32[512,1]\n  \
                     %b{number} = broadcast %r{number} {{shape = [512,640]}} : {full}\n  \
                     %{number} = sub {b}, %b{number} : {full}\n"
                ),
            };
            nodes += &text;
            values.push(format!("%{number}"));
        }
        format!(
            "graph @g(%x: {full}, %y: {full}) -> (p: {full}, q: {full}, r: {full}) {{\n{nodes}  return %6, %4, %2\n}}"
        )
    }

    #[test]
    fn the_choice_is_optimal_on_small_graphs() {
        let model = Roofline::default();
        let (policy, steering) = (PrecisionPolicy::default(), Steering::default());
        let mut state = 5;
        let mut better = 0;
        for _ in 0..40 {
            let graph = canonicalize(parse_graph(&random(&mut state)).unwrap()).unwrap();
            let plan = crate::fuse::group(&graph, policy, &BTreeSet::new()).unwrap();
            let growth = Growth::new(&plan, policy, &steering, &model);
            let candidates = Candidates::grow(&plan, policy, &steering, &model).unwrap();
            let choice = candidates.extract();
            assert!(choice.cost <= candidates.seed_cost() + 1e-6);
            better += usize::from(choice.cost < candidates.seed_cost() - 1e-6);
            let seeds: Vec<usize> = candidates.seeds.keys().copied().collect();
            let price = |group: &Vec<usize>| {
                let exposed = growth.exposures(group).swap_remove(0);
                let is_it = |candidate: &&Candidate| {
                    candidate.members == *group
                        && (group.len() == 1 || candidate.exposed == exposed)
                };
                candidates.all.iter().find(is_it).map(|candidate| candidate.cost)
            };
            let costs = partitions(&seeds).into_iter().filter_map(|groups| {
                let cost: Option<Cost> = groups.iter().map(price).sum();
                cost.filter(|_| is_acyclic(&candidates, &groups))
            });
            let least = costs.fold(Cost::INFINITY, f64::min);
            assert!(choice.cost <= least + 1e-6, "{} instead of {least}\n{graph}", choice.cost);
        }
        assert!(better >= 10, "only {better} of 40 became cheaper than the greedy grouping");
    }
}
