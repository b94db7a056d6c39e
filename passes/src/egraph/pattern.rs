//! Patterns: the left sides of rules, in text, and where they match in an e-graph.
//!
//! `?x` stands for any value, the same one wherever it occurs; a number for a value all of whose
//! elements are that number (to six digits if it is none of `f32`); `(op a b)` for an operator. `(@n=op a b)` also names the
//! node; an operator may be a class (`contraction`), and `*` as its only operand means any operands.
//! Operators that commute match with their operands in either order.

use std::collections::BTreeSet;

use egg::Id;
use fornax_ir::op::{self, OpClass, OpCtx, OpRef};
use fornax_ir::{BinaryFn, DType, ScalarExpr, Type};
use smallvec::SmallVec;

use super::analysis::{OpGraph, named};
use super::language::ENode;

/// Matches of one pattern at one class; beyond, the rest is left for a later iteration.
const MAX_MATCHES: usize = 256;

/// A value or node named in a pattern, by its position in [`Pattern::values`] or [`Pattern::nodes`].
pub(crate) type Slot = usize;

/// A left side.
#[derive(Debug, Clone)]
pub struct Pattern {
    root: Term,
    values: Vec<&'static str>,
    nodes: Vec<&'static str>,
    text: &'static str,
}

/// A part of a pattern.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    /// Any value.
    Value(Slot),
    /// A value of one number.
    Number(f64),
    /// An operator.
    Apply {
        /// Any of these.
        ops: Vec<OpRef>,
        /// Its name in the pattern.
        node: Option<Slot>,
        /// Its operands; none when any are meant.
        operands: Option<Vec<Term>>,
    },
}

/// Where a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// The class that is matched.
    pub root: Id,
    values: SmallVec<[Option<Id>; 4]>,
    nodes: SmallVec<[Option<ENode>; 2]>,
    /// The classes of the operators below the root.
    pub(crate) inner: SmallVec<[Id; 4]>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Panics
    /// When the text is none: patterns are part of the program.
    pub(crate) fn parse(text: &'static str) -> Pattern {
        let mut pattern =
            Pattern { root: Term::Number(0.0), values: Vec::new(), nodes: Vec::new(), text };
        let mut tokens = tokens(text);
        pattern.root = pattern.term(&mut tokens);
        assert!(tokens.is_empty(), "invariant: `{text}` is one pattern");
        pattern
    }

    /// The text.
    pub fn text(&self) -> &'static str {
        self.text
    }

    pub(crate) fn root(&self) -> &Term {
        &self.root
    }

    /// The number of named values.
    pub(crate) fn values(&self) -> usize {
        self.values.len()
    }

    /// The name of a value.
    pub(crate) fn value_name(&self, slot: Slot) -> &'static str {
        self.values[slot]
    }

    fn term(&mut self, tokens: &mut Vec<&'static str>) -> Term {
        let token = tokens.pop().expect("invariant: a pattern has balanced brackets");
        if let Some(name) = token.strip_prefix('?') {
            return Term::Value(slot(&mut self.values, name));
        }
        if token != "(" {
            return Term::Number(token.parse().expect("invariant: a pattern's atom is a number"));
        }
        let head = tokens.pop().expect("invariant: brackets hold an operator");
        let (node, name) = match head.strip_prefix('@').and_then(|head| head.split_once('=')) {
            Some((node, name)) => (Some(slot(&mut self.nodes, node)), name),
            None => (None, head),
        };
        let mut operands = Some(Vec::new());
        loop {
            match tokens.last() {
                Some(&")") => break,
                Some(&"*") => operands = None,
                _ => {
                    let operand = self.term(tokens);
                    operands.as_mut().expect("invariant: `*` stands alone").push(operand);
                    continue;
                }
            }
            tokens.pop();
        }
        tokens.pop();
        Term::Apply { ops: ops(name), node, operands }
    }

    /// All matches, in an order that depends on the e-graph alone.
    pub(crate) fn search(&self, egraph: &OpGraph) -> Vec<Match> {
        let Term::Apply { ops, .. } = &self.root else {
            unreachable!("invariant: the root of a pattern is an operator")
        };
        let roots: BTreeSet<Id> = ops
            .iter()
            .filter_map(|op| egraph.classes_for_op(op))
            .flatten()
            .map(|id| egraph.find(id))
            .collect();
        roots.into_iter().flat_map(|root| self.search_class(egraph, root)).collect()
    }

    /// The matches at a class.
    pub(crate) fn search_class(&self, egraph: &OpGraph, root: Id) -> Vec<Match> {
        let empty = Match {
            root,
            values: SmallVec::from_elem(None, self.values.len()),
            nodes: SmallVec::from_elem(None, self.nodes.len()),
            inner: SmallVec::new(),
        };
        let mut found = extend(egraph, &self.root, root, empty);
        found.sort();
        found.dedup();
        found
    }

    pub(crate) fn value(&self, found: &Match, name: &str) -> Id {
        let slot = self.values.iter().position(|other| *other == name);
        slot.and_then(|slot| found.values[slot])
            .unwrap_or_else(|| panic!("invariant: `{}` names ?{name}", self.text))
    }

    pub(crate) fn node<'m>(&self, found: &'m Match, name: &str) -> &'m ENode {
        let slot = self.nodes.iter().position(|other| *other == name);
        slot.and_then(|slot| found.nodes[slot].as_ref())
            .unwrap_or_else(|| panic!("invariant: `{}` names @{name}", self.text))
    }
}

/// Bracketed tokens in reverse order.
fn tokens(text: &'static str) -> Vec<&'static str> {
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(inner) = rest.strip_prefix('(') {
            tokens.push("(");
            rest = inner;
        }
        let body = rest.trim_end_matches(')');
        if !body.is_empty() {
            tokens.push(body);
        }
        tokens.extend(std::iter::repeat_n(")", rest.len() - body.len()));
    }
    tokens.reverse();
    tokens
}

fn slot(names: &mut Vec<&'static str>, name: &'static str) -> Slot {
    names.iter().position(|other| *other == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// The operator of a name, or all of a class.
fn ops(name: &str) -> Vec<OpRef> {
    let of_class: Vec<OpRef> = op::all()
        .iter()
        .filter(|def| def.class.name() == name)
        .map(|def| named(def.name))
        .collect();
    if of_class.is_empty() { vec![named(name)] } else { of_class }
}

/// Whether an op gives the same when its two operands are exchanged, by its body.
pub(crate) fn commutes(op: OpRef) -> bool {
    use BinaryFn::{Add, And, Eq, Max, Min, Mul, Or, Xor};
    let OpClass::Pointwise(body) = op.class() else { return false };
    if op.def().arity != op::Arity::Exactly(2) || !op.def().attrs.is_empty() {
        return false;
    }
    let scalar = Type::new(DType::F32, Vec::new());
    let operands = [scalar.clone(), scalar];
    let body = body(&OpCtx { attrs: &fornax_ir::Attrs::none(), operands: &operands });
    match body {
        ScalarExpr::Binary(Add | Mul | Max | Min | And | Or | Xor | Eq, a, b) => {
            *a == ScalarExpr::Arg(0) && *b == ScalarExpr::Arg(1)
        }
        _ => false,
    }
}

/// All ways to extend a match by a term at a class.
fn extend(egraph: &OpGraph, term: &Term, id: Id, found: Match) -> Vec<Match> {
    match term {
        Term::Value(slot) => match found.values[*slot] {
            Some(bound) if egraph.find(bound) != egraph.find(id) => Vec::new(),
            Some(_) => vec![found],
            None => {
                let mut found = found;
                found.values[*slot] = Some(egraph.find(id));
                vec![found]
            }
        },
        Term::Number(number) => {
            let constant = egraph[id].data.constant.map(fornax_ir::Scalar::to_f64);
            // Simple numbers are meant exactly, others as exporters round them.
            let is_simple = f64::from(*number as f32) == *number;
            let tolerance = if is_simple { 0.0 } else { 1e-6 * number.abs() };
            let close = |value: f64| (value - number).abs() <= tolerance;
            if constant.is_some_and(close) { vec![found] } else { Vec::new() }
        }
        Term::Apply { ops, node, operands } => {
            let mut all = Vec::new();
            for enode in egraph[id].nodes.iter().filter(|enode| ops.contains(&enode.op())) {
                let mut found = found.clone();
                if id != found.root {
                    found.inner.push(id);
                }
                if let Some(slot) = node {
                    match &found.nodes[*slot] {
                        Some(bound) if bound != enode => continue,
                        _ => found.nodes[*slot] = Some(enode.clone()),
                    }
                }
                let Some(operands) = operands else {
                    all.push(found);
                    continue;
                };
                if operands.len() != enode.children.len() {
                    continue;
                }
                all.extend(extend_all(egraph, operands, enode.children.iter(), &found));
                let orders_differ = operands.len() == 2
                    && !both_free(operands)
                    && enode.children[0] != enode.children[1];
                if orders_differ && commutes(enode.op()) {
                    all.extend(extend_all(egraph, operands, enode.children.iter().rev(), &found));
                }
                if all.len() > MAX_MATCHES {
                    all.truncate(MAX_MATCHES);
                    break;
                }
            }
            all
        }
    }
}

/// Whether exchanging the operands could only give the same match under other names.
fn both_free(operands: &[Term]) -> bool {
    matches!(operands, [Term::Value(a), Term::Value(b)] if a == b)
}

fn extend_all<'e>(
    egraph: &OpGraph,
    terms: &[Term],
    children: impl Iterator<Item = &'e Id>,
    found: &Match,
) -> Vec<Match> {
    terms.iter().zip(children).fold(vec![found.clone()], |partial, (term, &child)| {
        partial.into_iter().flat_map(|found| extend(egraph, term, child, found)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_ops_commute_follows_from_their_bodies() {
        let commuting: Vec<&str> =
            op::all().iter().map(|def| def.name).filter(|name| commutes(named(name))).collect();
        assert_eq!(
            commuting,
            ["add", "mul", "max", "min", "and", "or", "xor", "bit_and", "bit_or", "bit_xor", "eq"]
        );
    }

    #[test]
    fn patterns_name_values_and_nodes() {
        let pattern = Pattern::parse("(mul (@c=contraction ?a ?b) ?a)");
        assert_eq!(
            (pattern.values.as_slice(), pattern.nodes.as_slice()),
            (&["a", "b"][..], &["c"][..])
        );
        let Term::Apply { operands: Some(operands), .. } = pattern.root() else {
            panic!("{pattern:?}")
        };
        let Term::Apply { ops, node: Some(0), .. } = &operands[0] else { panic!("{operands:?}") };
        assert!(ops.len() >= 4, "{ops:?}");
    }
}
