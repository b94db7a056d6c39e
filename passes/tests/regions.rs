//! What extraction makes of the greedy grouping: where it differs, and why.

#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use fornax_ir::PrecisionPolicy;
use fornax_ir::plan::{Phase, Plan, Schedule};
use fornax_ir::text::parse_graph;
use fornax_ir::verify::verify_plan;
use fornax_passes::egraph::{Rewrites, optimize};
use fornax_passes::regions::{Outcome, Regrouped, Steering};
use fornax_passes::{PassError, canonicalize, fuse_with, pack, use_wgmma};

fn decide(text: &str, steering: &Steering) -> Result<Regrouped, PassError> {
    let graph = canonicalize(parse_graph(text).unwrap()).unwrap();
    let graph = optimize(&graph, Rewrites::Real).unwrap().graph;
    let fused = fuse_with(&graph, Default::default(), steering)?;
    assert_eq!(verify_plan(&fused.plan), []);
    assert!(fused.cost_after <= fused.cost_before);
    Ok(fused)
}

fn fused(text: &str) -> Regrouped {
    decide(text, &Steering::default()).unwrap()
}

/// The classes of the run's regions, with the number of results of each.
fn classes(plan: &Plan) -> Vec<(&'static str, usize)> {
    let run = plan.regions.iter().filter(|region| region.phase == Phase::Run);
    run.map(|region| (region.class(), region.body.outputs().len())).collect()
}

fn chosen(fused: &Regrouped) -> Vec<&'static str> {
    let is_chosen = |considered: &&_| {
        matches!(
            considered,
            fornax_passes::regions::Considered { outcome: Outcome::Chosen { .. }, .. }
        )
    };
    fused.considered.iter().filter(is_chosen).map(|considered| considered.rule.name()).collect()
}

/// KernelBench L3/31, 32 and 44: a norm in front of a product.
const NORM_AND_PRODUCT: &str = r#"graph @norm(%x: f32[4096,768], %g: f32[768], %b: f32[768], %w: f32[768,3072]) -> (y: f32[4096,3072]) {
  %0 = layer_norm %x, %g, %b {axis = 1, epsilon = 1e-5} : f32[4096,768] @"norm"
  %1 = matmul %0, %w : f32[4096,3072] @"product"
  return %1
}"#;

#[test]
fn the_statistics_of_a_norm_are_computed_in_one_pass_over_the_rows() {
    let fused = fused(NORM_AND_PRODUCT);
    // Mean and deviation are read by the product, which normalises as it loads: greedy grouping
    // computes each in a kernel of its own.
    assert_eq!(classes(&fused.plan), [("rows", 2), ("contraction", 1)]);
    assert_eq!(chosen(&fused), ["reduction-chain"]);
    assert!(fused.cost_after < fused.cost_before);
}

/// KernelBench L3/9 and 10, before their activations: a sum that is needed with and without one.
const RESIDUAL: &str = r#"graph @residual(%x: f32[2048,256], %w: f32[256,256]) -> (s: f32[2048,256], y: f32[2048,256]) {
  %0 = matmul %x, %w : f32[2048,256] @"product"
  %1 = add %0, %x : f32[2048,256] @"sum"
  %2 = relu %1 : f32[2048,256] @"act"
  %3 = exp %2 : f32[2048,256] @"exp"
  return %1, %3
}"#;

#[test]
fn an_epilogue_goes_on_behind_a_value_that_is_a_result() {
    let fused = fused(RESIDUAL);
    assert_eq!(classes(&fused.plan), [("contraction", 2)]);
    assert_eq!(chosen(&fused), ["epilogue"]);
}

#[test]
fn what_is_forbidden_or_illegal_is_recorded_with_the_fact() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let steering = Steering { forbids: vec![pair("sum", "act")], ..Steering::default() };
    let fused = decide(RESIDUAL, &steering).unwrap();
    assert_eq!(classes(&fused.plan), [("contraction", 1), ("pointwise", 1)]);
    let outcomes: Vec<&Outcome> = fused.considered.iter().map(|of| &of.outcome).collect();
    assert_eq!(outcomes, [&Outcome::Rejected("--forbid sum->act".to_owned())]);

    let steering = Steering { pins: vec![pair("norm", "product")], ..Steering::default() };
    // The product itself normalises, so that one region computes parts of both.
    assert!(decide(NORM_AND_PRODUCT, &steering).is_ok());
    let two = r#"graph @two(%x: f32[64,64], %w: f32[64,64], %v: f32[64,64]) -> (y: f32[64,64]) {
  %0 = matmul %x, %w : f32[64,64] @"first"
  %1 = matmul %0, %v : f32[64,64] @"second"
  return %1
}"#;
    let steering = Steering { pins: vec![pair("first", "second")], ..Steering::default() };
    let error = decide(two, &steering).unwrap_err().to_string();
    assert_eq!(
        error,
        "[first] and [second] cannot be one region: a contraction cannot be computed beside another \
         reduction, scan, window or contraction (at `matmul` first)"
    );
}

/// KernelBench L2/32: a convolution whose channels are reduced.
fn channels(reduction: &str, columns: usize) -> String {
    format!(
        r#"graph @channels(%x: f32[64,64,256,256], %w: f32[{columns},64,3,3]) -> (y: f32[64,1,254,254]) {{
  %0 = conv %x, %w {{strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1}} : f32[64,{columns},254,254] @"conv"
  %1 = {reduction} %0 {{axes = [1], keepdims = true}} : f32[64,1,254,254] @"least"
  %2 = tanh %1 : f32[64,1,254,254] @"act"
  return %2
}}"#
    )
}

#[test]
fn channels_are_reduced_in_the_tile_that_holds_them() {
    let fused = fused(&channels("reduce_min", 128));
    assert_eq!(classes(&fused.plan), [("reduced", 1)]);
    assert_eq!(chosen(&fused), ["result-reduction"]);
    // Neither written nor read: 2 x 2.1 GB at 4.3 TB/s.
    assert!(
        fused.cost_after + 400e3 < fused.cost_before,
        "{} {}",
        fused.cost_after,
        fused.cost_before
    );
}

#[test]
fn means_of_positions_are_begun_where_those_are_computed() {
    // KernelBench L2/67: no tile holds all positions of an image, but each folds its own.
    let fused = fused(
        r#"graph @pool(%x: f32[128,8,256,256], %w: f32[64,8,3,3]) -> (y: f32[128,64,1,1]) {
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[128,64,254,254] @"conv"
  %1 = gelu %0 {approximate = none} : f32[128,64,254,254] @"gelu"
  %2 = reduce_mean %1 {axes = [2, 3], keepdims = true} : f32[128,64,1,1] @"mean"
  return %2
}"#,
    );
    assert_eq!(classes(&fused.plan), [("reduced", 1)]);
    assert_eq!(chosen(&fused), ["result-reduction"]);
    assert!(fused.cost_after < fused.cost_before);
}

#[test]
fn channels_that_no_tile_holds_are_reduced_by_another_kernel() {
    let fused = fused(&channels("reduce_min", 384));
    assert_eq!(classes(&fused.plan), [("contraction", 1), ("reduce", 1)]);
    let reasons: Vec<String> =
        fused.considered.iter().map(|of| format!("{:?}", of.outcome)).collect();
    assert!(reasons[0].contains("folds 384 elements"), "{reasons:?}");
}

#[test]
fn few_wide_tiles_are_not_worth_a_reduction() {
    // A tile that holds all 256 columns has few blocks beside it, with long sums.
    let fused = fused(
        r#"graph @few(%x: f32[128,16384], %w: f32[16384,256]) -> (y: f32[128,1]) {
  %0 = matmul %x, %w : f32[128,256] @"product"
  %1 = sigmoid %0 : f32[128,256] @"gate"
  %2 = reduce_sum %1 {axes = [1], keepdims = true} : f32[128,1] @"sum"
  return %2
}"#,
    );
    assert_eq!(classes(&fused.plan), [("contraction", 1), ("reduce", 1)]);
    assert!(
        matches!(fused.considered[0].outcome, Outcome::Dearer { .. }),
        "{:?}",
        fused.considered
    );
}

#[test]
fn convolutions_are_not_computed_twice_to_reduce_their_results() {
    // KernelBench L2/79: the channels are reduced behind a norm, for which the result is stored anyway.
    let fused = fused(
        r#"graph @norm(%x: f32[128,3,16,32,32], %w: f32[16,3,3,3,3], %g: f32[16], %b: f32[16]) -> (y: f32[128,14,30,30]) {
  %0 = conv %x, %w {strides = [1, 1, 1], pads_begin = [0, 0, 0], pads_end = [0, 0, 0], dilations = [1, 1, 1], groups = 1} : f32[128,16,14,30,30] @"conv"
  %1 = instance_norm %0, %g, %b {epsilon = 1e-5} : f32[128,16,14,30,30] @"norm"
  %2 = reduce_max %1 {axes = [1], keepdims = false} : f32[128,14,30,30] @"most"
  return %2
}"#,
    );
    let products = fused.plan.regions.iter().filter(|region| {
        let mut nodes = region.body.nodes();
        nodes.any(|id| region.body.node(id).op.name() == "conv")
    });
    assert_eq!(products.count(), 1);
}

/// KernelBench L2/49: phases of a strided transposed convolution are columns beside its channels.
const PHASES: &str = r#"graph @phases(%x: f32[16,32,16,32,32], %w: f32[32,64,3,3,3]) -> (y: f32[16,64,32,64,64]) {
  %0 = conv_transpose %x, %w {strides = [2, 2, 2], pads_begin = [1, 1, 1], pads_end = [1, 1, 1], dilations = [1, 1, 1], groups = 1, output_padding = [1, 1, 1]} : f32[16,64,32,64,64] @"conv"
  %1 = softmax %0 {axis = 1} : f32[16,64,32,64,64] @"normal"
  return %1
}
"#;

#[test]
fn channels_of_single_phases_are_not_worth_a_reduction() {
    // Tiles of one phase would read the operand once for each, and write every other element: 0.98 ms against
    // 0.72 ms on an H200.
    let steering = Steering::default();
    let graph = canonicalize(parse_graph(PHASES).unwrap()).unwrap();
    let fused = fuse_with(&graph, PrecisionPolicy::Tf32, &steering).unwrap();
    assert_eq!(classes(&fused.plan), [("contraction", 1), ("rows", 1)]);
}

/// The schedule on a GPU with `wgmma` of the only convolution of a graph, rounded to TF32.
fn tensor_core_schedule(text: &str) -> Schedule {
    let graph = canonicalize(parse_graph(text).unwrap()).unwrap();
    let fused = fuse_with(&graph, PrecisionPolicy::Tf32, &Steering::default()).unwrap();
    let plan = use_wgmma(pack(fused.plan).unwrap());
    plan.regions.last().unwrap().schedule.clone()
}

#[test]
fn pointwise_convolutions_are_products() {
    // KernelBench L1/87: 3.41 ms as a pipeline, 6.55 ms by elements that are loaded one by one.
    let schedule = tensor_core_schedule(
        r#"graph @pointwise(%x: f32[16,64,1024,1024], %w: f32[128,64,1,1]) -> (y: f32[16,128,1024,1024]) {
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[16,128,1024,1024] @"conv"
  return %0
}"#,
    );
    assert!(matches!(schedule, Schedule::Pipeline { .. }), "{schedule}");
}

#[test]
fn groups_with_odd_lines_are_not_pipelined() {
    // As in KernelBench L3/29, where it gave NaN on an H200.
    let schedule = tensor_core_schedule(
        r#"graph @windows(%x: f32[640,147,32], %w: f32[147,49,1]) -> (y: f32[640,147,32]) {
  %0 = conv %x, %w {strides = [1], pads_begin = [0], pads_end = [0], dilations = [1], groups = 3} : f32[640,147,32] @"conv"
  return %0
}"#,
    );
    assert!(matches!(schedule, Schedule::Wgmma { .. }), "{schedule}");
}
