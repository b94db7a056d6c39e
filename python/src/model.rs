//! The class `fornax.Model`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fornax_bundle::manifest::Port;
use fornax_bundle::{Bundle, Dim};
use fornax_runtime::device::DeviceKind;
use fornax_runtime::{LoadOptions, LoadedBundle, open_device};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::arguments::Arguments;
use crate::array::View;
use crate::cuda::CudaCalls;
use crate::describe::{self, Scratch};
use crate::error::Error;
use crate::host;
use crate::weights::GivenWeights;

/// A bundle on a device, ready to be called.
#[pyclass(frozen, module = "fornax")]
pub(crate) struct Model {
    bundle: LoadedBundle,
    device: String,
    /// None on the emulator.
    cuda: Option<CudaCalls>,
    scratch: Scratch,
    /// The objects that uploaded weights come from, by name.
    host_weights: Mutex<BTreeMap<String, Py<PyAny>>>,
    /// Keeps alive what kernels read where the caller has it.
    _device_weights: Vec<Py<PyAny>>,
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, weights=None, device="cuda:0", target=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        weights: Option<&Bound<'_, PyAny>>,
        device: &str,
        target: Option<&str>,
    ) -> Result<Model, Error> {
        let bundle = py.detach(|| Bundle::open(&path))?;
        let opened = py.detach(|| open_device(device))?;
        let index = match opened.kind() {
            DeviceKind::Cuda => Some(device_index(device)),
            DeviceKind::Emulator => None,
        };
        let declared = &bundle.manifest().weights;
        let given = match weights {
            None => GivenWeights::default(),
            Some(weights) => match weights.cast::<PyDict>() {
                Ok(given) => GivenWeights::pick(given, declared, index)?,
                Err(_) => GivenWeights::from_file(&weights.extract::<String>()?, declared)?,
            },
        };
        // Before loading, so that torch makes its own context ready first.
        let signature = &bundle.manifest().signature;
        let cuda = index.map(|index| CudaCalls::new(py, index, signature)).transpose()?;
        let GivenWeights { host, device: device_weights, host_objects, device_objects } = given;
        let target = target.map(str::to_owned);
        let options =
            LoadOptions { weights: host, device_weights, target, ..LoadOptions::default() };
        let bundle = py.detach(|| LoadedBundle::load(opened, &bundle, options))?;
        Ok(Model {
            bundle,
            device: index.map_or(device.to_owned(), |index| format!("cuda:{index}")),
            cuda,
            scratch: Scratch::default(),
            host_weights: Mutex::new(host_objects),
            _device_weights: device_objects,
        })
    }

    /// Runs the model.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>, Error> {
        let signature = &self.bundle.manifest().signature;
        let Arguments { inputs, out } = Arguments::bind(signature, inputs, named)?;
        let mut outputs = match &self.cuda {
            Some(cuda) => cuda.call(&self.bundle, &self.scratch, &inputs, out.as_deref(), py)?,
            None => host::call(&self.bundle, &self.scratch, &inputs, out.as_deref(), py)?,
        };
        match outputs.len() {
            1 => Ok(outputs.remove(0)),
            _ => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    /// Brings what was computed from the weights up to date after they changed.
    #[pyo3(signature = (weights=None))]
    fn refresh(&self, py: Python<'_>, weights: Option<&Bound<'_, PyDict>>) -> Result<(), Error> {
        let declared = &self.bundle.manifest().weights;
        let mut objects = self.host_weights(py);
        for (name, object) in weights.into_iter().flatten() {
            let name: String = name.extract()?;
            if declared.iter().any(|decl| decl.name == name) {
                objects.insert(name, object.unbind());
            }
        }
        let mut values = BTreeMap::new();
        for (name, object) in &objects {
            let what = format!("weight `{name}`");
            values.insert(name.clone(), View::of(object.bind(py), &what)?.to_tensor(&what)?);
        }
        py.detach(|| self.bundle.refresh(&values))?;
        *self.host_weights.lock().unwrap_or_else(PoisonError::into_inner) = objects;
        Ok(())
    }

    /// The inputs, in order.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        describe::specs(py, ports(&self.bundle.manifest().signature.inputs))
    }

    /// The outputs, in order.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        describe::specs(py, ports(&self.bundle.manifest().signature.outputs))
    }

    /// The weights of the imported model.
    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let weights = self.bundle.manifest().weights.iter().map(|decl| {
            let shape = decl.shape.iter().map(|&size| Dim::constant(size as i64)).collect();
            (decl.name.as_str(), decl.dtype, shape)
        });
        describe::specs(py, weights)
    }

    /// The kernels that a call launches, in order.
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        describe::kernels(py, &self.bundle)
    }

    /// Device memory in bytes.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        describe::memory(py, &self.bundle, &self.scratch)
    }

    /// The device, such as `cuda:0`.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// The target that the running code was compiled for, such as `sm_90a`.
    #[getter]
    fn target(&self) -> &str {
        &self.bundle.plan().target
    }

    /// The precision policy that the bundle was compiled under.
    #[getter]
    fn precision(&self) -> &str {
        &self.bundle.manifest().precision
    }

    fn __repr__(&self) -> String {
        let manifest = self.bundle.manifest();
        let text = |ports: &[Port]| {
            let port = |port: &Port| {
                let sizes: Vec<_> = port.shape.iter().map(Dim::to_string).collect();
                format!("{}: {}[{}]", port.name, port.dtype, sizes.join(", "))
            };
            ports.iter().map(port).collect::<Vec<_>>().join(", ")
        };
        format!(
            "<fornax.Model {} on {} ({}): ({}) -> ({})>",
            manifest.model,
            self.device,
            self.target(),
            text(&manifest.signature.inputs),
            text(&manifest.signature.outputs)
        )
    }
}

impl Model {
    /// A copy, since nothing may be held while the interpreter is left to other threads.
    fn host_weights(&self, py: Python<'_>) -> BTreeMap<String, Py<PyAny>> {
        let objects = self.host_weights.lock().unwrap_or_else(PoisonError::into_inner);
        objects.iter().map(|(name, object)| (name.clone(), object.clone_ref(py))).collect()
    }
}

fn ports(ports: &[Port]) -> impl Iterator<Item = (&str, fornax_bundle::DType, Vec<Dim>)> {
    ports.iter().map(|port| (port.name.as_str(), port.dtype, port.shape.clone()))
}

/// The index in a device's name; `cuda` is the first one.
fn device_index(name: &str) -> i32 {
    name.strip_prefix("cuda:").and_then(|index| index.parse().ok()).unwrap_or(0)
}
