//! Pointwise algebra: neutral elements, ranges, chains with prepared operands.

use egg::Id;

use super::{B_IS_PREPARED, C_IS_PREPARED, F_IS_PREPARED, build, premises, rules, text};
use crate::egraph::{Data, Rule, Site};

fn data<'s>(site: &'s Site<'_>, name: &str) -> &'s Data {
    site.data(site.value(name))
}

fn low(site: &Site<'_>, name: &str) -> f64 {
    data(site, name).range.low
}

fn high(site: &Site<'_>, name: &str) -> f64 {
    data(site, name).range.high
}

premises! {
    X_IS_NOT_NEGATIVE "x is not negative" |site| low(site, "x") >= 0.0;
    X_IS_NOT_POSITIVE "x is not positive" |site| high(site, "x") <= 0.0;
    X_IS_AT_LEAST_Y "x is at least y" |site| low(site, "x") >= high(site, "y");
    X_IS_WITHIN "x lies between the bounds" |site|
        low(site, "x") >= high(site, "l") && high(site, "x") <= low(site, "h");
    IS_ONE_NUMBER "the value is one number" |site| {
        let data = site.data(site.root());
        data.constant.is_none() && data.range.as_point().is_some() && data.ty.dtype.is_float()
    };
    X_IS_COMPUTED "x is computed at each run" |site| !data(site, "x").prepared;
    ALL_ARE_PREPARED "the bounds are prepared" |site|
        ["a", "b", "c", "d"].into_iter().all(|name| data(site, name).prepared);
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    let normalise = rules! { Normalise:
        "add-zero" Real "(add ?x 0)" => text("?x"), if [] when [] "`x + 0 = x` (but -0 + 0 = +0).";
        "sub-zero" Real "(sub ?x 0)" => text("?x"), if [] when [] "`x - 0 = x` (but -0 - -0 = +0).";
        "mul-one" Bitwise "(mul ?x 1)" => text("?x"), if [] when [] "`x * 1 = x`.";
        "div-one" Bitwise "(div ?x 1)" => text("?x"), if [] when [] "`x / 1 = x`.";
        "mul-zero" Real "(mul ?x 0)" => text("0"), if [] when [] "`x * 0 = 0` (but NaN for NaN and infinities).";
        "sub-self" Real "(sub ?x ?x)" => text("0"), if [] when [] "`x - x = 0` (but NaN for NaN and infinities).";
        "div-self" Real "(div (exp ?x) (exp ?x))" => text("1"), if [] when [] "`e^x / e^x = 1`.";
        "max-self" Bitwise "(max ?x ?x)" => text("?x"), if [] when [] "The larger of a value and itself.";
        "min-self" Bitwise "(min ?x ?x)" => text("?x"), if [] when [] "The smaller of a value and itself.";
        "neg-neg" Bitwise "(neg (neg ?x))" => text("?x"), if [] when [] "Twice negated.";
        "add-neg" Bitwise "(add ?x (neg ?y))" => text("(sub ?x ?y)"), if [] when [] "Adding the negated is subtracting.";
        "relu-relu" Bitwise "(relu (relu ?x))" => text("(relu ?x)"), if [] when [] "ReLU twice.";
        "abs-abs" Bitwise "(abs (abs ?x))" => text("(abs ?x)"), if [] when [] "The absolute value twice.";
        "where-same" Bitwise "(where ?c ?x ?x)" => text("?x"), if [] when [] "A choice between the same.";
        "log-exp" Real "(log (exp ?x))" => text("?x"), if [] when [] "`log(e^x) = x` (where `e^x` does not overflow).";
        "sub-add" Real "(add (sub ?x ?y) ?y)" => text("?x"), if [] when [] "`(x - y) + y = x`.";
        "add-sub" Real "(sub (add ?x ?y) ?y)" => text("?x"), if [] when [] "`(x + y) - y = x`.";
        "sub-common" Real "(sub (add ?x ?z) (add ?y ?z))" => text("(sub ?x ?y)"), if [] when [] "What both sides of a difference add falls away.";
        "div-sqrt" Real "(div ?x (sqrt ?y))" => text("(mul ?x (rsqrt ?y))"), if [] when [] "Dividing by a square root.";
        "reciprocal-sqrt" Real "(reciprocal (sqrt ?x))" => text("(rsqrt ?x)"), if [] when [] "The reciprocal of a square root.";
        "square" Real "(pow ?x 2)" => text("(mul ?x ?x)"), if [] when [] "`x^2 = x * x`.";
        "cube" Real "(pow ?x 3)" => text("(mul ?x (mul ?x ?x))"), if [] when [] "`x^3 = x * (x * x)`.";
        "root-power" Real "(pow ?x 0.5)" => text("(sqrt ?x)"), if [] when [] "`x^(1/2)` is the square root.";
        "relu-of-non-negative" Real "(relu ?x)" => text("?x"), if [X_IS_NOT_NEGATIVE] when [] "ReLU of what is not negative.";
        "relu-of-non-positive" Real "(relu ?x)" => text("0"), if [X_IS_NOT_POSITIVE] when [] "ReLU of what is not positive.";
        "abs-of-non-negative" Real "(abs ?x)" => text("?x"), if [X_IS_NOT_NEGATIVE] when [] "The absolute value of what is not negative.";
        "max-decided" Real "(max ?x ?y)" => text("?x"), if [X_IS_AT_LEAST_Y] when [] "A maximum that ranges decide (but NaN of the smaller).";
        "min-decided" Real "(min ?y ?x)" => text("?y"), if [X_IS_AT_LEAST_Y] when [] "A minimum that ranges decide (but NaN of the larger).";
        "clip-within" Real "(clip ?x ?l ?h)" => text("?x"), if [X_IS_WITHIN] when [] "A value that lies between the bounds already.";
        "one-number" Real "(@n=pointwise *)" => build(one_number), if [] when [IS_ONE_NUMBER] "A value whose range is one number (but NaN).";
        "clip-clip" Bitwise "(clip (clip ?x ?a ?b) ?c ?d)" => text("(clip ?x (clip ?a ?c ?d) (clip ?b ?c ?d))"), if [] when [ALL_ARE_PREPARED] "Two clips are one with the inner bounds clipped.";
        "max-max" Bitwise "(max (max ?x ?b) ?c)" => text("(max ?x (max ?b ?c))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared operands of maxima first.";
        "min-min" Bitwise "(min (min ?x ?b) ?c)" => text("(min ?x (min ?b ?c))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared operands of minima first.";
    };
    let algebra = rules! { Algebra:
        "div-prepared" Real "(div ?x ?f)" => text("(mul ?x (reciprocal ?f))"), if [] when [X_IS_COMPUTED, F_IS_PREPARED] "Dividing by a prepared value is multiplying by its reciprocal.";
        "mul-mul" Real "(mul (mul ?x ?f) ?b)" => text("(mul ?x (mul ?f ?b))"), if [] when [X_IS_COMPUTED, F_IS_PREPARED, B_IS_PREPARED] "Prepared factors first.";
        "add-add" Real "(add (add ?x ?b) ?c)" => text("(add ?x (add ?b ?c))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared summands first.";
        "add-of-sub" Real "(add (sub ?x ?b) ?c)" => text("(add ?x (sub ?c ?b))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared summands first.";
        "sub-of-add" Real "(sub (add ?x ?b) ?c)" => text("(add ?x (sub ?b ?c))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared summands first.";
        "sub-of-sub" Real "(sub (sub ?x ?b) ?c)" => text("(sub ?x (add ?b ?c))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, C_IS_PREPARED] "Prepared summands first.";
        "mul-over-add" Real "(mul (add ?x ?b) ?f)" => text("(add (mul ?x ?f) (mul ?b ?f))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, F_IS_PREPARED] "A prepared factor goes over a sum with a prepared summand (bias, batch norm).";
        "mul-over-sub" Real "(mul (sub ?x ?b) ?f)" => text("(sub (mul ?x ?f) (mul ?b ?f))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, F_IS_PREPARED] "A prepared factor goes over a difference (bias, batch norm).";
        "mul-over-rsub" Real "(mul (sub ?b ?x) ?f)" => text("(sub (mul ?b ?f) (mul ?x ?f))"), if [] when [X_IS_COMPUTED, B_IS_PREPARED, F_IS_PREPARED] "A prepared factor goes over a difference from a prepared value.";
        "double" Real "(add ?x ?x)" => text("(mul ?x 2)"), if [] when [] "`x + x = 2x`.";
        "self-plus-multiple" Real "(add ?x (mul ?x ?f))" => text("(mul ?x (add ?f 1))"), if [] when [X_IS_COMPUTED, F_IS_PREPARED] "`x + f x = (f + 1) x`.";
    };
    [normalise, algebra].concat()
}

fn one_number(site: &mut Site<'_>) -> Option<Id> {
    let data = site.data(site.root());
    let (point, ty) = (data.range.as_point()?, data.ty.clone());
    site.number(ty.dtype, point, &ty.shape)
}
