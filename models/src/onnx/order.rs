//! The structure of a graph by names: who computes what, in which order.

use std::collections::{BTreeMap, BTreeSet};

use super::proto::{GraphProto, NodeProto};

/// A fault in the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The node it is reported at, by its position in the graph.
    pub(super) node: Option<usize>,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// The nodes in an order in which each comes after those that it uses. ONNX asks for that order in the
/// file, but not every exporter keeps it; where the file does, its order is kept.
///
/// `outer` are the names of the surrounding graphs, which the nodes of an inner graph may use.
///
/// # Errors
/// All names that are given twice or used but not given by anything, or else one cycle.
pub(super) fn order(
    graph: &GraphProto,
    outer: impl Fn(&str) -> bool,
) -> Result<Vec<usize>, Vec<Fault>> {
    let (producers, mut faults) = producers(graph);
    let given = given(graph);
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); graph.node.len()];
    let mut missing: Vec<usize> = vec![0; graph.node.len()];
    for (index, node) in graph.node.iter().enumerate() {
        for name in used_names(node) {
            if let Some(&producer) = producers.get(name) {
                users[producer].push(index);
                missing[index] += 1;
            } else if !given.contains(name) && !outer(name) {
                let message = format!(
                    "its input {name:?} is given by no node, no graph input and no initializer"
                );
                faults.push(Fault { node: Some(index), code: "onnx-missing-input", message });
            }
        }
    }
    for output in &graph.output {
        let name = output.name.as_str();
        if !producers.contains_key(name) && !given.contains(name) && !outer(name) {
            let message = format!("the graph's output {name:?} is computed by no node");
            faults.push(Fault { node: None, code: "onnx-missing-output", message });
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut ready: BTreeSet<usize> = (0..missing.len()).filter(|&at| missing[at] == 0).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &user in &users[index] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.insert(user);
            }
        }
    }
    if order.len() == graph.node.len() {
        Ok(order)
    } else {
        Err(vec![cycle(graph, &producers, &missing)])
    }
}

/// The node's name; the name of its first output when it has none.
pub(super) fn node_name(node: &NodeProto) -> &str {
    let outputs = || node.output.iter().map(String::as_str).find(|name| !name.is_empty());
    if node.name.is_empty() { outputs().unwrap_or_default() } else { &node.name }
}

fn producers(graph: &GraphProto) -> (BTreeMap<&str, usize>, Vec<Fault>) {
    let mut faults = Vec::new();
    let duplicate = |node, what: &str, name: &str| Fault {
        node,
        code: "onnx-duplicate-name",
        message: format!("{what} {name:?} already exists"),
    };
    let mut values: BTreeSet<&str> = BTreeSet::new();
    for input in &graph.input {
        if !values.insert(&input.name) {
            faults.push(duplicate(None, "the graph input", &input.name));
        }
    }
    let mut initializers: BTreeSet<&str> = BTreeSet::new();
    for tensor in &graph.initializer {
        if !initializers.insert(&tensor.name) {
            faults.push(duplicate(None, "the initializer", &tensor.name));
        }
    }
    let mut producers = BTreeMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let name = name.as_str();
            let taken = values.contains(name) || initializers.contains(name);
            if taken || producers.insert(name, index).is_some() {
                faults.push(duplicate(Some(index), "a value named", name));
            }
        }
    }
    (producers, faults)
}

fn given(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    inputs.chain(graph.initializer.iter().map(|tensor| tensor.name.as_str())).collect()
}

/// The values that a node uses, those of its inner graphs included.
pub(super) fn used_names(node: &NodeProto) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = node.input.iter().map(String::as_str).collect();
    names.remove("");
    for attribute in &node.attribute {
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            let mut inner: BTreeSet<&str> = graph.node.iter().flat_map(used_names).collect();
            inner.extend(graph.output.iter().map(|output| output.name.as_str()));
            let own = given(graph);
            let computed: BTreeSet<&str> =
                graph.node.iter().flat_map(|node| &node.output).map(String::as_str).collect();
            names.extend(inner.into_iter().filter(|n| !own.contains(n) && !computed.contains(n)));
        }
    }
    names
}

/// Follows users-of-missing-inputs backwards until a node repeats.
fn cycle(graph: &GraphProto, producers: &BTreeMap<&str, usize>, missing: &[usize]) -> Fault {
    let stuck_input = |index: usize| {
        let names = used_names(&graph.node[index]);
        names.iter().filter_map(|name| producers.get(name)).copied().find(|&p| missing[p] > 0)
    };
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..missing.len()).find(|&index| missing[index] > 0);
    while let Some(index) = at.filter(|index| !path.contains(index)) {
        path.push(index);
        at = stuck_input(index);
    }
    let start = path.iter().position(|&index| Some(index) == at).unwrap_or(0);
    let mut names: Vec<String> =
        path[start..].iter().rev().map(|&i| format!("{:?}", node_name(&graph.node[i]))).collect();
    let count = names.len();
    if count > 8 {
        names.truncate(8);
        names.push("...".to_owned());
    } else if let Some(first) = names.first().cloned() {
        names.push(first);
    }
    Fault {
        node: path.get(start).copied(),
        code: "onnx-cycle",
        message: format!("{count} nodes depend on each other in a cycle: {}", names.join(" -> ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, ValueInfoProto};

    fn node(output: &str, inputs: &[&str]) -> NodeProto {
        NodeProto {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output.into()],
            op_type: "Add".into(),
            ..Default::default()
        }
    }

    fn graph(nodes: Vec<NodeProto>) -> GraphProto {
        let value = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
        GraphProto {
            node: nodes,
            input: vec![value("x")],
            output: vec![value("y")],
            ..Default::default()
        }
    }

    fn faults(nodes: Vec<NodeProto>) -> Vec<String> {
        let faults = order(&graph(nodes), |_| false).unwrap_err();
        faults.into_iter().map(|fault| format!("{}: {}", fault.code, fault.message)).collect()
    }

    #[test]
    fn file_order_is_kept_unless_it_is_wrong() {
        let sorted = graph(vec![node("a", &["x"]), node("b", &["x", "a"]), node("y", &["b", ""])]);
        assert_eq!(order(&sorted, |_| false).unwrap(), [0, 1, 2]);
        let shuffled = graph(vec![node("y", &["b"]), node("b", &["a"]), node("a", &["x"])]);
        assert_eq!(order(&shuffled, |_| false).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(
            faults(vec![node("a", &["b"]), node("b", &["a"]), node("y", &["b"])]),
            ["onnx-cycle: 2 nodes depend on each other in a cycle: \"b\" -> \"a\" -> \"b\""]
        );
        let found = faults(vec![node("a", &["z"]), node("a", &["x"]), node("x", &["x"])]);
        assert_eq!(
            found,
            [
                "onnx-duplicate-name: a value named \"a\" already exists",
                "onnx-duplicate-name: a value named \"x\" already exists",
                "onnx-missing-input: its input \"z\" is given by no node, no graph input and no \
                 initializer",
                "onnx-missing-output: the graph's output \"y\" is computed by no node",
            ]
        );
    }

    #[test]
    fn inner_graphs_depend_on_the_values_they_use() {
        let inner = GraphProto {
            node: vec![node("t", &["late", "own"]), node("own", &["late"])],
            output: vec![ValueInfoProto { name: "t".into(), r#type: None }],
            ..Default::default()
        };
        let branch =
            AttributeProto { name: "then_branch".into(), g: Some(inner), ..Default::default() };
        let user = NodeProto { attribute: vec![branch], ..node("y", &["x"]) };
        let graph = graph(vec![user, node("late", &["x"])]);
        assert_eq!(order(&graph, |_| false).unwrap(), [1, 0]);
    }
}
