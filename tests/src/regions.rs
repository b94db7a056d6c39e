//! Evaluating a plan region by region with the reference interpreter.

use std::collections::BTreeMap;

use fornax_ir::interp::{Array, InterpError, Interpreter, Value};
use fornax_ir::plan::{Plan, ValueRef};
use fornax_ir::{DType, Dim, Dims};

/// The outputs of a plan. `weights` has the data of all weights but those that the plan itself holds;
/// `store` is applied to what regions leave in memory.
///
/// # Errors
/// When a weight has no data, or a region cannot be evaluated.
pub fn evaluate(
    plan: &Plan,
    inputs: &[Value<f64>],
    weights: &BTreeMap<String, Value<f64>>,
    dims: &Dims,
    store: impl Fn(Value<f64>, DType) -> Value<f64>,
) -> Result<Vec<Value<f64>>, InterpError> {
    let mut stored: BTreeMap<ValueRef, Value<f64>> = BTreeMap::new();
    for (index, value) in inputs.iter().enumerate() {
        stored.insert(ValueRef::Input(index), value.clone());
    }
    for (index, weight) in plan.weights.iter().enumerate() {
        let constant = plan.constants.get(&weight.name).map(Value::from_tensor);
        let data = weights.get(&weight.name).cloned().or(constant);
        let data = data.ok_or_else(|| InterpError::Weight(weight.name.clone()))?;
        stored.insert(ValueRef::Weight(index), data);
    }
    for (index, shared) in plan.shared.iter().enumerate() {
        let sizes = sizes(&shared.ty.shape, dims)?;
        let count = sizes.iter().product();
        // What is read before it is written shows.
        let empty = match shared.ty.dtype.is_float() {
            true => Value::Float(Array::new(sizes, vec![f64::NAN; count])),
            false => Value::Int(Array::new(sizes, vec![0; count])),
        };
        stored.insert(ValueRef::Shared(index), empty);
    }
    for (region, contents) in plan.regions.iter().enumerate() {
        let body = &contents.body;
        let operands = contents.operands.iter().map(|operand| stored[operand].clone()).collect();
        let interpreter = Interpreter::from_values(body, operands, BTreeMap::new(), dims.clone())?;
        for (output, value) in interpreter.outputs()?.into_iter().enumerate() {
            let dtype = body.ty(body.outputs()[output].value).dtype;
            let value = store(value, dtype);
            match contents.parts.get(&output) {
                Some(part) => {
                    let start = sizes(std::slice::from_ref(&part.start), dims)?[0];
                    let whole = stored.get_mut(&ValueRef::Shared(part.shared));
                    write_part(whole.expect("invariant: it is there"), &value, part.axis, start);
                }
                None => {
                    stored.insert(ValueRef::Region { region, output }, value);
                }
            }
        }
    }
    Ok(plan.outputs.iter().map(|output| stored[&output.value].clone()).collect())
}

fn sizes(shape: &[Dim], dims: &Dims) -> Result<Vec<usize>, InterpError> {
    let number = |size: &Dim| match size.eval(dims) {
        Ok(size) => Ok(size as usize),
        Err(source) => Err(InterpError::Dim { op: "shared", source }),
    };
    shape.iter().map(number).collect()
}

/// Writes a value into a larger one, from `start` on along an axis.
fn write_part(whole: &mut Value<f64>, part: &Value<f64>, axis: usize, start: usize) {
    fn copy<T: Copy>(whole: &mut Array<T>, part: &Array<T>, axis: usize, start: usize) {
        let inner: usize = part.shape[axis + 1..].iter().product();
        let (length, block) = (part.shape[axis] * inner, whole.shape[axis] * inner);
        for (outer, run) in part.data.chunks(length.max(1)).enumerate() {
            let first = outer * block + start * inner;
            whole.data[first..first + run.len()].copy_from_slice(run);
        }
    }
    match (whole, part) {
        (Value::Float(whole), Value::Float(part)) => copy(whole, part, axis, start),
        (Value::Int(whole), Value::Int(part)) => copy(whole, part, axis, start),
        _ => unreachable!("invariant: a part has its array's element type"),
    }
}
