//! Comparing a result with a reference.
//!
//! The reference is trusted: it comes from the interpreter in f64, or from recorded tensors. Errors are
//! measured in units in the last place (ulp) of the *result's* element type, taken at the reference's
//! value: what a perfect implementation could get wrong is half of one.

use fornax_bundle::{DType, Precision, Tensor};

/// How far a result may be from the reference.
///
/// An element passes when its error is at most `ulp` ulps *or* at most `of_largest` times the largest
/// magnitude of the reference; the tensor passes when all elements do and the relative Frobenius
/// norm of the error is at most `frobenius`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Units in the last place at the reference's value.
    pub ulp: f64,
    /// Share of the reference's largest finite magnitude. It covers what cancels: there, an error that is
    /// small beside the operands is large beside the result.
    pub of_largest: f64,
    /// Frobenius norm of the error over that of the reference.
    pub frobenius: f64,
    /// Why these numbers.
    pub reason: &'static str,
}

/// What kind of arithmetic a result comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arithmetic {
    /// Values are moved, not computed.
    Exact,
    /// Chains of pointwise operations.
    Pointwise,
    /// Sums and other folds along an axis, norms, softmax, scans.
    Reduce,
    /// Sums of products.
    Contraction,
    /// A whole model.
    Model,
}

/// Tolerances by arithmetic: `ulp`, and `of_largest` and `frobenius` in units of the element type's
/// rounding error u = 2^-p for p bits of precision.
#[rustfmt::skip]
const TOLERANCES: [(Arithmetic, f64, f64, f64, &str); 5] = [
    (Arithmetic::Exact,         0.0,    0.0,   0.0,
     "no arithmetic, so the bits must agree"),
    (Arithmetic::Pointwise,    32.0,   16.0,   8.0,
     "a region chains a handful of operations of at most 2 ulp each, and exp and pow magnify the error \
      of their argument by its size"),
    (Arithmetic::Reduce,       64.0,   64.0,  16.0,
     "a sum of n terms has a worst-case error of (n - 1) u times the sum of magnitudes and, added in \
      blocks, a typical one of a few u (Higham, Accuracy and Stability, section 4.2)"),
    (Arithmetic::Contraction,  64.0,  256.0,  64.0,
     "cuBLAS fp32 itself is off by up to 20 u in Frobenius norm (1.2e-6 at 1024x8192x8192); one \
      accumulator over all of K grows like the square root of K times u"),
    (Arithmetic::Model,        64.0, 2048.0, 512.0,
     "tens of layers, each with the error of a contraction, that later layers pass on"),
];

/// What rounding the factors of `f32` contractions adds to `of_largest` and `frobenius`, in units of the
/// factors' rounding error u ([`Precision::factor_rounding`]).
///
/// A product of two rounded factors is off by at most 2 u and typically by 0.8 u (two independent errors
/// of variance u^2 / 3); over a sum of products of either sign the errors add up as the products do, so
/// that the sum's relative Frobenius error stays there (TF32 on an H200: 2.9e-4 = 0.6 u at 4096^3).
#[rustfmt::skip]
const FACTORS: [(Arithmetic, f64, f64, &str); 4] = [
    (Arithmetic::Exact,          1.0,  1.0, "elements that are rounded to factors when they are packed"),
    (Arithmetic::Pointwise,      1.0,  1.0, "elements that are rounded to factors when they are packed"),
    (Arithmetic::Contraction,   16.0,  4.0,
     "rounded factors: 0.8 u in Frobenius norm where products have either sign, more where they cancel; \
      single elements five times that"),
    (Arithmetic::Model,        128.0, 32.0,
     "rounded factors in tens of layers, each error passed on by the later ones"),
];

/// The largest `of_largest` and `frobenius` of any tolerance. Zeros are off by 1 in the norm, and results
/// that have nothing to do with the truth by more: a bound near that says nothing, however coarse the
/// element type.
const LOOSEST: f64 = 0.25;

impl Arithmetic {
    /// The arithmetic of a region, by the class that the manifest names.
    pub fn of_region(class: &str) -> Arithmetic {
        match class {
            "movement" => Arithmetic::Exact,
            "pointwise" => Arithmetic::Pointwise,
            "reduce" | "rows" | "scan" => Arithmetic::Reduce,
            "contraction" | "reduced" | "window" => Arithmetic::Contraction,
            _ => Arithmetic::Model,
        }
    }
}

impl Tolerance {
    /// The tolerance for results of an element type.
    pub fn of(arithmetic: Arithmetic, dtype: DType) -> Tolerance {
        let (_, ulp, of_largest, frobenius, reason) = TOLERANCES
            .into_iter()
            .find(|row| row.0 == arithmetic)
            .expect("invariant: the table has a row for each arithmetic");
        if let Some(format) = Format::of(dtype) {
            let unit = format.rounding();
            let [of_largest, frobenius] =
                [of_largest, frobenius].map(|units| LOOSEST.min(units * unit));
            return Tolerance { ulp, of_largest, frobenius, reason };
        }
        let quantised = matches!(dtype, DType::I8 | DType::U8) && arithmetic != Arithmetic::Exact;
        if quantised {
            let reason = "a quotient within rounding error of a tie may be quantised either way";
            return Tolerance { ulp: 1.0, of_largest: 0.0, frobenius: f64::INFINITY, reason };
        }
        let reason = "integers and truth values are exact";
        Tolerance { ulp: 0.0, of_largest: 0.0, frobenius: 0.0, reason }
    }
}

impl Tolerance {
    /// The tolerance where factors of `f32` contractions are rounded as `precision` says.
    pub fn with_factors(mut self, arithmetic: Arithmetic, precision: Precision) -> Tolerance {
        let unit = precision.factor_rounding();
        let Some((_, of_largest, frobenius, reason)) =
            FACTORS.into_iter().find(|row| row.0 == arithmetic && unit > 0.0)
        else {
            return self;
        };
        let [of_largest, frobenius] =
            [of_largest, frobenius].map(|units| LOOSEST.min(units * unit));
        if frobenius > self.frobenius {
            self.reason = reason;
        }
        self.of_largest = self.of_largest.max(of_largest);
        self.frobenius = self.frobenius.max(frobenius);
        self
    }
}

/// A result beside its reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Whether the result is within the tolerance.
    pub passed: bool,
    /// Elements compared.
    pub n_elements: usize,
    /// Elements outside the tolerance, disagreements on NaN and infinity among them.
    pub n_failed: usize,
    /// Elements where one side is NaN or infinite and the other is not, or of the other sign.
    pub n_special_failed: usize,
    /// The element with the largest error for its tolerance: a special disagreement comes first.
    pub worst: Option<Element>,
    /// The largest error in ulp.
    pub max_ulp: f64,
    /// The largest absolute error.
    pub max_absolute: f64,
    /// The largest error relative to the reference's element.
    pub max_relative: f64,
    /// Frobenius norm of the error over that of the reference; infinite when only the latter is 0.
    pub frobenius: f64,
    /// The tolerance it was held against.
    pub tolerance: Tolerance,
}

/// One element of a result beside the reference's.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Where it is, outermost dimension first.
    pub index: Vec<usize>,
    /// The result's value.
    pub actual: f64,
    /// The reference's value.
    pub reference: f64,
    /// The error in units in the last place.
    pub ulp: f64,
    /// The absolute error.
    pub absolute: f64,
    /// The error relative to the reference; infinite when that is 0 and the error is not.
    pub relative: f64,
}

/// Tensors that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tensor of shape {actual:?} cannot be compared with one of shape {reference:?}")]
pub struct ShapesDiffer {
    /// The result's shape.
    pub actual: Vec<usize>,
    /// The reference's shape.
    pub reference: Vec<usize>,
}

/// Compares a result with a reference, which may have another (usually wider) element type.
///
/// NaN agrees with NaN, an infinity with itself. A finite reference too large for the result's type
/// agrees with the infinity that it rounds to.
///
/// # Errors
/// When the shapes differ.
pub fn compare(
    actual: &Tensor,
    reference: &Tensor,
    tolerance: Tolerance,
) -> Result<Comparison, ShapesDiffer> {
    if actual.shape() != reference.shape() {
        return Err(ShapesDiffer {
            actual: actual.shape().to_vec(),
            reference: reference.shape().to_vec(),
        });
    }
    let format = Format::of(actual.dtype());
    let (values, references) = (actual.to_f64(), reference.to_f64());
    let exact = actual.to_i64().zip(reference.to_i64());
    let largest = references.iter().filter(|r| r.is_finite()).fold(0.0f64, |m, r| m.max(r.abs()));
    let allowed_anywhere = tolerance.of_largest * largest;
    let mut sums = Sums::default();
    let mut worst: Option<(f64, usize, Errors)> = None;
    for (position, (&value, &reference)) in values.iter().zip(&references).enumerate() {
        let errors = match &exact {
            Some((values, references)) => {
                // 64-bit integers do not fit into f64.
                let difference = i128::from(values[position]) - i128::from(references[position]);
                Errors::finite(difference.unsigned_abs() as f64, reference, 1.0)
            }
            None => Errors::between(value, reference, format),
        };
        let share = errors.share_of(tolerance.ulp, allowed_anywhere);
        sums.add(&errors, reference, share > 1.0);
        if worst.as_ref().is_none_or(|(most, ..)| share > *most) {
            worst = Some((share, position, errors));
        }
    }
    let frobenius = sums.frobenius();
    let worst = worst.map(|(_, position, errors)| Element {
        index: unravel(position, actual.shape()),
        actual: values[position],
        reference: references[position],
        ulp: errors.ulp,
        absolute: errors.absolute,
        relative: errors.relative,
    });
    Ok(Comparison {
        // Written so that a NaN would fail.
        passed: sums.n_failed == 0 && frobenius <= tolerance.frobenius,
        n_elements: values.len(),
        n_failed: sums.n_failed,
        n_special_failed: sums.n_special_failed,
        worst,
        max_ulp: sums.max_ulp,
        max_absolute: sums.max_absolute,
        max_relative: sums.max_relative,
        frobenius,
        tolerance,
    })
}

/// A floating-point format.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// Bits of precision, the hidden one among them.
    precision: i32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
    /// The largest finite number.
    max: f64,
}

impl Format {
    /// IEEE 754-2019 table 3.5; bfloat16 is binary32 cut to 8 bits; 8-bit floats by the OCP specification.
    fn of(dtype: DType) -> Option<Format> {
        let (precision, min_exponent, max) = match dtype {
            DType::F64 => (53, -1022, f64::MAX),
            DType::F32 => (24, -126, f64::from(f32::MAX)),
            DType::F16 => (11, -14, 65504.0),
            DType::BF16 => (8, -126, half::bf16::MAX.to_f64()),
            DType::F8E4M3 => (4, -6, 448.0),
            DType::F8E5M2 => (3, -14, 57344.0),
            _ => return None,
        };
        Some(Format { precision, min_exponent, max })
    }

    /// The largest relative error of rounding: 2^-precision.
    fn rounding(self) -> f64 {
        f64::powi(2.0, -self.precision)
    }

    /// The distance between neighbouring numbers of the format at a finite value.
    fn spacing(self, value: f64) -> f64 {
        let exponent = ilogb(value.abs().min(self.max)).max(self.min_exponent);
        // In two steps, since 2^-1074 is out of `powi`'s reach in one.
        f64::powi(2.0, exponent) * f64::powi(2.0, 1 - self.precision)
    }
}

/// Exponent of the leading bit of a magnitude that is not infinite; very small for 0.
fn ilogb(magnitude: f64) -> i32 {
    match magnitude.to_bits() >> 52 {
        0 if magnitude == 0.0 => i32::MIN / 2,
        0 => -1011 - magnitude.to_bits().leading_zeros() as i32,
        biased => biased as i32 - 1023,
    }
}

/// The errors of one element.
#[derive(Debug, Clone, Copy)]
struct Errors {
    ulp: f64,
    absolute: f64,
    relative: f64,
    special: bool,
}

impl Errors {
    const NONE: Errors = Errors { ulp: 0.0, absolute: 0.0, relative: 0.0, special: false };
    const SPECIAL: Errors = Errors {
        ulp: f64::INFINITY,
        absolute: f64::INFINITY,
        relative: f64::INFINITY,
        special: true,
    };

    fn between(actual: f64, reference: f64, format: Option<Format>) -> Errors {
        if actual == reference || (actual.is_nan() && reference.is_nan()) {
            return Errors::NONE;
        }
        if actual.is_nan() || !reference.is_finite() {
            return Errors::SPECIAL;
        }
        let Some(format) = format else {
            // An integer result of a reference in floating point.
            return Errors::finite((actual - reference).abs(), reference, 1.0);
        };
        let spacing = format.spacing(reference);
        if actual.is_infinite() {
            // The number after the largest one stands for infinity, which is also where rounding puts it.
            let beyond = (format.max + format.spacing(format.max)).copysign(actual);
            return match (beyond - reference).abs() {
                _ if actual.signum() != reference.signum() => Errors::SPECIAL,
                _ if reference.abs() >= format.max + spacing / 2.0 => Errors::NONE,
                absolute if absolute.is_finite() => Errors::finite(absolute, reference, spacing),
                _ => Errors::SPECIAL,
            };
        }
        Errors::finite((actual - reference).abs(), reference, spacing)
    }

    fn finite(absolute: f64, reference: f64, spacing: f64) -> Errors {
        if absolute == 0.0 {
            return Errors::NONE;
        }
        // f64 subnormals: the spacing itself may round to 0.
        let ulp = absolute / spacing.max(f64::from_bits(1));
        Errors { ulp, absolute, relative: absolute / reference.abs(), special: false }
    }

    /// The error as a share of what is allowed; more than 1 fails.
    fn share_of(&self, ulp: f64, absolute: f64) -> f64 {
        let share = |error: f64, allowed: f64| match error {
            0.0 => 0.0,
            error if allowed > 0.0 => error / allowed,
            _ => f64::INFINITY,
        };
        share(self.ulp, ulp).min(share(self.absolute, absolute))
    }
}

#[derive(Debug, Default)]
struct Sums {
    n_failed: usize,
    n_special_failed: usize,
    max_ulp: f64,
    max_absolute: f64,
    max_relative: f64,
    /// Largest magnitudes, by which squares are scaled so that they do not overflow.
    errors: ScaledSquares,
    references: ScaledSquares,
}

impl Sums {
    fn add(&mut self, errors: &Errors, reference: f64, failed: bool) {
        self.n_failed += usize::from(failed);
        self.n_special_failed += usize::from(errors.special);
        self.max_ulp = self.max_ulp.max(errors.ulp);
        self.max_absolute = self.max_absolute.max(errors.absolute);
        self.max_relative = self.max_relative.max(errors.relative);
        if !errors.special && reference.is_finite() {
            self.errors.add(errors.absolute);
            self.references.add(reference);
        }
    }

    fn frobenius(&self) -> f64 {
        match (self.errors.norm(), self.references.norm()) {
            (0.0, _) => 0.0,
            (error, reference) => error / reference,
        }
    }
}

/// A sum of squares `scale^2 * sum`, as in LAPACK's `dlassq`.
#[derive(Debug, Default)]
struct ScaledSquares {
    scale: f64,
    sum: f64,
}

impl ScaledSquares {
    fn add(&mut self, value: f64) {
        let value = value.abs();
        if value == 0.0 {
            return;
        }
        if value > self.scale {
            self.sum = 1.0 + self.sum * (self.scale / value).powi(2);
            self.scale = value;
        } else {
            self.sum += (value / self.scale).powi(2);
        }
    }

    fn norm(&self) -> f64 {
        self.scale * self.sum.sqrt()
    }
}

fn unravel(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &size) in shape.iter().enumerate().rev() {
        index[axis] = position % size;
        position /= size;
    }
    index
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(worst) = &self.worst else {
            return f.write_str("no elements");
        };
        write!(
            f,
            "{} of {} elements outside the tolerance; worst at {:?}: {:e}, reference {:e}: {:.3} ulp, \
             {:.3e} absolute, {:.3e} relative; Frobenius {:.3e}",
            self.n_failed,
            self.n_elements,
            worst.index,
            worst.actual,
            worst.reference,
            worst.ulp,
            worst.absolute,
            worst.relative,
            self.frobenius
        )?;
        if self.n_special_failed > 0 {
            write!(f, "; {} disagree on NaN or infinity", self.n_special_failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTWISE: Arithmetic = Arithmetic::Pointwise;

    fn f64s(values: &[f64]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(DType::F64, [values.len()], bytes).unwrap()
    }

    fn against(actual: &[f32], reference: &[f64], tolerance: Tolerance) -> Comparison {
        let actual = Tensor::from_f32(&[actual.len()], actual);
        compare(&actual, &f64s(reference), tolerance).unwrap()
    }

    fn f32_ulp(actual: f32, reference: f64) -> f64 {
        against(&[actual], &[reference], Tolerance::of(POINTWISE, DType::F32)).max_ulp
    }

    #[test]
    fn ulps_are_those_of_the_result() {
        assert_eq!(f32_ulp(1.0, 1.0), 0.0);
        assert_eq!(f32_ulp(1.0f32.next_up(), 1.0), 1.0);
        assert_eq!(f32_ulp(1.0, 1.0 + f64::EPSILON * 2f64.powi(28)), 0.5, "half an ulp of 2^-23");
        assert_eq!(f32_ulp(1024.0f32.next_up().next_up(), 1024.0), 2.0);
        assert_eq!(f32_ulp(f32::from_bits(3), 0.0), 3.0, "subnormals are evenly spaced");
        assert_eq!(f32_ulp(-0.0, 0.0), 0.0);
        let f64_ulp = |actual: f64, reference: f64| {
            let tolerance = Tolerance::of(POINTWISE, DType::F64);
            compare(&f64s(&[actual]), &f64s(&[reference]), tolerance).unwrap().max_ulp
        };
        assert_eq!(f64_ulp(f64::from_bits(7), f64::from_bits(5)), 2.0);
        assert_eq!(
            f64_ulp(1.0f64.next_down(), 1.0),
            0.5,
            "the spacing halves below a power of two"
        );
        assert_eq!(f64_ulp(f64::MAX, f64::MAX.next_down()), 1.0);
    }

    #[test]
    fn exponents_are_exact() {
        let values = [
            1.0,
            1.5,
            2.0,
            0.75,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::from_bits(6),
        ];
        assert_eq!(values.map(ilogb), [0, 0, 1, -1, 1023, -1022, -1074, -1072]);
    }

    #[test]
    fn special_values_must_agree() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let tolerance = Tolerance::of(Arithmetic::Model, DType::F32);
        let check = |actual: f32, reference: f64| {
            let comparison = against(&[actual, 1.0], &[reference, 1.0], tolerance);
            assert_eq!(comparison.passed, comparison.n_failed == 0);
            assert_eq!(comparison.n_special_failed, comparison.n_failed);
            comparison.passed
        };
        assert!(check(nan, f64::NAN) && check(inf, f64::INFINITY) && check(-inf, -f64::INFINITY));
        assert!(check(inf, 1e39), "an f64 that f32 cannot hold");
        assert!(check(inf, f64::from(f32::MAX)), "one ulp below where rounding overflows");
        assert!(!check(nan, 1.0) && !check(1.0, f64::NAN) && !check(inf, f64::NAN));
        assert!(!check(-inf, f64::INFINITY) && !check(f32::MAX, f64::INFINITY));
        assert!(!check(-inf, 1e39));
        let far = against(&[inf, 1.0], &[1.0, 1.0], tolerance);
        assert!(!far.passed && far.n_failed == 1);
    }

    #[test]
    fn the_worst_element_is_found() {
        let tolerance = Tolerance { ulp: 4.0, of_largest: 0.0, frobenius: 1.0, reason: "" };
        let actual = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.5, 6.0]);
        let comparison = compare(
            &actual,
            &f64s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).reshaped([2, 3]).unwrap(),
            tolerance,
        )
        .unwrap();
        let worst = comparison.worst.clone().unwrap();
        assert_eq!((worst.index, worst.actual, worst.reference), (vec![1, 1], 5.5, 5.0));
        assert_eq!((worst.absolute, worst.relative), (0.5, 0.1));
        assert_eq!(worst.ulp, 0.5 * 2f64.powi(21));
        assert_eq!((comparison.passed, comparison.n_failed), (false, 1));
        assert!((comparison.frobenius - 0.5 / 91f64.sqrt()).abs() < 1e-15);
        assert!(
            comparison
                .to_string()
                .starts_with("1 of 6 elements outside the tolerance; worst at [1, 1]")
        );
    }

    #[test]
    fn cancellation_is_forgiven_where_large_values_stand() {
        let tolerance = Tolerance { ulp: 1.0, of_largest: 1e-6, frobenius: 1.0, reason: "" };
        assert!(against(&[1e-7, 1.0], &[0.0, 1.0], tolerance).passed);
        assert!(!against(&[1e-7, 1e-2], &[0.0, 1e-2], tolerance).passed);
    }

    #[test]
    fn integers_are_exact_beyond_2_to_the_53() {
        let tolerance = Tolerance::of(Arithmetic::Model, DType::I64);
        let big = (1i64 << 60) + 1;
        let same =
            compare(&Tensor::from_i64(&[1], &[big]), &Tensor::from_i64(&[1], &[big]), tolerance);
        assert!(same.unwrap().passed);
        let off = compare(
            &Tensor::from_i64(&[1], &[big]),
            &Tensor::from_i64(&[1], &[big - 1]),
            tolerance,
        )
        .unwrap();
        assert_eq!((off.passed, off.max_absolute), (false, 1.0));
        let byte = |value| Tensor::new(DType::I8, [1], vec![value]).unwrap();
        let pointwise = Tolerance::of(POINTWISE, DType::I8);
        assert!(compare(&byte(5), &byte(6), pointwise).unwrap().passed);
        assert!(!compare(&byte(5), &byte(7), pointwise).unwrap().passed);
        assert!(
            !compare(&byte(5), &byte(6), Tolerance::of(Arithmetic::Exact, DType::I8))
                .unwrap()
                .passed
        );
    }

    #[test]
    fn shapes_must_agree_and_may_be_empty() {
        let tolerance = Tolerance::of(POINTWISE, DType::F32);
        let empty = Tensor::from_f32(&[0, 2], &[]);
        let comparison = compare(&empty, &empty, tolerance).unwrap();
        assert!(comparison.passed && comparison.worst.is_none());
        assert!(compare(&empty, &Tensor::from_f32(&[2, 0], &[]), tolerance).is_err());
    }

    #[test]
    fn zeros_fail_whatever_the_type_and_precision() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for precision in Precision::ALL {
                let tolerance = Tolerance::of(Arithmetic::Model, dtype);
                let tolerance = tolerance.with_factors(Arithmetic::Model, *precision);
                assert!(!against(&[0.0; 3], &[1.0, -2.0, 0.5], tolerance).passed);
                assert!(against(&[1.0, -2.0, 0.5], &[1.0, -2.0, 0.5], tolerance).passed);
            }
        }
    }

    #[test]
    fn every_arithmetic_has_a_tolerance_and_looser_ones_follow_stricter_ones() {
        for pair in TOLERANCES.windows(2) {
            let [strict, loose] = pair else { continue };
            assert!(strict.0 < loose.0 && strict.1 <= loose.1 && strict.2 <= loose.2);
        }
        let tolerance = Tolerance::of(Arithmetic::Contraction, DType::F32);
        assert_eq!(tolerance.frobenius, 64.0 * 2f64.powi(-24));
        assert_eq!(Arithmetic::of_region("contraction"), Arithmetic::Contraction);
    }
}
