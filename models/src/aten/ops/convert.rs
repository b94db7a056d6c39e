//! Activations with parameters, conversions, and operators that return their operand.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::pointwise::float_input;
use crate::aten::call::{Build as _, Call, Result, Value};
use crate::aten::handle::View;
use crate::aten::{Handle, Item};
use crate::build::contraction::scaled;
use crate::build::movement::take_axis;

/// The constants of SELU (Klambauer et al. 2017, section 2), as PyTorch has them.
const SELU: (f64, f64) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);

/// An activation with one number.
pub(in crate::aten) fn with_alpha(call: &mut Call<'_>, op: &str, argument: &str) -> Result<NodeId> {
    let alpha = call.float(argument)?;
    let input = call.input("self")?;
    call.add(op, attrs! { alpha: alpha }, &[input])
}

/// elu: `scale * x` above 0, `scale * alpha * (exp(input_scale * x) - 1)` below.
pub(in crate::aten) fn elu(call: &mut Call<'_>) -> Result<NodeId> {
    let (alpha, scale, inner) =
        (call.float("alpha")?, call.float("scale")?, call.float("input_scale")?);
    if inner != 1.0 {
        return Err(call.unsupported("elu with `input_scale` other than 1"));
    }
    let input = call.input("self")?;
    match scale == 1.0 {
        true => call.add("elu", attrs! { alpha: alpha }, &[input]),
        false => call.add("selu", attrs! { alpha: alpha, gamma: scale }, &[input]),
    }
}

/// selu.
pub(in crate::aten) fn selu(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    call.add("selu", attrs! { alpha: SELU.0, gamma: SELU.1 }, &[input])
}

/// gelu.
pub(in crate::aten) fn gelu(call: &mut Call<'_>) -> Result<NodeId> {
    let form = call.text("approximate")?;
    let input = call.input("self")?;
    call.add("gelu", attrs! { approximate: &*form }, &[input])
}

/// silu.
pub(in crate::aten) fn silu(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    call.add("swish", attrs! { alpha: 1.0 }, &[input])
}

/// hardsigmoid: `clamp(x / 6 + 1 / 2, 0, 1)`.
pub(in crate::aten) fn hard_sigmoid(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    call.add("hard_sigmoid", attrs! { alpha: 1.0 / 6.0, beta: 0.5 }, &[input])
}

/// softplus: `log(1 + exp(beta * x)) / beta`. Beyond the threshold PyTorch takes `x`, which is the same number.
pub(in crate::aten) fn softplus(call: &mut Call<'_>) -> Result<NodeId> {
    let beta = call.float("beta")?;
    let input = call.input("self")?;
    let input = scaled(call, input, beta)?;
    let node = call.add("softplus", Attrs::none(), &[input])?;
    scaled(call, node, 1.0 / beta)
}

/// log_sigmoid: `-softplus(-x)`.
pub(in crate::aten) fn log_sigmoid(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let node = call.add("neg", Attrs::none(), &[input])?;
    let node = call.add("softplus", Attrs::none(), &[node])?;
    call.add("neg", Attrs::none(), &[node])
}

/// hardshrink, softshrink: 0 within `lambd` of 0, moved towards 0 by `bias` outside.
pub(in crate::aten) fn shrink(call: &mut Call<'_>, soft: bool) -> Result<NodeId> {
    let lambda = call.float("lambd")?;
    let bias = if soft { lambda } else { 0.0 };
    let input = call.input("self")?;
    call.add("shrink", attrs! { lambd: lambda, bias: bias }, &[input])
}

/// threshold: another number where the operand is not above one.
pub(in crate::aten) fn threshold(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let limit = call.float("threshold")?;
    let limit = call.scalar_like(limit, input)?;
    let value = call.float("value")?;
    let value = call.scalar_like(value, input)?;
    let above = call.add("gt", Attrs::none(), &[input, limit])?;
    call.add("where", Attrs::none(), &[above, input, value])
}

/// prelu: one slope, or one per channel.
pub(in crate::aten) fn prelu(call: &mut Call<'_>) -> Result<NodeId> {
    let (input, weight) = (call.input("self")?, call.input("weight")?);
    let shape = call.graph().ty(input).shape.clone();
    let count = call.graph().ty(weight).shape.elements();
    let mut column = vec![Dim::constant(1); shape.rank()];
    if let (Some(channels), false) = (column.get_mut(1), count.is(1)) {
        *channels = count;
    }
    let slope = call.reshape(weight, &column)?;
    let slope = call.broadcast(slope, &shape)?;
    call.add("prelu", Attrs::none(), &[input, slope])
}

/// glu: the first half times the sigmoid of the second.
pub(in crate::aten) fn glu(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.clone();
    let axis = call.axis_of("dim", shape.rank())?;
    let half = shape[axis].divided_exactly(&Dim::constant(2)).ok_or_else(|| {
        call.invalid(format!("axis {axis} of size {} has no halves", shape[axis]))
    })?;
    let first = take_axis(call, input, axis, Dim::constant(0), half.clone())?;
    let second = take_axis(call, input, axis, half.clone(), half)?;
    let gate = call.add("sigmoid", Attrs::none(), &[second])?;
    call.add("mul", Attrs::none(), &[first, gate])
}

/// What returns its operand: detach, lift_fresh.
pub(in crate::aten) fn alias(call: &mut Call<'_>) -> Result<Item> {
    let operand = if call.has("self") { "self" } else { "input" };
    let handle = call.handle(operand)?;
    Ok(handle.view(call, View::Same)?.into())
}

/// contiguous: the operand, or a copy, depending on strides.
pub(in crate::aten) fn contiguous(call: &mut Call<'_>) -> Result<Item> {
    let handle = call.handle("self")?;
    Ok(handle.view(call, View::Perhaps)?.into())
}

/// clone, and copies under other names.
pub(in crate::aten) fn copy(call: &mut Call<'_>) -> Result<Item> {
    let value: Value = call.value("self")?;
    Ok(Handle::new(value).into())
}

/// dropout at inference.
pub(in crate::aten) fn dropout(call: &mut Call<'_>) -> Result<Item> {
    if call.flag("train")? && call.float("p")? != 0.0 {
        return Err(call
            .unsupported("dropout in training mode draws random numbers")
            .note("export the model after calling .eval()"));
    }
    alias(call)
}

/// to and its like: a copy in another element type, the operand itself where it has that type.
pub(in crate::aten) fn to(call: &mut Call<'_>) -> Result<Item> {
    let handle = call.handle("self")?;
    let own = call.type_of(&handle.peek()).dtype;
    let wanted =
        if call.has("other") { Some(call.ty("other")?.dtype) } else { call.dtype("dtype")? };
    if let Value::Literal(literal) = handle.read(call)?
        && let Some(known) = literal.as_known().and_then(|known| known.cast(wanted.unwrap_or(own)))
        && known.is_small()
    {
        return Ok(Handle::new(Value::known(call.result, known)).into());
    }
    match wanted.filter(|&wanted| wanted != own) {
        None if call.flag("copy")? => copy(call),
        None => alias(call),
        Some(wanted) => {
            let input = call.input("self")?;
            Ok(Handle::new(call.cast(input, wanted)?).into())
        }
    }
}

/// copy_: another tensor's elements.
pub(in crate::aten) fn copy_into(call: &mut Call<'_>) -> Result<Item> {
    let source = call.input("src")?;
    super::assign(call, source)
}

/// fill_, zero_: one number everywhere.
pub(in crate::aten) fn fill(call: &mut Call<'_>) -> Result<Item> {
    let dtype = call.ty("self")?.dtype;
    let value = match call.has("value") {
        true => call.input_as("value", dtype)?,
        false => call.scalar(dtype, 0.0),
    };
    super::assign(call, value)
}

/// A float operand as it is: functions that are the identity on real numbers.
pub(in crate::aten) fn real(call: &mut Call<'_>) -> Result<NodeId> {
    float_input(call, "self")
}
