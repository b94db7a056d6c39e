//! What lowering knows of the region at hand.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{OpClass, OpCtx};
use fornax_ir::plan::{Region, Rejection, Rows, Structure, read_box, structure};
use fornax_ir::{Dim, DimRange, Graph, NodeId, ScalarExpr, SourceMap, Symbol, Type};

use super::CodegenError;

/// A region with what is looked up often.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub region: &'a Region,
    pub body: &'a Graph,
    pub dims: &'a BTreeMap<Symbol, DimRange>,
    pub structure: Structure,
    sources: &'a SourceMap,
    operands: BTreeMap<NodeId, usize>,
}

impl<'a> Site<'a> {
    /// Looks a region up and finds out what it is (see [`super::lower`]).
    pub fn new(
        region: &'a Region,
        dims: &'a BTreeMap<Symbol, DimRange>,
    ) -> Result<Site<'a>, CodegenError> {
        let body = &region.body;
        let operands = body.inputs().iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let mut site = Site {
            region,
            body,
            dims,
            structure: Structure::Pointwise,
            sources: &body.sources,
            operands,
        };
        site.structure = structure(body, dims).map_err(|rejection| site.rejected(&rejection))?;
        Ok(site)
    }

    /// The rows that the region's reductions go along.
    pub fn rows(&self) -> Result<Rows, CodegenError> {
        match &self.structure {
            Structure::Rows(rows) => Ok(rows.clone()),
            _ => Rows::of(self.body, self.dims).map_err(|rejection| self.rejected(&rejection)),
        }
    }

    /// The contraction of a region that has one, reduced or not.
    ///
    /// # Panics
    /// When the region is of another structure.
    pub fn contraction(&self) -> NodeId {
        self.structure.anchor().expect("invariant: a contraction is its region's anchor")
    }

    /// The error that the region has no structure.
    pub fn rejected(&self, rejection: &Rejection) -> CodegenError {
        match rejection.node {
            Some(node) => self.error(node, rejection.to_string()),
            None => self.error_at("region", Vec::new(), rejection.to_string()),
        }
    }

    /// The error that the region cannot be lowered because of a node.
    pub fn error(&self, node: NodeId, reason: impl Into<String>) -> CodegenError {
        let node = self.body.node(node);
        let names = match self.sources_hold(node) {
            true => self.sources.names(&node.loc),
            false => Vec::new(),
        };
        self.error_at(node.op.name(), names, reason.into())
    }

    /// Whether the body's source map is the one that the node's locations belong to; a region's body
    /// may leave it to the plan.
    fn sources_hold(&self, node: &fornax_ir::Node) -> bool {
        node.loc.iter().all(|loc| self.sources.contains(loc))
    }

    fn error_at(
        &self,
        op: &str,
        sources: Vec<std::sync::Arc<str>>,
        reason: String,
    ) -> CodegenError {
        let region = self.region.name.clone();
        CodegenError::Region { region, op: op.to_owned(), sources, reason }
    }

    /// Calls `look` with the context that an op's functions take.
    pub fn with_ctx<T>(&self, node: NodeId, look: impl FnOnce(&OpCtx<'_>) -> T) -> T {
        let operands = self.body.operand_types(node);
        look(&OpCtx { attrs: &self.body.node(node).attrs, operands: &operands })
    }

    /// The number of the operand that an input node stands for.
    pub fn operand_of(&self, node: NodeId) -> Option<usize> {
        self.operands.get(&node).copied()
    }

    /// The type of an operand.
    pub fn operand_type(&self, operand: usize) -> &'a Type {
        self.body.ty(self.body.inputs()[operand])
    }

    /// The type of a result.
    pub fn output_type(&self, output: usize) -> &'a Type {
        self.body.ty(self.body.outputs()[output].value)
    }

    /// The shape of all results; not for rows, whose results have two.
    pub fn shape(&self) -> &'a [Dim] {
        &self.output_type(0).shape
    }

    /// A name for the region's kernels that tells its operators.
    pub fn kernel_name(&self, part: &str) -> String {
        const LONGEST: usize = 60;
        let mut name = self.region.name.clone();
        for id in self.body.in_order() {
            let node = self.body.node(id);
            if !matches!(node.op.class(), OpClass::Source(_) | OpClass::Movement(_)) {
                name = format!("{name}_{}", node.op);
            }
        }
        name = name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(LONGEST - part.len())
            .collect();
        name + part
    }

    /// Bytes of the operands that are read and of the results.
    pub fn bytes(&self) -> Dim {
        let used = self.live();
        let inputs = self.body.inputs().iter().filter(|id| used.contains(id));
        let read: Dim = inputs
            .map(|&id| {
                let elements: Dim = read_box(self.body, id, self.dims).into_iter().product();
                elements * Dim::from(self.body.ty(id).dtype.size())
            })
            .sum();
        read + self.output_bytes()
    }

    /// Bytes of the results.
    pub fn output_bytes(&self) -> Dim {
        self.body.outputs().iter().map(|output| self.body.ty(output.value).bytes()).sum()
    }

    /// Functions that the pointwise operators of the region apply, each at every element of its result.
    pub fn pointwise_flops(&self) -> Dim {
        self.live()
            .into_iter()
            .filter_map(|id| match self.body.node(id).op.class() {
                OpClass::Pointwise(body) => {
                    let count = self.with_ctx(id, |ctx| functions(&body(ctx)));
                    Some(self.body.ty(id).shape.elements() * Dim::from(count))
                }
                _ => None,
            })
            .sum()
    }

    /// Nodes that an output depends on.
    fn live(&self) -> BTreeSet<NodeId> {
        let mut live = BTreeSet::new();
        let mut queue: Vec<NodeId> = self.body.outputs().iter().map(|o| o.value).collect();
        while let Some(id) = queue.pop() {
            if live.insert(id) {
                queue.extend(self.body.operands(id));
            }
        }
        live
    }
}

/// The number of functions that an expression applies; conversions do not count.
pub(super) fn functions(expr: &ScalarExpr) -> usize {
    match expr {
        ScalarExpr::Arg(_) | ScalarExpr::Const(_) => 0,
        ScalarExpr::Cast(_, x) => functions(x),
        ScalarExpr::Unary(_, x) => 1 + functions(x),
        ScalarExpr::Binary(_, a, b) => 1 + functions(a) + functions(b),
        ScalarExpr::Select(c, a, b) => 1 + functions(c) + functions(a) + functions(b),
    }
}

/// Whether an expression uses an argument.
pub(super) fn uses(expr: &ScalarExpr, arg: usize) -> bool {
    match expr {
        ScalarExpr::Arg(index) => *index == arg,
        ScalarExpr::Const(_) => false,
        ScalarExpr::Cast(_, x) | ScalarExpr::Unary(_, x) => uses(x, arg),
        ScalarExpr::Binary(_, a, b) => uses(a, arg) || uses(b, arg),
        ScalarExpr::Select(c, a, b) => uses(c, arg) || uses(a, arg) || uses(b, arg),
    }
}
