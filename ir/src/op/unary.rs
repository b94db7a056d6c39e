//! Pointwise ops of one operand without attributes.
//!
//! Where a float op is not defined, such as the logarithm of -1, the result is NaN; NaN gives NaN.
//! Real functions are `libm`'s, so that results do not depend on the system's C library.

use super::domain::Domain;
use super::pointwise::{arg, map_float, map_int, same_as_operand};
use super::{Arity, OpClass, OpDef};
use crate::interp::{Element, EvalCtx, Real, Value};
use crate::{BinaryFn, DType, ScalarExpr, Type, UnaryFn, eval_polynomial, eval_real};

/// An op on floats: name, documentation, evaluation, body.
macro_rules! float_op {
    ($name:literal, $doc:literal, |$x:ident| $eval:expr, $body:ident) => {
        float_op!($name, $doc, |$x| $eval, |y, _number| y.unary(UnaryFn::$body))
    };
    ($name:literal, $doc:literal, |$x:ident| $eval:expr, |$y:ident, $number:ident| $body:expr) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(1),
            attrs: &[],
            infer: |ctx| same_as_operand(ctx, Domain::Float),
            eval: {
                fn eval<T: Real>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                    map_float(operands[0], |$x: f64| $eval)
                }
                eval_real!(eval)
            },
            class: OpClass::Pointwise(|ctx| {
                let $y = arg(0);
                let $number = |value: f64| ScalarExpr::number(ctx.first().dtype, value);
                $body
            }),
            doc: concat!($doc, " (C1) The operand is a float."),
        }
    };
}

#[rustfmt::skip]
pub(super) const DEFS: &[OpDef] = &[
    NEG,
    ABS,
    SIGN,
    RELU,
    float_op!("floor", "`x` rounded towards minus infinity (ONNX Floor, opset 13).", |x| x.floor(), Floor),
    float_op!("ceil", "`x` rounded towards plus infinity (ONNX Ceil, opset 13).", |x| x.ceil(), Ceil),
    float_op!("round", "`x` rounded to the nearest integer, ties to even (ONNX Round, opset 22).", |x| x.round_ties_even(), RoundEven),
    float_op!("trunc", "`x` rounded towards zero (C99 `trunc`).", |x| x.trunc(), Trunc),
    float_op!("sqrt", "Square root (ONNX Sqrt, opset 13).", |x| x.sqrt(), Sqrt),
    float_op!("rsqrt", "`1 / sqrt(x)`; an infinity for a zero, with its sign.", |x| 1.0 / x.sqrt(), Rsqrt),
    float_op!("reciprocal", "`1 / x` (ONNX Reciprocal, opset 13).", |x| 1.0 / x, Reciprocal),
    float_op!("exp", "`e^x` (ONNX Exp, opset 13).", |x| libm::exp(x), Exp),
    float_op!("expm1", "`e^x - 1`, accurate near 0 (C99 `expm1`).", |x| libm::expm1(x), Expm1),
    float_op!("log", "Natural logarithm (ONNX Log, opset 13).", |x| libm::log(x), Log),
    float_op!("log1p", "`log(1 + x)`, accurate near 0 (C99 `log1p`).", |x| libm::log1p(x), Log1p),
    float_op!("sin", "Sine of an angle in radians (ONNX Sin, opset 22).", |x| libm::sin(x), Sin),
    float_op!("cos", "Cosine of an angle in radians (ONNX Cos, opset 22).", |x| libm::cos(x), Cos),
    float_op!("tan", "Tangent of an angle in radians (ONNX Tan, opset 22).", |x| libm::tan(x), Tan),
    float_op!("asin", "Inverse sine (ONNX Asin, opset 22).", |x| libm::asin(x), Asin),
    float_op!("acos", "Inverse cosine (ONNX Acos, opset 22).", |x| libm::acos(x), Acos),
    float_op!("atan", "Inverse tangent (ONNX Atan, opset 22).", |x| libm::atan(x), Atan),
    float_op!("sinh", "Hyperbolic sine (ONNX Sinh, opset 22).", |x| libm::sinh(x), Sinh),
    float_op!("cosh", "Hyperbolic cosine (ONNX Cosh, opset 22).", |x| libm::cosh(x), Cosh),
    float_op!("tanh", "Hyperbolic tangent (ONNX Tanh, opset 13).", |x| libm::tanh(x), Tanh),
    float_op!("asinh", "Inverse hyperbolic sine (ONNX Asinh, opset 22).", |x| libm::asinh(x), Asinh),
    float_op!("acosh", "Inverse hyperbolic cosine (ONNX Acosh, opset 22).", |x| libm::acosh(x), Acosh),
    float_op!("atanh", "Inverse hyperbolic tangent (ONNX Atanh, opset 22).", |x| libm::atanh(x), Atanh),
    float_op!("erf", "The error function (ONNX Erf, opset 13).", |x| libm::erf(x), Erf),
    float_op!("sigmoid", "`1 / (1 + e^-x)` (ONNX Sigmoid, opset 13).", |x| 1.0 / (1.0 + libm::exp(-x)), Sigmoid),
    float_op!("softplus", "`log(1 + e^x)` (ONNX Softplus, opset 22).", |x| softplus(x), Softplus),
    float_op!("softsign", "`x / (1 + |x|)` (ONNX Softsign, opset 22); NaN for infinities.", |x| x / (1.0 + x.abs()), |y, number|
        y.clone() / (number(1.0) + y.unary(UnaryFn::Abs))),
    float_op!("mish", "`x * tanh(softplus(x))` (ONNX Mish, opset 22); NaN for minus infinity.", |x| x * libm::tanh(softplus(x)), Mish),
    float_op!("hard_swish", "`x * max(0, min(1, x / 6 + 1/2))` (ONNX HardSwish, opset 22); NaN for minus infinity.", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), |y, number|
        y.clone() * (y * number(1.0 / 6.0) + number(0.5)).binary(BinaryFn::Min, number(1.0)).binary(BinaryFn::Max, number(0.0))),
    NOT,
    BITWISE_NOT,
    IS_NAN,
];

const NEG: OpDef = OpDef {
    name: "neg",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Signed),
    eval: eval_polynomial!(eval_neg),
    class: OpClass::Pointwise(|_| -arg(0)),
    doc: "`-x` (ONNX Neg, opset 13); the smallest integer stays itself. \
          (C1) The operand is a float or a signed integer.",
};

const ABS: OpDef = OpDef {
    name: "abs",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Numeric),
    eval: eval_real!(eval_abs),
    class: OpClass::Pointwise(|ctx| {
        // Unsigned integers are their own absolute values.
        if ctx.first().dtype.is_unsigned_int() { arg(0) } else { arg(0).unary(UnaryFn::Abs) }
    }),
    doc: "`|x|` (ONNX Abs, opset 13); the smallest integer stays itself. \
          (C1) The operand is a float or an integer.",
};

const SIGN: OpDef = OpDef {
    name: "sign",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Signed),
    eval: eval_real!(eval_sign),
    class: OpClass::Pointwise(|_| arg(0).unary(UnaryFn::Sign)),
    doc: "-1, +0 or 1 (ONNX Sign, opset 13); both zeros give +0. \
          (C1) The operand is a float or a signed integer.",
};

const RELU: OpDef = OpDef {
    name: "relu",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Signed),
    eval: eval_real!(eval_relu),
    class: OpClass::Pointwise(|ctx| {
        arg(0).binary(BinaryFn::Max, ScalarExpr::number(ctx.first().dtype, 0.0))
    }),
    doc: "`max(0, x)` (ONNX Relu, opset 14); both zeros give +0, NaN stays NaN. \
          (C1) The operand is a float or a signed integer.",
};

const NOT: OpDef = OpDef {
    name: "not",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Bool),
    eval: eval_polynomial!(eval_not),
    class: OpClass::Pointwise(|_| arg(0).unary(UnaryFn::Not)),
    doc: "Logical complement (ONNX Not, opset 1). (C1) The operand is bool.",
};

const BITWISE_NOT: OpDef = OpDef {
    name: "bitwise_not",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| same_as_operand(ctx, Domain::Integer),
    eval: eval_polynomial!(eval_bitwise_not),
    class: OpClass::Pointwise(|_| arg(0).unary(UnaryFn::Not)),
    doc: "Complement of each bit (ONNX BitwiseNot, opset 18). (C1) The operand is an integer.",
};

const IS_NAN: OpDef = OpDef {
    name: "is_nan",
    arity: Arity::Exactly(1),
    attrs: &[],
    infer: |ctx| {
        same_as_operand(ctx, Domain::Float)?;
        Ok(Type::new(DType::Bool, ctx.shape().clone()))
    },
    eval: eval_real!(eval_is_nan),
    class: OpClass::Pointwise(|_| arg(0).unary(UnaryFn::IsNan)),
    doc: "Whether `x` is NaN, a bool (ONNX IsNaN, opset 20). (C1) The operand is a float.",
};

fn eval_neg<T: Element>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(x.map(|x| -x)),
        Value::Int(x) => Value::Int(x.map(i64::wrapping_neg)),
    }
}

fn eval_abs<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(_) => map_float(operands[0], f64::abs),
        Value::Int(_) if ctx.result.dtype.is_unsigned_int() => operands[0].clone(),
        Value::Int(_) => map_int(operands[0], i64::wrapping_abs),
    }
}

fn eval_sign<T: Real>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(_) => map_float(operands[0], |x| {
            if x.is_nan() { x } else { f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)) }
        }),
        Value::Int(_) => map_int(operands[0], i64::signum),
    }
}

fn eval_relu<T: Real>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(_) => map_float(operands[0], |x| if x <= 0.0 { 0.0 } else { x }),
        Value::Int(_) => map_int(operands[0], |x| x.max(0)),
    }
}

fn eval_not<T: Element>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    map_int(operands[0], |x| i64::from(x == 0))
}

fn eval_bitwise_not<T: Element>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    map_int(operands[0], |x| !x)
}

fn eval_is_nan<T: Real>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Int(operands[0].float().map(|x| i64::from(x.to_f64().is_nan())))
}

/// `log(1 + e^x)`, where the exponential would overflow or drown: `x` itself or the exponential.
fn softplus(x: f64) -> f64 {
    if x > 40.0 { x } else { libm::log1p(libm::exp(x)) }
}
