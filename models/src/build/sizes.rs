//! Arithmetic on sizes beyond what [`Dim`] simplifies itself: comparisons by the range of the symbols.

use std::collections::{BTreeMap, BTreeSet};

use fornax_bundle::Atom;
use fornax_ir::{Dim, DimRange, Symbol};

/// What a symbolic size of an input may be. Exporters write 10^9 for "to the end" of an axis.
pub(crate) const SYMBOL_RANGE: DimRange = DimRange { min: 0, max: FAR, divisor: 1 };

/// Positions from here on stand for "to the end", whatever the size.
const FAR: i64 = 1_000_000_000;

/// Smallest and largest value of a size, whatever the symbols are within [`SYMBOL_RANGE`].
pub(crate) fn bounds(dim: &Dim) -> (i64, i64) {
    let ranges: BTreeMap<Symbol, DimRange> =
        symbols(dim).into_iter().map(|symbol| (symbol, SYMBOL_RANGE)).collect();
    dim.bounds(&ranges)
}

/// The symbols in a size.
pub(crate) fn symbols(dim: &Dim) -> BTreeSet<Symbol> {
    let atoms = dim.terms().flat_map(|(monomial, _)| monomial);
    let inside = |atom: &Atom| match atom {
        Atom::Symbol(symbol) => BTreeSet::from([symbol.clone()]),
        Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
            &symbols(a) | &symbols(b)
        }
    };
    atoms.flat_map(inside).collect()
}

/// Most axes of a tensor.
const MAX_RANK: usize = 64;

/// Largest size expression, in atoms and terms.
const MAX_WEIGHT: usize = 256;

/// Most terms in the number of elements of a tensor.
const MAX_TERMS: usize = 4096;

/// Most elements of a tensor.
const MAX_ELEMENTS: i64 = 1 << 40;

/// Whether a size expression is small enough to be worked with. Arithmetic on hostile or extremely deep
/// models could otherwise make them grow without bound.
pub(crate) fn is_manageable(dim: &Dim) -> bool {
    weight(dim, MAX_WEIGHT).is_some()
}

/// What is left of a budget after counting the atoms and terms of an expression.
fn weight(dim: &Dim, budget: usize) -> Option<usize> {
    dim.terms().try_fold(budget, |budget, (monomial, _)| {
        let budget = budget.checked_sub(1)?;
        monomial.iter().try_fold(budget, |budget, atom| match atom {
            Atom::Symbol(_) => budget.checked_sub(1),
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                weight(b, weight(a, budget.checked_sub(1)?)?)
            }
        })
    })
}

/// What makes a shape one that no tensor can have, or one that Fornax does not work with.
pub(crate) fn fault(shape: &[Dim]) -> Option<String> {
    if shape.len() > MAX_RANK {
        return Some(format!("{} axes are more than {MAX_RANK}", shape.len()));
    }
    let mut terms = 1usize;
    let mut elements = 1i64;
    for size in shape {
        if !is_manageable(size) {
            return Some("a size is too complicated an expression of symbolic sizes".to_owned());
        }
        terms = terms.saturating_mul(size.terms().count().max(1));
        match size.as_const() {
            Some(negative) if negative < 0 => return Some(format!("a size is {negative}")),
            Some(size) => elements = elements.saturating_mul(size.max(1)),
            None => {}
        }
    }
    if terms > MAX_TERMS {
        return Some("the number of elements is too complicated an expression".to_owned());
    }
    (elements > MAX_ELEMENTS).then(|| format!("{elements} elements are more than {MAX_ELEMENTS}"))
}

/// The smaller of two sizes.
pub(crate) fn smaller(a: &Dim, b: &Dim) -> Dim {
    match bounds(&(a - b)) {
        (_, high) if high <= 0 => a.clone(),
        (low, _) if low >= 0 => b.clone(),
        _ => a.minimum(b),
    }
}

/// The larger of two sizes.
pub(crate) fn larger(a: &Dim, b: &Dim) -> Dim {
    match bounds(&(a - b)) {
        (_, high) if high <= 0 => b.clone(),
        (low, _) if low >= 0 => a.clone(),
        _ => a.maximum(b),
    }
}

/// A start or end position that counts from the back when it is negative, or `None` when its sign
/// depends on symbols.
pub(crate) fn from_front(position: &Dim, size: &Dim) -> Option<Dim> {
    match bounds(position) {
        (low, _) if low >= 0 => Some(position.clone()),
        (_, high) if high < 0 => Some(position + size),
        _ => None,
    }
}

/// The part of an axis that a slice takes: `count` elements from `start` on, `step` apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Dim,
    pub(crate) count: Dim,
    pub(crate) step: i64,
}

/// The part of an axis of `size` elements between `start` and `end`, clamped as ONNX Slice (opset 13)
/// says; `None` when the sign of a position depends on symbols. `step` is not 0.
pub(crate) fn span(start: &Dim, end: &Dim, step: i64, size: &Dim) -> Option<Span> {
    let (zero, one) = (Dim::constant(0), Dim::constant(1));
    // Where the walk may begin and where it ends at the latest: [0, size] forwards, and backwards
    // [0, size - 1] for the start and [-1, size - 1] for the end.
    let (lowest_start, lowest_end, highest) = match step > 0 {
        true => (zero.clone(), zero.clone(), size.clone()),
        false => (zero.clone(), Dim::constant(-1), size - &one),
    };
    let place = |position: &Dim, lowest: &Dim| match position.as_const() {
        Some(far) if far >= FAR => Some(highest.clone()),
        Some(far) if far < -FAR => Some(lowest.clone()),
        _ => {
            let position = from_front(position, size)?;
            Some(larger(lowest, &smaller(&position, &highest)))
        }
    };
    let start = place(start, &lowest_start)?;
    let end = place(end, &lowest_end)?;
    let length = if step > 0 { &end - &start } else { &start - &end };
    let length = larger(&zero, &length);
    let count = length.ceil_div(&Dim::constant(step.checked_abs()?));
    Some(Span { start, count, step })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    fn spans(start: &str, end: &str, step: i64, size: &str) -> (String, String) {
        let span = span(&dim(start), &dim(end), step, &dim(size)).unwrap();
        (span.start.to_string(), span.count.to_string())
    }

    fn pair(start: &str, count: &str) -> (String, String) {
        (start.into(), count.into())
    }

    /// The same as Python's `range(*slice(start, end, step).indices(size))`.
    #[test]
    fn spans_are_clamped() {
        assert_eq!(spans("1", "4", 1, "10"), pair("1", "3"));
        assert_eq!(spans("-3", "9223372036854775807", 1, "10"), pair("7", "3"));
        assert_eq!(spans("0", "-1", 2, "10"), pair("0", "5"));
        assert_eq!(spans("5", "2", 1, "10"), pair("5", "0"));
        assert_eq!(spans("20", "-100", -3, "10"), pair("9", "4"));
        assert_eq!(spans("-1", "-9223372036854775807", -1, "10"), pair("9", "10"));
        assert_eq!(spans("3", "0", -1, "10"), pair("3", "3"));
        assert_eq!(spans("0", "5", 1, "0"), pair("0", "0"));
    }

    #[test]
    fn shapes_have_limits() {
        let of = |sizes: &[&str]| fault(&sizes.iter().map(|size| dim(size)).collect::<Vec<_>>());
        assert_eq!(of(&["0", "N", "3*M + 1"]), None);
        assert_eq!(of(&["2", "-1"]).unwrap(), "a size is -1");
        assert!(of(&["1048576", "1048576"]).is_none());
        assert!(of(&["1048576", "1048577"]).unwrap().contains("elements are more than"));
        assert!(of(&["1"; 65]).unwrap().contains("65 axes"));
        assert!(of(&["N + 1"; 13]).unwrap().contains("too complicated"));
        let mut deep = dim("N");
        for _ in 0..100 {
            deep = (deep + dim("1")).floor_div(&dim("2"));
        }
        assert!(!is_manageable(&deep));
    }

    #[test]
    fn spans_of_symbolic_axes() {
        assert_eq!(spans("0", "2147483647", 1, "N"), pair("0", "N"));
        assert_eq!(spans("0", "1000000000", 1, "2*N"), pair("0", "2*N"));
        assert_eq!(spans("0", "-1", 1, "N + 1"), pair("0", "N"));
        assert_eq!(spans("N", "2147483647", 1, "2*N"), pair("N", "N"));
        assert_eq!(spans("0", "2147483647", 2, "N"), pair("0", "floordiv(N + 1, 2)"));
        assert_eq!(spans("-1", "-2147483648", -1, "N + 1"), pair("N", "N + 1"));
        assert_eq!(span(&dim("N - 1"), &dim("5"), 1, &dim("9")), None);
    }
}
