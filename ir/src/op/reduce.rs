//! Reductions over axes.
//!
//! Half floats are summed in `f32`. A reduction over no axis changes nothing but what `finish` does to
//! one element; a reduction over an axis of size 0 gives what the op says about no element.

use super::contraction::accumulator;
use super::domain::Domain;
use super::pointwise::arg;
use super::{Arity, OpClass, OpCtx, OpDef, ReduceForm, Reducer, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Offsets, Real, Value, strides};
use crate::{
    AttrKind, BinaryFn, DType, Dim, Scalar, ScalarExpr, Type, UnaryFn, eval_polynomial, eval_real,
};

/// A reduction over several axes.
macro_rules! reduction {
    ($name:literal, $domain:ident ($domain_doc:literal), $doc:literal, $eval:expr, $reducer:expr) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(1),
            attrs: &[("axes", AttrKind::Ints), ("keepdims", AttrKind::Bool)],
            infer: |ctx| reduced_type(ctx, Domain::$domain),
            eval: $eval,
            class: OpClass::Reduce(|ctx| ReduceForm {
                axes: ctx.attrs.axes("axes"),
                keepdims: ctx.attrs.flag("keepdims"),
                reducer: {
                    let reducer: fn(DType) -> Reducer = $reducer;
                    reducer(ctx.first().dtype)
                },
            }),
            doc: concat!(
                $doc, " `keepdims` leaves the axes with size 1. (C1) The operand is ", $domain_doc,
                ". (C2) `axes` are axes of the operand, in rising order."
            ),
        }
    };
}

#[rustfmt::skip]
pub(super) const DEFS: &[OpDef] = &[
    reduction!("reduce_sum", Numeric ("a float or an integer"),
        "The sum along `axes` (ONNX ReduceSum, opset 13); integers wrap; of nothing: 0.",
        eval_polynomial!(eval_sum), sum),
    reduction!("reduce_mean", Numeric ("a float or an integer"),
        "The mean along `axes` (ONNX ReduceMean, opset 18). Sums of integers wrap at 64 bits, and their \
         quotient is rounded towards zero. Of nothing: NaN, or 0 for integers.",
        eval_real!(eval_mean), mean),
    reduction!("reduce_max", Numeric ("a float or an integer"),
        "The largest along `axes` (ONNX ReduceMax, opset 20), NaN if one is NaN; of nothing: minus \
         infinity or the smallest integer.",
        eval_real!(eval_max), |dtype| simple(Scalar::lowest(dtype), BinaryFn::Max)),
    reduction!("reduce_min", Numeric ("a float or an integer"),
        "The smallest along `axes` (ONNX ReduceMin, opset 20), NaN if one is NaN; of nothing: infinity \
         or the largest integer.",
        eval_real!(eval_min), |dtype| simple(Scalar::highest(dtype), BinaryFn::Min)),
    reduction!("reduce_prod", Numeric ("a float or an integer"),
        "The product along `axes` (ONNX ReduceProd, opset 18); integers wrap; of nothing: 1.",
        eval_polynomial!(eval_prod), product),
    reduction!("reduce_any", Bool ("bool"),
        "Whether one along `axes` is true (ONNX ReduceMax, opset 20, on bool); of nothing: false.",
        eval_polynomial!(eval_any), |dtype| simple(Scalar::Int(dtype, 0), BinaryFn::Or)),
    reduction!("reduce_all", Bool ("bool"),
        "Whether all along `axes` are true (ONNX ReduceMin, opset 20, on bool); of nothing: true.",
        eval_polynomial!(eval_all), |dtype| simple(Scalar::Int(dtype, 1), BinaryFn::And)),
    ARG_MAX,
    ARG_MIN,
];

const ARG_MAX: OpDef = OpDef {
    name: "arg_max",
    arity: Arity::Exactly(1),
    attrs: &[
        ("axis", AttrKind::Int),
        ("keepdims", AttrKind::Bool),
        ("select_last", AttrKind::Bool),
    ],
    infer: infer_arg,
    eval: eval_real!(eval_arg_max),
    class: OpClass::Reduce(|ctx| arg_form(ctx, true)),
    doc: "The position of the largest along `axis`, an `i64`: the first one, or the last one with \
          `select_last`. NaN counts as larger than all else, as in PyTorch. Of nothing: -1. `keepdims` \
          leaves the axis with size 1. (C1) The operand is a float or an integer. (C2) `axis` is an \
          axis of the operand. Source: ONNX ArgMax, opset 13.",
};

const ARG_MIN: OpDef = OpDef {
    name: "arg_min",
    eval: eval_real!(eval_arg_min),
    class: OpClass::Reduce(|ctx| arg_form(ctx, false)),
    doc: "The position of the smallest along `axis`, an `i64`: the first one, or the last one with \
          `select_last`. NaN counts as smaller than all else, as in PyTorch. Of nothing: -1. `keepdims` \
          leaves the axis with size 1. (C1) The operand is a float or an integer. (C2) `axis` is an \
          axis of the operand. Source: ONNX ArgMin, opset 13.",
    ..ARG_MAX
};

/// The type of a reduction along the attribute `axes`.
pub(super) fn reduced_type(ctx: &OpCtx<'_>, domain: Domain) -> Result<Type, Violation> {
    let (x, axes) = (ctx.first(), ctx.attrs.ints("axes"));
    domain.require(x.dtype, "C1")?;
    let valid = axes.is_sorted_by(|a, b| a < b)
        && axes.iter().all(|axis| (0..x.rank() as i64).contains(axis));
    require(valid, "C2", || format!("{axes:?} are not axes of {x} in rising order"))?;
    Ok(Type::new(x.dtype, kept(&x.shape, &ctx.attrs.axes("axes"), ctx.attrs.flag("keepdims"))))
}

/// The sizes that a reduction leaves.
fn kept(shape: &[Dim], axes: &[usize], keepdims: bool) -> Vec<Dim> {
    let size = |(axis, size): (usize, &Dim)| match axes.contains(&axis) {
        false => Some(size.clone()),
        true => keepdims.then(|| Dim::constant(1)),
    };
    shape.iter().enumerate().filter_map(size).collect()
}

/// One accumulator of the operand's type.
fn simple(init: Scalar, combine: BinaryFn) -> Reducer {
    Reducer {
        init: vec![init],
        lift: vec![arg(0)],
        combine: vec![arg(0).binary(combine, arg(1))],
        finish: arg(0),
    }
}

/// `x` as a `to`, which need not be another type.
fn cast(x: ScalarExpr, from: DType, to: DType) -> ScalarExpr {
    if from == to { x } else { x.cast(to) }
}

/// The sum in the accumulator type.
pub(super) fn sum(dtype: DType) -> Reducer {
    wide(dtype, 0.0, BinaryFn::Add)
}

/// The product in the accumulator type.
pub(super) fn product(dtype: DType) -> Reducer {
    wide(dtype, 1.0, BinaryFn::Mul)
}

fn wide(dtype: DType, init: f64, combine: BinaryFn) -> Reducer {
    let wide = accumulator(dtype);
    Reducer {
        init: vec![Scalar::new(wide, init)],
        lift: vec![cast(arg(0), dtype, wide)],
        combine: vec![arg(0).binary(combine, arg(1))],
        finish: cast(arg(0), wide, dtype),
    }
}

fn mean(dtype: DType) -> Reducer {
    let wide = match dtype {
        _ if dtype.is_unsigned_int() => DType::U64,
        _ if dtype.is_int() => DType::I64,
        _ => accumulator(dtype),
    };
    Reducer {
        init: vec![Scalar::new(wide, 0.0)],
        lift: vec![cast(arg(0), dtype, wide)],
        combine: vec![arg(0) + arg(1)],
        finish: cast(arg(0) / cast(arg(1), DType::I64, wide), wide, dtype),
    }
}

fn infer_arg(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, axis) = (ctx.first(), ctx.attrs.int("axis"));
    Domain::Numeric.require(x.dtype, "C1")?;
    require((0..x.rank() as i64).contains(&axis), "C2", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    let shape = kept(&x.shape, &[axis as usize], ctx.attrs.flag("keepdims"));
    Ok(Type::new(DType::I64, shape))
}

/// Value and position, -1 for none. Positions decide between equals, so that elements may be combined
/// in any order.
fn arg_form(ctx: &OpCtx<'_>, is_max: bool) -> ReduceForm {
    let dtype = ctx.first().dtype;
    let [value, position, other, other_position] = [0, 1, 2, 3].map(arg);
    let zero = || ScalarExpr::number(DType::I64, 0.0);
    let both = |a: ScalarExpr, b: ScalarExpr| a.binary(BinaryFn::And, b);
    let either = |a: ScalarExpr, b: ScalarExpr| a.binary(BinaryFn::Or, b);
    let less = |a: &ScalarExpr, b: &ScalarExpr| a.clone().binary(BinaryFn::Lt, b.clone());
    let mut better = if is_max { less(&value, &other) } else { less(&other, &value) };
    let mut equal = value.clone().binary(BinaryFn::Eq, other.clone());
    if dtype.is_float() {
        let is_nan = |x: &ScalarExpr| x.clone().unary(UnaryFn::IsNan);
        let not = |x: ScalarExpr| x.unary(UnaryFn::Not);
        better = either(better, both(is_nan(&other), not(is_nan(&value))));
        equal = either(equal, both(is_nan(&other), is_nan(&value)));
    }
    let preferred = if ctx.attrs.flag("select_last") {
        less(&position, &other_position)
    } else {
        less(&other_position, &position)
    };
    let is_none = less(&position, &zero());
    let is_some = zero().binary(BinaryFn::Le, other_position.clone());
    let take = both(is_some, either(is_none, either(better, both(equal, preferred))));
    ReduceForm {
        axes: vec![ctx.attrs.axis("axis")],
        keepdims: ctx.attrs.flag("keepdims"),
        reducer: Reducer {
            init: vec![Scalar::new(dtype, 0.0), Scalar::Int(DType::I64, -1)],
            lift: vec![arg(0), arg(1)],
            combine: vec![
                take.clone().select(other, value),
                take.select(other_position, position),
            ],
            finish: arg(1),
        },
    }
}

/// Folds the elements along the attribute `axes` in row-major order.
pub(super) fn fold_axes<E: Copy, A: Copy>(
    ctx: &EvalCtx<'_>,
    x: &Array<E>,
    init: A,
    combine: impl Fn(A, E) -> A,
) -> Array<A> {
    let axes = ctx.attrs.axes("axes");
    let mut sizes = x.shape.clone();
    for &axis in &axes {
        sizes[axis] = 1;
    }
    let mut steps = strides(&sizes);
    for &axis in &axes {
        steps[axis] = 0;
    }
    let mut data = vec![init; ctx.shape.iter().product()];
    for (&element, target) in x.data.iter().zip(Offsets::new(&x.shape, &steps, 0)) {
        data[target] = combine(data[target], element);
    }
    Array::new(ctx.shape, data)
}

fn eval_sum<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(fold_axes(ctx, x, T::zero(), |sum, x| sum + x)),
        Value::Int(x) => Value::Int(fold_axes(ctx, x, 0, i64::wrapping_add)),
    }
}

fn eval_prod<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(fold_axes(ctx, x, T::from_i64(1), |sum, x| sum * x)),
        Value::Int(x) => Value::Int(fold_axes(ctx, x, 1, i64::wrapping_mul)),
    }
}

fn eval_mean<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let shape = operands[0].shape();
    let count: usize = ctx.attrs.axes("axes").iter().map(|&axis| shape[axis]).product();
    match eval_sum(ctx, operands) {
        Value::Float(sum) => Value::Float(sum.map(|sum| sum.map(|sum| sum / count as f64))),
        Value::Int(sum) if ctx.result.dtype.is_unsigned_int() => {
            Value::Int(sum.map(|sum| (sum as u64).checked_div(count as u64).unwrap_or(0) as i64))
        }
        Value::Int(sum) => Value::Int(sum.map(|sum| sum.checked_div(count as i64).unwrap_or(0))),
    }
}

fn eval_max<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    extreme(ctx, operands[0], f64::NEG_INFINITY, |x, best| x > best, |x, best| x > best)
}

fn eval_min<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    extreme(ctx, operands[0], f64::INFINITY, |x, best| x < best, |x, best| x < best)
}

/// The first element that no other one beats, NaN before all.
fn extreme<T: Real>(
    ctx: &EvalCtx<'_>,
    x: &Value<T>,
    none: f64,
    beats: impl Fn(f64, f64) -> bool,
    int_beats: impl Fn(i128, i128) -> bool,
) -> Value<T> {
    let dtype = ctx.result.dtype;
    match x {
        Value::Float(x) => Value::Float(fold_axes(ctx, x, T::from_f64(none), |best, x| {
            let (old, new) = (best.to_f64(), x.to_f64());
            let zeros = old == 0.0 && new == 0.0 && beats(new.signum(), old.signum());
            if !old.is_nan() && (new.is_nan() || beats(new, old) || zeros) { x } else { best }
        })),
        Value::Int(x) => {
            let none = if none < 0.0 { Scalar::lowest(dtype) } else { Scalar::highest(dtype) };
            let Scalar::Int(_, none) = none else {
                unreachable!("invariant: an integer type's ends are integers");
            };
            let number = |x: i64| {
                if dtype == DType::U64 { i128::from(x as u64) } else { i128::from(x) }
            };
            Value::Int(fold_axes(ctx, x, none, |best, x| {
                if int_beats(number(x), number(best)) { x } else { best }
            }))
        }
    }
}

fn eval_any<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Int(fold_axes(ctx, operands[0].int(), 0, |any, x| i64::from(any != 0 || x != 0)))
}

fn eval_all<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Int(fold_axes(ctx, operands[0].int(), 1, |all, x| i64::from(all != 0 && x != 0)))
}

fn eval_arg_max<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    arg_extreme(ctx, operands[0], |x, best| x > best, |x, best| x > best)
}

fn eval_arg_min<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    arg_extreme(ctx, operands[0], |x, best| x < best, |x, best| x < best)
}

fn arg_extreme<T: Real>(
    ctx: &EvalCtx<'_>,
    x: &Value<T>,
    beats: impl Fn(f64, f64) -> bool,
    int_beats: impl Fn(i128, i128) -> bool,
) -> Value<T> {
    let unsigned = ctx.operands[0].dtype == DType::U64;
    match x {
        Value::Float(x) => Value::Int(positions(
            ctx,
            x,
            |x, best| {
                let (x, best) = (x.to_f64(), best.to_f64());
                !best.is_nan() && (x.is_nan() || beats(x, best))
            },
            |x, best| x == best || (x.to_f64().is_nan() && best.to_f64().is_nan()),
        )),
        Value::Int(x) => {
            let number =
                |x: i64| if unsigned { i128::from(x as u64) } else { i128::from(x) };
            let beats = |x, best| int_beats(number(x), number(best));
            Value::Int(positions(ctx, x, beats, |x, best| x == best))
        }
    }
}

/// The position along `axis` of the first or last element that no other one beats.
fn positions<E: Copy>(
    ctx: &EvalCtx<'_>,
    x: &Array<E>,
    beats: impl Fn(E, E) -> bool,
    equals: impl Fn(E, E) -> bool,
) -> Array<i64> {
    let (axis, last) = (ctx.attrs.axis("axis"), ctx.attrs.flag("select_last"));
    let inner: usize = x.shape[axis + 1..].iter().product();
    let length = x.shape[axis];
    let position = |result: usize| {
        let start = result / inner * inner * length + result % inner;
        let at = |position: usize| x.data[start + position * inner];
        (0..length).reduce(|old, new| {
            let (element, best) = (at(new), at(old));
            if beats(element, best) || (last && equals(element, best)) { new } else { old }
        })
    };
    let count = ctx.shape.iter().product();
    let data = (0..count).map(|result| position(result).map_or(-1, |position| position as i64));
    Array::new(ctx.shape, data.collect())
}
