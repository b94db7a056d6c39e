//! Runs whose sizes are known: what a caller that runs often keeps per set of input shapes.

use std::sync::{Arc, PoisonError};

use fornax_bundle::DType;
use fornax_bundle::manifest::Manifest;

use crate::device::Stream;
use crate::error::Error;
use crate::load::LoadedBundle;
use crate::resolve::{Place, Resolved};
use crate::run::{Execution, IgnoreLaunches, POINTER_ALIGN};

/// Everything of a run that follows from the types and shapes of its inputs; see
/// [`LoadedBundle::size_run`].
#[derive(Debug, Clone)]
pub struct SizedRun {
    manifest: Arc<Manifest>,
    resolved: Arc<Resolved>,
    outputs: Vec<(DType, Vec<usize>)>,
    /// Addresses by the plan's buffer index, complete but for the buffers below.
    addresses: Vec<u64>,
    /// Buffers whose address each run says.
    open: Vec<(usize, Open)>,
}

#[derive(Debug, Clone, Copy)]
enum Open {
    Input(usize),
    Output(usize),
    /// An offset into the scratch memory.
    Scratch(u64),
    /// An offset into the counters.
    Counters(u64),
}

impl SizedRun {
    /// Element type and sizes of each output, in the signature's order.
    pub fn outputs(&self) -> &[(DType, Vec<usize>)] {
        &self.outputs
    }

    /// Scratch memory that a run takes, in bytes.
    pub fn scratch_bytes(&self) -> u64 {
        self.resolved.scratch_bytes
    }
}

impl LoadedBundle {
    /// Evaluates all that follows from the inputs' types and shapes, once for many runs.
    ///
    /// # Errors
    /// When the inputs are not what the signature says.
    pub fn size_run(&self, inputs: &[(DType, &[usize])]) -> Result<SizedRun, Error> {
        let dims = self.manifest.signature.solve(inputs)?;
        let outputs = self.output_sizes_at(&dims)?;
        let outputs = outputs.into_iter().map(|(dtype, shape, _)| (dtype, shape)).collect();
        let resolved = self.resolved(&dims)?;
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let (mut addresses, mut open) = (vec![0; resolved.buffers.len()], Vec::new());
        for (index, buffer) in resolved.buffers.iter().enumerate() {
            let Some(buffer) = buffer else { continue };
            match buffer.place {
                Place::Input(input) => open.push((index, Open::Input(input))),
                Place::Output(output) => open.push((index, Open::Output(output))),
                Place::Scratch(slot) => open.push((index, Open::Scratch(slot.offset))),
                Place::Counters(slot) => open.push((index, Open::Counters(slot.offset))),
                // They stay where they are as long as the bundle is loaded.
                place @ (Place::Weight(_) | Place::Prepared(_)) => {
                    addresses[index] = shared
                        .address(&place)
                        .expect("invariant: weights and prepared buffers are shared");
                }
            }
        }
        let manifest = self.manifest.clone();
        Ok(SizedRun { manifest, resolved, outputs, addresses, open })
    }

    /// [`LoadedBundle::run_device`] for sizes evaluated before, in scratch memory of the caller.
    ///
    /// `scratch` is the address of [`SizedRun::scratch_bytes`] bytes, which must stay allocated until
    /// the stream has passed the run. Nothing is allocated and nothing waited for on the device, so that a
    /// stream that is being captured into a graph can be given.
    ///
    /// # Errors
    /// When `run` is of another bundle, an address is misaligned, or the device fails.
    pub fn run_sized(
        &self,
        run: &SizedRun,
        inputs: &[u64],
        outputs: &[u64],
        scratch: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.manifest, &run.manifest) {
            let reason = "the sizes were evaluated for another loaded bundle".to_owned();
            return Err(Error::Pointers { reason });
        }
        self.check_pointers(inputs, outputs)?;
        if !scratch.is_multiple_of(POINTER_ALIGN) {
            let reason =
                format!("the scratch address {scratch:#x} is not a multiple of {POINTER_ALIGN}");
            return Err(Error::Pointers { reason });
        }
        let counters = self.counters_of(&run.resolved, stream, |slot| scratch + slot.offset)?;
        let mut addresses = run.addresses.clone();
        for &(index, open) in &run.open {
            addresses[index] = match open {
                Open::Input(input) => inputs[input],
                Open::Output(output) => outputs[output],
                Open::Scratch(offset) => scratch + offset,
                Open::Counters(offset) => counters + offset,
            };
        }
        // A refresh must not change the prepared buffers between two launches.
        let _shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        Execution::at(self, &run.resolved, addresses).enqueue(stream, &mut IgnoreLaunches)
    }
}
