//! The op table: every operator is declared once, in one of this module's files.
//!
//! A declaration ([`OpDef`]) has the operator's name, arity and attributes, its shape inference, its
//! reference evaluation (the oracle, written from the specification in the plainest way) and its
//! [`OpClass`] with the data that passes and code generation work from. Parser, printer, e-graph
//! language, documentation and the generic tests are derived from [`all`].
//!
//! The set of classes is closed, the set of ops is open: passes match on the class, never on a name.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use fornax_bundle::{DType, Dim};

use crate::interp::Eval;
use crate::{
    AttrKind, Attrs, Diagnostic, Graph, Guard, IndexExpr, LocSet, NodeId, Scalar, ScalarExpr,
    Shape, Type,
};

/// Declares the family files and chains their tables into [`all`].
macro_rules! ops {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        static ALL: LazyLock<Vec<&'static OpDef>> = LazyLock::new(|| {
            let families: &[&'static [OpDef]] = &[$($family::DEFS),*];
            families.iter().copied().flatten().collect()
        });
    };
}

ops! {
    source,
    unary,
    activation,
    binary,
    select,
    cast,
    movement,
    movement_pad,
    movement_gather,
    reduce,
    reduce_composite,
    scan,
    matmul,
    einsum,
    recurrent,
    recurrence,
    conv,
    conv_transpose,
    pool,
    softmax,
    norm,
    vector_norm,
    resize,
    quantize,
    one_hot,
    loss,
}

mod cell;
mod composite;
mod contraction;
mod domain;
mod expansion;
mod lanes;
#[cfg(test)]
mod oracle_tests;
mod pointwise;
mod sliding;

pub use composite::expand_composites;

/// The declaration of an operator.
#[derive(Debug)]
pub struct OpDef {
    /// The name in text forms, snake_case, unique.
    pub name: &'static str,
    /// How many operands it takes.
    pub arity: Arity,
    /// Attributes by name. All are required: text forms say everything.
    pub attrs: &'static [(&'static str, AttrKind)],
    /// The result's type, or the constraint that is violated.
    pub infer: fn(&OpCtx<'_>) -> Result<Type, Violation>,
    /// The reference evaluation.
    pub eval: Eval,
    /// What passes and code generation see.
    pub class: OpClass,
    /// What it computes, with its constraints (C1), (C2), ... and the source of each formula; Markdown.
    pub doc: &'static str,
}

/// How many operands an op takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

/// An operator: a reference to its declaration, equal by name.
#[derive(Clone, Copy)]
pub struct OpRef(&'static OpDef);

/// What an op's functions know of the node they are asked about.
#[derive(Debug, Clone, Copy)]
pub struct OpCtx<'a> {
    /// The node's attributes, with the declared names and kinds.
    pub attrs: &'a Attrs,
    /// The operands' types.
    pub operands: &'a [Type],
}

/// A violated constraint of an op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The constraint's label in the op's documentation, such as `C2`.
    pub constraint: &'static str,
    /// What is wrong, with the values.
    pub message: String,
}

/// The class of an op with what lowering needs. The functions may assume that inference succeeded.
#[derive(Debug, Clone, Copy)]
pub enum OpClass {
    /// Comes from outside the graph.
    Source(SourceKind),
    /// One element of the result from the elements at the same position. All operands and the result
    /// have one shape.
    Pointwise(fn(&OpCtx<'_>) -> ScalarExpr),
    /// Folds the elements along some axes.
    Reduce(fn(&OpCtx<'_>) -> ReduceForm),
    /// Folds along one axis and keeps each partial result.
    Scan(fn(&OpCtx<'_>) -> ScanForm),
    /// A sum of products of two operands.
    Contraction(fn(&OpCtx<'_>) -> ContractionForm),
    /// Folds a sliding window.
    Window(fn(&OpCtx<'_>) -> WindowForm),
    /// Moves elements without changing them.
    Movement(fn(&OpCtx<'_>) -> MovementForm),
    /// Stands for other ops; canonicalisation expands it.
    Composite(fn(&OpCtx<'_>, &mut Expansion<'_>) -> Result<NodeId, Diagnostic>),
    /// A loop over time steps.
    Recurrent(fn(&OpCtx<'_>) -> RecurrentForm),
    /// Can be imported but not lowered, with the reason.
    Opaque(&'static str),
}

/// Where a source op's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// The caller, at each run.
    Input,
    /// The caller, at load.
    Weight,
    /// The node's attribute.
    Constant,
    /// The position along an axis.
    Iota,
}

/// How elements are folded.
///
/// A fold has one or more accumulators (an arg-max has value and position). Folding an element is
/// `acc = combine(acc, lift(element))`; `combine` is associative and commutative up to rounding, and
/// `init` is its neutral element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reducer {
    /// The accumulators' initial values.
    pub init: Vec<Scalar>,
    /// One element as accumulators. Arg 0: the element; arg 1: its position along the (single) folded
    /// axis or row-major in the window, an `i64`.
    pub lift: Vec<ScalarExpr>,
    /// Two sets of accumulators made one. Args: first the one's, then the other's, in order; the first
    /// holds the elements that come earlier.
    pub combine: Vec<ScalarExpr>,
    /// The result. Args: the accumulators, then the number of folded elements as an `i64`.
    pub finish: ScalarExpr,
}

/// What a [`OpClass::Reduce`] op folds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReduceForm {
    /// The folded axes of the operand, sorted.
    pub axes: Vec<usize>,
    /// Whether the result keeps them with size 1.
    pub keepdims: bool,
    /// How.
    pub reducer: Reducer,
}

/// What a [`OpClass::Scan`] op folds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScanForm {
    /// The axis it goes along.
    pub axis: usize,
    /// From the end to the start.
    pub reverse: bool,
    /// Each result leaves its own element out (the first one is the finished initial value).
    pub exclusive: bool,
    /// How.
    pub reducer: Reducer,
}

/// What a [`OpClass::Window`] op folds: for each element of the result, the elements of the operand at
/// `index` for all positions of the window, where `index` lies inside the operand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowForm {
    /// Sizes of the window's axes, which follow the result's axes in `index`.
    pub window: Vec<Dim>,
    /// The operand's index; one expression per axis of the operand. Positions outside are left out.
    pub index: Vec<IndexExpr>,
    /// How. The position in `lift` is row-major in the operand's sliding axes' plane as the op defines
    /// it, given by `position` below.
    pub reducer: Reducer,
    /// The position `lift` sees, over the result's and the window's axes.
    pub position: IndexExpr,
    /// What `finish` gets as the number of folded elements.
    pub count: WindowCount,
}

/// How a window counts its elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WindowCount {
    /// Those inside the operand.
    Inside,
    /// Those whose (operand) index lies within these bounds, `low <= index < high`, per operand axis:
    /// padding counts, what a rounded-up output adds does not.
    Within(Vec<(Dim, Dim)>),
}

/// What an iteration axis of a contraction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AxisRole {
    /// In both operands and the result.
    Batch,
    /// In the left operand and the result.
    Rows,
    /// In the right operand and the result.
    Columns,
    /// Summed over.
    Inner,
}

/// A [`OpClass::Contraction`]: `result[out(i)] = sum over inner axes of lhs[left(i)] * rhs[right(i)]`,
/// for all positions `i` of the iteration axes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContractionForm {
    /// Iteration axes: size and role. All `Inner` axes come last.
    pub axes: Vec<(Dim, AxisRole)>,
    /// The left operand's elements.
    pub lhs: OperandMap,
    /// The right operand's elements.
    pub rhs: OperandMap,
    /// The result's index, one expression per axis, linear in the axes. Each position of the non-inner axes
    /// gives another element, or an index outside the result, which is left out; all elements are reached.
    pub out: Vec<IndexExpr>,
    /// The type sums are kept in.
    pub accumulator: DType,
    /// What it is for a precision policy.
    pub kind: ContractionKind,
}

/// What precision policies tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ContractionKind {
    /// A matrix product of any form.
    Product,
    /// A convolution of any form.
    Convolution {
        /// Groups of channels.
        groups: i64,
        /// Channels of a group that are summed over.
        channels: Dim,
    },
}

/// Which element of a contraction's operand belongs to a position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OperandMap {
    /// The operand's index, one expression per axis.
    pub index: Vec<IndexExpr>,
    /// Where a guard fails, the product counts as zero. Code may take the element as zero instead, which
    /// differs only where the other operand's element is infinite or NaN.
    pub guards: Vec<Guard>,
}

/// What a [`OpClass::Movement`] op moves: the first case whose guards hold gives the element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MovementForm {
    /// Cases in order.
    pub cases: Vec<MovementCase>,
    /// The element where no case holds; without one, the last case always holds.
    pub fill: Option<Scalar>,
}

/// One case of a [`MovementForm`], over the result's axes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MovementCase {
    /// When it applies.
    pub guards: Vec<Guard>,
    /// From which operand.
    pub operand: usize,
    /// The operand's index, one expression per axis.
    pub index: Vec<IndexExpr>,
}

impl MovementForm {
    /// One operand, no condition.
    pub fn total(operand: usize, index: Vec<IndexExpr>) -> MovementForm {
        MovementForm {
            cases: vec![MovementCase { guards: Vec::new(), operand, index }],
            fill: None,
        }
    }
}

/// What a [`OpClass::Recurrent`] op repeats: at each step, from what comes in and from the states after the
/// step before, the states after it. All operands and the result have one float type.
///
/// Operand 0 comes in, `[steps, batch, directions * gates * hidden]`; operand 1 is the recurrent weight,
/// `[directions, gates * hidden, hidden]`; then one `[directions, batch, hidden]` for each state, its
/// initial value; then, if there are parameters, `[directions, parameters * hidden]`. The result is
/// `[steps, batch, directions, hidden]`: state 0 after each step, at the step's place among those that came
/// in.
///
/// A step has phases. In each, for some gates, the recurrent sums are taken: for gate `g` and hidden unit
/// `j`, the sum over `k` of the weight at `g * hidden + j` and `k`, times the published value of unit `k`.
/// State 0 is published before the first phase, before the others what the phase before gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecurrentForm {
    /// The number of steps.
    pub steps: Dim,
    /// The number of sequences.
    pub batch: Dim,
    /// The number of hidden units.
    pub hidden: Dim,
    /// For each direction, whether it goes from the last step to the first.
    pub reverse: Vec<bool>,
    /// The number of gates.
    pub gates: usize,
    /// The number of states.
    pub states: usize,
    /// The number of parameters of each hidden unit.
    pub parameters: usize,
    /// The phases, in order.
    pub phases: Vec<RecurrentPhase>,
    /// A state whose final value follows the steps in the result, as one more step.
    pub last: Option<usize>,
}

/// A phase of each step of a [`RecurrentForm`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecurrentPhase {
    /// The gates whose recurrent sums are taken.
    pub gates: std::ops::Range<usize>,
    /// The states after the step, in the last phase; the published value in the others. Args are a hidden
    /// unit's: what comes in for each gate, the recurrent sum of each gate (those of later phases must not be
    /// used), the states before the step, the parameters.
    pub results: Vec<ScalarExpr>,
}

/// Where a composite op's expansion goes.
#[derive(Debug)]
pub struct Expansion<'a> {
    /// The graph that the expansion is added to.
    pub graph: &'a mut Graph,
    /// The composite's operands in it.
    pub operands: &'a [NodeId],
    /// The composite's source locations, for the new nodes.
    pub loc: &'a LocSet,
}

impl Expansion<'_> {
    /// Adds a node with the composite's locations.
    ///
    /// # Errors
    /// When the op rejects its operands.
    pub fn add(
        &mut self,
        op: &str,
        attrs: Attrs,
        operands: &[NodeId],
    ) -> Result<NodeId, Diagnostic> {
        self.graph.add(op, attrs, operands, self.loc.clone())
    }
}

/// All operators, in the order of their declaration.
pub fn all() -> &'static [&'static OpDef] {
    &ALL
}

/// The operator of that name.
pub fn by_name(name: &str) -> Option<OpRef> {
    static BY_NAME: LazyLock<std::collections::BTreeMap<&'static str, OpRef>> =
        LazyLock::new(|| all().iter().map(|&def| (def.name, OpRef(def))).collect());
    BY_NAME.get(name).copied()
}

impl OpRef {
    /// The declaration.
    pub fn def(self) -> &'static OpDef {
        self.0
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The class.
    pub fn class(self) -> &'static OpClass {
        &self.0.class
    }
}

impl OpClass {
    /// Whether ops of this class decide how a region is lowered. A region has one such op at most.
    pub fn is_anchor(&self) -> bool {
        matches!(
            self,
            OpClass::Reduce(_)
                | OpClass::Scan(_)
                | OpClass::Contraction(_)
                | OpClass::Window(_)
                | OpClass::Recurrent(_)
        )
    }

    /// The class's name, such as `contraction`.
    pub fn name(&self) -> &'static str {
        match self {
            OpClass::Source(_) => "source",
            OpClass::Pointwise(_) => "pointwise",
            OpClass::Reduce(_) => "reduce",
            OpClass::Scan(_) => "scan",
            OpClass::Contraction(_) => "contraction",
            OpClass::Window(_) => "window",
            OpClass::Movement(_) => "movement",
            OpClass::Composite(_) => "composite",
            OpClass::Recurrent(_) => "recurrent",
            OpClass::Opaque(_) => "opaque",
        }
    }
}

impl PartialEq for OpRef {
    fn eq(&self, other: &OpRef) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for OpRef {}

impl PartialOrd for OpRef {
    fn partial_cmp(&self, other: &OpRef) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpRef {
    fn cmp(&self, other: &OpRef) -> std::cmp::Ordering {
        self.0.name.cmp(other.0.name)
    }
}

impl Hash for OpRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for OpRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for OpRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Arity {
    /// Whether an op of this arity takes `count` operands.
    pub fn takes(self, count: usize) -> bool {
        match self {
            Arity::Exactly(exact) => count == exact,
            Arity::AtLeast(least) => count >= least,
        }
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arity::Exactly(exact) => write!(f, "{exact}"),
            Arity::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

impl Violation {
    /// A violated constraint.
    pub fn new(constraint: &'static str, message: impl Into<String>) -> Violation {
        Violation { constraint, message: message.into() }
    }
}

/// Requires a constraint to hold.
///
/// # Errors
/// The violation, when it does not.
pub fn require(
    holds: bool,
    constraint: &'static str,
    message: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(constraint, message())) }
}

impl<'a> OpCtx<'a> {
    /// The only or first operand's type.
    pub fn first(&self) -> &'a Type {
        &self.operands[0]
    }

    /// The only or first operand's shape.
    pub fn shape(&self) -> &'a Shape {
        &self.operands[0].shape
    }
}
