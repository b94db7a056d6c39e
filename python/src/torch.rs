//! What is used of torch, looked up once.

use fornax_bundle::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::DTYPES;
use crate::dlpack::Exchange;

/// Where a tensor's memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    /// A GPU, by its index.
    Cuda(i32),
    /// Somewhere that bundles do not run.
    Other,
}

/// A tensor of torch as memory.
pub(crate) struct Seen<'a> {
    pub(crate) place: Place,
    /// None for a type that bundles do not have.
    pub(crate) dtype: Option<DType>,
    pub(crate) sizes: &'a [i64],
    pub(crate) is_contiguous: bool,
    pub(crate) address: u64,
}

/// Handles of torch.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    exchange: Option<Exchange>,
    /// `torch.dtype` objects in the order of [`DTYPES`]; none where this torch has no such type.
    dtypes: Vec<Option<Py<PyAny>>>,
    cuda: Py<PyAny>,
    empty: Py<PyAny>,
    /// Allocates on the current device without parsing options, at a fifth of the cost of `empty`: private
    /// to torch, but what its own generated code calls.
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
            exchange: Exchange::of(&torch.getattr("Tensor")?),
            tensor: torch.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
            dtypes: DTYPES.iter().map(dtype).collect(),
            cuda: torch.getattr("cuda")?.unbind(),
            empty: torch.getattr("empty")?.unbind(),
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

    /// Looks at a tensor.
    ///
    /// # Errors
    /// When it has no memory, such as a sparse tensor.
    pub(crate) fn look<R>(
        &self,
        tensor: &Bound<'_, PyAny>,
        look: impl FnOnce(&Seen<'_>) -> R,
    ) -> PyResult<R> {
        match &self.exchange {
            Some(exchange) => exchange.look(tensor, look),
            None => self.look_at_attributes(tensor, look),
        }
    }

    /// [`Torch::look`] for torch before 2.10.
    fn look_at_attributes<R>(
        &self,
        tensor: &Bound<'_, PyAny>,
        look: impl FnOnce(&Seen<'_>) -> R,
    ) -> PyResult<R> {
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let mut known = DTYPES.iter().zip(&self.dtypes);
        let dtype = known.find_map(|(&(known, _), object)| {
            let is_it = object.as_ref().is_some_and(|object| object.as_ptr() == dtype.as_ptr());
            is_it.then_some(known)
        });
        let device = tensor.getattr(intern!(py, "device"))?;
        let place = match device.getattr(intern!(py, "type"))?.extract::<&str>()? {
            "cpu" => Place::Host,
            "cuda" => Place::Cuda(device.getattr(intern!(py, "index"))?.extract()?),
            _ => Place::Other,
        };
        let sizes: Vec<i64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
        Ok(look(&Seen {
            place,
            dtype,
            sizes: &sizes,
            is_contiguous: tensor.call_method0(intern!(py, "is_contiguous"))?.extract()?,
            address: tensor.call_method0(intern!(py, "data_ptr"))?.extract()?,
        }))
    }

    /// The handle of the current stream of a device.
    pub(crate) fn current_stream(&self, py: Python<'_>, device: i32) -> PyResult<u64> {
        match &self.exchange {
            Some(exchange) => exchange.current_stream(py, device),
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

    /// A contiguous tensor of a GPU, uninitialised. `is_current`: it is torch's current one.
    pub(crate) fn empty_cuda<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
        dtype: &Bound<'py, PyAny>,
        (device, is_current): (i32, bool),
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.empty_strided_cuda {
            Some(empty) if is_current => empty.bind(py).call1((shape, strides, dtype)),
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
