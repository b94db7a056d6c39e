//! What the importer does not support, found before anything is imported, and reported at once.

use std::collections::BTreeMap;

use fornax_ir::{Diagnostic, SourceMap};

use super::import::source_node;
use super::proto::{GraphProto, ModelProto, NodeProto};
use super::table;
use crate::build::Missing;

/// Oldest and newest version of the standard operator set whose operators the table knows.
const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// All that the model needs and the importer does not have: unsupported operators with their counts and
/// first nodes in one diagnostic, and one for each other feature.
pub(super) fn unsupported<'m>(
    model: &'m ModelProto,
    graph: &'m GraphProto,
    opsets: &BTreeMap<&str, i64>,
    sources: &mut SourceMap,
) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    if !model.training_info.is_empty() {
        faults.push(Diagnostic::new("onnx-training", "the model holds a training graph"));
    }
    match opsets.get("") {
        Some(version) if OPSETS.contains(version) => {}
        Some(version) => {
            let message = format!(
                "the model uses operator set {version}; {} to {} are supported",
                OPSETS.start(),
                OPSETS.end()
            );
            let advice = "convert the model, for example with onnx.version_converter";
            faults.push(Diagnostic::new("onnx-opset", message).note(advice));
        }
        None => {
            let message = "the model names no version of the standard operator set";
            faults.push(Diagnostic::new("onnx-opset", message));
        }
    }
    let sparse = graph.sparse_initializer.len();
    if sparse > 0 {
        let message = format!("{sparse} initializers are sparse, which is not supported");
        faults.push(Diagnostic::new("onnx-sparse", message));
    }
    if faults.is_empty() {
        faults.extend(operators(graph, opsets, sources));
    }
    faults
}

/// The unsupported operators of a graph, with their counts and first nodes.
pub(super) fn operators(
    graph: &GraphProto,
    opsets: &BTreeMap<&str, i64>,
    sources: &mut SourceMap,
) -> Option<Diagnostic> {
    let mut missing = Missing::default();
    for (index, node) in graph.node.iter().enumerate() {
        if let Some(kind) = missing_kind(node, opsets) {
            let opset = opsets.get(table::domain(&node.domain)).copied();
            missing.add(kind, || source_node(node, index, opset));
        }
    }
    missing.fault("onnx-unsupported-op", sources)
}

/// The operator that is missing from the table, with what distinguishes it.
fn missing_kind(node: &NodeProto, opsets: &BTreeMap<&str, i64>) -> Option<String> {
    let domain = table::domain(&node.domain);
    let name =
        if domain.is_empty() { node.op_type.clone() } else { format!("{domain}.{}", node.op_type) };
    match (table::find(&node.domain, &node.op_type), opsets.get(domain)) {
        (None, _) => Some(name),
        (Some(_), None) => Some(format!("{name} (the model names no version of its operator set)")),
        (Some(row), Some(&version)) if version < row.since => {
            Some(format!("{name} (as of opset {version}; from {} on it is)", row.since))
        }
        _ => None,
    }
}
