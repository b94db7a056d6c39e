//! The interface that both back ends, CUDA and the PTX emulator, implement.
//!
//! A device pointer is a plain address, so that memory of the caller (a torch tensor on CUDA) can be
//! passed wherever memory of the device can. Work is ordered within a [`Stream`]; copies to the
//! host return when the data is there. All methods may be called from several threads.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// A device that runs kernels given as PTX.
///
/// Addresses are not checked on CUDA beyond what the driver checks: a wrong one can spoil device
/// memory, never host memory. The emulator reports every wrong one.
pub trait Device: Send + Sync {
    /// Which back end this is.
    fn kind(&self) -> DeviceKind;

    /// A name for people, for example `NVIDIA H200` or `PTX emulator`.
    fn name(&self) -> &str;

    /// Limits and, where known, rates.
    fn properties(&self) -> &DeviceProperties;

    /// Loads a module. It stays loaded as long as a clone of it or of one of its kernels lives.
    fn load_module(&self, source: ModuleSource<'_>) -> Result<Module, Error>;

    /// Finds a kernel of a loaded module.
    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel, Error>;

    /// Reserves `n_bytes` of uninitialised memory, aligned to at least 256 bytes.
    ///
    /// Zero bytes give an address that no other live allocation has. See [`Buffer`] for memory that
    /// frees itself.
    fn alloc(&self, n_bytes: u64) -> Result<u64, Error>;

    /// Gives memory from [`Device::alloc`] back, once the work already submitted has finished.
    fn free(&self, address: u64) -> Result<(), Error>;

    /// Copies host bytes to device memory; `source` may be reused on return.
    fn copy_to_device(&self, target: u64, source: &[u8], stream: Stream) -> Result<(), Error>;

    /// Copies device memory to the host, after the earlier work of the stream.
    fn copy_to_host(&self, target: &mut [u8], source: u64, stream: Stream) -> Result<(), Error>;

    /// Copies within the device; the ranges do not overlap.
    fn copy_on_device(
        &self,
        target: u64,
        source: u64,
        n_bytes: u64,
        stream: Stream,
    ) -> Result<(), Error>;

    /// Sets each of `n_bytes` bytes to `value`.
    fn fill(&self, target: u64, value: u8, n_bytes: u64, stream: Stream) -> Result<(), Error>;

    /// Says that the range's contents are of no more use: a buffer's life in a memory plan begins.
    ///
    /// CUDA does nothing. The emulator reports later reads that no write precedes.
    fn discard(&self, _address: u64, _n_bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Submits a kernel. The arguments are those of the kernel's `.param` list, in order.
    ///
    /// A fault may surface here (the emulator runs the kernel at once) or in a later call on the
    /// stream (CUDA).
    fn launch(
        &self,
        kernel: &Kernel,
        config: &LaunchConfig,
        args: &[KernelArg],
        stream: Stream,
    ) -> Result<(), Error>;

    /// Waits for the work of a stream.
    fn synchronize(&self, stream: Stream) -> Result<(), Error>;

    /// Waits for all work of the device.
    fn synchronize_all(&self) -> Result<(), Error> {
        self.synchronize(Stream::DEFAULT)
    }

    /// Records the launches and copies that `work` submits to the stream it is given, without running
    /// them. `None`: this device has no graphs, and `work` was not called.
    fn record_graph(
        &self,
        _work: &mut dyn FnMut(Stream) -> Result<(), Error>,
    ) -> Result<Option<Graph>, Error> {
        Ok(None)
    }

    /// Whether what is submitted to a stream is being captured into a graph instead of being run.
    fn is_capturing(&self, _stream: Stream) -> Result<bool, Error> {
        Ok(false)
    }

    /// Submits recorded work. Launches of one graph run one after another, whatever their streams.
    fn launch_graph(&self, _graph: &Graph, _stream: Stream) -> Result<(), Error> {
        Err(Error::ForeignHandle { what: "graph" })
    }

    /// Marks a point of the stream's work in time. `None`: this device's times mean nothing.
    fn record_event(&self, _stream: Stream) -> Result<Option<Event>, Error> {
        Ok(None)
    }

    /// Nanoseconds between two events, after waiting for the second.
    fn elapsed_ns(&self, _start: &Event, _end: &Event) -> Result<f64, Error> {
        Err(Error::ForeignHandle { what: "event" })
    }
}

/// The back ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// An NVIDIA GPU through the CUDA driver.
    Cuda,
    /// The PTX emulator on the CPU.
    Emulator,
}

/// Limits and rates of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceProperties {
    /// Compute capability, major and minor: `(9, 0)` for an H200.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors; on the emulator those of the GPU that it stands for.
    pub n_multiprocessors: u32,
    /// Largest number of threads in a block.
    pub max_threads_per_block: u32,
    /// Largest static plus dynamic shared memory of a block, with the opt-in.
    pub max_shared_bytes_per_block: u32,
    /// Total device memory, where known.
    pub memory_bytes: Option<u64>,
    /// Size of the L2 cache, where known.
    pub l2_bytes: Option<u64>,
    /// DRAM bandwidth, bytes read and written, where known: measured if it was, otherwise the peak.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// fp32 operations outside the tensor cores, a fused multiply-add counting two, where known.
    pub fp32_flops_per_s: Option<f64>,
}

/// The code of a module.
#[derive(Debug, Clone, Copy)]
pub struct ModuleSource<'a> {
    /// PTX text. The emulator runs this.
    pub ptx: &'a str,
    /// A cubin for the device at hand, which CUDA loads instead of compiling the PTX.
    pub sass: Option<&'a [u8]>,
}

impl<'a> ModuleSource<'a> {
    /// A module given by its PTX text alone.
    pub fn ptx(ptx: &'a str) -> ModuleSource<'a> {
        ModuleSource { ptx, sass: None }
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Arc<dyn Any + Send + Sync>);

        impl $name {
            /// Wraps what a back end keeps behind this handle.
            pub fn new<T: Any + Send + Sync>(inner: T) -> $name {
                $name(Arc::new(inner))
            }

            /// What the back end of type `T` put in, or an error for a handle of another device.
            pub fn get<T: Any>(&self) -> Result<&T, Error> {
                self.0.downcast_ref().ok_or(Error::ForeignHandle { what: $what })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

handle! {
    /// A loaded module.
    Module, "module"
}
handle! {
    /// A kernel of a loaded module.
    Kernel, "kernel"
}
handle! {
    /// A point in time of a stream's work.
    Event, "event"
}
handle! {
    /// Recorded work.
    Graph, "graph"
}

/// An ordered queue of work: a `CUstream` on CUDA, without effect on the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stream(pub u64);

impl Stream {
    /// The device's default stream.
    pub const DEFAULT: Stream = Stream(0);
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster in x, y and z; `[1, 1, 1]` without clusters.
    pub cluster: [u32; 3],
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory and clusters.
    pub fn linear(n_blocks: u32, n_threads: u32) -> LaunchConfig {
        LaunchConfig {
            grid: [n_blocks, 1, 1],
            block: [n_threads, 1, 1],
            shared_bytes: 0,
            cluster: [1, 1, 1],
        }
    }
}

/// The value of one kernel parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum KernelArg {
    /// A device address.
    Pointer(u64),
    /// A 32-bit integer; an unsigned one by its bits.
    I32(i32),
    /// A 64-bit integer; an unsigned one by its bits.
    I64(i64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// A parameter passed by value as bytes, such as a TMA descriptor.
    Bytes {
        /// The bytes, as many as the parameter has.
        bytes: Vec<u8>,
        /// The parameter's alignment.
        align: u32,
    },
}

impl KernelArg {
    /// The bytes in device (little-endian) order.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            KernelArg::Pointer(address) => address.to_le_bytes().to_vec(),
            KernelArg::I32(value) => value.to_le_bytes().to_vec(),
            KernelArg::I64(value) => value.to_le_bytes().to_vec(),
            KernelArg::F32(value) => value.to_le_bytes().to_vec(),
            KernelArg::F64(value) => value.to_le_bytes().to_vec(),
            KernelArg::Bytes { bytes, .. } => bytes.clone(),
        }
    }

    /// Alignment in bytes.
    pub fn align(&self) -> u32 {
        match self {
            KernelArg::I32(_) | KernelArg::F32(_) => 4,
            KernelArg::Pointer(_) | KernelArg::I64(_) | KernelArg::F64(_) => 8,
            KernelArg::Bytes { align, .. } => *align,
        }
    }
}

/// Device memory that frees itself.
pub struct Buffer {
    device: Arc<dyn Device>,
    address: u64,
    n_bytes: u64,
}

impl Buffer {
    /// Reserves uninitialised memory.
    pub fn new(device: Arc<dyn Device>, n_bytes: u64) -> Result<Buffer, Error> {
        let address = device.alloc(n_bytes)?;
        Ok(Buffer { device, address, n_bytes })
    }

    /// Reserves memory and copies `bytes` into it.
    pub fn from_bytes(device: Arc<dyn Device>, bytes: &[u8]) -> Result<Buffer, Error> {
        let buffer = Buffer::new(device, bytes.len() as u64)?;
        buffer.device.copy_to_device(buffer.address, bytes, Stream::DEFAULT)?;
        Ok(buffer)
    }

    /// The contents, copied to the host.
    pub fn to_bytes(&self, stream: Stream) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.n_bytes as usize];
        self.device.copy_to_host(&mut bytes, self.address, stream)?;
        Ok(bytes)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A failing free means that the device is already lost; there is nothing left to save.
        let _ = self.device.free(self.address);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.address, self.n_bytes)
    }
}
