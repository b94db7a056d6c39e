//! What a loaded model says about itself, as the named tuples of `fornax/_types.py`.

use std::sync::atomic::{AtomicU64, Ordering};

use fornax_bundle::{DType, Dim};
use fornax_runtime::LoadedBundle;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::dtype_name;

/// A list of `TensorSpec`. Sizes that the inputs decide are text, such as `batch` or `2*batch`.
pub(crate) fn specs<'py, 'a>(
    py: Python<'py>,
    tensors: impl Iterator<Item = (&'a str, DType, Vec<Dim>)>,
) -> PyResult<Bound<'py, PyList>> {
    let class = py.import("fornax._types")?.getattr("TensorSpec")?;
    let list = PyList::empty(py);
    for (name, dtype, shape) in tensors {
        let mut sizes = Vec::new();
        for dim in &shape {
            sizes.push(match dim.as_const() {
                Some(size) => size.into_pyobject(py)?.into_any(),
                None => dim.to_string().into_pyobject(py)?.into_any(),
            });
        }
        list.append(class.call1((name, dtype_name(dtype), PyTuple::new(py, sizes)?))?)?;
    }
    Ok(list)
}

/// A list of `Kernel`, in the order in which a call launches them.
pub(crate) fn kernels<'py>(py: Python<'py>, bundle: &LoadedBundle) -> PyResult<Bound<'py, PyList>> {
    let class = py.import("fornax._types")?.getattr("Kernel")?;
    let list = PyList::empty(py);
    let plan = bundle.plan();
    for kernel in bundle.launched_kernels() {
        let kernel = &plan.kernels[kernel];
        let region = &plan.regions[kernel.region];
        let mut nodes: Vec<_> = region.ops.iter().flat_map(|op| &op.origins).collect();
        nodes.dedup();
        let nodes = PyTuple::new(py, nodes)?;
        list.append(class.call1((&kernel.name, &region.name, &region.schedule, nodes))?)?;
    }
    Ok(list)
}

/// The largest scratch memory that calls took so far.
#[derive(Default)]
pub(crate) struct Scratch(AtomicU64);

impl Scratch {
    pub(crate) fn note(&self, n_bytes: u64) {
        self.0.fetch_max(n_bytes, Ordering::Relaxed);
    }
}

/// A `Memory`.
pub(crate) fn memory<'py>(
    py: Python<'py>,
    bundle: &LoadedBundle,
    scratch: &Scratch,
) -> PyResult<Bound<'py, PyAny>> {
    let used = bundle.memory_use();
    let scratch = match bundle.plan().scratch_bytes.as_const() {
        Some(n_bytes) => n_bytes as u64,
        None => scratch.0.load(Ordering::Relaxed),
    };
    let class = py.import("fornax._types")?.getattr("Memory")?;
    class.call1((used.weight_bytes, used.device_weight_bytes, used.prepared_bytes, scratch))
}
