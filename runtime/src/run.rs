//! Running a loaded bundle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fornax_bundle::manifest::Kernel;
use fornax_bundle::{DType, Dims, Tensor};

use crate::arena::{Arena, Slot};
use crate::device::{Buffer, Graph, KernelArg, LaunchConfig, Stream};
use crate::error::Error;
use crate::load::{LoadedBundle, Shared, lock};
use crate::resolve::{Action, Place, Resolved, ResolvedArg, ResolvedStep};

/// Alignment that the caller's device pointers must have, in bytes: kernels use 16-byte accesses.
pub const POINTER_ALIGN: u64 = 16;

/// Graphs kept; the least recently used one goes first.
const MAX_GRAPHS: usize = 64;

/// Is told of each launch, in order: for profiling, and for finding the first wrong region.
pub trait Observer {
    /// A kernel is about to be launched.
    ///
    /// # Errors
    /// An error stops the run and is what the run returns.
    fn before_launch(&mut self, _launch: &Launched<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// A kernel was launched; on CUDA it may not have finished.
    ///
    /// # Errors
    /// An error stops the run and is what the run returns.
    fn after_launch(&mut self, _launch: &Launched<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// An observer that looks away.
pub(crate) struct IgnoreLaunches;

impl Observer for IgnoreLaunches {}

/// A launch, as an [`Observer`] sees it.
pub struct Launched<'a> {
    /// The index among the plan's kernels.
    pub kernel: usize,
    /// Grid, block, cluster and dynamic shared memory.
    pub config: LaunchConfig,
    /// The stream.
    pub stream: Stream,
    execution: &'a Execution<'a>,
}

impl Launched<'_> {
    /// The bundle that runs.
    pub fn bundle(&self) -> &LoadedBundle {
        self.execution.bundle
    }

    /// The kernel's declaration.
    pub fn declaration(&self) -> &Kernel {
        &self.execution.bundle.plan().kernels[self.kernel]
    }

    /// The values of the symbolic sizes.
    pub fn dims(&self) -> &Dims {
        &self.execution.resolved.dims
    }

    /// The contents of one of the plan's buffers at this moment, after waiting for the stream.
    ///
    /// # Errors
    /// When the run does not use the buffer, or the device fails.
    pub fn read(&self, buffer: usize) -> Result<Tensor, Error> {
        self.execution.read(buffer, self.stream)
    }
}

impl LoadedBundle {
    /// Runs on tensors in host memory, in the signature's order.
    ///
    /// # Errors
    /// When the inputs are not what the signature says, or the device fails.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.run_observed(inputs, &mut IgnoreLaunches)
    }

    /// [`LoadedBundle::run`] with an observer of its launches.
    ///
    /// # Errors
    /// As [`LoadedBundle::run`], and what the observer returns.
    pub fn run_observed(
        &self,
        inputs: &[Tensor],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tensor>, Error> {
        let (dims, results) = self.output_sizes(inputs)?;
        let device = &self.device;
        let upload = |input: &Tensor| Buffer::from_bytes(device.clone(), input.bytes());
        let given = inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let outputs = results
            .iter()
            .map(|(_, _, n_bytes)| Buffer::new(device.clone(), *n_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses =
            |buffers: &[Buffer]| buffers.iter().map(Buffer::address).collect::<Vec<_>>();
        let stream = Stream::DEFAULT;
        self.run_direct(&addresses(&given), &addresses(&outputs), &dims, stream, observer)?;
        // Waits even when there is nothing to read back, so that errors surface here.
        device.synchronize(stream)?;
        let download = |(buffer, (dtype, shape, _)): (&Buffer, OutputSize)| {
            let tensor = Tensor::new(dtype, shape, buffer.to_bytes(stream)?);
            Ok(tensor.expect("invariant: the buffer was allocated for this shape"))
        };
        outputs.iter().zip(results).map(download).collect()
    }

    /// Submits a run on device memory to a stream, and returns without waiting for it on CUDA.
    ///
    /// `inputs` and `outputs` are addresses of contiguous tensors in the signature's order, multiples
    /// of [`POINTER_ALIGN`]; `dims` are the symbolic sizes, as
    /// [`Signature::solve`](fornax_bundle::manifest::Signature::solve) gives them. The memory must
    /// stay allocated until the stream has passed the run, and so must the stream itself. The caller may
    /// capture the stream into a graph.
    ///
    /// # Errors
    /// When a size is out of range, an address is misaligned, or the device fails.
    pub fn run_device(
        &self,
        inputs: &[u64],
        outputs: &[u64],
        dims: &Dims,
        stream: Stream,
    ) -> Result<(), Error> {
        self.run_direct(inputs, outputs, dims, stream, &mut IgnoreLaunches)
    }

    /// [`LoadedBundle::run_device`] through a CUDA graph, which costs the host one call instead of
    /// one per kernel.
    ///
    /// The graph is made at the first call for these addresses and sizes and kept; the
    /// 64 most recently used ones are. A device without graphs runs the launches directly.
    ///
    /// # Errors
    /// As [`LoadedBundle::run_device`].
    pub fn run_graph(
        &self,
        inputs: &[u64],
        outputs: &[u64],
        dims: &Dims,
        stream: Stream,
    ) -> Result<(), Error> {
        let key = GraphKey { inputs: inputs.into(), outputs: outputs.into(), dims: dims.clone() };
        let found = self.graphs.get(&key);
        let graph = match found {
            Some(graph) => graph,
            None => match self.record(&key)? {
                Some(graph) => self.graphs.insert(key, graph),
                None => return self.run_device(inputs, outputs, dims, stream),
            },
        };
        let _shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        // Launches of one graph never overlap, whatever their streams, so that they may share the
        // graph's scratch memory (CUDA driver API, cuGraphLaunch).
        self.device.launch_graph(&graph.graph, stream)
    }

    /// The symbolic sizes for these inputs, and type, shape and bytes of each output.
    pub(crate) fn output_sizes(&self, inputs: &[Tensor]) -> Result<(Dims, Vec<OutputSize>), Error> {
        let types: Vec<_> = inputs.iter().map(|input| (input.dtype(), input.shape())).collect();
        let dims = self.manifest.signature.solve(&types)?;
        let results = self.output_sizes_at(&dims)?;
        Ok((dims, results))
    }

    /// Type, shape and bytes of each output for given symbolic sizes.
    pub(crate) fn output_sizes_at(&self, dims: &Dims) -> Result<Vec<OutputSize>, Error> {
        let mut results = Vec::new();
        for port in &self.manifest.signature.outputs {
            let shape = self.output_shape(&port.name, &port.shape, dims)?;
            let n_bytes = shape
                .iter()
                .try_fold(port.dtype.size(), |bytes, &size| bytes.checked_mul(size))
                .ok_or_else(|| Error::Plan {
                    what: port.name.clone(),
                    reason: "the output is too large".to_owned(),
                })?;
            results.push((port.dtype, shape, n_bytes as u64));
        }
        Ok(results)
    }

    fn record(&self, key: &GraphKey) -> Result<Option<RecordedRun>, Error> {
        let resolved = self.resolved(&key.dims)?;
        self.check_pointers(&key.inputs, &key.outputs)?;
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let slots = resolved.scratch_slots();
        let scratch = Arena::new(&self.device, self.memory, resolved.scratch_bytes, &slots)?;
        let graph = self.device.record_graph(&mut |stream| {
            let counters = self.counters_of(&resolved, stream, |slot| scratch.address(slot))?;
            let arenas = Arenas { shared: &shared, scratch: &scratch, counters };
            let execution = Execution::new(self, &resolved, arenas, &key.inputs, &key.outputs);
            execution.enqueue(stream, &mut IgnoreLaunches)
        })?;
        Ok(graph.map(|graph| RecordedRun { graph, _scratch: scratch }))
    }

    fn run_direct(
        &self,
        inputs: &[u64],
        outputs: &[u64],
        dims: &Dims,
        stream: Stream,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        self.check_pointers(inputs, outputs)?;
        let resolved = self.resolved(dims)?;
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let scratch = match self.scratch.take(stream, resolved.scratch_bytes) {
            Some(arena) => arena,
            None => {
                let slots = resolved.scratch_slots();
                Arena::new(&self.device, self.memory, resolved.scratch_bytes, &slots)?
            }
        };
        let counters = self.counters_of(&resolved, stream, |slot| scratch.address(slot))?;
        let arenas = Arenas { shared: &shared, scratch: &scratch, counters };
        let execution = Execution::new(self, &resolved, arenas, inputs, outputs);
        execution.enqueue(stream, observer)?;
        self.scratch.give_back(stream, scratch);
        Ok(())
    }

    /// The address of counters that no other run uses at the same time as one on this stream: the bundle's own,
    /// or those in scratch memory, which are set to zero.
    pub(crate) fn counters_of(
        &self,
        resolved: &Resolved,
        stream: Stream,
        in_scratch: impl FnOnce(&Slot) -> u64,
    ) -> Result<u64, Error> {
        let Some(slot) = &resolved.counters else { return Ok(0) };
        let is_captured = self.device.is_capturing(stream)?;
        if let Some(address) = self.counters.take(stream, is_captured) {
            return Ok(address);
        }
        let address = in_scratch(slot);
        self.device.fill(address, 0, slot.n_bytes, stream)?;
        Ok(address)
    }

    pub(crate) fn check_pointers(&self, inputs: &[u64], outputs: &[u64]) -> Result<(), Error> {
        let signature = &self.manifest.signature;
        for (kind, given, ports) in
            [("input", inputs, &signature.inputs), ("output", outputs, &signature.outputs)]
        {
            if given.len() != ports.len() {
                let (taken, given) = (ports.len(), given.len());
                let reason = format!("the model has {taken} {kind}s, not {given}");
                return Err(Error::Pointers { reason });
            }
            for (address, port) in given.iter().zip(ports) {
                if address % POINTER_ALIGN != 0 {
                    let reason = format!(
                        "the address {address:#x} of {kind} `{}` is not a multiple of {POINTER_ALIGN}",
                        port.name
                    );
                    return Err(Error::Pointers { reason });
                }
            }
        }
        Ok(())
    }

    fn output_shape(
        &self,
        name: &str,
        shape: &[fornax_bundle::Dim],
        dims: &Dims,
    ) -> Result<Vec<usize>, Error> {
        let size = |dim: &fornax_bundle::Dim| {
            let value = dim.eval(dims)?;
            usize::try_from(value).map_err(|_| Error::Plan {
                what: name.to_owned(),
                reason: format!("the size {dim} is {value}"),
            })
        };
        shape.iter().map(size).collect()
    }
}

/// Element type, shape and bytes of an output.
pub(crate) type OutputSize = (DType, Vec<usize>, u64);

/// Where a run's memory lies that is not the caller's.
#[derive(Clone, Copy)]
pub(crate) struct Arenas<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) scratch: &'a Arena,
    /// The address of the counters.
    pub(crate) counters: u64,
}

/// A program with addresses: what is enqueued on a stream.
pub(crate) struct Execution<'a> {
    bundle: &'a LoadedBundle,
    resolved: &'a Resolved,
    /// Addresses by the plan's buffer index; 0 for buffers that the program does not use.
    addresses: Vec<u64>,
}

impl<'a> Execution<'a> {
    pub(crate) fn new(
        bundle: &'a LoadedBundle,
        resolved: &'a Resolved,
        Arenas { shared, scratch, counters }: Arenas<'_>,
        inputs: &[u64],
        outputs: &[u64],
    ) -> Execution<'a> {
        let address = |place: &Place| match place {
            Place::Input(index) => inputs[*index],
            Place::Output(index) => outputs[*index],
            Place::Scratch(slot) => scratch.address(slot),
            Place::Counters(slot) => counters + slot.offset,
            Place::Weight(_) | Place::Prepared(_) => {
                shared.address(place).expect("invariant: weights and prepared buffers are shared")
            }
        };
        let buffers = resolved.buffers.iter();
        let addresses = buffers.map(|b| b.as_ref().map_or(0, |b| address(&b.place))).collect();
        Execution::at(bundle, resolved, addresses)
    }

    pub(crate) fn at(
        bundle: &'a LoadedBundle,
        resolved: &'a Resolved,
        addresses: Vec<u64>,
    ) -> Execution<'a> {
        Execution { bundle, resolved, addresses }
    }

    pub(crate) fn enqueue(&self, stream: Stream, observer: &mut dyn Observer) -> Result<(), Error> {
        let mut args = Vec::new();
        for step in &self.resolved.steps {
            self.begin(step)?;
            match &step.action {
                Action::Launch { kernel, config, args: wanted } => {
                    args.clear();
                    args.extend(wanted.iter().map(|arg| match arg {
                        ResolvedArg::Buffer(buffer) => KernelArg::Pointer(self.addresses[*buffer]),
                        ResolvedArg::Scalar(value) => value.clone(),
                    }));
                    self.launch(*kernel, *config, &args, stream, observer)?;
                }
                Action::Copy { from, to, n_bytes } => {
                    let (from, to) = (self.addresses[*from], self.addresses[*to]);
                    self.bundle.device.copy_on_device(to, from, *n_bytes, stream)?;
                }
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        kernel: usize,
        config: LaunchConfig,
        args: &[KernelArg],
        stream: Stream,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let launched = Launched { kernel, config, stream, execution: self };
        observer.before_launch(&launched)?;
        let handle = self.bundle.kernels[kernel]
            .as_ref()
            .expect("invariant: the kernels of all selected steps are loaded");
        self.bundle
            .device
            .launch(handle, &config, args, stream)
            .map_err(|source| self.in_kernel(kernel, source))?;
        observer.after_launch(&launched)
    }

    /// Tells the emulator that what the step's new buffers held before is of no more use.
    fn begin(&self, step: &ResolvedStep) -> Result<(), Error> {
        for &index in &step.begins {
            if let Some(buffer) = &self.resolved.buffers[index]
                && buffer.n_bytes > 0
            {
                self.bundle.device.discard(self.addresses[index], buffer.n_bytes)?;
            }
        }
        Ok(())
    }

    fn read(&self, index: usize, stream: Stream) -> Result<Tensor, Error> {
        let plan = self.bundle.plan();
        let resolved = self.resolved.buffers.get(index).and_then(Option::as_ref);
        let (Some(resolved), Some(declared)) = (resolved, plan.buffers.get(index)) else {
            return Err(Error::Plan {
                what: format!("buffer {index}"),
                reason: "the run does not use it".to_owned(),
            });
        };
        let mut bytes = vec![0; resolved.n_bytes as usize];
        if !bytes.is_empty() {
            self.bundle.device.copy_to_host(&mut bytes, self.addresses[index], stream)?;
        }
        let tensor = Tensor::new(declared.dtype, resolved.shape.clone(), bytes);
        Ok(tensor.expect("invariant: the buffer's size follows from its shape"))
    }

    fn in_kernel(&self, kernel: usize, source: Error) -> Error {
        let plan = self.bundle.plan();
        let declared = &plan.kernels[kernel];
        let region = &plan.regions[declared.region];
        let origins = region.ops.iter().flat_map(|op| &op.origins);
        let mut nodes: Vec<_> = origins.cloned().collect();
        nodes.dedup();
        Error::InKernel {
            kernel: declared.name.clone(),
            region: region.name.clone(),
            nodes,
            source: Box::new(source),
        }
    }
}

/// Scratch arenas by stream.
///
/// An arena that a run has been enqueued with may be used by the next run on the same stream at once,
/// since that comes after it, but not on another stream.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool {
    arenas: Mutex<BTreeMap<u64, Vec<Arena>>>,
}

impl ScratchPool {
    fn take(&self, stream: Stream, n_bytes: u64) -> Option<Arena> {
        let arena = lock(&self.arenas).get_mut(&stream.0).and_then(Vec::pop)?;
        // One that is too small is given back to the device: sizes rarely shrink again.
        arena.fits(n_bytes).then_some(arena)
    }

    fn give_back(&self, stream: Stream, arena: Arena) {
        if matches!(arena, Arena::Planned(_)) {
            lock(&self.arenas).entry(stream.0).or_default().push(arena);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GraphKey {
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    dims: Dims,
}

/// A graph with the scratch memory that its kernels use.
#[derive(Debug)]
struct RecordedRun {
    graph: Graph,
    _scratch: Arena,
}

/// Graphs by pointers and sizes, the most recently used one last.
#[derive(Debug, Default)]
pub(crate) struct GraphCache {
    graphs: Mutex<Vec<(GraphKey, Arc<RecordedRun>)>>,
}

impl GraphCache {
    fn get(&self, key: &GraphKey) -> Option<Arc<RecordedRun>> {
        let mut graphs = lock(&self.graphs);
        let position = graphs.iter().rposition(|(other, _)| other == key)?;
        let entry = graphs.remove(position);
        let graph = entry.1.clone();
        graphs.push(entry);
        Some(graph)
    }

    fn insert(&self, key: GraphKey, graph: RecordedRun) -> Arc<RecordedRun> {
        let graph = Arc::new(graph);
        let mut graphs = lock(&self.graphs);
        if graphs.len() >= MAX_GRAPHS {
            graphs.remove(0);
        }
        graphs.push((key, graph.clone()));
        graph
    }
}
