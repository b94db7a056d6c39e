//! Operators on single elements.

use fornax_ir::{Attrs, DType, NodeId, attrs};

use crate::onnx::call::{Build as _, Call, Result};

/// An operator with one operand and no attributes.
pub(in crate::onnx) fn unary(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let input = call.input(0)?;
    call.add(op, Attrs::none(), &[input])
}

/// An operator with one operand and one number.
pub(in crate::onnx) fn with_alpha(
    call: &mut Call<'_, '_>,
    op: &str,
    default: f32,
) -> Result<NodeId> {
    let alpha = call.float_or("alpha", default)?;
    let input = call.input(0)?;
    call.add(op, attrs! { alpha: alpha }, &[input])
}

/// An operator with two operands, which are broadcast against each other.
pub(in crate::onnx) fn binary(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let operands = [call.input(0)?, call.input(1)?];
    let operands = call.broadcast_all(&operands)?;
    call.add(op, Attrs::none(), &operands)
}

/// Max, Min, Sum: any number of operands, from the left.
pub(in crate::onnx) fn variadic(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let operands = call.all_inputs()?;
    let operands = call.broadcast_all(&operands)?;
    let Some((&first, rest)) = operands.split_first() else {
        return Err(call.invalid("there is no operand"));
    };
    rest.iter().try_fold(first, |sum, &next| call.add(op, Attrs::none(), &[sum, next]))
}

/// Mean of the operands.
pub(in crate::onnx) fn mean(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let sum = variadic(call, "add")?;
    let count = call.scalar_like(call.input_count() as f64, sum)?;
    call.add("div", Attrs::none(), &[sum, count])
}

/// Identity, and Dropout's first output.
pub(in crate::onnx) fn identity(call: &mut Call<'_, '_>) -> Result<NodeId> {
    call.input(0)
}

/// Cast.
pub(in crate::onnx) fn cast(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let to = call.dtype("to")?.ok_or_else(|| call.needs("to"))?;
    convert(call, to)
}

/// CastLike: to the type of the second operand.
pub(in crate::onnx) fn cast_like(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let to = call.ty(1)?.dtype;
    convert(call, to)
}

fn convert(call: &mut Call<'_, '_>, to: DType) -> Result<NodeId> {
    // `saturate` concerns 8-bit floats, `round_mode` FLOAT8E8M0 alone.
    if !call.flag("saturate", true)? && matches!(to, DType::F8E4M3 | DType::F8E5M2) {
        return Err(call.unsupported("conversion to 8-bit floats without saturation"));
    }
    call.ignore("round_mode");
    let input = call.input(0)?;
    call.cast(input, to)
}

/// Pow: the result has the base's type, the exponent may have another.
pub(in crate::onnx) fn pow(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (base, exponent) = (call.input(0)?, call.input(1)?);
    let (to, from) = (call.graph().ty(base).dtype, call.graph().ty(exponent).dtype);
    let operands = call.broadcast_all(&[base, exponent])?;
    if to == from || to.is_float() {
        let exponent = call.cast(operands[1], to)?;
        return call.add("pow", Attrs::none(), &[operands[0], exponent]);
    }
    // An integer to the power of a fraction or of another integer type is computed in the wider
    // domain, then converted.
    let wide = if from.is_float() { DType::F64 } else { DType::I64 };
    let base = call.cast(operands[0], wide)?;
    let exponent = call.cast(operands[1], wide)?;
    let power = call.add("pow", Attrs::none(), &[base, exponent])?;
    call.cast(power, to)
}

/// Mod: the remainder has the divisor's sign, or with `fmod` the dividend's.
pub(in crate::onnx) fn modulo(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let op = if call.flag("fmod", false)? { "rem" } else { "mod" };
    binary(call, op)
}

/// BitShift.
pub(in crate::onnx) fn bit_shift(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let op = match call.text("direction")? {
        Some("LEFT") => "shl",
        Some("RIGHT") => "shr",
        other => return Err(call.invalid(format!("`direction` is {other:?}"))),
    };
    binary(call, op)
}

/// IsInf, of one or both signs.
pub(in crate::onnx) fn is_inf(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let negative = call.flag("detect_negative", true)?;
    let positive = call.flag("detect_positive", true)?;
    let input = call.input(0)?;
    call.add("is_inf", attrs! { detect_negative: negative, detect_positive: positive }, &[input])
}

/// Where.
pub(in crate::onnx) fn select(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let operands = [call.input(0)?, call.input(1)?, call.input(2)?];
    let operands = call.broadcast_all(&operands)?;
    call.add("where", Attrs::none(), &operands)
}

/// Clip: bounds are attributes before opset 11, inputs from then on.
pub(in crate::onnx) fn clip(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let value = call.input(0)?;
    let shape = call.graph().ty(value).shape.clone();
    let mut bound = |index: usize, name: &'static str| {
        let bound = match call.float(name)? {
            Some(bound) => Some(call.scalar_like(f64::from(bound), value)?),
            None => call.optional(index)?,
        };
        let repeated = bound.map(|bound| {
            let scalar = call.reshape(bound, &[])?;
            call.broadcast(scalar, &shape)
        });
        repeated.transpose()
    };
    match (bound(1, "min")?, bound(2, "max")?) {
        (Some(low), Some(high)) => call.add("clip", Attrs::none(), &[value, low, high]),
        (Some(low), None) => call.add("max", Attrs::none(), &[value, low]),
        (None, Some(high)) => call.add("min", Attrs::none(), &[value, high]),
        (None, None) => Ok(value),
    }
}

/// PRelu: the slope is broadcast to the operand.
pub(in crate::onnx) fn prelu(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (value, slope) = (call.input(0)?, call.input(1)?);
    let shape = call.graph().ty(value).shape.clone();
    let slope = call.broadcast(slope, &shape)?;
    call.add("prelu", Attrs::none(), &[value, slope])
}

/// Gelu, exact or approximated with tanh.
pub(in crate::onnx) fn gelu(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let form = call.text_or("approximate", "none")?;
    let input = call.input(0)?;
    call.add("gelu", attrs! { approximate: form }, &[input])
}

/// HardSigmoid.
pub(in crate::onnx) fn hard_sigmoid(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (alpha, beta) = (call.float_or("alpha", 0.2)?, call.float_or("beta", 0.5)?);
    let input = call.input(0)?;
    call.add("hard_sigmoid", attrs! { alpha: alpha, beta: beta }, &[input])
}

/// Selu, with the constants of ONNX as defaults.
pub(in crate::onnx) fn selu(call: &mut Call<'_, '_>) -> Result<NodeId> {
    // ONNX, Selu, opset 22: the shortest decimals of the constants rounded to f32.
    let alpha = call.float_or("alpha", 1.673_263_2)?;
    let gamma = call.float_or("gamma", 1.050_701)?;
    let input = call.input(0)?;
    call.add("selu", attrs! { alpha: alpha, gamma: gamma }, &[input])
}

/// Shrink.
pub(in crate::onnx) fn shrink(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (lambda, bias) = (call.float_or("lambd", 0.5)?, call.float_or("bias", 0.0)?);
    let input = call.input(0)?;
    call.add("shrink", attrs! { lambd: lambda, bias: bias }, &[input])
}

/// Dropout at inference: the identity, and a mask that is true everywhere.
pub(in crate::onnx) fn dropout(call: &mut Call<'_, '_>) -> Result<Vec<crate::onnx::call::Value>> {
    call.ignore("seed");
    call.ignore("ratio");
    let drops_nothing = call.known(1).and_then(|known| known.floats()).is_some_and(|r| r == [0.0]);
    let training = match call.has(2) {
        true => call.known(2).and_then(|known| known.ints()).is_none_or(|flag| flag != [0]),
        // Opset 1 to 6: `is_test` is the opposite of training, which was the default.
        false => call.opset < 7 && !call.flag("is_test", false)?,
    };
    if training && !drops_nothing {
        return Err(call.unsupported("Dropout in training mode draws random numbers"));
    }
    let input = call.input(0)?;
    let mut outputs = vec![input.into()];
    if call.wants(1) {
        let shape = call.graph().ty(input).shape.clone();
        let kept = call.scalar(DType::Bool, 1.0);
        outputs.push(call.broadcast(kept, &shape)?.into());
    }
    Ok(outputs)
}
