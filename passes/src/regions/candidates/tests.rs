//! The choice of candidates against all ways to group small graphs.

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
                candidate.members == *group && (group.len() == 1 || candidate.exposed == exposed)
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
