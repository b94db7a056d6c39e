//! The reference interpreter: the oracle that everything else is judged by.
//!
//! It evaluates a graph op by op with each op's `eval`, written from the specification. The element
//! type of float tensors is chosen by the caller: `f64` (the judge), `f32`, or a prime field for ops
//! that only add, subtract and multiply, where equality is exact.

mod bind;
mod element;
mod error;
mod interpreter;
pub mod lowered;
mod offsets;
mod value;

pub use element::{Element, Field, Real};
pub use error::InterpError;
pub use interpreter::{Interpreter, evaluate, evaluate_op};
pub use offsets::{Offsets, strides};
pub use value::{Array, Value, rounded, scalar_tensor, wrapped};

use fornax_bundle::{Dim, Dims};

use crate::{Attrs, Type};

/// What an op's evaluation knows of its node: attributes and types, with the values of symbols.
#[derive(Debug, Clone, Copy)]
pub struct EvalCtx<'a> {
    /// The node's attributes.
    pub attrs: &'a Attrs,
    /// The operands' types (sizes may be symbolic; the operands themselves have numbers).
    pub operands: &'a [Type],
    /// The result's type.
    pub result: &'a Type,
    /// The result's sizes.
    pub shape: &'a [usize],
    /// Values of symbols.
    pub dims: &'a Dims,
}

impl EvalCtx<'_> {
    /// The numbers of an attribute that is a list of sizes.
    ///
    /// # Panics
    /// When the op declares no such attribute.
    pub fn numbers(&self, name: &str) -> Vec<i64> {
        let number = |dim: &Dim| dim.eval(self.dims).expect("invariant: the driver checks sizes");
        self.attrs.dims(name).iter().map(number).collect()
    }
}

/// The evaluation of an op with float elements of type `T`.
pub type EvalFn<T> = fn(&EvalCtx<'_>, &[&Value<T>]) -> Value<T>;

/// How an op is evaluated.
#[derive(Debug, Clone, Copy)]
pub enum Eval {
    /// Source ops: the interpreter itself provides the value.
    Source,
    /// An op that needs real numbers.
    Real {
        /// In double precision.
        f64: EvalFn<f64>,
        /// In single precision.
        f32: EvalFn<f32>,
    },
    /// An op that only moves, adds, subtracts and multiplies.
    Polynomial {
        /// In double precision.
        f64: EvalFn<f64>,
        /// In single precision.
        f32: EvalFn<f32>,
        /// In a prime field.
        field: EvalFn<Field>,
    },
}

/// [`Eval::Real`] from a function that is generic over [`Real`].
#[macro_export]
macro_rules! eval_real {
    ($function:path) => {
        $crate::interp::Eval::Real { f64: $function, f32: $function }
    };
}

/// [`Eval::Polynomial`] from a function that is generic over [`Element`].
#[macro_export]
macro_rules! eval_polynomial {
    ($function:path) => {
        $crate::interp::Eval::Polynomial { f64: $function, f32: $function, field: $function }
    };
}
