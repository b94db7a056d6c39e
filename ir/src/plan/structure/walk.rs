//! From a value at an index to the anchors that it is computed from.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rejection, RejectionReason};
use crate::op::{MovementForm, OpClass, OpCtx};
use crate::plan::index::{Index, IndexSpace};
use crate::{Graph, Guard, IndexExpr, NodeId, Shape};

/// An index with 0 along axes of size 1.
pub(super) fn without_units(index: &[Index], shape: &Shape) -> Vec<Index> {
    let pairs = index.iter().zip(shape.iter());
    pairs.map(|(at, size)| if size.is(1) { Index::default() } else { at.clone() }).collect()
}

/// Goes from a node at an index to the anchors it is computed from.
pub(super) struct Walk<'g> {
    pub body: &'g Graph,
    pub space: IndexSpace<'g>,
    /// The index at which each anchor may be used.
    pub expected: BTreeMap<NodeId, Vec<Index>>,
    pub done: BTreeSet<(NodeId, Vec<Index>)>,
}

impl<'g> Walk<'g> {
    pub fn new(body: &'g Graph, space: IndexSpace<'g>) -> Walk<'g> {
        Walk { body, space, expected: BTreeMap::new(), done: BTreeSet::new() }
    }

    pub fn composed(&self, exprs: &[IndexExpr], axes: &[Index]) -> Vec<Index> {
        exprs.iter().map(|expr| self.space.compose(expr, axes, &[])).collect()
    }

    /// Requires that all anchors that a node at an index needs are used where they are expected.
    pub fn reach(&mut self, node: NodeId, index: &[Index]) -> Result<(), Rejection> {
        let index = without_units(index, &self.body.ty(node).shape);
        if let Some(expected) = self.expected.get(&node) {
            let expected = without_units(expected, &self.body.ty(node).shape);
            return match expected == index {
                true => Ok(()),
                false => Err(Rejection::at(node, RejectionReason::Position)),
            };
        }
        if !self.done.insert((node, index.clone())) {
            return Ok(());
        }
        for (operand, at) in self.operands_at(node, &index) {
            self.reach(operand, &at)?;
        }
        Ok(())
    }

    /// The index at which a node at an index uses an anchor, the first one found.
    pub fn reached(&mut self, node: NodeId, index: &[Index], anchor: NodeId) -> Option<Vec<Index>> {
        if node != anchor && self.expected.contains_key(&node) {
            return None;
        }
        let mut leading = BTreeSet::from([anchor]);
        for id in self.body.in_order() {
            let leads = self.body.operands(id).iter().any(|operand| leading.contains(operand));
            if leads && !self.expected.contains_key(&id) {
                leading.insert(id);
            }
        }
        self.reached_along(node, index, (anchor, &leading))
    }

    /// As [`Walk::reached`], along nodes that use the anchor.
    fn reached_along(
        &mut self,
        node: NodeId,
        index: &[Index],
        (anchor, leading): (NodeId, &BTreeSet<NodeId>),
    ) -> Option<Vec<Index>> {
        let index = without_units(index, &self.body.ty(node).shape);
        if node == anchor {
            return Some(index);
        }
        let operands = self.operands_at(node, &index);
        let mut leads = operands.into_iter().filter(|(operand, _)| leading.contains(operand));
        leads.find_map(|(operand, at)| self.reached_along(operand, &at, (anchor, leading)))
    }

    /// The operands that a node at an index is computed from, each at its index.
    fn operands_at(&mut self, node: NodeId, index: &[Index]) -> Vec<(NodeId, Vec<Index>)> {
        let operands = self.body.operands(node);
        match self.body.node(node).op.class() {
            OpClass::Movement(form) => {
                let types = self.body.operand_types(node);
                let attrs = &self.body.node(node).attrs;
                let form = form(&OpCtx { attrs, operands: &types });
                self.moved(&form, &operands, index)
            }
            _ => operands.into_iter().map(|operand| (operand, index.to_vec())).collect(),
        }
    }

    fn moved(
        &mut self,
        form: &MovementForm,
        operands: &[NodeId],
        index: &[Index],
    ) -> Vec<(NodeId, Vec<Index>)> {
        let mut read = Vec::new();
        let mut loaded = Vec::new();
        for case in &form.cases {
            let mut possible = true;
            for guard in &case.guards {
                let (Guard::Within { value, .. } | Guard::Divisible { value, .. }) = guard;
                self.load(value, operands, index, &mut loaded, &mut read);
                let value = self.space.compose(value, index, &loaded);
                possible &= !self.space.never(guard, &value);
            }
            if !possible {
                continue;
            }
            for expr in &case.index {
                self.load(expr, operands, index, &mut loaded, &mut read);
            }
            let at = case.index.iter().map(|expr| self.space.compose(expr, index, &loaded));
            read.push((operands[case.operand], at.collect()));
        }
        read
    }

    /// Gives each element that an expression refers to a variable, and notes where it is read.
    fn load(
        &mut self,
        expr: &IndexExpr,
        operands: &[NodeId],
        axes: &[Index],
        loaded: &mut Vec<(IndexExpr, Index)>,
        read: &mut Vec<(NodeId, Vec<Index>)>,
    ) {
        match expr {
            IndexExpr::Axis(_) | IndexExpr::Size(_) => {}
            IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => {
                self.load(x, operands, axes, loaded, read);
            }
            IndexExpr::Add(x, y) | IndexExpr::Min(x, y) | IndexExpr::Max(x, y) => {
                self.load(x, operands, axes, loaded, read);
                self.load(y, operands, axes, loaded, read);
            }
            IndexExpr::Element { operand, index } => {
                if loaded.iter().any(|(element, _)| element == expr) {
                    return;
                }
                for inner in index {
                    self.load(inner, operands, axes, loaded, read);
                }
                let at: Vec<Index> =
                    index.iter().map(|expr| self.space.compose(expr, axes, loaded)).collect();
                let var = Index::var(self.space.add_dependent(&at));
                read.push((operands[*operand], at));
                loaded.push((expr.clone(), var));
            }
        }
    }
}
