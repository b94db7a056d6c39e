//! Bringing a bundle onto a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use fornax_bundle::manifest::{BUFFER_ALIGN, BufferKind, Manifest, TargetPlan, WeightDecl};
use fornax_bundle::{Bundle, BundleParts, Dims, Target, Tensor};
use rayon::prelude::*;

use crate::arena::{Arena, Memory, Slot};
use crate::device::{Device, Kernel, Module, ModuleSource, Stream};
use crate::error::Error;
use crate::resolve::{Place, Resolved, selected, used_buffers};
use crate::run::{Execution, GraphCache, IgnoreLaunches, ScratchPool};

/// How to load a bundle.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Values of the weights that are not embedded, by name.
    pub weights: BTreeMap<String, Tensor>,
    /// The target plan to use, such as `sm_80`; otherwise the bundle's first one that the device runs.
    pub target: Option<String>,
    /// How buffers lie in memory.
    pub memory: Memory,
}

/// A bundle whose kernels, weights and prepared buffers are on a device.
///
/// It may be run from several threads at once: kernels, weights and prepared buffers are shared and
/// constant, and each run has scratch memory of its own, taken from a pool per stream. Only
/// [`LoadedBundle::refresh`] changes what is shared; it waits for the device first.
pub struct LoadedBundle {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) plan: usize,
    pub(crate) memory: Memory,
    /// By the plan's kernel index; none for kernels that no selected step launches.
    pub(crate) kernels: Vec<Option<Kernel>>,
    /// Runs hold it for reading, a refresh for writing.
    pub(crate) shared: RwLock<Shared>,
    pub(crate) scratch: ScratchPool,
    pub(crate) graphs: GraphCache,
    resolved: Mutex<BTreeMap<Dims, Arc<Resolved>>>,
}

/// Memory that all runs share.
#[derive(Debug)]
pub(crate) struct Shared {
    weights: Arena,
    weight_slots: BTreeMap<usize, Slot>,
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
        let shared = Shared::new(&device, parts, plan, options.memory, options.weights)?;
        let loaded = LoadedBundle {
            device,
            manifest: Arc::new(parts.manifest.clone()),
            plan,
            memory: options.memory,
            kernels,
            shared: RwLock::new(shared),
            scratch: ScratchPool::default(),
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
            check_binding(&self.manifest.weights, name, tensor)?;
        }
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
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
        let execution = Execution::new(self, &resolved, shared, &scratch, &[], &[]);
        execution.enqueue(Stream::DEFAULT, &mut IgnoreLaunches)?;
        self.device.synchronize(Stream::DEFAULT)
    }
}

impl Shared {
    fn new(
        device: &Arc<dyn Device>,
        parts: &BundleParts,
        plan: usize,
        memory: Memory,
        bound: BTreeMap<String, Tensor>,
    ) -> Result<Shared, Error> {
        let (manifest, plan) = (&parts.manifest, &parts.manifest.targets[plan]);
        for (name, tensor) in &bound {
            check_binding(&manifest.weights, name, tensor)?;
        }
        let wanted = wanted_weights(manifest, plan);
        let missing: Vec<_> = wanted
            .iter()
            .map(|&index| &manifest.weights[index])
            .filter(|decl| !decl.embedded && !bound.contains_key(&decl.name))
            .map(|decl| decl.name.clone())
            .collect();
        if !missing.is_empty() {
            return Err(Error::MissingWeights { names: missing });
        }
        let (mut n_bytes, mut weight_slots) = (0u64, BTreeMap::new());
        for index in wanted {
            let decl = &manifest.weights[index];
            let size = decl.shape.iter().product::<u64>() * decl.dtype.size() as u64;
            weight_slots.insert(index, Slot { buffer: index, offset: n_bytes, n_bytes: size });
            n_bytes = (n_bytes + size).next_multiple_of(BUFFER_ALIGN);
        }
        let slots: Vec<_> = weight_slots.values().copied().collect();
        let weights = Arena::new(device, memory, n_bytes, &slots)?;

        let is_prepared = |kind: &BufferKind| matches!(kind, BufferKind::Prepared { .. });
        let mut prepared_slots = Vec::new();
        for program in [&plan.prepare, &plan.run] {
            for index in used_buffers(&selected(program)) {
                if is_prepared(&plan.buffers[index].kind) {
                    prepared_slots.push(index);
                }
            }
        }
        let prepared_slots = prepared_slots
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|index| {
                let bytes = plan.buffers[index].bytes().eval(&Dims::new())?;
                Ok(Slot { buffer: index, offset: 0, n_bytes: bytes as u64 })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let prepared_bytes = plan.prepared_bytes.eval(&Dims::new())?;
        let prepared = Arena::new(device, memory, prepared_bytes as u64, &prepared_slots)?;
        Ok(Shared { weights, weight_slots, prepared, bound })
    }

    fn weight_address(&self, index: usize) -> u64 {
        let slot = self.weight_slots.get(&index);
        self.weights.address(slot.expect("invariant: all weights that steps use have a slot"))
    }

    /// The address of a buffer that is not the caller's and not scratch.
    pub(crate) fn address(&self, place: &Place) -> Option<u64> {
        match place {
            Place::Weight(index) => Some(self.weight_address(*index)),
            Place::Prepared(slot) => Some(self.prepared.address(slot)),
            Place::Input(_) | Place::Output(_) | Place::Scratch(_) => None,
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

/// Checks that a weight may be bound to a tensor.
fn check_binding(decls: &[WeightDecl], name: &str, tensor: &Tensor) -> Result<(), Error> {
    let refused = |reason: String| Err(Error::Weight { name: name.to_owned(), reason });
    let Some(decl) = decls.iter().find(|decl| decl.name == name) else {
        return refused("the model has no weight of this name".to_owned());
    };
    if decl.embedded {
        // The compiler may have used its values, so that other ones would give wrong results.
        let reason = "it is embedded in the bundle; compile with --weights external to bind it";
        return refused(reason.to_owned());
    }
    let same_shape = tensor.shape().iter().map(|&n| n as u64).eq(decl.shape.iter().copied());
    if tensor.dtype() != decl.dtype || !same_shape {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
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
            if let fornax_bundle::manifest::Step::Launch(launch) = step {
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
