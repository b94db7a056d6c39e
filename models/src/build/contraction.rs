//! Sums of products.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::movement::permute;
use super::{Build, Result, common_shape, reduce};

/// A matrix product, with vectors as numpy treats them.
pub(crate) fn matmul(call: &mut impl Build, a: NodeId, b: NodeId) -> Result<NodeId> {
    let (left, right) = (call.graph().ty(a).shape.to_vec(), call.graph().ty(b).shape.to_vec());
    if left.is_empty() || right.is_empty() {
        return Err(call.invalid("an operand is a scalar"));
    }
    let row =
        if left.len() == 1 { [&[Dim::constant(1)], &left[..]].concat() } else { left.clone() };
    let column =
        if right.len() == 1 { [&right[..], &[Dim::constant(1)]].concat() } else { right.clone() };
    let (row, column) = (call.reshape(a, &row)?, call.reshape(b, &column)?);
    let product = call.add("matmul", Attrs::none(), &[row, column])?;
    let mut shape = call.graph().ty(product).shape.to_vec();
    if right.len() == 1 {
        shape.pop();
    }
    if left.len() == 1 {
        shape.remove(shape.len() - if right.len() == 1 { 1 } else { 2 });
    }
    call.reshape(product, &shape)
}

/// Multiplies by a number; integers only by whole ones.
pub(crate) fn scaled(call: &mut impl Build, node: NodeId, factor: f64) -> Result<NodeId> {
    if factor == 1.0 {
        return Ok(node);
    }
    if !call.graph().ty(node).dtype.is_float() && factor.fract() != 0.0 {
        return Err(call.unsupported("integers cannot be scaled by a fraction"));
    }
    let factor = call.scalar_like(factor, node)?;
    call.add("mul", Attrs::none(), &[node, factor])
}

/// An operand of an einsum: a letter per axis, each once.
#[derive(Clone)]
struct Term {
    node: NodeId,
    letters: Vec<char>,
}

/// An einsum: operands are reduced to distinct letters, then contracted two by two from the left.
pub(crate) fn einsum(call: &mut impl Build, text: &str, nodes: &[NodeId]) -> Result<NodeId> {
    let ranks: Vec<usize> = nodes.iter().map(|&node| call.graph().ty(node).rank()).collect();
    let equation = Equation::parse(text, &ranks)
        .map_err(|reason| call.invalid(format!("the equation {text:?} does not fit: {reason}")))?;
    let terms = broadcast_ellipsis(call, nodes, &equation)?;
    let mut terms = terms.into_iter();
    let mut sum = match terms.next() {
        Some(term) => diagonal(call, term)?,
        None => return Err(call.invalid("there is no operand")),
    };
    let rest: Vec<Term> = terms.map(|term| diagonal(call, term)).collect::<Result<_>>()?;
    for (position, term) in rest.iter().enumerate() {
        let later = rest[position + 1..].iter().flat_map(|term| term.letters.iter().copied());
        let kept: BTreeSet<char> = equation.result.iter().copied().chain(later).collect();
        sum = contract(call, sum, term.clone(), &kept)?;
    }
    let kept: BTreeSet<char> = equation.result.iter().copied().collect();
    let sum = sum_away(call, sum, |letter| kept.contains(&letter))?;
    let order: Option<Vec<usize>> = equation
        .result
        .iter()
        .map(|letter| sum.letters.iter().position(|other| other == letter))
        .collect();
    match order {
        Some(order) => permute(call, sum.node, &order),
        None => Err(call.invalid(format!("a letter of the result of {text:?} is in no operand"))),
    }
}

/// An einsum's equation with the ellipsis spelled out as digits from `0` on, the last axis highest.
struct Equation {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
}

impl Equation {
    fn parse(text: &str, ranks: &[usize]) -> std::result::Result<Self, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let sides: Vec<&str> = left.split(',').collect();
        if sides.len() != ranks.len() {
            return Err(format!("it has {} terms for {} operands", sides.len(), ranks.len()));
        }
        let mut dots = 0;
        for (term, &rank) in sides.iter().zip(ranks) {
            let letters = term.replacen("...", "", 1).chars().count();
            let spare = rank.checked_sub(letters).filter(|&n| n == 0 || term.contains("..."));
            let spare = spare
                .ok_or_else(|| format!("the term {term:?} is for another rank than {rank}"))?;
            dots = dots.max(spare);
        }
        if dots > 10 {
            return Err("the ellipsis stands for more than 10 axes".to_owned());
        }
        let spell = |term: &str, count: usize| -> std::result::Result<Vec<char>, String> {
            let digits: String = ('0'..='9').take(dots).skip(dots - count).collect();
            let letters = term.replacen("...", &digits, 1);
            match term.replacen("...", "", 1).chars().find(|c| !c.is_ascii_alphabetic()) {
                Some(other) => Err(format!("{other:?} is no letter")),
                None => Ok(letters.chars().collect()),
            }
        };
        let mut terms = Vec::new();
        for (term, &rank) in sides.iter().zip(ranks) {
            let letters = term.replacen("...", "", 1).chars().count();
            terms.push(spell(term, rank - letters)?);
        }
        let result = match right {
            Some(right) => spell(right, dots)?,
            None => Self::implied_result(&terms),
        };
        let distinct: BTreeSet<char> = result.iter().copied().collect();
        if distinct.len() != result.len() {
            return Err("the result has a letter twice".to_owned());
        }
        Ok(Self { terms, result })
    }

    /// The letters that appear once, in the order of their codes, after the ellipsis.
    fn implied_result(terms: &[Vec<char>]) -> Vec<char> {
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for &letter in terms.iter().flatten() {
            *counts.entry(letter).or_default() += 1;
        }
        // Digits come before letters.
        let once = |&(letter, count): &(char, usize)| count == 1 || letter.is_ascii_digit();
        counts.into_iter().filter(once).map(|(letter, _)| letter).collect()
    }
}

/// Axes of an ellipsis are broadcast against each other; letters stand for one size each.
fn broadcast_ellipsis(
    call: &mut impl Build,
    nodes: &[NodeId],
    equation: &Equation,
) -> Result<Vec<Term>> {
    let mut sizes: BTreeMap<char, Dim> = BTreeMap::new();
    for (&node, letters) in nodes.iter().zip(&equation.terms) {
        for (size, &letter) in call.graph().ty(node).shape.iter().zip(letters) {
            let slot = sizes.entry(letter).or_insert_with(|| Dim::constant(1));
            let common = common_shape(&[std::slice::from_ref(slot), std::slice::from_ref(size)]);
            *slot = common
                .map_err(|_| {
                    call.invalid(format!("the sizes {slot} and {size} of {letter:?} differ"))
                })?
                .remove(0);
        }
    }
    let mut terms = Vec::new();
    for (&node, letters) in nodes.iter().zip(&equation.terms) {
        let shape: Vec<Dim> = letters.iter().map(|letter| sizes[letter].clone()).collect();
        terms.push(Term { node: call.broadcast(node, &shape)?, letters: letters.clone() });
    }
    Ok(terms)
}

/// Takes the diagonal of axes that share a letter: elements off it become 0, and are summed away.
fn diagonal(call: &mut impl Build, mut term: Term) -> Result<Term> {
    let repeated = |letters: &[char]| {
        (1..letters.len()).find_map(|at| {
            letters[..at].iter().position(|&other| other == letters[at]).map(|first| (first, at))
        })
    };
    while let Some((first, second)) = repeated(&term.letters) {
        let ty = call.graph().ty(term.node).clone();
        let rows = call.positions(first, &ty.shape)?;
        let columns = call.positions(second, &ty.shape)?;
        let on = call.add("eq", Attrs::none(), &[rows, columns])?;
        let zero = call.scalar_like(0.0, term.node)?;
        let kept = call.add("where", Attrs::none(), &[on, term.node, zero])?;
        term.node = reduce::sum(call, kept, &[second])?;
        term.letters.remove(second);
    }
    Ok(term)
}

fn sum_away(call: &mut impl Build, term: Term, kept: impl Fn(char) -> bool) -> Result<Term> {
    let gone: Vec<usize> =
        (0..term.letters.len()).filter(|&axis| !kept(term.letters[axis])).collect();
    let node = if gone.is_empty() { term.node } else { reduce::sum(call, term.node, &gone)? };
    Ok(Term { node, letters: term.letters.into_iter().filter(|&letter| kept(letter)).collect() })
}

/// Contracts two operands; letters that are in neither the other one nor `kept` are summed before.
fn contract(call: &mut impl Build, left: Term, right: Term, kept: &BTreeSet<char>) -> Result<Term> {
    let (left_letters, right_letters) = (left.letters.clone(), right.letters.clone());
    let left =
        sum_away(call, left, |letter| kept.contains(&letter) || right_letters.contains(&letter))?;
    let right =
        sum_away(call, right, |letter| kept.contains(&letter) || left_letters.contains(&letter))?;
    let both =
        left.letters.iter().chain(right.letters.iter().filter(|l| !left.letters.contains(l)));
    let result: Vec<char> = both.copied().filter(|letter| kept.contains(letter)).collect();
    // The op's equations have lower-case letters only.
    let mut names: BTreeMap<char, char> = BTreeMap::new();
    for &letter in left.letters.iter().chain(&right.letters) {
        let next = ('a'..='z').nth(names.len()).unwrap_or('z');
        names.entry(letter).or_insert(next);
    }
    if names.len() > 26 {
        return Err(call.unsupported("an einsum of more than 26 letters"));
    }
    let spell = |letters: &[char]| letters.iter().map(|letter| names[letter]).collect::<String>();
    let equation =
        format!("{},{}->{}", spell(&left.letters), spell(&right.letters), spell(&result));
    let node =
        call.add("einsum", attrs! { equation: equation.as_str() }, &[left.node, right.node])?;
    Ok(Term { node, letters: result })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, ranks: &[usize]) -> String {
        match Equation::parse(text, ranks) {
            Err(reason) => reason,
            Ok(equation) => {
                let text = |letters: &Vec<char>| letters.iter().collect::<String>();
                let terms: Vec<String> = equation.terms.iter().map(text).collect();
                format!("{}->{}", terms.join(","), text(&equation.result))
            }
        }
    }

    #[test]
    fn equations_are_spelled_out() {
        assert_eq!(parsed("bij, bjk -> bik", &[3, 3]), "bij,bjk->bik");
        assert_eq!(parsed("ij,jk", &[2, 2]), "ij,jk->ik");
        assert_eq!(parsed("ba,Ab", &[2, 2]), "ba,Ab->Aa");
        assert_eq!(parsed("...ii->...i", &[4]), "01ii->01i");
        assert_eq!(parsed("...i,...j", &[3, 2]), "01i,1j->01ij");
        assert_eq!(parsed("ij->", &[2]), "ij->");
    }

    #[test]
    fn equations_that_do_not_fit_are_refused() {
        assert_eq!(parsed("ij", &[2, 2]), "it has 1 terms for 2 operands");
        assert_eq!(parsed("ij->ij", &[3]), "the term \"ij\" is for another rank than 3");
        assert_eq!(parsed("i1->i", &[2]), "'1' is no letter");
        assert_eq!(parsed("ij->ii", &[2]), "the result has a letter twice");
    }
}
