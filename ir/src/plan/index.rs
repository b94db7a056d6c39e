//! Index arithmetic in normal form.
//!
//! Passes and lowering compose index maps: a reshape of a transpose of a broadcast. [`Index`] keeps the
//! composition as a linear form over iteration variables and simplifies while it is built, so that
//! `linearize(delinearize(x))` is `x` again and only the divisions that are needed reach the kernel.
//! All divisions round towards minus infinity and have positive divisors.
//!
//! A simplification may use that each variable lies within its extent. Threads beyond the extent
//! compute indices too; what they compute is never used, since every access is masked by the
//! condition that the variable lies within it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Dim, DimRange, Guard, IndexExpr, Symbol};

/// An iteration variable, or a number that a kernel loads: an index into [`IndexSpace`]'s table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(u32);

/// An integer: a sum of terms with coefficients, and a constant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Index {
    terms: BTreeMap<Term, Dim>,
    constant: Dim,
}

/// What an [`Index`] adds up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// A variable.
    Var(Var),
    /// A quotient.
    FloorDiv(Box<Index>, Dim),
    /// A remainder.
    Mod(Box<Index>, Dim),
    /// The smaller of two.
    Min(Box<Index>, Box<Index>),
    /// The larger of two.
    Max(Box<Index>, Box<Index>),
}

/// A condition on indices, with what is known to hold left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// `low <= value < high`, where given.
    Within {
        /// What is compared.
        value: Index,
        /// Smallest value allowed.
        low: Option<Dim>,
        /// First value beyond.
        high: Option<Dim>,
    },
    /// `value < bound`
    Below {
        /// What is compared.
        value: Index,
        /// First value beyond.
        bound: Index,
    },
    /// `value mod divisor == 0`
    Divisible {
        /// What is divided.
        value: Index,
        /// By what.
        divisor: Dim,
    },
}

/// Conditions that all hold.
pub type Mask = BTreeSet<Condition>;

/// Bounds of an index, both inclusive, where they are known.
pub type Bounds = (Option<Dim>, Option<Dim>);

/// The variables of a kernel with what is known of them, and the rules of simplification.
#[derive(Debug)]
pub struct IndexSpace<'a> {
    dims: &'a BTreeMap<Symbol, DimRange>,
    vars: Vec<VarFacts>,
}

#[derive(Debug)]
struct VarFacts {
    bounds: Bounds,
    /// Variables that the value of a loaded number depends on.
    depends: BTreeSet<Var>,
}

impl Index {
    /// A number or size.
    pub fn size(size: impl Into<Dim>) -> Index {
        Index { terms: BTreeMap::new(), constant: size.into() }
    }

    /// A variable.
    pub fn var(var: Var) -> Index {
        Index::term(Term::Var(var))
    }

    fn term(term: Term) -> Index {
        Index { terms: BTreeMap::from([(term, Dim::constant(1))]), constant: Dim::constant(0) }
    }

    /// How much a step of a variable adds: the coefficient of the variable, or of its remainder (for a
    /// step within it). Nothing when the index depends on the variable in another way only.
    pub fn step(&self, var: Var) -> Option<Dim> {
        let direct = self.terms.get(&Term::Var(var)).cloned();
        direct.or_else(|| {
            self.terms.iter().find_map(|(term, coefficient)| match term {
                Term::Mod(x, _) => Some(x.step(var)? * coefficient),
                _ => None,
            })
        })
    }

    /// Terms with their coefficients.
    pub fn terms(&self) -> &BTreeMap<Term, Dim> {
        &self.terms
    }

    /// What is added to the terms.
    pub fn constant(&self) -> &Dim {
        &self.constant
    }

    /// The value, when there is no term.
    pub fn as_size(&self) -> Option<&Dim> {
        self.terms.is_empty().then_some(&self.constant)
    }

    /// The only term, when it has coefficient 1 and nothing is added.
    fn as_term(&self) -> Option<&Term> {
        let (term, coefficient) = self.terms.first_key_value()?;
        (self.terms.len() == 1 && coefficient.is(1) && self.constant.is(0)).then_some(term)
    }

    fn accumulate(&mut self, term: Term, coefficient: Dim) {
        let sum = match self.terms.get(&term) {
            Some(old) => old + &coefficient,
            None => coefficient,
        };
        if sum.is(0) {
            self.terms.remove(&term);
        } else {
            self.terms.insert(term, sum);
        }
    }

    fn add_scaled(&mut self, other: &Index, factor: &Dim) {
        for (term, coefficient) in &other.terms {
            self.accumulate(term.clone(), coefficient * factor);
        }
        self.constant = &self.constant + &(&other.constant * factor);
    }

    fn scaled(&self, factor: &Dim) -> Index {
        let mut product = Index::default();
        product.add_scaled(self, factor);
        product
    }

    /// Splits into a multiple of `by`, divided, and the rest.
    fn split(&self, by: &Dim) -> (Index, Index) {
        let (mut quotient, mut rest) = (Index::default(), Index::default());
        for (term, coefficient) in &self.terms {
            match coefficient.divided_exactly(by) {
                Some(exact) => quotient.accumulate(term.clone(), exact),
                None => rest.accumulate(term.clone(), coefficient.clone()),
            }
        }
        match self.constant.divided_exactly(by) {
            Some(exact) => quotient.constant = exact,
            None => match (self.constant.as_const(), by.as_const()) {
                (Some(constant), Some(by)) if by > 0 => {
                    quotient.constant = Dim::constant(constant.div_euclid(by));
                    rest.constant = Dim::constant(constant.rem_euclid(by));
                }
                _ => rest.constant = self.constant.clone(),
            },
        }
        (quotient, rest)
    }

    /// Adds the variables that occur to a set.
    fn collect_vars(&self, vars: &mut BTreeSet<Var>) {
        for term in self.terms.keys() {
            match term {
                Term::Var(var) => {
                    vars.insert(*var);
                }
                Term::FloorDiv(x, _) | Term::Mod(x, _) => x.collect_vars(vars),
                Term::Min(a, b) | Term::Max(a, b) => {
                    a.collect_vars(vars);
                    b.collect_vars(vars);
                }
            }
        }
    }
}

impl Condition {
    /// The indices that are tested.
    fn tested(&self) -> impl Iterator<Item = &Index> {
        let (value, bound) = match self {
            Condition::Within { value, .. } | Condition::Divisible { value, .. } => (value, None),
            Condition::Below { value, bound } => (value, Some(bound)),
        };
        std::iter::once(value).chain(bound)
    }
}

impl<'a> IndexSpace<'a> {
    /// A space without variables. `dims`: ranges of the symbolic sizes.
    pub fn new(dims: &'a BTreeMap<Symbol, DimRange>) -> IndexSpace<'a> {
        IndexSpace { dims, vars: Vec::new() }
    }

    /// A variable with values in `0..extent`.
    pub fn add_var(&mut self, extent: &Dim) -> Var {
        let last = extent - &Dim::constant(1);
        self.push(VarFacts {
            bounds: (Some(Dim::constant(0)), Some(last)),
            depends: BTreeSet::new(),
        })
    }

    /// A number without known bounds that depends on `index`: one that is loaded from there, or one that
    /// bounds it.
    pub fn add_dependent(&mut self, index: &[Index]) -> Var {
        let depends = self.vars_of(index.iter());
        self.push(VarFacts { bounds: (None, None), depends })
    }

    fn push(&mut self, facts: VarFacts) -> Var {
        self.vars.push(facts);
        Var((self.vars.len() - 1) as u32)
    }

    /// All variables that the values of some indices depend on.
    fn vars_of<'i>(&self, indices: impl Iterator<Item = &'i Index>) -> BTreeSet<Var> {
        let mut vars = BTreeSet::new();
        indices.for_each(|index| index.collect_vars(&mut vars));
        let loaded: Vec<Var> =
            vars.iter().flat_map(|var| &self.vars[var.0 as usize].depends).copied().collect();
        vars.extend(loaded);
        vars
    }

    /// Whether an index depends on a number without known bounds.
    pub fn is_unbounded(&self, index: &Index) -> bool {
        let mut vars = BTreeSet::new();
        index.collect_vars(&mut vars);
        vars.iter().any(|var| matches!(self.vars[var.0 as usize].bounds, (None, None)))
    }

    /// Whether `run` adjacent values of a variable from a multiple of `run` on give adjacent values of the
    /// index, the first a multiple of `run`, whatever the other variables are.
    pub fn aligned(&self, index: &Index, var: Var, run: u32) -> bool {
        let run = Dim::constant(run.into());
        let multiple =
            |size: &Dim| size.divisor(self.dims) % run.as_const().unwrap_or(1) == 0 || size.is(0);
        let mut steps = 0;
        let terms_fit = index.terms.iter().all(|(term, coefficient)| match term {
            Term::Var(other) if *other == var => {
                steps += 1;
                coefficient.is(1)
            }
            Term::Mod(x, by) if coefficient.is(1) && x.step(var).is_some_and(|step| step.is(1)) => {
                steps += 1;
                multiple(by) && self.aligned_steps(x, var, &run)
            }
            Term::FloorDiv(x, by) if self.depends(x, var) => {
                multiple(coefficient) && multiple(by) && self.aligned_steps(x, var, &run)
            }
            Term::Var(_) => multiple(coefficient),
            other => multiple(coefficient) && !self.depends(&Index::term(other.clone()), var),
        });
        terms_fit && steps == 1 && multiple(&index.constant)
    }

    /// [`IndexSpace::aligned`] for what a division divides.
    fn aligned_steps(&self, index: &Index, var: Var, run: &Dim) -> bool {
        run.as_const().is_some_and(|run| self.aligned(index, var, run as u32))
    }

    /// Whether an index depends on a variable.
    pub fn depends(&self, index: &Index, var: Var) -> bool {
        self.vars_of(std::iter::once(index)).contains(&var)
    }

    /// Those conditions of a mask that decide whether an index is valid: the ones that share a variable
    /// with it, directly or through one another, and those without variables. The others hold or fail
    /// whatever the index is, so an access at the index is in bounds without them.
    pub fn relevant(&self, mask: &Mask, index: &Index) -> Mask {
        let mut vars = self.vars_of(std::iter::once(index));
        let mut kept = Mask::new();
        loop {
            let count = kept.len();
            for condition in mask {
                let own = self.vars_of(condition.tested());
                if !kept.contains(condition) && (own.is_empty() || !own.is_disjoint(&vars)) {
                    vars.extend(own);
                    kept.insert(condition.clone());
                }
            }
            if kept.len() == count {
                return kept;
            }
        }
    }

    /// Whether a size is never negative.
    pub fn is_nonnegative(&self, size: &Dim) -> bool {
        size.bounds(self.dims).0 >= 0
    }

    /// Whether a size is always positive.
    pub fn is_positive(&self, size: &Dim) -> bool {
        size.bounds(self.dims).0 > 0
    }

    /// The bounds of an index within the extents of its variables.
    pub fn bounds(&self, index: &Index) -> Bounds {
        let (mut low, mut high) = (Some(index.constant.clone()), Some(index.constant.clone()));
        for (term, coefficient) in &index.terms {
            let (mut term_low, mut term_high) = self.term_bounds(term);
            let (least, most) = coefficient.bounds(self.dims);
            if most <= 0 {
                std::mem::swap(&mut term_low, &mut term_high);
            } else if least < 0 {
                return (None, None);
            }
            let plus = |sum: Option<Dim>, bound: Option<Dim>| Some(sum? + bound? * coefficient);
            low = plus(low, term_low);
            high = plus(high, term_high);
        }
        (low, high)
    }

    fn term_bounds(&self, term: &Term) -> Bounds {
        match term {
            Term::Var(var) => self.vars[var.0 as usize].bounds.clone(),
            Term::FloorDiv(x, by) => {
                let (low, high) = self.bounds(x);
                (low.map(|low| low.floor_div(by)), high.map(|high| high.floor_div(by)))
            }
            Term::Mod(_, by) => (Some(Dim::constant(0)), Some(by - &Dim::constant(1))),
            Term::Min(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (self.bounds(a), self.bounds(b));
                let high = match (a_high, b_high) {
                    (Some(a), Some(b)) => Some(a.minimum(&b)),
                    (a, b) => a.or(b),
                };
                (a_low.zip(b_low).map(|(a, b)| a.minimum(&b)), high)
            }
            Term::Max(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (self.bounds(a), self.bounds(b));
                let low = match (a_low, b_low) {
                    (Some(a), Some(b)) => Some(a.maximum(&b)),
                    (a, b) => a.or(b),
                };
                (low, a_high.zip(b_high).map(|(a, b)| a.maximum(&b)))
            }
        }
    }

    /// Whether an index is never below a size.
    pub fn at_least(&self, index: &Index, size: &Dim) -> bool {
        self.bounds(index).0.is_some_and(|low| self.is_nonnegative(&(low - size)))
    }

    /// Whether an index is always below a size.
    pub fn below(&self, index: &Index, size: &Dim) -> bool {
        // floor(x / by) < size where x < size * by: bounds of quotients of sizes are wide.
        if let Some(Term::FloorDiv(x, by)) = index.as_term()
            && self.below(x, &(size * by))
        {
            return true;
        }
        let one = Dim::constant(1);
        self.bounds(index).1.is_some_and(|high| self.is_nonnegative(&(size - &high - &one)))
    }

    /// The sum of two indices.
    pub fn add(&self, a: &Index, b: &Index) -> Index {
        let mut sum = a.clone();
        sum.add_scaled(b, &Dim::constant(1));
        self.recombined(sum)
    }

    /// The product of an index and a size.
    pub fn scale(&self, index: &Index, factor: &Dim) -> Index {
        index.scaled(factor)
    }

    /// Puts quotients and remainders of one division together again.
    fn recombined(&self, mut sum: Index) -> Index {
        while let Some(next) = self.recombined_once(&sum) {
            sum = next;
        }
        sum
    }

    fn recombined_once(&self, sum: &Index) -> Option<Index> {
        for (term, coefficient) in &sum.terms {
            let Term::Mod(x, by) = term else { continue };
            let quotient = self.floor_div(x, by);
            let scaled = coefficient * by;
            // c * by * (x div by) + c * (x mod by) = c * x
            let whole = !quotient.terms.is_empty()
                && quotient
                    .terms
                    .iter()
                    .all(|(term, k)| sum.terms.get(term) == Some(&(k * &scaled)));
            if whole {
                let mut next = sum.clone();
                next.accumulate(term.clone(), -coefficient);
                next.add_scaled(&quotient, &-&scaled);
                next.add_scaled(x, coefficient);
                return Some(next);
            }
            // c * by * ((x div by) mod m) + c * (x mod by) = c * (x mod (by * m))
            for (other, other_coefficient) in &sum.terms {
                if let Term::Mod(y, m) = other
                    && *other_coefficient == scaled
                    && **y == quotient
                {
                    let mut next = sum.clone();
                    next.accumulate(term.clone(), -coefficient);
                    next.accumulate(other.clone(), -&scaled);
                    next.add_scaled(&self.modulo(x, &(by * m)), coefficient);
                    return Some(next);
                }
            }
        }
        None
    }

    /// Whether `0 <= index < size` always.
    fn is_remainder(&self, index: &Index, size: &Dim) -> bool {
        self.at_least(index, &Dim::constant(0)) && self.below(index, size)
    }

    /// A divisor `g` of `by` such that the terms of `index` that `g` does not divide add up to less than
    /// `g`: then `index div by = (index div g) div (by / g)`, and the first division is exact up to them.
    fn common_factor(&self, index: &Index, by: &Dim) -> Option<(Dim, Dim, Index, Index)> {
        index.terms.values().find_map(|factor| {
            // It is not 0 where there is an index at all: it divides `by`.
            if factor.is(1) || !self.is_nonnegative(factor) {
                return None;
            }
            let rest_by = by.divided_exactly(factor)?;
            let (quotient, rest) = index.split(factor);
            self.is_remainder(&rest, factor).then(|| (factor.clone(), rest_by, quotient, rest))
        })
    }

    /// The quotient by a positive size.
    pub fn floor_div(&self, index: &Index, by: &Dim) -> Index {
        if by.is(1) {
            return index.clone();
        }
        let (mut quotient, rest) = index.split(by);
        if self.is_remainder(&rest, by) {
            return quotient;
        }
        if let Some(size) = rest.as_size() {
            quotient.constant = quotient.constant + size.floor_div(by);
            return quotient;
        }
        let term = match self.common_factor(&rest, by) {
            Some((_, rest_by, inner, _)) => self.floor_div(&inner, &rest_by),
            None => match rest.as_term() {
                Some(Term::FloorDiv(x, inner)) => self.floor_div(x, &(inner * by)),
                _ => Index::term(Term::FloorDiv(Box::new(rest), by.clone())),
            },
        };
        self.add(&quotient, &term)
    }

    /// The remainder by a positive size.
    pub fn modulo(&self, index: &Index, by: &Dim) -> Index {
        let (_, rest) = index.split(by);
        // An axis of size 0 has no index, so that any will do.
        if by.is(1) || by.is(0) {
            return Index::default();
        }
        if self.is_remainder(&rest, by) {
            return rest;
        }
        if let Some(size) = rest.as_size() {
            return Index::size(size.modulo(by));
        }
        if let Some((factor, rest_by, inner, small)) = self.common_factor(&rest, by) {
            return self.add(&self.modulo(&inner, &rest_by).scaled(&factor), &small);
        }
        match rest.as_term() {
            Some(Term::Mod(x, inner)) if inner.divided_exactly(by).is_some() => self.modulo(x, by),
            _ => Index::term(Term::Mod(Box::new(rest), by.clone())),
        }
    }

    /// The smaller of two indices.
    pub fn minimum(&self, a: &Index, b: &Index) -> Index {
        match self.order(a, b) {
            Some(std::cmp::Ordering::Greater) => b.clone(),
            Some(_) => a.clone(),
            None => Index::term(Term::Min(Box::new(a.clone()), Box::new(b.clone()))),
        }
    }

    /// The larger of two indices.
    pub fn maximum(&self, a: &Index, b: &Index) -> Index {
        match self.order(a, b) {
            Some(std::cmp::Ordering::Greater) => a.clone(),
            Some(_) => b.clone(),
            None => Index::term(Term::Max(Box::new(a.clone()), Box::new(b.clone()))),
        }
    }

    /// `Less` when `a <= b` always, `Greater` when `a >= b` always.
    fn order(&self, a: &Index, b: &Index) -> Option<std::cmp::Ordering> {
        let mut difference = b.clone();
        difference.add_scaled(a, &Dim::constant(-1));
        let (low, high) = self.bounds(&difference);
        if low.is_some_and(|low| self.is_nonnegative(&low)) {
            Some(std::cmp::Ordering::Less)
        } else if high.is_some_and(|high| self.is_nonnegative(&-&high)) {
            Some(std::cmp::Ordering::Greater)
        } else {
            None
        }
    }

    /// Row-major position in a tensor of the given sizes.
    pub fn linearize(&self, index: &[Index], sizes: &[Dim]) -> Index {
        index.iter().zip(sizes).fold(Index::default(), |position, (index, size)| {
            self.add(&position.scaled(size), index)
        })
    }

    /// The index along each axis of a tensor of the given sizes, from the row-major position in it.
    pub fn delinearize(&self, position: &Index, sizes: &[Dim]) -> Vec<Index> {
        let mut stride = Dim::constant(1);
        let mut index = Vec::with_capacity(sizes.len());
        for (axis, size) in sizes.iter().enumerate().rev() {
            let quotient = self.floor_div(position, &stride);
            index.push(if axis == 0 { quotient } else { self.modulo(&quotient, size) });
            stride = stride * size;
        }
        index.reverse();
        index
    }

    /// An index expression with `axes` in place of its axes, and with the given indices in place of the
    /// elements that it loads.
    ///
    /// # Panics
    /// When an element is missing.
    pub fn compose(
        &self,
        expr: &IndexExpr,
        axes: &[Index],
        loaded: &[(IndexExpr, Index)],
    ) -> Index {
        let compose = |expr: &IndexExpr| self.compose(expr, axes, loaded);
        match expr {
            IndexExpr::Axis(axis) => axes[*axis].clone(),
            IndexExpr::Size(size) => Index::size(size.clone()),
            IndexExpr::Add(a, b) => self.add(&compose(a), &compose(b)),
            IndexExpr::Mul(x, factor) => compose(x).scaled(factor),
            IndexExpr::FloorDiv(x, by) => self.floor_div(&compose(x), by),
            IndexExpr::Mod(x, by) => self.modulo(&compose(x), by),
            IndexExpr::Min(a, b) => self.minimum(&compose(a), &compose(b)),
            IndexExpr::Max(a, b) => self.maximum(&compose(a), &compose(b)),
            IndexExpr::Element { .. } => {
                let found = loaded.iter().find(|(element, _)| element == expr);
                found.expect("invariant: elements are loaded before they are used").1.clone()
            }
        }
    }

    /// The condition `low <= value < high` without the sides that always hold; nothing when both do.
    pub fn within(&self, value: &Index, low: &Dim, high: &Dim) -> Option<Condition> {
        let low = (!self.at_least(value, low)).then(|| low.clone());
        let high = (!self.below(value, high)).then(|| high.clone());
        (low.is_some() || high.is_some()).then(|| Condition::Within {
            value: value.clone(),
            low,
            high,
        })
    }

    /// Whether a guard whose value is `value` can never hold.
    pub fn never(&self, guard: &Guard, value: &Index) -> bool {
        let Guard::Within { low, high, .. } = guard else { return false };
        let (least, most) = self.bounds(value);
        let reaches = |bound: Option<Dim>, limit: Dim| {
            bound.is_some_and(|bound| self.is_nonnegative(&(bound - limit)))
        };
        self.is_nonnegative(&(low - high))
            || reaches(least, high.clone())
            || reaches(most.map(|most| -&most), -&(low - &Dim::constant(1)))
    }

    /// The condition of a guard whose value is `value`; nothing when it always holds.
    pub fn guard(&self, guard: &Guard, value: &Index) -> Option<Condition> {
        match guard {
            Guard::Within { low, high, .. } => self.within(value, low, high),
            Guard::Divisible { divisor, .. } => {
                let rest = self.modulo(value, divisor);
                (!rest.as_size().is_some_and(|size| size.is(0))).then(|| Condition::Divisible {
                    value: value.clone(),
                    divisor: divisor.clone(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &[&str]) -> Vec<Dim> {
        text.iter().map(|size| size.parse().unwrap()).collect()
    }

    fn round_trip(ranges: &BTreeMap<Symbol, DimRange>, sizes: &[Dim]) {
        let mut space = IndexSpace::new(ranges);
        let p = Index::var(space.add_var(&sizes.iter().product()));
        let index = space.delinearize(&p, sizes);
        assert_eq!(space.linearize(&index, sizes), p, "{sizes:?}");
    }

    #[test]
    fn linear_positions_survive_reshapes() {
        let range = DimRange { min: 1, max: 1000, divisor: 1 };
        let ranges = BTreeMap::from([("N".into(), range), ("M".into(), range)]);
        round_trip(&ranges, &dims(&["2", "3", "4", "5"]));
        round_trip(&ranges, &dims(&["N", "3", "M"]));
        round_trip(&ranges, &dims(&["3", "N", "M", "N", "4"]));
        round_trip(&ranges, &dims(&["1", "N", "1"]));
        let mut space = IndexSpace::new(&ranges);
        let sizes = dims(&["N", "M", "6"]);
        let p = Index::var(space.add_var(&sizes.iter().product()));
        let index = space.delinearize(&p, &sizes);
        let reshaped = space.delinearize(&space.linearize(&index, &sizes), &dims(&["6*N", "M"]));
        assert_eq!(space.linearize(&reshaped, &dims(&["6*N", "M"])), p);
    }

    #[test]
    fn nested_loops_need_no_division() {
        let ranges = BTreeMap::from([("N".into(), DimRange { min: 1, max: 99, divisor: 1 })]);
        let mut space = IndexSpace::new(&ranges);
        let sizes = dims(&["7", "N", "5"]);
        let vars: Vec<Index> = sizes.iter().map(|size| Index::var(space.add_var(size))).collect();
        let position = space.linearize(&vars, &sizes);
        assert_eq!(space.delinearize(&position, &sizes), vars);
        let merged = space.delinearize(&position, &dims(&["7", "5*N"]));
        assert_eq!(merged[0], vars[0]);
        assert_eq!(merged[1], space.linearize(&vars[1..], &sizes[1..]));
    }

    #[test]
    fn parts_of_an_axis_stay_linear() {
        let none = BTreeMap::new();
        let mut space = IndexSpace::new(&none);
        let (i, j) = (
            Index::var(space.add_var(&Dim::constant(10))),
            Index::var(space.add_var(&Dim::constant(4))),
        );
        let x = space.add(&space.scale(&i, &Dim::constant(4)), &j);
        assert_eq!(space.floor_div(&x, &Dim::constant(4)), i);
        assert_eq!(space.modulo(&x, &Dim::constant(4)), j);
        assert_eq!(space.floor_div(&x, &Dim::constant(8)), space.floor_div(&i, &Dim::constant(2)));
        let half = space.scale(&space.modulo(&i, &Dim::constant(2)), &Dim::constant(4));
        assert_eq!(space.modulo(&x, &Dim::constant(8)), space.add(&half, &j));
        let shifted = space.add(&x, &Index::size(-1i64));
        assert!(space.within(&shifted, &Dim::constant(0), &Dim::constant(40)).is_some());
        assert_eq!(space.within(&x, &Dim::constant(0), &Dim::constant(40)), None);
        assert_ne!(space.floor_div(&shifted, &Dim::constant(4)), i);
    }

    /// Random expressions against plain evaluation.
    #[test]
    fn simplification_keeps_values() {
        let none = BTreeMap::new();
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let mut space = IndexSpace::new(&none);
            let extents = [random(7) as i64 + 1, random(5) as i64 + 1];
            let vars = extents.map(|extent| space.add_var(&Dim::constant(extent)));
            let mut made: Vec<(IndexExpr, Index)> =
                (0..2).map(|axis| (IndexExpr::axis(axis), Index::var(vars[axis]))).collect();
            for _ in 0..6 {
                let pick = |at: u64| at as usize % made.len();
                let (a, b) = (made[pick(random(99))].0.clone(), made[pick(random(99))].0.clone());
                let k = Dim::constant(random(6) as i64 + 1);
                let expr = match random(7) {
                    0 => IndexExpr::Add(Box::new(a), Box::new(b)),
                    1 => IndexExpr::Mul(Box::new(a), k - Dim::constant(3)),
                    2 => IndexExpr::FloorDiv(Box::new(a), k),
                    3 => IndexExpr::Mod(Box::new(a), k),
                    4 => IndexExpr::Min(Box::new(a), Box::new(b)),
                    5 => IndexExpr::Max(Box::new(a), Box::new(b)),
                    _ => {
                        IndexExpr::Add(Box::new(a), Box::new(IndexExpr::Size(k - Dim::constant(4))))
                    }
                };
                let axes = vars.map(Index::var);
                let index = space.compose(&expr, &axes, &[]);
                made.push((expr, index));
            }
            for at in (0..extents[0]).flat_map(|i| (0..extents[1]).map(move |j| [i, j])) {
                for (expr, index) in &made {
                    let expected = eval_expr(expr, &at);
                    assert_eq!(eval_index(index, &at), expected, "{expr:?} as {index:?} at {at:?}");
                    let (low, high) = space.bounds(index);
                    assert!(low.is_none_or(|low| low.as_const().unwrap() <= expected));
                    assert!(high.is_none_or(|high| high.as_const().unwrap() >= expected));
                }
            }
        }
    }

    fn constant(dim: &Dim) -> i64 {
        dim.as_const().unwrap()
    }

    fn eval_expr(expr: &IndexExpr, at: &[i64]) -> i64 {
        match expr {
            IndexExpr::Axis(axis) => at[*axis],
            IndexExpr::Size(size) => constant(size),
            IndexExpr::Add(a, b) => eval_expr(a, at) + eval_expr(b, at),
            IndexExpr::Mul(x, factor) => eval_expr(x, at) * constant(factor),
            IndexExpr::FloorDiv(x, by) => eval_expr(x, at).div_euclid(constant(by)),
            IndexExpr::Mod(x, by) => eval_expr(x, at).rem_euclid(constant(by)),
            IndexExpr::Min(a, b) => eval_expr(a, at).min(eval_expr(b, at)),
            IndexExpr::Max(a, b) => eval_expr(a, at).max(eval_expr(b, at)),
            IndexExpr::Element { .. } => unreachable!("not generated"),
        }
    }

    fn eval_index(index: &Index, at: &[i64]) -> i64 {
        let terms = index.terms.iter().map(|(term, coefficient)| {
            constant(coefficient)
                * match term {
                    Term::Var(var) => at[var.0 as usize],
                    Term::FloorDiv(x, by) => eval_index(x, at).div_euclid(constant(by)),
                    Term::Mod(x, by) => eval_index(x, at).rem_euclid(constant(by)),
                    Term::Min(a, b) => eval_index(a, at).min(eval_index(b, at)),
                    Term::Max(a, b) => eval_index(a, at).max(eval_index(b, at)),
                }
        });
        terms.sum::<i64>() + constant(&index.constant)
    }
}
