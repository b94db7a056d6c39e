//! What exporters spell out in smaller ops, recognised.

use egg::Id;
use fornax_ir::attrs;

use super::{build, rules, text};
use crate::egraph::{Rule, Site};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Normalise:
        "sigmoid-by-division" Real "(div 1 (add (exp (neg ?x)) 1))" => text("(sigmoid ?x)"), if [] when [] "`1 / (1 + e^-x)`.";
        "sigmoid-by-reciprocal" Real "(reciprocal (add (exp (neg ?x)) 1))" => text("(sigmoid ?x)"), if [] when [] "`1 / (1 + e^-x)`.";
        "silu" Real "(mul ?x (sigmoid ?x))" => build(swish), if [] when [] "`x * sigmoid(x)`: SiLU.";
        "silu-by-division" Real "(div ?x (add (exp (neg ?x)) 1))" => build(swish), if [] when [] "`x / (1 + e^-x)`: SiLU.";
        "softplus" Real "(log (add (exp ?x) 1))" => text("(softplus ?x)"), if [] when [] "`log(1 + e^x)`.";
        "softplus-by-log1p" Real "(log1p (exp ?x))" => text("(softplus ?x)"), if [] when [] "`log(1 + e^x)`.";
        "mish" Real "(mul ?x (tanh (softplus ?x)))" => text("(mish ?x)"), if [] when [] "`x * tanh(softplus(x))`: Mish.";
        "gelu-half-first" Real "(mul (mul ?x 0.5) (add (erf (mul ?x 0.70710678)) 1))" => build(gelu), if [] when [] "`(x / 2) * (1 + erf(x / sqrt(2)))`: GELU.";
        "gelu-half-last" Real "(mul (mul ?x (add (erf (mul ?x 0.70710678)) 1)) 0.5)" => build(gelu), if [] when [] "`x * (1 + erf(x / sqrt(2))) / 2`: GELU.";
        "gelu-half-inside" Real "(mul ?x (mul (add (erf (mul ?x 0.70710678)) 1) 0.5))" => build(gelu), if [] when [] "`x * ((1 + erf(x / sqrt(2))) / 2)`: GELU.";
        "gelu-by-division-first" Real "(mul (mul ?x 0.5) (add (erf (div ?x 1.41421356)) 1))" => build(gelu), if [] when [] "GELU with a division by sqrt(2).";
        "gelu-by-division-last" Real "(mul (mul ?x (add (erf (div ?x 1.41421356)) 1)) 0.5)" => build(gelu), if [] when [] "GELU with a division by sqrt(2).";
        "gelu-tanh-first" Real "(mul (mul ?x 0.5) (add (tanh (mul (add ?x (mul (mul ?x (mul ?x ?x)) 0.044715)) 0.79788456)) 1))" => build(gelu_tanh), if [] when [] "GELU by tanh, as GPT-2 spells it.";
        "gelu-tanh-last" Real "(mul (mul ?x (add (tanh (mul (add ?x (mul (mul ?x (mul ?x ?x)) 0.044715)) 0.79788456)) 1)) 0.5)" => build(gelu_tanh), if [] when [] "GELU by tanh, halved last.";
    }
}

fn swish(site: &mut Site<'_>) -> Option<Id> {
    let x = site.value("x");
    site.add("swish", attrs! { alpha: 1.0f64 }, &[x])
}

fn gelu(site: &mut Site<'_>) -> Option<Id> {
    let x = site.value("x");
    site.add("gelu", attrs! { approximate: "none" }, &[x])
}

fn gelu_tanh(site: &mut Site<'_>) -> Option<Id> {
    let x = site.value("x");
    site.add("gelu", attrs! { approximate: "tanh" }, &[x])
}
