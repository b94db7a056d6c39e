use super::*;
use crate::plan::ValueRef;
use crate::{DType, Dim, DimRange, LocSet, SourceNode, Tensor, Type, attrs};

const SOURCES: &str = r#"graph @"every source" (%x: f32[N,64], %"b:0": bf16[2*N + 1] @"in") dims(N: 8..64 multiple of 8) -> (y: f32[N,64], "odd name": i64[N,3]) {
  %0 = weight {name = "fc.weight"} : f32[64,128] @"a"
  %1 = constant {value = f32[2,2] [-0.0, inf, nan, 0x7fc00001]} : f32[2,2]
  %2 = iota {axis = 0} : i64[N,3] @["a", "b\n\u{1}\""]
  %3 = constant {value = bool[70] splat true} : bool[70]
  %4 = constant {value = u64[] [18446744073709551615]} : u64[]
  return %x, %2
}
"#;

fn errors(text: &str) -> Vec<String> {
    parse_graph(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn printed_text_reads_back_unchanged() {
    let canonical = SOURCES.replace("\" (", "\"(");
    let graph = parse_graph(SOURCES).unwrap();
    assert_eq!(print_graph(&graph), canonical);
    assert_eq!(graph.dims["N"], DimRange { min: 8, max: 64, divisor: 8 });
    assert_eq!(graph.input_name(graph.inputs()[1]), "b:0");
    assert_eq!(graph.outputs()[1].name, "odd name");
}

#[test]
fn a_built_graph_reads_back() {
    let mut graph = Graph::new("");
    let mut add_source = |name: &str| {
        graph.sources.add(SourceNode {
            name: name.into(),
            op_type: "Range".into(),
            index: Some(3),
            opset: Some(17),
        })
    };
    let (b, a) = (add_source("b"), add_source("a"));
    let x = graph.input("0", Type::new(DType::F16, vec![Dim::symbol("batch")])).unwrap();
    let attrs = attrs! { axis: 0i64, dtype: DType::I32, shape: vec![Dim::constant(4)] };
    let iota = graph.add("iota", attrs, &[], LocSet::from_iter([a, b])).unwrap();
    let constant = graph.constant(Tensor::from_f32(&[0], &[]));
    graph.output("y", iota);
    graph.output("x", x);
    graph.output("none", constant);
    let text = print_graph(&graph);
    assert_eq!(
        text,
        "graph @\"\"(%\"0\": f16[batch]) -> (y: i32[4], x: f16[batch], none: f32[0]) {\n  \
           %0 = iota {axis = 0} : i32[4] @[\"a\", \"b\"]\n  \
           %1 = constant {value = f32[0] []} : f32[0]\n  \
           return %0, %\"0\", %1\n}\n"
    );
    assert_eq!(print_graph(&parse_graph(&text).unwrap()), text);
}

#[test]
fn declarations_have_positions() {
    let (graph, positions) = parse_graph_with_positions(SOURCES).unwrap();
    let lines: Vec<(usize, usize)> =
        graph.nodes().map(|id| (positions[&id].line, positions[&id].column)).collect();
    assert_eq!(lines, [(1, 24), (1, 39), (2, 3), (3, 3), (4, 3), (5, 3), (6, 3)]);
}

#[test]
fn all_faults_are_reported_once() {
    let text = "graph @f(%x: f32[2], %x: f32[2]) -> (y: f32[3], z: f32[2]) {
  %0 = frobnicate %x : f32[2]
  %1 = iota {axis = 1} : i64[2]
  %2 = iota {axis = 0} : f32[2]
  %3 = iota {axis = 0, axis = 0} : i64[2]
  %4 = iota {axes = 0} : i64[2]
  %5 = constant {value = f32[3] [1.0, 2.0]} : f32[3]
  %6 = constant {value = f32[1] [1.0]} : f32[2]
  %7 = constant {value = i8[1] [128]} : i8[1]
  %8 = iota %0 {axis = 0} : i64[2]
  %9 = iota %10 {axis = 0} : i64[2]
  %x = iota {axis = 0} : i64[2
  %11 = input {name = \"x\"} : f32[2]
  return %x, %12
}";
    assert_eq!(
        errors(text),
        [
            "1:22: error[text-name]: `%x` is defined twice",
            "2:8: error[op]: there is no op `frobnicate`",
            "3:8: error[iota.C1]: axis 1 is not an axis of rank 1",
            "4:8: error[iota.C2]: f32 is not i64 or i32",
            "5:24: error[text-name]: `axis` is there twice",
            "6:14: error[iota.attrs]: `iota` has no attribute `axes`",
            "7:33: error[text-type]: a tensor of shape [3] and type f32 takes 12 bytes, not 8",
            "8:8: error[text-type]: `constant` gives f32[1], not f32[2]",
            "9:33: error[text-syntax]: 128 does not fit into i8",
            "11:13: error[text-name]: `%10` is not defined above",
            "12:3: error[text-name]: `%x` is defined twice",
            "13:3: error[text-syntax]: expected `,` or `]`, found `%11`",
            "13:9: error[text-syntax]: inputs are declared in the graph's first line",
            "14:14: error[text-name]: `%12` is not defined above",
        ]
    );
}

#[test]
fn unfinished_text_is_an_error_at_every_length() {
    for end in (0..SOURCES.len() - 2).filter(|&end| SOURCES.is_char_boundary(end)) {
        assert!(parse_graph(&SOURCES[..end]).is_err(), "{end}");
    }
}

#[test]
fn hostile_text_is_refused() {
    let ty = |ty: &str| format!("graph @f(%x: {ty}) -> () {{ return }}");
    let sum: Vec<String> = (0..200).map(|n| format!("N{n}")).collect();
    let sum = sum.join(" + ");
    for (text, code) in [
        (ty("f32[9223372036854775808]"), "text-syntax"),
        (ty(&format!("f32[{}]", "(".repeat(100_000))), "text-syntax"),
        (ty(&format!("f32{}", "[".repeat(100_000))), "text-syntax"),
        (ty(&format!("f32[{}1]", "1,".repeat(100_000))), "text-limit"),
        (ty(&format!("f32[{sum},{sum}]")), "text-limit"),
        (
            "graph @f() -> () {\n %0 = constant {value = f64[9999999999] splat 0.0} : f64[1]"
                .into(),
            "text-limit",
        ),
        (
            format!("graph @f() -> () {{\n %0 = iota {{axis = {}}} : i64[1]", "9".repeat(99_999)),
            "text-syntax",
        ),
        ("graph @f() -> () {\n".to_owned() + &"%0 = \n".repeat(100_000), "text-syntax"),
        ("graph @f(%99999999999999999999: f32[])".into(), "text-syntax"),
    ] {
        let errors = parse_graph(&text).unwrap_err();
        assert_eq!(errors.iter().next().unwrap().diagnostic.code, code, "{errors}");
        assert!(errors.to_string().len() < 600 * TextErrors::MOST);
    }
}

const PLAN: &str = r##"plan @net(%x: f32[N,2]) dims(N: 1..8) -> (y: f32[N,2], z: f32[2,2]) {
  weight %"w:0": f32[2,2]
  weight %c: f32[2,2] = [1.0, -0.0, 0.0, nan]
  weight %ones: f32[2] = splat 1.0
  %r0 = region(%"w:0", %c)
    phase prepare
    schedule tile(block_m = 16, block_n = 32, block_k = 16, thread_m = 2, thread_n = 2)
    graph @net(%a0: f32[2,2], %a1: f32[2,2]) dims(N: 1..8) -> (y0: f32[2,2]) {
      %0 = matmul %a0, %a1 : f32[2,2] @"fold"
      return %0
    }
  %"r 1" = region(%x, %r0#0)
    phase run
    schedule tile(block_m = 16, block_n = 32, block_k = 16, thread_m = 2, thread_n = 2)
    graph @net(%a0: f32[N,2], %a1: f32[2,2]) dims(N: 1..8) -> (y0: f32[N,2]) {
      %0 = matmul %a0, %a1 : f32[N,2] @["dot", "fold"]
      return %0
    }
  return %"r 1"#0, %r0#0
}
"##;

#[test]
fn a_printed_plan_reads_back_unchanged() {
    let plan = parse_plan(PLAN).unwrap();
    assert_eq!(print_plan(&plan), PLAN);
    assert_eq!(crate::verify::verify_plan(&plan), []);
    assert_eq!(plan.constants.len(), 2);
    assert_eq!(plan.regions[1].operands[1], ValueRef::Region { region: 0, output: 0 });
}

#[test]
fn faults_of_plans_have_positions() {
    for (from, to, error) in [
        ("%r0#0)", "%r1#0)", "12:23: error[text-name]: the region `%r1` is not defined above"),
        (
            "%r0#0)",
            "%r0#1)",
            "12:23: error[text-name]: the region `%r0` has 1 outputs, no number 1",
        ),
        ("(%x,", "(%y,", "12:19: error[text-name]: `%y` is not defined above"),
        ("prepare", "now", "6:11: error[text-syntax]: expected `prepare` or `run`, found `now`"),
        ("tile(", "tiles(", "7:14: error[text-syntax]: there is no schedule family `tiles`"),
        ("block_m = 16", "block_m = -1", "7:19: error[text-syntax]: -1 is not a 32-bit number"),
        (
            "-> (y: f32[N,2]",
            "-> (y: f32[N]",
            "19:10: error[text-type]: `y` is f32[N,2], declared as f32[N]",
        ),
        (", %r0#0\n", "\n", "19:3: error[text-type]: 1 values are returned, 2 declared"),
        ("%c: f32[2,2]", "%x: f32[2,2]", "3:10: error[text-name]: `%x` is defined twice"),
    ] {
        let errors = parse_plan(&PLAN.replacen(from, to, 1)).unwrap_err();
        assert_eq!(errors.iter().next().unwrap().to_string(), error);
    }
    for end in (0..PLAN.len() - 2).filter(|&end| PLAN.is_char_boundary(end)) {
        assert!(parse_plan(&PLAN[..end]).is_err(), "{end}");
    }
}
