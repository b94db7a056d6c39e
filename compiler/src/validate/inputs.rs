//! Inputs made from a seed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fornax_bundle::manifest::Port;
use fornax_bundle::{DType, Dims, Tensor};
use fornax_ir::Dim;
use rayon::prelude::*;

/// How inputs are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Floats: normal, mean 0, deviation 1. Integers and bools: uniform in their range.
    Normal,
    /// Floats: uniform in [0, 1). Integers and bools: uniform in their range.
    Uniform,
    /// Floats: a mixture of normal values with zeros of both signs, infinities, NaN, subnormals and
    /// the largest and smallest numbers. Integers: the ends of their range among uniform ones.
    Special,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Distribution; 3] =
        [Distribution::Normal, Distribution::Uniform, Distribution::Special];
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Normal => "normal",
            Distribution::Uniform => "uniform",
            Distribution::Special => "special",
        })
    }
}

impl FromStr for Distribution {
    type Err = String;
    fn from_str(text: &str) -> Result<Distribution, String> {
        Distribution::ALL
            .into_iter()
            .find(|distribution| distribution.to_string() == text)
            .ok_or_else(|| "use one of: normal, uniform, special".to_owned())
    }
}

/// Values an input may take, ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputRange {
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
}

impl InputRange {
    /// What integers take when nothing was said: small enough for most index inputs.
    pub const DEFAULT_INT: InputRange = InputRange { low: 0.0, high: 1.0 };

    /// Parses `0..255` or `-1.5..1.5`.
    ///
    /// # Errors
    /// When the text is not two numbers in order.
    pub fn parse(text: &str) -> Result<InputRange, String> {
        let expected = || format!("`{text}`: expected low..high, as in 0..255");
        let (low, high) = text.split_once("..").ok_or_else(expected)?;
        let low: f64 = low.trim().parse().map_err(|_| expected())?;
        let high: f64 = high.trim().parse().map_err(|_| expected())?;
        if low <= high && low.is_finite() && high.is_finite() {
            Ok(InputRange { low, high })
        } else {
            Err(expected())
        }
    }
}

/// Elements that are drawn one after another; blocks of them are drawn at once.
const BLOCK: usize = 1 << 16;

/// A tensor for an input, from a seed, the input's name, and nothing else.
///
/// # Errors
/// When a symbolic size has no value in `dims`.
pub fn make(
    port: &Port,
    dims: &Dims,
    distribution: Distribution,
    range: Option<InputRange>,
    seed: u64,
) -> Result<Tensor, String> {
    let shape: Vec<usize> = port
        .shape
        .iter()
        .map(|size: &Dim| {
            let size = size.eval(dims).map_err(|error| {
                format!("input `{}`: {error}; give it with --dim name=size", port.name)
            })?;
            usize::try_from(size).map_err(|_| format!("input `{}`: negative size", port.name))
        })
        .collect::<Result<_, String>>()?;
    let count: usize = shape.iter().product();
    let random = Random::new(seed, &port.name);
    let size = port.dtype.size();
    let mut data = vec![0; count * size];
    data.par_chunks_mut(BLOCK * size).enumerate().for_each(|(block, chunk)| {
        let mut random = random.block(block as u64);
        for bytes in chunk.chunks_exact_mut(size) {
            encode(port.dtype, element(port.dtype, distribution, range, &mut random), bytes);
        }
    });
    Tensor::new(port.dtype, shape, data).map_err(|error| error.to_string())
}

fn element(
    dtype: DType,
    distribution: Distribution,
    range: Option<InputRange>,
    random: &mut Random,
) -> f64 {
    if !dtype.is_float() {
        let InputRange { low, high } = range.unwrap_or(InputRange::DEFAULT_INT);
        let at_end = distribution == Distribution::Special && random.below(4) == 0;
        return match (at_end, random.below(2)) {
            (true, 0) => low,
            (true, _) => high,
            (false, _) => (low + (random.unit() * (high - low + 1.0)).floor()).min(high),
        };
    }
    if let Some(InputRange { low, high }) = range {
        return low + random.unit() * (high - low);
    }
    match distribution {
        Distribution::Normal => random.normal(),
        Distribution::Uniform => random.unit(),
        Distribution::Special => match random.below(8) {
            0 => special(dtype, random.below(12)),
            _ => random.normal(),
        },
    }
}

/// The numbers that break careless kernels.
fn special(dtype: DType, which: u64) -> f64 {
    let (largest, smallest, subnormal) = match dtype {
        DType::F16 => (65504.0, 6.103_515_625e-5, 5.960_464_477_539_063e-8),
        DType::F64 => (f64::MAX, f64::MIN_POSITIVE, 5e-324),
        _ => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), 1.401_298_464_324_817e-45),
    };
    [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        largest,
        -largest,
        smallest,
        subnormal,
        -subnormal,
        1.0,
        -1.0,
    ][which as usize]
}

fn encode(dtype: DType, value: f64, bytes: &mut [u8]) {
    match dtype {
        DType::F64 => bytes.copy_from_slice(&value.to_le_bytes()),
        DType::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
        DType::F16 => bytes.copy_from_slice(&half::f16::from_f64(value).to_le_bytes()),
        DType::BF16 => bytes.copy_from_slice(&half::bf16::from_f64(value).to_le_bytes()),
        DType::F8E4M3 | DType::F8E5M2 => bytes.fill(0),
        _ => bytes.copy_from_slice(&(value as i64).to_le_bytes()[..bytes.len()]),
    }
}

/// Sizes for symbols: what was given, the rest at the smallest size of at least 2 that is allowed.
pub fn default_dims(
    declared: &[fornax_bundle::manifest::DimDecl],
    given: &BTreeMap<String, u64>,
) -> Dims {
    declared
        .iter()
        .map(|decl| {
            let least = decl.range.min.max(2.min(decl.range.max));
            let value = given.get(&*decl.name).map_or(least, |&size| size as i64);
            (decl.name.clone(), value)
        })
        .collect()
}

/// A small generator of random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), seeded by a
/// number and a name.
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64, name: &str) -> Random {
        // FNV-1a over the name (Fowler, Noll and Vo), so that inputs differ.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Random(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The same numbers from so many blocks of 2^32 on.
    fn block(&self, block: u64) -> Random {
        Random(self.0.wrapping_add((block << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by the Box-Muller transform.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(dtype: DType) -> Port {
        Port { name: "x".into(), dtype, shape: vec![Dim::symbol("n"), Dim::constant(100)] }
    }

    #[test]
    fn seeded_and_in_range() {
        let dims = Dims::from([("n".into(), 10)]);
        let range = Some(InputRange::parse("0..256").unwrap());
        let make =
            |seed| make(&port(DType::I32), &dims, Distribution::Uniform, range, seed).unwrap();
        let values = make(1).to_i64().unwrap();
        assert_eq!(values, make(1).to_i64().unwrap());
        assert_ne!(values, make(2).to_i64().unwrap());
        assert!(values.iter().all(|value| (0..=256).contains(value)));
        assert!(values.iter().min() < Some(&6) && values.iter().max() > Some(&250));
    }

    #[test]
    fn distributions_are_what_they_say() {
        let dims = Dims::from([("n".into(), 100)]);
        let make = |dtype, distribution| {
            make(&port(dtype), &dims, distribution, None, 7).unwrap().to_f64()
        };
        let normal = make(DType::F32, Distribution::Normal);
        let mean = normal.iter().sum::<f64>() / normal.len() as f64;
        let variance = normal.iter().map(|x| x * x).sum::<f64>() / normal.len() as f64;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let special = make(DType::F16, Distribution::Special);
        assert!(special.iter().any(|x| x.is_nan()) && special.contains(&65504.0));
        let uniform = make(DType::F64, Distribution::Uniform);
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
    }

    #[test]
    fn blocks_are_drawn_from_one_stream() {
        let make = |n| {
            let dims = Dims::from([("n".into(), n)]);
            let made = make(&port(DType::F32), &dims, Distribution::Uniform, None, 3).unwrap();
            made.to_f64()
        };
        let (short, long) = (make(600), make(2000));
        assert_eq!(short[..], long[..short.len()]);
        assert_ne!(long[..BLOCK], long[BLOCK..2 * BLOCK]);
        let mean = long.iter().sum::<f64>() / long.len() as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn unbound_symbols_are_named() {
        let error = super::make(&port(DType::F32), &Dims::new(), Distribution::Normal, None, 0);
        assert!(error.unwrap_err().contains("no value for the dimension `n`"));
    }
}
