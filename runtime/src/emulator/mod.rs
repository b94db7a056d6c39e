//! The PTX emulator: a [`Device`] that runs PTX text on the CPU and finds faults in it.
//!
//! A module is parsed (`parse`), its variables get memory, and each kernel is decoded
//! (`decode`) into operations on whole warps (`program`). A launch runs its blocks on several
//! threads (`launch`, `exec`); beside memory and registers, what has been written by whom is
//! kept (`detect`, `memory`), and the first fault in the order of blocks is the launch's error.
//!
//! Results do not depend on the number of threads, except where the kernel's own depend on the
//! order of blocks (float atomics). Arithmetic is that of the PTX ISA to the bit, NaN included;
//! approximate instructions are described in [`Approximation`].

mod decode;
mod detect;
mod exec;
mod launch;
mod memory;
mod options;
mod parse;
mod program;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use exec::Approximation;
pub use options::EmulatorOptions;

use crate::device::{
    Device, DeviceKind, DeviceProperties, Kernel, KernelArg, LaunchConfig, Module, ModuleSource,
    Stream,
};
use crate::error::Error;
use memory::{Allocation, Memory};
use parse::{ParseResult, Source, Space, Variable};
use program::Program;

/// The emulator as a device.
#[derive(Debug)]
pub struct Emulator {
    options: EmulatorOptions,
    properties: DeviceProperties,
    memory: Arc<Memory>,
    pool: Option<rayon::ThreadPool>,
    n_executed: AtomicU64,
}

/// What a module handle holds.
#[derive(Debug)]
struct LoadedModule {
    kernels: Vec<Arc<Program>>,
    variables: Arc<Variables>,
}

/// What a kernel handle holds.
#[derive(Debug)]
struct LoadedKernel {
    program: Arc<Program>,
    /// Keeps the module's variables alive.
    _variables: Arc<Variables>,
}

/// Memory of a module's global and constant variables.
#[derive(Debug)]
struct Variables {
    memory: Arc<Memory>,
    allocations: Vec<Arc<Allocation>>,
}

impl Drop for Variables {
    fn drop(&mut self) {
        for allocation in &self.allocations {
            // They were made by this memory and nobody else frees them.
            let _ = self.memory.free(allocation.base);
        }
    }
}

impl Default for Emulator {
    fn default() -> Emulator {
        Emulator::new(EmulatorOptions::default())
    }
}

impl Emulator {
    /// An emulator with its own memory.
    pub fn new(options: EmulatorOptions) -> Emulator {
        let properties = DeviceProperties {
            compute_capability: (9, 0),
            n_multiprocessors: options.n_multiprocessors,
            max_threads_per_block: 1024,
            max_shared_bytes_per_block: options.max_shared_bytes,
            memory_bytes: None,
            l2_bytes: None,
            bandwidth_bytes_per_s: None,
            fp32_flops_per_s: None,
        };
        // Without a pool of its own, the emulator shares rayon's.
        let pool = options
            .n_threads
            .and_then(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().ok());
        Emulator {
            options,
            properties,
            memory: Arc::default(),
            pool,
            n_executed: AtomicU64::new(0),
        }
    }

    /// The options it was made with.
    pub fn options(&self) -> &EmulatorOptions {
        &self.options
    }

    /// Instructions run so far by all launches, counted once a warp.
    pub fn warp_instructions(&self) -> u64 {
        self.n_executed.load(Ordering::Relaxed)
    }

    fn place_variables(
        &self,
        source: Source<'_>,
        variables: &[&Variable],
    ) -> ParseResult<(Variables, HashMap<String, u64>)> {
        let mut placed = Variables { memory: self.memory.clone(), allocations: Vec::new() };
        let mut addresses = HashMap::new();
        for variable in variables {
            let Some(n_bytes) = variable.n_bytes else {
                return Err(source.error(variable.line, "this variable needs its size"));
            };
            let allocation = self.memory.alloc(n_bytes, variable.space == Space::Const)?;
            if addresses.insert(variable.name.clone(), allocation.base).is_some() {
                let message = format!("variable `{}` is declared twice", variable.name);
                return Err(source.error(variable.line, message));
            }
            placed.allocations.push(allocation);
        }
        for (variable, allocation) in variables.iter().zip(&placed.allocations) {
            // PTX ISA section 5.4.4: variables without an initialiser start out as zero.
            let n_bytes = variable.n_bytes.unwrap_or(0) as usize;
            let mut bytes = variable.initial.clone().unwrap_or_else(|| vec![0; n_bytes]);
            for relocation in &variable.relocations {
                let Some(address) = addresses.get(&relocation.symbol) else {
                    let message = format!("`{}` is not declared", relocation.symbol);
                    return Err(source.error(variable.line, message));
                };
                let address = address.wrapping_add_signed(relocation.addend);
                let place = relocation.offset as usize;
                bytes[place..place + 8].copy_from_slice(&address.to_le_bytes());
            }
            allocation.write(0, &bytes);
        }
        Ok((placed, addresses))
    }

    fn load(&self, text: &str) -> Result<LoadedModule, Error> {
        let source = Source { text };
        let module = parse::parse(source)?;
        let kernel_variables = module.kernels.iter().flat_map(|kernel| &kernel.variables);
        let (global, shared): (Vec<&Variable>, Vec<&Variable>) = module
            .variables
            .iter()
            .chain(kernel_variables)
            .filter(|variable| variable.space != Space::Local)
            .partition(|variable| variable.space != Space::Shared);
        let (variables, addresses) = self.place_variables(source, &global)?;
        let module_shared: Vec<Variable> = shared
            .into_iter()
            .filter(|variable| module.variables.iter().any(|other| other.name == variable.name))
            .cloned()
            .collect();
        let shared_text: Arc<str> = text.into();
        let mut kernels = Vec::new();
        for kernel in &module.kernels {
            let program = decode::decode(source, &shared_text, kernel, &addresses, &module_shared)?;
            kernels.push(Arc::new(program));
        }
        Ok(LoadedModule { kernels, variables: Arc::new(variables) })
    }
}

impl Device for Emulator {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Emulator
    }

    fn name(&self) -> &str {
        "PTX emulator"
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn load_module(&self, source: ModuleSource<'_>) -> Result<Module, Error> {
        Ok(Module::new(self.load(source.ptx)?))
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel, Error> {
        let module: &LoadedModule = module.get()?;
        match module.kernels.iter().find(|program| program.name == name) {
            Some(program) => Ok(Kernel::new(LoadedKernel {
                program: program.clone(),
                _variables: module.variables.clone(),
            })),
            None => Err(Error::UnknownKernel {
                name: name.to_owned(),
                available: module.kernels.iter().map(|program| program.name.clone()).collect(),
            }),
        }
    }

    fn alloc(&self, n_bytes: u64) -> Result<u64, Error> {
        Ok(self.memory.alloc(n_bytes, false)?.base)
    }

    fn free(&self, address: u64) -> Result<(), Error> {
        self.memory.free(address)
    }

    fn copy_to_device(&self, target: u64, source: &[u8], _stream: Stream) -> Result<(), Error> {
        let allocation = self.memory.find("copy to device", target, source.len() as u64)?;
        allocation.write(target - allocation.base, source);
        Ok(())
    }

    fn copy_to_host(&self, target: &mut [u8], source: u64, _stream: Stream) -> Result<(), Error> {
        let n_bytes = target.len() as u64;
        let allocation = self.memory.find("copy to host", source, n_bytes)?;
        let offset = source - allocation.base;
        if self.options.uninitialised
            && let Some(byte) = allocation.first_unwritten(offset, n_bytes)
        {
            let reason = format!("byte {} of it has not been written", byte - offset);
            return Err(Error::Memory {
                operation: "copy to host",
                address: source,
                n_bytes,
                reason,
            });
        }
        allocation.read(offset, target);
        Ok(())
    }

    fn copy_on_device(
        &self,
        target: u64,
        source: u64,
        n_bytes: u64,
        _stream: Stream,
    ) -> Result<(), Error> {
        let from = self.memory.find("copy on device", source, n_bytes)?;
        let to = self.memory.find("copy on device", target, n_bytes)?;
        let (from_offset, to_offset) = (source - from.base, target - to.base);
        let mut bytes = vec![0; n_bytes as usize];
        from.read(from_offset, &mut bytes);
        to.write(to_offset, &bytes);
        // What is not written stays so in the copy.
        let mut done = 0;
        while let Some(byte) = from.first_unwritten(from_offset + done, n_bytes - done) {
            let missing = byte - from_offset;
            to.forget(to_offset + missing, 1);
            done = missing + 1;
        }
        Ok(())
    }

    fn fill(&self, target: u64, value: u8, n_bytes: u64, _stream: Stream) -> Result<(), Error> {
        let allocation = self.memory.find("fill", target, n_bytes)?;
        allocation.write(target - allocation.base, &vec![value; n_bytes as usize]);
        Ok(())
    }

    fn discard(&self, address: u64, n_bytes: u64) -> Result<(), Error> {
        self.memory.discard(address, n_bytes)
    }

    fn launch(
        &self,
        kernel: &Kernel,
        config: &LaunchConfig,
        args: &[KernelArg],
        _stream: Stream,
    ) -> Result<(), Error> {
        let kernel: &LoadedKernel = kernel.get()?;
        let run = || launch::launch(&kernel.program, config, args, &self.memory, &self.options);
        let n_executed = match &self.pool {
            Some(pool) => pool.install(run),
            None => run(),
        }?;
        self.n_executed.fetch_add(n_executed, Ordering::Relaxed);
        Ok(())
    }

    fn synchronize(&self, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }
}
