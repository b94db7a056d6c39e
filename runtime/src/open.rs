//! Devices by name.

use std::sync::Arc;

use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::emulator::Emulator;
use crate::error::Error;

/// Opens a device by its name on the command line: `emulator`, `cuda` (the first GPU) or `cuda:1`.
///
/// # Errors
/// When the name is none of these, or there is no such GPU.
pub fn open_device(name: &str) -> Result<Arc<dyn Device>, Error> {
    let index = match name {
        "emulator" => return Ok(Arc::new(Emulator::default())),
        "cuda" => Some(0),
        _ => name.strip_prefix("cuda:").and_then(|index| index.parse().ok()),
    };
    match index {
        Some(index) => Ok(Arc::new(CudaDevice::open(index)?)),
        None => Err(Error::UnknownDevice { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(open_device("emulator").unwrap().kind(), crate::device::DeviceKind::Emulator);
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "Emulator"] {
            let error = open_device(name).err().unwrap().to_string();
            assert!(error.ends_with("expected emulator, cuda or cuda:<index>"), "{error}");
        }
        let none = open_device("cuda:9999").err().unwrap();
        assert!(matches!(none, Error::CudaUnavailable { .. }), "{none}");
    }
}
