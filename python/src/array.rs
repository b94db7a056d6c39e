//! Tensors of torch and arrays of numpy as memory.

use fornax_bundle::{DType, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::Error;
use crate::torch::{Place, Torch};

/// Element types by the names that numpy and torch give them.
pub(crate) const DTYPES: [(DType, &str); 15] = [
    (DType::F64, "float64"),
    (DType::F32, "float32"),
    (DType::F16, "float16"),
    (DType::BF16, "bfloat16"),
    (DType::F8E4M3, "float8_e4m3fn"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::I64, "int64"),
    (DType::I32, "int32"),
    (DType::I16, "int16"),
    (DType::I8, "int8"),
    (DType::U64, "uint64"),
    (DType::U32, "uint32"),
    (DType::U16, "uint16"),
    (DType::U8, "uint8"),
    (DType::Bool, "bool"),
];

/// The name that Python gives an element type.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    let found = DTYPES.iter().find(|&&(known, _)| known == dtype);
    found.expect("invariant: the table has all element types").1
}

/// Who made an object, and where its memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A numpy array.
    Numpy,
    /// A torch tensor in host memory.
    TorchHost,
    /// A torch tensor of a GPU.
    TorchCuda(i32),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Numpy => f.write_str("a numpy array in host memory"),
            Origin::TorchHost => f.write_str("a torch tensor in host memory"),
            Origin::TorchCuda(index) => write!(f, "a torch tensor on cuda:{index}"),
        }
    }
}

/// An array as memory. It is valid as long as the object lives and keeps its memory.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) origin: Origin,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) address: u64,
    is_contiguous: bool,
    is_writable: bool,
}

impl View {
    /// Looks at a torch tensor or numpy array. `what` names it in errors, for example "input `x`".
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> Result<View, Error> {
        if let Some(torch) = Torch::loaded(object.py())?
            && torch.is_tensor(object)
        {
            return View::of_tensor(torch, object, what);
        }
        if object.hasattr(intern!(object.py(), "__array_interface__"))? {
            return View::of_array(object, what);
        }
        let class = object.get_type().name()?;
        let reason = format!("expected a torch tensor or a numpy array, not {class}");
        Err(Error::tensor(what, reason))
    }

    fn of_tensor(torch: &Torch, tensor: &Bound<'_, PyAny>, what: &str) -> Result<View, Error> {
        if tensor.getattr("layout")?.str()?.to_cow()? != "torch.strided" {
            return Err(Error::tensor(what, "sparse tensors are not taken: `.to_dense()` helps"));
        }
        let kind = tensor.getattr("device")?.getattr("type")?;
        let elsewhere = || format!("tensors on {kind} have no memory that fornax can use");
        if !["cpu", "cuda"].contains(&kind.extract::<&str>()?) {
            return Err(Error::tensor(what, elsewhere()));
        }
        torch.look(tensor, |seen| {
            let origin = match seen.place {
                Place::Host => Origin::TorchHost,
                Place::Cuda(index) => Origin::TorchCuda(index),
                Place::Other => return Err(Error::tensor(what, elsewhere())),
            };
            Ok(View {
                origin,
                dtype: seen.dtype.ok_or_else(|| unknown_dtype(tensor, what))?,
                shape: seen.sizes.iter().map(|&size| size as usize).collect(),
                address: seen.address,
                is_contiguous: seen.is_contiguous,
                is_writable: true,
            })
        })?
    }

    fn of_array(array: &Bound<'_, PyAny>, what: &str) -> Result<View, Error> {
        let dtype = array.getattr("dtype")?;
        let name: String = dtype.getattr("name")?.extract()?;
        let is_native: bool = dtype.getattr("isnative")?.extract()?;
        let found = DTYPES.iter().find(|&&(_, known)| known == name && is_native);
        let &(dtype, _) = found.ok_or_else(|| unknown_dtype(array, what))?;
        let (address, _): (u64, bool) =
            array.getattr("__array_interface__")?.get_item("data")?.extract()?;
        let flags = array.getattr("flags")?;
        Ok(View {
            origin: Origin::Numpy,
            dtype,
            shape: array.getattr("shape")?.extract()?,
            address,
            is_contiguous: flags.get_item("C_CONTIGUOUS")?.extract()?,
            is_writable: flags.get_item("WRITEABLE")?.extract()?,
        })
    }

    /// Number of bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// Refuses memory with gaps or in another order.
    pub(crate) fn check_contiguous(&self, what: &str) -> Result<(), Error> {
        if self.is_contiguous {
            return Ok(());
        }
        let fix = match self.origin {
            Origin::Numpy => "`numpy.ascontiguousarray(...)`",
            Origin::TorchHost | Origin::TorchCuda(_) => "`.contiguous()`",
        };
        let reason = format!("its strides are not those of a contiguous tensor: {fix} helps");
        Err(Error::tensor(what, reason))
    }

    /// Refuses memory that may not be written.
    pub(crate) fn check_writable(&self, what: &str) -> Result<(), Error> {
        match self.is_writable {
            true => Ok(()),
            false => Err(Error::tensor(what, "it is read-only")),
        }
    }

    /// Copies the contents of memory of the host.
    pub(crate) fn to_tensor(&self, what: &str) -> Result<Tensor, Error> {
        self.check_contiguous(what)?;
        if let Origin::TorchCuda(_) = self.origin {
            let reason = format!("it is {}, not in host memory: `.cpu()` helps", self.origin);
            return Err(Error::tensor(what, reason));
        }
        let mut bytes = vec![0u8; self.n_bytes()];
        if !bytes.is_empty() {
            // SAFETY: numpy and torch say that a contiguous array of this type and shape lies at the address, and
            // the interpreter is attached, so that nothing frees it meanwhile.
            unsafe {
                let from = self.address as *const u8;
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
            }
        }
        let tensor = Tensor::new(self.dtype, self.shape.clone(), bytes);
        tensor.map_err(|error| Error::tensor(what, error.to_string()))
    }

    /// Overwrites memory of the host with a tensor of the same type and shape.
    pub(crate) fn fill_from(&self, tensor: &Tensor, what: &str) -> Result<(), Error> {
        self.check_contiguous(what)?;
        self.check_writable(what)?;
        assert_eq!(self.n_bytes(), tensor.bytes().len(), "invariant: type and shape were checked");
        assert!(!matches!(self.origin, Origin::TorchCuda(_)), "invariant: it is host memory");
        if !tensor.bytes().is_empty() {
            // SAFETY: as above, and the array is writable.
            unsafe {
                let to = self.address as *mut u8;
                std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), to, tensor.bytes().len());
            }
        }
        Ok(())
    }

    /// Refuses another element type or shape.
    pub(crate) fn check_type(
        &self,
        what: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<(), Error> {
        if self.dtype == dtype && self.shape == shape {
            return Ok(());
        }
        let (wanted, given) = (dtype_name(dtype), dtype_name(self.dtype));
        let reason = format!("it must be {wanted}{shape:?}, not {given}{:?}", self.shape);
        Err(Error::tensor(what, reason))
    }
}

/// A new array in host memory with a tensor's contents, of the kind asked for.
pub(crate) fn host_array<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    origin: Origin,
) -> Result<Bound<'py, PyAny>, Error> {
    let name = dtype_name(tensor.dtype());
    let shape = PyTuple::new(py, tensor.shape())?;
    let array = match origin {
        Origin::Numpy => {
            let numpy = py.import("numpy")?;
            let dtype = numpy.call_method1("dtype", (name,)).map_err(|_| {
                let reason = format!(
                    "numpy has no {name}: import the package ml_dtypes, or give torch tensors"
                );
                Error::tensor("output", reason)
            })?;
            numpy.call_method1("empty", (shape, dtype))?
        }
        Origin::TorchHost | Origin::TorchCuda(_) => {
            let torch = Torch::import(py)?;
            let dtype = torch.dtype_object(tensor.dtype()).ok_or_else(|| {
                Error::tensor("output", format!("this version of torch has no {name}"))
            })?;
            torch.empty(py, &shape, dtype.bind(py), "cpu")?
        }
    };
    View::of(&array, "output")?.fill_from(tensor, "output")?;
    Ok(array)
}

fn unknown_dtype(object: &Bound<'_, PyAny>, what: &str) -> Error {
    let dtype = object.getattr("dtype").and_then(|dtype| Ok(dtype.str()?.to_string()));
    let dtype = dtype.unwrap_or_else(|_| "no type".to_owned());
    Error::tensor(what, format!("its element type {dtype} is none that models take"))
}
