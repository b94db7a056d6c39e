//! Pointwise ops of one float with parameters as attributes.

use super::domain::Domain;
use super::pointwise::{arg, map_float, same_as_operand};
use super::{Arity, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{EvalCtx, Real, Value};
use crate::{AttrKind, BinaryFn, DType, ScalarExpr, Type, UnaryFn, eval_real};

/// An op on floats: name, its real attributes, documentation, evaluation, body. Both are over the
/// operand and the attributes' values.
macro_rules! activation {
    (
        $name:literal [$($attr:ident),*], $doc:literal,
        |$x:ident| $eval:expr, |$y:ident, $number:ident| $body:expr $(, $infer:expr)?
    ) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(1),
            attrs: &[$((stringify!($attr), AttrKind::Float)),*],
            infer: |ctx| {
                $(let check: fn(&OpCtx<'_>) -> Result<(), Violation> = $infer; check(ctx)?;)?
                same_as_operand(ctx, Domain::Float)
            },
            eval: {
                fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
                    $(let $attr = ctx.attrs.float(stringify!($attr));)*
                    map_float(operands[0], |$x: f64| $eval)
                }
                eval_real!(eval)
            },
            class: OpClass::Pointwise(|ctx| {
                let $number = |value: f64| ScalarExpr::number(ctx.first().dtype, value);
                $(let $attr = ctx.attrs.float(stringify!($attr));)*
                let $y = arg(0);
                $body
            }),
            doc: concat!($doc, " (C1) The operand is a float."),
        }
    };
}

#[rustfmt::skip]
pub(super) const DEFS: &[OpDef] = &[
    activation!("elu" [alpha], "`x` where it is not negative, else `alpha * (e^x - 1)` (ONNX Elu, opset 22).",
        |x| if x < 0.0 { alpha * libm::expm1(x) } else { x },
        |x, number| is_negative(&x, number).select(number(alpha) * x.clone().unary(UnaryFn::Expm1), x)),
    activation!("selu" [alpha, gamma], "`gamma * x` where `x` is positive, else `gamma * alpha * (e^x - 1)` (ONNX Selu, opset 22).",
        |x| gamma * if x <= 0.0 { alpha * libm::expm1(x) } else { x },
        |x, number| number(gamma) * number(0.0).binary(BinaryFn::Lt, x.clone()).select(x.clone(), number(alpha) * x.unary(UnaryFn::Expm1))),
    activation!("celu" [alpha], "`max(0, x) + min(0, alpha * (e^(x / alpha) - 1))` (ONNX Celu, opset 12). (C2) `alpha` is not 0.",
        |x| x.max(0.0) + (alpha * libm::expm1(x / alpha)).min(0.0) + if x.is_nan() { x } else { 0.0 },
        |x, number| {
            let curve = number(alpha) * (x.clone() * number(1.0 / alpha)).unary(UnaryFn::Expm1);
            x.binary(BinaryFn::Max, number(0.0)) + curve.binary(BinaryFn::Min, number(0.0))
        },
        |ctx| require(ctx.attrs.float("alpha") != 0.0, "C2", || "alpha is 0".to_owned())),
    activation!("leaky_relu" [alpha], "`x` where it is not negative, else `alpha * x` (ONNX LeakyRelu, opset 16).",
        |x| if x < 0.0 { alpha * x } else { x },
        |x, number| is_negative(&x, number).select(number(alpha) * x.clone(), x)),
    activation!("thresholded_relu" [alpha], "`x` where it is more than `alpha`, else 0, also for NaN (ONNX ThresholdedRelu, opset 22).",
        |x| if x > alpha { x } else { 0.0 },
        |x, number| number(alpha).binary(BinaryFn::Lt, x.clone()).select(x, number(0.0))),
    activation!("hard_sigmoid" [alpha, beta], "`max(0, min(1, alpha * x + beta))` (ONNX HardSigmoid, opset 22).",
        |x| (alpha * x + beta).clamp(0.0, 1.0),
        |x, number| (x * number(alpha) + number(beta)).binary(BinaryFn::Min, number(1.0)).binary(BinaryFn::Max, number(0.0))),
    activation!("swish" [alpha], "`x / (1 + e^(-alpha * x))` (ONNX Swish, opset 24); with `alpha` 1 also called SiLU; NaN for minus infinity.",
        |x| x * (1.0 / (1.0 + libm::exp(-alpha * x))),
        |x, number| {
            let scaled = if alpha == 1.0 { x.clone() } else { x.clone() * number(alpha) };
            x * scaled.unary(UnaryFn::Sigmoid)
        }),
    activation!("shrink" [lambd, bias], "`x + bias` below `-lambd`, `x - bias` above `lambd`, else 0, also for NaN (ONNX Shrink, opset 9).",
        |x| if x < -lambd { x + bias } else if x > lambd { x - bias } else { 0.0 },
        |x, number| {
            let above = number(lambd).binary(BinaryFn::Lt, x.clone()).select(x.clone() - number(bias), number(0.0));
            x.clone().binary(BinaryFn::Lt, number(-lambd)).select(x + number(bias), above)
        }),
    GELU,
    IS_INF,
];

const GELU: OpDef = OpDef {
    name: "gelu",
    arity: Arity::Exactly(1),
    attrs: &[("approximate", AttrKind::Text)],
    infer: |ctx| {
        let form = ctx.attrs.text("approximate");
        require(matches!(form, "none" | "tanh"), "C2", || {
            format!("`{form}` is no form of gelu: use `none` or `tanh`")
        })?;
        same_as_operand(ctx, Domain::Float)
    },
    eval: eval_real!(eval_gelu),
    class: OpClass::Pointwise(gelu_body),
    doc: "`x * P(z <= x)` for a standard normal `z` (ONNX Gelu, opset 20): `x / 2 * (1 + erf(x / sqrt(2)))`, \
          or for `approximate` = `tanh`: `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`. \
          NaN for minus infinity. (C1) The operand is a float. (C2) `approximate` is `none` or `tanh`.",
};

const IS_INF: OpDef = OpDef {
    name: "is_inf",
    arity: Arity::Exactly(1),
    attrs: &[("detect_negative", AttrKind::Bool), ("detect_positive", AttrKind::Bool)],
    infer: |ctx| {
        same_as_operand(ctx, Domain::Float)?;
        Ok(Type::new(DType::Bool, ctx.shape().clone()))
    },
    eval: eval_real!(eval_is_inf),
    class: OpClass::Pointwise(is_inf_body),
    doc: "Whether `x` is minus infinity, if `detect_negative`, or plus infinity, if `detect_positive`; a bool \
          (ONNX IsInf, opset 20). (C1) The operand is a float.",
};

fn is_negative(x: &ScalarExpr, number: impl Fn(f64) -> ScalarExpr) -> ScalarExpr {
    x.clone().binary(BinaryFn::Lt, number(0.0))
}

fn eval_gelu<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
    match ctx.attrs.text("approximate") {
        "tanh" => map_float(operands[0], |x| {
            0.5 * x * (1.0 + libm::tanh(FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)))
        }),
        // `1 + erf(-a)` loses all digits in the tail, so it is taken from the complement there.
        _ => map_float(operands[0], |x| {
            let argument = x * FRAC_1_SQRT_2;
            let twice = if x < -1.0 { libm::erfc(-argument) } else { 1.0 + libm::erf(argument) };
            0.5 * x * twice
        }),
    }
}

/// `(1 + tanh(u)) / 2` is the sigmoid of `2 u`, which does not cancel.
fn gelu_body(ctx: &OpCtx<'_>) -> ScalarExpr {
    let number = |value: f64| ScalarExpr::number(ctx.first().dtype, value);
    let x = arg(0);
    if ctx.attrs.text("approximate") == "tanh" {
        let scale = 2.0 * std::f64::consts::FRAC_2_PI.sqrt();
        let square = x.clone() * x.clone();
        let exponent = x.clone() * (square * number(scale * 0.044715) + number(scale));
        x * exponent.unary(UnaryFn::Sigmoid)
    } else {
        x.unary(UnaryFn::Gelu)
    }
}

fn eval_is_inf<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (negative, positive) =
        (ctx.attrs.flag("detect_negative"), ctx.attrs.flag("detect_positive"));
    Value::Int(operands[0].float().map(|x| {
        let x = x.to_f64();
        i64::from((negative && x == f64::NEG_INFINITY) || (positive && x == f64::INFINITY))
    }))
}

fn is_inf_body(ctx: &OpCtx<'_>) -> ScalarExpr {
    let is = |value: f64| arg(0).binary(BinaryFn::Eq, ScalarExpr::number(ctx.first().dtype, value));
    match (ctx.attrs.flag("detect_negative"), ctx.attrs.flag("detect_positive")) {
        (true, true) => arg(0).unary(UnaryFn::IsInf),
        (true, false) => is(f64::NEG_INFINITY),
        (false, true) => is(f64::INFINITY),
        (false, false) => ScalarExpr::number(DType::Bool, 0.0),
    }
}
