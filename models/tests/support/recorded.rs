//! Recorded inputs and outputs of a model, and their comparison with the reference interpreter.

use std::collections::BTreeMap;
use std::path::Path;

use fornax_ir::interp::{Interpreter, Value};
use fornax_ir::{DType, Dim, Graph, Tensor};
use fornax_models::{ImportOptions, import};

/// Largest difference from the recorded numbers, in units of the largest of them.
const TOLERANCE: f64 = 2e-6;

/// What a model was called with and what it gave, in order.
pub struct Recording {
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The outputs; floats in `f64`.
    pub outputs: Vec<Tensor>,
}

impl Recording {
    /// Reads arrays `in_0`, …, `out_0`, … of an `.npz` file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut archive = npyz::npz::NpzArchive::open(path).map_err(|error| wrong(&error))?;
        let mut list = |prefix: &str| -> Result<Vec<Tensor>, String> {
            let mut tensors = Vec::new();
            while let Some(array) = archive
                .by_name(&format!("{prefix}_{}", tensors.len()))
                .map_err(|error| wrong(&error))?
            {
                tensors.push(tensor(array).map_err(|error| wrong(&error))?);
            }
            Ok(tensors)
        };
        Ok(Self { inputs: list("in")?, outputs: list("out")? })
    }

    /// Imports a model; inputs that say nothing of their shapes get those of the recording.
    pub fn import(&self, model: &Path) -> Result<Graph, String> {
        let mut options = ImportOptions::default();
        let mut known = 0;
        loop {
            let error = match import(model, &options) {
                Ok(imported) => return Ok(imported.graph),
                Err(error) => error,
            };
            let fornax_models::ImportError::UnknownRank { input } = &error else {
                return Err(error.to_string());
            };
            let Some(tensor) = self.inputs.get(known) else { return Err(error.to_string()) };
            let shape = tensor.shape().iter().map(|&size| Dim::from(size)).collect();
            options.shapes.insert(input.clone(), shape);
            known += 1;
        }
    }

    /// The largest difference between what the interpreter computes and what was recorded, over the largest number
    /// recorded.
    pub fn check(&self, graph: &Graph) -> Result<f64, String> {
        let values: Vec<Value<f64>> = Interpreter::new(graph, &self.inputs, &BTreeMap::new())
            .and_then(|interpreter| interpreter.outputs())
            .map_err(|error| error.to_string())?;
        if values.len() != self.outputs.len() {
            return Err(format!("{} outputs, recorded {}", values.len(), self.outputs.len()));
        }
        let mut largest = 0.0f64;
        for (at, (value, recorded)) in values.iter().zip(&self.outputs).enumerate() {
            let own = graph.ty(graph.outputs()[at].value).dtype;
            let value = value.to_tensor(if own.is_float() { DType::F64 } else { own });
            if value.shape() != recorded.shape() {
                let (found, wanted) = (value.shape(), recorded.shape());
                return Err(format!("output {at} has shape {found:?}, recorded {wanted:?}"));
            }
            largest = largest.max(difference(&value.to_f64(), &recorded.to_f64()));
        }
        if largest <= TOLERANCE { Ok(largest) } else { Err(format!("off by {largest:.2e}")) }
    }
}

fn difference(found: &[f64], recorded: &[f64]) -> f64 {
    let scale =
        recorded.iter().filter(|value| value.is_finite()).fold(1e-30f64, |s, v| s.max(v.abs()));
    let apart = |(a, b): (&f64, &f64)| {
        if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() / scale }
    };
    let worst = found.iter().zip(recorded).map(apart);
    worst.fold(0.0, |worst, next| if next.is_nan() { f64::INFINITY } else { worst.max(next) })
}

fn tensor<R: std::io::Read>(array: npyz::NpyFile<R>) -> Result<Tensor, String> {
    let npyz::DType::Plain(ty) = array.dtype() else { return Err("not a plain array".to_owned()) };
    let shape: Vec<usize> = array.shape().iter().map(|&size| size as usize).collect();
    let read = |error: std::io::Error| error.to_string();
    let (dtype, data): (DType, Vec<u8>) = match ty.to_string().as_str() {
        "'<f4'" | "<f4" => {
            let values = array.into_vec::<f32>().map_err(read)?;
            (DType::F32, values.into_iter().flat_map(f32::to_le_bytes).collect())
        }
        "'<f8'" | "<f8" => {
            let values = array.into_vec::<f64>().map_err(read)?;
            (DType::F64, values.into_iter().flat_map(f64::to_le_bytes).collect())
        }
        "'<i8'" | "<i8" => {
            let values = array.into_vec::<i64>().map_err(read)?;
            (DType::I64, values.into_iter().flat_map(i64::to_le_bytes).collect())
        }
        "'<i4'" | "<i4" => {
            let values = array.into_vec::<i32>().map_err(read)?;
            (DType::I32, values.into_iter().flat_map(i32::to_le_bytes).collect())
        }
        "'|b1'" | "|b1" => {
            let values = array.into_vec::<bool>().map_err(read)?;
            (DType::Bool, values.into_iter().map(u8::from).collect())
        }
        other => return Err(format!("the element type {other} is not known")),
    };
    Tensor::new(dtype, shape, data).map_err(|error| error.to_string())
}
