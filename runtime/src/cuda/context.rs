//! The driver, a device and its primary context.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::device::Stream;
use crate::error::Error;

/// Calls a function of the driver and turns its status into an error that names it.
///
/// Every use passes live pointers and handles of the context at hand, and sizes that are those of
/// the memory behind the pointers; device addresses are checked by the driver, as far as they are.
macro_rules! cuda {
    ($function:ident($($arg:expr),* $(,)?)) => {
        $crate::cuda::context::check(
            stringify!($function),
            // SAFETY: see the macro's description; `Context::open` has made sure of the driver.
            unsafe { cudarc::driver::sys::$function($($arg),*) },
        )
    };
}
pub(super) use cuda;

/// The oldest driver that has all functions used here and takes PTX for `sm_90a`: CUDA 12.0.
const MIN_DRIVER: i32 = 12000;

/// The oldest driver that has `cuFuncGetParamInfo`: CUDA 12.4.
const PARAM_INFO_DRIVER: i32 = 12040;

/// A device with its primary context retained.
pub(super) struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
    driver: i32,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: the driver synchronises concurrent calls on one context itself.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn open(index: usize) -> Result<Context, Error> {
        let driver = driver()?;
        let n_devices = count()?;
        let ordinal = i32::try_from(index).ok().filter(|_| index < n_devices).ok_or_else(|| {
            unavailable(format!("there is no device {index}; devices: {n_devices}"))
        })?;
        let (mut device, mut handle) = (0, ptr::null_mut());
        cuda!(cuDeviceGet(&mut device, ordinal))?;
        cuda!(cuDevicePrimaryCtxRetain(&mut handle, device))?;
        Ok(Context { device, handle, driver })
    }

    /// Makes the context current to this thread until the result is dropped.
    pub(super) fn enter(&self) -> Result<Current, Error> {
        let mut current = ptr::null_mut();
        cuda!(cuCtxGetCurrent(&mut current))?;
        let pushed = current != self.handle;
        if pushed {
            cuda!(cuCtxPushCurrent_v2(self.handle))?;
        }
        Ok(Current { pushed })
    }

    pub(super) fn has_param_info(&self) -> bool {
        self.driver >= PARAM_INFO_DRIVER
    }

    pub(super) fn device_name(&self) -> Result<String, Error> {
        let mut name = [0 as c_char; 256];
        cuda!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, self.device))?;
        // SAFETY: the driver has written a terminated string into the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    pub(super) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32, Error> {
        let mut value = 0;
        cuda!(cuDeviceGetAttribute(&mut value, attribute, self.device))?;
        Ok(value)
    }

    pub(super) fn total_memory(&self) -> Result<u64, Error> {
        let mut n_bytes = 0;
        cuda!(cuDeviceTotalMem_v2(&mut n_bytes, self.device))?;
        Ok(n_bytes as u64)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Fails only when the driver is already shutting down.
        let _ = cuda!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// Puts the thread's former context back.
pub(super) struct Current {
    pushed: bool,
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // Fails only when the driver is already shutting down.
            let _ = cuda!(cuCtxPopCurrent_v2(&mut popped));
        }
    }
}

/// The number of devices.
pub(super) fn device_count() -> Result<usize, Error> {
    driver()?;
    count()
}

pub(super) fn stream_handle(stream: Stream) -> sys::CUstream {
    stream.0 as usize as sys::CUstream
}

/// The driver's description of a status.
pub(super) fn check(call: &'static str, status: sys::CUresult) -> Result<(), Error> {
    if status == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    // The symbols carry version suffixes that the documentation does not.
    let call = call.split_once("_v").map_or(call, |(name, _)| name);
    let text = |look_up: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver writes a pointer to a static string, or leaves it null.
        let found = unsafe { look_up(status, &mut text) } == sys::CUresult::CUDA_SUCCESS;
        // SAFETY: as above.
        let text = (found && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", status as u32));
    let message = text(sys::cuGetErrorString).unwrap_or_else(|| "no description".to_owned());
    Err(Error::Cuda { call, name, message })
}

/// Initialises the driver, once, and gives its version.
fn driver() -> Result<i32, Error> {
    static DRIVER: OnceLock<Result<i32, String>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            // SAFETY: opens the library, whose initialisers are the driver's own.
            if !unsafe { sys::is_culib_present() } {
                return Err("there is no NVIDIA driver (libcuda.so.1 cannot be opened)".to_owned());
            }
            let version = || {
                cuda!(cuInit(0))?;
                let mut version = 0;
                cuda!(cuDriverGetVersion(&mut version))?;
                Ok(version)
            };
            match version() {
                Ok(version) if version < MIN_DRIVER => Err(format!(
                    "the driver is too old: it supports CUDA {}.{}, needed is {}.{}",
                    version / 1000,
                    version % 1000 / 10,
                    MIN_DRIVER / 1000,
                    MIN_DRIVER % 1000 / 10
                )),
                Ok(version) => Ok(version),
                Err(error @ Error::Cuda { .. }) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .clone()
        .map_err(unavailable)
}

fn count() -> Result<usize, Error> {
    let mut count = 0;
    cuda!(cuDeviceGetCount(&mut count))?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(unavailable("the driver finds no device".to_owned())),
    }
}

fn unavailable(reason: String) -> Error {
    Error::CudaUnavailable { reason }
}
