//! The cheapest acyclic choice of one alternative for each class, where a class that is used twice counts
//! once: what extraction of e-graphs is, whatever the nodes stand for.
//!
//! First every class takes the alternative whose tree is cheapest, and, from below, the one with the
//! cheapest set of classes under it (where a shared class counts once); the better choice of these, or one
//! that is known beforehand, is kept. Then alternatives are exchanged, one class at a time and then in
//! small groups of classes, as long as the whole becomes cheaper.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::cost::Cost;

mod exchange;
mod sets;

use exchange::Exchange;

/// Passes over all classes when exchanging alternatives.
const MAX_PASSES: usize = 6;

/// Classes that may be visited while exchanging the alternatives of one class at a time.
const MAX_EXCHANGE_WORK: usize = 20_000_000;

/// Choices that the searches of all parts may look at.
const MAX_SEARCH_STEPS: usize = 200_000;

/// Classes with alternatives in one part that is searched completely.
const MAX_PART: usize = 12;

/// How much cheaper a choice must be to count as cheaper, relative to the whole.
const MARGIN: f64 = 1e-9;

/// One way to get a class.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// The classes it needs.
    pub children: Vec<usize>,
    /// Its own cost; not negative.
    pub cost: Cost,
}

/// Classes with alternatives. Of alternatives with equal costs the first is preferred.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dag {
    /// The classes that are wanted.
    pub roots: Vec<usize>,
    /// The alternatives of each class.
    pub alternatives: Vec<Vec<Alternative>>,
}

/// The chosen alternative of each class; none where there is no finite tree.
pub(crate) type Positions = Vec<Option<usize>>;

/// A choice.
#[derive(Debug, Clone)]
pub(crate) struct Solution {
    /// The chosen alternatives.
    pub positions: Positions,
    /// The classes that the roots need, operands before users.
    pub needed: Vec<usize>,
    /// The cost of all of them.
    pub cost: Cost,
}

impl Dag {
    /// A cheap choice, no dearer than `known` when that is one; nothing when the roots have none.
    pub fn cheapest(&self, known: Option<Positions>) -> Option<Solution> {
        let trees = self.cheapest_trees();
        let sets = self.cheapest_sets(&trees);
        let candidates = [known, Some(sets), Some(trees)].into_iter().flatten();
        let best = candidates
            .filter_map(|positions| self.total(positions))
            .reduce(|best, other| if other.cost < best.cost { other } else { best })?;
        let mut exchange = Exchange::new(self, best);
        self.improve(&mut exchange);
        self.search_parts(&mut exchange);
        let best = exchange.into_positions();
        self.total(best)
    }

    /// Each class by the alternative with the cheapest tree below it: Knuth's generalisation of Dijkstra's
    /// algorithm ("A generalization of Dijkstra's algorithm", 1977), so every class is decided once.
    fn cheapest_trees(&self) -> Positions {
        let mut waiting: Vec<Vec<usize>> = self
            .alternatives
            .iter()
            .map(|of| of.iter().map(|a| a.children.len()).collect())
            .collect();
        let users = self.users();
        let mut best: Vec<Option<(Cost, usize)>> = vec![None; self.alternatives.len()];
        let mut decided = vec![false; self.alternatives.len()];
        let mut queue = BinaryHeap::new();
        let offer = |class: usize, at: usize, cost: Cost, best: &mut [Option<(Cost, usize)>]| {
            let is_better = best[class].is_none_or(|(old, old_at)| {
                cost < old * (1.0 - MARGIN) || (cost <= old * (1.0 + MARGIN) && at < old_at)
            });
            is_better.then(|| best[class] = Some((cost, at)))
        };
        for (class, of_class) in self.alternatives.iter().enumerate() {
            for (at, alternative) in of_class.iter().enumerate() {
                let is_leaf = alternative.children.is_empty();
                if is_leaf && offer(class, at, alternative.cost, &mut best).is_some() {
                    queue.push(Reverse((Ordered(alternative.cost), class)));
                }
            }
        }
        while let Some(Reverse((_, class))) = queue.pop() {
            if std::mem::replace(&mut decided[class], true) {
                continue;
            }
            for &(user, at) in &users[class] {
                waiting[user][at] -= 1;
                if waiting[user][at] > 0 || decided[user] {
                    continue;
                }
                let alternative = &self.alternatives[user][at];
                let below: Cost = alternative
                    .children
                    .iter()
                    .map(|&child| best[child].map_or(Cost::INFINITY, |(cost, _)| cost))
                    .sum();
                let cost = alternative.cost + below;
                if offer(user, at, cost, &mut best).is_some() {
                    queue.push(Reverse((Ordered(cost), user)));
                }
            }
        }
        best.into_iter().map(|best| best.map(|(_, at)| at)).collect()
    }

    /// For each class, the alternatives that use it, once for each time they do.
    fn users(&self) -> Vec<Vec<(usize, usize)>> {
        let mut users = vec![Vec::new(); self.alternatives.len()];
        for (class, of_class) in self.alternatives.iter().enumerate() {
            for (at, alternative) in of_class.iter().enumerate() {
                for &child in &alternative.children {
                    users[child].push((class, at));
                }
            }
        }
        users
    }

    /// What a choice costs; nothing when it is cyclic or incomplete.
    pub fn total(&self, positions: Positions) -> Option<Solution> {
        // 0: not seen, 1: being visited, 2: done.
        let mut states = vec![0u8; self.alternatives.len()];
        let mut needed = Vec::new();
        let mut stack: Vec<(usize, bool)> = self.roots.iter().map(|&root| (root, false)).collect();
        let mut cost = 0.0;
        while let Some((class, expanded)) = stack.pop() {
            if expanded {
                states[class] = 2;
                needed.push(class);
                continue;
            }
            match states[class] {
                2 => continue,
                1 => return None,
                _ => states[class] = 1,
            }
            let alternative = &self.alternatives[class][positions[class]?];
            cost += alternative.cost;
            stack.push((class, true));
            for &child in &alternative.children {
                match states[child] {
                    1 => return None,
                    2 => {}
                    _ => stack.push((child, false)),
                }
            }
        }
        Some(Solution { positions, needed, cost })
    }

    /// Exchanges the alternative of one class at a time.
    fn improve(&self, exchange: &mut Exchange<'_>) {
        for _ in 0..MAX_PASSES {
            let mut changed = false;
            for class in exchange.open() {
                for at in 0..self.alternatives[class].len() {
                    if exchange.work > MAX_EXCHANGE_WORK {
                        return;
                    }
                    changed |= exchange.try_single(class, at);
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// Searches all combinations of alternatives of small parts: classes with alternatives that are
    /// operands of one another, or could share an operand that is not needed so far.
    fn search_parts(&self, exchange: &mut Exchange<'_>) {
        let open: BTreeSet<usize> = (0..self.alternatives.len())
            .filter(|&class| self.alternatives[class].len() > 1 && exchange.is_known(class))
            .collect();
        let needed = exchange.needed();
        let parts = self.parts(&open, &needed);
        let mut steps = MAX_SEARCH_STEPS;
        for part in parts.iter().flat_map(|part| part.chunks(MAX_PART)) {
            if part.len() < 2 || part.iter().all(|class| !needed.contains(class)) {
                continue;
            }
            exchange.search(part, &mut steps);
        }
    }

    /// Classes grouped by which of them is an operand of which, and by common operands outside `needed`.
    fn parts(&self, open: &BTreeSet<usize>, needed: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        fn find(group: &mut [usize], mut class: usize) -> usize {
            while group[class] != class {
                group[class] = group[group[class]];
                class = group[class];
            }
            class
        }
        let mut group: Vec<usize> = (0..self.alternatives.len()).collect();
        let mut user: BTreeMap<usize, usize> = BTreeMap::new();
        for &class in open {
            let alternatives = &self.alternatives[class];
            for &child in alternatives.iter().flat_map(|alternative| &alternative.children) {
                let joined = match open.contains(&child) {
                    true => Some(child),
                    false if needed.contains(&child) => None,
                    false => Some(*user.entry(child).or_insert(class)),
                };
                if let Some(joined) = joined {
                    let (a, b) = (find(&mut group, class), find(&mut group, joined));
                    group[a.max(b)] = a.min(b);
                }
            }
        }
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &class in open {
            parts.entry(find(&mut group, class)).or_default().push(class);
        }
        parts.into_values().collect()
    }
}

/// A cost that orders; costs are never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(Cost);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
