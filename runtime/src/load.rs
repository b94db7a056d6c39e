//! Bringing a bundle onto a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use fornax_bundle::manifest::{BUFFER_ALIGN, BufferKind, Manifest, Step, TargetPlan, WeightDecl};
use fornax_bundle::{Bundle, BundleParts, DType, Dims, Target, Tensor};
use rayon::prelude::*;

use crate::arena::{Arena, Memory, Slot};
use crate::counters::CounterPool;
use crate::device::{Device, Kernel, Module, ModuleSource, Stream};
use crate::error::Error;
use crate::resolve::{Place, Resolved, selected, used_buffers};
use crate::run::{Arenas, Execution, GraphCache, IgnoreLaunches, POINTER_ALIGN, ScratchPool};

/// How to load a bundle.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Values of the weights that are not embedded, by name.
    pub weights: BTreeMap<String, Tensor>,
    /// Weights that lie on the device already and are used where they are, by name.
    ///
    /// They must stay allocated as long as the bundle is loaded. After they were written,
    /// [`LoadedBundle::refresh`] brings the prepared buffers up to date.
    pub device_weights: BTreeMap<String, DeviceTensor>,
    /// The target plan to use, such as `sm_80`; otherwise the bundle's first one that the device runs.
    pub target: Option<String>,
    /// How buffers lie in memory.
    pub memory: Memory,
}

/// A contiguous tensor in memory of the device that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTensor {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Address of the first element, a multiple of [`POINTER_ALIGN`].
    pub address: u64,
}

/// Device memory that a loaded bundle holds, in bytes. Scratch memory of runs comes on top, see
/// [`SizedRun::scratch_bytes`](crate::SizedRun::scratch_bytes), and about 1 MiB of counters where kernels have some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights that were copied to the device.
    pub weight_bytes: u64,
    /// Weights that are used where the caller has them.
    pub device_weight_bytes: u64,
    /// What the prepare program made of them.
    pub prepared_bytes: u64,
}

/// A bundle whose kernels, weights and prepared buffers are on a device.
///
/// It may be run from several threads at once: kernels, weights and prepared buffers are shared and
/// constant, and each run has scratch memory and counters of its own, taken from a pool per stream. Only
/// [`LoadedBundle::refresh`] changes what is shared; it waits for the device first.
pub struct LoadedBundle {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) plan: usize,
    pub(crate) memory: Memory,
    memory_use: MemoryUse,
    /// By the plan's kernel index; none for kernels that no selected step launches.
    pub(crate) kernels: Vec<Option<Kernel>>,
    /// Runs hold it for reading, a refresh for writing.
    pub(crate) shared: RwLock<Shared>,
    pub(crate) scratch: ScratchPool,
    pub(crate) counters: CounterPool,
    pub(crate) graphs: GraphCache,
    resolved: Mutex<BTreeMap<Dims, Arc<Resolved>>>,
}

/// Memory that all runs share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Holds the weights that were copied to the device.
    _weights: Arena,
    weight_addresses: BTreeMap<usize, u64>,
    prepared: Arena,
    /// Values of the weights that are not embedded, kept for [`LoadedBundle::refresh`].
    bound: BTreeMap<String, Tensor>,
}

/// Resolved programs kept, so that alternating shapes do not resolve again and again.
const MAX_RESOLVED: usize = 256;

impl LoadedBundle {
    /// Loads the modules, uploads the weights and runs the prepare program.
    ///
    /// # Errors
    /// When no plan fits the device, a weight is missing or not as declared, or the device fails.
    pub fn load(
        device: Arc<dyn Device>,
        bundle: &Bundle,
        options: LoadOptions,
    ) -> Result<LoadedBundle, Error> {
        let parts = bundle.parts();
        let plan = choose_plan(device.as_ref(), &parts.manifest, options.target.as_deref())?;
        let kernels = load_kernels(device.as_ref(), parts, &parts.manifest.targets[plan])?;
        let memory = options.memory;
        let (shared, memory_use) = Shared::new(&device, parts, plan, options)?;
        let counter_bytes = parts.manifest.targets[plan].counter_bytes.eval(&Dims::new())? as u64;
        let counters = CounterPool::new(&device, counter_bytes)?;
        let loaded = LoadedBundle {
            device,
            manifest: Arc::new(parts.manifest.clone()),
            plan,
            memory,
            memory_use,
            kernels,
            shared: RwLock::new(shared),
            scratch: ScratchPool::default(),
            counters,
            graphs: GraphCache::default(),
            resolved: Mutex::default(),
        };
        {
            let shared = loaded.shared.read().unwrap_or_else(PoisonError::into_inner);
            let weights = wanted_weights(&parts.manifest, &parts.manifest.targets[plan]);
            loaded.upload(
                &shared,
                weights.iter().filter_map(|&index| {
                    let name = &parts.manifest.weights[index].name;
                    let tensor = shared.bound.get(name).or_else(|| parts.weights.get(name))?;
                    Some((index, tensor))
                }),
            )?;
            // Weights on the device may still be being written, on any stream.
            loaded.device.synchronize_all()?;
            loaded.prepare(&shared)?;
        }
        Ok(loaded)
    }

    /// Takes new values of weights that are not embedded and runs the prepare program again.
    ///
    /// Waits for all work on the device first. Weights that `weights` does not name keep their values.
    ///
    /// # Errors
    /// When a weight is unknown, embedded or not as declared, or the device fails.
    pub fn refresh(&self, weights: &BTreeMap<String, Tensor>) -> Result<(), Error> {
        for (name, tensor) in weights {
            check_binding(&self.manifest.weights, name, tensor.dtype(), tensor.shape())?;
        }
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = weights.keys().find(|&name| !shared.takes_value(&self.manifest, name)) {
            let reason =
                "it is bound to memory of the device; write the new values there".to_owned();
            return Err(Error::Weight { name: name.clone(), reason });
        }
        self.device.synchronize_all()?;
        shared.bound.extend(weights.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
        let wanted = wanted_weights(&self.manifest, self.plan());
        self.upload(
            &shared,
            wanted.iter().filter_map(|&index| {
                Some((index, weights.get(&self.manifest.weights[index].name)?))
            }),
        )?;
        self.prepare(&shared)
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The bundle's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The plan that runs.
    pub fn plan(&self) -> &TargetPlan {
        &self.manifest.targets[self.plan]
    }

    /// The kernels that a run launches, in order, as indices among the plan's kernels; those with an
    /// empty grid are left out by runs.
    pub fn launched_kernels(&self) -> Vec<usize> {
        let steps = selected(&self.plan().run).into_iter();
        let kernels = steps.filter_map(|step| match step {
            Step::Launch(launch) => Some(launch.kernel),
            Step::Copy { .. } | Step::Choice { .. } => None,
        });
        kernels.collect()
    }

    /// The device memory that it holds between runs.
    pub fn memory_use(&self) -> MemoryUse {
        self.memory_use
    }

    /// The run program for given sizes.
    pub(crate) fn resolved(&self, dims: &Dims) -> Result<Arc<Resolved>, Error> {
        if let Some(found) = lock(&self.resolved).get(dims) {
            return Ok(found.clone());
        }
        self.manifest.signature.check_dims(dims)?;
        let plan = self.plan();
        let resolved = Arc::new(Resolved::new(plan, &plan.run, dims, Some(&plan.scratch_bytes))?);
        let mut cache = lock(&self.resolved);
        if cache.len() >= MAX_RESOLVED {
            cache.clear();
        }
        cache.insert(dims.clone(), resolved.clone());
        Ok(resolved)
    }

    fn upload<'a>(
        &self,
        shared: &Shared,
        weights: impl Iterator<Item = (usize, &'a Tensor)>,
    ) -> Result<(), Error> {
        for (index, tensor) in weights.filter(|(_, tensor)| !tensor.is_empty()) {
            let address = shared.weight_address(index);
            self.device.copy_to_device(address, tensor.bytes(), Stream::DEFAULT)?;
        }
        Ok(())
    }

    fn prepare(&self, shared: &Shared) -> Result<(), Error> {
        let plan = self.plan();
        let resolved = Resolved::new(plan, &plan.prepare, &Dims::new(), None)?;
        let slots = resolved.scratch_slots();
        let scratch = Arena::new(&self.device, self.memory, resolved.scratch_bytes, &slots)?;
        let stream = Stream::DEFAULT;
        let counters = self.counters_of(&resolved, stream, |slot| scratch.address(slot))?;
        let arenas = Arenas { shared, scratch: &scratch, counters };
        let execution = Execution::new(self, &resolved, arenas, &[], &[]);
        execution.enqueue(stream, &mut IgnoreLaunches)?;
        self.device.synchronize(stream)
    }
}

impl Shared {
    fn new(
        device: &Arc<dyn Device>,
        parts: &BundleParts,
        plan: usize,
        options: LoadOptions,
    ) -> Result<(Shared, MemoryUse), Error> {
        let (manifest, plan) = (&parts.manifest, &parts.manifest.targets[plan]);
        let wanted = wanted_weights(manifest, plan);
        check_weights(manifest, &wanted, &options)?;
        let (mut copied, mut weight_slots) = (0u64, BTreeMap::new());
        let (mut borrowed, mut weight_addresses) = (0u64, BTreeMap::new());
        for index in wanted {
            let decl = &manifest.weights[index];
            let size = decl.shape.iter().product::<u64>() * decl.dtype.size() as u64;
            if let Some(tensor) = options.device_weights.get(&decl.name) {
                weight_addresses.insert(index, tensor.address);
                borrowed += size;
            } else {
                weight_slots.insert(index, Slot { buffer: index, offset: copied, n_bytes: size });
                copied = (copied + size).next_multiple_of(BUFFER_ALIGN);
            }
        }
        let slots: Vec<_> = weight_slots.values().copied().collect();
        let weights = Arena::new(device, options.memory, copied, &slots)?;
        weight_addresses.extend(weight_slots.iter().map(|(&i, slot)| (i, weights.address(slot))));

        let prepared_slots = prepared_slots(plan)?;
        let prepared_bytes = plan.prepared_bytes.eval(&Dims::new())? as u64;
        let prepared = Arena::new(device, options.memory, prepared_bytes, &prepared_slots)?;
        let bound = options.weights;
        let memory_use =
            MemoryUse { weight_bytes: copied, device_weight_bytes: borrowed, prepared_bytes };
        Ok((Shared { _weights: weights, weight_addresses, prepared, bound }, memory_use))
    }

    /// Whether a weight has a place of its own that a new value can be copied to.
    fn takes_value(&self, manifest: &Manifest, name: &str) -> bool {
        let index = manifest.weights.iter().position(|decl| decl.name == name);
        let used = index.is_some_and(|index| self.weight_addresses.contains_key(&index));
        !used || self.bound.contains_key(name)
    }

    fn weight_address(&self, index: usize) -> u64 {
        let address = self.weight_addresses.get(&index);
        *address.expect("invariant: all weights that steps use have an address")
    }

    /// The address of a buffer that is not the caller's and not scratch.
    pub(crate) fn address(&self, place: &Place) -> Option<u64> {
        match place {
            Place::Weight(index) => Some(self.weight_address(*index)),
            Place::Prepared(slot) => Some(self.prepared.address(slot)),
            Place::Input(_) | Place::Output(_) | Place::Scratch(_) | Place::Counters(_) => None,
        }
    }
}

/// The weights that the selected steps use.
fn wanted_weights(manifest: &Manifest, plan: &TargetPlan) -> BTreeSet<usize> {
    let mut wanted = BTreeSet::new();
    for program in [&plan.prepare, &plan.run] {
        for index in used_buffers(&selected(program)) {
            if let BufferKind::Weight { index } = plan.buffers[index].kind {
                wanted.insert(index);
            }
        }
    }
    debug_assert!(wanted.iter().all(|&index| index < manifest.weights.len()));
    wanted
}

/// Where the prepared buffers that the selected steps use lie.
fn prepared_slots(plan: &TargetPlan) -> Result<Vec<Slot>, Error> {
    let mut used = BTreeSet::new();
    for program in [&plan.prepare, &plan.run] {
        used.extend(used_buffers(&selected(program)));
    }
    used.retain(|&index| matches!(plan.buffers[index].kind, BufferKind::Prepared { .. }));
    let slot = |buffer: usize| {
        let bytes = plan.buffers[buffer].bytes().eval(&Dims::new())?;
        Ok(Slot { buffer, offset: 0, n_bytes: bytes as u64 })
    };
    used.into_iter().map(slot).collect()
}

/// Checks that all weights that are not embedded are given, and those given are as declared.
fn check_weights(
    manifest: &Manifest,
    wanted: &BTreeSet<usize>,
    options: &LoadOptions,
) -> Result<(), Error> {
    for (name, tensor) in &options.weights {
        check_binding(&manifest.weights, name, tensor.dtype(), tensor.shape())?;
    }
    for (name, tensor) in &options.device_weights {
        check_binding(&manifest.weights, name, tensor.dtype, &tensor.shape)?;
        let refused = |reason| Err(Error::Weight { name: name.clone(), reason });
        if options.weights.contains_key(name) {
            return refused("it is given both as values and on the device".to_owned());
        }
        if !tensor.address.is_multiple_of(POINTER_ALIGN) {
            let address = tensor.address;
            let reason = format!("its address {address:#x} is not a multiple of {POINTER_ALIGN}");
            return refused(reason);
        }
    }
    let is_given =
        |name| options.weights.contains_key(name) || options.device_weights.contains_key(name);
    let missing: Vec<_> = wanted
        .iter()
        .map(|&index| &manifest.weights[index])
        .filter(|decl| !decl.embedded && !is_given(&decl.name))
        .map(|decl| decl.name.clone())
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::MissingWeights { names: missing }) }
}

/// Checks that a weight may be bound to a tensor.
fn check_binding(
    decls: &[WeightDecl],
    name: &str,
    dtype: DType,
    shape: &[usize],
) -> Result<(), Error> {
    let refused = |reason: String| Err(Error::Weight { name: name.to_owned(), reason });
    let Some(decl) = decls.iter().find(|decl| decl.name == name) else {
        return refused("the model has no weight of this name".to_owned());
    };
    if decl.embedded {
        // The compiler may have used its values, so that other ones would give wrong results.
        let reason = "it is embedded in the bundle; compile with --weights external to bind it";
        return refused(reason.to_owned());
    }
    let same_shape = shape.iter().map(|&n| n as u64).eq(decl.shape.iter().copied());
    if dtype != decl.dtype || !same_shape {
        return refused(format!("it is {}{:?}, not {dtype}{shape:?}", decl.dtype, decl.shape));
    }
    Ok(())
}

fn choose_plan(
    device: &dyn Device,
    manifest: &Manifest,
    wanted: Option<&str>,
) -> Result<usize, Error> {
    let capability = device.properties().compute_capability;
    let fits = |plan: &TargetPlan| {
        wanted.is_none_or(|wanted| wanted == plan.target)
            && plan.target.parse::<Target>().is_ok_and(|target| target.runs_on(capability))
    };
    manifest.targets.iter().position(fits).ok_or_else(|| Error::NoPlan {
        wanted: wanted.map(str::to_owned),
        available: manifest.targets.iter().map(|plan| plan.target.clone()).collect(),
        device: device.name().to_owned(),
        compute_capability: capability,
    })
}

/// Loads each module that the selected steps need, once, in parallel: compiling PTX takes the driver
/// tens of milliseconds a module.
fn load_kernels(
    device: &dyn Device,
    parts: &BundleParts,
    plan: &TargetPlan,
) -> Result<Vec<Option<Kernel>>, Error> {
    let mut wanted = BTreeSet::new();
    for program in [&plan.prepare, &plan.run] {
        for step in selected(program) {
            if let Step::Launch(launch) = step {
                wanted.insert(launch.kernel);
            }
        }
    }
    let entries: BTreeSet<_> = wanted.iter().map(|&kernel| &plan.kernels[kernel].ptx).collect();
    let loaded: Vec<_> = entries
        .into_par_iter()
        .map(|entry| {
            let module = parts
                .ptx
                .get(entry)
                .ok_or_else(|| Error::Plan {
                    what: entry.clone(),
                    reason: "the bundle has no such module".to_owned(),
                })
                .and_then(|ptx| {
                    let sass = parts.sass.get(&sass_entry(entry)).map(|sass| sass.as_ref());
                    device.load_module(ModuleSource { ptx, sass })
                });
            (entry, module)
        })
        .collect();
    let mut modules: BTreeMap<&String, Module> = BTreeMap::new();
    for (entry, module) in loaded {
        let in_module = |source| Error::Module { entry: entry.clone(), source: Box::new(source) };
        modules.insert(entry, module.map_err(in_module)?);
    }
    let kernel = |(index, kernel): (usize, &fornax_bundle::manifest::Kernel)| {
        let module = modules.get(&kernel.ptx).filter(|_| wanted.contains(&index));
        module.map(|module| device.kernel(module, &kernel.name)).transpose()
    };
    plan.kernels.iter().enumerate().map(kernel).collect()
}

/// The entry of the assembled module that belongs to a PTX entry.
fn sass_entry(ptx_entry: &str) -> String {
    let stem = ptx_entry.strip_prefix("ptx/").unwrap_or(ptx_entry);
    format!("sass/{}.cubin", stem.strip_suffix(".ptx").unwrap_or(stem))
}

/// A poisoned lock only means that another thread panicked; what these guard stays whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
