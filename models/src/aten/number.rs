//! Arithmetic of Python's numbers: what programs do with sizes.

use fornax_ir::Dim;

use super::item::{Item, Number};
use crate::build::sizes::{bounds, is_manageable};

/// The result of an operator on two numbers by its name in Python's `operator` module; `None` when it is not known or
/// has none (a division by zero).
pub(crate) fn binary(operator: &str, a: &Number, b: &Number) -> Option<Item> {
    if let Some(holds) = comparison(operator) {
        return Some(compare(holds, a, b));
    }
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) if operator != "truediv" => int_binary(operator, &a, &b),
        _ => {
            let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return Some(Item::Unknown) };
            float_binary(operator, a, b).map(Item::Float)
        }
    }
}

/// A truth value counts as 0 or 1.
fn whole(number: &Number) -> Option<Dim> {
    match number {
        Number::Bool(value) => Some(Dim::constant(i64::from(*value))),
        Number::Int(dim) => Some(dim.clone()),
        Number::Float(_) => None,
    }
}

fn int_binary(operator: &str, a: &Dim, b: &Dim) -> Option<Item> {
    let constants = a.as_const().zip(b.as_const());
    let dim = match (operator, constants) {
        ("add", Some((x, y))) => Dim::constant(x.checked_add(y)?),
        ("sub", Some((x, y))) => Dim::constant(x.checked_sub(y)?),
        ("mul", Some((x, y))) => Dim::constant(x.checked_mul(y)?),
        ("add", None) => a + b,
        ("sub", None) => a - b,
        ("mul", None) => a * b,
        ("floordiv" | "mod", _) if b.is(0) => return None,
        ("floordiv", Some((i64::MIN, -1))) => return None,
        ("floordiv", Some((x, y))) => {
            let (quotient, rest) = (x.wrapping_div(y), x.wrapping_rem(y));
            Dim::constant(if rest != 0 && (rest < 0) != (y < 0) { quotient - 1 } else { quotient })
        }
        ("mod", Some((x, y))) => {
            let rest = x.wrapping_rem(y);
            Dim::constant(if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest })
        }
        ("floordiv", None) => a.divided_exactly(b).unwrap_or_else(|| a.floor_div(b)),
        ("mod", None) => a.modulo(b),
        ("max", _) => crate::build::sizes::larger(a, b),
        ("min", _) => crate::build::sizes::smaller(a, b),
        ("pow", Some((x, y))) => Dim::constant(x.checked_pow(u32::try_from(y).ok()?)?),
        ("and", Some((x, y))) => Dim::constant(x & y),
        ("or", Some((x, y))) => Dim::constant(x | y),
        ("lshift", Some((x, y))) => Dim::constant(x.checked_shl(u32::try_from(y).ok()?)?),
        ("rshift", Some((x, y))) => Dim::constant(x.checked_shr(u32::try_from(y).ok()?)?),
        _ => return Some(Item::Unknown),
    };
    is_manageable(&dim).then_some(Item::Int(dim))
}

fn float_binary(operator: &str, a: f64, b: f64) -> Option<f64> {
    Some(match operator {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "truediv" | "floordiv" | "mod" if b == 0.0 => return None,
        "truediv" => a / b,
        "floordiv" => (a / b).floor(),
        "mod" => a - b * (a / b).floor(),
        "pow" => a.powf(b),
        "max" => a.max(b),
        "min" => a.min(b),
        _ => return None,
    })
}

/// What a difference must be like: negative, zero, positive.
fn comparison(operator: &str) -> Option<[bool; 3]> {
    Some(match operator {
        "lt" => [true, false, false],
        "le" => [true, true, false],
        "eq" => [false, true, false],
        "ne" => [true, false, true],
        "ge" => [false, true, true],
        "gt" => [false, false, true],
        _ => return None,
    })
}

fn compare([less, equal, greater]: [bool; 3], a: &Number, b: &Number) -> Item {
    if let (Some(a), Some(b)) = (whole(a), whole(b)) {
        let (low, high) = bounds(&(&a - &b));
        let possible = [low < 0, low <= 0 && high >= 0, high > 0];
        let outcomes = [less, equal, greater];
        let mut seen = possible.iter().zip(outcomes).filter(|(possible, _)| **possible);
        return match seen.next() {
            Some((_, first)) if seen.all(|(_, outcome)| outcome == first) => Item::Bool(first),
            _ => Item::Unknown,
        };
    }
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return Item::Unknown };
    Item::Bool(
        a < b && less
            || a == b && equal
            || a > b && greater
            || (a.is_nan() || b.is_nan()) && less && greater && !equal,
    )
}

/// The result of an operator on one number; `None` when there is none.
pub(crate) fn unary(operator: &str, a: &Number) -> Option<Item> {
    match (operator, a) {
        ("neg", Number::Float(value)) => Some(Item::Float(-value)),
        ("neg", _) => Some(Item::Int(-&whole(a)?)),
        ("not", Number::Bool(value)) => Some(Item::Bool(!value)),
        ("abs", Number::Int(dim)) if bounds(dim).0 >= 0 => Some(Item::Int(dim.clone())),
        ("float", _) => Some(a.as_f64().map_or(Item::Unknown, Item::Float)),
        ("int", Number::Float(value)) if value.abs() < 9.0e18 => {
            Some(Item::int(value.trunc() as i64))
        }
        ("int" | "floor" | "ceil" | "trunc", Number::Int(_) | Number::Bool(_)) => {
            whole(a).map(Item::Int)
        }
        ("bool", _) => Some(a.as_f64().map_or(Item::Unknown, |value| Item::Bool(value != 0.0))),
        (_, Number::Float(_) | Number::Int(_)) => {
            let value = match a.as_f64() {
                Some(value) => value,
                None => return Some(Item::Unknown),
            };
            match operator {
                "sqrt" if value >= 0.0 => Some(Item::Float(value.sqrt())),
                "exp" => Some(Item::Float(value.exp())),
                "log" if value > 0.0 => Some(Item::Float(value.ln())),
                "abs" if matches!(a, Number::Int(_)) => Some(Item::int(value.abs() as i64)),
                "abs" => Some(Item::Float(value.abs())),
                "floor" if value.abs() < 9.0e18 => Some(Item::int(value.floor() as i64)),
                "ceil" if value.abs() < 9.0e18 => Some(Item::int(value.ceil() as i64)),
                "trunc" if value.abs() < 9.0e18 => Some(Item::int(value.trunc() as i64)),
                "round" if value.abs() < 9.0e18 => Some(Item::int(value.round_ties_even() as i64)),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(text: &str) -> Number {
        Number::Int(text.parse().unwrap())
    }

    fn shown(item: Option<Item>) -> String {
        match item {
            Some(Item::Int(dim)) => dim.to_string(),
            Some(Item::Float(value)) => format!("{value:?}"),
            Some(Item::Bool(value)) => value.to_string(),
            Some(Item::Unknown) => "?".to_owned(),
            _ => "none".to_owned(),
        }
    }

    #[test]
    fn numbers_are_those_of_python() {
        let of = |operator: &str, a: &str, b: &str| shown(binary(operator, &int(a), &int(b)));
        assert_eq!(of("floordiv", "-7", "2"), "-4");
        assert_eq!(of("mod", "-7", "2"), "1");
        assert_eq!(of("mod", "7", "-2"), "-1");
        assert_eq!(of("truediv", "7", "2"), "3.5");
        assert_eq!(of("floordiv", "1", "0"), "none");
        assert_eq!(of("mul", "9223372036854775807", "2"), "none");
        assert_eq!(of("add", "N", "1"), "N + 1");
        assert_eq!(of("floordiv", "4*N", "2"), "2*N");
        assert_eq!(of("ge", "N + 1", "1"), "true");
        assert_eq!(of("gt", "N", "0"), "?");
        assert_eq!(shown(unary("round", &Number::Float(2.5))), "2");
        assert_eq!(shown(binary("ne", &Number::Float(f64::NAN), &int("1"))), "true");
        assert_eq!(shown(binary("eq", &Number::Bool(true), &int("1"))), "true");
    }
}
