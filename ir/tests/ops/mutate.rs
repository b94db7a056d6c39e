//! Spoiling valid cases, to see every constraint reject something.

use std::collections::BTreeSet;

use fornax_ir::op::OpDef;
use fornax_ir::{AttrValue, DType, Dim, Float, Type};

use crate::cases::draw_case;
use crate::draw::{Case, Draw};

/// Mutants that are tried for each op.
const MUTANTS: usize = 20_000;

/// The constraints that an op's documentation names: `(C1)`, or `(C1) to (C4)`.
pub fn labels(def: &OpDef) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let (mut rest, mut last) = (def.doc, None);
    while let Some(start) = rest.find("(C") {
        let after = &rest[start + 2..];
        let Some(end) = after.find(')') else { break };
        if let Ok(number) = after[..end].parse::<usize>() {
            let first = match last {
                Some(last) if rest[..start] == *" to " => last,
                _ => number,
            };
            labels.extend((first..=number).map(|number| format!("C{number}")));
            last = Some(number);
        }
        rest = &after[end + 1..];
    }
    labels
}

/// Calls `check` with spoiled cases until it returns false.
pub fn for_mutants(def: &OpDef, mut check: impl FnMut(&Case) -> bool) {
    let mut draw = Draw::new(6);
    for number in 0..MUTANTS {
        draw.symbolic_percent = if number % 2 == 0 { 0 } else { 20 };
        let mut case = draw_case(def, &mut draw);
        for _ in 0..draw.int(0, 2) {
            mutate(&mut case, &mut draw);
        }
        if !check(&case) {
            return;
        }
    }
}

/// Changes one operand's type or one attribute.
fn mutate(case: &mut Case, draw: &mut Draw) {
    let choices = case.types.len() + case.attrs.iter().count();
    if choices == 0 {
        return;
    }
    let choice = draw.below(choices);
    if choice < case.types.len() {
        let ty = &case.types[choice];
        case.types[choice] = match draw.flag() {
            true => Type::new(draw.pick(&DType::ALL), ty.shape.clone()),
            false => Type::new(ty.dtype, mutated_dims(&ty.shape, draw)),
        };
        return;
    }
    let (name, value) = case
        .attrs
        .iter()
        .nth(choice - case.types.len())
        .map(|(name, value)| (name, value.clone()))
        .expect("the choice is one of the attributes");
    case.attrs = case
        .attrs
        .iter()
        .map(|(other, old)| {
            (other, if other == name { mutated(&value, draw) } else { old.clone() })
        })
        .collect();
}

fn mutated(value: &AttrValue, draw: &mut Draw) -> AttrValue {
    match value {
        AttrValue::Int(_) => AttrValue::Int(draw.int(-2, 6)),
        AttrValue::Ints(values) => {
            let mut values = values.clone();
            match draw.below(3) {
                0 => values.push(draw.int(-1, 3)),
                1 => drop(values.pop()),
                _ if values.is_empty() => {}
                _ => {
                    let position = draw.below(values.len());
                    values[position] = draw.int(-2, 9);
                }
            }
            AttrValue::Ints(values)
        }
        AttrValue::Dims(dims) => AttrValue::Dims(mutated_dims(dims, draw)),
        AttrValue::Float(_) => {
            AttrValue::Float(Float(draw.pick(&[0.0, -1.0, 0.25, 1e9, f64::NAN, f64::INFINITY])))
        }
        AttrValue::Bool(value) => AttrValue::Bool(!value),
        AttrValue::Text(text) => {
            let spoiled = format!("{text}{}", draw.pick(&["x", ",", "->", " "]));
            AttrValue::from(draw.pick(&["", "bogus", spoiled.as_str()]))
        }
        AttrValue::DType(_) => AttrValue::DType(draw.pick(&DType::ALL)),
        AttrValue::Tensor(tensor) => AttrValue::Tensor(tensor.clone()),
    }
}

fn mutated_dims(dims: &[Dim], draw: &mut Draw) -> Vec<Dim> {
    let mut dims = dims.to_vec();
    match draw.below(3) {
        0 => dims.push(draw.size()),
        1 => drop(dims.pop()),
        _ if dims.is_empty() => {}
        _ => {
            let position = draw.below(dims.len());
            dims[position] = draw.pick(&[
                Dim::constant(-1),
                Dim::constant(0),
                Dim::constant(7),
                Dim::symbol("S"),
            ]);
        }
    }
    dims
}
