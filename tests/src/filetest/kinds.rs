//! The kinds of filetests.

#[cfg(feature = "passes")]
use fornax_ir::PrecisionPolicy;
use fornax_ir::text::{
    parse_application, parse_graph, parse_graph_with_positions, parse_plan, print_graph, print_plan,
};
use fornax_ir::verify;

use super::annotations::annotate;
#[cfg(feature = "llvm")]
use super::kernels;
use super::{Case, run};

/// What a filetest does.
#[derive(Debug)]
pub struct Kind {
    /// The name behind `; test:`.
    pub name: &'static str,
    /// Which files it takes.
    pub extensions: &'static [&'static str],
    /// Does it: the file as it should be, or what went wrong.
    pub run: fn(&Case) -> Result<String, String>,
}

#[cfg(not(feature = "llvm"))]
const TEXTS: &[&str] = &["gir", "plan"];
#[cfg(feature = "llvm")]
const TEXTS: &[&str] = &["gir", "plan", "kir"];

/// All kinds that this build can run.
pub const KINDS: &[Kind] = &[
    // Reads and prints.
    Kind { name: "cat", extensions: TEXTS, run: cat },
    // Reads and verifies; faults are annotations on their lines.
    Kind { name: "verify", extensions: TEXTS, run: verify },
    // An op on operand types per line; the result's type or the fault stands behind it.
    Kind { name: "infer", extensions: &["ops"], run: infer },
    // Evaluates a graph with every evaluator there is.
    Kind { name: "run", extensions: &["gir"], run: run::run },
    #[cfg(feature = "passes")]
    Kind { name: "canonicalize", extensions: &["gir"], run: canonicalize },
    // The cheapest graph that equals the canonical one, and the rules that led to it.
    #[cfg(feature = "passes")]
    Kind { name: "optimize", extensions: &["gir"], run: optimize },
    #[cfg(feature = "passes")]
    Kind { name: "fuse", extensions: &["gir"], run: fuse },
    // Lowers a plan's regions, or those of a graph's fused plan, to kernel IR.
    #[cfg(feature = "llvm")]
    Kind { name: "kernel", extensions: &["gir", "plan"], run: kernels::kernel },
    // Compiles to PTX; `; check:` lines stand in the text in this order, `; not:` lines nowhere.
    #[cfg(feature = "llvm")]
    Kind { name: "ptx", extensions: &["gir", "plan"], run: kernels::ptx },
];

fn cat(case: &Case) -> Result<String, String> {
    let output = match &*case.extension {
        "plan" => print_plan(&parse_plan(&case.input).map_err(|error| error.to_string())?),
        #[cfg(feature = "llvm")]
        "kir" => kernels::read(&case.input)?.to_string(),
        _ => print_graph(&parse_graph(&case.input).map_err(|error| error.to_string())?),
    };
    Ok(case.with_output(&output))
}

fn verify(case: &Case) -> Result<String, String> {
    let diagnostics = match &*case.extension {
        "plan" => plan_faults(&case.input),
        #[cfg(feature = "llvm")]
        "kir" => kernels::faults(&case.input),
        _ => graph_faults(&case.input),
    };
    let input = annotate(&case.input, &diagnostics);
    Ok(Case { input, ..case.clone() }.unchanged_without_expectation())
}

/// Faults of a graph's text with their lines; those of the whole graph are on its first line.
fn graph_faults(text: &str) -> Vec<(usize, String)> {
    match parse_graph_with_positions(text) {
        Err(errors) => located(&errors),
        Ok((graph, positions)) => verify::faults(&graph)
            .into_iter()
            .map(|fault| {
                let line = fault.node.map_or(1, |node| positions[&node].line);
                (line, fault.diagnostic.to_string())
            })
            .collect(),
    }
}

/// Faults of a plan's text: those of a region are on its first line.
fn plan_faults(text: &str) -> Vec<(usize, String)> {
    let plan = match parse_plan(text) {
        Ok(plan) => plan,
        Err(errors) => return located(&errors),
    };
    let lines: Vec<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("= region("))
        .map(|(line, _)| line + 1)
        .collect();
    verify::plan_faults(&plan)
        .into_iter()
        .map(|fault| (fault.region.map_or(1, |region| lines[region]), fault.diagnostic.to_string()))
        .collect()
}

fn located(errors: &fornax_ir::text::TextErrors) -> Vec<(usize, String)> {
    errors.iter().map(|error| (error.position.line, error.diagnostic.to_string())).collect()
}

fn infer(case: &Case) -> Result<String, String> {
    let mut input = String::new();
    for line in case.input.lines() {
        let code = line.split_once(" ; ").map_or(line, |(code, _)| code).trim_end();
        if code.is_empty() || code.starts_with(';') {
            input.push_str(line);
        } else {
            let application = parse_application(code).map_err(|e| format!("{code}: {e}"))?;
            let result = match application.infer() {
                Ok(ty) => ty.to_string(),
                Err(diagnostic) => diagnostic.to_string(),
            };
            input.push_str(&format!("{code} ; {result}"));
        }
        input.push('\n');
    }
    Ok(Case { input, ..case.clone() }.unchanged_without_expectation())
}

/// The input graph, which must be sound.
#[cfg(feature = "passes")]
fn sound_graph(case: &Case) -> Result<fornax_ir::Graph, String> {
    let graph = parse_graph(&case.input).map_err(|error| error.to_string())?;
    sound("the input", &verify::verify(&graph))?;
    Ok(graph)
}

#[cfg(feature = "passes")]
fn sound(what: &str, faults: &[fornax_ir::Diagnostic]) -> Result<(), String> {
    if faults.is_empty() {
        return Ok(());
    }
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(format!("{what} is not sound:\n{}", faults.join("\n")))
}

#[cfg(feature = "passes")]
fn canonicalize(case: &Case) -> Result<String, String> {
    Ok(match fornax_passes::canonicalize(sound_graph(case)?) {
        Ok(graph) => {
            sound("the output", &verify::verify(&graph))?;
            case.with_output(&print_graph(&graph))
        }
        Err(error) => case.with_output(&error.to_string()),
    })
}

#[cfg(feature = "passes")]
fn optimize(case: &Case) -> Result<String, String> {
    use fornax_passes::egraph::{Rewrites, Stop};

    let graph =
        fornax_passes::canonicalize(sound_graph(case)?).map_err(|error| error.to_string())?;
    let optimized = fornax_passes::egraph::optimize(&graph, Rewrites::Real)
        .map_err(|error| error.to_string())?;
    sound("the output", &verify::verify(&optimized.graph))?;
    if optimized.saturation.phases.iter().any(|(_, _, stop)| *stop == Stop::Nodes) {
        return Err("the e-graph reached its node limit".to_owned());
    }
    let rules: std::collections::BTreeSet<&str> =
        optimized.applied.values().map(|applied| applied.rule).collect();
    let rules: Vec<&str> = rules.into_iter().collect();
    Ok(case.with_output(&format!("{}rules: {}\n", optimized.graph, rules.join(", "))))
}

#[cfg(feature = "passes")]
fn fuse(case: &Case) -> Result<String, String> {
    Ok(case.with_output(&print_plan(&fused_plan(case)?)))
}

/// The input plan, or the fused plan of the input graph; the input must be sound.
#[cfg(feature = "llvm")]
pub(super) fn plan(case: &Case) -> Result<fornax_ir::plan::Plan, String> {
    if case.extension != "plan" {
        return fused_plan(case);
    }
    let plan = parse_plan(&case.input).map_err(|error| error.to_string())?;
    sound("the plan", &verify::verify_plan(&plan))?;
    Ok(plan)
}

/// The fused plan of the input graph, which must be sound.
#[cfg(feature = "passes")]
fn fused_plan(case: &Case) -> Result<fornax_ir::plan::Plan, String> {
    let graph =
        fornax_passes::canonicalize(sound_graph(case)?).map_err(|error| error.to_string())?;
    let plan = fornax_passes::fuse(&graph, PrecisionPolicy::default())
        .map_err(|error| error.to_string())?;
    sound("the plan", &verify::verify_plan(&plan))?;
    Ok(plan)
}
