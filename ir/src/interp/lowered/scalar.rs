//! Scalar expressions.

use fornax_bundle::DType;

use super::super::{Element, rounded, wrapped};
use super::index::Outcome;
use crate::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

/// A number under evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number<T> {
    /// Of a float type.
    Float(T),
    /// Of an integer type (`u64` by its bits) or bool.
    Int(i64),
}

/// A number with its element type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typed<T> {
    /// The element type.
    pub dtype: DType,
    /// The number.
    pub number: Number<T>,
}

impl<T: Element> From<Scalar> for Typed<T> {
    fn from(scalar: Scalar) -> Typed<T> {
        let number = match scalar {
            Scalar::Float(_, value) => Number::Float(T::from_f64(value.0)),
            Scalar::Int(_, value) => Number::Int(value),
        };
        Typed { dtype: scalar.dtype(), number }
    }
}

impl<T: Element> Typed<T> {
    fn float(dtype: DType, number: T) -> Typed<T> {
        Typed { dtype, number: Number::Float(number) }
    }

    fn int(dtype: DType, number: i64) -> Typed<T> {
        Typed { dtype, number: Number::Int(wrapped(dtype, number)) }
    }

    fn truth(truth: bool) -> Typed<T> {
        Typed::int(DType::Bool, i64::from(truth))
    }

    /// The value as a real number.
    fn to_f64(self) -> f64 {
        match self.number {
            Number::Float(number) => number.to_f64(),
            Number::Int(number) if self.dtype == DType::U64 => number as u64 as f64,
            Number::Int(number) => number as f64,
        }
    }
}

/// The value of an expression for given arguments.
///
/// Floats are computed in `T`, and rounded to a narrower type by casts alone.
///
/// # Errors
/// When an argument is missing, or a function is applied to types it is not defined for.
pub fn scalar<T: Element>(expr: &ScalarExpr, args: &[Typed<T>]) -> Result<Typed<T>, String> {
    match expr {
        ScalarExpr::Arg(index) => {
            args.get(*index).copied().ok_or_else(|| format!("there is no argument {index}"))
        }
        ScalarExpr::Const(number) => Ok(Typed::from(*number)),
        ScalarExpr::Unary(function, x) => unary(*function, scalar(x, args)?),
        ScalarExpr::Binary(function, x, y) => binary(*function, scalar(x, args)?, scalar(y, args)?),
        ScalarExpr::Select(condition, then, otherwise) => {
            let condition = scalar(condition, args)?;
            let (then, otherwise) = (scalar(then, args)?, scalar(otherwise, args)?);
            if condition.dtype != DType::Bool || then.dtype != otherwise.dtype {
                return Err(format!("select of {condition:?}, {then:?}, {otherwise:?}"));
            }
            Ok(if condition.number == Number::Int(0) { otherwise } else { then })
        }
        ScalarExpr::Cast(dtype, x) => Ok(cast(*dtype, scalar(x, args)?)),
    }
}

fn cast<T: Element>(to: DType, x: Typed<T>) -> Typed<T> {
    match x.number {
        Number::Float(number) if to.is_float() => {
            let narrows = to.size() < x.dtype.size() || (to.size() == 2 && x.dtype != to);
            let round = |number: T| T::from_f64(rounded(to, number.to_f64()));
            Typed::float(to, if narrows { round(number) } else { number })
        }
        Number::Int(_) if to.is_float() => Typed::float(to, T::from_f64(rounded(to, x.to_f64()))),
        Number::Int(number) => Typed::int(to, number),
        Number::Float(number) => {
            let real = number.to_f64();
            match to {
                DType::Bool => Typed::truth(real != 0.0),
                DType::U64 => Typed::int(to, real as u64 as i64),
                _ => {
                    let (low, high) = (Scalar::lowest(to), Scalar::highest(to));
                    let clamped = real.clamp(low.to_f64(), high.to_f64());
                    Typed::int(to, clamped as i64)
                }
            }
        }
    }
}

fn unary<T: Element>(function: UnaryFn, x: Typed<T>) -> Outcome<Typed<T>> {
    use UnaryFn::*;
    let dtype = x.dtype;
    match (function, x.number) {
        (Neg, Number::Float(x)) => Ok(Typed::float(dtype, -x)),
        (IsNan, Number::Float(x)) => Ok(Typed::truth(x.to_f64().is_nan())),
        (IsInf, Number::Float(x)) => Ok(Typed::truth(x.to_f64().is_infinite())),
        (Neg, Number::Int(x)) if dtype.is_int() => Ok(Typed::int(dtype, 0i64.wrapping_sub(x))),
        (Abs, Number::Int(x)) if dtype.is_signed_int() => {
            Ok(Typed::int(dtype, if x < 0 { 0i64.wrapping_sub(x) } else { x }))
        }
        (Sign, Number::Int(x)) if dtype.is_signed_int() => Ok(Typed::int(dtype, x.clamp(-1, 1))),
        (Not, Number::Int(x)) if dtype == DType::Bool => Ok(Typed::truth(x == 0)),
        (Not, Number::Int(x)) => Ok(Typed::int(dtype, -1 - x)),
        (_, Number::Float(x)) => real(function, x.to_f64())
            .map(|result| Typed::float(dtype, T::from_f64(result)))
            .ok_or_else(|| format!("{function:?} of {dtype}")),
        _ => Err(format!("{function:?} of {dtype}")),
    }
}

fn real(function: UnaryFn, x: f64) -> Option<f64> {
    use UnaryFn::*;
    Some(match function {
        Abs => x.abs(),
        Sign if x > 0.0 => 1.0,
        Sign if x < 0.0 => -1.0,
        Sign => x + 0.0,
        Floor => x.floor(),
        Ceil => x.ceil(),
        RoundEven => x.round_ties_even(),
        Trunc => x.trunc(),
        Sqrt => x.sqrt(),
        Rsqrt => x.sqrt().recip(),
        Reciprocal => x.recip(),
        Exp => x.exp(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => x.asinh(),
        Acosh => x.acosh(),
        Atanh => x.atanh(),
        Erf => libm::erf(x),
        Erfc => libm::erfc(x),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Softplus => softplus(x),
        Mish => x * softplus(x).tanh(),
        Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Neg | Not | IsNan | IsInf => return None,
    })
}

/// `log(1 + e^x)`, as `max(x, 0) + log(1 + e^-|x|)`.
fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

fn binary<T: Element>(function: BinaryFn, x: Typed<T>, y: Typed<T>) -> Outcome<Typed<T>> {
    let dtype = x.dtype;
    if y.dtype != dtype {
        return Err(format!("{function:?} of {dtype} and {}", y.dtype));
    }
    match (x.number, y.number) {
        (Number::Float(a), Number::Float(b)) => match function {
            BinaryFn::Add => Ok(Typed::float(dtype, a + b)),
            BinaryFn::Sub => Ok(Typed::float(dtype, a - b)),
            BinaryFn::Mul => Ok(Typed::float(dtype, a * b)),
            BinaryFn::Eq => Ok(Typed::truth(a.to_f64() == b.to_f64())),
            BinaryFn::Lt => Ok(Typed::truth(a.to_f64() < b.to_f64())),
            BinaryFn::Le => Ok(Typed::truth(a.to_f64() <= b.to_f64())),
            _ => real_pair(function, a.to_f64(), b.to_f64())
                .map(|result| Typed::float(dtype, T::from_f64(result)))
                .ok_or_else(|| format!("{function:?} of {dtype}")),
        },
        (Number::Int(a), Number::Int(b)) => int_pair(function, dtype, a, b),
        _ => Err(format!("{function:?} of {x:?} and {y:?}")),
    }
}

fn real_pair(function: BinaryFn, x: f64, y: f64) -> Option<f64> {
    Some(match function {
        BinaryFn::Div => x / y,
        BinaryFn::Pow => x.powf(y),
        BinaryFn::Rem => x % y,
        BinaryFn::Mod => match x % y {
            rest if rest * y < 0.0 => rest + y,
            rest => rest,
        },
        BinaryFn::Max | BinaryFn::Min if x.is_nan() || y.is_nan() => f64::NAN,
        // The total order of floats without NaN has -0 < +0.
        BinaryFn::Max => {
            if x.total_cmp(&y).is_lt() {
                y
            } else {
                x
            }
        }
        BinaryFn::Min => {
            if x.total_cmp(&y).is_lt() {
                x
            } else {
                y
            }
        }
        _ => return None,
    })
}

/// Exact in 128 bits, then wrapped.
fn int_pair<T: Element>(function: BinaryFn, dtype: DType, x: i64, y: i64) -> Outcome<Typed<T>> {
    use BinaryFn::*;
    let wide = |x: i64| if dtype == DType::U64 { i128::from(x as u64) } else { i128::from(x) };
    let (a, b) = (wide(x), wide(y));
    let bits = 8 * dtype.size() as i128;
    let count = if dtype == DType::U64 || y >= 0 { b } else { bits };
    let is_bool = dtype == DType::Bool;
    let exact = match function {
        Eq => return Ok(Typed::truth(a == b)),
        Lt => return Ok(Typed::truth(a < b)),
        Le => return Ok(Typed::truth(a <= b)),
        And => a & b,
        Or => a | b,
        Xor => a ^ b,
        _ if is_bool => return Err(format!("{function:?} of bool")),
        Add => a + b,
        Sub => a - b,
        Mul => a.wrapping_mul(b),
        Div => a.checked_div(b).unwrap_or(0),
        Rem => a.checked_rem(b).unwrap_or(0),
        Mod => a
            .checked_rem(b)
            .map_or(0, |rest| if rest.signum() * b.signum() < 0 { rest + b } else { rest }),
        Max => a.max(b),
        Min => a.min(b),
        Pow if b < 0 => match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        },
        Pow => wrapping_power(a, b),
        Shl if count < bits => a << count,
        Shl => 0,
        Shr => a >> count.min(bits),
    };
    Ok(Typed::int(dtype, exact as i64))
}

fn wrapping_power(base: i128, exponent: i128) -> i128 {
    if exponent == 0 {
        return 1;
    }
    let root = wrapping_power(base, exponent / 2);
    let square = root.wrapping_mul(root);
    if exponent % 2 == 1 { square.wrapping_mul(base) } else { square }
}
