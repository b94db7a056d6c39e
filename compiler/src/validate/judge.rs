//! When a result counts as right.
//!
//! The truth is the reference graph evaluated in `f64`. How far a result may be from it says the table
//! in [`fornax_runtime::compare`], by the kind of arithmetic and the narrowest float type of the graph.
//! Where plain `f32` arithmetic (the same graph evaluated op by op in `f32`) is worse than that table,
//! as for ill-conditioned models, the bound is widened to [`SLACK`] times its error.

use fornax_bundle::{DType, Precision, Tensor};
use fornax_ir::Graph;
use fornax_ir::interp::Value;
use fornax_runtime::compare::{Arithmetic, Comparison, Tolerance, compare};
use serde::Serialize;

/// How much worse than plain `f32` arithmetic a result may be: sums in another order and fused
/// multiply-adds differ by small factors, wrong results by large ones.
const SLACK: f64 = 4.0;

/// What an output is judged against.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The truth, `f64` or an integer type.
    truth: Tensor,
    /// The same by plain `f32` arithmetic; none for recorded values.
    plain: Option<Vec<f64>>,
    tolerance: Tolerance,
}

/// The verdict on an output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutputReport {
    /// The output's name.
    pub name: String,
    /// Whether it is right.
    pub passed: bool,
    /// Elements compared.
    pub elements: usize,
    /// Elements of the output, where only a sample of them was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_of: Option<usize>,
    /// Elements outside the tolerance.
    pub failed: usize,
    /// Of these, elements where only one side is NaN or an infinity.
    pub nonfinite_mismatches: usize,
    /// Norm of the error over the norm of the truth.
    pub relative_error: f64,
    /// What it may be.
    pub relative_bound: f64,
    /// Where the worst element is, an index per axis.
    pub worst_index: Vec<usize>,
    /// The result there.
    pub worst_actual: f64,
    /// The truth there.
    pub worst_expected: f64,
    /// The error there, in units in the last place of the output's type.
    pub worst_ulp: f64,
}

impl Reference {
    /// The interpreter's results in double and in single precision for an output of element type
    /// `dtype`, of a graph whose narrowest float type is `narrowest`.
    pub fn interpreted(
        exact: &Value<f64>,
        single: &Value<f32>,
        arithmetic: Arithmetic,
        dtype: DType,
        narrowest: DType,
    ) -> Reference {
        let truth = match exact {
            Value::Float(_) => exact.to_tensor(DType::F64),
            Value::Int(_) => exact.to_tensor(dtype),
        };
        let plain = match single {
            Value::Float(array) => array.data.iter().map(|&value| f64::from(value)).collect(),
            Value::Int(array) => array.data.iter().map(|&value| value as f64).collect(),
        };
        let tolerance = Tolerance::of(arithmetic, judged_as(dtype, narrowest));
        Reference { truth, plain: Some(plain), tolerance }
    }

    /// The reference with the tolerance for contractions whose `f32` factors are rounded.
    pub fn with_factors(mut self, arithmetic: Arithmetic, precision: Precision) -> Reference {
        self.tolerance = self.tolerance.with_factors(arithmetic, precision);
        self
    }

    /// Recorded values: another implementation's results, rounded to the output's type, of a graph whose
    /// narrowest float type is `narrowest`.
    pub fn recorded(expected: &Tensor, narrowest: DType) -> Reference {
        let dtype = judged_as(expected.dtype(), narrowest);
        let tolerance = Tolerance::of(Arithmetic::Model, dtype);
        Reference { truth: expected.clone(), plain: None, tolerance }
    }
}

/// The type whose rounding error decides: results are no more accurate than what they are made from.
fn judged_as(dtype: DType, narrowest: DType) -> DType {
    if dtype.is_float() { narrowest } else { dtype }
}

/// The float type of least precision that some value of the graph has; `f32` without floats.
pub(crate) fn narrowest_float(graph: &Graph) -> DType {
    let rank = |dtype: &DType| match dtype {
        DType::F64 => 0,
        DType::F32 => 1,
        DType::F16 => 2,
        _ => 3,
    };
    graph
        .nodes()
        .map(|id| graph.ty(id).dtype)
        .filter(|dtype| dtype.is_float())
        .max_by_key(rank)
        .unwrap_or(DType::F32)
}

/// Judges an output.
///
/// # Panics
/// When the shapes differ; callers check them.
pub fn judge(name: &str, actual: &Tensor, reference: &Reference) -> OutputReport {
    let (truth, tolerance) = adjusted(actual, reference);
    let comparison =
        compare(actual, &truth, tolerance).expect("invariant: shapes were checked before");
    report(name, &comparison)
}

/// The truth and the tolerance with the second opinion of plain `f32` arithmetic.
///
/// `f64` does not overflow where `f32` must: where the two disagree on what is finite, a result may side
/// with either.
fn adjusted(actual: &Tensor, reference: &Reference) -> (Tensor, Tolerance) {
    let mut tolerance = reference.tolerance;
    let Some(plain) = reference.plain.as_ref().filter(|_| actual.dtype().is_float()) else {
        return (reference.truth.clone(), tolerance);
    };
    let mut truth = reference.truth.to_f64();
    let (mut error, mut norm, mut worst, mut largest) = (0.0, 0.0, 0.0f64, 0.0f64);
    for ((truth, &plain), value) in truth.iter_mut().zip(plain).zip(actual.to_f64()) {
        if truth.is_finite() && plain.is_finite() {
            error += (plain - *truth).powi(2);
            norm += truth.powi(2);
            worst = worst.max((plain - *truth).abs());
            largest = largest.max(truth.abs());
        } else if !same_kind(*truth, value) && same_kind(plain, value) {
            *truth = plain;
        }
    }
    if norm > 0.0 && norm.is_finite() {
        tolerance.frobenius = tolerance.frobenius.max(SLACK * (error / norm).sqrt());
        tolerance.of_largest = tolerance.of_largest.max(SLACK * worst / largest);
    }
    let data: Vec<u8> = truth.iter().flat_map(|value| value.to_le_bytes()).collect();
    let truth = Tensor::new(DType::F64, actual.shape(), data);
    (truth.expect("invariant: one value per element"), tolerance)
}

/// Whether both are finite, both NaN, or the same infinity.
fn same_kind(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a.is_finite() && b.is_finite())
}

fn report(name: &str, comparison: &Comparison) -> OutputReport {
    let worst = comparison.worst.as_ref();
    OutputReport {
        name: name.to_owned(),
        passed: comparison.passed,
        elements: comparison.n_elements,
        sampled_of: None,
        failed: comparison.n_failed,
        nonfinite_mismatches: comparison.n_special_failed,
        relative_error: comparison.frobenius,
        relative_bound: comparison.tolerance.frobenius,
        worst_index: worst.map(|worst| worst.index.clone()).unwrap_or_default(),
        worst_actual: worst.map_or(0.0, |worst| worst.actual),
        worst_expected: worst.map_or(0.0, |worst| worst.reference),
        worst_ulp: worst.map_or(0.0, |worst| worst.ulp),
    }
}

#[cfg(test)]
mod tests {
    use fornax_ir::interp::Array;

    use super::*;

    fn reference(truth: &[f64], plain: &[f32]) -> Reference {
        Reference::interpreted(
            &Value::Float(Array::new([truth.len()], truth.to_vec())),
            &Value::Float(Array::new([plain.len()], plain.to_vec())),
            Arithmetic::Pointwise,
            DType::F32,
            DType::F32,
        )
    }

    fn f32s(values: &[f32]) -> Tensor {
        Tensor::from_f32(&[values.len()], values)
    }

    #[test]
    fn rounding_passes_and_more_fails() {
        let right = reference(&[1.0, -2.0, 3.0], &[1.0, -2.0, 3.0]);
        assert!(judge("y", &f32s(&[1.0, -2.0, 3.0]), &right).passed);
        assert!(judge("y", &f32s(&[1.000_000_1, -2.0, 3.0]), &right).passed);
        let report = judge("y", &f32s(&[1.0, -2.0, 3.001]), &right);
        assert!(!report.passed && report.failed == 1);
        assert_eq!(report.worst_index, [2]);
        assert!(!judge("y", &f32s(&[0.0; 3]), &right).passed);
    }

    #[test]
    fn the_bound_follows_plain_arithmetic() {
        let ill_conditioned = reference(&[1.0, -2.0, 3.0], &[1.0, -2.0, 3.0005]);
        assert!(judge("y", &f32s(&[1.0, -2.0, 3.001]), &ill_conditioned).passed);
        assert!(!judge("y", &f32s(&[1.0, -2.0, 3.1]), &ill_conditioned).passed);
    }

    #[test]
    fn a_result_may_overflow_where_plain_arithmetic_does() {
        let overflowing =
            reference(&[f64::NAN, 1e30, f64::INFINITY], &[f32::NAN, f32::INFINITY, f32::INFINITY]);
        let right = f32s(&[f32::NAN, f32::INFINITY, f32::INFINITY]);
        assert!(judge("y", &right, &overflowing).passed);
        assert!(judge("y", &f32s(&[f32::NAN, 1e30, f32::INFINITY]), &overflowing).passed);
        let wrong = f32s(&[0.0, f32::NAN, -f32::INFINITY]);
        assert_eq!(judge("y", &wrong, &overflowing).nonfinite_mismatches, 3);
    }

    #[test]
    fn recorded_results_are_as_accurate_as_the_narrowest_type() {
        let expected = f32s(&[1.0, -2.0, 3.0]);
        let actual = f32s(&[1.0005, -2.0005, 3.001]);
        assert!(judge("y", &actual, &Reference::recorded(&expected, DType::F16)).passed);
        assert!(!judge("y", &actual, &Reference::recorded(&expected, DType::F32)).passed);
    }

    #[test]
    fn integers_are_exact() {
        let exact = Reference::recorded(&Tensor::from_i64(&[2], &[3, 4]), DType::F16);
        assert!(judge("y", &Tensor::from_i64(&[2], &[3, 4]), &exact).passed);
        assert!(!judge("y", &Tensor::from_i64(&[2], &[3, 5]), &exact).passed);
    }
}
