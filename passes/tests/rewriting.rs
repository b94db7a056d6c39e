//! What the algebra phase makes of whole graphs: the values stay, and the expensive parts go.

#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use std::collections::BTreeMap;

use fornax_ir::interp::{Array, Interpreter, Value};
use fornax_ir::text::parse_graph;
use fornax_ir::verify::verify;
use fornax_ir::{Dims, Graph};
use fornax_passes::canonicalize;
use fornax_passes::egraph::{
    Optimized, Rewrites, Roofline, Stop, decode, encode, extract, optimize_for,
};

/// A graph, what its optimised form must and must not hold, and rules that must have been used.
struct Case {
    name: &'static str,
    text: &'static str,
    gone: &'static [&'static str],
    kept: &'static [&'static str],
    rules: &'static [&'static str],
}

/// A pseudo-random number in -1..1 (a linear congruential generator of Knuth's).
fn next(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// The outputs on values that the name of each input or weight decides.
fn outputs(graph: &Graph) -> Vec<Value<f64>> {
    let value = |id| {
        let name = graph.input_name(id);
        let mut state = name.bytes().fold(7u64, |hash, byte| hash * 31 + u64::from(byte));
        let sizes = graph.ty(id).shape.as_const().unwrap();
        let count = sizes.iter().product();
        // Variances must be positive.
        let floor = if name.contains("var") { 2.0 } else { 0.0 };
        Value::Float(Array::new(sizes, (0..count).map(|_| floor + next(&mut state)).collect()))
    };
    let inputs: Vec<Value<f64>> = graph.inputs().iter().map(|&id| value(id)).collect();
    let weights: BTreeMap<String, Value<f64>> = graph
        .nodes()
        .filter(|&id| graph.node(id).op.name() == "weight")
        .map(|id| (graph.input_name(id).to_owned(), value(id)))
        .collect();
    Interpreter::from_values(graph, inputs, weights, Dims::new()).unwrap().outputs().unwrap()
}

fn assert_close(expected: &[Value<f64>], actual: &[Value<f64>], what: &str) {
    for (expected, actual) in expected.iter().zip(actual) {
        let (expected, actual) = (expected.float(), actual.float());
        let scale = expected.data.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
        for (x, y) in expected.data.iter().zip(&actual.data) {
            assert!((x - y).abs() <= 1e-5 * scale, "{what}: {x} became {y}");
        }
    }
}

fn optimized(text: &str) -> (Graph, Optimized) {
    let graph = canonicalize(parse_graph(text).unwrap()).unwrap();
    // A machine so slow that small tensors cost what large ones do elsewhere.
    let default = Roofline::default();
    let slow = Roofline {
        bytes: default.bytes / 1e4,
        products: default.products / 1e4,
        functions: default.functions / 1e4,
        ..default
    };
    let optimized = optimize_for(&graph, Rewrites::Real, &slow).unwrap();
    assert_eq!(verify(&optimized.graph), []);
    (graph, optimized)
}

/// The ops that are computed at each run: those that depend on an input.
fn run_ops(graph: &Graph) -> Vec<&'static str> {
    let mut runs = std::collections::BTreeSet::new();
    let mut ops = Vec::new();
    for id in graph.in_order() {
        let name = graph.node(id).op.name();
        let operands = graph.operands(id);
        if name == "input" || operands.iter().any(|operand| runs.contains(operand)) {
            runs.insert(id);
            ops.push(name);
        }
    }
    ops
}

const CASES: &[Case] = &[
    Case {
        name: "batch norm behind a convolution with bias",
        text: r#"graph @bn(%x: f32[2,3,6,6]) -> (y: f32[2,4,4,4]) {
  %w = weight {name = w, dtype = f32, shape = [4,3,3,3]} : f32[4,3,3,3]
  %b = weight {name = b, dtype = f32, shape = [4]} : f32[4]
  %scale = weight {name = scale, dtype = f32, shape = [4]} : f32[4]
  %bias = weight {name = bias, dtype = f32, shape = [4]} : f32[4]
  %mean = weight {name = mean, dtype = f32, shape = [4]} : f32[4]
  %var = weight {name = var, dtype = f32, shape = [4]} : f32[4]
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[2,4,4,4]
  %1 = reshape %b {shape = [1,4,1,1]} : f32[1,4,1,1]
  %2 = broadcast %1 {shape = [2,4,4,4]} : f32[2,4,4,4]
  %3 = add %0, %2 : f32[2,4,4,4]
  %4 = batch_norm %3, %scale, %bias, %mean, %var {epsilon = 0.001} : f32[2,4,4,4]
  return %4
}"#,
        gone: &["mul", "sub"],
        kept: &["conv", "add"],
        rules: &["scale-into-right"],
    },
    Case {
        name: "product, bias, scale, sum (L2/14, L2/18)",
        text: r#"graph @gemv(%x: f32[4,5]) -> (y: f32[4,1]) {
  %w = weight {name = w, dtype = f32, shape = [6,5]} : f32[6,5]
  %b = weight {name = b, dtype = f32, shape = [6]} : f32[6]
  %t = transpose %w {perm = [1, 0]} : f32[5,6]
  %0 = matmul %x, %t : f32[4,6]
  %1 = broadcast %b {shape = [4,6]} : f32[4,6]
  %2 = add %0, %1 : f32[4,6]
  %c = constant {value = f32[] [2.0]} : f32[]
  %3 = broadcast %c {shape = [4,6]} : f32[4,6]
  %4 = div %2, %3 : f32[4,6]
  %5 = reduce_sum %4 {axes = [1], keepdims = true} : f32[4,1]
  %6 = reduce_max %5 {axes = [1], keepdims = true} : f32[4,1]
  %7 = reduce_mean %6 {axes = [1], keepdims = true} : f32[4,1]
  %8 = reduce_log_sum_exp %7 {axes = [1], keepdims = true} : f32[4,1]
  return %8
}"#,
        gone: &["reduce_sum", "reduce_max", "reduce_mean", "exp", "log"],
        kept: &[],
        rules: &["sum-of-contraction"],
    },
    Case {
        name: "transposed convolution, factor, global averages (L2/44)",
        text: r#"graph @gap(%x: f32[2,3,6,6]) -> (y: f32[2,4]) {
  %w = weight {name = w, dtype = f32, shape = [3,4,3,3]} : f32[3,4,3,3]
  %b = weight {name = b, dtype = f32, shape = [4]} : f32[4]
  %0 = conv_transpose %x, %w {strides = [2, 2], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1, output_padding = [1, 1]} : f32[2,4,12,12]
  %1 = reshape %b {shape = [1,4,1,1]} : f32[1,4,1,1]
  %2 = broadcast %1 {shape = [2,4,12,12]} : f32[2,4,12,12]
  %3 = add %0, %2 : f32[2,4,12,12]
  %c = constant {value = f32[] [0.5]} : f32[]
  %4 = broadcast %c {shape = [2,4,12,12]} : f32[2,4,12,12]
  %5 = mul %3, %4 : f32[2,4,12,12]
  %6 = reduce_mean %5 {axes = [2, 3], keepdims = true} : f32[2,4,1,1]
  %7 = reduce_mean %6 {axes = [2, 3], keepdims = true} : f32[2,4,1,1]
  %8 = reshape %7 {shape = [2,4]} : f32[2,4]
  return %8
}"#,
        gone: &["conv_transpose", "reduce_mean"],
        kept: &["einsum"],
        rules: &["mean-of-conv-transpose"],
    },
    Case {
        name: "transposed convolution, batch norm, two average poolings (L2/72)",
        text: r#"graph @pools(%x: f32[2,3,5,5,5]) -> (y: f32[2,4,2,2,2]) {
  %w = weight {name = w, dtype = f32, shape = [3,4,3,3,3]} : f32[3,4,3,3,3]
  %scale = weight {name = scale, dtype = f32, shape = [4]} : f32[4]
  %bias = weight {name = bias, dtype = f32, shape = [4]} : f32[4]
  %mean = weight {name = mean, dtype = f32, shape = [4]} : f32[4]
  %var = weight {name = var, dtype = f32, shape = [4]} : f32[4]
  %0 = conv_transpose %x, %w {strides = [2, 2, 2], pads_begin = [1, 1, 1], pads_end = [1, 1, 1], dilations = [1, 1, 1], groups = 1, output_padding = [0, 0, 0]} : f32[2,4,9,9,9]
  %1 = batch_norm %0, %scale, %bias, %mean, %var {epsilon = 0.001} : f32[2,4,9,9,9]
  %2 = avg_pool %1 {kernel = [2, 2, 2], strides = [2, 2, 2], pads_begin = [0, 0, 0], pads_end = [0, 0, 0], dilations = [1, 1, 1], ceil_mode = false, count_include_pad = true} : f32[2,4,4,4,4]
  %3 = avg_pool %2 {kernel = [2, 2, 2], strides = [2, 2, 2], pads_begin = [0, 0, 0], pads_end = [0, 0, 0], dilations = [1, 1, 1], ceil_mode = false, count_include_pad = true} : f32[2,4,2,2,2]
  return %3
}"#,
        gone: &["conv_transpose", "avg_pool", "mul"],
        kept: &["conv"],
        rules: &["avg-pool-of-conv-transpose"],
    },
    Case {
        name: "transposed convolution, scale, average pooling, bias, scale (L2/50)",
        text: r#"graph @scaled_pool(%x: f32[2,3,4,4,4]) -> (y: f32[2,4,3,3,3]) {
  %w = weight {name = w, dtype = f32, shape = [3,4,3,3,3]} : f32[3,4,3,3,3]
  %b = weight {name = b, dtype = f32, shape = [4]} : f32[4]
  %s1 = weight {name = s1, dtype = f32, shape = []} : f32[]
  %s2 = weight {name = s2, dtype = f32, shape = []} : f32[]
  %b2 = weight {name = b2, dtype = f32, shape = [4,1,1,1]} : f32[4,1,1,1]
  %0 = conv_transpose %x, %w {strides = [2, 2, 2], pads_begin = [1, 1, 1], pads_end = [1, 1, 1], dilations = [1, 1, 1], groups = 1, output_padding = [0, 0, 0]} : f32[2,4,7,7,7]
  %1 = reshape %b {shape = [1,4,1,1,1]} : f32[1,4,1,1,1]
  %2 = broadcast %1 {shape = [2,4,7,7,7]} : f32[2,4,7,7,7]
  %3 = add %0, %2 : f32[2,4,7,7,7]
  %4 = broadcast %s1 {shape = [2,4,7,7,7]} : f32[2,4,7,7,7]
  %5 = mul %3, %4 : f32[2,4,7,7,7]
  %6 = avg_pool %5 {kernel = [2, 2, 2], strides = [2, 2, 2], pads_begin = [0, 0, 0], pads_end = [0, 0, 0], dilations = [1, 1, 1], ceil_mode = false, count_include_pad = true} : f32[2,4,3,3,3]
  %7 = broadcast %b2 {shape = [2,4,3,3,3]} : f32[2,4,3,3,3]
  %8 = add %6, %7 : f32[2,4,3,3,3]
  %9 = broadcast %s2 {shape = [2,4,3,3,3]} : f32[2,4,3,3,3]
  %10 = mul %8, %9 : f32[2,4,3,3,3]
  return %10
}"#,
        gone: &["conv_transpose", "avg_pool", "mul"],
        kept: &["conv"],
        rules: &["avg-pool-of-conv-transpose"],
    },
    Case {
        name: "convolution and average pooling (L2/65)",
        text: r#"graph @conv_pool(%x: f32[2,3,10,10]) -> (y: f32[2,4,2,2]) {
  %w = weight {name = w, dtype = f32, shape = [4,3,3,3]} : f32[4,3,3,3]
  %b = weight {name = b, dtype = f32, shape = [4]} : f32[4]
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[2,4,8,8]
  %1 = reshape %b {shape = [4,1,1]} : f32[4,1,1]
  %2 = broadcast %1 {shape = [2,4,8,8]} : f32[2,4,8,8]
  %3 = add %0, %2 : f32[2,4,8,8]
  %4 = avg_pool %3 {kernel = [4, 4], strides = [4, 4], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], ceil_mode = false, count_include_pad = true} : f32[2,4,2,2]
  %5 = sigmoid %4 : f32[2,4,2,2]
  return %5
}"#,
        gone: &["avg_pool"],
        kept: &["conv", "sigmoid"],
        rules: &["avg-pool-of-conv"],
    },
    Case {
        name: "product, average pooling of its columns, GELU (L2/98)",
        text: r#"graph @columns(%x: f32[4,5]) -> (y: f32[4,1,2]) {
  %w = weight {name = w, dtype = f32, shape = [5,8]} : f32[5,8]
  %b = weight {name = b, dtype = f32, shape = [8]} : f32[8]
  %0 = matmul %x, %w : f32[4,8]
  %1 = broadcast %b {shape = [4,8]} : f32[4,8]
  %2 = add %0, %1 : f32[4,8]
  %3 = reshape %2 {shape = [4,1,8]} : f32[4,1,8]
  %4 = avg_pool %3 {kernel = [4], strides = [4], pads_begin = [0], pads_end = [0], dilations = [1], ceil_mode = false, count_include_pad = true} : f32[4,1,2]
  return %4
}"#,
        gone: &["avg_pool"],
        kept: &["matmul"],
        rules: &["avg-pool-of-columns"],
    },
    Case {
        name: "mean over channels, softmax over the one that is left (L2/13)",
        text: r#"graph @constant(%x: f32[2,3,4,4]) -> (y: f32[2,1,4,4]) {
  %w = weight {name = w, dtype = f32, shape = [5,3,1,1]} : f32[5,3,1,1]
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[2,5,4,4]
  %1 = reduce_mean %0 {axes = [1], keepdims = true} : f32[2,1,4,4]
  %2 = softmax %1 {axis = 1} : f32[2,1,4,4]
  %3 = tanh %2 : f32[2,1,4,4]
  return %3
}"#,
        gone: &["conv", "tanh", "exp"],
        kept: &[],
        rules: &[],
    },
    Case {
        name: "a minimum with zero clipped to positive numbers (L2/83)",
        text: r#"graph @clipped(%x: f32[2,3]) -> (y: f32[2,3]) {
  %0 = exp %x : f32[2,3]
  %z = constant {value = f32[] [0.0]} : f32[]
  %one = constant {value = f32[] [1.0]} : f32[]
  %1 = broadcast %z {shape = [2,3]} : f32[2,3]
  %2 = broadcast %one {shape = [2,3]} : f32[2,3]
  %3 = min %0, %1 : f32[2,3]
  %4 = clip %3, %1, %2 : f32[2,3]
  return %4
}"#,
        gone: &["exp", "min", "clip"],
        kept: &[],
        rules: &[],
    },
    Case {
        name: "two max poolings",
        text: r#"graph @max_pools(%x: f32[2,3,12]) -> (y: f32[2,3,2]) {
  %0 = max_pool %x {kernel = [2], strides = [2], pads_begin = [0], pads_end = [0], dilations = [1], ceil_mode = false} : f32[2,3,6]
  %1 = max_pool %0 {kernel = [3], strides = [3], pads_begin = [0], pads_end = [0], dilations = [1], ceil_mode = false} : f32[2,3,2]
  return %1
}"#,
        gone: &[],
        kept: &["max_pool"],
        rules: &["max-pool-of-max-pool"],
    },
    Case {
        name: "GELU and Mish as exporters spell them",
        text: r#"graph @spelled(%x: f32[2,3]) -> (y: f32[2,3], z: f32[2,3]) {
  %h = constant {value = f32[] [0.5]} : f32[]
  %one = constant {value = f32[] [1.0]} : f32[]
  %r = constant {value = f32[] [1.4142135]} : f32[]
  %half = broadcast %h {shape = [2,3]} : f32[2,3]
  %ones = broadcast %one {shape = [2,3]} : f32[2,3]
  %root = broadcast %r {shape = [2,3]} : f32[2,3]
  %0 = div %x, %root : f32[2,3]
  %1 = erf %0 : f32[2,3]
  %2 = add %ones, %1 : f32[2,3]
  %3 = mul %x, %2 : f32[2,3]
  %4 = mul %3, %half : f32[2,3]
  %5 = softplus %x : f32[2,3]
  %6 = tanh %5 : f32[2,3]
  %7 = mul %6, %x : f32[2,3]
  return %4, %7
}"#,
        gone: &["erf", "tanh", "softplus"],
        kept: &["gelu", "mish"],
        rules: &["gelu-by-division-last", "mish"],
    },
    Case {
        name: "a product of a transposed input, transposed",
        text: r#"graph @linear(%x: f32[5,8]) -> (y: f32[6,8]) {
  %w = weight {name = w, dtype = f32, shape = [6,5]} : f32[6,5]
  %0 = transpose %w {perm = [1, 0]} : f32[5,6]
  %1 = transpose %x {perm = [1, 0]} : f32[8,5]
  %2 = matmul %1, %0 : f32[8,6]
  %3 = transpose %2 {perm = [1, 0]} : f32[6,8]
  return %3
}"#,
        gone: &["matmul", "transpose"],
        kept: &["einsum"],
        rules: &["transposed-result"],
    },
    Case {
        name: "a mean squared error in the shape of a number (L1/94)",
        text: r#"graph @mse(%x: f32[8,16], %t: f32[8,16]) -> (y: f32[]) {
  %0 = sub %x, %t : f32[8,16]
  %1 = mul %0, %0 : f32[8,16]
  %2 = reduce_mean %1 {axes = [0, 1], keepdims = true} : f32[1,1]
  %3 = reshape %2 {shape = []} : f32[]
  return %3
}"#,
        gone: &["reshape"],
        kept: &["reduce_mean"],
        rules: &["reshape-of-reduce"],
    },
    Case {
        name: "sums from the end, by reversing twice (L1/91)",
        text: r#"graph @reverse(%x: f32[8,16]) -> (y: f32[8,16]) {
  %0 = slice %x {starts = [0, 15], sizes = [8, 16], steps = [1, -1]} : f32[8,16]
  %1 = cum_sum %0 {axis = 1, exclusive = false, reverse = false} : f32[8,16]
  %2 = slice %1 {starts = [0, 15], sizes = [8, 16], steps = [1, -1]} : f32[8,16]
  return %2
}"#,
        gone: &["slice"],
        kept: &["cum_sum"],
        rules: &["scan-of-reversed"],
    },
    Case {
        name: "sums of the elements before, behind a zero (L1/92)",
        text: r#"graph @exclusive(%x: f32[64,512]) -> (y: f32[64,512]) {
  %zero = constant {value = f32[] [0.0]} : f32[]
  %0 = broadcast %zero {shape = [64, 1]} : f32[64,1]
  %1 = slice %x {starts = [0, 0], sizes = [64, 511], steps = [1, 1]} : f32[64,511]
  %2 = cum_sum %1 {axis = 1, exclusive = false, reverse = false} : f32[64,511]
  %3 = concat %0, %2 {axis = 1} : f32[64,512]
  return %3
}"#,
        gone: &["slice", "concat"],
        kept: &["cum_sum"],
        rules: &["sums-behind-zero"],
    },
];

#[test]
fn graphs_keep_their_values_and_lose_their_costs() {
    for case in CASES {
        let (graph, optimized) = optimized(case.text);
        let text = optimized.graph.to_string();
        assert_close(&outputs(&graph), &outputs(&optimized.graph), case.name);
        let ops = run_ops(&optimized.graph);
        for gone in case.gone {
            assert!(!ops.contains(gone), "{}: {gone} is still there\n{text}", case.name);
        }
        for kept in case.kept {
            assert!(ops.contains(kept), "{}: no {kept}\n{text}", case.name);
        }
        for rule in case.rules {
            let is_used = optimized.applied.values().any(|applied| applied.rule == *rule);
            assert!(is_used, "{}: `{rule}` is not used\n{text}", case.name);
        }
        assert!(optimized.cost_after < optimized.cost_before, "{}", case.name);
        let phases = &optimized.saturation.phases;
        assert!(
            phases.iter().all(|(.., stop)| *stop == Stop::Saturated),
            "{}: {phases:?}",
            case.name
        );
    }
}

#[test]
fn without_rules_a_graph_comes_back() {
    for case in CASES {
        let graph = canonicalize(parse_graph(case.text).unwrap()).unwrap();
        let encoded = encode(&graph);
        let model = Roofline::default();
        let extraction = extract(&encoded.egraph, &encoded.roots, &model);
        let (back, _) =
            decode(&encoded.egraph, &encoded.roots, &extraction.choice, &graph).unwrap();
        let ops = |graph: &Graph| {
            let mut ops: Vec<_> = graph
                .nodes()
                .map(|id| {
                    (graph.node(id).op, graph.node(id).attrs.clone(), graph.operand_types(id))
                })
                .collect();
            ops.sort_by(|a, b| (a.0, &a.1, &a.2).cmp(&(b.0, &b.1, &b.2)));
            ops
        };
        assert_eq!(ops(&graph), ops(&back), "{}", case.name);
        assert_eq!(outputs(&graph), outputs(&back), "{}", case.name);
    }
}
