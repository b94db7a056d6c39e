//! Scalar expressions: what a pointwise op or a reduction does to single elements.
//!
//! This is the *lowering* of an op. Its reference evaluation is written separately, from the
//! specification, and a generic test holds the two against each other.

use fornax_bundle::DType;

use crate::Float;

/// Declares an enumeration of functions with their names in text forms.
macro_rules! functions {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All functions.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name in text forms.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

functions! {
    /// A function of one element.
    pub enum UnaryFn {
        /// `-x`
        Neg = "neg",
        /// `|x|`
        Abs = "abs",
        /// -1, +0 or 1; NaN stays NaN.
        Sign = "sign",
        /// Rounded towards minus infinity.
        Floor = "floor",
        /// Rounded towards plus infinity.
        Ceil = "ceil",
        /// Rounded to the nearest integer, ties to even.
        RoundEven = "round_even",
        /// Rounded towards zero.
        Trunc = "trunc",
        /// Square root.
        Sqrt = "sqrt",
        /// `1 / sqrt(x)`
        Rsqrt = "rsqrt",
        /// `1 / x`
        Reciprocal = "reciprocal",
        /// `e^x`
        Exp = "exp",
        /// `e^x - 1`, accurate near 0.
        Expm1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// `log(1 + x)`, accurate near 0.
        Log1p = "log1p",
        /// Sine of an angle in radians.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Inverse sine.
        Asin = "asin",
        /// Inverse cosine.
        Acos = "acos",
        /// Inverse tangent.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Inverse hyperbolic sine.
        Asinh = "asinh",
        /// Inverse hyperbolic cosine.
        Acosh = "acosh",
        /// Inverse hyperbolic tangent.
        Atanh = "atanh",
        /// The error function.
        Erf = "erf",
        /// `1 - erf(x)`, accurate where that is small.
        Erfc = "erfc",
        /// `1 / (1 + e^-x)`
        Sigmoid = "sigmoid",
        /// `x P(z <= x)` for a standard normal `z`; NaN for minus infinity.
        Gelu = "gelu",
        /// `log(1 + e^x)`
        Softplus = "softplus",
        /// `x tanh(log(1 + e^x))`; NaN for minus infinity.
        Mish = "mish",
        /// Logical (bool) or bitwise (integer) complement.
        Not = "not",
        /// Whether x is NaN; gives bool.
        IsNan = "is_nan",
        /// Whether x is an infinity; gives bool.
        IsInf = "is_inf",
    }
}

functions! {
    /// A function of two elements of one type.
    pub enum BinaryFn {
        /// Sum; integers wrap.
        Add = "add",
        /// Difference; integers wrap.
        Sub = "sub",
        /// Product; integers wrap.
        Mul = "mul",
        /// Quotient; integers round towards zero, and division by zero gives 0.
        Div = "div",
        /// Power. For integers: repeated multiplication, wrapping; a negative exponent gives 0 unless the base is 1 or -1.
        Pow = "pow",
        /// The larger, where -0 < +0; NaN if one operand is NaN (IEEE 754-2019 `maximum`).
        Max = "max",
        /// The smaller, where -0 < +0; NaN if one operand is NaN (IEEE 754-2019 `minimum`).
        Min = "min",
        /// Remainder with the dividend's sign (C's `%` and `fmod`); integers: 0 for a zero divisor.
        Rem = "rem",
        /// Remainder with the divisor's sign (Python's `%`; a float remainder of zero keeps the dividend's
        /// sign); integers: 0 for a zero divisor.
        Mod = "mod",
        /// Logical (bool) or bitwise (integer) and.
        And = "and",
        /// Logical (bool) or bitwise (integer) or.
        Or = "or",
        /// Logical (bool) or bitwise (integer) exclusive or.
        Xor = "xor",
        /// Shift to the left; 0 when the count, taken as unsigned, reaches the width.
        Shl = "shl",
        /// Shift to the right, logical for unsigned; when the count reaches the width: 0, or all sign bits.
        Shr = "shr",
        /// Equal; gives bool, false with NaN.
        Eq = "eq",
        /// Less; gives bool, false with NaN.
        Lt = "lt",
        /// Less or equal; gives bool, false with NaN.
        Le = "le",
    }
}

/// A number of a given element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// A number of a float type.
    Float(DType, Float),
    /// A number of an integer type (u64 by its bits) or bool (0 or 1).
    Int(DType, i64),
}

impl Scalar {
    /// A number, converted to `dtype` (which truncates for integers).
    pub fn new(dtype: DType, value: f64) -> Scalar {
        if dtype.is_float() {
            Scalar::Float(dtype, Float(value))
        } else {
            Scalar::Int(dtype, value as i64)
        }
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::Float(dtype, _) | Scalar::Int(dtype, _) => dtype,
        }
    }

    /// The value, rounded to `f64` for 64-bit integers beyond 2^53.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(_, value) => value.0,
            Scalar::Int(DType::U64, value) => value as u64 as f64,
            Scalar::Int(_, value) => value as f64,
        }
    }

    /// The smallest value of the type (minus infinity for floats): where a maximum starts.
    pub fn lowest(dtype: DType) -> Scalar {
        match dtype {
            float if float.is_float() => Scalar::Float(dtype, Float(f64::NEG_INFINITY)),
            DType::I64 => Scalar::Int(dtype, i64::MIN),
            DType::I32 => Scalar::Int(dtype, i32::MIN.into()),
            DType::I16 => Scalar::Int(dtype, i16::MIN.into()),
            DType::I8 => Scalar::Int(dtype, i8::MIN.into()),
            _ => Scalar::Int(dtype, 0),
        }
    }

    /// The largest value of the type (infinity for floats): where a minimum starts.
    pub fn highest(dtype: DType) -> Scalar {
        match dtype {
            float if float.is_float() => Scalar::Float(dtype, Float(f64::INFINITY)),
            DType::I64 => Scalar::Int(dtype, i64::MAX),
            DType::I32 => Scalar::Int(dtype, i32::MAX.into()),
            DType::I16 => Scalar::Int(dtype, i16::MAX.into()),
            DType::I8 => Scalar::Int(dtype, i8::MAX.into()),
            DType::U64 => Scalar::Int(dtype, -1),
            DType::U32 => Scalar::Int(dtype, u32::MAX.into()),
            DType::U16 => Scalar::Int(dtype, u16::MAX.into()),
            DType::U8 => Scalar::Int(dtype, u8::MAX.into()),
            _ => Scalar::Int(dtype, 1),
        }
    }
}

/// An expression over the elements of an op's operands.
///
/// All operands of a function have one type. Floats narrower than 32 bits are computed in `f32` and
/// rounded when a value is cast or stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ScalarExpr {
    /// An element of an operand (or an accumulator, see [`crate::op::Reducer`]).
    Arg(usize),
    /// A number.
    Const(Scalar),
    /// A function of one element.
    Unary(UnaryFn, Box<ScalarExpr>),
    /// A function of two elements.
    Binary(BinaryFn, Box<ScalarExpr>, Box<ScalarExpr>),
    /// The second where the first (a bool) is true, else the third.
    Select(Box<ScalarExpr>, Box<ScalarExpr>, Box<ScalarExpr>),
    /// Conversion: to a float with rounding to nearest even; from float to integer towards zero,
    /// saturating, NaN to 0; between integers by wrapping; to bool: whether it is not zero.
    Cast(DType, Box<ScalarExpr>),
}

impl ScalarExpr {
    /// An element of an operand.
    pub fn arg(index: usize) -> ScalarExpr {
        ScalarExpr::Arg(index)
    }

    /// A number of type `dtype`.
    pub fn number(dtype: DType, value: f64) -> ScalarExpr {
        ScalarExpr::Const(Scalar::new(dtype, value))
    }

    /// Applies a function of one element.
    pub fn unary(self, function: UnaryFn) -> ScalarExpr {
        ScalarExpr::Unary(function, Box::new(self))
    }

    /// Applies a function of two elements.
    pub fn binary(self, function: BinaryFn, other: ScalarExpr) -> ScalarExpr {
        ScalarExpr::Binary(function, Box::new(self), Box::new(other))
    }

    /// `then` where `self` is true, else `otherwise`.
    pub fn select(self, then: ScalarExpr, otherwise: ScalarExpr) -> ScalarExpr {
        ScalarExpr::Select(Box::new(self), Box::new(then), Box::new(otherwise))
    }

    /// Converts to another element type.
    pub fn cast(self, dtype: DType) -> ScalarExpr {
        ScalarExpr::Cast(dtype, Box::new(self))
    }

    /// The expression with arguments replaced.
    ///
    /// # Panics
    /// When an argument is missing.
    pub fn applied(&self, args: &[ScalarExpr]) -> ScalarExpr {
        let applied = |x: &ScalarExpr| Box::new(x.applied(args));
        match self {
            ScalarExpr::Arg(index) => args[*index].clone(),
            ScalarExpr::Const(_) => self.clone(),
            ScalarExpr::Unary(function, x) => ScalarExpr::Unary(*function, applied(x)),
            ScalarExpr::Binary(function, a, b) => {
                ScalarExpr::Binary(*function, applied(a), applied(b))
            }
            ScalarExpr::Select(condition, then, otherwise) => {
                ScalarExpr::Select(applied(condition), applied(then), applied(otherwise))
            }
            ScalarExpr::Cast(dtype, x) => ScalarExpr::Cast(*dtype, applied(x)),
        }
    }

    /// The element type of the result for given types of the arguments.
    ///
    /// # Panics
    /// When an argument is missing.
    pub fn dtype(&self, args: &[DType]) -> DType {
        match self {
            ScalarExpr::Arg(index) => args[*index],
            ScalarExpr::Const(scalar) => scalar.dtype(),
            ScalarExpr::Unary(UnaryFn::IsNan | UnaryFn::IsInf, _)
            | ScalarExpr::Binary(BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le, _, _) => DType::Bool,
            ScalarExpr::Unary(_, x) | ScalarExpr::Binary(_, x, _) => x.dtype(args),
            ScalarExpr::Select(_, then, _) => then.dtype(args),
            ScalarExpr::Cast(dtype, _) => *dtype,
        }
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $function:ident),*) => {$(
        impl std::ops::$operator for ScalarExpr {
            type Output = ScalarExpr;
            fn $method(self, other: ScalarExpr) -> ScalarExpr {
                self.binary(BinaryFn::$function, other)
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl std::ops::Neg for ScalarExpr {
    type Output = ScalarExpr;
    fn neg(self) -> ScalarExpr {
        self.unary(UnaryFn::Neg)
    }
}
