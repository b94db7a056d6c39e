//! Finding the first region whose kernels compute something wrong.
//!
//! Each region is judged alone: its reference is evaluated on what the device itself put into the
//! region's inputs, so an earlier region's error does not count against a later one.

use std::collections::BTreeMap;

use fornax_bundle::{Dim, Tensor};
use fornax_ir::plan::{Plan, Region};
use fornax_runtime::compare::Arithmetic;
use fornax_runtime::{Launched, Observer};
use serde::Serialize;

use super::judge::{OutputReport, narrowest_float};
use super::reference::References;
use crate::{Error, Loaded};

/// A region's verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Bisection {
    /// The region's name in plans, such as `r3`.
    pub region: String,
    /// The imported model's nodes that it computes.
    pub nodes: Vec<String>,
    /// Its outputs.
    pub outputs: Vec<OutputReport>,
}

/// Runs the bundle once and returns the first region that is wrong, if any.
///
/// Regions of the prepare program are not looked at: they have run when the bundle was loaded.
///
/// # Errors
/// When the device or the interpreter fails.
pub fn bisect(loaded: &Loaded, plan: &Plan, inputs: &[Tensor]) -> Result<Option<Bisection>, Error> {
    let mut observer = Bisector { plan, operands: BTreeMap::new(), found: None, failed: None };
    let run = loaded.session.run_observed(inputs, &mut observer);
    if let Some(failed) = observer.failed {
        return Err(failed);
    }
    run?;
    Ok(observer.found)
}

struct Bisector<'a> {
    plan: &'a Plan,
    /// What each region read, taken before its first launch: its memory may be reused later.
    operands: BTreeMap<usize, Vec<Tensor>>,
    found: Option<Bisection>,
    failed: Option<Error>,
}

impl Observer for Bisector<'_> {
    fn before_launch(&mut self, launch: &Launched<'_>) -> Result<(), fornax_runtime::Error> {
        let region = launch.declaration().region;
        if self.found.is_none() && !self.operands.contains_key(&region) {
            let reads = &launch.bundle().plan().regions[region].reads;
            let tensors =
                reads.iter().map(|&buffer| launch.read(buffer)).collect::<Result<_, _>>()?;
            self.operands.insert(region, tensors);
        }
        Ok(())
    }

    fn after_launch(&mut self, launch: &Launched<'_>) -> Result<(), fornax_runtime::Error> {
        let region = launch.declaration().region;
        let kernels = &launch.bundle().plan().kernels;
        let is_last = kernels.iter().rposition(|kernel| kernel.region == region);
        if self.found.is_some() || self.failed.is_some() || is_last != Some(launch.kernel) {
            return Ok(());
        }
        let Some(operands) = self.operands.remove(&region) else { return Ok(()) };
        let writes = &launch.bundle().plan().regions[region].writes;
        let parts = &self.plan.regions[region].parts;
        let read = |(output, &buffer): (usize, &usize)| match parts.get(&output) {
            None => launch.read(buffer),
            Some(part) => {
                let body = &self.plan.regions[region].body;
                let size = &body.ty(body.outputs()[output].value).shape[part.axis];
                let number = |dim: &Dim| {
                    dim.eval(launch.dims()).expect("invariant: a run knows all sizes") as usize
                };
                let (start, size) = (number(&part.start), number(size));
                Ok(part_of(&launch.read(buffer)?, part.axis, start, size))
            }
        };
        let actual: Vec<Tensor> = writes.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        match judge_region(&self.plan.regions[region], &operands, &actual) {
            Ok(outputs) if outputs.iter().all(|output| output.passed) => {}
            Ok(outputs) => self.found = Some(self.bisection(region, outputs)),
            Err(error) => self.failed = Some(error),
        }
        Ok(())
    }
}

impl Bisector<'_> {
    fn bisection(&self, region: usize, outputs: Vec<OutputReport>) -> Bisection {
        let region = &self.plan.regions[region];
        let mut locs = fornax_ir::LocSet::none();
        for id in region.body.nodes() {
            locs.union(&region.body.node(id).loc);
        }
        let nodes = self.plan.sources.names(&locs).iter().map(|name| name.to_string()).collect();
        Bisection { region: region.name.clone(), nodes, outputs }
    }
}

/// The elements of an output in the shared array that it is a part of: `start` and `size` along the
/// part's axis.
fn part_of(whole: &Tensor, axis: usize, start: usize, size: usize) -> Tensor {
    let sizes = whole.shape();
    let inner = sizes[axis + 1..].iter().product::<usize>() * whole.dtype().size();
    let outer: usize = sizes[..axis].iter().product();
    let block = sizes[axis] * inner;
    let bytes: Vec<u8> = (0..outer)
        .flat_map(|at| {
            let first = at * block + start * inner;
            whole.bytes()[first..first + size * inner].iter().copied()
        })
        .collect();
    let mut sizes = sizes.to_vec();
    sizes[axis] = size;
    Tensor::new(whole.dtype(), sizes, bytes)
        .expect("invariant: the bytes are of that many elements")
}

fn judge_region(
    region: &Region,
    operands: &[Tensor],
    actual: &[Tensor],
) -> Result<Vec<OutputReport>, Error> {
    let body = &region.body;
    let references = References::evaluate(body, operands)?;
    let narrowest = narrowest_float(body);
    let arithmetic = Arithmetic::of_region(region.class());
    let outputs = body.outputs().iter().zip(actual).enumerate();
    Ok(outputs
        .map(|(number, (output, actual))| {
            let kind = (arithmetic, region.precision, narrowest);
            references.judge(number, &output.name, actual, kind)
        })
        .collect())
}
