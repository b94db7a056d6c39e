//! Properties of text forms and passes on random graphs.

use std::collections::BTreeMap;

use fornax_ir::op::{OpDef, all};
use fornax_ir::text::{parse_graph, parse_plan, print_graph};
use fornax_ir::verify::verify;
use fornax_ir::{Graph, NodeId};
use fornax_tests::random::{self, Choices};
use proptest::prelude::*;

/// Numbers for a graph of up to so many ops.
fn numbers(most: usize) -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 1..most)
}

/// What a graph says, independent of the numbers of nodes and of what text forms leave out.
fn contents(graph: &Graph) -> impl PartialEq + std::fmt::Debug {
    let order = [graph.inputs().to_vec(), graph.in_order()].concat();
    let mut numbers: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in order {
        let next = numbers.len();
        numbers.entry(id).or_insert(next);
    }
    let mut nodes: Vec<_> = numbers
        .iter()
        .map(|(&id, &number)| {
            let node = graph.node(id);
            let operands: Vec<usize> = graph.operands(id).iter().map(|id| numbers[id]).collect();
            let mut places = graph.sources.names(&node.loc);
            places.sort();
            places.dedup();
            (number, node.op, node.attrs.clone(), operands, node.ty.clone(), places)
        })
        .collect();
    nodes.sort_by_key(|node| node.0);
    let outputs: Vec<(String, usize)> =
        graph.outputs().iter().map(|o| (o.name.clone(), numbers[&o.value])).collect();
    (graph.name.clone(), graph.dims.clone(), nodes, outputs)
}

/// A text with pieces removed, repeated, exchanged or replaced.
fn mutated(text: &str, choices: &mut Choices<'_>) -> String {
    const PIECES: &[&str] = &[
        "",
        " ",
        "\n",
        "%",
        "%0",
        "@",
        "\"",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ":",
        "=",
        "-",
        "->",
        "-1",
        "0",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
        "1e999",
        "nan",
        "inf",
        "0x",
        "f32[]",
        "i64[N]",
        "N*N",
        "floordiv(N, 0)",
        "splat",
        "graph",
        "return",
        "true",
        "\\u{110000}",
        "ü",
        "\0",
        ";",
    ];
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + choices.below(4) {
        let start = choices.below(chars.len());
        let end = (start + choices.below(12)).min(chars.len());
        let piece: Vec<char> = match choices.below(4) {
            0 => Vec::new(),
            1 => {
                let from = choices.below(chars.len());
                chars[from..(from + choices.below(20)).min(chars.len())].to_vec()
            }
            _ => choices.pick(PIECES).chars().collect(),
        };
        chars.splice(start..end, piece);
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_reads_back_from_its_text(numbers in numbers(40)) {
        let graph = random::graph(&numbers);
        prop_assert_eq!(verify(&graph), []);
        let text = print_graph(&graph);
        let read = match parse_graph(&text) {
            Ok(read) => read,
            Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{text}"))),
        };
        prop_assert_eq!(contents(&graph), contents(&read), "{}", text);
        prop_assert_eq!(print_graph(&read), text);
    }

    #[test]
    fn mutated_text_never_panics(numbers in numbers(16), mutations in any::<[u32; 8]>()) {
        let text = print_graph(&random::graph(&numbers));
        let mut choices = Choices::new(&mutations);
        while choices.next_step() {
            let mutant = mutated(&text, &mut choices);
            if let Ok(graph) = parse_graph(&mutant) {
                // What is read may be unsound, but then it is reported and printed, not a panic.
                let faults = verify(&graph);
                let again = parse_graph(&print_graph(&graph));
                prop_assert!(!faults.is_empty() || again.is_ok(), "{}", mutant);
            }
            let _ = parse_plan(&mutant.replacen("graph", "plan", 1));
        }
    }
}

/// Without this, the other properties might say nothing about some ops.
#[test]
fn random_graphs_reach_every_op() {
    let reached = |def: &'static OpDef| {
        (1..20u32).any(|seed| {
            let numbers: Vec<u32> = (1..60).map(|step| seed * 1000 + step).collect();
            let graph = random::graph_of(&[def], &numbers);
            graph.nodes().any(|id| graph.node(id).op.name() == def.name)
        })
    };
    let missing: Vec<&str> = all().iter().filter(|def| !reached(def)).map(|def| def.name).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

#[cfg(feature = "passes")]
mod passes {
    use super::*;
    use fornax_ir::interp::{Interpreter, Value};
    use fornax_ir::text::print_plan;
    use fornax_ir::verify::verify_plan;
    use fornax_passes::egraph::{Rewrites, optimize};
    use fornax_tests::regions;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn canonical_graphs_and_plans_are_sound_and_read_back(numbers in numbers(30)) {
            let Ok(graph) = fornax_passes::canonicalize(random::graph(&numbers)) else {
                return Ok(());
            };
            prop_assert_eq!(verify(&graph), []);
            let plan = fornax_passes::fuse(&graph, fornax_ir::PrecisionPolicy::default())
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(verify_plan(&plan), []);
            let text = print_plan(&plan);
            match parse_plan(&text) {
                Ok(read) => prop_assert_eq!(print_plan(&read), text),
                Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{text}"))),
            }
        }

        /// Rules that keep every bit do, up to how constants are rounded when they are folded.
        #[test]
        fn rewriting_keeps_the_values(numbers in numbers(30), seed in any::<u32>()) {
            let Ok(graph) = fornax_passes::canonicalize(random::graph(&numbers)) else {
                return Ok(());
            };
            let optimized = optimize(&graph, Rewrites::Bitwise)
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(verify(&optimized.graph), []);
            let again = optimize(&graph, Rewrites::Bitwise).map(|again| print_graph(&again.graph));
            prop_assert_eq!(print_graph(&optimized.graph), again.unwrap_or_default());
            let seed = [seed];
            let mut choices = Choices::new(&seed);
            choices.next_step();
            let dims = random::dims(&mut choices);
            let types = graph.inputs().iter().map(|&id| graph.ty(id));
            let inputs: Vec<Value<f32>> =
                types.map(|ty| in_f32(random::value(ty, &dims, &mut choices))).collect();
            let mut weights = BTreeMap::new();
            for id in graph.nodes() {
                if graph.node(id).op.name() == "weight" {
                    let name = graph.input_name(id).to_owned();
                    let known = graph.weights().get(&name).map(Value::from_tensor);
                    let random = || in_f32(random::value(graph.ty(id), &dims, &mut choices));
                    weights.insert(name, known.unwrap_or_else(random));
                }
            }
            let run = |graph: &Graph| {
                Interpreter::from_values(graph, inputs.clone(), weights.clone(), dims.clone())
                    .and_then(|interpreter| interpreter.outputs())
            };
            if let (Ok(expected), Ok(actual)) = (run(&graph), run(&optimized.graph)) {
                for (expected, actual) in expected.iter().zip(&actual) {
                    prop_assert!(are_close(expected, actual), "{}\n{}", graph, optimized.graph);
                }
            }
        }

        /// Regions compute what the graph does, to the bit: only where values are computed differs.
        #[test]
        fn fusion_keeps_every_bit(numbers in numbers(30), seed in any::<u32>()) {
            let Ok(graph) = fornax_passes::canonicalize(random::graph(&numbers)) else {
                return Ok(());
            };
            let plan = fornax_passes::fuse(&graph, fornax_ir::PrecisionPolicy::default())
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            let seed = [seed];
            let mut choices = Choices::new(&seed);
            choices.next_step();
            let dims = random::dims(&mut choices);
            let types = graph.inputs().iter().map(|&id| graph.ty(id));
            let inputs: Vec<Value<f64>> =
                types.map(|ty| random::value(ty, &dims, &mut choices)).collect();
            let weights: BTreeMap<String, Value<f64>> = plan
                .weights
                .iter()
                .map(|weight| {
                    let constant = plan.constants.get(&weight.name).map(Value::from_tensor);
                    let random = || random::value(&weight.ty, &dims, &mut choices);
                    (weight.name.clone(), constant.unwrap_or_else(random))
                })
                .collect();
            let interpreter =
                Interpreter::from_values(&graph, inputs.clone(), weights.clone(), dims.clone());
            let expected = interpreter.and_then(|interpreter| interpreter.outputs());
            let actual = regions::evaluate(&plan, &inputs, &weights, &dims, |value, _| value);
            match (expected, actual) {
                (Ok(expected), Ok(actual)) => {
                    let bits = |values: &[Value<f64>]| values.iter().map(bits).collect::<Vec<_>>();
                    prop_assert_eq!(bits(&expected), bits(&actual), "{}", graph);
                }
                (Err(_), Err(_)) => {}
                (expected, actual) => prop_assert!(false, "{expected:?}\n{actual:?}\n{graph}"),
            }
        }
    }

    fn in_f32(value: Value<f64>) -> Value<f32> {
        match value {
            Value::Float(array) => Value::Float(array.map(|x| x as f32)),
            Value::Int(array) => Value::Int(array),
        }
    }

    /// Whether values are the same but for rounding to half precision.
    fn are_close(expected: &Value<f32>, actual: &Value<f32>) -> bool {
        let close = |(x, y): (&f32, &f32)| {
            x.to_bits() == y.to_bits()
                || (x.is_nan() && y.is_nan())
                || (x - y).abs() <= 1e-2 * x.abs()
        };
        match (expected, actual) {
            (Value::Float(x), Value::Float(y)) => x.data.iter().zip(&y.data).all(close),
            (Value::Int(x), Value::Int(y)) => x == y,
            _ => false,
        }
    }

    /// A value that equals itself, NaN or not.
    fn bits(value: &Value<f64>) -> (Vec<usize>, Vec<u64>) {
        let data = match value {
            Value::Float(array) => array.data.iter().map(|x| x.to_bits()).collect(),
            Value::Int(array) => array.data.iter().map(|x| x.cast_unsigned()).collect(),
        };
        (value.shape().to_vec(), data)
    }
}
