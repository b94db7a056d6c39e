//! Rules: a pattern, premises, and what the matched value equals.

use std::fmt;
use std::str::FromStr;

use egg::Id;
use fornax_ir::interp::scalar_tensor;
use fornax_ir::op::{ContractionForm, OpClass, OpCtx, ReduceForm};
use fornax_ir::{Attrs, DType, Dim, Shape, Type, attrs};

use super::analysis::{Data, OpGraph, checked};
use super::language::ENode;
use super::pattern::{Match, Pattern, Term};

/// How close the two sides of a rule are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numerics {
    /// The same bits for every input, NaN for NaN.
    Bitwise,
    /// Equal over the real numbers; rounding, overflow, the sign of zero and NaN may differ.
    Real,
    /// Within so many units in the last place of `f32` for ordinary inputs.
    Approx {
        /// The bound.
        ulp: u32,
    },
}

/// Which rules may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Rewrites {
    /// Those that keep every bit.
    Bitwise,
    /// Those that hold over the real numbers too.
    #[default]
    Real,
    /// All.
    Approx,
}

impl Rewrites {
    /// Whether rules of a class may be used.
    pub fn allow(self, numerics: Numerics) -> bool {
        match numerics {
            Numerics::Bitwise => true,
            Numerics::Real => self >= Rewrites::Real,
            Numerics::Approx { .. } => self == Rewrites::Approx,
        }
    }
}

impl fmt::Display for Rewrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rewrites::Bitwise => "bitwise",
            Rewrites::Real => "real",
            Rewrites::Approx => "approx",
        })
    }
}

impl FromStr for Rewrites {
    type Err = String;
    fn from_str(text: &str) -> Result<Rewrites, String> {
        match text {
            "bitwise" => Ok(Rewrites::Bitwise),
            "real" => Ok(Rewrites::Real),
            "approx" => Ok(Rewrites::Approx),
            other => Err(format!("there is no `{other}`; use bitwise, real, approx")),
        }
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numerics::Bitwise => f.write_str("bitwise"),
            Numerics::Real => f.write_str("real"),
            Numerics::Approx { ulp } => write!(f, "approx {ulp} ulp"),
        }
    }
}

/// When a rule is used, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Brings what exporters write to one form, and recognises what it stands for.
    Normalise,
    /// Saves arithmetic or memory traffic.
    Algebra,
    /// Moves transposes, reshapes, slices and broadcasts out of the way.
    Movement,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Group::Normalise => "normalise",
            Group::Algebra => "algebra",
            Group::Movement => "movement",
        })
    }
}

/// A named premise.
#[derive(Clone, Copy)]
pub struct Premise {
    /// What it requires.
    pub name: &'static str,
    pub(crate) holds: fn(&Site<'_>) -> bool,
}

impl fmt::Debug for Premise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a match equals.
#[derive(Debug, Clone)]
pub(crate) enum Right {
    /// A term over the left side's values; its numbers have the type of the matched value.
    Text(Pattern),
    /// What a function builds; nothing where it does not apply.
    Build(fn(&mut Site<'_>) -> Option<Id>),
}

/// A rule: wherever `left` matches and the premises hold, the matched value equals the right side.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The name, unique.
    pub name: &'static str,
    /// How close the sides are.
    pub numerics: Numerics,
    /// When it is used.
    pub group: Group,
    /// The left side.
    pub left: Pattern,
    /// What must hold for the sides to be equal.
    pub guards: &'static [Premise],
    /// What must hold for the rule to be worth trying; the sides are equal without.
    pub worth: &'static [Premise],
    /// What it says.
    pub doc: &'static str,
    pub(crate) right: Right,
}

impl Rule {
    /// The right side at a match, as a class.
    pub(crate) fn build(&self, site: &mut Site<'_>) -> Option<Id> {
        match &self.right {
            Right::Build(build) => build(site),
            Right::Text(text) => site.instantiate(text, text.root()),
        }
    }
}

/// A match in an e-graph: what premises ask, and where right sides are built.
pub struct Site<'a> {
    pub(crate) egraph: &'a mut OpGraph,
    pub(crate) left: &'a Pattern,
    pub(crate) found: &'a Match,
    /// The rule's number, for the nodes it makes.
    pub(crate) rule: u16,
}

impl Site<'_> {
    /// The matched class.
    pub fn root(&self) -> Id {
        self.found.root
    }

    /// The class a pattern's value stands for.
    pub fn value(&self, name: &str) -> Id {
        self.left.value(self.found, name)
    }

    /// The node a pattern's operator stands for.
    pub fn node(&self, name: &str) -> &ENode {
        self.left.node(self.found, name)
    }

    /// What is known of a class.
    pub fn data(&self, id: Id) -> &Data {
        &self.egraph[id].data
    }

    /// The type of a class.
    pub fn ty(&self, id: Id) -> &Type {
        &self.data(id).ty
    }

    /// The types of a node's operands.
    pub fn operand_types(&self, node: &ENode) -> Vec<Type> {
        node.children.iter().map(|&id| self.ty(id).clone()).collect()
    }

    /// How a contraction node contracts.
    ///
    /// # Panics
    /// When the node is none.
    pub fn contraction(&self, node: &ENode) -> ContractionForm {
        let types = self.operand_types(node);
        let OpClass::Contraction(form) = node.op().class() else {
            panic!("invariant: the pattern asks for a contraction")
        };
        form(&OpCtx { attrs: node.attrs(), operands: &types })
    }

    /// How a reduce node reduces.
    ///
    /// # Panics
    /// When the node is none.
    pub fn reduction(&self, node: &ENode) -> ReduceForm {
        let types = self.operand_types(node);
        let OpClass::Reduce(form) = node.op().class() else {
            panic!("invariant: the pattern asks for a reduction")
        };
        form(&OpCtx { attrs: node.attrs(), operands: &types })
    }

    /// Whether the matched value is combined with something of the size of another value and folded
    /// again, as the mean of a norm is: then both folds are made of one read of that value.
    pub fn is_statistic_of(&self, of: Id) -> bool {
        const MOST: usize = 64;
        let size = self.ty(of).shape.elements();
        let mut seen = vec![self.egraph.find(self.root())];
        let mut next = 0;
        while let Some(&class) = seen.get(next).filter(|_| next < MOST) {
            next += 1;
            for parent in self.egraph[class].parents() {
                let node = &self.egraph.nodes()[usize::from(parent)];
                let is_whole = |id: &Id| self.ty(*id).shape.elements() == size;
                match node.op().class() {
                    OpClass::Reduce(_) if node.children.iter().any(is_whole) => return true,
                    OpClass::Pointwise(_) | OpClass::Movement(_) => {
                        let class = self.egraph.find(parent);
                        if !seen.contains(&class) {
                            seen.push(class);
                        }
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// Adds a node; nothing when its op rejects the operands.
    pub fn add(&mut self, op: &str, attrs: Attrs, operands: &[Id]) -> Option<Id> {
        let node = checked(self.egraph, op, attrs, operands)?;
        let loc = self.egraph.analysis.loc.clone();
        Some(self.egraph.add(ENode { rule: Some(self.rule), loc, ..node }))
    }

    /// Adds a node with another's operator and attributes over other operands.
    pub fn again(&mut self, node: &ENode, operands: &[Id]) -> Option<Id> {
        self.add(node.op().name(), node.attrs().clone(), operands)
    }

    /// An op without attributes.
    pub fn apply(&mut self, op: &str, operands: &[Id]) -> Option<Id> {
        self.add(op, Attrs::none(), operands)
    }

    /// A number in every position of a shape.
    pub fn number(&mut self, dtype: DType, value: f64, shape: &Shape) -> Option<Id> {
        let value = scalar_tensor(dtype, value);
        let scalar = self.add("constant", attrs! { value: value }, &[])?;
        self.broadcast(scalar, shape)
    }

    /// A value repeated to a shape.
    pub fn broadcast(&mut self, x: Id, shape: &Shape) -> Option<Id> {
        if self.ty(x).shape == *shape {
            return Some(x);
        }
        self.add("broadcast", attrs! { shape: shape.to_vec() }, &[x])
    }

    /// A value under another shape.
    pub fn reshape(&mut self, x: Id, shape: impl Into<Shape>) -> Option<Id> {
        let shape = shape.into();
        if self.ty(x).shape == shape {
            return Some(x);
        }
        self.add("reshape", attrs! { shape: shape.to_vec() }, &[x])
    }

    /// A value with its axes in another order.
    pub fn transpose(&mut self, x: Id, perm: &[usize]) -> Option<Id> {
        if perm.iter().copied().eq(0..perm.len()) {
            return Some(x);
        }
        let perm: Vec<i64> = perm.iter().map(|&axis| axis as i64).collect();
        self.add("transpose", attrs! { perm: perm }, &[x])
    }

    /// `size` positions from `start` on, `step` apart, along one axis.
    pub fn slice(&mut self, x: Id, axis: usize, start: i64, size: i64, step: i64) -> Option<Id> {
        let shape = self.ty(x).shape.clone();
        if start == 0 && step == 1 && shape[axis].is(size) {
            return Some(x);
        }
        let mut starts = vec![Dim::constant(0); shape.rank()];
        let mut sizes = shape.to_vec();
        let mut steps = vec![1i64; shape.rank()];
        (starts[axis], sizes[axis], steps[axis]) =
            (Dim::constant(start), Dim::constant(size), step);
        self.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[x])
    }

    /// One position along each of some axes, which keep the size 1.
    pub fn narrow(&mut self, x: Id, axes: impl Fn(usize) -> bool) -> Option<Id> {
        let data = self.data(x);
        let shape = data.ty.shape.clone();
        let kept = |axis: usize| if axes(axis) { Dim::constant(1) } else { shape[axis].clone() };
        let sizes: Vec<Dim> = (0..shape.rank()).map(kept).collect();
        if shape[..] == sizes[..] {
            return Some(x);
        }
        if let Some(constant) = data.constant {
            return self.number(constant.dtype(), constant.to_f64(), &Shape::from(sizes));
        }
        let starts = vec![Dim::constant(0); shape.rank()];
        let steps = vec![1i64; shape.rank()];
        self.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[x])
    }

    /// A reduction that keeps the folded axes with size 1.
    pub fn reduce(&mut self, op: &str, x: Id, axes: &[usize]) -> Option<Id> {
        if axes.is_empty() {
            return Some(x);
        }
        let mut axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
        axes.sort_unstable();
        self.add(op, attrs! { axes: axes, keepdims: true }, &[x])
    }

    fn instantiate(&mut self, text: &Pattern, term: &Term) -> Option<Id> {
        match term {
            Term::Value(slot) => Some(self.value(text.value_name(*slot))),
            Term::Number(number) => {
                let ty = self.ty(self.root()).clone();
                self.number(ty.dtype, *number, &ty.shape)
            }
            Term::Apply { ops, operands, .. } => {
                let operands: Option<Vec<Id>> = operands
                    .iter()
                    .flatten()
                    .map(|operand| self.instantiate(text, operand))
                    .collect();
                self.apply(ops[0].name(), &operands?)
            }
        }
    }
}
