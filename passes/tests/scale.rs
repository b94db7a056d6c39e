//! Large graphs of repeated blocks: the whole decision stays within bounds that grow with the graph. What is
//! bounded is work (e-nodes, rounds, regions), not time, which machines differ in.

#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use std::fmt::Write;

use fornax_ir::plan::{Phase, Plan};
use fornax_ir::text::parse_graph;
use fornax_ir::verify::verify_plan;
use fornax_ir::{Graph, PrecisionPolicy};
use fornax_passes::egraph::{Optimized, Rewrites, Stop, optimize};
use fornax_passes::{canonicalize, fuse, pack};

fn decided(text: &str) -> (Graph, Optimized, Plan) {
    let graph = canonicalize(parse_graph(text).unwrap()).unwrap();
    let optimized = optimize(&graph, Rewrites::Real).unwrap();
    let plan = fuse(&optimized.graph, PrecisionPolicy::default()).and_then(pack).unwrap();
    assert_eq!(verify_plan(&plan), []);
    (graph, optimized, plan)
}

/// Saturation must end by itself, after few rounds and with few e-nodes for each node.
fn assert_saturated(graph: &Graph, optimized: &Optimized, per_node: usize) {
    let saturation = &optimized.saturation;
    for (phase, rounds, stop) in &saturation.phases {
        assert_eq!(*stop, Stop::Saturated, "{phase}");
        assert!(*rounds <= 8, "{phase}: {rounds} rounds");
    }
    let nodes = graph.nodes().count();
    assert!(saturation.nodes <= per_node * nodes, "{} e-nodes of {nodes} nodes", saturation.nodes);
    assert!(optimized.cost_after <= optimized.cost_before);
}

fn run_regions(plan: &Plan) -> usize {
    plan.regions.iter().filter(|region| region.phase == Phase::Run).count()
}

/// Pre-norm transformer layers: attention with one head, and a feed-forward part.
fn transformer(layers: usize) -> String {
    let mut text = "graph @transformer(%x: f32[2,16,64]) -> (y: f32[2,16,64]) {\n".to_owned();
    let x = "f32[2,16,64]";
    let mut last = "%x".to_owned();
    for layer in 0..layers {
        let n = |name: &str| format!("%{name}_{layer}");
        let mut weight = |name: &str, shape: &str| {
            let _ =
                writeln!(text, "  {} = weight {{name = \"{layer}.{name}\"}} : {shape}", n(name));
        };
        for name in ["g1", "b1", "g2", "b2"] {
            weight(name, "f32[64]");
        }
        for name in ["wq", "wk", "wv", "wo"] {
            weight(name, "f32[64,64]");
        }
        weight("w1", "f32[64,256]");
        weight("w2", "f32[256,64]");
        let mut node = |name: &str, op: &str, ty: &str| {
            let _ = writeln!(text, "  {} = {op} : {ty}", n(name));
        };
        let norm = |x: &str, g: &str, b: &str| {
            format!("layer_norm {x}, {}, {} {{axis = 2, epsilon = 1e-5}}", n(g), n(b))
        };
        node("n1", &norm(&last, "g1", "b1"), x);
        for (name, weight) in [("q", "wq"), ("k", "wk"), ("v", "wv")] {
            node(name, &format!("matmul {}, {}", n("n1"), n(weight)), x);
        }
        node("kt", &format!("transpose {} {{perm = [0, 2, 1]}}", n("k")), "f32[2,64,16]");
        node("s", &format!("matmul {}, {}", n("q"), n("kt")), "f32[2,16,16]");
        node("p", &format!("softmax {} {{axis = 2}}", n("s")), "f32[2,16,16]");
        node("a", &format!("matmul {}, {}", n("p"), n("v")), x);
        node("o", &format!("matmul {}, {}", n("a"), n("wo")), x);
        node("r1", &format!("add {last}, {}", n("o")), x);
        node("n2", &norm(&n("r1"), "g2", "b2"), x);
        node("h", &format!("matmul {}, {}", n("n2"), n("w1")), "f32[2,16,256]");
        node("e", &format!("gelu {} {{approximate = \"none\"}}", n("h")), "f32[2,16,256]");
        node("m", &format!("matmul {}, {}", n("e"), n("w2")), x);
        node("r2", &format!("add {}, {}", n("r1"), n("m")), x);
        last = n("r2");
    }
    let _ = writeln!(text, "  return {last}\n}}");
    text
}

/// A dense block: each layer reads all that came before it.
fn dense_block(layers: usize) -> String {
    let channels = |layer: usize| 8 + 4 * layer;
    let all = channels(layers);
    let mut text = format!("graph @dense(%x: f32[2,8,6,6]) -> (y: f32[2,{all},6,6]) {{\n");
    let mut parts = "%x".to_owned();
    let mut last = "%x".to_owned();
    for layer in 0..layers {
        let c = channels(layer);
        for name in ["g", "b", "m", "v"] {
            let _ = writeln!(
                text,
                "  %{name}{layer} = weight {{name = \"{layer}.{name}\"}} : f32[{c}]"
            );
        }
        let _ = writeln!(text, "  %w{layer} = weight {{name = \"{layer}.w\"}} : f32[4,{c},3,3]");
        let _ = writeln!(
            text,
            "  %n{layer} = batch_norm {last}, %g{layer}, %b{layer}, %m{layer}, %v{layer} \
             {{epsilon = 1e-5}} : f32[2,{c},6,6]"
        );
        let _ = writeln!(text, "  %r{layer} = relu %n{layer} : f32[2,{c},6,6]");
        let _ = writeln!(
            text,
            "  %f{layer} = conv %r{layer}, %w{layer} {{strides = [1, 1], pads_begin = [1, 1], \
             pads_end = [1, 1], dilations = [1, 1], groups = 1}} : f32[2,4,6,6]"
        );
        parts = format!("{parts}, %f{layer}");
        let c = channels(layer + 1);
        let _ = writeln!(text, "  %c{layer} = concat {parts} {{axis = 1}} : f32[2,{c},6,6]");
        last = format!("%c{layer}");
    }
    let _ = writeln!(text, "  return {last}\n}}");
    text
}

#[test]
fn twenty_four_transformer_layers_saturate() {
    let (graph, optimized, plan) = decided(&transformer(24));
    assert_saturated(&graph, &optimized, 6);
    let (.., one) = decided(&transformer(1));
    // All layers are grouped like the first one.
    assert_eq!(run_regions(&plan), 24 * run_regions(&one));
}

#[test]
fn a_dense_block_is_written_in_place() {
    let layers = 24;
    let (graph, optimized, plan) = decided(&dense_block(layers));
    assert_saturated(&graph, &optimized, 4);
    // One kernel a layer and one for the copy of the input: concatenations take none.
    assert_eq!(run_regions(&plan), layers + 1);
    assert_eq!(plan.shared.len(), 1);
    let operands = plan.regions.iter().map(|region| region.operands.len()).max();
    assert!(operands.unwrap() <= 5, "{operands:?}");
}
