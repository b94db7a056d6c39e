//! What is used of torch, looked up once.

use fornax_bundle::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::DTYPES;

/// Handles of torch.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    /// `torch.dtype` objects in the order of [`DTYPES`]; none where this torch has no such type.
    dtypes: Vec<Option<Py<PyAny>>>,
    cuda: Py<PyAny>,
    empty: Py<PyAny>,
    /// The raw handle of a device's current stream. Private to torch but what its own generated code calls; the
    /// public way makes a stream object first, which costs ten times as much.
    raw_stream: Option<Py<PyAny>>,
    /// Allocates on the current device without parsing options; private, as above.
    empty_strided_cuda: Option<Py<PyAny>>,
    /// The current device; private, as above.
    current_device: Option<Py<PyAny>>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Torch {
    /// Imports torch if need be.
    pub(crate) fn import(py: Python<'_>) -> PyResult<&'static Torch> {
        TORCH.get_or_try_init(py, || Torch::new(&py.import("torch")?))
    }

    /// Torch if somebody has imported it: otherwise no object can be a tensor.
    pub(crate) fn loaded(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
        if let Some(torch) = TORCH.get(py) {
            return Ok(Some(torch));
        }
        let modules = py.import("sys")?.getattr("modules")?;
        match modules.get_item("torch") {
            // While torch is still being imported it has no tensors yet.
            Ok(torch) if torch.hasattr("Tensor")? && torch.hasattr("compile")? => {
                Torch::import(py).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn new(torch: &Bound<'_, PyModule>) -> PyResult<Torch> {
        let private = torch.getattr("_C")?;
        let optional = |from: &Bound<'_, PyAny>, path: &[&str]| {
            let mut found = from.clone();
            for name in path {
                found = found.getattr(*name).ok()?;
            }
            Some(found.unbind())
        };
        let dtype = |&(_, name): &(DType, &str)| optional(torch, &[name]);
        Ok(Torch {
            tensor: torch.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
            dtypes: DTYPES.iter().map(dtype).collect(),
            cuda: torch.getattr("cuda")?.unbind(),
            empty: torch.getattr("empty")?.unbind(),
            raw_stream: optional(&private, &["_cuda_getCurrentRawStream"]),
            empty_strided_cuda: optional(&private, &["_dynamo", "guards", "_empty_strided_cuda"]),
            current_device: optional(&private, &["_cuda_getDevice"]),
        })
    }

    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_instance(self.tensor.bind(object.py())).unwrap_or(false)
    }

    /// The `torch.dtype` of an element type, if this torch has it.
    pub(crate) fn dtype_object(&self, dtype: DType) -> Option<&Py<PyAny>> {
        let position = DTYPES.iter().position(|&(known, _)| known == dtype)?;
        self.dtypes[position].as_ref()
    }

    /// The element type of a tensor, if bundles have it.
    pub(crate) fn dtype(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
        let dtype = tensor.getattr(intern!(tensor.py(), "dtype"))?;
        let known = DTYPES.iter().zip(&self.dtypes);
        let found = known.into_iter().find(|(_, object)| {
            object.as_ref().is_some_and(|object| object.as_ptr() == dtype.as_ptr())
        });
        Ok(found.map(|(&(dtype, _), _)| dtype))
    }

    /// The handle of the current stream of a device.
    pub(crate) fn current_stream(&self, py: Python<'_>, device: i32) -> PyResult<u64> {
        match &self.raw_stream {
            Some(raw_stream) => raw_stream.bind(py).call1((device,))?.extract(),
            None => {
                let stream = self.cuda.bind(py).call_method1("current_stream", (device,))?;
                stream.getattr("cuda_stream")?.extract()
            }
        }
    }

    /// The number of the current device.
    pub(crate) fn current_device(&self, py: Python<'_>) -> PyResult<i32> {
        match &self.current_device {
            Some(current_device) => current_device.bind(py).call0()?.extract(),
            None => self.cuda.bind(py).call_method0("current_device")?.extract(),
        }
    }

    /// Makes torch ready to use its GPUs.
    pub(crate) fn initialise_cuda(&self, py: Python<'_>) -> PyResult<()> {
        self.cuda.bind(py).call_method0("init").map(drop)
    }

    /// A contiguous tensor of a device, uninitialised.
    pub(crate) fn empty_cuda<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
        dtype: &Bound<'py, PyAny>,
        device: i32,
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.empty_strided_cuda {
            Some(empty) if self.current_device(py)? == device => {
                empty.bind(py).call1((shape, strides, dtype))
            }
            _ => self.empty(py, shape, dtype, &format!("cuda:{device}")),
        }
    }

    /// A contiguous tensor of any device, uninitialised.
    pub(crate) fn empty<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyTuple>,
        dtype: &Bound<'py, PyAny>,
        device: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        options.set_item("device", device)?;
        self.empty.bind(py).call((shape,), Some(&options))
    }
}
