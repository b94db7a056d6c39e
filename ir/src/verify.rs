//! The verifier: everything that must hold of a graph or plan, checked again from nothing.
//!
//! Graphs keep their invariants by construction, as far as only sound operations are used; the
//! verifier finds what a pass, an importer or a text got wrong, and reports all of it.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fornax_bundle::{Dim, DimRange, Symbol};

pub use plan::{PlanFault, plan_faults, verify_plan};

use crate::op::{OpClass, SourceKind};
use crate::text::value_names;
use crate::{AttrValue, Diagnostic, Graph, NodeId, Type, infer};

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The node where it does not; none when it is about the whole graph.
    pub node: Option<NodeId>,
    /// What is wrong: an op's own constraint, or one of `verify-cycle`, `verify-dims`, `verify-loc`,
    /// `verify-name`, `verify-operands`, `verify-output`, `verify-size`, `verify-type`,
    /// `verify-weight`, and for plans `verify-plan`.
    pub diagnostic: Diagnostic,
}

/// All faults of a graph; none when it is sound.
pub fn verify(graph: &Graph) -> Vec<Diagnostic> {
    faults(graph).into_iter().map(|fault| fault.diagnostic).collect()
}

/// All faults of a graph, with the nodes.
pub fn faults(graph: &Graph) -> Vec<Fault> {
    let mut check = Check { graph, names: value_names(graph), faults: Vec::new() };
    check.faults.extend(ranges(&graph.dims).into_iter().map(whole));
    check.order();
    check.sources();
    for id in graph.nodes() {
        check.node(id);
    }
    check.symbols();
    check.outputs();
    check.faults
}

/// A fault that is about no single node.
fn whole(diagnostic: Diagnostic) -> Fault {
    Fault { node: None, diagnostic }
}

/// Faults of the declared symbols.
fn ranges(dims: &BTreeMap<Symbol, DimRange>) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    for (name, range) in dims {
        if name.parse() != Ok(Dim::symbol(name.clone())) {
            let message = format!("`{name}` cannot be the name of a dimension");
            faults.push(
                Diagnostic::new("verify-dims", message)
                    .note("names start with a letter and go on with letters, digits and `_.:$?`"),
            );
        }
        let &DimRange { min, max, divisor } = range;
        let largest = if divisor >= 1 { max.checked_sub(max.rem_euclid(divisor)) } else { None };
        if min < 0 || largest.is_none_or(|largest| largest < min) {
            let message = format!("`{name}` has no value: {min}..{max}, multiples of {divisor}");
            faults.push(Diagnostic::new("verify-dims", message));
        }
    }
    faults
}

/// Faults of a type by itself: a negative size, or more bytes than can be addressed.
fn size_fault(ty: &Type, dims: &BTreeMap<Symbol, DimRange>) -> Option<Diagnostic> {
    if let Some(dim) = ty.shape.iter().find(|dim| dim.bounds(dims).1 < 0) {
        let message = format!("the size {dim} of {ty} is negative");
        return Some(Diagnostic::new("verify-size", message));
    }
    let sizes = ty.shape.as_const()?;
    let bytes = sizes.iter().try_fold(ty.dtype.size(), |bytes, &size| bytes.checked_mul(size));
    let fits = bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok());
    (!fits && !sizes.contains(&0))
        .then(|| Diagnostic::new("verify-size", format!("{ty} takes more than 2^63 bytes")))
}

struct Check<'g> {
    graph: &'g Graph,
    names: BTreeMap<NodeId, String>,
    faults: Vec<Fault>,
}

impl Check<'_> {
    /// `%3 = matmul`, for messages.
    fn describe(&self, id: NodeId) -> String {
        let op = self.graph.node(id).op;
        match self.names.get(&id) {
            Some(name) => format!("`{name} = {op}`"),
            None => format!("the {op} with number {}", id.index()),
        }
    }

    fn fault(&mut self, id: NodeId, code: &str, message: impl Into<String>) {
        let diagnostic = Diagnostic::new(code, message);
        self.push(id, diagnostic);
    }

    fn push(&mut self, id: NodeId, diagnostic: Diagnostic) {
        let node = self.graph.node(id);
        let known: Vec<_> =
            node.loc.iter().filter(|&loc| self.graph.sources.contains(loc)).collect();
        let diagnostic = diagnostic
            .at(known.into_iter().collect::<crate::LocSet>())
            .note(format!("at {}", self.describe(id)));
        self.faults.push(Fault { node: Some(id), diagnostic });
    }

    fn order(&mut self) {
        let ordered: BTreeSet<NodeId> = self.graph.in_order().into_iter().collect();
        for id in self.graph.nodes().filter(|id| !ordered.contains(id)).collect::<Vec<_>>() {
            self.fault(id, "verify-cycle", "the value depends on itself or on one that does");
        }
    }

    /// Inputs and weights: listed, named once, typed like their data.
    fn sources(&mut self) {
        let mut names = BTreeSet::new();
        let mut listed = BTreeSet::new();
        for &id in self.graph.inputs() {
            if !self.graph.contains(id) || !listed.insert(id) {
                let message = format!("the list of inputs has a missing or repeated node {id:?}");
                self.faults.push(whole(Diagnostic::new("verify-name", message)));
            }
        }
        for id in self.graph.nodes() {
            let node = self.graph.node(id);
            let OpClass::Source(kind @ (SourceKind::Input | SourceKind::Weight)) = node.op.class()
            else {
                if listed.contains(&id) {
                    self.fault(id, "verify-name", "the list of inputs has another op");
                }
                continue;
            };
            let Some(AttrValue::Text(name)) = node.attrs.get("name") else { continue };
            if !names.insert(name.clone()) {
                let message = format!("two inputs or weights are named `{name}`");
                self.fault(id, "verify-name", message);
            }
            match kind {
                SourceKind::Input if !listed.contains(&id) => {
                    self.fault(id, "verify-name", "the list of inputs lacks this one");
                }
                SourceKind::Weight => self.weight(id, name),
                _ => {}
            }
        }
    }

    fn weight(&mut self, id: NodeId, name: &str) {
        let ty = self.graph.ty(id);
        if let Some(data) = self.graph.weights().get(name) {
            let actual = Type::new(data.dtype(), data.shape());
            if actual != *ty {
                let message = format!("the data of the weight `{name}` is {actual}, not {ty}");
                self.fault(id, "verify-weight", message);
            }
        }
    }

    fn node(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let positions = self.graph.operand_positions(id);
        if positions.iter().copied().ne(0..positions.len() as u32) {
            let message = format!("the operands have the positions {positions:?}");
            self.fault(id, "verify-operands", message);
        }
        match infer(node.op, &node.attrs, &self.graph.operand_types(id)) {
            Ok(ty) if ty != node.ty => {
                let message = format!("`{}` gives {ty}, not {}", node.op, node.ty);
                self.fault(id, "verify-type", message);
            }
            Ok(_) => {}
            Err(diagnostic) => self.push(id, diagnostic),
        }
        if let Some(diagnostic) = size_fault(&node.ty, &self.graph.dims) {
            self.push(id, diagnostic);
        }
        if node.loc.iter().any(|loc| !self.graph.sources.contains(loc)) {
            self.fault(id, "verify-loc", "a location is not in the graph's source map");
        }
    }

    /// Symbols are declared; each one is reported where it is first used.
    fn symbols(&mut self) {
        let mut known: BTreeSet<Symbol> = self.graph.dims.keys().cloned().collect();
        for id in self.graph.nodes() {
            let node = self.graph.node(id);
            let in_attrs = node.attrs.iter().filter_map(|(_, value)| match value {
                AttrValue::Dims(dims) => Some(dims.iter()),
                _ => None,
            });
            let dims = node.ty.shape.iter().chain(in_attrs.flatten());
            let symbols: Vec<Symbol> = dims.flat_map(Dim::symbols).collect();
            for symbol in symbols {
                if known.insert(symbol.clone()) {
                    let message = format!("the dimension `{symbol}` is not declared");
                    self.fault(id, "verify-dims", message);
                }
            }
        }
    }

    fn outputs(&mut self) {
        let mut names = BTreeSet::new();
        for output in self.graph.outputs() {
            if !names.insert(&output.name) {
                let message = format!("two outputs are named `{}`", output.name);
                self.faults.push(whole(Diagnostic::new("verify-name", message)));
            }
            if !self.graph.contains(output.value) {
                let message = format!("the output `{}` is a node that is not there", output.name);
                self.faults.push(whole(Diagnostic::new("verify-output", message)));
            }
        }
    }
}
