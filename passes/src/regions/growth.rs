//! Growth of candidates: which regions may join which, by which rule, and what forbids it.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::PrecisionPolicy;
use fornax_ir::plan::{Joined, Phase, Plan, Structure, ValueRef, join, structure};

use super::candidates::{Candidate, Key, has};
use super::{Priced, RegionCost, Rule, Steering};
use crate::PassError;
use crate::schedule::{choose, is_worth_chaining, is_worth_reducing, precision};

/// Nodes and operands of one body; keeps kernels small enough to compile in milliseconds and within the
/// registers.
const MAX_NODES: usize = 96;
const MAX_OPERANDS: usize = 48;

/// What growing candidates needs.
pub(super) struct Growth<'a> {
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
    pub reads: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

impl<'a> Growth<'a> {
    pub fn new(
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

    pub fn run_regions(&self) -> impl Iterator<Item = usize> + use<'a> {
        let plan = self.plan;
        (0..plan.regions.len()).filter(|&number| plan.regions[number].phase == Phase::Run)
    }

    /// The seeds that compute the two nodes of each pin.
    pub fn pinned(&self, steering: &Steering) -> Result<Vec<BTreeSet<usize>>, PassError> {
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
    pub fn neighbours(&self, members: &[usize]) -> BTreeMap<usize, Rule> {
        let mut found = BTreeMap::new();
        for member in members {
            for operand in &self.plan.regions[*member].operands {
                let of_value = self.readers.get(operand).into_iter().flatten();
                // Weights are read by everyone; that is no reason to compute together.
                if !matches!(operand, ValueRef::Weight(_)) && of_value.clone().count() <= 8 {
                    for &other in of_value {
                        found.entry(other).or_insert(Rule::Siblings);
                    }
                }
            }
        }
        for member in members {
            for operand in &self.plan.regions[*member].operands {
                if let ValueRef::Region { region, .. } = *operand
                    && self.plan.regions[region].phase == Phase::Run
                {
                    let rule = match self.structures.get(&region) {
                        Some(Structure::Pointwise) => Rule::Prologue,
                        _ => self.chain(region, *member),
                    };
                    found.insert(region, rule);
                }
            }
            for &user in self.users.get(member).into_iter().flatten() {
                let rule = match self.structures.get(&user) {
                    Some(Structure::Pointwise) => Rule::Epilogue,
                    _ => self.chain(*member, user),
                };
                found.insert(user, rule);
            }
        }
        found.retain(|other, _| !members.contains(other));
        found
    }

    /// The rule by which a region joins another one that it uses and that is not pointwise either.
    fn chain(&self, first: usize, second: usize) -> Rule {
        let is_reduction = |seed| {
            matches!(self.structures.get(&seed), Some(Structure::Reduce(_) | Structure::Rows(_)))
        };
        match self.structures.get(&first) {
            Some(Structure::Contraction(_)) if is_reduction(second) => Rule::ResultReduction,
            _ => Rule::ReductionChain,
        }
    }

    /// The results that members may leave: all that others need, or the last member's alone, where others
    /// then compute the rest again.
    pub fn exposures(&self, members: &[usize]) -> Vec<Vec<(usize, usize)>> {
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
    pub fn compose(&self, key: &Key, joining: usize, rule: Rule) -> Result<Candidate, String> {
        self.may_join(key, joining, rule)?;
        let (joined, structure) = self.legal(key)?;
        if let Structure::Rows(rows) = &structure
            && !is_worth_chaining(rows, &self.plan.dims)
        {
            return Err("the rows do not fit on the chip, so that nothing is read less".to_owned());
        }
        let precision = precision(&joined.body, self.policy);
        if let Structure::Reduced(_) = &structure {
            let (members, exposed) = key;
            if self.exposures(members).first() != Some(exposed) {
                return Err("the contraction would be computed again for others".to_owned());
            }
            is_worth_reducing(&joined.body, &structure, precision, &self.plan.dims)?;
        }
        let schedule = choose(&joined.body, precision, &self.plan.dims)
            .map_err(|rejection| rejection.to_string())?;
        let priced = Priced { body: &joined.body, precision, schedule: &schedule };
        let cost = self.model.cost(&priced);
        let (members, exposed) = key.clone();
        Ok(Candidate { members, exposed, cost })
    }

    /// What `structure` does not know: what users forbid, arrays that are read while they are written, and
    /// work that would be done once for each tile.
    fn may_join(&self, (members, _): &Key, joining: usize, rule: Rule) -> Result<(), String> {
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
        if rule == Rule::Prologue && is_prologue {
            return Err("it would be computed again for every tile that reads it".to_owned());
        }
        if rule == Rule::Siblings && members.iter().any(anchored) {
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
    pub fn legal(&self, (members, exposed): &Key) -> Result<(Joined, Structure), String> {
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
