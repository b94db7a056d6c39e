//! What is known of every e-class: type, facts about its value, source locations.

use std::collections::BTreeMap;

use egg::{DidMerge, EGraph, Id};
use fornax_ir::interp::{self, Value, rounded};
use fornax_ir::op::{OpClass, OpCtx, SourceKind};
use fornax_ir::{
    Attrs, DType, DimRange, Dims, Guard, IndexExpr, LocSet, Scalar, Symbol, Tensor, Type, attrs,
    infer, op,
};

use super::language::{ENode, Head};
use super::range::{Interval, of_expr};

/// An e-graph over the op table.
pub type OpGraph = EGraph<ENode, Facts>;

/// A set of axes; axes from 64 on are always in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Axes(u64);

impl Axes {
    /// Whether an axis is in the set.
    pub fn has(self, axis: usize) -> bool {
        axis >= 64 || self.0 & (1 << axis) != 0
    }

    /// Adds an axis.
    pub fn insert(&mut self, axis: usize) {
        if axis < 64 {
            self.0 |= 1 << axis;
        }
    }

    /// The axes in both sets.
    pub fn common(self, other: Axes) -> Axes {
        Axes(self.0 & other.0)
    }

    /// The axes in either set.
    pub fn union(self, other: Axes) -> Axes {
        Axes(self.0 | other.0)
    }
}

/// What is known of the value of an e-class. All of it stays true when more becomes known.
#[derive(Debug, Clone)]
pub struct Data {
    /// Its type, with sizes in normal form.
    pub ty: Type,
    /// The nodes of the imported model it comes from.
    pub loc: LocSet,
    /// It depends on weights and constants alone, so that it can be computed once, after loading.
    pub prepared: bool,
    /// All its elements are this number.
    pub constant: Option<Scalar>,
    /// All its elements that are no NaN lie here.
    pub range: Interval,
    /// The axes of another size than 1 along which its elements may differ.
    pub varies: Axes,
}

impl Data {
    /// Whether the elements are the same along an axis (which has one element, or repeats one).
    pub fn is_uniform(&self, axis: usize) -> bool {
        !self.varies.has(axis) || self.ty.shape[axis].is(1)
    }
}

/// The analysis, and what a rule that is being applied gives to the nodes it makes.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Ranges of the symbolic sizes.
    pub dims: BTreeMap<Symbol, DimRange>,
    /// Locations of the nodes that are being made.
    pub loc: LocSet,
    /// Classes that were found equal but have different types; the first one.
    pub conflict: Option<(Type, Type)>,
}

impl egg::Analysis<ENode> for Facts {
    type Data = Data;

    fn make(egraph: &mut OpGraph, node: &ENode, _: Id) -> Data {
        let operands: Vec<&Data> = node.children.iter().map(|&id| &egraph[id].data).collect();
        data(node, &operands, &egraph.analysis)
    }

    fn merge(&mut self, a: &mut Data, b: Data) -> DidMerge {
        if a.ty != b.ty && self.conflict.is_none() {
            self.conflict = Some((a.ty.clone(), b.ty.clone()));
        }
        let constant = a.constant.or(b.constant);
        let merged = Data {
            ty: a.ty.clone(),
            loc: LocSet::none(),
            prepared: a.prepared || b.prepared,
            constant,
            range: a.range.meet(b.range),
            varies: a.varies.common(b.varies),
        };
        let differs = |from: &Data| {
            (from.prepared, from.constant, from.varies)
                != (merged.prepared, merged.constant, merged.varies)
                || from.range != merged.range
        };
        let result = DidMerge(differs(a), differs(&b));
        let mut loc = std::mem::take(&mut a.loc);
        loc.union(&b.loc);
        *a = Data { loc, ..merged };
        result
    }

    /// A value of one number has a node that says so: a number of rank 0, broadcast.
    fn modify(egraph: &mut OpGraph, id: Id) {
        let data = &egraph[id].data;
        let Some(constant) = data.constant else { return };
        let shape = data.ty.shape.clone();
        let scalar = egraph.add(ENode { rule: Some(FOLDED), ..constant_node(constant) });
        let id = egraph.find(id);
        let spread = if shape.rank() == 0 {
            scalar
        } else {
            let head = Head::new(named("broadcast"), attrs! { shape: shape.to_vec() });
            egraph.add(ENode { rule: Some(FOLDED), ..ENode::new(head, [scalar]) })
        };
        egraph.union(id, spread);
    }
}

/// Stands for the folding of constants where nodes name the rule that made them.
pub(crate) const FOLDED: u16 = u16::MAX;

/// The operator of that name.
///
/// # Panics
/// When the op table has none.
pub(crate) fn named(name: &str) -> op::OpRef {
    op::by_name(name).unwrap_or_else(|| panic!("invariant: `{name}` is in the op table"))
}

/// A number of rank 0.
pub(crate) fn constant_node(scalar: Scalar) -> ENode {
    let value = match scalar {
        Scalar::Float(dtype, value) => interp::scalar_tensor(dtype, value.0),
        Scalar::Int(dtype, value) => {
            let array = interp::Array::new([], vec![value]);
            Value::<f64>::Int(array).to_tensor(dtype)
        }
    };
    ENode::new(Head::new(named("constant"), attrs! { value: value }), [])
}

/// The number that all elements of a tensor are.
pub(crate) fn splat(tensor: &Tensor) -> Option<Scalar> {
    let size = tensor.dtype().size();
    let bytes = tensor.bytes();
    let first = bytes.get(..size)?;
    if !bytes.chunks(size).all(|element| element == first) {
        return None;
    }
    let one = Tensor::new(tensor.dtype(), [], first.to_vec()).ok()?;
    Some(scalar_of(&Value::from_tensor(&one), tensor.dtype()))
}

fn scalar_of(value: &Value<f64>, dtype: DType) -> Scalar {
    match value {
        Value::Float(array) => Scalar::new(dtype, rounded(dtype, array.data[0])),
        Value::Int(array) => Scalar::Int(dtype, array.data[0]),
    }
}

fn data(node: &ENode, operands: &[&Data], facts: &Facts) -> Data {
    let types: Vec<Type> = operands.iter().map(|data| data.ty.clone()).collect();
    let ty = infer(node.op(), node.attrs(), &types).unwrap_or_else(|error| {
        panic!("invariant: nodes are checked before they are made: {error}")
    });
    let ctx = OpCtx { attrs: node.attrs(), operands: &types };
    // 8-bit floats are stored and converted, not computed with.
    let is_number = !ty.dtype.is_float() || ty.dtype.size() > 1;
    let constant = if is_number { constant(node, operands, &types, &ty) } else { None };
    let prepared = match node.op().class() {
        OpClass::Source(SourceKind::Input) => false,
        OpClass::Source(_) => true,
        _ => operands.iter().all(|data| data.prepared),
    };
    let range = match constant {
        Some(number) => Interval::point(number.to_f64()),
        None => range(node, operands, &ctx, &ty),
    };
    let varies =
        if constant.is_some() { Axes::default() } else { varies(node, operands, &ctx, &ty) };
    Data { ty, loc: facts.loc.clone(), prepared, constant, range, varies }
}

/// The number all elements are, when that follows exactly: the result of an op on numbers.
fn constant(node: &ENode, operands: &[&Data], types: &[Type], ty: &Type) -> Option<Scalar> {
    match node.op().class() {
        OpClass::Source(SourceKind::Constant) => splat(node.attrs().tensor("value")),
        OpClass::Pointwise(_) => {
            let numbers: Option<Vec<Value<f64>>> =
                operands.iter().map(|data| data.constant.map(number)).collect();
            let scalars: Vec<Type> =
                types.iter().map(|ty| Type::new(ty.dtype, Vec::new())).collect();
            let numbers = numbers?;
            let values: Vec<&Value<f64>> = numbers.iter().collect();
            let value =
                interp::evaluate_op(node.op(), node.attrs(), &scalars, &values, &Dims::new());
            Some(scalar_of(&value.ok()?, ty.dtype))
        }
        OpClass::Movement(form) => {
            let form = form(&OpCtx { attrs: node.attrs(), operands: types });
            let mut of_cases = form.cases.iter().map(|case| operands[case.operand].constant);
            let first = of_cases.next()??;
            let same = of_cases.all(|other| other == Some(first));
            (same && form.fill.is_none_or(|fill| fill == first)).then_some(first)
        }
        _ => None,
    }
}

fn number(scalar: Scalar) -> Value<f64> {
    match scalar {
        Scalar::Float(_, value) => Value::Float(interp::Array::new([], vec![value.0])),
        Scalar::Int(_, value) => Value::Int(interp::Array::new([], vec![value])),
    }
}

fn range(node: &ENode, operands: &[&Data], ctx: &OpCtx<'_>, ty: &Type) -> Interval {
    if !ty.dtype.is_float() {
        return Interval::ALL;
    }
    match node.op().class() {
        OpClass::Pointwise(body) => {
            let args: Vec<Interval> = operands.iter().map(|data| data.range).collect();
            of_expr(&body(ctx), &args)
        }
        OpClass::Movement(form) => {
            let form = form(ctx);
            let cases = form.cases.iter().map(|case| operands[case.operand].range);
            let fill = form.fill.iter().map(|fill| Interval::point(fill.to_f64()));
            cases.chain(fill).reduce(Interval::hull).unwrap_or(Interval::ALL)
        }
        OpClass::Reduce(form) => {
            let (form, shape) = (form(ctx), ctx.shape());
            let is_filled = |&axis: &usize| shape[axis].as_const().is_some_and(|size| size > 0);
            operands[0].range.of_fold(&form.reducer, !form.axes.iter().all(is_filled))
        }
        OpClass::Window(form) => operands[0].range.of_fold(&form(ctx).reducer, true),
        _ => Interval::ALL,
    }
}

/// Adds the axes that an index expression depends on.
fn axes_of(expr: &IndexExpr, to: &mut Axes) {
    match expr {
        IndexExpr::Axis(axis) => to.insert(*axis),
        IndexExpr::Size(_) => {}
        IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => axes_of(x, to),
        IndexExpr::Add(a, b) | IndexExpr::Min(a, b) | IndexExpr::Max(a, b) => {
            axes_of(a, to);
            axes_of(b, to);
        }
        IndexExpr::Element { index, .. } => index.iter().for_each(|expr| axes_of(expr, to)),
    }
}

fn guard_axes(guards: &[Guard], to: &mut Axes) {
    for guard in guards {
        match guard {
            Guard::Within { value, .. } | Guard::Divisible { value, .. } => axes_of(value, to),
        }
    }
}

/// The axes that reach an operand along axes it varies along, or that read an index from one.
fn read_axes(index: &[IndexExpr], operand: &Data, to: &mut Axes) {
    for (axis, expr) in index.iter().enumerate() {
        if !operand.is_uniform(axis) || expr.has_elements() {
            axes_of(expr, to);
        }
    }
}

fn varies(node: &ENode, operands: &[&Data], ctx: &OpCtx<'_>, ty: &Type) -> Axes {
    let mut found = Axes::default();
    match node.op().class() {
        OpClass::Source(SourceKind::Iota) => found.insert(node.attrs().axis("axis")),
        OpClass::Pointwise(_) => {
            found = operands.iter().fold(found, |all, data| all.union(data.varies));
        }
        OpClass::Movement(form) => {
            let form = form(ctx);
            for case in &form.cases {
                read_axes(&case.index, operands[case.operand], &mut found);
                guard_axes(&case.guards, &mut found);
            }
        }
        OpClass::Reduce(form) => {
            let form = form(ctx);
            let mut to = 0;
            for axis in 0..operands[0].ty.rank() {
                let folded = form.axes.contains(&axis);
                if !folded && !operands[0].is_uniform(axis) {
                    found.insert(to);
                }
                to += usize::from(!folded || form.keepdims);
            }
        }
        OpClass::Contraction(form) => {
            let form = form(ctx);
            let mut iterated = Axes::default();
            for (map, operand) in [&form.lhs, &form.rhs].into_iter().zip(operands) {
                read_axes(&map.index, operand, &mut iterated);
                guard_axes(&map.guards, &mut iterated);
            }
            for (axis, expr) in form.out.iter().enumerate() {
                let mut from = Axes::default();
                axes_of(expr, &mut from);
                if from.common(iterated) != Axes::default() {
                    found.insert(axis);
                }
            }
        }
        _ => (0..ty.rank()).for_each(|axis| found.insert(axis)),
    }
    let mut kept = Axes::default();
    (0..ty.rank())
        .filter(|&axis| found.has(axis) && !ty.shape[axis].is(1))
        .for_each(|axis| kept.insert(axis));
    kept
}

/// The operator and attributes as a node over children, when inference accepts them.
pub(crate) fn checked(
    egraph: &OpGraph,
    name: &str,
    attrs: Attrs,
    children: &[Id],
) -> Option<ENode> {
    let types: Vec<Type> = children.iter().map(|&id| egraph[id].data.ty.clone()).collect();
    let op = named(name);
    infer(op, &attrs, &types).ok()?;
    Some(ENode::new(Head::new(op, attrs), children.iter().copied()))
}
