//! Control flow that is decided while importing.

use crate::onnx::call::{Build as _, Call, Result, Value};

/// If with a known condition: the branch that is taken.
pub(in crate::onnx) fn condition(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (yes, no) = (call.subgraph("then_branch")?, call.subgraph("else_branch")?);
    let Some(condition) = call.known(0).and_then(|known| known.elements.first()?.as_i64()) else {
        return Err(call.unsupported("a condition that is only known at run time is not supported"));
    };
    let (name, branch) = if condition != 0 { ("then_branch", yes) } else { ("else_branch", no) };
    let branch = branch.ok_or_else(|| call.needs(name))?;
    if let Some(fault) = call.importer.unsupported_inside(branch) {
        return Err(fault.at(call.loc()));
    }
    let before = call.importer.builder.fault_count();
    match call.importer.import_inner(branch) {
        Some(outputs) if call.importer.builder.fault_count() == before => Ok(outputs),
        _ => Err(call.fault("branch", format!("its {name} cannot be imported"))),
    }
}

/// Shape and Size depend only on types, which are always known.
pub(in crate::onnx) fn must_fold(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    call.value(0)?;
    Err(call.unsupported("the shape is too large to be computed while importing"))
}
