//! Number types that graphs are evaluated over.

use std::fmt::Debug;
use std::ops::{Add, Mul, Neg, Sub};

use super::{Eval, EvalFn};

/// What polynomial ops need of a number.
pub trait Element:
    Copy
    + Debug
    + PartialEq
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The number nearest to an integer.
    fn from_i64(value: i64) -> Self;

    /// The number nearest to a real; in the field, reals that are no integers have no meaning, so they
    /// map to an arbitrary fixed element.
    fn from_f64(value: f64) -> Self;

    /// The number as a real; in the field, its representative.
    fn to_f64(self) -> f64;

    /// The evaluation of an op over these numbers, where there is one.
    fn evaluation(eval: &Eval) -> Option<EvalFn<Self>>;

    /// The number 0.
    fn zero() -> Self {
        Self::from_i64(0)
    }
}

/// What all other float ops need: the real functions are taken in `f64` and rounded.
pub trait Real: Element + PartialOrd {
    /// Applies a real function.
    fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Self::from_f64(function(self.to_f64()))
    }
}

impl Element for f64 {
    fn evaluation(eval: &Eval) -> Option<EvalFn<f64>> {
        match eval {
            Eval::Real { f64, .. } | Eval::Polynomial { f64, .. } => Some(*f64),
            Eval::Source => None,
        }
    }
    fn from_i64(value: i64) -> f64 {
        value as f64
    }
    fn from_f64(value: f64) -> f64 {
        value
    }
    fn to_f64(self) -> f64 {
        self
    }
}

impl Real for f64 {}

impl Element for f32 {
    fn evaluation(eval: &Eval) -> Option<EvalFn<f32>> {
        match eval {
            Eval::Real { f32, .. } | Eval::Polynomial { f32, .. } => Some(*f32),
            Eval::Source => None,
        }
    }
    fn from_i64(value: i64) -> f32 {
        value as f32
    }
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f32 {}

/// An integer modulo the prime 2^31 - 1. Polynomial identities hold exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field(u32);

/// The Mersenne prime 2^31 - 1.
const PRIME: u64 = (1 << 31) - 1;

impl Field {
    /// The element an integer stands for.
    pub fn new(value: i64) -> Field {
        Field(value.rem_euclid(PRIME as i64) as u32)
    }

    /// The representative in `0..2^31 - 1`.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Add for Field {
    type Output = Field;
    fn add(self, other: Field) -> Field {
        Field(((u64::from(self.0) + u64::from(other.0)) % PRIME) as u32)
    }
}

impl Sub for Field {
    type Output = Field;
    fn sub(self, other: Field) -> Field {
        Field(((u64::from(self.0) + PRIME - u64::from(other.0)) % PRIME) as u32)
    }
}

impl Mul for Field {
    type Output = Field;
    fn mul(self, other: Field) -> Field {
        Field((u64::from(self.0) * u64::from(other.0) % PRIME) as u32)
    }
}

impl Neg for Field {
    type Output = Field;
    fn neg(self) -> Field {
        Field(0) - self
    }
}

impl Element for Field {
    fn evaluation(eval: &Eval) -> Option<EvalFn<Field>> {
        match eval {
            Eval::Polynomial { field, .. } => Some(*field),
            Eval::Real { .. } | Eval::Source => None,
        }
    }
    fn from_i64(value: i64) -> Field {
        Field::new(value)
    }
    fn from_f64(value: f64) -> Field {
        if value == value.trunc() && value.abs() < 9e15 {
            Field::new(value as i64)
        } else {
            Field::new((value.to_bits() >> 1) as i64)
        }
    }
    fn to_f64(self) -> f64 {
        f64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_a_ring() {
        let (a, b) = (Field::new(-3), Field::new(i64::MAX));
        assert_eq!(a + Field::new(3), Field::new(0));
        assert_eq!((a - b) * (a + b), a * a - b * b);
        assert_eq!(-a, Field::new(3));
    }
}
