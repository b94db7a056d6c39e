//! DLPack's C exchange interface: what a tensor of torch is, read in one call.
//!
//! Torch 2.10 and later offer it. The structures are those of `dlpack.h`, version 1 (DLPack's documentation,
//! "C API").

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use fornax_bundle::DType;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::torch::{Place, Seen};

/// The interface of a class of tensors.
pub(crate) struct Exchange {
    read: ReadTensor,
    current_stream: CurrentStream,
}

type ReadTensor = unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int;
type CurrentStream = unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int;

const MAJOR_VERSION: u32 = 1;
const HOST: i32 = 1;
const CUDA: i32 = 2;

#[repr(C)]
struct Header {
    major: u32,
    minor: u32,
    previous: *const Header,
}

#[repr(C)]
struct Api {
    header: Header,
    allocate: *const c_void,
    from_object: *const c_void,
    to_object: *const c_void,
    read: Option<ReadTensor>,
    current_stream: Option<CurrentStream>,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_kind: i32,
    device_index: i32,
    n_dims: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    sizes: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

impl Exchange {
    /// The interface that a class of tensors offers, if it does.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
        let capsule = capsule.cast::<PyCapsule>().ok()?;
        let pointer = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        let mut header: NonNull<Header> = pointer.cast();
        // SAFETY: a capsule of this name holds the interface, which lives as long as the process; every
        // version of it begins with the header.
        unsafe {
            while header.as_ref().major != MAJOR_VERSION {
                header = NonNull::new(header.as_ref().previous.cast_mut())?;
            }
            let api: &Api = header.cast().as_ref();
            Some(Exchange { read: api.read?, current_stream: api.current_stream? })
        }
    }

    /// Looks at a tensor of the class.
    pub(crate) fn look<R>(
        &self,
        tensor: &Bound<'_, PyAny>,
        look: impl FnOnce(&Seen<'_>) -> R,
    ) -> PyResult<R> {
        let mut read = DlTensor {
            data: ptr::null_mut(),
            device_kind: 0,
            device_index: 0,
            n_dims: 0,
            type_code: 0,
            type_bits: 0,
            type_lanes: 0,
            sizes: ptr::null(),
            strides: ptr::null(),
            byte_offset: 0,
        };
        // SAFETY: the object is of the class, the interpreter is attached, and the structure is DLPack's.
        let status = unsafe { (self.read)(tensor.as_ptr().cast(), &mut read) };
        if status != 0 {
            return Err(PyErr::fetch(tensor.py()));
        }
        let n_dims = read.n_dims as usize;
        // SAFETY: the arrays have as many numbers as the tensor has dimensions, and live as long as it.
        let (sizes, strides) =
            unsafe { (numbers(read.sizes, n_dims), numbers(read.strides, n_dims)) };
        Ok(look(&Seen {
            place: match read.device_kind {
                HOST => Place::Host,
                CUDA => Place::Cuda(read.device_index),
                _ => Place::Other,
            },
            dtype: dtype(read.type_code, read.type_bits).filter(|_| read.type_lanes == 1),
            sizes,
            // Without strides a tensor is contiguous, says DLPack.
            is_contiguous: read.strides.is_null() || are_contiguous(sizes, strides),
            address: read.data as u64 + read.byte_offset,
        }))
    }

    /// The handle of the current stream of a GPU.
    pub(crate) fn current_stream(&self, py: Python<'_>, device: i32) -> PyResult<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: the interpreter is attached, and torch writes a handle.
        let status = unsafe { (self.current_stream)(CUDA, device, &mut stream) };
        if status == 0 { Ok(stream as u64) } else { Err(PyErr::fetch(py)) }
    }
}

/// # Safety
/// The pointer must be null or that of `n` numbers that live as long as `'a`.
unsafe fn numbers<'a>(pointer: *const i64, n: usize) -> &'a [i64] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(pointer, n) }
}

fn are_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected *= size;
        }
    }
    true
}

/// The element type of DLPack's type code and number of bits.
fn dtype(code: u8, bits: u8) -> Option<DType> {
    Some(match (code, bits) {
        (0, 64) => DType::I64,
        (0, 32) => DType::I32,
        (0, 16) => DType::I16,
        (0, 8) => DType::I8,
        (1, 64) => DType::U64,
        (1, 32) => DType::U32,
        (1, 16) => DType::U16,
        (1, 8) => DType::U8,
        (2, 64) => DType::F64,
        (2, 32) => DType::F32,
        (2, 16) => DType::F16,
        (4, 16) => DType::BF16,
        (6, 8) => DType::Bool,
        (10, 8) => DType::F8E4M3,
        (12, 8) => DType::F8E5M2,
        _ => return None,
    })
}
