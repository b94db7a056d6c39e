//! Rules that are wrong on purpose, each in another way: the test of the test.

use egg::Id;

use super::super::{build, rules, text};
use crate::egraph::{Rule, Site};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Algebra:
        "planted-swapped-operands" Real "(sub ?x ?y)" => text("(sub ?y ?x)"), if [] when [] "Operands exchanged.";
        "planted-half-distributed" Real "(mul (add ?x ?b) ?f)" => text("(add (mul ?x ?f) ?b)"), if [] when [] "A factor that reaches one summand only.";
        "planted-commuted-product" Real "(matmul ?a ?b)" => text("(matmul ?b ?a)"), if [] when [] "A product of matrices the other way round.";
        "planted-missing-guard" Real "(relu ?x)" => text("?x"), if [] when [] "ReLU left out, whatever its operand.";
        "planted-zero-sign" Bitwise "(add ?x 0)" => text("?x"), if [] when [] "True over the reals, but not of -0.";
        "planted-reassociated" Bitwise "(add (add ?x ?y) ?z)" => text("(add ?x (add ?y ?z))"), if [] when [] "True over the reals, but not of rounded sums.";
        "planted-wrong-perm" Real "(@t=transpose (@q=transpose ?x))" => build(wrong_perm), if [] when [] "Permutations composed in the wrong order.";
        "planted-factor-out-of-sum" Real "(@r=reduce_sum (mul ?x ?s))" => build(first_factor), if [] when [] "A factor taken out of a sum that it varies along.";
        "planted-clip" Real "(clip (clip ?x ?a ?b) ?c ?d)" => text("(clip ?x (max ?a ?c) (min ?b ?d))"), if [] when [] "Bounds intersected, though they may be apart.";
    }
}

fn wrong_perm(site: &mut Site<'_>) -> Option<Id> {
    let (outer, inner) = (site.node("t").attrs().axes("perm"), site.node("q").attrs().axes("perm"));
    let perm: Vec<usize> = inner.iter().map(|&axis| outer[axis]).collect();
    site.transpose(site.value("x"), &perm)
}

fn first_factor(site: &mut Site<'_>) -> Option<Id> {
    let node = site.node("r").clone();
    let axes = node.attrs().axes("axes");
    let sum = site.again(&node, &[site.value("x")])?;
    let factor = site.narrow(site.value("s"), |axis| axes.contains(&axis))?;
    let shape = site.ty(site.root()).shape.clone();
    let factor = site.reshape(factor, shape)?;
    site.apply("mul", &[sum, factor])
}
