//! Calls on a GPU: tensors of torch in, tensors of torch out, on torch's current stream.
//!
//! This is on the path of every call, so that what follows from the inputs' shapes is kept, and each tensor is
//! looked at once. Outputs and scratch memory come from torch's allocator: it knows streams and CUDA-graph
//! captures, so that in a capture nothing else is allocated.

use std::sync::{Arc, Mutex, PoisonError};

use fornax_bundle::DType;
use fornax_bundle::manifest::{Port, Signature};
use fornax_runtime::device::Stream;
use fornax_runtime::{LoadedBundle, SizedRun};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Origin, View, dtype_name};
use crate::describe::Scratch;
use crate::error::Error;
use crate::torch::{Place, Torch};

/// Sets of input shapes kept; the oldest one goes first.
const MAX_SIZED: usize = 64;

/// A model's calls on one GPU.
pub(crate) struct CudaCalls {
    device: i32,
    torch: &'static Torch,
    output_dtypes: Vec<Py<PyAny>>,
    byte: Py<PyAny>,
    sized: Mutex<Vec<Arc<SizedCall>>>,
}

/// What calls with inputs of the same shapes share.
struct SizedCall {
    /// Rank and sizes of each input, one after the other.
    shapes: Vec<i64>,
    run: SizedRun,
    input_bytes: Vec<u64>,
    outputs: Vec<Output>,
    scratch: Option<Extent>,
}

/// An output, as torch allocates it and as it is checked.
struct Output {
    extent: Extent,
    /// Rank and sizes.
    shape: Vec<i64>,
    n_bytes: u64,
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
        let torch = Torch::import(py).map_err(Error::Torch)?;
        torch.initialise_cuda(py).map_err(Error::Torch)?;
        let dtype = |dtype: DType, what: &str| {
            let object = torch.dtype_object(dtype).map(|object| object.clone_ref(py));
            let missing = || format!("this version of torch has no {}", dtype_name(dtype));
            object.ok_or_else(|| Error::tensor(what, missing()))
        };
        let of = |port: &Port| dtype(port.dtype, &format!("output `{}`", port.name));
        let output_dtypes = signature.outputs.iter().map(of).collect::<Result<Vec<_>, Error>>()?;
        let byte = dtype(DType::U8, "scratch memory")?;
        Ok(CudaCalls { device, torch, output_dtypes, byte, sized: Mutex::default() })
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
        let mut shapes = Vec::with_capacity(8);
        for (port, input) in signature.inputs.iter().zip(inputs) {
            let address = self.address(port, input, &mut shapes);
            addresses.push(address.ok_or_else(|| self.refused("input", port, input))?);
        }
        let sized = match self.find(&shapes) {
            Some(sized) => sized,
            None => self.size(bundle, shapes, noted, py)?,
        };
        let is_current = self.torch.current_device(py)? == self.device;
        let allocate =
            |extent: &Extent, dtype: &Py<PyAny>| self.empty(extent, dtype, is_current, py);
        let outputs = match out {
            Some(out) => out.to_vec(),
            None => {
                let pairs = sized.outputs.iter().zip(&self.output_dtypes);
                let new = pairs.map(|(output, dtype)| allocate(&output.extent, dtype));
                new.collect::<PyResult<Vec<_>>>()?
            }
        };
        let results = self.result_addresses(signature, &sized, &outputs)?;
        if out.is_some() {
            check_overlap(signature, &sized, &addresses, &results)?;
        }
        // Given back to torch when this call returns; torch hands it only to later work of this stream.
        let scratch = sized.scratch.as_ref().map(|extent| allocate(extent, &self.byte));
        let scratch = scratch.transpose()?;
        let scratch_address = match &scratch {
            Some(scratch) => self.torch.look(scratch, |seen| seen.address)?,
            None => 0,
        };
        let stream = Stream(self.torch.current_stream(py, self.device)?);
        py.detach(|| bundle.run_sized(&sized.run, &addresses, &results, scratch_address, stream))?;
        Ok(outputs)
    }

    /// The address of a contiguous tensor of this device and of the port's type; none for anything else.
    /// Its rank and sizes go to `shapes`.
    fn address(
        &self,
        port: &Port,
        object: &Bound<'_, PyAny>,
        shapes: &mut Vec<i64>,
    ) -> Option<u64> {
        if !self.torch.is_tensor(object) {
            return None;
        }
        let seen = self.torch.look(object, |seen| {
            let fits = seen.place == Place::Cuda(self.device)
                && seen.dtype == Some(port.dtype)
                && seen.is_contiguous
                // Such as a tensor of torch's tracing, which has no memory.
                && (seen.address != 0 || seen.sizes.contains(&0));
            if fits {
                shapes.push(seen.sizes.len() as i64);
                shapes.extend_from_slice(seen.sizes);
            }
            fits.then_some(seen.address)
        });
        // What torch could not tell is found out again for the message.
        seen.ok().flatten()
    }

    fn find(&self, shapes: &[i64]) -> Option<Arc<SizedCall>> {
        let sized = self.sized.lock().unwrap_or_else(PoisonError::into_inner);
        sized.iter().rev().find(|call| call.shapes == shapes).cloned()
    }

    /// Evaluates all sizes for new shapes and keeps them.
    fn size(
        &self,
        bundle: &LoadedBundle,
        shapes: Vec<i64>,
        noted: &Scratch,
        py: Python<'_>,
    ) -> Result<Arc<SizedCall>, Error> {
        let mut rest = shapes.iter().map(|&number| number as usize);
        let mut types = Vec::new();
        for port in &bundle.manifest().signature.inputs {
            let rank = rest.next().unwrap_or_default();
            types.push((port.dtype, rest.by_ref().take(rank).collect::<Vec<usize>>()));
        }
        let borrowed: Vec<_> = types.iter().map(|(dtype, sizes)| (*dtype, &sizes[..])).collect();
        let run = bundle.size_run(&borrowed)?;
        noted.note(run.scratch_bytes());
        let output = |(dtype, sizes): &(DType, Vec<usize>)| {
            let numbers = [sizes.len()].into_iter().chain(sizes.iter().copied());
            Ok(Output {
                extent: Extent::new(py, sizes)?,
                shape: numbers.map(|number| number as i64).collect(),
                n_bytes: n_bytes(*dtype, sizes),
            })
        };
        let outputs = run.outputs().iter().map(output).collect::<PyResult<Vec<_>>>()?;
        let input_bytes = types.iter().map(|(dtype, sizes)| n_bytes(*dtype, sizes)).collect();
        let scratch_bytes = run.scratch_bytes() as usize;
        let scratch = (scratch_bytes > 0).then(|| Extent::new(py, &[scratch_bytes])).transpose()?;
        let call = Arc::new(SizedCall { shapes, run, input_bytes, outputs, scratch });
        let mut sized = self.sized.lock().unwrap_or_else(PoisonError::into_inner);
        if sized.len() >= MAX_SIZED {
            sized.remove(0);
        }
        sized.push(call.clone());
        Ok(call)
    }

    fn empty<'py>(
        &self,
        extent: &Extent,
        dtype: &Py<PyAny>,
        is_current: bool,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (shape, strides) = (extent.shape.bind(py), extent.strides.bind(py));
        self.torch.empty_cuda(py, shape, strides, dtype.bind(py), (self.device, is_current))
    }

    /// Checks the tensors for the outputs and gives their addresses.
    fn result_addresses(
        &self,
        signature: &Signature,
        sized: &SizedCall,
        outputs: &[Bound<'_, PyAny>],
    ) -> Result<Vec<u64>, Error> {
        let mut results = Vec::with_capacity(outputs.len());
        let mut shape = Vec::with_capacity(8);
        for ((port, object), output) in signature.outputs.iter().zip(outputs).zip(&sized.outputs) {
            shape.clear();
            let address = self.address(port, object, &mut shape);
            results.push(address.ok_or_else(|| self.refused("output", port, object))?);
            if shape != output.shape {
                let (wanted, given, dtype) = (&output.shape[1..], &shape[1..], port.dtype);
                let dtype = dtype_name(dtype);
                let reason = format!("it must be {dtype}{wanted:?}, not {dtype}{given:?}");
                return Err(Error::tensor(format!("output `{}`", port.name), reason));
            }
        }
        Ok(results)
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
            Ok(()) => Error::tensor(what, "it has no memory"),
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

/// Refuses outputs in memory that the run reads, or writes for another output.
fn check_overlap(
    signature: &Signature,
    sized: &SizedCall,
    inputs: &[u64],
    outputs: &[u64],
) -> Result<(), Error> {
    let read = inputs.iter().copied().zip(sized.input_bytes.iter().copied());
    let written: Vec<_> =
        outputs.iter().copied().zip(sized.outputs.iter().map(|output| output.n_bytes)).collect();
    for (index, &(start, size)) in written.iter().enumerate() {
        let others = read.clone().chain(written[..index].iter().copied());
        for (other_start, other_size) in others {
            if start < other_start + other_size && other_start < start + size {
                let reason = "its memory overlaps that of an input or of another output";
                let what = format!("output `{}`", signature.outputs[index].name);
                return Err(Error::tensor(what, reason));
            }
        }
    }
    Ok(())
}

fn n_bytes(dtype: DType, sizes: &[usize]) -> u64 {
    (dtype.size() * sizes.iter().product::<usize>()) as u64
}
