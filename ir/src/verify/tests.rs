use std::collections::BTreeMap;

use super::*;
use crate::plan::{Phase, Plan, PlanOutput, Region, Schedule, Value, ValueRef};
use crate::{DType, Float, LocSet, Precision, SourceMap, Tensor, attrs};

fn codes(faults: &[Diagnostic]) -> Vec<(&str, &str)> {
    faults.iter().map(|fault| (fault.code.as_str(), fault.message.as_str())).collect()
}

fn f32(dims: &[&str]) -> Type {
    let dims: Vec<Dim> = dims.iter().map(|dim| dim.parse().unwrap()).collect();
    Type::new(DType::F32, dims)
}

/// `y = x @ w`
fn product() -> (Graph, [NodeId; 3]) {
    let mut graph = Graph::new("f");
    graph.dims.insert("N".into(), DimRange::ANY);
    let x = graph.input("x", f32(&["N", "3"])).unwrap();
    let w = graph.input("w", f32(&["3", "3"])).unwrap();
    let y = graph.add("matmul", attrs! {}, &[x, w], LocSet::none()).unwrap();
    graph.output("y", y);
    (graph, [x, w, y])
}

#[test]
fn a_sound_graph_has_no_faults() {
    assert_eq!(verify(&product().0), []);
}

#[test]
fn wrong_types_and_attributes_are_found() {
    let (mut graph, [_, w, y]) = product();
    graph.node_mut(y).ty = f32(&["N", "4"]);
    graph.node_mut(w).attrs.insert("name", 1i64);
    graph.node_mut(w).attrs.insert("more", true);
    let faults = faults(&graph);
    let found: Vec<_> = faults.iter().map(|f| (f.node, &*f.diagnostic.message)).collect();
    assert_eq!(
        found,
        [
            (Some(w), "attribute `name` of `input` is a text, not an integer"),
            (Some(y), "`matmul` gives f32[N,3], not f32[N,4]"),
        ]
    );
    assert_eq!(faults[1].diagnostic.notes, ["at `%1 = matmul`"]);
}

#[test]
fn broken_edges_are_found() {
    let (mut graph, [x, w, y]) = product();
    graph.connect(w, y, 1);
    graph.connect(y, x, 0);
    graph.remove(w);
    assert_eq!(
        codes(&verify(&graph)),
        [
            ("verify-cycle", "the value depends on itself or on one that does"),
            ("verify-cycle", "the value depends on itself or on one that does"),
            (
                "verify-name",
                "the list of inputs has a missing or repeated node NodeId(NodeIndex(1))"
            ),
            ("input.arity", "`input` takes 0 operands, not 1"),
            ("matmul.arity", "`matmul` takes 2 operands, not 1"),
        ]
    );
    let (mut graph, [_, w, y]) = product();
    graph.connect(w, y, 3);
    assert_eq!(
        codes(&verify(&graph)),
        [
            ("verify-operands", "the operands have the positions [0, 1, 3]"),
            ("matmul.arity", "`matmul` takes 2 operands, not 3"),
        ]
    );
}

#[test]
fn names_outputs_and_places_are_checked() {
    let (mut graph, [x, _, y]) = product();
    let (mut other, [_, _, elsewhere]) = product();
    for _ in 0..3 {
        other.constant(Tensor::from_f32(&[], &[0.0]));
    }
    let far = other.constant(Tensor::from_f32(&[], &[0.0]));
    assert!(elsewhere < far);
    graph.output("y", far);
    graph.node_mut(x).attrs.insert("name", "w");
    let mut sources = SourceMap::default();
    graph.node_mut(y).loc = sources.named("of another map").into();
    assert_eq!(
        codes(&verify(&graph)),
        [
            ("verify-name", "two inputs or weights are named `w`"),
            ("verify-loc", "a location is not in the graph's source map"),
            ("verify-name", "two outputs are named `y`"),
            ("verify-output", "the output `y` is a node that is not there"),
        ]
    );
}

#[test]
fn dimensions_and_sizes_are_checked() {
    let mut graph = Graph::new("f");
    let range = |min, max, divisor| DimRange { min, max, divisor };
    for (name, range) in [
        ("a", range(1, 8, 8)),
        ("b", range(1, 7, 8)),
        ("c", range(-1, 7, 1)),
        ("d", range(1, 7, 0)),
        ("e f", DimRange::ANY),
        ("3", DimRange::ANY),
        ("g", range(i64::MIN, i64::MIN, 3)),
    ] {
        graph.dims.insert(name.into(), range);
    }
    graph.input("x", f32(&["M", "M + K"])).unwrap();
    graph.input("y", f32(&["-1 - a"])).unwrap();
    graph.input("z", f32(&["4611686018427387904"])).unwrap();
    graph.weight("v", f32(&["2"]), None).unwrap();
    graph.bind_weight("v", Tensor::from_f32(&[3], &[0.0; 3]));
    assert_eq!(
        codes(&verify(&graph)),
        [
            ("verify-dims", "`3` cannot be the name of a dimension"),
            ("verify-dims", "`b` has no value: 1..7, multiples of 8"),
            ("verify-dims", "`c` has no value: -1..7, multiples of 1"),
            ("verify-dims", "`d` has no value: 1..7, multiples of 0"),
            ("verify-dims", "`e f` cannot be the name of a dimension"),
            (
                "verify-dims",
                "`g` has no value: -9223372036854775808..-9223372036854775808, multiples of 3"
            ),
            ("verify-weight", "the data of the weight `v` is f32[3], not f32[2]"),
            ("verify-size", "the size -a - 1 of f32[-a - 1] is negative"),
            ("verify-size", "f32[4611686018427387904] takes more than 2^63 bytes"),
            ("verify-dims", "the dimension `M` is not declared"),
            ("verify-dims", "the dimension `K` is not declared"),
        ]
    );
}

/// Two products, one after the other.
fn plan() -> Plan {
    let (body, _) = product();
    let value = |name: &str, ty| Value { name: name.into(), ty };
    let region = |name: &str, operands: Vec<ValueRef>| Region {
        name: name.into(),
        phase: Phase::Run,
        parts: BTreeMap::new(),
        body: body.clone(),
        operands,
        precision: Precision::Ieee,
        schedule: Schedule::Tile {
            block_m: 64,
            block_n: 64,
            block_k: 16,
            thread_m: 4,
            thread_n: 4,
        },
    };
    let first = ValueRef::Region { region: 0, output: 0 };
    let second = ValueRef::Region { region: 1, output: 0 };
    Plan {
        name: "f".into(),
        dims: body.dims.clone(),
        sources: body.sources.clone(),
        inputs: vec![value("x", f32(&["N", "3"]))],
        weights: vec![value("w", f32(&["3", "3"]))],
        constants: BTreeMap::new(),
        shared: Vec::new(),
        regions: vec![
            region("r0", vec![ValueRef::Input(0), ValueRef::Weight(0)]),
            region("r1", vec![first, ValueRef::Weight(0)]),
        ],
        outputs: vec![PlanOutput { name: "y".into(), value: second }],
    }
}

#[test]
fn a_sound_plan_has_no_faults() {
    assert_eq!(verify_plan(&plan()), []);
}

#[test]
fn operands_order_and_names_of_plans_are_checked() {
    let mut plan = plan();
    plan.regions[0].operands =
        vec![ValueRef::Region { region: 1, output: 0 }, ValueRef::Weight(1), ValueRef::Input(0)];
    plan.regions[1].operands[1] = ValueRef::Input(0);
    plan.regions[1].phase = Phase::Prepare;
    plan.regions[1].name = "r0".into();
    plan.weights[0].name = "x".into();
    plan.constants.insert("x".into(), Tensor::from_f32(&[1], &[0.0]));
    plan.outputs[0].value = ValueRef::Region { region: 1, output: 1 };
    assert_eq!(
        codes(&verify_plan(&plan)),
        [
            ("verify-name", "two inputs, weights or shared arrays are named `x`"),
            ("verify-name", "two regions are named `r0`"),
            ("verify-weight", "the data of the constant `x` is f32[1], not f32[3,3]"),
            ("verify-plan", "the output `y` is a value that is not there"),
            ("verify-plan", "the body has 2 inputs, the region 3 operands"),
            ("verify-plan", "operand 0 is computed later"),
            ("verify-plan", "operand 1 is a value that is not there"),
            ("verify-plan", "a region of the prepare program follows one of the run program"),
            (
                "verify-plan",
                "operand 0 is known only when the model runs, the region is of the prepare program"
            ),
            (
                "verify-plan",
                "operand 1 is known only when the model runs, the region is of the prepare program"
            ),
        ]
    );
}

#[test]
fn bodies_and_schedules_of_plans_are_checked() {
    let mut plan = plan();
    plan.regions[0].schedule = Schedule::Scan { threads: 128, rows: 1, items: 3 };
    let body = &mut plan.regions[1].body;
    let w = body.inputs()[1];
    let y = body.outputs()[0].value;
    let again = body.add("matmul", attrs! {}, &[y, w], LocSet::none()).unwrap();
    body.output("again", again);
    body.constant(Tensor::from_f32(&[2], &[0.0, -0.0]));
    body.dims.insert("K".into(), DimRange::ANY);
    let found = verify_plan(&plan);
    assert_eq!(
        codes(&found),
        [
            (
                "verify-plan",
                "a contraction region cannot be lowered by `scan(threads = 128, rows = 1, items = 3)`"
            ),
            ("verify-plan", "`items` of `scan` is 3, not a power of two"),
            ("verify-plan", "the body declares other dimensions than the plan"),
            ("verify-plan", "`constant`: the constant of type f32[2] has different elements"),
        ]
    );
    assert_eq!(found[2].notes, ["in region `r1`"]);
}

#[test]
fn a_broken_body_is_reported_with_its_region() {
    let mut plan = plan();
    let y = plan.regions[1].body.outputs()[0].value;
    plan.regions[1].body.node_mut(y).ty = f32(&["N"]);
    plan.regions[1].body.node_mut(y).attrs.insert("axis", crate::AttrValue::Float(Float(1.0)));
    let found = verify_plan(&plan);
    assert_eq!(codes(&found), [("matmul.attrs", "`matmul` has no attribute `axis`")]);
    assert_eq!(found[0].notes, ["at `%0 = matmul`", "in region `r1`"]);
}

/// One region writes the first half of an array, another reads that and writes the second half.
const SHARED: &str = r#"plan @halves(%x: f32[2,3]) -> (y: f32[4,3]) {
  shared %s: f32[4,3]
  %r0 = region(%x)
    phase run
    part 0 of %s axis 0 start [0]
    schedule pointwise(threads = 32, vector = 1, unroll = 1)
    graph @halves(%a0: f32[2,3]) -> (y0: f32[2,3]) {
      %0 = relu %a0 : f32[2,3]
      return %0
    }
  %r1 = region(%s)
    phase run
    part 0 of %s axis 0 start [2]
    schedule pointwise(threads = 32, vector = 1, unroll = 1)
    graph @halves(%a0: f32[4,3]) -> (y0: f32[2,3]) {
      %0 = slice %a0 {sizes = [2,3], starts = [0,0], steps = [1, 1]} : f32[2,3]
      %1 = exp %0 : f32[2,3]
      return %1
    }
  return %s
}
"#;

#[test]
fn parts_of_shared_arrays_are_checked() {
    let parse = |text: &str| crate::text::parse_plan(text).unwrap();
    let sound = parse(SHARED);
    assert_eq!(sound.to_string(), SHARED);
    assert_eq!(verify_plan(&sound), []);
    assert!(sound.reads(1, 0) && !sound.reads(0, 1));
    let faults = |from: &str, to: &str| -> Vec<String> {
        let plan = parse(&SHARED.replace(from, to));
        verify_plan(&plan).into_iter().map(|fault| fault.message).collect()
    };
    let overlap = faults("start [2]", "start [1]");
    assert_eq!(
        overlap,
        [
            "another region writes where part 0 lies".to_owned(),
            "another region writes where part 0 lies".to_owned()
        ]
    );
    assert_eq!(faults("start [2]", "start [3]"), ["part 0 lies at 3 to 5 of f32[4,3]".to_owned()]);
    // The reader wants what only it writes.
    assert_eq!(
        faults("starts = [0,0]", "starts = [1,0]"),
        ["operand 0 is a shared array of which no earlier region has written what is read"
            .to_owned()]
    );
}
