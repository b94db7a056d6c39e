//! Symbolic sizes in normal form.

mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a size that is known only when the model runs, such as `batch`.
pub type Symbol = Arc<str>;

/// Values of symbols.
pub type Dims = BTreeMap<Symbol, i64>;

/// What multiplies in a monomial.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A named size.
    Symbol(Symbol),
    /// Quotient rounded towards minus infinity.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// Remainder of [`Atom::FloorDiv`], with the divisor's sign.
    Mod(Box<Dim>, Box<Dim>),
    /// The larger one.
    Max(Box<Dim>, Box<Dim>),
    /// The smaller one.
    Min(Box<Dim>, Box<Dim>),
}

/// A product of atoms, sorted; the empty product is 1.
pub type Monomial = Vec<Atom>;

/// A size, index or offset: an integer polynomial over [`Atom`]s.
///
/// The normal form is the sum of monomials, each once, with a coefficient that is not zero. Two equal
/// polynomials are equal values, so `==` decides most equalities a shape check asks for; it never says
/// `true` wrongly.
///
/// The text form is what [`std::fmt::Display`] prints and [`std::str::FromStr`] reads: `2*N + 1`,
/// `floordiv(N + 1, 2)`, `max(0, N - 3)`.
///
/// The operators saturate coefficients at the ends of `i64`, which no real size comes near. Sizes from
/// untrusted text go through [`Dim::checked_add`] and [`Dim::checked_mul`], so that reading one either
/// gives exactly what it says or an error.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Dim {
    terms: BTreeMap<Monomial, i64>,
}

/// The values a symbol may take: `min..=max`, all multiples of `divisor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimRange {
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// Every value is a multiple of this.
    pub divisor: i64,
}

impl DimRange {
    /// Any size at all: `0..=i32::MAX`.
    pub const ANY: DimRange = DimRange { min: 0, max: i32::MAX as i64, divisor: 1 };
}

/// A size that cannot be evaluated or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimError {
    /// No value was given for a symbol.
    #[error("no value for the dimension `{0}`")]
    Unbound(Symbol),
    /// Division by zero in a size.
    #[error("division by zero in the dimension `{0}`")]
    DivisionByZero(Dim),
    /// The value leaves 64 bits.
    #[error("the dimension `{0}` overflows")]
    Overflow(Dim),
    /// The text is no dimension.
    #[error("`{text}` is not a dimension: {reason}")]
    Syntax {
        /// What was read.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Dim {
    /// A known size.
    pub fn constant(value: i64) -> Dim {
        let mut dim = Dim::default();
        dim.accumulate(Vec::new(), value);
        dim
    }

    /// A named size.
    pub fn symbol(name: impl Into<Symbol>) -> Dim {
        Dim::from_atom(Atom::Symbol(name.into()))
    }

    fn from_atom(atom: Atom) -> Dim {
        Dim { terms: BTreeMap::from([(vec![atom], 1)]) }
    }

    fn accumulate(&mut self, monomial: Monomial, coefficient: i64) {
        let sum = self.terms.get(&monomial).copied().unwrap_or(0).saturating_add(coefficient);
        self.set(monomial, sum);
    }

    fn set(&mut self, monomial: Monomial, coefficient: i64) {
        if coefficient == 0 {
            self.terms.remove(&monomial);
        } else {
            self.terms.insert(monomial, coefficient);
        }
    }

    /// The sum, or nothing when a coefficient leaves 64 bits.
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        let mut sum = self.clone();
        for (monomial, &coefficient) in &other.terms {
            let old = sum.terms.get(monomial).copied().unwrap_or(0);
            sum.set(monomial.clone(), old.checked_add(coefficient)?);
        }
        Some(sum)
    }

    fn checked_sub(&self, other: &Dim) -> Option<Dim> {
        let mut difference = self.clone();
        for (monomial, &coefficient) in &other.terms {
            let old = difference.terms.get(monomial).copied().unwrap_or(0);
            difference.set(monomial.clone(), old.checked_sub(coefficient)?);
        }
        Some(difference)
    }

    /// The product, or nothing when a coefficient leaves 64 bits.
    pub fn checked_mul(&self, other: &Dim) -> Option<Dim> {
        let mut product = Dim::default();
        for (left, &a) in &self.terms {
            for (right, &b) in &other.terms {
                let monomial = merged(left, right);
                let old = product.terms.get(&monomial).copied().unwrap_or(0);
                product.set(monomial, old.checked_add(a.checked_mul(b)?)?);
            }
        }
        Some(product)
    }

    /// The value, when it does not depend on a symbol.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new() as &Monomial).copied(),
            _ => None,
        }
    }

    /// Whether this is the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// The monomials with their coefficients, in the normal form's order.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, i64)> {
        self.terms.iter().map(|(monomial, &coefficient)| (monomial, coefficient))
    }

    /// The largest number that divides every coefficient (0 for the constant 0).
    pub fn content(&self) -> i64 {
        to_divisor(self.terms.values().fold(0, |gcd, c| gcd_of(gcd, c.unsigned_abs())))
    }

    /// `self / divisor`, when the division leaves no remainder for any value of the symbols.
    pub fn divided_exactly(&self, divisor: &Dim) -> Option<Dim> {
        let mut divisor_terms = divisor.terms.iter();
        let (Some((by, coefficient)), None) = (divisor_terms.next(), divisor_terms.next()) else {
            return (self == divisor && !divisor.is(0)).then(|| Dim::constant(1));
        };
        let mut quotient = Dim::default();
        for (monomial, &factor) in &self.terms {
            if factor.checked_rem(*coefficient)? != 0 {
                return None;
            }
            let mut rest = monomial.clone();
            for atom in by {
                let position = rest.iter().position(|other| other == atom)?;
                rest.remove(position);
            }
            quotient.accumulate(rest, factor / coefficient);
        }
        Some(quotient)
    }

    /// Quotient rounded towards minus infinity.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if let (Some(value), Some(by)) = (self.as_const(), divisor.as_const())
            && let Some(quotient) = floor_div(value, by)
        {
            return Dim::constant(quotient);
        }
        self.divided_exactly(divisor).unwrap_or_else(|| {
            Dim::from_atom(Atom::FloorDiv(Box::new(self.clone()), Box::new(divisor.clone())))
        })
    }

    /// Quotient rounded towards plus infinity, for a positive divisor.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        if let Some(exact) = self.divided_exactly(divisor) {
            return exact;
        }
        (self + divisor - Dim::constant(1)).floor_div(divisor)
    }

    /// The remainder that belongs to [`Dim::floor_div`].
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        if let (Some(value), Some(by)) = (self.as_const(), divisor.as_const())
            && by != 0
        {
            return Dim::constant(floor_mod(value, by));
        }
        if self.divided_exactly(divisor).is_some() {
            return Dim::constant(0);
        }
        Dim::from_atom(Atom::Mod(Box::new(self.clone()), Box::new(divisor.clone())))
    }

    /// The larger of two sizes.
    pub fn maximum(&self, other: &Dim) -> Dim {
        match self.checked_sub(other).and_then(|difference| difference.as_const()) {
            Some(difference) if difference >= 0 => self.clone(),
            Some(_) => other.clone(),
            None => {
                let (low, high) = if self <= other { (self, other) } else { (other, self) };
                Dim::from_atom(Atom::Max(Box::new(low.clone()), Box::new(high.clone())))
            }
        }
    }

    /// The smaller of two sizes.
    pub fn minimum(&self, other: &Dim) -> Dim {
        match self.checked_sub(other).and_then(|difference| difference.as_const()) {
            Some(difference) if difference <= 0 => self.clone(),
            Some(_) => other.clone(),
            None => {
                let (low, high) = if self <= other { (self, other) } else { (other, self) };
                Dim::from_atom(Atom::Min(Box::new(low.clone()), Box::new(high.clone())))
            }
        }
    }

    /// The value for given symbols.
    ///
    /// # Errors
    /// When a symbol has no value, a divisor is zero or the value overflows.
    pub fn eval(&self, dims: &Dims) -> Result<i64, DimError> {
        let overflow = || DimError::Overflow(self.clone());
        let mut sum = 0i64;
        for (monomial, &coefficient) in &self.terms {
            let mut product = coefficient;
            for atom in monomial {
                product = product.checked_mul(atom.eval(dims)?).ok_or_else(overflow)?;
            }
            sum = sum.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(sum)
    }

    /// The same size with symbols replaced; symbols that `values` does not name stay.
    pub fn substitute(&self, values: &BTreeMap<Symbol, Dim>) -> Dim {
        let mut sum = Dim::default();
        for (monomial, &coefficient) in &self.terms {
            let product = monomial.iter().fold(Dim::constant(coefficient), |product, atom| {
                product * atom.substitute(values)
            });
            sum = sum + product;
        }
        sum
    }

    /// All symbols that occur, in order, each once.
    pub fn symbols(&self) -> Vec<Symbol> {
        let mut found = Vec::new();
        for atom in self.terms.keys().flatten() {
            match atom {
                Atom::Symbol(symbol) => found.push(symbol.clone()),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    found.extend(a.symbols());
                    found.extend(b.symbols());
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Bounds of the value when each symbol lies in its range (symbols without one: any size).
    ///
    /// The bounds hold but need not be reached. Saturates at the ends of `i64`.
    pub fn bounds(&self, ranges: &BTreeMap<Symbol, DimRange>) -> (i64, i64) {
        let (mut low, mut high) = (0i64, 0i64);
        for (monomial, &coefficient) in &self.terms {
            let bounds = monomial.iter().fold((coefficient, coefficient), |bounds, atom| {
                times(bounds, atom.bounds(ranges))
            });
            low = low.saturating_add(bounds.0);
            high = high.saturating_add(bounds.1);
        }
        (low, high)
    }

    /// A number that divides the value whatever the symbols are within their ranges (0 for the constant 0).
    pub fn divisor(&self, ranges: &BTreeMap<Symbol, DimRange>) -> i64 {
        to_divisor(self.terms.iter().fold(0, |gcd, (monomial, &coefficient)| {
            // A factor that would overflow is left out: fewer factors still divide.
            let product = monomial.iter().fold(coefficient.unsigned_abs(), |product, atom| {
                product.checked_mul(atom.divisor(ranges)).unwrap_or(product)
            });
            gcd_of(gcd, product)
        }))
    }
}

impl Atom {
    fn eval(&self, dims: &Dims) -> Result<i64, DimError> {
        let nonzero = |divisor: &Dim| match divisor.eval(dims)? {
            0 => Err(DimError::DivisionByZero(Dim::from_atom(self.clone()))),
            value => Ok(value),
        };
        Ok(match self {
            Atom::Symbol(symbol) => {
                *dims.get(symbol).ok_or_else(|| DimError::Unbound(symbol.clone()))?
            }
            Atom::FloorDiv(a, b) => floor_div(a.eval(dims)?, nonzero(b)?)
                .ok_or_else(|| DimError::Overflow(Dim::from_atom(self.clone())))?,
            Atom::Mod(a, b) => floor_mod(a.eval(dims)?, nonzero(b)?),
            Atom::Max(a, b) => a.eval(dims)?.max(b.eval(dims)?),
            Atom::Min(a, b) => a.eval(dims)?.min(b.eval(dims)?),
        })
    }

    fn substitute(&self, values: &BTreeMap<Symbol, Dim>) -> Dim {
        match self {
            Atom::Symbol(symbol) => {
                values.get(symbol).cloned().unwrap_or_else(|| Dim::from_atom(self.clone()))
            }
            Atom::FloorDiv(a, b) => a.substitute(values).floor_div(&b.substitute(values)),
            Atom::Mod(a, b) => a.substitute(values).modulo(&b.substitute(values)),
            Atom::Max(a, b) => a.substitute(values).maximum(&b.substitute(values)),
            Atom::Min(a, b) => a.substitute(values).minimum(&b.substitute(values)),
        }
    }

    /// A number that divides the value; 0 when the value is 0 whatever the symbols are.
    fn divisor(&self, ranges: &BTreeMap<Symbol, DimRange>) -> u64 {
        match self {
            Atom::Symbol(symbol) => ranges.get(symbol).map_or(1, |r| r.divisor.unsigned_abs()),
            Atom::FloorDiv(..) => 1,
            Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                gcd_of(a.divisor(ranges).unsigned_abs(), b.divisor(ranges).unsigned_abs())
            }
        }
    }

    fn bounds(&self, ranges: &BTreeMap<Symbol, DimRange>) -> (i64, i64) {
        match self {
            Atom::Symbol(symbol) => {
                let range = ranges.get(symbol).copied().unwrap_or(DimRange::ANY);
                (range.min, range.max)
            }
            Atom::FloorDiv(a, b) => {
                let (low, high) = a.bounds(ranges);
                let (by_low, by_high) = b.bounds(ranges);
                if by_low <= 0 {
                    let most = low.saturating_abs().max(high.saturating_abs());
                    return (most.saturating_neg(), most);
                }
                let corners = [low, high]
                    .into_iter()
                    .flat_map(|value| [by_low, by_high].map(|by| floor_div(value, by)))
                    .flatten();
                corners.fold((i64::MAX, i64::MIN), |(l, h), corner| (l.min(corner), h.max(corner)))
            }
            Atom::Mod(_, b) => match b.bounds(ranges) {
                (low, high) if low > 0 => (0, high - 1),
                (low, high) => {
                    let most = low.saturating_abs().max(high.saturating_abs());
                    (most.saturating_neg(), most)
                }
            },
            Atom::Max(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (a.bounds(ranges), b.bounds(ranges));
                (a_low.max(b_low), a_high.max(b_high))
            }
            Atom::Min(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (a.bounds(ranges), b.bounds(ranges));
                (a_low.min(b_low), a_high.min(b_high))
            }
        }
    }
}

fn times((a, b): (i64, i64), (c, d): (i64, i64)) -> (i64, i64) {
    let corners =
        [a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)];
    corners.iter().fold((i64::MAX, i64::MIN), |(l, h), &corner| (l.min(corner), h.max(corner)))
}

/// Quotient rounded towards minus infinity; nothing for a zero divisor and for `i64::MIN / -1`.
fn floor_div(value: i64, by: i64) -> Option<i64> {
    let quotient = value.checked_div(by)?;
    let inexact = value.checked_rem(by)? != 0;
    Some(if inexact && ((value < 0) != (by < 0)) { quotient - 1 } else { quotient })
}

/// Remainder with the sign of the divisor, which is not zero.
fn floor_mod(value: i64, by: i64) -> i64 {
    let remainder = value.wrapping_rem(by);
    if remainder != 0 && ((remainder < 0) != (by < 0)) { remainder + by } else { remainder }
}

fn gcd_of(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A divisor as `i64`: 2^63 does not fit, but 2^62 divides whatever it divides.
fn to_divisor(gcd: u64) -> i64 {
    i64::try_from(gcd).unwrap_or(1 << 62)
}

/// The product of two monomials.
fn merged(left: &[Atom], right: &[Atom]) -> Monomial {
    let mut monomial = [left, right].concat();
    monomial.sort();
    monomial
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::constant(value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        Dim::constant(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl std::ops::Add<&Dim> for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        let mut sum = self.clone();
        for (monomial, &coefficient) in &other.terms {
            sum.accumulate(monomial.clone(), coefficient);
        }
        sum
    }
}

impl std::ops::Mul<&Dim> for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        let mut product = Dim::default();
        for (left, &a) in &self.terms {
            for (right, &b) in &other.terms {
                product.accumulate(merged(left, right), a.saturating_mul(b));
            }
        }
        product
    }
}

impl std::ops::Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * &Dim::constant(-1)
    }
}

impl std::ops::Sub<&Dim> for &Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        let mut difference = self.clone();
        for (monomial, &coefficient) in &other.terms {
            let old = difference.terms.get(monomial).copied().unwrap_or(0);
            difference.set(monomial.clone(), old.saturating_sub(coefficient));
        }
        difference
    }
}

/// Owned and mixed operands for a binary operator that is defined on references.
macro_rules! owned_operands {
    ($($operator:ident $method:ident),*) => {$(
        impl std::ops::$operator<Dim> for Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim {
                std::ops::$operator::$method(&self, &other)
            }
        }
        impl std::ops::$operator<&Dim> for Dim {
            type Output = Dim;
            fn $method(self, other: &Dim) -> Dim {
                std::ops::$operator::$method(&self, other)
            }
        }
        impl std::ops::$operator<Dim> for &Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim {
                std::ops::$operator::$method(self, &other)
            }
        }
    )*};
}
owned_operands!(Add add, Sub sub, Mul mul);

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::constant(1), |product, dim| product * dim)
    }
}

impl<'a> std::iter::Product<&'a Dim> for Dim {
    fn product<I: Iterator<Item = &'a Dim>>(dims: I) -> Dim {
        dims.fold(Dim::constant(1), |product, dim| product * dim)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::constant(0), |sum, dim| sum + dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn normal_form_decides_equality() {
        assert_eq!(dim("(N + 1)*(N - 1) + 1"), dim("N*N"));
        assert_eq!(dim("2*N + N").to_string(), "3*N");
        assert_eq!(dim("N - N"), Dim::constant(0));
        assert_eq!(dim("floordiv(6*N, 3)"), dim("2*N"));
        assert_eq!(dim("mod(4*N, 2)"), Dim::constant(0));
        assert_eq!(dim("max(N, N + 2)"), dim("N + 2"));
        assert_ne!(dim("floordiv(N, 2)"), dim("N"));
    }

    #[test]
    fn text_reads_back() {
        for text in ["0", "-3", "N", "2*N + 1", "-N*batch + 4", "max(0, floordiv(N - 1, 2))"] {
            assert_eq!(dim(text).to_string(), text);
            assert_eq!(dim(&dim(text).to_string()), dim(text));
        }
        for text in ["", "N +", "f(N)", "floordiv(N, 0)", "9223372036854775808", "N N"] {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
        assert!("(".repeat(100_000).parse::<Dim>().is_err());
    }

    #[test]
    fn evaluates_with_floor_semantics() {
        let dims = Dims::from([("N".into(), -7)]);
        assert_eq!(dim("floordiv(N, 2)").eval(&dims), Ok(-4));
        assert_eq!(dim("mod(N, 2)").eval(&dims), Ok(1));
        assert_eq!(dim("M").eval(&dims), Err(DimError::Unbound("M".into())));
        assert!(matches!(dim("floordiv(1, N + 7)").eval(&dims), Err(DimError::DivisionByZero(_))));
    }

    #[test]
    fn the_ends_of_i64_are_errors_not_panics() {
        let none = Dims::new();
        let min = i64::MIN.to_string();
        assert_eq!(dim(&min), Dim::constant(i64::MIN));
        assert_eq!(dim(&format!("{min}*N")).to_string(), format!("{min}*N"));
        assert_eq!(dim(&format!("N - {}", 1u64 << 63)), Dim::symbol("N") + Dim::constant(i64::MIN));
        let quotient = dim(&format!("floordiv({min}, -1)"));
        assert!(matches!(quotient.eval(&none), Err(DimError::Overflow(_))));
        assert_eq!(dim(&format!("mod({min}, -1)")), Dim::constant(0));
        let dims = Dims::from([("N".into(), i64::MIN)]);
        assert!(matches!(dim("floordiv(N, -1)").eval(&dims), Err(DimError::Overflow(_))));
        assert_eq!(dim("mod(N, -1)").eval(&dims), Ok(0));
        assert!(matches!(dim("N - 1").eval(&dims), Err(DimError::Overflow(_))));
        assert_eq!(dim(&min).divided_exactly(&dim("-1")), None);
        assert_eq!(dim(&min).content(), 1 << 62);
        assert_eq!(dim(&format!("{min}*N")).divisor(&BTreeMap::new()), 1 << 62);
        for text in ["9223372036854775807 + 1", "4294967296*4294967296", "-9223372036854775808*-1"]
        {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_and_divisors_hold() {
        let range = DimRange { min: 4, max: 64, divisor: 4 };
        let ranges = BTreeMap::from([(Symbol::from("N"), range)]);
        assert_eq!(dim("2*N - 1").bounds(&ranges), (7, 127));
        assert_eq!(dim("floordiv(N + 1, 2)").bounds(&ranges), (2, 32));
        assert_eq!(dim("6*N").divisor(&ranges), 24);
        assert_eq!(dim("6*N + 8").divisor(&ranges), 8);
        assert_eq!(dim("max(6*N, 36)").divisor(&ranges), 12);
        assert_eq!(dim("mod(6*N, 16) + 8*floordiv(N, 3)").divisor(&ranges), 8);
    }

    #[test]
    fn serde_uses_numbers_where_it_can() {
        let json = serde_json::to_string(&[Dim::constant(3), dim("2*N")]).unwrap();
        assert_eq!(json, r#"[3,"2*N"]"#);
        assert_eq!(
            serde_json::from_str::<Vec<Dim>>(&json).unwrap(),
            [Dim::constant(3), dim("2*N")]
        );
    }
}
