//! Sets of element types that ops accept.

use fornax_bundle::DType;

use super::{OpCtx, Violation, require};

/// A set of element types. The 8-bit floats are in none: they are named, not computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    /// `f64`, `f32`, `f16`, `bf16`.
    Float,
    /// Floats and integers.
    Numeric,
    /// Floats and signed integers.
    Signed,
    /// Integers.
    Integer,
    /// `bool`.
    Bool,
    /// Everything but 8-bit floats.
    Any,
}

impl Domain {
    /// Whether the type is in the set.
    pub(super) fn holds(self, dtype: DType) -> bool {
        let is_float = dtype.is_float() && dtype.size() > 1;
        match self {
            Domain::Float => is_float,
            Domain::Numeric => is_float || dtype.is_int(),
            Domain::Signed => is_float || dtype.is_signed_int(),
            Domain::Integer => dtype.is_int(),
            Domain::Bool => dtype == DType::Bool,
            Domain::Any => is_float || !dtype.is_float(),
        }
    }

    /// What an operand outside the set is not.
    fn name(self) -> &'static str {
        match self {
            Domain::Float => "a float of 16 bits or more",
            Domain::Numeric => "an integer or a float of 16 bits or more",
            Domain::Signed => "a signed integer or a float of 16 bits or more",
            Domain::Integer => "an integer",
            Domain::Bool => "bool",
            Domain::Any => "a type that can be computed with",
        }
    }

    /// Requires an element type to be in the set.
    ///
    /// # Errors
    /// The violation of `constraint`, when it is not.
    pub(super) fn require(self, dtype: DType, constraint: &'static str) -> Result<(), Violation> {
        require(self.holds(dtype), constraint, || format!("{dtype} is not {}", self.name()))
    }
}

/// Requires all operands to have the same type.
///
/// # Errors
/// The violation of `constraint`, when they have not.
pub(super) fn require_same_types(
    ctx: &OpCtx<'_>,
    constraint: &'static str,
) -> Result<(), Violation> {
    let first = ctx.first();
    ctx.operands.iter().try_for_each(|ty| {
        require(ty == first, constraint, || format!("operand types differ: {first} and {ty}"))
    })
}
