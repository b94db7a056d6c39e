//! One instance of a rule: drawn, rewritten and evaluated on both sides.

use std::collections::BTreeMap;

use egg::Id;
use fornax_ir::interp::{Array, Element, Field, Interpreter, Value};
use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::{DType, Dims, Graph, Type};

use super::draw::{Random, Style, draw};
use crate::egraph::saturate::build;
use crate::egraph::{ENode, NodeCost, Numerics, OpGraph, Rule, Site, decode, encode, extract};

/// What sides are evaluated in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Field,
    Double,
    /// On special values.
    Single,
}

/// What became of a draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No instance of the rule.
    Unfit,
    /// The sides agree.
    Equal(Arithmetic),
    /// They do not: how.
    Different(String),
}

/// Draws a left side and evaluates it beside the right side; with `without`, an instance where all
/// guards but that one hold.
pub(super) fn try_instance(
    rule: &Rule,
    random: &mut Random,
    number: usize,
    without: Option<usize>,
) -> Outcome {
    let mut arithmetic = match rule.numerics {
        Numerics::Bitwise => Arithmetic::Single,
        _ if number.is_multiple_of(2) => Arithmetic::Field,
        _ => Arithmetic::Double,
    };
    let float = if arithmetic == Arithmetic::Single { DType::F32 } else { DType::F64 };
    let whole = arithmetic == Arithmetic::Field;
    let style = Style { float, whole, wide: number % 4 < 2 };
    let Some(left) = draw(&rule.left, style, random) else { return Outcome::Unfit };
    let right = match rewritten(rule, &left, without) {
        Rewritten::Unfit => return Outcome::Unfit,
        Rewritten::Broken(how) => return Outcome::Different(how),
        Rewritten::To(right) => right,
    };
    if arithmetic == Arithmetic::Field && !(is_polynomial(&left) && is_polynomial(&right)) {
        arithmetic = Arithmetic::Double;
    }
    let difference = match arithmetic {
        Arithmetic::Field => differ::<Field>(&left, &right, random, arithmetic),
        Arithmetic::Double => differ::<f64>(&left, &right, random, arithmetic),
        Arithmetic::Single => differ::<f32>(&left, &right, random, arithmetic),
    };
    match difference {
        Some(how) => Outcome::Different(format!("{how}\n{left}\n{right}")),
        None => Outcome::Equal(arithmetic),
    }
}

enum Rewritten {
    Unfit,
    To(Graph),
    Broken(String),
}

/// Every node costs the same: the right side is what the rule builds.
struct Unit;

impl NodeCost for Unit {
    fn cost(&self, _: &OpGraph, _: &ENode) -> f64 {
        1.0
    }
}

/// The right side at the root of a left side, as a graph.
fn rewritten(rule: &Rule, left: &Graph, without: Option<usize>) -> Rewritten {
    let mut encoded = encode(left);
    let root = encoded.roots[0];
    for found in rule.left.search_class(&encoded.egraph, root) {
        let site = Site { egraph: &mut encoded.egraph, left: &rule.left, found: &found, rule: 0 };
        let fails = without.is_some_and(|guard| (rule.guards[guard].holds)(&site));
        // What is only not worth trying is tried here.
        let rest = rule.guards.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        let mut rest = rest.map(|(_, guard)| guard);
        if fails || !rest.all(|guard| (guard.holds)(&site)) {
            continue;
        }
        match build(&mut encoded.egraph, rule, 0, &found) {
            Err(error) => return Rewritten::Broken(error.to_string()),
            Ok(None) => {}
            Ok(Some(equal)) => {
                encoded.egraph.rebuild();
                return graph_of(&encoded.egraph, equal, left);
            }
        }
    }
    Rewritten::Unfit
}

fn graph_of(egraph: &OpGraph, equal: Id, left: &Graph) -> Rewritten {
    let extraction = extract(egraph, &[equal], &Unit);
    match decode(egraph, &[egraph.find(equal)], &extraction.choice, left) {
        Ok((graph, _)) => Rewritten::To(graph),
        Err(error) => Rewritten::Broken(error.to_string()),
    }
}

fn is_polynomial(graph: &Graph) -> bool {
    graph.nodes().all(|id| {
        let op = graph.node(id).op;
        matches!(op.class(), OpClass::Source(_)) || Field::evaluation(&op.def().eval).is_some()
    })
}

/// How the outputs of two graphs differ on random values.
fn differ<T: Element>(
    left: &Graph,
    right: &Graph,
    random: &mut Random,
    arithmetic: Arithmetic,
) -> Option<String> {
    let inputs: Vec<Value<T>> =
        left.inputs().iter().map(|&id| value(left.ty(id), random, arithmetic)).collect();
    let weights: BTreeMap<String, Value<T>> = left
        .nodes()
        .filter(|&id| matches!(left.node(id).op.class(), OpClass::Source(SourceKind::Weight)))
        .map(|id| (left.input_name(id).to_owned(), value(left.ty(id), random, arithmetic)))
        .collect();
    let run = |graph: &Graph| {
        Interpreter::from_values(graph, inputs.clone(), weights.clone(), Dims::new())
            .and_then(|interpreter| interpreter.outputs())
    };
    match (run(left), run(right)) {
        (Ok(left), Ok(right)) => compare(&left[0], &right[0], arithmetic),
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}

fn value<T: Element>(ty: &Type, random: &mut Random, arithmetic: Arithmetic) -> Value<T> {
    const SPECIAL: [f64; 10] =
        [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, 1e30, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let sizes = ty.shape.as_const().expect("invariant: drawn shapes are known");
    let count: usize = sizes.iter().product();
    if ty.dtype.is_float() {
        let mut float = || match arithmetic {
            Arithmetic::Field => T::from_i64((random.bits() >> 34) as i64),
            Arithmetic::Single => T::from_f64(random.pick(&SPECIAL)),
            Arithmetic::Double => {
                let size = 0.25 + 2.0 * random.unit();
                T::from_f64(if random.chance(50) { size } else { -size })
            }
        };
        let data = (0..count).map(|_| float()).collect();
        return Value::Float(Array::new(sizes, data));
    }
    let (low, count_of) = if ty.dtype == DType::Bool { (0, 2) } else { (-3, 8) };
    let mut int = || match random.below(16) {
        0 if ty.dtype == DType::I64 => i64::MAX,
        _ => low + random.below(count_of) as i64,
    };
    let data = (0..count).map(|_| int()).collect();
    Value::Int(Array::new(sizes, data))
}

fn compare<T: Element>(
    left: &Value<T>,
    right: &Value<T>,
    arithmetic: Arithmetic,
) -> Option<String> {
    let (left, right) = match (left, right) {
        (Value::Float(left), Value::Float(right)) => (left, right),
        (Value::Int(left), Value::Int(right)) => {
            let pairs = left.data.iter().zip(&right.data);
            let wrong = pairs.into_iter().find(|(a, b)| a != b);
            return wrong.map(|(a, b)| format!("{a} became {b}"));
        }
        _ => return Some("floats became integers".to_owned()),
    };
    let scale = left.data.iter().map(|x| x.to_f64().abs()).filter(|x| x.is_finite());
    let scale = scale.fold(1.0, f64::max);
    let same = |a: f64, b: f64| match arithmetic {
        Arithmetic::Field => a == b,
        Arithmetic::Single => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        Arithmetic::Double => a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * scale,
    };
    let pairs = left.data.iter().zip(&right.data).map(|(a, b)| (a.to_f64(), b.to_f64()));
    let wrong = pairs.into_iter().find(|&(a, b)| !same(a, b));
    wrong.map(|(a, b)| format!("{a:e} became {b:e}"))
}
