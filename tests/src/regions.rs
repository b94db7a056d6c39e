//! Evaluating a plan region by region with the reference interpreter.

use std::collections::BTreeMap;

use fornax_ir::interp::{InterpError, Interpreter, Value};
use fornax_ir::plan::{Plan, ValueRef};
use fornax_ir::{DType, Dims};

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
    for (region, contents) in plan.regions.iter().enumerate() {
        let body = &contents.body;
        let operands = contents.operands.iter().map(|operand| stored[operand].clone()).collect();
        let interpreter = Interpreter::from_values(body, operands, BTreeMap::new(), dims.clone())?;
        for (output, value) in interpreter.outputs()?.into_iter().enumerate() {
            let dtype = body.ty(body.outputs()[output].value).dtype;
            stored.insert(ValueRef::Region { region, output }, store(value, dtype));
        }
    }
    Ok(plan.outputs.iter().map(|output| stored[&output.value].clone()).collect())
}
