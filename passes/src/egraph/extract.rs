//! Extraction: the cheapest acyclic graph of an e-graph, where a value that is used twice counts once.

use std::collections::BTreeMap;

use egg::Id;

use super::analysis::OpGraph;
use super::convert::Choice;
use super::cost::{Cost, NodeCost};
use super::dag::{Alternative, Dag};
use super::language::ENode;

/// A choice and what it costs.
#[derive(Debug, Clone)]
pub struct Extraction {
    /// The node of each class that the roots need.
    pub choice: Choice,
    /// The cost of all of them.
    pub cost: Cost,
}

/// The classes that roots may need, with their nodes.
struct Classes {
    all: Vec<Id>,
    nodes: Vec<Vec<ENode>>,
    dag: Dag,
}

/// The cheapest graph that computes the roots.
///
/// # Panics
/// When a root has no acyclic node (every class of a graph has one).
pub fn extract(egraph: &OpGraph, roots: &[Id], model: &dyn NodeCost) -> Extraction {
    let classes = Classes::new(egraph, roots, model);
    let solution = classes.dag.cheapest(None).expect("invariant: roots have acyclic nodes");
    let chosen = solution.needed.iter().map(|&class| {
        let at = solution.positions[class].expect("invariant: needed classes are chosen");
        (classes.all[class], classes.nodes[class][at].clone())
    });
    Extraction { choice: chosen.collect(), cost: solution.cost }
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
        let mut dag = Dag { roots, alternatives: Vec::new() };
        let mut nodes = Vec::new();
        while nodes.len() < all.len() {
            let id = all[nodes.len()];
            let mut of_class: Vec<(ENode, Alternative)> = Vec::new();
            for node in &egraph[id].nodes {
                let children: Vec<Id> =
                    node.children.iter().map(|&child| egraph.find(child)).collect();
                if children.contains(&id) {
                    continue;
                }
                let node = ENode { children: children.iter().copied().collect(), ..node.clone() };
                let cost = model.cost(egraph, &node);
                let children = children.into_iter().map(|child| number(child, &mut all)).collect();
                of_class.push((node, Alternative { children, cost }));
            }
            // The graph's own nodes first: of equal costs they are kept.
            of_class.sort_by(|(a, of_a), (b, of_b)| {
                (a.rule.is_some().cmp(&b.rule.is_some()))
                    .then_with(|| of_a.cost.total_cmp(&of_b.cost))
                    .then_with(|| a.cmp(b))
            });
            let (of_nodes, of_dag) = of_class.into_iter().unzip();
            nodes.push(of_nodes);
            dag.alternatives.push(of_dag);
        }
        Classes { all, nodes, dag }
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
    fn brute_force(dag: &Dag) -> Cost {
        let mut positions = vec![Some(0); dag.alternatives.len()];
        let mut best = Cost::INFINITY;
        loop {
            if let Some(solution) = dag.total(positions.clone()) {
                best = best.min(solution.cost);
            }
            let mut class = 0;
            loop {
                if class == positions.len() {
                    return best;
                }
                let next = positions[class].map_or(0, |at: usize| at + 1);
                if next < dag.alternatives[class].len() {
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
            assert!(extract(&egraph, &[root], &model).cost <= brute_force(&classes.dag) + 1e-9);
        }
    }
}
