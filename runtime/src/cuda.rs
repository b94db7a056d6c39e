//! NVIDIA GPUs through the CUDA driver.
//!
//! `libcuda` is opened when a device is, so that this crate starts on a machine without a driver and
//! says so. The device's primary context is used, the one that the CUDA runtime and PyTorch use, and a
//! thread's current context is put back after each call.

mod context;
mod graph;
mod module;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;

use crate::device::{
    Device, DeviceKind, DeviceProperties, Event, Graph, Kernel, KernelArg, LaunchConfig, Module,
    ModuleSource, Stream,
};
use crate::error::Error;
use context::{Context, cuda, stream_handle};

/// A GPU.
pub struct CudaDevice {
    context: Arc<Context>,
    name: String,
    properties: DeviceProperties,
}

/// Copy bandwidth measured on whole devices, bytes read and written per second, by what the device's name
/// contains. Measured 2026-11-30 with a device-to-device copy, driver 580.159.04.
const MEASURED_BANDWIDTH: [(&str, f64); 1] = [("H200", 4.30e12)];

impl CudaDevice {
    /// Opens a device by its index, counted as `CUDA_VISIBLE_DEVICES` leaves them.
    ///
    /// # Errors
    /// When there is no driver, it is too old, or there is no such device.
    pub fn open(index: usize) -> Result<CudaDevice, Error> {
        let context = Arc::new(Context::open(index)?);
        let _current = context.enter()?;
        let name = context.device_name()?;
        let properties = properties(&context, &name)?;
        drop(_current);
        Ok(CudaDevice { context, name, properties })
    }

    /// The number of devices.
    ///
    /// # Errors
    /// When there is no driver, or it is too old.
    pub fn count() -> Result<usize, Error> {
        context::device_count()
    }
}

fn properties(context: &Context, name: &str) -> Result<DeviceProperties, Error> {
    let get = |attribute| context.attribute(attribute);
    let count = |attribute| get(attribute).map(|value| u32::try_from(value).unwrap_or(0));
    let major = count(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = count(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let n_multiprocessors = count(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let memory_khz = get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
    let bus_bits = get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
    let clock_khz = get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
    // Two transfers per clock: every memory NVIDIA uses is double data rate.
    let peak = 2.0 * f64::from(memory_khz) * 1e3 * f64::from(bus_bits) / 8.0;
    let measured = MEASURED_BANDWIDTH.iter().find(|(part, _)| name.contains(part));
    let bandwidth = measured.map_or(peak, |&(_, bandwidth)| bandwidth);
    let lanes = f64::from(n_multiprocessors) * f64::from(fp32_lanes(major, minor));
    let fp32_flops = 2.0 * lanes * f64::from(clock_khz) * 1e3;
    Ok(DeviceProperties {
        compute_capability: (major, minor),
        n_multiprocessors,
        max_threads_per_block: count(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_shared_bytes_per_block: count(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
        memory_bytes: Some(context.total_memory()?),
        l2_bytes: u64::try_from(get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?).ok(),
        bandwidth_bytes_per_s: (bandwidth > 0.0).then_some(bandwidth),
        fp32_flops_per_s: (fp32_flops > 0.0).then_some(fp32_flops),
    })
}

/// fp32 fused multiply-adds that a multiprocessor starts in a clock (CUDA C++ Programming Guide, table
/// "Throughput of native arithmetic instructions").
fn fp32_lanes(major: u32, minor: u32) -> u32 {
    match (major, minor) {
        (7, _) | (8, 0) => 64,
        _ => 128,
    }
}

impl Device for CudaDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn load_module(&self, source: ModuleSource<'_>) -> Result<Module, Error> {
        Ok(Module::new(Arc::new(module::LoadedModule::load(&self.context, source)?)))
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel, Error> {
        let module: &Arc<module::LoadedModule> = module.get()?;
        Ok(Kernel::new(module::LoadedKernel::find(module, name)?))
    }

    fn alloc(&self, n_bytes: u64) -> Result<u64, Error> {
        let _current = self.context.enter()?;
        let mut address = 0;
        // The driver refuses zero bytes.
        let size = usize::try_from(n_bytes.max(1)).unwrap_or(usize::MAX);
        match cuda!(cuMemAlloc_v2(&mut address, size)) {
            Ok(()) => Ok(address),
            Err(Error::Cuda { name, message, .. }) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                Err(Error::OutOfMemory { requested_bytes: n_bytes, reason: message })
            }
            Err(error) => Err(error),
        }
    }

    fn free(&self, address: u64) -> Result<(), Error> {
        let _current = self.context.enter()?;
        cuda!(cuMemFree_v2(address))
    }

    fn copy_to_device(&self, target: u64, source: &[u8], stream: Stream) -> Result<(), Error> {
        if source.is_empty() {
            return Ok(());
        }
        let _current = self.context.enter()?;
        let stream = stream_handle(stream);
        let from = source.as_ptr() as *const c_void;
        cuda!(cuMemcpyHtoDAsync_v2(target, from, source.len(), stream))?;
        // The source may be page-locked memory, which the driver reads after the call returns.
        cuda!(cuStreamSynchronize(stream))
    }

    fn copy_to_host(&self, target: &mut [u8], source: u64, stream: Stream) -> Result<(), Error> {
        if target.is_empty() {
            return Ok(());
        }
        let _current = self.context.enter()?;
        let stream = stream_handle(stream);
        let to = target.as_mut_ptr() as *mut c_void;
        cuda!(cuMemcpyDtoHAsync_v2(to, source, target.len(), stream))?;
        cuda!(cuStreamSynchronize(stream))
    }

    fn copy_on_device(
        &self,
        target: u64,
        source: u64,
        n_bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        if n_bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter()?;
        cuda!(cuMemcpyDtoDAsync_v2(target, source, n_bytes as usize, stream_handle(stream)))
    }

    fn fill(&self, target: u64, value: u8, n_bytes: u64, stream: Stream) -> Result<(), Error> {
        if n_bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter()?;
        cuda!(cuMemsetD8Async(target, value, n_bytes as usize, stream_handle(stream)))
    }

    fn launch(
        &self,
        kernel: &Kernel,
        config: &LaunchConfig,
        args: &[KernelArg],
        stream: Stream,
    ) -> Result<(), Error> {
        let kernel: &module::LoadedKernel = kernel.get()?;
        let max_shared_bytes = self.properties.max_shared_bytes_per_block;
        kernel.launch(config, args, stream, max_shared_bytes)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Error> {
        let _current = self.context.enter()?;
        cuda!(cuStreamSynchronize(stream_handle(stream)))
    }

    fn synchronize_all(&self) -> Result<(), Error> {
        let _current = self.context.enter()?;
        cuda!(cuCtxSynchronize())
    }

    fn record_graph(
        &self,
        work: &mut dyn FnMut(Stream) -> Result<(), Error>,
    ) -> Result<Option<Graph>, Error> {
        graph::RecordedGraph::record(&self.context, work).map(|graph| Some(Graph::new(graph)))
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, Error> {
        graph::is_capturing(&self.context, stream)
    }

    fn launch_graph(&self, graph: &Graph, stream: Stream) -> Result<(), Error> {
        graph.get::<graph::RecordedGraph>()?.launch(stream)
    }

    fn record_event(&self, stream: Stream) -> Result<Option<Event>, Error> {
        graph::RecordedEvent::record(&self.context, stream).map(|event| Some(Event::new(event)))
    }

    fn elapsed_ns(&self, start: &Event, end: &Event) -> Result<f64, Error> {
        let start: &graph::RecordedEvent = start.get()?;
        start.elapsed_ns(end.get()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds wherever the tests run: without a driver, without a device, and with a device.
    #[test]
    fn a_missing_driver_or_device_is_a_clear_error() {
        match CudaDevice::count() {
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("CUDA is not available: "), "{text}");
                let same = CudaDevice::open(0).err().map(|error| error.to_string());
                assert_eq!(same, Some(text));
            }
            Ok(n_devices) => {
                let error = CudaDevice::open(n_devices).err().expect("no such device");
                assert!(matches!(error, Error::CudaUnavailable { .. }), "{error}");
            }
        }
    }
}
