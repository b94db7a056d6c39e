//! Canonicalisation: composites expanded, constants folded, duplicates merged, cells written out step by step
//! rolled up, large constants moved to the weights.
//!
//! Afterwards a graph has only source, pointwise, reduce, scan, contraction, window, movement and recurrent ops;
//! its constants have one element or are the same everywhere.

use std::collections::BTreeMap;

use fornax_ir::interp::{self, Value};
use fornax_ir::op::{OpClass, OpRef, SourceKind, expand_composites};
use fornax_ir::{Attrs, Diagnostic, Dims, Graph, NodeId, Tensor};

use crate::PassError;
use crate::roll::roll;

/// Constants up to this many elements are folded further; larger ones are computed on the device.
const MAX_FOLDED_ELEMENTS: usize = 64;

/// Rewrites a graph to primitive ops.
///
/// # Errors
/// When the graph holds an op that cannot be lowered; the diagnostic names its node.
pub fn canonicalize(graph: Graph) -> Result<Graph, PassError> {
    let mut graph = graph;
    expand_composites(&mut graph)?;
    let mut graph = rebuild(&graph)?;
    if roll(&mut graph)? {
        graph = rebuild(&graph)?;
    }
    outline_constants(&mut graph)?;
    graph.remove_dead();
    Ok(graph)
}

/// What makes two nodes the same value.
type Key = (OpRef, Attrs, Vec<NodeId>);

/// Copies a graph node by node, leaving out identities, folding constants and sharing equal nodes.
fn rebuild(old: &Graph) -> Result<Graph, PassError> {
    let mut new = Graph::new(old.name.clone());
    new.dims = old.dims.clone();
    new.sources = old.sources.clone();
    for (name, data) in old.weights() {
        new.bind_weight(name.clone(), data.clone());
    }
    let mut values: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut seen: BTreeMap<Key, NodeId> = BTreeMap::new();
    for &id in old.inputs() {
        values.insert(id, copy(old, id, &[], &mut new)?);
    }
    for id in old.in_order() {
        if values.contains_key(&id) {
            continue;
        }
        let operands: Vec<NodeId> =
            old.operands(id).iter().map(|operand| values[operand]).collect();
        let node = old.node(id);
        check_lowerable(old, id)?;
        if let Some(same) = identity(old, id, &operands) {
            new.node_mut(same).loc.union(&node.loc);
            values.insert(id, same);
            continue;
        }
        let key = (node.op, node.attrs.clone(), operands.clone());
        let value = match seen.get(&key) {
            Some(&same) => {
                new.node_mut(same).loc.union(&node.loc);
                same
            }
            None => match fold(old, id, &operands, &new)? {
                Some(constant) => {
                    let value = new.constant(constant);
                    new.node_mut(value).loc.union(&node.loc);
                    value
                }
                None => copy(old, id, &operands, &mut new)?,
            },
        };
        seen.insert(key, value);
        values.insert(id, value);
    }
    for output in old.outputs() {
        new.output(output.name.clone(), values[&output.value]);
    }
    new.remove_dead();
    Ok(new)
}

fn copy(
    old: &Graph,
    id: NodeId,
    operands: &[NodeId],
    new: &mut Graph,
) -> Result<NodeId, PassError> {
    let node = old.node(id);
    Ok(new.add(node.op.name(), node.attrs.clone(), operands, node.loc.clone())?)
}

fn check_lowerable(graph: &Graph, id: NodeId) -> Result<(), PassError> {
    let node = graph.node(id);
    let OpClass::Opaque(reason) = node.op.class() else { return Ok(()) };
    let message = format!("`{}` cannot be compiled: {reason}", node.op);
    Err(Diagnostic::new(format!("{}.class", node.op), message).at(node.loc.clone()).into())
}

/// The operand that a movement or conversion gives back unchanged.
fn identity(graph: &Graph, id: NodeId, operands: &[NodeId]) -> Option<NodeId> {
    let node = graph.node(id);
    let types = graph.operand_types(id);
    let [from] = types.as_slice() else { return None };
    if *from != node.ty {
        return None;
    }
    let ctx = fornax_ir::op::OpCtx { attrs: &node.attrs, operands: &types };
    let same = match node.op.class() {
        OpClass::Movement(form) => {
            let form = form(&ctx);
            form.fill.is_none()
                && form.cases.len() == 1
                && form.cases[0].guards.is_empty()
                && is_identity_map(&form.cases[0].index, &node.ty)
        }
        OpClass::Pointwise(body) => match body(&ctx) {
            fornax_ir::ScalarExpr::Arg(0) => true,
            fornax_ir::ScalarExpr::Cast(to, inner) => {
                to == from.dtype && *inner == fornax_ir::ScalarExpr::Arg(0)
            }
            _ => false,
        },
        _ => false,
    };
    same.then(|| operands[0])
}

fn is_identity_map(index: &[fornax_ir::IndexExpr], ty: &fornax_ir::Type) -> bool {
    index.iter().enumerate().all(|(axis, expr)| {
        *expr == fornax_ir::IndexExpr::Axis(axis)
            || (ty.shape[axis].is(1) && *expr == fornax_ir::IndexExpr::size(0i64))
    })
}

/// The value of a node whose operands are all constants, when it is small.
fn fold(
    old: &Graph,
    id: NodeId,
    operands: &[NodeId],
    new: &Graph,
) -> Result<Option<Tensor>, PassError> {
    let node = old.node(id);
    let constants: Option<Vec<&Tensor>> = operands
        .iter()
        .map(|&operand| match new.node(operand).op.class() {
            OpClass::Source(SourceKind::Constant) => Some(new.node(operand).attrs.tensor("value")),
            _ => None,
        })
        .collect();
    let small = node
        .ty
        .shape
        .as_const()
        .is_some_and(|shape| shape.iter().product::<usize>() <= MAX_FOLDED_ELEMENTS);
    // 8-bit floats are stored and converted, not computed with.
    let is_number = !node.ty.dtype.is_float() || node.ty.dtype.size() > 1;
    let (Some(constants), true, false) = (constants, small && is_number, operands.is_empty())
    else {
        return Ok(None);
    };
    let values: Vec<Value<f64>> = constants.into_iter().map(Value::from_tensor).collect();
    let value = interp::evaluate_op(
        node.op,
        &node.attrs,
        &old.operand_types(id),
        &values.iter().collect::<Vec<_>>(),
        &Dims::new(),
    )?;
    Ok(Some(value.to_tensor(node.ty.dtype)))
}

/// Makes each weight whose elements are all the same a constant, where the graph has its data: for weights that
/// keep their values.
pub fn settle_weights(graph: &mut Graph) {
    let settled: Vec<(NodeId, Tensor)> = graph
        .in_order()
        .into_iter()
        .filter(|&id| matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Weight)))
        .filter_map(|id| Some((id, graph.weights().get(graph.input_name(id))?)))
        .filter(|(_, data)| !data.is_empty() && is_splat(data))
        .map(|(id, data)| (id, data.clone()))
        .collect();
    for (id, data) in settled {
        let loc = graph.node(id).loc.clone();
        let constant = graph.constant(data);
        graph.node_mut(constant).loc.union(&loc);
        graph.replace(id, constant);
    }
}

/// Makes each constant that is not one number a weight, so that code generation sees only numbers.
fn outline_constants(graph: &mut Graph) -> Result<(), PassError> {
    let constants: Vec<NodeId> = graph
        .in_order()
        .into_iter()
        .filter(|&id| {
            let node = graph.node(id);
            matches!(node.op.class(), OpClass::Source(SourceKind::Constant))
                && !is_splat(node.attrs.tensor("value"))
        })
        .collect();
    for (number, id) in constants.into_iter().enumerate() {
        let value = graph.node(id).attrs.tensor("value").clone();
        let (ty, loc) = (graph.ty(id).clone(), graph.node(id).loc.clone());
        let weight = graph.weight(&format!("{CONSTANT_PREFIX}{number}"), ty, Some(value))?;
        graph.node_mut(weight).loc.union(&loc);
        graph.replace(id, weight);
    }
    Ok(())
}

/// What the names of outlined constants begin with; no imported weight's name does, see the importers.
pub(crate) const CONSTANT_PREFIX: &str = "fornax.constant.";

/// Whether all elements are the same bytes (an empty tensor counts).
fn is_splat(tensor: &Tensor) -> bool {
    let mut elements = tensor.bytes().chunks(tensor.dtype().size());
    let first = elements.next();
    elements.all(|element| Some(element) == first)
}
