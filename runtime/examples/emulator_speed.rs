//! Measures the emulator: a tiled matrix product as LLVM prints it, with and without detectors.

use std::sync::Arc;
use std::time::Instant;

use fornax_runtime::device::{Buffer, Device, KernelArg, LaunchConfig, ModuleSource, Stream};
use fornax_runtime::{Emulator, EmulatorOptions, Error};

const GEMM: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/ptx/gemm.ptx"));

fn main() -> Result<(), Error> {
    measure("all detectors", EmulatorOptions::default())?;
    measure("no detectors", EmulatorOptions::fast())
}

fn measure(name: &str, options: EmulatorOptions) -> Result<(), Error> {
    let n = 256;
    let emulator = Arc::new(Emulator::new(options));
    let device: Arc<dyn Device> = emulator.clone();
    let module = device.load_module(ModuleSource::ptx(GEMM))?;
    let kernel = device.kernel(&module, "gemm")?;
    let ones: Vec<u8> = std::iter::repeat_n(1.0f32.to_le_bytes(), n * n).flatten().collect();
    let a = Buffer::from_bytes(device.clone(), &ones)?;
    let b = Buffer::from_bytes(device.clone(), &ones)?;
    let c = Buffer::new(device.clone(), ones.len() as u64)?;
    let mut config = LaunchConfig::linear(n as u32 / 64, 256);
    config.grid[1] = n as u32 / 64;
    let pointer = |buffer: &Buffer| KernelArg::Pointer(buffer.address());
    let size = KernelArg::I32(n as i32);
    let args = [pointer(&a), pointer(&b), pointer(&c), size.clone(), size];
    let start = Instant::now();
    device.launch(&kernel, &config, &args, Stream::DEFAULT)?;
    let seconds = start.elapsed().as_secs_f64();
    let lane_instructions = emulator.warp_instructions() as f64 * 32.0;
    #[allow(clippy::print_stdout)]
    {
        println!(
            "{name}: {:.3} s, {:.0} million lane instructions a second, {:.1} MFLOP/s",
            seconds,
            lane_instructions / seconds / 1e6,
            2.0 * (n as f64).powi(3) / seconds / 1e6
        );
    }
    Ok(())
}
