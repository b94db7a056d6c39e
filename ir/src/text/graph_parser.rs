//! Reads a graph.

use std::collections::BTreeMap;

use super::lexer::{Token, ValueName};
use super::parser::{Failed, Parse, Parser};
use super::{Position, TextError, type_attrs};
use crate::op::{OpClass, OpRef, SourceKind};
use crate::{AttrKind, Attrs, Diagnostic, Graph, LocSet, NodeId, Type, op};

/// Values that can be named, `None` where the declaration was faulty: uses are not reported again.
type Values = BTreeMap<ValueName, Option<NodeId>>;

/// A graph, and the offset of each node's declaration.
pub(super) struct Parsed {
    pub graph: Graph,
    pub offsets: Vec<(NodeId, usize)>,
}

/// Reads a text that holds one graph.
pub(super) fn graph(text: &str) -> Result<(Graph, BTreeMap<NodeId, Position>), Vec<TextError>> {
    let mut parser = Parser::new(text);
    let parsed = parser.graph().and_then(|parsed| parser.end().map(|()| parsed));
    match parsed {
        Ok(Parsed { mut graph, offsets }) if parser.errors.is_empty() => {
            graph.sources = parser.sources;
            Ok((graph, positions(text, offsets)))
        }
        _ => Err(parser.errors),
    }
}

/// Positions of offsets that are in ascending order.
fn positions(text: &str, offsets: Vec<(NodeId, usize)>) -> BTreeMap<NodeId, Position> {
    let mut here = Position { line: 1, column: 1 };
    let mut done = 0;
    let mut found = BTreeMap::new();
    for (id, offset) in offsets {
        for c in text[done..offset].chars() {
            here = match c {
                '\n' => Position { line: here.line + 1, column: 1 },
                _ => Position { column: here.column + 1, ..here },
            };
        }
        done = offset;
        found.insert(id, here);
    }
    found
}

impl Parser<'_> {
    /// `graph @name(inputs) dims(...) -> (outputs) { ... }`
    pub fn graph(&mut self) -> Parse<Parsed> {
        self.expect_word("graph")?;
        let mut graph = Graph::new(self.title()?);
        let inputs = self.inputs()?;
        graph.dims = self.dims()?;
        let results = self.results()?;
        self.expect("{")?;
        let input = op::by_name("input").expect("invariant: the op table has inputs");
        let mut values = Values::new();
        let mut offsets = Vec::new();
        for (name, ty, loc, start) in inputs {
            let mut attrs = Attrs::none();
            attrs.insert("name", name.as_str());
            let added = self.add(&mut graph, input, (attrs, ty), &[], loc, start);
            offsets.extend(added.map(|id| (id, start)));
            self.define(&mut values, ValueName::Name(name), added.ok(), start);
        }
        while !self.at_word("return")
            && !self.at("}")
            && self.token != Token::End
            && !self.is_full()
        {
            let start = self.start;
            match self.node(&mut graph, &mut values) {
                Ok(Some(id)) => offsets.push((id, start)),
                Ok(None) => {}
                Err(Failed) => self.recover(start),
            }
        }
        self.returns(&mut graph, &values, results)?;
        self.expect("}")?;
        Ok(Parsed { graph, offsets })
    }

    /// `return %0, %1`
    fn returns(
        &mut self,
        graph: &mut Graph,
        values: &Values,
        results: Vec<(String, Type, usize)>,
    ) -> Parse<()> {
        let start = self.start;
        self.expect_word("return")?;
        let mut returned = Vec::new();
        while matches!(self.token, Token::Value(_)) {
            let start = self.start;
            returned.push((self.use_of(values)?, start));
            if !self.eat(",") {
                break;
            }
        }
        if returned.len() != results.len() {
            let message =
                format!("{} values are returned, {} declared", returned.len(), results.len());
            return self.fail(start, "text-type", message);
        }
        for ((name, ty, _), (value, start)) in results.into_iter().zip(returned) {
            let Some(value) = value else { continue };
            if *graph.ty(value) != ty {
                let message = format!("`{name}` is {}, declared as {ty}", graph.ty(value));
                self.fault(start, Diagnostic::new("text-type", message));
            }
            graph.output(name, value);
        }
        Ok(())
    }

    /// `%0 = matmul %x, %w {...} : f32[8,128] @"fc/MatMul"`. Nothing when an operand is faulty.
    fn node(&mut self, graph: &mut Graph, values: &mut Values) -> Parse<Option<NodeId>> {
        let start = self.start;
        let name = self.value_name()?;
        let added = self.definition(graph, values);
        let id = added.as_ref().ok().copied().flatten();
        self.define(values, name, id, start);
        added
    }

    fn definition(&mut self, graph: &mut Graph, values: &Values) -> Parse<Option<NodeId>> {
        self.expect("=")?;
        let start = self.start;
        let word = self.word("an op")?;
        let Some(op) = op::by_name(word) else {
            return self.fail(start, "op", format!("there is no op `{word}`"));
        };
        if matches!(op.class(), OpClass::Source(SourceKind::Input)) {
            return self.fail(
                start,
                "text-syntax",
                "inputs are declared in the graph's first line",
            );
        }
        let mut operands = Vec::new();
        while matches!(self.token, Token::Value(_)) {
            operands.push(self.use_of(values)?);
            if !self.eat(",") {
                break;
            }
        }
        let attrs = self.attrs(op)?;
        self.expect(":")?;
        let ty = self.ty()?;
        let loc = self.loc()?;
        let Some(operands) = operands.into_iter().collect::<Option<Vec<NodeId>>>() else {
            return Ok(None);
        };
        self.add(graph, op, (attrs, ty), &operands, loc, start).map(Some)
    }

    /// Adds a node and checks its type. Source ops take element type and shape from it.
    fn add(
        &mut self,
        graph: &mut Graph,
        op: OpRef,
        (mut attrs, ty): (Attrs, Type),
        operands: &[NodeId],
        loc: LocSet,
        start: usize,
    ) -> Parse<NodeId> {
        for &(name, kind) in type_attrs(op) {
            match kind {
                AttrKind::DType => attrs.insert(name, ty.dtype),
                _ => attrs.insert(name, ty.shape.to_vec()),
            }
        }
        let id = graph
            .add(op.name(), attrs, operands, loc)
            .map_err(|diagnostic| self.fault(start, diagnostic))?;
        if *graph.ty(id) != ty {
            let message = format!("`{op}` gives {}, not {ty}", graph.ty(id));
            self.fault(start, Diagnostic::new("text-type", message));
        }
        Ok(id)
    }

    fn define(&mut self, values: &mut Values, name: ValueName, id: Option<NodeId>, start: usize) {
        let shown = name.to_string();
        if values.insert(name, id).is_some() {
            self.fault(start, Diagnostic::new("text-name", format!("`{shown}` is defined twice")));
        }
    }

    fn use_of(&mut self, values: &Values) -> Parse<Option<NodeId>> {
        let start = self.start;
        let name = self.value_name()?;
        match values.get(&name) {
            Some(&value) => Ok(value),
            None => self.fail(start, "text-name", format!("`{name}` is not defined above")),
        }
    }
}
