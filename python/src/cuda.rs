//! Calls on a GPU: tensors of torch in, tensors of torch out, on torch's current stream.
//!
//! This is on the path of every call, so that what follows from the inputs' shapes is kept, and tensors are
//! checked by the cheapest reads that torch has. Outputs and scratch memory come from torch's allocator: it
//! knows streams and CUDA-graph captures, so that in a capture nothing else is allocated.

use std::sync::{Arc, Mutex, PoisonError};

use fornax_bundle::DType;
use fornax_bundle::manifest::{Port, Signature};
use fornax_runtime::device::Stream;
use fornax_runtime::{LoadedBundle, SizedRun};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Origin, View, dtype_name};
use crate::describe::Scratch;
use crate::error::Error;
use crate::torch::Torch;

/// Sets of input shapes kept; the oldest one goes first.
const MAX_SIZED: usize = 64;

/// A model's calls on one GPU.
pub(crate) struct CudaCalls {
    device: i32,
    torch: &'static Torch,
    input_dtypes: Vec<Py<PyAny>>,
    output_dtypes: Vec<Py<PyAny>>,
    byte: Py<PyAny>,
    sized: Mutex<Vec<Arc<SizedCall>>>,
}

/// What calls with inputs of the same shapes share.
struct SizedCall {
    shapes: Vec<Py<PyAny>>,
    run: SizedRun,
    outputs: Vec<Extent>,
    scratch: Option<Extent>,
}

/// Sizes and strides of a tensor to be allocated, as torch takes them.
struct Extent {
    shape: Py<PyTuple>,
    strides: Py<PyTuple>,
}

impl CudaCalls {
    pub(crate) fn new(
        py: Python<'_>,
        device: i32,
        signature: &Signature,
    ) -> Result<CudaCalls, Error> {
        let torch = Torch::import(py)?;
        torch.initialise_cuda(py)?;
        let dtype = |dtype: DType, what: &str| {
            let object = torch.dtype_object(dtype).map(|object| object.clone_ref(py));
            let missing = || format!("this version of torch has no {}", dtype_name(dtype));
            object.ok_or_else(|| Error::tensor(what, missing()))
        };
        let dtypes = |kind: &str, ports: &[Port]| {
            let of = |port: &Port| dtype(port.dtype, &format!("{kind} `{}`", port.name));
            ports.iter().map(of).collect::<Result<Vec<_>, Error>>()
        };
        Ok(CudaCalls {
            device,
            torch,
            input_dtypes: dtypes("input", &signature.inputs)?,
            output_dtypes: dtypes("output", &signature.outputs)?,
            byte: dtype(DType::U8, "scratch memory")?,
            sized: Mutex::default(),
        })
    }

    /// Runs the model on the current stream.
    pub(crate) fn call<'py>(
        &self,
        bundle: &LoadedBundle,
        noted: &Scratch,
        inputs: &[Bound<'py, PyAny>],
        out: Option<&[Bound<'py, PyAny>]>,
        py: Python<'py>,
    ) -> Result<Vec<Bound<'py, PyAny>>, Error> {
        let signature = &bundle.manifest().signature;
        let mut addresses = Vec::with_capacity(inputs.len());
        let mut shapes = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            let address = self.address(input, &self.input_dtypes[index])?;
            let refused = || self.refused("input", &signature.inputs[index], input);
            addresses.push(address.ok_or_else(refused)?);
            shapes.push(input.getattr(intern!(py, "shape"))?);
        }
        let sized = match self.find(&shapes)? {
            Some(sized) => sized,
            None => self.size(bundle, shapes, noted, py)?,
        };
        let outputs = match out {
            None => self.allocate(&sized, py)?,
            Some(out) => {
                self.check_out(signature, &sized, out, inputs)?;
                out.to_vec()
            }
        };
        let mut results = Vec::with_capacity(outputs.len());
        for output in &outputs {
            results.push(data_pointer(output)?);
        }
        // Given back to torch when this call returns; torch hands it only to later work of this stream.
        let scratch = sized.scratch.as_ref().map(|extent| self.empty(extent, &self.byte, py));
        let scratch = scratch.transpose()?;
        let scratch_address = scratch.as_ref().map_or(Ok(0), data_pointer)?;
        let stream = Stream(self.torch.current_stream(py, self.device)?);
        py.detach(|| bundle.run_sized(&sized.run, &addresses, &results, scratch_address, stream))?;
        Ok(outputs)
    }

    /// The address of a contiguous tensor of this device and type; none for anything else.
    fn address(&self, object: &Bound<'_, PyAny>, dtype: &Py<PyAny>) -> PyResult<Option<u64>> {
        let py = object.py();
        let fits = self.torch.is_tensor(object)
            && object.getattr(intern!(py, "dtype"))?.as_ptr() == dtype.as_ptr()
            && object.call_method0(intern!(py, "get_device"))?.extract::<i32>()? == self.device
            && object.call_method0(intern!(py, "is_contiguous"))?.extract::<bool>()?;
        if fits { data_pointer(object).map(Some) } else { Ok(None) }
    }

    fn find(&self, shapes: &[Bound<'_, PyAny>]) -> PyResult<Option<Arc<SizedCall>>> {
        let sized = self.sized.lock().unwrap_or_else(PoisonError::into_inner);
        'calls: for call in sized.iter().rev() {
            for (shape, known) in shapes.iter().zip(&call.shapes) {
                if !shape.eq(known)? {
                    continue 'calls;
                }
            }
            return Ok(Some(call.clone()));
        }
        Ok(None)
    }

    /// Evaluates all sizes for new shapes and keeps them.
    fn size(
        &self,
        bundle: &LoadedBundle,
        shapes: Vec<Bound<'_, PyAny>>,
        noted: &Scratch,
        py: Python<'_>,
    ) -> Result<Arc<SizedCall>, Error> {
        let sizes = shapes.iter().map(|shape| shape.extract::<Vec<usize>>());
        let sizes = sizes.collect::<PyResult<Vec<_>>>()?;
        let ports = bundle.manifest().signature.inputs.iter();
        let types: Vec<_> =
            ports.zip(&sizes).map(|(port, sizes)| (port.dtype, sizes.as_slice())).collect();
        let run = bundle.size_run(&types)?;
        noted.note(run.scratch_bytes());
        let outputs = run.outputs().iter().map(|(_, shape)| Extent::new(py, shape));
        let outputs = outputs.collect::<PyResult<Vec<_>>>()?;
        let scratch_bytes = run.scratch_bytes() as usize;
        let scratch = (scratch_bytes > 0).then(|| Extent::new(py, &[scratch_bytes])).transpose()?;
        let shapes = shapes.into_iter().map(Bound::unbind).collect();
        let call = Arc::new(SizedCall { shapes, run, outputs, scratch });
        let mut sized = self.sized.lock().unwrap_or_else(PoisonError::into_inner);
        if sized.len() >= MAX_SIZED {
            sized.remove(0);
        }
        sized.push(call.clone());
        Ok(call)
    }

    fn allocate<'py>(
        &self,
        sized: &SizedCall,
        py: Python<'py>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let pairs = sized.outputs.iter().zip(&self.output_dtypes);
        pairs.map(|(extent, dtype)| self.empty(extent, dtype, py)).collect()
    }

    fn empty<'py>(
        &self,
        extent: &Extent,
        dtype: &Py<PyAny>,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (shape, strides) = (extent.shape.bind(py), extent.strides.bind(py));
        self.torch.empty_cuda(py, shape, strides, dtype.bind(py), self.device)
    }

    /// Checks tensors that the caller wants the outputs in.
    fn check_out(
        &self,
        signature: &Signature,
        sized: &SizedCall,
        out: &[Bound<'_, PyAny>],
        inputs: &[Bound<'_, PyAny>],
    ) -> Result<(), Error> {
        let views = |objects: &[Bound<'_, PyAny>], kind: &str, ports: &[Port]| {
            let pairs = objects.iter().zip(ports);
            let view =
                pairs.map(|(object, port)| View::of(object, &format!("{kind} `{}`", port.name)));
            view.collect::<Result<Vec<_>, Error>>()
        };
        let read = views(inputs, "input", &signature.inputs)?;
        let written = views(out, "output", &signature.outputs)?;
        for (index, view) in written.iter().enumerate() {
            let port = &signature.outputs[index];
            let what = format!("output `{}`", port.name);
            if self.address(&out[index], &self.output_dtypes[index])?.is_none() {
                return Err(self.refused("output", port, &out[index]));
            }
            let (dtype, shape) = &sized.run.outputs()[index];
            view.check_type(&what, *dtype, shape)?;
            let others = written.iter().take(index).chain(&read);
            if others.into_iter().any(|other| view.overlaps(other)) {
                let reason = "its memory overlaps that of an input or of another output";
                return Err(Error::tensor(what, reason));
            }
        }
        Ok(())
    }

    /// Why a tensor cannot be used.
    fn refused(&self, kind: &str, port: &Port, object: &Bound<'_, PyAny>) -> Error {
        let what = format!("{kind} `{}`", port.name);
        let view = match View::of(object, &what) {
            Ok(view) => view,
            Err(error) => return error,
        };
        if view.origin != Origin::TorchCuda(self.device) {
            let device = self.device;
            let fix = match view.origin {
                Origin::Numpy => format!("`torch.from_numpy(...).to(\"cuda:{device}\")`"),
                _ => format!("`.to(\"cuda:{device}\")`"),
            };
            let reason = format!("it is {}, the model on cuda:{device}: {fix} helps", view.origin);
            return Error::tensor(what, reason);
        }
        if view.dtype != port.dtype {
            let (wanted, given) = (dtype_name(port.dtype), dtype_name(view.dtype));
            return Error::tensor(what, format!("it must be {wanted}, not {given}"));
        }
        match view.check_contiguous(&what) {
            Err(error) => error,
            Ok(()) => Error::tensor(what, "torch changed it while it was looked at"),
        }
    }
}

impl Extent {
    fn new(py: Python<'_>, shape: &[usize]) -> PyResult<Extent> {
        let mut strides = vec![1; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            // As torch counts them: a size of zero does not make outer strides zero.
            strides[axis] = strides[axis + 1] * shape[axis + 1].max(1);
        }
        Ok(Extent {
            shape: PyTuple::new(py, shape)?.unbind(),
            strides: PyTuple::new(py, strides)?.unbind(),
        })
    }
}

fn data_pointer(tensor: &Bound<'_, PyAny>) -> PyResult<u64> {
    tensor.call_method0(intern!(tensor.py(), "data_ptr"))?.extract()
}
