//! Programs with all sizes known: what a run executes.

use std::collections::BTreeSet;

use fornax_bundle::manifest::{Arg, BUFFER_ALIGN, BufferKind, Launch, Param, Step, TargetPlan};
use fornax_bundle::{DType, Dim, Dims};

use crate::arena::Slot;
use crate::device::{KernelArg, LaunchConfig};
use crate::error::Error;

/// Largest grid in x, y and z (CUDA C++ Programming Guide, technical specifications).
const MAX_GRID: [i64; 3] = [i32::MAX as i64, 65535, 65535];

/// A program for given values of the symbolic sizes.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) dims: Dims,
    /// The plan's buffers; none where the program does not use one.
    pub(crate) buffers: Vec<Option<ResolvedBuffer>>,
    /// With the counters below.
    pub(crate) scratch_bytes: u64,
    /// Scratch memory for the program's counters, if it has any: for runs that find no others.
    pub(crate) counters: Option<Slot>,
    pub(crate) steps: Vec<ResolvedStep>,
}

#[derive(Debug)]
pub(crate) struct ResolvedBuffer {
    pub(crate) shape: Vec<usize>,
    pub(crate) n_bytes: u64,
    pub(crate) place: Place,
}

/// Where a buffer's address comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Input(usize),
    Output(usize),
    Weight(usize),
    Prepared(Slot),
    Counters(Slot),
    Scratch(Slot),
}

#[derive(Debug)]
pub(crate) struct ResolvedStep {
    pub(crate) action: Action,
    /// Scratch buffers whose life begins with this step.
    pub(crate) begins: Vec<usize>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Launch { kernel: usize, config: LaunchConfig, args: Vec<ResolvedArg> },
    Copy { from: usize, to: usize, n_bytes: u64 },
}

#[derive(Debug)]
pub(crate) enum ResolvedArg {
    Buffer(usize),
    Scalar(KernelArg),
}

/// The steps that run, in order: of each choice the selected alternative.
pub(crate) fn selected(steps: &[Step]) -> Vec<&Step> {
    let mut flat = Vec::new();
    for step in steps {
        match step {
            Step::Choice { selected: index, alternatives, .. } => {
                let alternative = alternatives.get(*index);
                flat.extend(alternative.into_iter().flat_map(|chosen| selected(&chosen.steps)));
            }
            Step::Launch(_) | Step::Copy { .. } => flat.push(step),
        }
    }
    flat
}

/// The buffers that the steps touch.
pub(crate) fn used_buffers(steps: &[&Step]) -> BTreeSet<usize> {
    let mut used = BTreeSet::new();
    for step in steps {
        match step {
            Step::Launch(launch) => used.extend(launch.args.iter().filter_map(|arg| match arg {
                Arg::Buffer { buffer } => Some(*buffer),
                Arg::Scalar { .. } => None,
            })),
            Step::Copy { from, to } => used.extend([*from, *to]),
            Step::Choice { .. } => {}
        }
    }
    used
}

impl Resolved {
    /// Evaluates all sizes of a program. `scratch_bytes` is the arena's size; without one, it is what the
    /// program's buffers need.
    pub(crate) fn new(
        plan: &TargetPlan,
        program: &[Step],
        dims: &Dims,
        scratch_bytes: Option<&Dim>,
    ) -> Result<Resolved, Error> {
        let steps = selected(program);
        let mut resolved = Resolved {
            dims: dims.clone(),
            buffers: plan.buffers.iter().map(|_| None).collect(),
            scratch_bytes: 0,
            counters: None,
            steps: Vec::new(),
        };
        let prepared_bytes = size(&plan.prepared_bytes, dims, "prepared_bytes")?;
        let counter_bytes = size(&plan.counter_bytes, dims, "counter_bytes")?;
        let (mut scratch_end, mut counts) = (0, false);
        for index in used_buffers(&steps) {
            let buffer = resolve_buffer(plan, index, dims)?;
            if let Place::Scratch(slot) = buffer.place {
                scratch_end = scratch_end.max(slot.offset + slot.n_bytes);
            }
            let arena = match buffer.place {
                Place::Prepared(slot) => Some((slot, prepared_bytes, "prepared arena")),
                Place::Counters(slot) => Some((slot, counter_bytes, "arena of counters")),
                _ => None,
            };
            if let Some((slot, n_bytes, arena)) = arena
                && slot.offset + slot.n_bytes > n_bytes
            {
                let name = &plan.buffers[index].name;
                return Err(broken(name, &format!("it reaches beyond the {arena}")));
            }
            counts |= matches!(buffer.place, Place::Counters(_));
            resolved.buffers[index] = Some(buffer);
        }
        resolved.scratch_bytes = match scratch_bytes {
            Some(bytes) => size(bytes, dims, "scratch_bytes")?,
            None => scratch_end,
        };
        if scratch_end > resolved.scratch_bytes {
            return Err(broken("scratch_bytes", "a buffer reaches beyond the scratch arena"));
        }
        if counts {
            let offset = resolved.scratch_bytes.next_multiple_of(BUFFER_ALIGN);
            let buffer = plan.buffers.len();
            resolved.counters = Some(Slot { buffer, offset, n_bytes: counter_bytes });
            resolved.scratch_bytes = offset + counter_bytes;
        }
        resolved.add_steps(plan, &steps)?;
        Ok(resolved)
    }

    /// The slots of the buffers in the scratch arena.
    pub(crate) fn scratch_slots(&self) -> Vec<Slot> {
        let places = self.buffers.iter().flatten().map(|buffer| buffer.place);
        let slots = places.filter_map(|place| match place {
            Place::Scratch(slot) => Some(slot),
            _ => None,
        });
        slots.chain(self.counters).collect()
    }

    fn add_steps(&mut self, plan: &TargetPlan, steps: &[&Step]) -> Result<(), Error> {
        let mut begun = BTreeSet::new();
        for step in steps {
            let mut written = Vec::new();
            let action = match step {
                Step::Launch(launch) => {
                    let params = &plan.kernels[launch.kernel].params;
                    written.extend(written_buffers(launch, params));
                    match resolve_launch(plan, launch, &self.dims)? {
                        Some(action) => action,
                        None => continue,
                    }
                }
                Step::Copy { from, to } => {
                    written.push(*to);
                    let n_bytes = |index: usize| self.buffers[index].as_ref().map(|b| b.n_bytes);
                    let bytes = n_bytes(*from).filter(|bytes| Some(*bytes) == n_bytes(*to));
                    let n_bytes = bytes.ok_or_else(|| {
                        broken(&plan.buffers[*to].name, "it is copied from another size")
                    })?;
                    if n_bytes == 0 {
                        continue;
                    }
                    Action::Copy { from: *from, to: *to, n_bytes }
                }
                Step::Choice { .. } => continue,
            };
            written.retain(|&index| {
                matches!(plan.buffers[index].kind, BufferKind::Scratch { .. })
                    && begun.insert(index)
            });
            self.steps.push(ResolvedStep { action, begins: written });
        }
        Ok(())
    }
}

fn written_buffers(launch: &Launch, params: &[Param]) -> Vec<usize> {
    let pairs = launch.args.iter().zip(params);
    pairs
        .filter_map(|pair| match pair {
            (Arg::Buffer { buffer }, Param::Pointer { written: true, .. }) => Some(*buffer),
            _ => None,
        })
        .collect()
}

fn resolve_buffer(plan: &TargetPlan, index: usize, dims: &Dims) -> Result<ResolvedBuffer, Error> {
    let buffer = &plan.buffers[index];
    let mut n_bytes = Some(buffer.dtype.size() as u64);
    let mut shape = Vec::with_capacity(buffer.shape.len());
    for dim in &buffer.shape {
        let size = size(dim, dims, &buffer.name)?;
        shape.push(usize::try_from(size).map_err(|_| broken(&buffer.name, "it is too large"))?);
        n_bytes = n_bytes.and_then(|bytes| bytes.checked_mul(size));
    }
    let n_bytes = n_bytes
        .filter(|&bytes| bytes <= i64::MAX as u64)
        .ok_or_else(|| broken(&buffer.name, "it is too large"))?;
    let slot = |offset| {
        size(offset, dims, &buffer.name).map(|offset| Slot { buffer: index, offset, n_bytes })
    };
    let place = match &buffer.kind {
        BufferKind::Input { index } => Place::Input(*index),
        BufferKind::Output { index } => Place::Output(*index),
        BufferKind::Weight { index } => Place::Weight(*index),
        BufferKind::Prepared { offset } => Place::Prepared(slot(offset)?),
        BufferKind::Counters { offset } => Place::Counters(slot(offset)?),
        BufferKind::Scratch { offset } => Place::Scratch(slot(offset)?),
    };
    Ok(ResolvedBuffer { shape, n_bytes, place })
}

/// A launch, or nothing when its grid is empty.
fn resolve_launch(
    plan: &TargetPlan,
    launch: &Launch,
    dims: &Dims,
) -> Result<Option<Action>, Error> {
    let kernel = &plan.kernels[launch.kernel];
    let mut grid = [0; 3];
    for (axis, dim) in launch.grid.iter().enumerate() {
        let n_blocks = size(dim, dims, &kernel.name)?;
        if n_blocks > MAX_GRID[axis] as u64 {
            let (axis, limit) = (["x", "y", "z"][axis], MAX_GRID[axis]);
            let reason = format!("{n_blocks} blocks in {axis} are more than {limit}");
            return Err(Error::Launch { kernel: kernel.name.clone(), reason });
        }
        grid[axis] = n_blocks as u32;
    }
    if grid.contains(&0) {
        return Ok(None);
    }
    if let Some(axis) = (0..3).find(|&axis| grid[axis] % kernel.cluster[axis] != 0) {
        let (blocks, cluster) = (grid[axis], kernel.cluster[axis]);
        let reason = format!("{blocks} blocks do not divide into clusters of {cluster}");
        return Err(Error::Launch { kernel: kernel.name.clone(), reason });
    }
    let config = LaunchConfig {
        grid,
        block: kernel.block,
        shared_bytes: kernel.dynamic_shared_bytes,
        cluster: kernel.cluster,
    };
    let mut args = Vec::with_capacity(launch.args.len());
    for (arg, param) in launch.args.iter().zip(&kernel.params) {
        args.push(match arg {
            Arg::Buffer { buffer } => ResolvedArg::Buffer(*buffer),
            Arg::Scalar { value } => ResolvedArg::Scalar(scalar(value, param, dims, &kernel.name)?),
        });
    }
    Ok(Some(Action::Launch { kernel: launch.kernel, config, args }))
}

fn scalar(value: &Dim, param: &Param, dims: &Dims, kernel: &str) -> Result<KernelArg, Error> {
    let number = value.eval(dims)?;
    match param {
        Param::Scalar { dtype: DType::I32, name } => {
            let number = i32::try_from(number).map_err(|_| Error::Launch {
                kernel: kernel.to_owned(),
                reason: format!("the argument `{name}` = {number} does not fit into 32 bits"),
            })?;
            Ok(KernelArg::I32(number))
        }
        _ => Ok(KernelArg::I64(number)),
    }
}

/// A size that may not be negative.
fn size(dim: &Dim, dims: &Dims, what: &str) -> Result<u64, Error> {
    let value = dim.eval(dims)?;
    u64::try_from(value).map_err(|_| broken(what, &format!("the size {dim} is {value}")))
}

fn broken(what: &str, reason: &str) -> Error {
    Error::Plan { what: what.to_owned(), reason: reason.to_owned() }
}
