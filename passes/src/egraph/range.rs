//! Interval arithmetic over scalar bodies: which numbers a value can be.

use fornax_ir::op::Reducer;
use fornax_ir::{BinaryFn, Scalar, ScalarExpr, UnaryFn};

/// A closed interval of the extended reals. NaN is never in it: a value whose range is an interval may
/// still be NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
}

impl Interval {
    /// Anything.
    pub const ALL: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// One number (anything for NaN).
    pub fn point(value: f64) -> Interval {
        if value.is_nan() { Interval::ALL } else { Interval { low: value, high: value } }
    }

    /// The number, when there is only one and it is finite.
    pub fn as_point(self) -> Option<f64> {
        (self.low == self.high && self.low.is_finite()).then_some(self.low)
    }

    /// From one bound to another; anything if a bound is NaN or they are in the wrong order.
    fn new(low: f64, high: f64) -> Interval {
        if low <= high { Interval { low, high } } else { Interval::ALL }
    }

    /// The numbers in both; the first where there are none (a value that is always NaN).
    pub(crate) fn meet(self, other: Interval) -> Interval {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Interval { low, high } } else { self }
    }

    /// The smallest interval with all numbers of both.
    pub(crate) fn hull(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    fn map_rising(self, function: impl Fn(f64) -> f64) -> Interval {
        Interval::new(function(self.low), function(self.high))
    }

    /// Bounds moved outwards by the error that a computed function may have.
    fn widened(self) -> Interval {
        const RELATIVE: f64 = 1e-6;
        let out = |value: f64| if value == 0.0 { 0.0 } else { value.abs() * RELATIVE };
        Interval { low: self.low - out(self.low), high: self.high + out(self.high) }
    }

    /// The range of a fold over elements of this range, of which there may be none.
    pub(crate) fn of_fold(self, reducer: &Reducer, may_be_empty: bool) -> Interval {
        let chooses = matches!(
            reducer.combine.as_slice(),
            [ScalarExpr::Binary(BinaryFn::Max | BinaryFn::Min, ..)]
        );
        let (Some(init), true) = (reducer.init.first(), chooses) else {
            // Sums of what is not negative are not negative.
            let adds =
                matches!(reducer.combine.as_slice(), [ScalarExpr::Binary(BinaryFn::Add, ..)]);
            let lifted: Vec<Interval> =
                reducer.lift.iter().map(|lift| of_expr(lift, &[self, Interval::ALL])).collect();
            return match lifted.as_slice() {
                [lifted] if adds && lifted.low >= 0.0 => {
                    let sum = Interval { low: 0.0, high: f64::INFINITY };
                    let count = Interval { low: 1.0, high: f64::INFINITY };
                    of_expr(&reducer.finish, &[sum, count])
                }
                _ => Interval::ALL,
            };
        };
        // A fold over nothing gives the initial value.
        let chosen = if may_be_empty { self.hull(of_scalar(*init)) } else { self };
        of_expr(&reducer.finish, &[chosen, Interval::ALL])
    }
}

fn of_scalar(scalar: Scalar) -> Interval {
    Interval::point(scalar.to_f64())
}

/// The range of an expression over arguments of these ranges.
pub(crate) fn of_expr(expr: &ScalarExpr, args: &[Interval]) -> Interval {
    match expr {
        ScalarExpr::Arg(index) => args.get(*index).copied().unwrap_or(Interval::ALL),
        ScalarExpr::Const(scalar) => of_scalar(*scalar),
        ScalarExpr::Unary(function, x) => unary(*function, of_expr(x, args)),
        ScalarExpr::Binary(function, a, b) => binary(*function, of_expr(a, args), of_expr(b, args)),
        ScalarExpr::Select(_, a, b) => of_expr(a, args).hull(of_expr(b, args)),
        ScalarExpr::Cast(to, x) => {
            let x = of_expr(x, args);
            if to.is_float() { x.widened() } else { Interval::ALL }
        }
    }
}

fn unary(function: UnaryFn, x: Interval) -> Interval {
    let bounded = |low, high| Interval { low, high };
    match function {
        UnaryFn::Neg => Interval::new(-x.high, -x.low),
        UnaryFn::Abs if x.low >= 0.0 => x,
        UnaryFn::Abs if x.high <= 0.0 => Interval::new(-x.high, -x.low),
        UnaryFn::Abs => bounded(0.0, x.high.max(-x.low)),
        UnaryFn::Exp => x.map_rising(f64::exp).widened().meet(bounded(0.0, f64::INFINITY)),
        UnaryFn::Sqrt if x.low >= 0.0 => x.map_rising(f64::sqrt).widened(),
        UnaryFn::Tanh | UnaryFn::Erf | UnaryFn::Sin | UnaryFn::Cos => bounded(-1.0, 1.0),
        UnaryFn::Erfc => bounded(0.0, 2.0),
        UnaryFn::Sigmoid => bounded(0.0, 1.0),
        UnaryFn::Softplus => bounded(0.0, f64::INFINITY),
        UnaryFn::Mish => bounded(-0.31, x.high.max(0.0)),
        // The least value is that at about -0.75.
        UnaryFn::Gelu => bounded(-0.2, x.high.max(0.0)),
        UnaryFn::Log1p if x.low >= 0.0 => bounded(0.0, f64::INFINITY),
        UnaryFn::Reciprocal if x.low > 0.0 => {
            Interval::new(1.0 / x.high, 1.0 / x.low).widened().meet(bounded(0.0, f64::INFINITY))
        }
        UnaryFn::Expm1 => bounded(-1.0, f64::INFINITY),
        _ => Interval::ALL,
    }
}

fn binary(function: BinaryFn, a: Interval, b: Interval) -> Interval {
    // The product of a bound of zero and an infinite one stands for numbers that only come near.
    let product = |x: f64, y: f64| if x == 0.0 || y == 0.0 { 0.0 } else { x * y };
    match function {
        BinaryFn::Add => Interval::new(a.low + b.low, a.high + b.high).widened(),
        BinaryFn::Sub => Interval::new(a.low - b.high, a.high - b.low).widened(),
        BinaryFn::Mul => {
            let corners = [
                product(a.low, b.low),
                product(a.low, b.high),
                product(a.high, b.low),
                product(a.high, b.high),
            ];
            let low = corners.into_iter().fold(f64::INFINITY, f64::min);
            let high = corners.into_iter().fold(f64::NEG_INFINITY, f64::max);
            Interval::new(low, high).widened()
        }
        BinaryFn::Div if b.low > 0.0 => {
            let inverse = Interval::new(1.0 / b.high, 1.0 / b.low);
            binary(BinaryFn::Mul, a, inverse)
        }
        BinaryFn::Max => Interval { low: a.low.max(b.low), high: a.high.max(b.high) },
        BinaryFn::Min => Interval { low: a.low.min(b.low), high: a.high.min(b.high) },
        _ => Interval::ALL,
    }
}
