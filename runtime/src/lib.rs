//! Loads and runs Fornax bundles, on a GPU through the CUDA driver or on the CPU by emulating PTX.
#![warn(missing_docs)]

mod arena;
pub mod compare;
mod counters;
pub mod cuda;
pub mod device;
pub mod emulator;
pub mod error;
mod load;
mod open;
pub mod profile;
mod resolve;
mod run;
mod sized;

pub use arena::Memory;
pub use device::Device;
pub use emulator::{Emulator, EmulatorOptions};
pub use error::Error;
pub use load::{DeviceTensor, LoadOptions, LoadedBundle, MemoryUse};
pub use open::open_device;
pub use run::{Launched, Observer, POINTER_ALIGN};
pub use sized::SizedRun;
