//! The memory plan over time: which bytes of the scratch arena are in use at which step of a run.

use fornax_bundle::manifest::{Arg, BufferKind, Step, TargetPlan};
use fornax_bundle::{Dim, Dims};
use serde::Serialize;

/// The arena of a run.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// Its size; none when that is symbolic.
    bytes: Option<i64>,
    /// The region of each step.
    steps: Vec<Option<usize>>,
    /// What lies in it. Buffers of symbolic size or place are left out.
    buffers: Vec<Piece>,
}

/// A buffer, in use from one step to another (both included).
#[derive(Debug, Serialize)]
struct Piece {
    name: String,
    offset: i64,
    bytes: i64,
    first: usize,
    last: usize,
}

/// The scratch arena of a target's run program.
pub(super) fn memory(target: &TargetPlan) -> Memory {
    let mut uses: Vec<Option<(usize, usize)>> = vec![None; target.buffers.len()];
    let mut use_at = |buffer: usize, step: usize| {
        let (first, _) = uses[buffer].unwrap_or((step, step));
        uses[buffer] = Some((first, step));
    };
    let mut steps = Vec::new();
    for (number, step) in target.run.iter().enumerate() {
        match step {
            Step::Launch(launch) => {
                steps.push(Some(target.kernels[launch.kernel].region));
                for arg in &launch.args {
                    if let Arg::Buffer { buffer } = arg {
                        use_at(*buffer, number);
                    }
                }
            }
            Step::Copy { from, to } => {
                steps.push(None);
                use_at(*from, number);
                use_at(*to, number);
            }
            Step::Choice { .. } => steps.push(None),
        }
    }
    let known = |dim: &Dim| dim.eval(&Dims::new()).ok();
    let pieces = target.buffers.iter().zip(&uses).filter_map(|(buffer, uses)| {
        let BufferKind::Scratch { offset } = &buffer.kind else { return None };
        let (first, last) = (*uses)?;
        let elements: Dim = buffer.shape.iter().cloned().product();
        let bytes = known(&elements)? * buffer.dtype.size() as i64;
        let offset = known(offset)?;
        Some(Piece { name: buffer.name.clone(), offset, bytes, first, last })
    });
    let buffers = pieces.collect();
    Memory { bytes: known(&target.scratch_bytes), steps, buffers }
}
