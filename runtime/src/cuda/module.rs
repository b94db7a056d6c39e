//! Modules and kernels on CUDA.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;
use sys::CUfunction_attribute as Attribute;

use super::context::{Context, cuda, stream_handle};
use crate::device::{KernelArg, LaunchConfig, ModuleSource, Stream};
use crate::error::Error;
use crate::load::lock;

/// Room for the messages of the driver's PTX compiler.
const LOG_BYTES: usize = 64 << 10;

/// Blocks a cluster may have without an opt-in (CUDA C++ Programming Guide, thread block clusters).
const PORTABLE_CLUSTER_BLOCKS: u32 = 8;

/// A module in the driver.
pub(super) struct LoadedModule {
    context: Arc<Context>,
    handle: sys::CUmodule,
    /// Names of its kernels, for messages.
    entries: Vec<String>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for LoadedModule {}
// SAFETY: the module is not changed after it was loaded.
unsafe impl Sync for LoadedModule {}

impl LoadedModule {
    /// Loads SASS if there is some for this device, and compiles the PTX otherwise.
    pub(super) fn load(
        context: &Arc<Context>,
        source: ModuleSource<'_>,
    ) -> Result<LoadedModule, Error> {
        let _current = context.enter()?;
        let handle = match source.sass.map(load_image) {
            Some(Ok(handle)) => handle,
            // Assembled for another device: the PTX serves all.
            Some(Err(_)) | None => load_ptx(source.ptx)?,
        };
        let entries = entry_names(source.ptx);
        Ok(LoadedModule { context: context.clone(), handle, entries })
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // Fails only when the context is already lost.
            let _ = cuda!(cuModuleUnload(self.handle));
        }
    }
}

fn load_ptx(ptx: &str) -> Result<sys::CUmodule, Error> {
    let text = CString::new(ptx).map_err(|error| Error::Ptx {
        line: ptx[..error.nul_position()].lines().count(),
        text: String::new(),
        message: "the text contains a NUL character".to_owned(),
    })?;
    load_image(text.as_bytes_with_nul())
}

/// Loads PTX, terminated by NUL, or a cubin.
fn load_image(image: &[u8]) -> Result<sys::CUmodule, Error> {
    let (mut errors, mut infos) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
    // Pointers and numbers alike travel as `void *` (CUDA driver API, cuModuleLoadDataEx).
    let number = ptr::without_provenance_mut::<c_void>;
    let mut options = [
        (sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, errors.as_mut_ptr() as *mut c_void),
        (sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
        (sys::CUjit_option::CU_JIT_INFO_LOG_BUFFER, infos.as_mut_ptr() as *mut c_void),
        (sys::CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
        (sys::CUjit_option::CU_JIT_LOG_VERBOSE, number(1)),
    ]
    .into_iter()
    .unzip::<_, _, Vec<_>, Vec<_>>();
    let mut module = ptr::null_mut();
    let loaded = cuda!(cuModuleLoadDataEx(
        &mut module,
        image.as_ptr() as *const c_void,
        options.0.len() as u32,
        options.0.as_mut_ptr(),
        options.1.as_mut_ptr(),
    ));
    match loaded {
        Ok(()) => Ok(module),
        Err(Error::Cuda { call, name, mut message }) => {
            for log in [errors, infos] {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                let text = String::from_utf8_lossy(&log[..end]);
                if !text.trim().is_empty() {
                    message.push('\n');
                    message.push_str(text.trim());
                }
            }
            Err(Error::Cuda { call, name, message })
        }
        Err(error) => Err(error),
    }
}

/// The names of the kernels in PTX text.
fn entry_names(ptx: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    let after = ptx.split(".entry").skip(1).map(str::trim_start);
    after
        .map(|rest| rest.chars().take_while(|&c| is_name(c)).collect::<String>())
        .filter(|name| !name.is_empty())
        .collect()
}

/// A kernel in the driver.
pub(super) struct LoadedKernel {
    module: Arc<LoadedModule>,
    handle: sys::CUfunction,
    name: String,
    /// Sizes of the parameters in bytes, where the driver tells.
    param_bytes: Option<Vec<usize>>,
    limits: Mutex<Limits>,
}

/// What the driver was told to allow so far.
#[derive(Default)]
struct Limits {
    dynamic_shared_bytes: u32,
    non_portable_cluster: bool,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for LoadedKernel {}
// SAFETY: the function's attributes are only changed under the lock.
unsafe impl Sync for LoadedKernel {}

impl LoadedKernel {
    pub(super) fn find(module: &Arc<LoadedModule>, name: &str) -> Result<LoadedKernel, Error> {
        let _current = module.context.enter()?;
        let unknown =
            || Error::UnknownKernel { name: name.to_owned(), available: module.entries.clone() };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        let mut handle = ptr::null_mut();
        match cuda!(cuModuleGetFunction(&mut handle, module.handle, c_name.as_ptr())) {
            Err(Error::Cuda { name, .. }) if name == "CUDA_ERROR_NOT_FOUND" => Err(unknown()),
            Err(error) => Err(error),
            Ok(()) => Ok(LoadedKernel {
                module: module.clone(),
                handle,
                name: name.to_owned(),
                param_bytes: module.context.has_param_info().then(|| param_bytes(handle)),
                limits: Mutex::default(),
            }),
        }
    }

    pub(super) fn launch(
        &self,
        config: &LaunchConfig,
        args: &[KernelArg],
        stream: Stream,
        max_shared_bytes: u32,
    ) -> Result<(), Error> {
        let refused = |reason| Error::Launch { kernel: self.name.clone(), reason };
        self.check_args(args).map_err(refused)?;
        if config.shared_bytes > max_shared_bytes {
            let bytes = config.shared_bytes;
            let reason = format!("it needs {bytes} bytes of shared memory, of {max_shared_bytes}");
            return Err(refused(reason));
        }
        let _current = self.module.context.enter()?;
        self.allow(config)?;
        let mut pointers: Vec<_> = args.iter().map(value_pointer).collect();
        // SAFETY: the attribute is plain data, for which all zeros are a valid value.
        let mut cluster: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        cluster.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        cluster.value.clusterDim.x = config.cluster[0];
        cluster.value.clusterDim.y = config.cluster[1];
        cluster.value.clusterDim.z = config.cluster[2];
        let launch = sys::CUlaunchConfig {
            gridDimX: config.grid[0],
            gridDimY: config.grid[1],
            gridDimZ: config.grid[2],
            blockDimX: config.block[0],
            blockDimY: config.block[1],
            blockDimZ: config.block[2],
            sharedMemBytes: config.shared_bytes,
            hStream: stream_handle(stream),
            attrs: &mut cluster,
            numAttrs: u32::from(config.cluster != [1, 1, 1]),
        };
        cuda!(cuLaunchKernelEx(&launch, self.handle, pointers.as_mut_ptr(), ptr::null_mut()))
    }

    /// Checks number and sizes of the arguments: the driver would read whatever lies behind too few.
    fn check_args(&self, args: &[KernelArg]) -> Result<(), String> {
        let Some(params) = &self.param_bytes else {
            return Ok(());
        };
        if params.len() != args.len() {
            return Err(format!("{} arguments for {} parameters", args.len(), params.len()));
        }
        let sizes = args.iter().map(arg_bytes).zip(params);
        for (index, (given, &taken)) in sizes.enumerate() {
            if given != taken {
                return Err(format!("argument {index} has {given} bytes, the parameter {taken}"));
            }
        }
        Ok(())
    }

    /// Raises the kernel's limits to what the launch needs.
    fn allow(&self, config: &LaunchConfig) -> Result<(), Error> {
        let blocks: u32 = config.cluster.iter().product();
        let mut limits = lock(&self.limits);
        if config.shared_bytes > limits.dynamic_shared_bytes {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            cuda!(cuFuncSetAttribute(self.handle, attribute, config.shared_bytes as i32))?;
            limits.dynamic_shared_bytes = config.shared_bytes;
        }
        if blocks > PORTABLE_CLUSTER_BLOCKS && !limits.non_portable_cluster {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            cuda!(cuFuncSetAttribute(self.handle, attribute, 1))?;
            limits.non_portable_cluster = true;
        }
        Ok(())
    }
}

/// Sizes of a kernel's parameters: the driver is asked until there is no further one.
fn param_bytes(function: sys::CUfunction) -> Vec<usize> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        match cuda!(cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size)) {
            Ok(()) => sizes.push(size),
            Err(_) => return sizes,
        }
    }
}

fn arg_bytes(arg: &KernelArg) -> usize {
    match arg {
        KernelArg::I32(_) | KernelArg::F32(_) => 4,
        KernelArg::Pointer(_) | KernelArg::I64(_) | KernelArg::F64(_) => 8,
        KernelArg::Bytes { bytes, .. } => bytes.len(),
    }
}

/// Where the driver finds the argument's value; it copies it before the launch call returns.
fn value_pointer(arg: &KernelArg) -> *mut c_void {
    match arg {
        KernelArg::Pointer(value) => ptr::from_ref(value) as *mut c_void,
        KernelArg::I32(value) => ptr::from_ref(value) as *mut c_void,
        KernelArg::I64(value) => ptr::from_ref(value) as *mut c_void,
        KernelArg::F32(value) => ptr::from_ref(value) as *mut c_void,
        KernelArg::F64(value) => ptr::from_ref(value) as *mut c_void,
        KernelArg::Bytes { bytes, .. } => bytes.as_ptr() as *mut c_void,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_in_text() {
        let ptx = ".visible .entry one(\n.param .u64 a)\n{ }\n.entry\n$two_2()\n{ }\n.func three()";
        assert_eq!(entry_names(ptx), ["one", "$two_2"]);
    }
}
