//! How accurately contractions multiply.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How accurately the contraction of one region multiplies `f32` factors. Factors of narrower types are
/// never rounded further, and sums are always kept in at least the result's type.
///
/// It is what a schedule may do at most: one that is more accurate is right as well.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Fused multiply-adds in the model's own element types.
    #[default]
    Ieee,
    /// As accurate as sums of products in `f32`, by whatever instructions.
    Fp32,
    /// Factors are rounded to TF32: the range of `f32` with 11 bits of precision.
    Tf32,
    /// Factors are rounded to bfloat16: the range of `f32` with 8 bits of precision.
    Bf16,
    /// Factors are rounded to binary16: 11 bits of precision, magnitudes up to 65504.
    Fp16,
}

/// The fewest channels of a convolution in which [`PrecisionPolicy::Torch`] rounds to TF32.
const TORCH_TF32_CHANNELS: i64 = 16;

/// Which [`Precision`] the contractions of a model get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PrecisionPolicy {
    /// [`Precision::Ieee`] everywhere.
    Ieee,
    /// [`Precision::Fp32`] everywhere.
    #[default]
    Fp32,
    /// [`Precision::Tf32`] everywhere.
    Tf32,
    /// [`Precision::Bf16`] everywhere.
    Bf16,
    /// [`Precision::Fp16`] everywhere.
    Fp16,
    /// What PyTorch does unless told otherwise: [`Precision::Fp32`] for matrix products
    /// (`torch.backends.cuda.matmul.allow_tf32` is off), `Tf32` for the convolutions in which cuDNN uses
    /// it (`torch.backends.cudnn.allow_tf32` is on): see [`PrecisionPolicy::convolutions`].
    Torch,
}

/// Text names of an enum's values.
macro_rules! named_values {
    ($ty:ident { $($name:literal => $value:ident),* }) => {
        impl $ty {
            /// All values.
            pub const ALL: &'static [$ty] = &[$($ty::$value),*];
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($ty::$value => $name),* })
            }
        }

        impl FromStr for $ty {
            type Err = String;
            fn from_str(text: &str) -> Result<$ty, String> {
                match text {
                    $($name => Ok($ty::$value),)*
                    _ => Err(format!(
                        "there is no precision `{text}`; use {}",
                        [$($name),*].join(", ")
                    )),
                }
            }
        }
    };
}
named_values!(Precision {
    "ieee" => Ieee, "fp32" => Fp32, "tf32" => Tf32, "bf16" => Bf16, "fp16" => Fp16
});
named_values!(PrecisionPolicy {
    "ieee" => Ieee, "fp32" => Fp32, "tf32" => Tf32, "bf16" => Bf16, "fp16" => Fp16,
    "torch" => Torch
});

impl Precision {
    /// The relative error of rounding a factor of `f32` (half a unit in the last place); 0 when none is
    /// rounded.
    pub fn factor_rounding(self) -> f64 {
        match self {
            Precision::Ieee | Precision::Fp32 => 0.0,
            Precision::Tf32 | Precision::Fp16 => f64::powi(2.0, -11),
            Precision::Bf16 => f64::powi(2.0, -8),
        }
    }
}

impl PrecisionPolicy {
    /// What a convolution in so many groups gets, each of which sums over so many channels (none where
    /// that is not known at compile time).
    ///
    /// cuDNN may use TF32 everywhere and does not: on an H200 its errors against `f64` are those of `f32`
    /// in all convolutions with groups and in nearly all with fewer than 16 channels
    /// (`err_eager` in `bench/results/2026-11-30-4bf7eb2-kernelbench-B.csv`). `Torch` must not be less
    /// accurate than PyTorch is, so those get `Fp32`.
    pub fn convolutions(self, groups: i64, channels: Option<i64>) -> Precision {
        let wide = channels.is_some_and(|channels| channels >= TORCH_TF32_CHANNELS);
        match self {
            PrecisionPolicy::Torch if wide && groups == 1 => Precision::Tf32,
            other => other.products(),
        }
    }

    /// What any other contraction gets.
    pub fn products(self) -> Precision {
        match self {
            PrecisionPolicy::Ieee => Precision::Ieee,
            PrecisionPolicy::Fp32 | PrecisionPolicy::Torch => Precision::Fp32,
            PrecisionPolicy::Tf32 => Precision::Tf32,
            PrecisionPolicy::Bf16 => Precision::Bf16,
            PrecisionPolicy::Fp16 => Precision::Fp16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(*precision));
        }
        for policy in PrecisionPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(*policy));
        }
        let error = "tf16".parse::<PrecisionPolicy>().unwrap_err();
        assert!(error.contains("tf16") && error.contains("torch"), "{error}");
    }

    #[test]
    fn torch_tells_convolutions_apart() {
        let torch = PrecisionPolicy::Torch;
        assert_eq!(torch.products(), Precision::Fp32);
        assert_eq!(torch.convolutions(1, Some(16)), Precision::Tf32);
        assert_eq!(torch.convolutions(1, Some(3)), Precision::Fp32);
        assert_eq!(torch.convolutions(4, Some(32)), Precision::Fp32);
        assert_eq!(torch.convolutions(1, None), Precision::Fp32);
        assert_eq!(PrecisionPolicy::Tf32.convolutions(4, Some(3)), Precision::Tf32);
    }
}
