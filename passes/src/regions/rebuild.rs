//! The plan of a choice of candidates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use fornax_ir::PrecisionPolicy;
use fornax_ir::plan::{Joined, Phase, Plan, Region, ValueRef, join};

use super::candidates::{Candidates, Choice};
use crate::{PassError, schedule};

/// Puts the chosen candidates in the place of the seeds.
pub(super) fn rebuild(
    plan: &Plan,
    candidates: &Candidates<'_>,
    choice: &Choice,
    policy: PrecisionPolicy,
) -> Result<Plan, PassError> {
    let mut result = plan.clone();
    result.regions.retain(|region| region.phase == Phase::Prepare);
    let first = result.regions.len();
    let mut places: BTreeMap<(usize, usize), ValueRef> = BTreeMap::new();
    for number in order(candidates, choice) {
        let (candidate, results) = &choice.chosen[number];
        let members = &candidates.all[*candidate].members;
        let at = result.regions.len();
        let name = format!("r{at}");
        let seed = &plan.regions[members[0]];
        let is_seed = members.len() == 1 && results.len() == seed.body.outputs().len();
        let mut region = match is_seed {
            true => Region { name, ..seed.clone() },
            false => {
                let joined = join(plan, members, results)?;
                made(plan, name, joined, results, policy)?
            }
        };
        for operand in &mut region.operands {
            if let ValueRef::Region { region, output } = *operand
                && region >= first
            {
                *operand = places[&(region, output)];
            }
        }
        for (output, &value) in results.iter().enumerate() {
            places.insert(value, ValueRef::Region { region: at, output });
        }
        result.regions.push(region);
    }
    for output in &mut result.outputs {
        if let ValueRef::Region { region, output: number } = output.value
            && region >= first
        {
            output.value = places[&(region, number)];
        }
    }
    Ok(result)
}

fn made(
    plan: &Plan,
    name: String,
    joined: Joined,
    results: &[(usize, usize)],
    policy: PrecisionPolicy,
) -> Result<Region, PassError> {
    let Joined { body, operands } = joined;
    let precision = schedule::precision(&body, policy);
    let schedule = schedule::choose(&body, precision, &plan.dims)
        .map_err(|rejection| PassError::Region { region: name.clone(), rejection })?;
    let part = |(number, &(seed, output)): (usize, &(usize, usize))| {
        Some((number, plan.regions[seed].parts.get(&output)?.clone()))
    };
    let parts = results.iter().enumerate().filter_map(part).collect();
    Ok(Region { name, phase: Phase::Run, body, operands, parts, precision, schedule })
}

/// The chosen candidates in an order of execution that is as close to the seeds' as may be.
fn order(candidates: &Candidates<'_>, choice: &Choice) -> Vec<usize> {
    let count = choice.chosen.len();
    let members = |number: usize| &candidates.all[choice.chosen[number].0].members;
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waits = vec![0usize; count];
    let mut giver: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (number, (_, results)) in choice.chosen.iter().enumerate() {
        giver.extend(results.iter().map(|&value| (value, number)));
    }
    for (number, wait) in waits.iter_mut().enumerate() {
        let read = candidates.read_by(members(number));
        let needs = read.iter().filter_map(|value| giver.get(value)).copied();
        let needs: BTreeSet<usize> = needs.filter(|&from| from != number).collect();
        *wait = needs.len();
        needs.into_iter().for_each(|from| users[from].push(number));
    }
    let key = |number: usize| Reverse((members(number).last().copied(), number));
    let mut ready: BinaryHeap<_> =
        (0..count).filter(|&number| waits[number] == 0).map(key).collect();
    let mut order = Vec::new();
    while let Some(Reverse((_, number))) = ready.pop() {
        order.push(number);
        for &user in &users[number] {
            waits[user] -= 1;
            if waits[user] == 0 {
                ready.push(key(user));
            }
        }
    }
    assert_eq!(order.len(), count, "invariant: the choice is acyclic");
    order
}
