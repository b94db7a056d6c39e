//! Extraction: the cheapest acyclic graph of an e-graph, where a value that is used twice counts once.
//!
//! First every class takes the node whose tree is cheapest, and, from below, the node with the cheapest
//! set of classes under it (where a shared class counts once); the better choice of the two is kept.
//! Then nodes are exchanged, one class at a time and then in small groups of classes, as long as the
//! whole graph becomes cheaper.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;

use super::analysis::OpGraph;
use super::convert::Choice;
use super::cost::{Cost, NodeCost};
use super::language::ENode;

/// Passes over all classes when exchanging nodes.
const MAX_PASSES: usize = 6;

/// Work that exchanging nodes may do: choices looked at, times classes.
const MAX_EXCHANGE_WORK: usize = 20_000_000;

/// Work that the searches of all parts may do: complete choices looked at, times classes.
const MAX_WORK: usize = 2_000_000;

/// Classes with alternatives in one part that is searched completely.
const MAX_PART: usize = 12;

/// A choice and what it costs.
#[derive(Debug, Clone)]
pub struct Extraction {
    /// The node of each class that the roots need.
    pub choice: Choice,
    /// The cost of all of them.
    pub cost: Cost,
}

/// An alternative of a class.
struct Alternative {
    node: ENode,
    /// The operands' classes, as positions in [`Classes::all`].
    children: Vec<usize>,
    cost: Cost,
}

/// The classes that roots may need, with their alternatives.
struct Classes {
    all: Vec<Id>,
    roots: Vec<usize>,
    alternatives: Vec<Vec<Alternative>>,
}

/// The cheapest graph that computes the roots.
///
/// # Panics
/// When a root has no acyclic node (every class of a graph has one).
pub fn extract(egraph: &OpGraph, roots: &[Id], model: &dyn NodeCost) -> Extraction {
    let classes = Classes::new(egraph, roots, model);
    let mut scratch = Scratch::default();
    let mut best = classes.cheapest_trees();
    let sets = classes.cheapest_sets(&best);
    let of_trees = classes.total(&best, &mut scratch);
    if let Some(cost) = classes.total(&sets, &mut scratch)
        && of_trees.is_none_or(|of_trees| cost < of_trees)
    {
        best = sets;
    }
    classes.improve(&mut best, &mut scratch);
    classes.search_parts(&mut best, &mut scratch);
    let cost = classes.total(&best, &mut scratch).expect("invariant: choices stay acyclic");
    let choice = scratch
        .needed
        .iter()
        .map(|&class| {
            let at = best[class].expect("invariant: needed classes are chosen");
            (classes.all[class], classes.alternatives[class][at].node.clone())
        })
        .collect();
    Extraction { choice, cost }
}

/// The position of the chosen alternative of each class; none where no tree is finite.
type Positions = Vec<Option<usize>>;

/// Buffers of [`Classes::total`].
#[derive(Default)]
struct Scratch {
    /// 0: not seen, 1: being visited, 2: done.
    states: Vec<u8>,
    stack: Vec<(usize, bool)>,
    /// The classes that the last choice needs.
    needed: Vec<usize>,
}

/// How much cheaper a choice must be to count as cheaper, relative to the whole.
const MARGIN: f64 = 1e-9;

/// How often the set of one class may change.
const MAX_UPDATES: usize = 12;

/// What is known of a class while sets are compared.
#[derive(Clone)]
struct Known {
    /// The alternative.
    at: usize,
    /// Its own cost.
    own: Cost,
    /// The cost of the set, the class included.
    cost: Cost,
    /// The classes in the set, the class included, as bits.
    set: Vec<u64>,
}

impl Known {
    /// What lies below an alternative of a class, and the class; nothing when that is not known yet or
    /// holds the class itself.
    fn of(alternative: &Alternative, class: usize, known: &[Option<Known>]) -> Option<Known> {
        let mut set = vec![0u64; known.len().div_ceil(64)];
        for &child in &alternative.children {
            let below = known[child].as_ref()?;
            set.iter_mut().zip(&below.set).for_each(|(all, more)| *all |= more);
        }
        if set[class / 64] & (1 << (class % 64)) != 0 {
            return None;
        }
        let mut cost = 0.0;
        for (word, &bits) in set.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let other = word * 64 + bits.trailing_zeros() as usize;
                cost += known[other].as_ref().map_or(0.0, |known| known.own);
                bits &= bits - 1;
            }
        }
        set[class / 64] |= 1 << (class % 64);
        Some(Known { at: 0, own: 0.0, cost, set })
    }
}

impl Classes {
    fn new(egraph: &OpGraph, roots: &[Id], model: &dyn NodeCost) -> Classes {
        let mut numbers: BTreeMap<Id, usize> = BTreeMap::new();
        let mut all = Vec::new();
        let mut number = |id: Id, all: &mut Vec<Id>| {
            *numbers.entry(id).or_insert_with(|| {
                all.push(id);
                all.len() - 1
            })
        };
        let roots: Vec<usize> = roots.iter().map(|&id| number(egraph.find(id), &mut all)).collect();
        let mut alternatives = Vec::new();
        while alternatives.len() < all.len() {
            let id = all[alternatives.len()];
            let mut of_class: Vec<Alternative> = Vec::new();
            for node in &egraph[id].nodes {
                let children: Vec<Id> =
                    node.children.iter().map(|&child| egraph.find(child)).collect();
                if children.contains(&id) {
                    continue;
                }
                let node = ENode { children: children.iter().copied().collect(), ..node.clone() };
                let cost = model.cost(egraph, &node);
                let children = children.into_iter().map(|child| number(child, &mut all)).collect();
                of_class.push(Alternative { node, children, cost });
            }
            // The graph's own nodes first: of equal costs they are kept.
            of_class.sort_by(|a, b| {
                (a.node.rule.is_some().cmp(&b.node.rule.is_some()))
                    .then_with(|| a.cost.total_cmp(&b.cost))
                    .then_with(|| a.node.cmp(&b.node))
            });
            alternatives.push(of_class);
        }
        Classes { all, roots, alternatives }
    }

    /// Each class by the alternative with the cheapest tree below it.
    fn cheapest_trees(&self) -> Positions {
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.all.len()];
        for (class, alternatives) in self.alternatives.iter().enumerate() {
            for child in alternatives.iter().flat_map(|alternative| &alternative.children) {
                users[*child].insert(class);
            }
        }
        let mut best: Vec<Option<(Cost, usize)>> = vec![None; self.all.len()];
        let mut queue: BTreeSet<usize> = (0..self.all.len()).collect();
        while let Some(class) = queue.pop_last() {
            for (at, alternative) in self.alternatives[class].iter().enumerate() {
                let below: Option<Cost> =
                    alternative.children.iter().map(|&child| Some(best[child]?.0)).sum();
                let Some(cost) = below.map(|below| below + alternative.cost) else { continue };
                if best[class].is_none_or(|(old, _)| cost < old * (1.0 - MARGIN)) {
                    best[class] = Some((cost, at));
                    queue.extend(&users[class]);
                }
            }
        }
        best.into_iter().map(|best| best.map(|(_, at)| at)).collect()
    }

    /// Each class by the alternative with the cheapest set of classes below it. The sets are those that
    /// were known when the class was decided: a choice may turn out to be cyclic, which its user checks.
    fn cheapest_sets(&self, trees: &Positions) -> Positions {
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.all.len()];
        for (class, alternatives) in self.alternatives.iter().enumerate() {
            for &child in alternatives.iter().flat_map(|alternative| &alternative.children) {
                users[child].insert(class);
            }
        }
        let heights = self.heights(trees);
        let mut known: Vec<Option<Known>> = vec![None; self.all.len()];
        let mut updates = vec![0usize; self.all.len()];
        let mut queue: BTreeSet<(usize, usize)> =
            (0..self.all.len()).map(|class| (heights[class], class)).collect();
        while let Some((_, class)) = queue.pop_first() {
            if updates[class] >= MAX_UPDATES {
                continue;
            }
            let mut changed = false;
            for (at, alternative) in self.alternatives[class].iter().enumerate() {
                let Some(below) = Known::of(alternative, class, &known) else { continue };
                let cost = below.cost + alternative.cost;
                let is_better =
                    known[class].as_ref().is_none_or(|old| cost < old.cost * (1.0 - MARGIN));
                if is_better {
                    let own = alternative.cost;
                    known[class] = Some(Known { at, own, cost, ..below });
                    changed = true;
                }
            }
            if changed {
                updates[class] += 1;
                queue.extend(users[class].iter().map(|&user| (heights[user], user)));
            }
        }
        known.into_iter().map(|known| known.map(|known| known.at)).collect()
    }

    /// The height of the tree below each class.
    fn heights(&self, trees: &Positions) -> Vec<usize> {
        let mut heights = vec![usize::MAX; self.all.len()];
        for class in 0..self.all.len() {
            let mut stack = vec![class];
            while let Some(&class) = stack.last() {
                let children = match trees[class] {
                    Some(at) => self.alternatives[class][at].children.as_slice(),
                    None => &[],
                };
                match children.iter().find(|&&child| heights[child] == usize::MAX) {
                    Some(&child) if heights[class] == usize::MAX => stack.push(child),
                    _ => {
                        heights[class] =
                            children.iter().map(|&child| heights[child] + 1).max().unwrap_or(0);
                        stack.pop();
                    }
                }
            }
        }
        heights
    }

    /// The cost of all classes the roots need; nothing when the choice is cyclic or incomplete.
    fn total(&self, positions: &Positions, scratch: &mut Scratch) -> Option<Cost> {
        let Scratch { states, stack, needed } = scratch;
        states.clear();
        states.resize(self.all.len(), 0);
        needed.clear();
        stack.clear();
        stack.extend(self.roots.iter().map(|&root| (root, false)));
        let mut total = 0.0;
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
            total += alternative.cost;
            stack.push((class, true));
            for &child in &alternative.children {
                match states[child] {
                    1 => return None,
                    2 => {}
                    _ => stack.push((child, false)),
                }
            }
        }
        Some(total)
    }

    /// Exchanges the alternative of one class at a time.
    fn improve(&self, best: &mut Positions, scratch: &mut Scratch) {
        let mut cost = self.total(best, scratch).expect("invariant: trees are acyclic");
        let mut visits = MAX_EXCHANGE_WORK / self.all.len().max(1);
        for _ in 0..MAX_PASSES {
            let mut changed = false;
            for class in self.open(best, scratch) {
                for at in 0..self.alternatives[class].len() {
                    if visits == 0 {
                        return;
                    }
                    visits -= 1;
                    let old = best[class].replace(at);
                    match self.total(best, scratch) {
                        Some(other) if other < cost * (1.0 - MARGIN) => {
                            (cost, changed) = (other, true);
                        }
                        _ => best[class] = old,
                    }
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// The classes with alternatives among those that the last choice needs, lowest number first.
    fn open(&self, best: &Positions, scratch: &mut Scratch) -> Vec<usize> {
        self.total(best, scratch).expect("invariant: choices stay acyclic");
        let mut open: Vec<usize> = scratch.needed.clone();
        open.retain(|&class| self.alternatives[class].len() > 1);
        open.sort_unstable();
        open
    }

    /// Searches all combinations of alternatives of small parts: classes with alternatives that are
    /// operands of one another, or could share an operand that is not needed so far.
    fn search_parts(&self, best: &mut Positions, scratch: &mut Scratch) {
        let open: BTreeSet<usize> = (0..self.all.len())
            .filter(|&class| self.alternatives[class].len() > 1 && best[class].is_some())
            .collect();
        self.total(best, scratch).expect("invariant: choices stay acyclic");
        let needed: BTreeSet<usize> = scratch.needed.iter().copied().collect();
        let parts = self.parts(&open, &needed);
        let mut visits = MAX_WORK / self.all.len().max(1);
        for part in parts.iter().flat_map(|part| part.chunks(MAX_PART)) {
            if part.len() < 2 || part.iter().all(|class| !needed.contains(class)) {
                continue;
            }
            let cost = self.total(best, scratch).expect("invariant: choices stay acyclic");
            let mut search = Search { classes: self, part, best: best.clone(), cost, visits };
            search.visit(&mut best.clone(), 0, scratch);
            visits = search.visits;
            *best = search.best;
        }
    }

    /// Classes grouped by which of them is an operand of which, and by common operands outside `needed`.
    fn parts(&self, open: &BTreeSet<usize>, needed: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        fn find(group: &[usize], mut class: usize) -> usize {
            while group[class] != class {
                class = group[class];
            }
            class
        }
        let mut group: Vec<usize> = (0..self.all.len()).collect();
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
                    let (a, b) = (find(&group, class), find(&group, joined));
                    group[a.max(b)] = a.min(b);
                }
            }
        }
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &class in open {
            parts.entry(find(&group, class)).or_default().push(class);
        }
        parts.into_values().collect()
    }
}

/// A search through the alternatives of a part.
struct Search<'a> {
    classes: &'a Classes,
    part: &'a [usize],
    best: Positions,
    cost: Cost,
    /// Complete choices that may still be looked at.
    visits: usize,
}

impl Search<'_> {
    fn visit(&mut self, positions: &mut Positions, depth: usize, scratch: &mut Scratch) {
        if self.visits == 0 {
            return;
        }
        let Some(&class) = self.part.get(depth) else {
            self.visits -= 1;
            if let Some(cost) = self.classes.total(positions, scratch)
                && cost < self.cost * (1.0 - MARGIN)
            {
                (self.cost, self.best) = (cost, positions.clone());
            }
            return;
        };
        let old = positions[class];
        for at in 0..self.classes.alternatives[class].len() {
            positions[class] = Some(at);
            self.visit(positions, depth + 1, scratch);
        }
        positions[class] = old;
    }
}

#[cfg(test)]
mod tests {
    use egg::EGraph;
    use fornax_ir::{AttrValue, Attrs, DType, Dim};

    use super::super::analysis::{Facts, named};
    use super::super::language::Head;
    use super::*;

    /// The cost of an op by its first letter, so that tests can choose it.
    struct Table(BTreeMap<&'static str, Cost>);

    impl NodeCost for Table {
        fn cost(&self, _: &OpGraph, node: &ENode) -> Cost {
            self.0.get(node.op().name()).copied().unwrap_or(1.0)
        }
    }

    fn input(egraph: &mut OpGraph, name: &str) -> Id {
        let attrs = Attrs::from_iter([
            ("name", AttrValue::from(name)),
            ("dtype", AttrValue::from(DType::F32)),
            ("shape", AttrValue::from(vec![Dim::constant(4)])),
        ]);
        egraph.add(ENode::new(Head::new(named("input"), attrs), []))
    }

    fn apply(egraph: &mut OpGraph, op: &str, operands: &[Id]) -> Id {
        let head = Head::new(named(op), Attrs::none());
        egraph.add(ENode::new(head, operands.iter().copied()))
    }

    /// The cheapest choice among all, by trying every combination.
    fn brute_force(classes: &Classes) -> Cost {
        let mut positions: Positions = vec![Some(0); classes.all.len()];
        let mut best = Cost::INFINITY;
        loop {
            if let Some(cost) = classes.total(&positions, &mut Scratch::default()) {
                best = best.min(cost);
            }
            let mut class = 0;
            loop {
                if class == positions.len() {
                    return best;
                }
                let next = positions[class].map_or(0, |at| at + 1);
                if next < classes.alternatives[class].len() {
                    positions[class] = Some(next);
                    break;
                }
                positions[class] = Some(0);
                class += 1;
            }
        }
    }

    #[test]
    fn what_is_shared_counts_once() {
        let mut egraph: OpGraph = EGraph::new(Facts::default());
        let x = input(&mut egraph, "x");
        // Twice an expensive value, or twice a cheaper one of its own.
        let shared = apply(&mut egraph, "exp", &[x]);
        let (a, b) = (apply(&mut egraph, "neg", &[shared]), apply(&mut egraph, "abs", &[shared]));
        let (c, d) = (apply(&mut egraph, "sin", &[x]), apply(&mut egraph, "cos", &[x]));
        egraph.union(a, c);
        egraph.union(b, d);
        let root = apply(&mut egraph, "add", &[a, b]);
        egraph.rebuild();
        let model = Table(BTreeMap::from([("exp", 10.0), ("sin", 8.0), ("cos", 8.0)]));
        assert_eq!(extract(&egraph, &[root], &model).cost, 1.0 + 10.0 + 2.0 + 1.0);
    }

    #[test]
    fn small_graphs_are_extracted_optimally() {
        let ops = ["neg", "abs", "exp", "sin", "cos", "tanh"];
        let mut state = 1u64;
        let mut below = |count: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % count as u64) as usize
        };
        for _ in 0..60 {
            let mut egraph: OpGraph = EGraph::new(Facts::default());
            let mut values = vec![input(&mut egraph, "x"), input(&mut egraph, "y")];
            for _ in 0..8 {
                let pick = |below: &mut dyn FnMut(usize) -> usize| values[below(values.len())];
                let value = match below(3) {
                    0 => {
                        let operands = [pick(&mut below), pick(&mut below)];
                        apply(&mut egraph, "add", &operands)
                    }
                    _ => {
                        let (op, operand) = (ops[below(ops.len())], pick(&mut below));
                        apply(&mut egraph, op, &[operand])
                    }
                };
                values.push(value);
            }
            for _ in 0..3 {
                // A later value never equals an input here, or everything would be free.
                let (a, b) = (2 + below(values.len() - 2), 2 + below(values.len() - 2));
                egraph.union(values[a], values[b]);
                egraph.rebuild();
            }
            let costs = ops.iter().map(|&op| (op, 1.0 + below(9) as f64));
            let model = Table(costs.chain([("input", 0.0)]).collect());
            let root = egraph.find(values[values.len() - 1]);
            let classes = Classes::new(&egraph, &[root], &model);
            assert!(extract(&egraph, &[root], &model).cost <= brute_force(&classes) + 1e-9);
        }
    }
}
