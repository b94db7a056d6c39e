//! Operators on single elements.

use fornax_ir::{Attrs, DType, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result, Value};
use crate::aten::{Handle, Item};
use crate::build::contraction::scaled;
use crate::build::known::{Binary, Known};

/// An operator with one operand and no attributes.
pub(in crate::aten) fn unary(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = call.input("self")?;
    call.add(op, Attrs::none(), &[input])
}

/// The operand; integers become `f32`.
pub(in crate::aten) fn float_input(call: &mut Call<'_>, name: &str) -> Result<NodeId> {
    let input = call.input(name)?;
    let dtype = call.graph().ty(input).dtype;
    call.cast(input, if dtype.is_float() { dtype } else { DType::F32 })
}

/// An operator with one operand whose result is a float.
pub(in crate::aten) fn float_unary(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    call.add(op, Attrs::none(), &[input])
}

/// An operator that changes floats only, such as floor.
pub(in crate::aten) fn rounding(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = call.input("self")?;
    if call.graph().ty(input).dtype.is_float() {
        call.add(op, Attrs::none(), &[input])
    } else {
        Ok(input)
    }
}

/// A function of one operand, then times a number.
pub(in crate::aten) fn times(call: &mut Call<'_>, op: &str, factor: f64) -> Result<NodeId> {
    let node = float_unary(call, op)?;
    scaled(call, node, factor)
}

/// exp2: the exponential of a multiple.
pub(in crate::aten) fn exp2(call: &mut Call<'_>) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    let input = scaled(call, input, std::f64::consts::LN_2)?;
    call.add("exp", Attrs::none(), &[input])
}

/// One minus a function.
pub(in crate::aten) fn complement(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let node = float_unary(call, op)?;
    let one = call.scalar_like(1.0, node)?;
    call.add("sub", Attrs::none(), &[one, node])
}

/// The operand times itself.
pub(in crate::aten) fn square(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    call.add("mul", Attrs::none(), &[input, input])
}

/// An operator with two operands, which are promoted and broadcast.
pub(in crate::aten) fn binary(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let operands = call.operands(&["self", "other"])?;
    call.add(op, Attrs::none(), &operands)
}

/// As [`binary`]; on truth values another operator.
pub(in crate::aten) fn binary_or(call: &mut Call<'_>, op: &str, on_bools: &str) -> Result<NodeId> {
    let operands = call.operands(&["self", "other"])?;
    let bools = call.graph().ty(operands[0]).dtype == DType::Bool;
    call.add(if bools { on_bools } else { op }, Attrs::none(), &operands)
}

/// Both operands, when they are known while importing: sizes that a trace computes as tensors.
fn known_pair(call: &mut Call<'_>) -> Option<(Known, Known)> {
    let (left, right) = (call.known("self")?, call.known("other")?);
    let dtype = call.common_dtype(&["self", "other"]).ok()?;
    let fits = |known: &Known| known.is_small() && known.shape.len() <= 1;
    (fits(&left) && fits(&right)).then_some((left.cast(dtype)?, right.cast(dtype)?))
}

/// An operator that is computed at once where both operands are known.
pub(in crate::aten) fn folded(
    call: &mut Call<'_>,
    operator: Binary,
    otherwise: fn(&mut Call<'_>) -> Result<NodeId>,
) -> Result<Item> {
    let plain = !call.has("alpha") || call.float("alpha")? == 1.0;
    if let Some((left, right)) = known_pair(call).filter(|_| plain) {
        let floors = operator != Binary::Div || is_natural(&left, &right);
        if let Some(known) = left.binary(operator, &right).filter(|_| floors) {
            return Ok(Handle::new(Value::known(call.result, known)).into());
        }
    }
    Ok(Handle::new(otherwise(call)?).into())
}

/// Whether rounding down and towards zero is the same in a division: nothing is negative.
fn is_natural(left: &Known, right: &Known) -> bool {
    let natural = |known: &Known| {
        !known.dtype.is_float()
            && known
                .dims()
                .is_some_and(|all| all.iter().all(|dim| crate::build::sizes::bounds(dim).0 >= 0))
    };
    natural(left) && natural(right)
}

/// add, sub: the second operand times `alpha`.
pub(in crate::aten) fn sum(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let dtype = call.common_dtype(&["self", "other"])?;
    let (left, right) = (call.input_as("self", dtype)?, call.input_as("other", dtype)?);
    let alpha = call.float_or("alpha", 1.0)?;
    let right = scaled(call, right, alpha)?;
    let operands = call.broadcast_all(&[left, right])?;
    if dtype == DType::Bool && op == "add" {
        return call.add("or", Attrs::none(), &operands);
    }
    call.add(op, Attrs::none(), &operands)
}

/// rsub: `other - alpha * self`.
pub(in crate::aten) fn reversed_sub(call: &mut Call<'_>) -> Result<NodeId> {
    let dtype = call.common_dtype(&["self", "other"])?;
    let (left, right) = (call.input_as("self", dtype)?, call.input_as("other", dtype)?);
    let alpha = call.float_or("alpha", 1.0)?;
    let left = scaled(call, left, alpha)?;
    let operands = call.broadcast_all(&[right, left])?;
    call.add("sub", Attrs::none(), &operands)
}

/// div: a float unless a rounding mode is given.
pub(in crate::aten) fn div(call: &mut Call<'_>) -> Result<NodeId> {
    let mode = if call.has("rounding_mode") { Some(call.text("rounding_mode")?) } else { None };
    match mode.as_deref() {
        None => {
            let dtype = call.common_dtype(&["self", "other"])?;
            let dtype = if dtype.is_float() { dtype } else { DType::F32 };
            let operands = call.operands_as(&["self", "other"], dtype)?;
            call.add("div", Attrs::none(), &operands)
        }
        Some("floor") => floor_divide(call),
        Some("trunc") => {
            let quotient = binary(call, "div")?;
            match call.graph().ty(quotient).dtype.is_float() {
                true => call.add("trunc", Attrs::none(), &[quotient]),
                false => Ok(quotient),
            }
        }
        Some(other) => Err(call.invalid(format!("`rounding_mode` is {other:?}"))),
    }
}

/// The quotient rounded down: `(a - a mod b) / b`, whose division is exact for integers.
pub(in crate::aten) fn floor_divide(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "other"])?;
    let [a, b] = operands[..] else { return Err(call.invalid("two operands are needed")) };
    if call.graph().ty(a).dtype.is_float() {
        let quotient = call.add("div", Attrs::none(), &[a, b])?;
        return call.add("floor", Attrs::none(), &[quotient]);
    }
    let rest = call.add("mod", Attrs::none(), &[a, b])?;
    let whole = call.add("sub", Attrs::none(), &[a, rest])?;
    call.add("div", Attrs::none(), &[whole, b])
}

/// pow, of which one operand may be a number.
pub(in crate::aten) fn pow(call: &mut Call<'_>) -> Result<NodeId> {
    let operands = call.operands(&["self", "exponent"])?;
    call.add("pow", Attrs::none(), &operands)
}

/// The operand as a truth value.
pub(in crate::aten) fn truth(call: &mut Call<'_>, name: &str) -> Result<NodeId> {
    let input = call.input(name)?;
    call.cast(input, DType::Bool)
}

/// logical_not.
pub(in crate::aten) fn logical_not(call: &mut Call<'_>) -> Result<NodeId> {
    let input = truth(call, "self")?;
    call.add("not", Attrs::none(), &[input])
}

/// logical_and, logical_or, logical_xor.
pub(in crate::aten) fn logical(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let operands = [truth(call, "self")?, truth(call, "other")?];
    let operands = call.broadcast_all(&operands)?;
    call.add(op, Attrs::none(), &operands)
}

/// bitwise_not: on truth values the negation.
pub(in crate::aten) fn bitwise_not(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let bools = call.graph().ty(input).dtype == DType::Bool;
    call.add(if bools { "not" } else { "bitwise_not" }, Attrs::none(), &[input])
}

/// isinf; isfinite is what is neither that nor NaN.
pub(in crate::aten) fn is_inf(call: &mut Call<'_>) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    call.add("is_inf", attrs! { detect_negative: true, detect_positive: true }, &[input])
}

/// isfinite.
pub(in crate::aten) fn is_finite(call: &mut Call<'_>) -> Result<NodeId> {
    let infinite = is_inf(call)?;
    let nan = float_unary(call, "is_nan")?;
    let either = call.add("or", Attrs::none(), &[infinite, nan])?;
    call.add("not", Attrs::none(), &[either])
}

/// where.
pub(in crate::aten) fn select(call: &mut Call<'_>) -> Result<NodeId> {
    let dtype = call.common_dtype(&["self", "other"])?;
    let operands =
        [truth(call, "condition")?, call.input_as("self", dtype)?, call.input_as("other", dtype)?];
    let operands = call.broadcast_all(&operands)?;
    call.add("where", Attrs::none(), &operands)
}

/// masked_fill: the operand's type and shape stay.
pub(in crate::aten) fn masked_fill(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let dtype = call.graph().ty(input).dtype;
    let operands = [truth(call, "mask")?, call.input_as("value", dtype)?, input];
    let operands = call.broadcast_all(&operands)?;
    call.add("where", Attrs::none(), &operands)
}

/// clamp, with bounds that are numbers, tensors, or absent.
pub(in crate::aten) fn clamp(call: &mut Call<'_>) -> Result<NodeId> {
    let given: Vec<&str> =
        ["self", "min", "max"].into_iter().filter(|name| call.has(name)).collect();
    let operands = call.operands(&given)?;
    match (call.has("min"), call.has("max")) {
        (true, true) => call.add("clip", Attrs::none(), &operands),
        (true, false) => call.add("max", Attrs::none(), &operands),
        (false, true) => call.add("min", Attrs::none(), &operands),
        (false, false) => Err(call.invalid("neither `min` nor `max` is given")),
    }
}

/// hardtanh and relu6: a clamp between two numbers.
pub(in crate::aten) fn clip_between(call: &mut Call<'_>, low: f64, high: f64) -> Result<NodeId> {
    let input = call.input("self")?;
    let (low, high) = (call.scalar_like(low, input)?, call.scalar_like(high, input)?);
    call.add("clip", Attrs::none(), &[input, low, high])
}

/// hardtanh.
pub(in crate::aten) fn hardtanh(call: &mut Call<'_>) -> Result<NodeId> {
    let (low, high) = (call.float("min_val")?, call.float("max_val")?);
    clip_between(call, low, high)
}

/// addcmul and addcdiv: `self + value * tensor1 op tensor2`.
pub(in crate::aten) fn add_combined(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let operands = call.operands(&["self", "tensor1", "tensor2"])?;
    let combined = call.add(op, Attrs::none(), &operands[1..])?;
    let value = call.float("value")?;
    let combined = scaled(call, combined, value)?;
    call.add("add", Attrs::none(), &[operands[0], combined])
}

/// lerp: `self + weight * (end - self)`.
pub(in crate::aten) fn lerp(call: &mut Call<'_>) -> Result<NodeId> {
    let dtype = call.common_dtype(&["self", "end"])?;
    let operands = call.operands_as(&["self", "end", "weight"], dtype)?;
    let span = call.add("sub", Attrs::none(), &[operands[1], operands[0]])?;
    let part = call.add("mul", Attrs::none(), &[operands[2], span])?;
    call.add("add", Attrs::none(), &[operands[0], part])
}
