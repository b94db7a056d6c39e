//! Fusion as users see and steer it: regions with several results on the emulator, `--pin` and `--forbid`,
//! `explain --why-not`, and the page of `inspect --html`.

#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::path::Path;
use std::process::Command;

use support::{refused, succeeds};

mod support;

struct Model {
    folder: tempfile::TempDir,
}

impl Model {
    fn new(graph: &str) -> Model {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model.gir"), graph).unwrap();
        Model { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn compile(&self, bundle: &str, options: &[&str]) -> String {
        let (model, output) = (self.path("model.gir"), self.path(bundle));
        let mut arguments = vec!["compile", &model, "-o", &output, "--verify"];
        arguments.extend(options);
        succeeds(&arguments);
        output
    }

    fn refuses(&self, options: &[&str]) -> String {
        let (model, output) = (self.path("model.gir"), self.path("refused.fnx"));
        let mut arguments = vec!["compile", &model, "-o", &output];
        arguments.extend(options);
        refused(&arguments)
    }
}

/// The run regions that `inspect` lists.
fn run_regions(bundle: &str) -> usize {
    let text = succeeds(&["inspect", bundle]);
    let first = text.split("\ntarget").nth(1).unwrap();
    first.lines().filter(|line| line.trim_start().starts_with("run ")).count()
}

fn agrees(bundle: &str) {
    let text = succeeds(&["validate", bundle, "--device", "emulator", "--bisect"]);
    assert!(text.contains("valid"), "{text}");
}

/// A norm of a product, of which only the first rows are wanted, with a factor for all.
const FIRST_ROWS: &str = r"graph @first(%x: f32[8,8,32], %w: f32[32,8]) -> (f: f32[8,8,1], y: f32[2,8,8]) {
  %0 = matmul %x, %w : f32[8,8,8]
  %1 = mul %0, %0 : f32[8,8,8]
  %2 = reduce_mean %1 {axes = [2], keepdims = true} : f32[8,8,1]
  %3 = rsqrt %2 : f32[8,8,1]
  %4 = broadcast %3 {shape = [8,8,8]} : f32[8,8,8]
  %5 = mul %0, %4 : f32[8,8,8]
  %6 = slice %5 {starts = [0,0,0], sizes = [2,8,8], steps = [1,1,1]} : f32[2,8,8]
  return %3, %6
}";

#[test]
fn a_tile_does_not_write_what_a_slice_leaves_out() {
    let model = Model::new(FIRST_ROWS);
    agrees(&model.compile("first.fnx", &[]));
}

/// A product whose result is needed beside its activation, a block of neighbours that read the same value,
/// and a norm whose mean is a result too.
const SEVERAL: &str = r#"graph @several(%x: f32[64,96], %w: f32[96,80], %z: f32[64,80]) -> (h: f32[64,80], a: f32[64,80], s: f32[64,80], m: f32[64,1], n: f32[64,80]) {
  %0 = matmul %x, %w : f32[64,80] @"product"
  %1 = relu %0 : f32[64,80] @"act"
  %2 = sigmoid %z : f32[64,80] @"gate"
  %3 = reduce_mean %z {axes = [1], keepdims = true} : f32[64,1] @"mean"
  %4 = broadcast %3 {shape = [64,80]} : f32[64,80] @"center"
  %5 = sub %z, %4 : f32[64,80] @"center"
  return %0, %1, %2, %3, %5
}
"#;

#[test]
fn regions_have_several_results() {
    let model = Model::new(SEVERAL);
    let bundle = model.compile("several.fnx", &[]);
    // The product with its activation, and what is read from `z`.
    assert_eq!(run_regions(&bundle), 2, "{}", succeeds(&["inspect", &bundle]));
    agrees(&bundle);
    let text = succeeds(&["explain", &bundle, "--why-not", "product", "act"]);
    assert!(text.contains("computed together"), "{text}");
}

#[test]
fn forbidden_edges_are_stored() {
    let model = Model::new(SEVERAL);
    let bundle = model.compile("apart.fnx", &["--forbid", "product->act"]);
    assert_eq!(run_regions(&bundle), 3);
    agrees(&bundle);
    let text = succeeds(&["explain", &bundle, "--why-not", "product", "act"]);
    assert!(text.contains("--forbid product->act"), "{text}");
    let message = model.refuses(&["--forbid", "act->product"]);
    assert!(message.contains("`act`: its result is no operand of the other node"), "{message}");
    let message = model.refuses(&["--forbid", "product->nothing"]);
    assert!(message.contains("`nothing`: the model has no such node"), "{message}");
    let message = model.refuses(&["--forbid", "product"]);
    assert!(message.contains("`product` is not two nodes, as A->B"), "{message}");
}

#[test]
fn pinned_nodes_are_together_or_an_error_says_why_not() {
    let model = Model::new(SEVERAL);
    let bundle = model.compile("pinned.fnx", &["--pin", "gate+mean"]);
    let text = succeeds(&["explain", &bundle, "--why-not", "gate", "mean"]);
    assert!(text.contains("computed together"), "{text}");
    agrees(&bundle);
    let message = model.refuses(&["--pin", "product+mean"]);
    assert!(message.contains("cannot be one region"), "{message}");
    let message = model.refuses(&["--pin", "product+nothing"]);
    assert!(message.contains("`nothing`: no region of the run computes it"), "{message}");
}

/// Concatenations of concatenations, one of them a result; sizes that no wide access divides.
const DENSE: &str = r#"graph @dense(%x: f32[N,5,7,7], %w1: f32[3,5,3,3], %w2: f32[7,8,3,3], %w3: f32[2,15,1,1]) dims(N: 1..8) -> (y: f32[N,17,7,7], m: f32[N,15,3,3]) {
  %0 = conv %x, %w1 {strides = [1, 1], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1} : f32[N,3,7,7] @"a"
  %1 = concat %x, %0 {axis = 1} : f32[N,8,7,7] @"cat1"
  %2 = relu %1 : f32[N,8,7,7] @"act"
  %3 = conv %2, %w2 {strides = [1, 1], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1} : f32[N,7,7,7] @"b"
  %4 = concat %1, %3 {axis = 1} : f32[N,15,7,7] @"cat2"
  %5 = conv %4, %w3 {strides = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], groups = 1} : f32[N,2,7,7] @"c"
  %6 = concat %4, %5 {axis = 1} : f32[N,17,7,7] @"cat3"
  %7 = max_pool %4 {kernel = [3, 3], strides = [2, 2], pads_begin = [0, 0], pads_end = [0, 0], dilations = [1, 1], ceil_mode = false} : f32[N,15,3,3] @"pool"
  return %6, %7
}
"#;

#[test]
fn concatenations_are_written_in_place() {
    let model = Model::new(DENSE);
    let bundle = model.compile("dense.fnx", &[]);
    agrees(&bundle);
    let text = succeeds(&["inspect", &bundle, "--memory"]);
    assert!(!text.contains("concat"), "{text}");
    // Three convolutions, the pool, and the copy of the input.
    assert_eq!(run_regions(&bundle), 5);
    // Everything lies in the result.
    assert!(text.contains("scratch 0 bytes"), "{text}");
}

/// A convolution and the softmax over its channels, of sizes that no tile divides.
const CHANNELS: &str = r#"graph @channels(%x: f32[2,40,19,23], %w: f32[24,40,3,3]) -> (y: f32[2,24,19,23]) {
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1} : f32[2,24,19,23] @"conv"
  %1 = softmax %0 {axis = 1} : f32[2,24,19,23] @"normal"
  %2 = tanh %1 : f32[2,24,19,23] @"act"
  return %2
}
"#;

#[test]
fn results_of_convolutions_are_reduced_where_they_are() {
    let model = Model::new(CHANNELS);
    let pinned = ["--precision", "tf32", "--pin", "conv+normal"];
    let bundle = model.compile("channels.fnx", &pinned);
    let text = succeeds(&["inspect", &bundle]);
    assert!(text.contains("r0    reduced") && !text.contains("run      r1"), "{text}");
    agrees(&bundle);
    let text = succeeds(&["explain", &bundle, "--why-not", "conv", "normal"]);
    assert!(text.contains("computed together"), "{text}");
    let apart = model.compile("apart.fnx", &["--precision", "tf32", "--forbid", "conv->normal"]);
    assert_eq!(run_regions(&apart), 2, "{}", succeeds(&["inspect", &apart]));
    let text = succeeds(&["explain", &apart, "--why-not", "conv", "normal"]);
    assert!(text.contains("--forbid conv->normal"), "{text}");
}

/// A convolution and the means over its positions, of which no tile holds all.
const POSITIONS: &str = r#"graph @positions(%x: f32[N,24,21,23], %w: f32[40,24,3,3]) dims(N: 1..4) -> (y: f32[N,40]) {
  %0 = conv %x, %w {strides = [1, 1], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1} : f32[N,40,21,23] @"conv"
  %1 = gelu %0 {approximate = none} : f32[N,40,21,23] @"gelu"
  %2 = reduce_mean %1 {axes = [2, 3], keepdims = false} : f32[N,40] @"mean"
  %3 = tanh %2 : f32[N,40] @"act"
  return %3
}
"#;

#[test]
fn means_of_positions_are_put_together_from_parts() {
    let model = Model::new(POSITIONS);
    for precision in ["tf32", "fp32", "ieee"] {
        let pinned = ["--precision", precision, "--pin", "conv+mean"];
        let bundle = model.compile("positions.fnx", &pinned);
        let text = succeeds(&["inspect", &bundle]);
        assert!(text.contains("r0    reduced") && !text.contains("run      r1"), "{text}");
        agrees(&bundle);
    }
}

/// Products of windows of 49 positions and the softmax over their columns.
const WINDOWS: &str = r#"graph @windows(%x: f32[40,49,64], %y: f32[40,64,49]) -> (a: f32[40,49,49]) {
  %0 = matmul %x, %y : f32[40,49,49] @"product"
  %1 = softmax %0 {axis = 2} : f32[40,49,49] @"normal"
  return %1
}
"#;

#[test]
fn tiles_hold_the_side_that_is_reduced() {
    let model = Model::new(WINDOWS);
    let pinned = ["--precision", "tf32", "--pin", "product+normal"];
    let bundle = model.compile("windows.fnx", &pinned);
    let text = succeeds(&["inspect", &bundle]);
    assert!(text.contains("r0    reduced"), "{text}");
    agrees(&bundle);
}

#[test]
fn the_report_holds_all_of_it() {
    let model = Model::new(SEVERAL);
    let bundle = model.compile("page.fnx", &[]);
    let page = model.path("report.html");
    succeeds(&["inspect", &bundle, "--html", &page]);
    let text = std::fs::read_to_string(&page).unwrap();
    for part in ["product", "act", "\"schedule\":", ".visible .entry", "\"memory\":"] {
        assert!(text.contains(part), "the page lacks {part}");
    }
    assert!(!text.contains("http://") && !text.contains("https://"));
}

/// A browser for tests; none where there is none, unless nothing may be skipped.
fn browser() -> Option<&'static str> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = found.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        assert!(
            std::env::var_os("FORNAX_REQUIRE_ALL").is_none(),
            "no browser: install the package chromium"
        );
        println!("SKIPPED: no browser; install the package chromium");
    }
    found
}

#[test]
fn a_browser_draws_the_report_and_shows_what_is_selected() {
    let Some(browser) = browser() else { return };
    // As many regions as a large model has: activations that must be stored.
    let mut graph = "graph @long(%x: f32[4,8]) -> (y: f32[4,8]) {\n".to_owned();
    let mut options: Vec<String> = Vec::new();
    for step in 0..60 {
        let last = if step == 0 { "x".to_owned() } else { (step - 1).to_string() };
        graph += &format!("  %{step} = tanh %{last} : f32[4,8] @\"step{step}\"\n");
        if step > 0 {
            options.extend(["--forbid".to_owned(), format!("step{}->step{step}", step - 1)]);
        }
    }
    graph += "  return %59\n}\n";
    let model = Model::new(&graph);
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--target", "sm_90a"]);
    let bundle = model.compile("long.fnx", &options);
    let page = model.path("report.html");
    succeeds(&["inspect", &bundle, "--html", &page]);
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--window-size=1600,900"])
        .arg(format!("file://{page}#r7"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("data-ready=\"true\""), "the script failed:\n{text}");
    assert!(text.contains("data-regions=\"60\""));
    assert!(text.contains("r7: pointwise") && text.contains("step7"), "r7 is not shown");
}
