//! Replacing composites by what they stand for.

use super::{Expansion, OpClass, OpCtx};
use crate::{Diagnostic, Graph, NodeId};

/// Replaces each composite of a graph by its expansion until none is left, and removes what no output
/// depends on any more.
///
/// # Errors
/// When an expansion breaks a constraint of an op it is made of (our bug); the diagnostic names the node.
pub fn expand_composites(graph: &mut Graph) -> Result<(), Diagnostic> {
    loop {
        let composites: Vec<NodeId> = graph
            .in_order()
            .into_iter()
            .filter(|&id| matches!(graph.node(id).op.class(), OpClass::Composite(_)))
            .collect();
        if composites.is_empty() {
            return Ok(());
        }
        for id in composites {
            expand(graph, id)?;
        }
        graph.remove_dead();
    }
}

fn expand(graph: &mut Graph, id: NodeId) -> Result<(), Diagnostic> {
    let OpClass::Composite(expand) = *graph.node(id).op.class() else {
        unreachable!("invariant: only composites are expanded");
    };
    let (attrs, loc) = (graph.node(id).attrs.clone(), graph.node(id).loc.clone());
    let (operands, types) = (graph.operands(id), graph.operand_types(id));
    let ctx = OpCtx { attrs: &attrs, operands: &types };
    let result = expand(&ctx, &mut Expansion { graph, operands: &operands, loc: &loc })?;
    graph.replace(id, result);
    Ok(())
}
