//! Prints a graph.

use std::collections::BTreeMap;
use std::fmt;

use fornax_bundle::{DimRange, Symbol};

use super::lexer::{ValueName, quoted, quoted_unless_identifier};
use super::literal::{SplatBudget, print_elements, print_float};
use super::type_attrs;
use crate::op::{OpClass, SourceKind};
use crate::{AttrValue, Graph, LocSet, NodeId, SourceMap, Type};

/// The text of a graph, with a line break at its end.
///
/// Two graphs that differ only in the numbers of their nodes, in the data of weights or in what the
/// source map knows beyond names have the same text. A graph with cycles or missing nodes, which the
/// verifier rejects, is printed without them.
pub fn print_graph(graph: &Graph) -> String {
    let mut printer = Printer::default();
    printer.graph(graph, &graph.sources, 0);
    printer.out
}

/// What each value is called in the graph's text, such as `%3` or `%x`.
pub fn value_names(graph: &Graph) -> BTreeMap<NodeId, String> {
    let mut names = BTreeMap::new();
    let mut next = 0;
    for id in graph.in_order() {
        let name = match graph.node(id).attrs.get("name") {
            Some(AttrValue::Text(name)) if is_input(graph, id) => ValueName::Name((**name).into()),
            _ => {
                next += 1;
                ValueName::Number(next - 1)
            }
        };
        names.insert(id, name.to_string());
    }
    names
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_graph(self))
    }
}

fn is_input(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Input))
}

/// Text under construction.
#[derive(Default)]
pub(super) struct Printer {
    pub out: String,
    pub splats: SplatBudget,
}

/// Writes into the printer's text, which cannot fail.
macro_rules! put {
    ($printer:expr, $($format:tt)*) => {
        std::fmt::Write::write_fmt(&mut $printer.out, format_args!($($format)*))
            .expect("invariant: a string takes all text")
    };
}
pub(super) use put;

impl Printer {
    /// A graph whose lines start `indent` levels deep.
    pub fn graph(&mut self, graph: &Graph, sources: &SourceMap, indent: usize) {
        let names = value_names(graph);
        let name_of = |id: NodeId| names.get(&id).map_or("%?", String::as_str);
        self.indent(indent);
        put!(self, "graph @{}(", quoted_unless_identifier(&graph.name));
        for (position, &id) in graph.inputs().iter().enumerate() {
            let node = graph.node(id);
            put!(self, "{}{}: {}", separator(position), name_of(id), node.ty);
            self.loc(&node.loc, sources);
        }
        self.out.push(')');
        self.dims(&graph.dims);
        let known = |id: NodeId| names.contains_key(&id).then(|| graph.ty(id));
        self.results(graph.outputs().iter().map(|output| (&*output.name, known(output.value))));
        self.out.push_str(" {\n");
        for id in graph.in_order().into_iter().filter(|&id| !is_input(graph, id)) {
            self.indent(indent + 1);
            self.node(graph, id, sources, &name_of);
        }
        self.indent(indent + 1);
        self.returns(graph.outputs().iter().map(|output| name_of(output.value)));
        self.indent(indent);
        self.out.push_str("}\n");
    }

    pub fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n("  ", indent));
    }

    pub fn dims(&mut self, dims: &BTreeMap<Symbol, DimRange>) {
        if dims.is_empty() {
            return;
        }
        self.out.push_str(" dims(");
        for (position, (symbol, range)) in dims.iter().enumerate() {
            let name = quoted_unless_identifier(symbol);
            put!(self, "{}{name}: {}..{}", separator(position), range.min, range.max);
            if range.divisor != 1 {
                put!(self, " multiple of {}", range.divisor);
            }
        }
        self.out.push(')');
    }

    pub fn results<'a>(&mut self, results: impl Iterator<Item = (&'a str, Option<&'a Type>)>) {
        self.out.push_str(" -> (");
        for (position, (name, ty)) in results.enumerate() {
            put!(self, "{}{}: ", separator(position), quoted_unless_identifier(name));
            match ty {
                Some(ty) => put!(self, "{ty}"),
                None => self.out.push('?'),
            }
        }
        self.out.push(')');
    }

    pub fn returns<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        self.out.push_str("return");
        for (position, value) in values.enumerate() {
            put!(self, "{}{value}", if position == 0 { " " } else { ", " });
        }
        self.out.push('\n');
    }

    fn node<'n>(
        &mut self,
        graph: &Graph,
        id: NodeId,
        sources: &SourceMap,
        name_of: &impl Fn(NodeId) -> &'n str,
    ) {
        let node = graph.node(id);
        put!(self, "{} = {}", name_of(id), node.op);
        for (position, operand) in graph.operands(id).into_iter().enumerate() {
            put!(self, "{}{}", if position == 0 { " " } else { ", " }, name_of(operand));
        }
        let left_out = type_attrs(node.op);
        let mut open = " {";
        for (name, value) in
            node.attrs.iter().filter(|(name, _)| left_out.iter().all(|(n, _)| n != name))
        {
            put!(self, "{open}{name} = ");
            self.attr_value(value);
            open = ", ";
        }
        if open != " {" {
            self.out.push('}');
        }
        put!(self, " : {}", node.ty);
        self.loc(&node.loc, sources);
        self.out.push('\n');
    }

    fn attr_value(&mut self, value: &AttrValue) {
        match value {
            AttrValue::Int(value) => put!(self, "{value}"),
            AttrValue::Ints(values) => put!(self, "{values:?}"),
            AttrValue::Dims(dims) => put!(self, "{}", crate::Shape::from(dims.as_slice())),
            AttrValue::Float(value) => self.out.push_str(&print_float(value.0)),
            AttrValue::Bool(value) => put!(self, "{value}"),
            AttrValue::Text(text) => self.out.push_str(&quoted_unless_identifier(text)),
            AttrValue::DType(dtype) => put!(self, "{dtype}"),
            AttrValue::Tensor(tensor) => self.tensor(tensor),
        }
    }

    /// `f32[2] [1.0, 2.0]`
    fn tensor(&mut self, tensor: &fornax_bundle::Tensor) {
        let ty = Type::new(tensor.dtype(), tensor.shape());
        put!(self, "{ty} {}", print_elements(tensor, &mut self.splats));
    }

    /// The names, sorted: their order in the map does not outlive a round trip.
    fn loc(&mut self, loc: &LocSet, sources: &SourceMap) {
        let known = loc.iter().filter(|&loc| sources.contains(loc));
        let mut names: Vec<&str> = known.map(|loc| &*sources.get(loc).name).collect();
        names.sort();
        names.dedup();
        match names.as_slice() {
            [] => {}
            [name] => put!(self, " @{}", quoted(name)),
            names => {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                put!(self, " @[{}]", names.join(", "));
            }
        }
    }
}

pub(super) fn separator(position: usize) -> &'static str {
    if position == 0 { "" } else { ", " }
}
