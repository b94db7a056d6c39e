//! Runs a kernel on buffers, on the emulator and on a GPU where there is one.

use std::sync::{Arc, OnceLock};

use fornax_runtime::cuda::CudaDevice;
use fornax_runtime::device::{Buffer, Device, KernelArg, LaunchConfig, ModuleSource, Stream};
use fornax_runtime::{Emulator, EmulatorOptions, Error};

/// An argument of a test kernel.
pub enum Arg<'a> {
    /// A buffer with contents.
    Input(&'a [u8]),
    /// A buffer of this size without contents, which is returned.
    Output(u64),
    /// A buffer with contents, which is returned.
    InOut(&'a [u8]),
    /// A number.
    I32(i32),
    /// Bytes by value.
    Bytes(&'a [u8]),
}

/// The GPU, if there is one; says so once if there is none.
pub fn gpu() -> Option<Arc<dyn Device>> {
    static GPU: OnceLock<Option<Arc<CudaDevice>>> = OnceLock::new();
    let device = GPU.get_or_init(|| match CudaDevice::open(0) {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            println!("skipped on CUDA: {error}");
            None
        }
    });
    device.clone().map(|device| device as Arc<dyn Device>)
}

/// Runs the kernel on the emulator with all detectors; a GPU must give the same bits.
pub fn run(
    ptx: &str,
    kernel: &str,
    config: LaunchConfig,
    args: &[Arg<'_>],
) -> Result<Vec<Vec<u8>>, Error> {
    let outputs = emulate(EmulatorOptions::default(), ptx, kernel, config, args)?;
    if let Some(gpu) = gpu() {
        let real = run_on(gpu, ptx, kernel, config, args)?;
        assert!(real == outputs, "a GPU gives {real:x?}\nthe emulator {outputs:x?}\n{ptx}");
    }
    Ok(outputs)
}

/// Runs the kernel on an emulator.
pub fn emulate(
    options: EmulatorOptions,
    ptx: &str,
    kernel: &str,
    config: LaunchConfig,
    args: &[Arg<'_>],
) -> Result<Vec<Vec<u8>>, Error> {
    run_on(Arc::new(Emulator::new(options)), ptx, kernel, config, args)
}

/// Loads `ptx` and runs the kernel; returns the contents of outputs in order.
pub fn run_on(
    device: Arc<dyn Device>,
    ptx: &str,
    kernel: &str,
    config: LaunchConfig,
    args: &[Arg<'_>],
) -> Result<Vec<Vec<u8>>, Error> {
    let module = device.load_module(ModuleSource::ptx(ptx))?;
    let kernel = device.kernel(&module, kernel)?;
    let mut outputs = Vec::new();
    let mut inputs = Vec::new();
    let mut values = Vec::new();
    for arg in args {
        values.push(match arg {
            Arg::Input(bytes) => {
                let buffer = Buffer::from_bytes(device.clone(), bytes)?;
                let address = buffer.address();
                inputs.push(buffer);
                KernelArg::Pointer(address)
            }
            Arg::Output(n_bytes) => {
                outputs.push(Buffer::new(device.clone(), *n_bytes)?);
                KernelArg::Pointer(outputs[outputs.len() - 1].address())
            }
            Arg::InOut(bytes) => {
                outputs.push(Buffer::from_bytes(device.clone(), bytes)?);
                KernelArg::Pointer(outputs[outputs.len() - 1].address())
            }
            Arg::I32(value) => KernelArg::I32(*value),
            Arg::Bytes(bytes) => KernelArg::Bytes { bytes: bytes.to_vec(), align: 64 },
        });
    }
    device.launch(&kernel, &config, &values, Stream::DEFAULT)?;
    outputs.iter().map(|buffer| buffer.to_bytes(Stream::DEFAULT)).collect()
}

/// The little-endian bytes of 32-bit floats.
pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The 32-bit words of little-endian bytes.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// The 32-bit floats of little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_bits).collect()
}
