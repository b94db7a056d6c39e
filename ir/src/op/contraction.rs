//! What the contraction ops share.

use fornax_bundle::DType;

use super::domain::Domain;
use super::{Violation, require};
use crate::Type;
use crate::interp::{Array, Element};

/// What a sum of products needs of a number.
pub(super) trait Ring: Copy {
    /// The neutral element of the sum.
    const ZERO: fn() -> Self;

    /// `self + a * b`; integers wrap.
    fn add_product(self, a: Self, b: Self) -> Self;
}

impl<T: Element> Ring for T {
    const ZERO: fn() -> T = T::zero;

    fn add_product(self, a: T, b: T) -> T {
        self + a * b
    }
}

impl Ring for i64 {
    const ZERO: fn() -> i64 = || 0;

    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

/// A sum of products as the value of a node. The interpreter wraps integers to the result's type.
macro_rules! eval_sum_of_products {
    ($ctx:expr, $operands:expr, $function:path) => {
        match ($operands[0], $operands[1]) {
            ($crate::interp::Value::Float(a), $crate::interp::Value::Float(b)) => {
                $crate::interp::Value::Float($function($ctx, a, b))
            }
            (a, b) => $crate::interp::Value::Int($function($ctx, a.int(), b.int())),
        }
    };
}
pub(super) use eval_sum_of_products;

/// An array of zeros.
pub(super) fn zeros<R: Ring>(shape: &[usize]) -> Array<R> {
    Array::new(shape, vec![(R::ZERO)(); shape.iter().product()])
}

/// The type that sums over elements of type `dtype` are kept in.
pub(super) fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Requires one number type of both operands.
pub(super) fn require_numbers(
    a: &Type,
    b: &Type,
    constraint: &'static str,
) -> Result<(), Violation> {
    Domain::Numeric.require(a.dtype, constraint)?;
    require(a.dtype == b.dtype, constraint, || {
        format!("element types {} and {} differ", a.dtype, b.dtype)
    })
}
