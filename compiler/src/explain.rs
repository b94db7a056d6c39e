//! Why nodes of a model are computed where they are, from a bundle alone.

use std::collections::BTreeMap;
use std::fmt::Write;

use fornax_bundle::Bundle;
use fornax_ir::plan::{Plan, ValueRef, join, structure};
use fornax_ir::{Graph, LocSet, text};

use crate::ledger::{FusionEntry, Ledger, RegionEntry};
use crate::{Error, ledger::OpEntry};

/// Where a node of the imported model went, and by which rules.
///
/// # Errors
/// When the bundle has no ledger, or the model no such node.
pub fn explain(bundle: &Bundle, node: &str) -> Result<String, Error> {
    let (ledger, graph) = (Ledger::of(bundle)?, imported(bundle)?);
    require_node(&graph, node)?;
    let mut out = String::new();
    let found: Vec<&RegionEntry> =
        ledger.regions.iter().filter(|region| ops_of(region, node).next().is_some()).collect();
    if found.is_empty() {
        let _ = writeln!(
            out,
            "`{node}` is computed nowhere: its value is one of its operands', a constant, or needed by \
             no output after rewriting"
        );
    }
    for region in found {
        let _ = writeln!(
            out,
            "`{node}` is in {} ({} phase, {}), schedule {}",
            region.name, region.phase, region.class, region.schedule
        );
        if let Some(predicted) = region.predicted_us {
            let _ = writeln!(out, "  predicted {predicted:.1} us on a large GPU");
        }
        for op in &region.ops {
            let mark = if op.origins.iter().any(|origin| origin == node) { '*' } else { ' ' };
            let by = op.rule.as_ref().map(|rule| format!(", by rule {rule}")).unwrap_or_default();
            let _ =
                writeln!(out, "  {mark} {:<16} {:<20} {}{by}", op.op, op.ty, op.origins.join(", "));
        }
    }
    let neighbours = neighbours(&ledger, node);
    if !neighbours.is_empty() {
        let _ = writeln!(out, "what it could be computed with:\n{}", neighbours.join("\n"));
    }
    Ok(out)
}

/// Why two nodes of the imported model are not computed together: the fact that forbids it, or what it
/// would have saved.
///
/// # Errors
/// When the bundle has no ledger or plan, or the model lacks a node.
pub fn why_not(bundle: &Bundle, a: &str, b: &str) -> Result<String, Error> {
    let (graph, plan) = (imported(bundle)?, plan(bundle)?);
    for node in [a, b] {
        require_node(&graph, node)?;
    }
    let of_a = regions_of(&plan, a);
    let of_b = regions_of(&plan, b);
    if let Some(&both) = of_a.iter().find(|region| of_b.contains(region)) {
        return Ok(format!(
            "`{a}` and `{b}` are computed together, in {}\n",
            plan.regions[both].name
        ));
    }
    if of_a.is_empty() || of_b.is_empty() {
        let gone = if of_a.is_empty() { a } else { b };
        return Ok(format!("`{gone}` is computed nowhere: rewriting left nothing of it\n"));
    }
    let mut out = String::new();
    for &from in &of_a {
        for &to in &of_b {
            let (first, second) = (from.min(to), from.max(to));
            let _ = writeln!(out, "{}", verdict(&plan, first, second));
        }
    }
    for fusion in fusions_of(&Ledger::of(bundle)?, a, b) {
        let _ = writeln!(out, "{fusion}");
    }
    Ok(out)
}

/// What the ledger says about compositions of regions that compute two nodes.
fn fusions_of(ledger: &Ledger, a: &str, b: &str) -> Vec<String> {
    let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
    let is_about = |fusion: &&FusionEntry| {
        has(&fusion.first, a) && has(&fusion.second, b)
            || has(&fusion.first, b) && has(&fusion.second, a)
    };
    let text = |fusion: &FusionEntry| {
        let outcome = outcome(fusion);
        format!("by the rule {}: {outcome}", fusion.rule)
    };
    ledger.fusions.iter().filter(is_about).map(text).collect()
}

/// What became of a composition.
fn outcome(fusion: &FusionEntry) -> String {
    match (&fusion.rejection, fusion.together_and_apart_us) {
        (Some(reason), _) => format!("cannot join: {reason}"),
        (None, Some([together, apart])) => {
            let verdict = if fusion.chosen { "joined" } else { "could join but stay apart" };
            format!("{verdict} (predicted {together:.1} us together, {apart:.1} us apart)")
        }
        (None, None) => "looked at".to_owned(),
    }
}

/// The compositions of a node's first region with others, a line each.
fn neighbours(ledger: &Ledger, node: &str) -> Vec<String> {
    let has = |names: &[String]| names.iter().any(|other| other == node);
    let line = |fusion: &FusionEntry| {
        let other = match (has(&fusion.first), has(&fusion.second)) {
            (true, false) => &fusion.second,
            (false, true) => &fusion.first,
            _ => return None,
        };
        let shown = other.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let more = if other.len() > 4 { ", ..." } else { "" };
        Some(format!("  with [{shown}{more}] by {}: {}", fusion.rule, outcome(fusion)))
    };
    ledger.fusions.iter().filter_map(line).collect()
}

/// What differs between the decisions in two bundles: rules, and regions by the nodes they compute.
///
/// # Errors
/// When a bundle has no ledger.
pub fn diff(left: &Bundle, right: &Bundle) -> Result<String, Error> {
    let (left, right) = (Ledger::of(left)?, Ledger::of(right)?);
    let mut out = String::new();
    let rules = |ledger: &Ledger| -> BTreeMap<String, usize> {
        ledger.rules.iter().map(|rule| (rule.rule.clone(), rule.kept)).collect()
    };
    let (of_left, of_right) = (rules(&left), rules(&right));
    let names: std::collections::BTreeSet<&String> =
        of_left.keys().chain(of_right.keys()).collect();
    for name in names {
        let kept = |rules: &BTreeMap<String, usize>| rules.get(name).copied().unwrap_or(0);
        let (a, b) = (kept(&of_left), kept(&of_right));
        if a != b {
            let _ = writeln!(out, "rule {name}: {a} nodes, then {b}");
        }
    }
    let regions = |ledger: &Ledger| -> BTreeMap<String, RegionEntry> {
        ledger.regions.iter().map(|region| (contents(region), region.clone())).collect()
    };
    let (of_left, of_right) = (regions(&left), regions(&right));
    for (what, region) in of_left.iter().filter(|(what, _)| !of_right.contains_key(*what)) {
        let _ = writeln!(out, "- {} {} [{what}]", region.name, region.class);
    }
    for (what, region) in &of_right {
        match of_left.get(what) {
            None => {
                let _ = writeln!(out, "+ {} {} [{what}]", region.name, region.class);
            }
            Some(old) if old.schedule != region.schedule => {
                let _ = writeln!(
                    out,
                    "~ {} [{what}]: {} then {}",
                    region.name, old.schedule, region.schedule
                );
            }
            Some(_) => {}
        }
    }
    if out.is_empty() {
        out.push_str("the same decisions\n");
    }
    Ok(out)
}

/// What a region computes, independent of its name.
fn contents(region: &RegionEntry) -> String {
    let ops = region.ops.iter().map(|op| format!("{} {} {}", op.op, op.ty, op.origins.join("+")));
    ops.collect::<Vec<_>>().join("; ")
}

fn ops_of<'r>(region: &'r RegionEntry, node: &'r str) -> impl Iterator<Item = &'r OpEntry> {
    region.ops.iter().filter(move |op| op.origins.iter().any(|origin| origin == node))
}

pub(crate) fn imported(bundle: &Bundle) -> Result<Graph, Error> {
    text::parse_graph(&bundle.parts().graph)
        .map_err(|errors| Error::Ledger(format!("graph.gir: {errors}")))
}

pub(crate) fn plan(bundle: &Bundle) -> Result<Plan, Error> {
    let text = bundle
        .parts()
        .plan
        .as_deref()
        .ok_or_else(|| Error::Ledger("the bundle has no plan".to_owned()))?;
    text::parse_plan(text).map_err(|errors| Error::Ledger(format!("plan.txt: {errors}")))
}

/// Requires that the imported model has a node, or says which names are like it.
fn require_node(graph: &Graph, node: &str) -> Result<(), Error> {
    let mut names: Vec<String> = Vec::new();
    for id in graph.nodes() {
        names.extend(graph.sources.names(&graph.node(id).loc).iter().map(ToString::to_string));
    }
    if names.iter().any(|name| name == node) {
        return Ok(());
    }
    names.sort();
    names.dedup();
    let last = node.rsplit(['/', '.']).next().unwrap_or(node).to_lowercase();
    let mut similar: Vec<&String> =
        names.iter().filter(|name| name.to_lowercase().contains(&last)).take(8).collect();
    if similar.is_empty() {
        similar = names.iter().take(8).collect();
    }
    let similar: Vec<String> = similar.into_iter().map(|name| format!("`{name}`")).collect();
    let reason = format!("the model has no node `{node}`; there are {}", similar.join(", "));
    Err(Error::Option { option: "NODE".to_owned(), reason })
}

fn names(plan: &Plan, loc: &LocSet, node: &str) -> bool {
    plan.sources.names(loc).iter().any(|name| &**name == node)
}

/// The numbers of the regions that compute a node.
fn regions_of(plan: &Plan, node: &str) -> Vec<usize> {
    let computes = |region: &fornax_ir::plan::Region| {
        region.body.nodes().any(|id| names(plan, &region.body.node(id).loc, node))
    };
    (0..plan.regions.len()).filter(|&number| computes(&plan.regions[number])).collect()
}

/// Whether a later region needs an earlier one, directly or by way of others.
fn needs(plan: &Plan, region: usize, from: usize) -> bool {
    let mut reached = vec![false; plan.regions.len()];
    reached[from] = true;
    for number in from + 1..=region {
        reached[number] = (from..number).any(|other| reached[other] && plan.reads(number, other));
    }
    reached[region]
}

fn verdict(plan: &Plan, first: usize, second: usize) -> String {
    let name = |region: usize| &plan.regions[region].name;
    let (a, b) = (name(first), name(second));
    if plan.regions[first].phase != plan.regions[second].phase {
        return format!("{a} is computed once, after loading, and {b} at each run");
    }
    if !plan.reads(second, first) {
        return match needs(plan, second, first) {
            true => {
                format!("{a} and {b} do not touch: regions between them lead from one to the other")
            }
            false => format!("{a} and {b} do not touch: neither reads what the other computes"),
        };
    }
    let between =
        (first + 1..second).find(|&other| needs(plan, other, first) && needs(plan, second, other));
    if let Some(between) = between {
        let between = name(between);
        return format!("{a} and {b} together would need {between}, which needs {a}: a cycle");
    }
    let body = match joined(plan, first, second) {
        Ok(body) => body,
        Err(error) => return format!("{a} and {b} cannot be joined: {error}"),
    };
    match structure(&body, &plan.dims) {
        Err(rejection) => {
            let at = rejection.node.filter(|&id| body.contains(id)).map(|id| {
                let node = body.node(id);
                format!(" (at `{}` {})", node.op, plan.sources.names(&node.loc).join(", "))
            });
            format!(
                "{a} and {b} cannot be one region: {}{}",
                rejection.reason,
                at.unwrap_or_default()
            )
        }
        Ok(structure) => format!(
            "{a} and {b} could be one region ({}), but the grouping stores what passes between them: it \
             is an output, is read by several regions, or is costly to compute where it is read",
            structure.class()
        ),
    }
}

/// The bodies of two regions as one, with the results that others need.
fn joined(plan: &Plan, first: usize, second: usize) -> Result<Graph, fornax_ir::Diagnostic> {
    let results = |region: usize| {
        (0..plan.regions[region].body.outputs().len()).map(move |output| (region, output))
    };
    let is_used_elsewhere = |&(region, output): &(usize, usize)| {
        let value = ValueRef::Region { region, output };
        let others = plan.regions.iter().enumerate();
        let mut readers = others.filter(|(number, other)| {
            *number != first && *number != second && other.operands.contains(&value)
        });
        readers.next().is_some() || plan.outputs.iter().any(|output| output.value == value)
    };
    let exposed: Vec<(usize, usize)> =
        results(first).filter(is_used_elsewhere).chain(results(second)).collect();
    join(plan, &[first, second], &exposed).map(|joined| joined.body)
}
