//! What a graph's outputs should be: all elements, or of large models a seeded sample.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Dims, Precision, Tensor};
use fornax_ir::Graph;
use fornax_ir::interp::lowered::{evaluate_samples, operations, symbols};
use fornax_ir::interp::{InterpError, Interpreter, Value};
use fornax_ir::op::expand_composites;
use fornax_runtime::compare::Arithmetic;

use super::inputs::Random;
use super::judge::{OutputReport, Reference, judge};
use crate::Error;

/// Beyond this many operations a graph is judged by samples (a second or two of evaluation).
const WHOLE_OPERATIONS: u64 = 1_000_000_000;

/// Elements that evaluating samples may read, about half a minute of evaluation. Only a single element
/// of each output may need more.
const SAMPLE_READS: u64 = 1_000_000_000;

/// How samples are spread, tried in order until one is cheap enough.
const SPREADS: [Spread; 5] = [
    Spread { elements: 1024, one_row: false },
    Spread { elements: 64, one_row: false },
    Spread { elements: 64, one_row: true },
    Spread { elements: 8, one_row: true },
    Spread { elements: 1, one_row: true },
];

#[derive(Debug, Clone, Copy)]
struct Spread {
    /// Elements of each output.
    elements: usize,
    /// Within one position along the first axis, the batch as a rule: deep models compute its elements
    /// from the same ones.
    one_row: bool,
}

/// A graph's outputs in double and in single precision.
#[derive(Debug)]
pub(super) struct References {
    exact: Vec<Value<f64>>,
    single: Vec<Value<f32>>,
    /// Row-major positions of the elements that `exact` and `single` have; none: all.
    samples: Option<Vec<Vec<usize>>>,
}

impl References {
    /// Evaluates a graph.
    pub fn evaluate(graph: &Graph, inputs: &[Tensor]) -> Result<References, Error> {
        let dims = symbols(graph, inputs)?;
        let mut primitive = graph.clone();
        expand_composites(&mut primitive)
            .map_err(|fault| Error::Reference(InterpError::Invalid(Box::new(fault))))?;
        if operations(&primitive, &dims)? <= WHOLE_OPERATIONS {
            let none = BTreeMap::new();
            let exact = Interpreter::new(graph, inputs, &none)?.outputs()?;
            let single = Interpreter::new(graph, inputs, &none)?.outputs()?;
            return Ok(References { exact, single, samples: None });
        }
        sampled(&primitive, inputs, &dims)
    }

    /// Judges what the device computed for an output, by the arithmetic, how contractions multiply, and the
    /// narrowest float type of the graph.
    pub fn judge(
        &self,
        output: usize,
        name: &str,
        actual: &Tensor,
        (arithmetic, precision, narrowest): (Arithmetic, Precision, DType),
    ) -> OutputReport {
        let (exact, single) = (&self.exact[output], &self.single[output]);
        let reference =
            Reference::interpreted(exact, single, arithmetic, actual.dtype(), narrowest)
                .with_factors(arithmetic, precision);
        let Some(samples) = &self.samples else { return judge(name, actual, &reference) };
        let samples = &samples[output];
        let mut report = judge(name, &taken(actual, samples), &reference);
        if let Some(&worst) = report.worst_index.first() {
            report.worst_index = index(samples[worst], actual.shape());
        }
        report.sampled_of = Some(actual.len());
        report
    }
}

fn sampled(graph: &Graph, inputs: &[Tensor], dims: &Dims) -> Result<References, Error> {
    let none = BTreeMap::new();
    let mut shapes = Vec::new();
    for output in graph.outputs() {
        let size = |dim: &fornax_ir::Dim| dim.eval(dims).map(|size| size.max(0) as usize);
        let shape: Result<Vec<usize>, _> = graph.ty(output.value).shape.iter().map(size).collect();
        let op = graph.node(output.value).op.name();
        shapes.push(shape.map_err(|source| InterpError::Dim { op, source })?);
    }
    let last = SPREADS.len() - 1;
    for (number, &spread) in SPREADS.iter().enumerate() {
        let samples: Vec<Vec<usize>> =
            shapes.iter().enumerate().map(|(seed, shape)| spread.positions(shape, seed)).collect();
        let limit = if number == last { u64::MAX } else { SAMPLE_READS };
        let Some(exact) = evaluate_samples(graph, inputs, &none, &samples, limit)? else {
            continue;
        };
        let single = evaluate_samples(graph, inputs, &none, &samples, u64::MAX)?;
        let single = single.expect("invariant: there is no limit");
        return Ok(References { exact, single, samples: Some(samples) });
    }
    unreachable!("invariant: the last spread has no limit")
}

impl Spread {
    /// Sorted positions in a tensor: the first and the last one of what is sampled, others at random.
    fn positions(self, shape: &[usize], seed: usize) -> Vec<usize> {
        let total: usize = shape.iter().product();
        let mut random = Random::new(seed as u64, "samples");
        let mut below = |bound: usize| random.below(bound as u64) as usize;
        let (start, length) = match shape.first() {
            Some(&rows) if self.one_row && total > 0 => {
                (below(rows) * (total / rows), total / rows)
            }
            _ => (0, total),
        };
        if length <= self.elements {
            return (start..start + length).collect();
        }
        let mut positions: Vec<usize> =
            if self.elements < 2 { vec![] } else { vec![0, length - 1] };
        while positions.len() < self.elements {
            positions.push(below(length));
        }
        positions.sort_unstable();
        positions.dedup();
        positions.into_iter().map(|position| start + position).collect()
    }
}

/// The elements at some positions, as a tensor of rank 1.
fn taken(tensor: &Tensor, positions: &[usize]) -> Tensor {
    let size = tensor.dtype().size();
    let bytes = |&position: &usize| &tensor.bytes()[position * size..][..size];
    let data: Vec<u8> = positions.iter().flat_map(bytes).copied().collect();
    Tensor::new(tensor.dtype(), [positions.len()], data).expect("invariant: one value per element")
}

fn index(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let along = position % size;
            position /= size;
            along
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use fornax_ir::text::parse_graph;

    use super::*;

    #[test]
    fn samples_are_within_the_tensor_and_hold_its_ends() {
        let all = Spread { elements: 64, one_row: false }.positions(&[10, 100], 1);
        assert_eq!((all[0], all[all.len() - 1]), (0, 999));
        assert!(all.len() > 50 && all.is_sorted());
        let row = Spread { elements: 8, one_row: true }.positions(&[10, 100], 1);
        assert_eq!(row[0] / 100, row[row.len() - 1] / 100);
        assert_eq!((row[0] % 100, row[row.len() - 1] % 100), (0, 99));
        assert_eq!(Spread { elements: 64, one_row: false }.positions(&[3], 0), [0, 1, 2]);
        assert!(Spread { elements: 64, one_row: true }.positions(&[0, 4], 0).is_empty());
        assert_eq!(Spread { elements: 1, one_row: true }.positions(&[], 0), [0]);
    }

    /// A product of a billion and more operations: one wrong element in a column of a hundred is found.
    #[test]
    fn large_graphs_are_judged_by_samples() {
        let text = "graph @large(%x: f32[2048,1024], %w: f32[1024,512]) -> (y: f32[2048,512]) {\n  \
                    %0 = matmul %x, %w : f32[2048,512]\n  return %0\n}\n";
        let graph = match parse_graph(text) {
            Ok(graph) => graph,
            Err(error) => panic!("{error}"),
        };
        let x: Vec<f32> = (0..2048 * 1024).map(|i| (i % 7) as f32 - 3.0).collect();
        let w: Vec<f32> = (0..1024 * 512).map(|i| (i % 5) as f32 - 2.0).collect();
        let inputs = [Tensor::from_f32(&[2048, 1024], &x), Tensor::from_f32(&[1024, 512], &w)];
        let references = References::evaluate(&graph, &inputs).unwrap();
        let samples = references.samples.as_ref().unwrap();
        assert!(samples[0].len() > 900);
        let element = |position: usize| -> f32 {
            let (row, column) = (position / 512, position % 512);
            (0..1024).map(|k| x[row * 1024 + k] * w[k * 512 + column]).sum()
        };
        let mut y = vec![0.0f32; 2048 * 512];
        samples[0].iter().for_each(|&position| y[position] = element(position));
        let judge = |y: &[f32]| {
            let y = Tensor::from_f32(&[2048, 512], y);
            references.judge(0, "y", &y, (Arithmetic::Model, Precision::Ieee, DType::F32))
        };
        let report = judge(&y);
        assert!(report.passed);
        assert_eq!(report.sampled_of, Some(2048 * 512));
        let wrong = samples[0][100];
        y[wrong] += 1.0;
        let report = judge(&y);
        assert!(!report.passed);
        assert_eq!(report.worst_index, [wrong / 512, wrong % 512]);
    }
}
