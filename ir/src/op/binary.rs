//! Pointwise ops of two operands of one type.
//!
//! There is no implicit broadcasting: shapes are equal. Integers wrap.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use super::domain::Domain;
use super::pointwise::{arg, compares_operands, same_as_operands};
use super::{Arity, OpClass, OpDef};
use crate::interp::{Array, Element, EvalCtx, Real, Value};
use crate::{BinaryFn, DType, UnaryFn, eval_polynomial, eval_real};

/// What the documentation says about an op's operands.
macro_rules! domain_doc {
    (Numeric) => { "floats or integers" };
    (Integer) => { "integers" };
    (Bool) => { "bool" };
    (Any) => { "not 8-bit floats" };
}

/// An op on floats and integers or only integers: name, documentation, evaluation on floats, on
/// integers (with the element type), body.
macro_rules! arithmetic {
    ($name:literal, $doc:literal, |$x:ident, $y:ident| $float:expr, $int:expr, $function:ident) => {
        pointwise!($name, Numeric, $doc, $function, {
            fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                match (operands[0], operands[1]) {
                    (Value::Float(x), Value::Float(y)) => Value::Float(x.zip(y, |x, y| {
                        let ($x, $y) = (x.to_f64(), y.to_f64());
                        T::from_f64($float)
                    })),
                    (x, y) => int_pairs(ctx, x, y, $int),
                }
            }
            eval_real!(eval)
        })
    };
}

/// As [`arithmetic`], for a ring operation.
macro_rules! ring {
    ($name:literal, $doc:literal, |$x:ident, $y:ident| $float:expr, $int:expr, $function:ident) => {
        pointwise!($name, Numeric, $doc, $function, {
            fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                match (operands[0], operands[1]) {
                    (Value::Float(x), Value::Float(y)) => {
                        Value::Float(x.zip(y, |$x: T, $y: T| $float))
                    }
                    (x, y) => int_pairs(ctx, x, y, $int),
                }
            }
            eval_polynomial!(eval)
        })
    };
}

/// An op on integers or bools.
macro_rules! discrete {
    ($name:literal, $domain:ident, $doc:literal, $int:expr, $function:ident) => {
        pointwise!($name, $domain, $doc, $function, {
            fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                int_pairs(ctx, operands[0], operands[1], $int)
            }
            eval_polynomial!(eval)
        })
    };
}

/// An op whose body is one function.
macro_rules! pointwise {
    ($name:literal, $domain:ident, $doc:literal, $function:ident, $eval:expr) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(2),
            attrs: &[],
            infer: |ctx| same_as_operands(ctx, Domain::$domain),
            eval: $eval,
            class: OpClass::Pointwise(|_| arg(0).binary(BinaryFn::$function, arg(1))),
            doc: concat!(
                $doc, " (C1) The operands are ", domain_doc!($domain), ". (C2) Their types are the same."
            ),
        }
    };
}

/// A comparison: name, documentation, evaluation on an ordering (nothing with NaN), body.
macro_rules! comparison {
    ($name:literal, $domain:ident, $doc:literal, |$order:ident| $holds:expr, |$x:ident, $y:ident| $body:expr) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(2),
            attrs: &[],
            infer: |ctx| compares_operands(ctx, Domain::$domain),
            eval: {
                fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                    compare(ctx, operands, |$order| $holds)
                }
                eval_real!(eval)
            },
            class: OpClass::Pointwise(|_| {
                let ($x, $y) = (arg(0), arg(1));
                $body
            }),
            doc: concat!(
                $doc, " Gives bool. (C1) The operands are ", domain_doc!($domain),
                ". (C2) Their types are the same."
            ),
        }
    };
}

#[rustfmt::skip]
pub(super) const DEFS: &[OpDef] = &[
    ring!("add", "`x + y` (ONNX Add, opset 14).", |x, y| x + y, |_, x, y| x.wrapping_add(y), Add),
    ring!("sub", "`x - y` (ONNX Sub, opset 14).", |x, y| x - y, |_, x, y| x.wrapping_sub(y), Sub),
    ring!("mul", "`x * y` (ONNX Mul, opset 14).", |x, y| x * y, |_, x, y| x.wrapping_mul(y), Mul),
    arithmetic!("div", "`x / y` (ONNX Div, opset 14); integers round towards zero, by zero gives 0.", |x, y| x / y, divide, Div),
    arithmetic!("pow", "`x^y` (ONNX Pow, opset 15). Integers are multiplied out; a negative exponent gives 0 unless `x` is 1 or -1.",
        |x, y| libm::pow(x, y), power, Pow),
    arithmetic!("rem", "Remainder of the division that rounds towards zero: it has the sign of `x` (ONNX Mod, opset 13, with `fmod`); integers: 0 for `y` = 0.",
        |x, y| x % y, remainder, Rem),
    arithmetic!("mod", "Remainder of the division that rounds towards minus infinity: it has the sign of `y` (ONNX Mod, opset 13, without `fmod`; Python's `%`); \
                 a float remainder of zero has the sign of `x`; integers: 0 for `y` = 0.",
        |x, y| { let r = x % y; if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r } }, modulo, Mod),
    arithmetic!("max", "The larger of two (ONNX Max, opset 13); NaN if one is NaN; -0 < +0 (IEEE 754-2019 `maximum`).",
        |x, y| maximum(x, y), |dtype, x, y| if less(dtype, x, y) { y } else { x }, Max),
    arithmetic!("min", "The smaller of two (ONNX Min, opset 13); NaN if one is NaN; -0 < +0 (IEEE 754-2019 `minimum`).",
        |x, y| -maximum(-x, -y), |dtype, x, y| if less(dtype, y, x) { y } else { x }, Min),
    discrete!("and", Bool, "Logical and (ONNX And, opset 7).", |_, x, y| x & y, And),
    discrete!("or", Bool, "Logical or (ONNX Or, opset 7).", |_, x, y| x | y, Or),
    discrete!("xor", Bool, "Logical exclusive or (ONNX Xor, opset 7).", |_, x, y| x ^ y, Xor),
    discrete!("bit_and", Integer, "And of each bit (ONNX BitwiseAnd, opset 18).", |_, x, y| x & y, And),
    discrete!("bit_or", Integer, "Or of each bit (ONNX BitwiseOr, opset 18).", |_, x, y| x | y, Or),
    discrete!("bit_xor", Integer, "Exclusive or of each bit (ONNX BitwiseXor, opset 18).", |_, x, y| x ^ y, Xor),
    discrete!("shl", Integer, "`x` shifted left by `y` bits (ONNX BitShift, opset 11); 0 when `y`, taken as unsigned, reaches the width.", shift_left, Shl),
    discrete!("shr", Integer, "`x` shifted right by `y` bits (ONNX BitShift, opset 11), copying the sign bit of signed types; \
              0 or all sign bits when `y`, taken as unsigned, reaches the width.", shift_right, Shr),
    comparison!("eq", Any, "`x = y` (ONNX Equal, opset 19); false with NaN.", |order| order == Some(Equal), |x, y| x.binary(BinaryFn::Eq, y)),
    comparison!("ne", Any, "`x` differs from `y`; true with NaN.", |order| order != Some(Equal), |x, y| x.binary(BinaryFn::Eq, y).unary(UnaryFn::Not)),
    comparison!("lt", Numeric, "`x < y` (ONNX Less, opset 13); false with NaN.", |order| order == Some(Less), |x, y| x.binary(BinaryFn::Lt, y)),
    comparison!("le", Numeric, "`x <= y` (ONNX LessOrEqual, opset 16); false with NaN.", |order| matches!(order, Some(Less | Equal)), |x, y| x.binary(BinaryFn::Le, y)),
    comparison!("gt", Numeric, "`x > y` (ONNX Greater, opset 13); false with NaN.", |order| order == Some(Greater), |x, y| y.binary(BinaryFn::Lt, x)),
    comparison!("ge", Numeric, "`x >= y` (ONNX GreaterOrEqual, opset 16); false with NaN.", |order| matches!(order, Some(Greater | Equal)), |x, y| y.binary(BinaryFn::Le, x)),
    PRELU,
];

const PRELU: OpDef = OpDef {
    name: "prelu",
    arity: Arity::Exactly(2),
    attrs: &[],
    infer: |ctx| same_as_operands(ctx, Domain::Numeric),
    eval: eval_real!(eval_prelu),
    class: OpClass::Pointwise(|ctx| {
        let zero = crate::ScalarExpr::number(ctx.first().dtype, 0.0);
        arg(0).binary(BinaryFn::Lt, zero).select(arg(1) * arg(0), arg(0))
    }),
    doc: "`x` where it is not negative, else `slope * x` (ONNX PRelu, opset 16). \
          (C1) The operands are floats or integers. (C2) Their types are the same.",
};

fn eval_prelu<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match (operands[0], operands[1]) {
        (Value::Float(x), Value::Float(slope)) => Value::Float(
            x.zip(slope, |x, slope| if x.to_f64() < 0.0 { slope * x } else { x }),
        ),
        (x, slope) => int_pairs(ctx, x, slope, |dtype, x, slope| {
            if less(dtype, x, 0) { slope.wrapping_mul(x) } else { x }
        }),
    }
}

/// Applies a function of the element type and two integers to each pair of elements.
fn int_pairs<T: Element>(
    ctx: &EvalCtx<'_>,
    x: &Value<T>,
    y: &Value<T>,
    function: impl Fn(DType, i64, i64) -> i64,
) -> Value<T> {
    let dtype = ctx.operands[0].dtype;
    Value::Int(x.int().zip(y.int(), |x, y| function(dtype, x, y)))
}

fn compare<T: Real>(
    ctx: &EvalCtx<'_>,
    operands: &[&Value<T>],
    holds: impl Fn(Option<Ordering>) -> bool,
) -> Value<T> {
    let results: Array<i64> = match (operands[0], operands[1]) {
        (Value::Float(x), Value::Float(y)) => x.zip(y, |x, y| i64::from(holds(x.partial_cmp(&y)))),
        (x, y) => {
            let dtype = ctx.operands[0].dtype;
            x.int().zip(y.int(), |x, y| i64::from(holds(Some(int_order(dtype, x, y)))))
        }
    };
    Value::Int(results)
}

fn int_order(dtype: DType, x: i64, y: i64) -> Ordering {
    if dtype == DType::U64 { (x as u64).cmp(&(y as u64)) } else { x.cmp(&y) }
}

fn less(dtype: DType, x: i64, y: i64) -> bool {
    int_order(dtype, x, y) == Less
}

fn maximum(x: f64, y: f64) -> f64 {
    match x.partial_cmp(&y) {
        None => f64::NAN,
        Some(Less) => y,
        Some(Greater) => x,
        Some(Equal) => if x.is_sign_positive() { x } else { y },
    }
}

fn divide(dtype: DType, x: i64, y: i64) -> i64 {
    match dtype {
        _ if y == 0 => 0,
        DType::U64 => (x as u64 / y as u64) as i64,
        _ => x.wrapping_div(y),
    }
}

fn remainder(dtype: DType, x: i64, y: i64) -> i64 {
    match dtype {
        _ if y == 0 => 0,
        DType::U64 => (x as u64 % y as u64) as i64,
        _ => x.wrapping_rem(y),
    }
}

fn modulo(dtype: DType, x: i64, y: i64) -> i64 {
    let r = remainder(dtype, x, y);
    if dtype.is_signed_int() && r != 0 && (r < 0) != (y < 0) { r + y } else { r }
}

fn power(dtype: DType, x: i64, y: i64) -> i64 {
    if dtype.is_signed_int() && y < 0 {
        return match x {
            1 => 1,
            -1 => 1 - 2 * (y & 1),
            _ => 0,
        };
    }
    let (mut result, mut base, mut exponent) = (1i64, x, y as u64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

/// The count, when it is less than the width.
fn shift_count(dtype: DType, count: i64) -> Option<u32> {
    u32::try_from(count).ok().filter(|&count| (count as usize) < 8 * dtype.size())
}

fn shift_left(dtype: DType, x: i64, count: i64) -> i64 {
    shift_count(dtype, count).map_or(0, |count| x << count)
}

fn shift_right(dtype: DType, x: i64, count: i64) -> i64 {
    match (shift_count(dtype, count), dtype) {
        (Some(count), DType::U64) => (x as u64 >> count) as i64,
        (Some(count), _) => x >> count,
        (None, DType::U64) => 0,
        (None, _) => x >> 63,
    }
}
