//! What holds for every op of the table.

mod cases;
mod draw;
mod model_cases;
mod mutate;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use draw::{Case, Draw, Floats};
use fornax_ir::interp::lowered::{self, evaluate_samples};
use fornax_ir::interp::{
    Array, Element, Eval, Field, InterpError, Value, evaluate, evaluate_op, rounded, wrapped,
};
use fornax_ir::op::{OpClass, OpDef, OpRef, all, by_name, expand_composites};
use fornax_ir::{DType, Graph, LocSet, NodeId, Tensor, Type, infer};

/// Cases that are drawn for each op and kind of values.
const CASES: usize = 60;

/// Draws that may be rejected before the generator counts as wrong.
const DRAWS: usize = 3000;

fn op(def: &OpDef) -> OpRef {
    by_name(def.name).expect("ops are found by their names")
}

/// Checks all ops of a kind, and fails with the list of those that failed.
fn for_ops(is_meant: impl Fn(&OpDef) -> bool, check: impl Fn(&'static OpDef)) {
    let failed: Vec<&str> = all()
        .iter()
        .filter(|def| is_meant(def))
        .filter(|def| catch_unwind(AssertUnwindSafe(|| check(def))).is_err())
        .map(|def| def.name)
        .collect();
    assert!(failed.is_empty(), "failed for {failed:?}");
}

/// Whether an op computes something from operands and can be lowered.
fn is_computing(def: &OpDef) -> bool {
    !matches!(def.class, OpClass::Source(_) | OpClass::Opaque(_))
}

/// Calls `check` with cases that inference accepts.
fn for_cases(def: &OpDef, seed: u64, mut check: impl FnMut(&mut Draw, &Case, &Type)) {
    let mut draw = Draw::new(seed);
    let mut accepted = 0;
    for number in 0..DRAWS {
        draw.symbolic_percent = if number % 2 == 0 { 0 } else { 40 };
        let case = cases::draw_case(def, &mut draw);
        let Ok(ty) = infer(op(def), &case.attrs, &case.types) else { continue };
        // Sizes that the generator did not mean, such as a negative one from a symbol.
        if ty.shape.iter().any(|dim| draw.value(dim) < 0) {
            continue;
        }
        check(&mut draw, &case, &ty);
        accepted += 1;
        if accepted == CASES {
            return;
        }
    }
    assert!(accepted * 4 >= CASES, "{}: only {accepted} of {DRAWS} draws are valid", def.name);
}

/// Both evaluations of a case over numbers of one kind.
fn both<T: Element>(
    def: &OpDef,
    draw: &mut Draw,
    case: &Case,
    floats: Floats,
) -> (Vec<Value<T>>, Value<T>, Value<T>) {
    let operands: Vec<Value<T>> = case.types.iter().map(|ty| draw.operand(ty, floats)).collect();
    let borrowed: Vec<&Value<T>> = operands.iter().collect();
    let evaluated = evaluate_op(op(def), &case.attrs, &case.types, &borrowed, &draw.dims);
    let lowered = lowered::evaluate_op(op(def), &case.attrs, &case.types, &borrowed, &draw.dims);
    let evaluated = evaluated.unwrap_or_else(|error| panic!("{}: {error}\n{case:?}", def.name));
    let lowered = lowered.unwrap_or_else(|error| panic!("{}: {error}\n{case:?}", def.name));
    (operands, evaluated, lowered)
}

#[test]
fn documentation_names_every_constraint() {
    let mut names = BTreeSet::new();
    for def in all() {
        assert!(names.insert(def.name), "two ops are called {}", def.name);
        let labels = mutate::labels(def);
        let expected: BTreeSet<String> = (1..=labels.len()).map(|n| format!("C{n}")).collect();
        assert_eq!(labels, expected, "{}: {}", def.name, def.doc);
        let is_name = |name: &str| name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'));
        assert!(is_name(def.name), "{}", def.name);
        assert!(def.attrs.iter().all(|(name, _)| is_name(name)), "{}", def.name);
    }
}

#[test]
fn every_constraint_rejects_something() {
    for_ops(
        |_| true,
        |def| {
            let mut missing = mutate::labels(def);
            let declared = missing.clone();
            mutate::for_mutants(def, |case| {
                if let Err(diagnostic) = infer(op(def), &case.attrs, &case.types) {
                    let (name, label) =
                        diagnostic.code.split_once('.').expect("a code has a label");
                    assert_eq!(name, def.name);
                    let is_general = matches!(label, "arity" | "attrs");
                    assert!(is_general || declared.contains(label), "{name} documents no {label}");
                    assert!(!diagnostic.message.is_empty());
                    missing.remove(label);
                }
                !missing.is_empty()
            });
            assert!(missing.is_empty(), "{}: nothing is rejected by {missing:?}", def.name);
        },
    );
}

#[test]
fn evaluation_gives_the_inferred_type() {
    for_ops(is_computing, |def| {
        for_cases(def, 1, |draw, case, ty| {
            let (_, value, _) = both::<f64>(def, draw, case, Floats::Ordinary);
            let shape: Vec<i64> = value.shape().iter().map(|&size| size as i64).collect();
            let expected: Vec<i64> = ty.shape.iter().map(|dim| draw.value(dim)).collect();
            assert_eq!(shape, expected, "{}: {case:?}", def.name);
            match value {
                Value::Float(_) => assert!(ty.dtype.is_float(), "{}: {case:?}", def.name),
                Value::Int(array) => {
                    assert!(!ty.dtype.is_float(), "{}: {case:?}", def.name);
                    let holds = |&x: &i64| wrapped(ty.dtype, x) == x;
                    assert!(array.data.iter().all(holds), "{}: {case:?}", def.name);
                }
            }
        });
    });
}

#[test]
fn oracle_and_lowering_agree_on_ordinary_values() {
    for_ops(is_computing, |def| {
        for_cases(def, 2, |draw, case, ty| {
            let (operands, value, lowered) = both::<f64>(def, draw, case, Floats::Ordinary);
            compare(def, case, ty, &operands, &value, &lowered);
        });
    });
}

#[test]
fn oracle_and_lowering_agree_on_special_values() {
    for_ops(is_computing, |def| {
        let is_pointwise = matches!(def.class, OpClass::Pointwise(_));
        let floats = if is_pointwise { Floats::Special } else { Floats::Tame };
        for_cases(def, 3, |draw, case, ty| {
            let (operands, value, lowered) = both::<f64>(def, draw, case, floats);
            compare(def, case, ty, &operands, &value, &lowered);
        });
    });
}

#[test]
fn oracle_and_lowering_are_equal_in_the_field() {
    let is_polynomial = |def: &OpDef| matches!(def.eval, Eval::Polynomial { .. });
    for_ops(
        |def| is_computing(def) && is_polynomial(def),
        |def| {
            for_cases(def, 4, |draw, case, _| {
                let halves = |ty: &Type| matches!(ty.dtype, DType::F16 | DType::BF16);
                if case.types.iter().any(halves) {
                    // Their accumulators are rounded, which has no meaning in the field.
                    return;
                }
                let (operands, value, lowered) = both::<Field>(def, draw, case, Floats::Ordinary);
                assert_eq!(value, lowered, "{}: {case:?} of {operands:?}", def.name);
            });
        },
    );
}

#[test]
fn sampled_elements_are_those_of_the_whole() {
    for_ops(is_computing, |def| {
        for_cases(def, 6, |draw, case, ty| {
            let mut graph = Graph::new("one op");
            let inputs: Vec<NodeId> = (0..case.types.len())
                .map(|at| graph.input(&at.to_string(), case.types[at].clone()).unwrap())
                .collect();
            let node = graph.add(def.name, case.attrs.clone(), &inputs, LocSet::none()).unwrap();
            graph.output("y", node);
            let tensors: Vec<Tensor> = case
                .types
                .iter()
                .map(|ty| draw.operand::<f64>(ty, Floats::Tame).to_tensor(ty.dtype))
                .collect();
            let none = BTreeMap::new();
            let whole = match evaluate::<f64>(&graph, &tensors, &none) {
                Ok(mut outputs) => outputs.remove(0),
                // A symbol that only attributes have.
                Err(InterpError::Symbol(_) | InterpError::Dim { .. }) => return,
                Err(error) => panic!("{}: {error}\n{case:?}", def.name),
            };
            expand_composites(&mut graph).unwrap();
            let positions: Vec<usize> =
                (0..whole.shape().iter().product()).filter(|at| at % 3 != 1).collect();
            let count = positions.len();
            let expected = match &whole {
                Value::Float(a) => Value::Float(Array::new(
                    [count],
                    positions.iter().map(|&at| a.data[at]).collect(),
                )),
                Value::Int(a) => Value::Int(Array::new(
                    [count],
                    positions.iter().map(|&at| a.data[at]).collect(),
                )),
            };
            let sampled = evaluate_samples::<f64>(&graph, &tensors, &none, &[positions], u64::MAX)
                .unwrap_or_else(|error| panic!("{}: {error}\n{case:?}", def.name));
            let sampled = sampled.expect("there is no limit").remove(0);
            compare(def, case, ty, &[], &expected, &sampled);
        });
    });
}

#[test]
fn single_precision_is_near_double() {
    for_ops(is_computing, |def| {
        for_cases(def, 5, |draw, case, ty| {
            // Operands are drawn as `f32`, so that both see the same numbers.
            let (single, evaluated, _) = both::<f32>(def, draw, case, Floats::Ordinary);
            let double: Vec<Value<f64>> = single.iter().map(widened).collect();
            let borrowed: Vec<&Value<f64>> = double.iter().collect();
            let reference = evaluate_op(op(def), &case.attrs, &case.types, &borrowed, &draw.dims)
                .unwrap_or_else(|error| panic!("{}: {error}", def.name));
            if let (Value::Float(a), Value::Float(b)) = (&widened(&evaluated), &reference) {
                for (&a, &b) in a.data.iter().zip(&b.data) {
                    let fits = is_near(rounded(ty.dtype, a), rounded(ty.dtype, b), ty.dtype, 1e-4);
                    assert!(fits, "{}: {a} and {b} for {case:?}", def.name);
                }
            }
        });
    });
}

fn widened(value: &Value<f32>) -> Value<f64> {
    match value {
        Value::Float(array) => Value::Float(array.map(f64::from)),
        Value::Int(array) => Value::Int(array.clone()),
    }
}

/// Requires two results to agree: integers exactly; floats but for what another order of operations
/// costs; NaN and infinities exactly; zeros of pointwise ops with their sign.
fn compare(
    def: &OpDef,
    case: &Case,
    ty: &Type,
    operands: &[Value<f64>],
    value: &Value<f64>,
    lowered: &Value<f64>,
) {
    assert_eq!(value.shape(), lowered.shape());
    match (value, lowered) {
        (Value::Float(a), Value::Float(b)) => {
            let checks_zeros = matches!(def.class, OpClass::Pointwise(_) | OpClass::Movement(_));
            for (position, (&a, &b)) in a.data.iter().zip(&b.data).enumerate() {
                let (a, b) = (rounded(ty.dtype, a), rounded(ty.dtype, b));
                let same_zero =
                    a != 0.0 || b != 0.0 || a.is_sign_negative() == b.is_sign_negative();
                assert!(
                    is_near(a, b, ty.dtype, tolerance(def, ty.dtype))
                        && (same_zero || !checks_zeros),
                    "{}: {a} but lowered {b} at {position} for {case:?} of {operands:?}",
                    def.name
                );
            }
        }
        (a, b) => assert_eq!(a, b, "{}: {case:?} of {operands:?}", def.name),
    }
}

/// What rounding of constants to the element type costs: expansions have constants as nodes.
fn tolerance(def: &OpDef, dtype: DType) -> f64 {
    let has_rounded_constants = matches!(def.class, OpClass::Composite(_)) && dtype == DType::F32;
    if has_rounded_constants { 1e-6 } else { 1e-9 }
}

/// Whether two numbers are the same but for rounding in the element type or `tolerance`.
fn is_near(a: f64, b: f64, dtype: DType, tolerance: f64) -> bool {
    let tolerance = match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => tolerance,
    };
    a == b
        || (a.is_nan() && b.is_nan())
        || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1e-2)
}
