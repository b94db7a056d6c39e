//! Tensors in host memory.

use bytes::Bytes;

use crate::DType;

/// A dense, contiguous (row-major) tensor in host memory, little-endian.
///
/// The data is shared and immutable, so that a weight may lie in a memory-mapped file and be cloned
/// for nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// Shape and data do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The product of the sizes does not fit into memory.
    #[error("a tensor of shape {shape:?} and type {dtype} is too large")]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
        /// The element type asked for.
        dtype: DType,
    },
    /// The data has another length than shape and type say.
    #[error("a tensor of shape {shape:?} and type {dtype} takes {expected} bytes, not {actual}")]
    Length {
        /// The shape asked for.
        shape: Vec<usize>,
        /// The element type asked for.
        dtype: DType,
        /// Bytes that shape and type need.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
}

impl Tensor {
    /// A tensor over existing bytes.
    ///
    /// # Errors
    /// When the number of bytes is not what shape and type need.
    pub fn new(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        data: impl Into<Bytes>,
    ) -> Result<Tensor, TensorError> {
        let (shape, data) = (shape.into(), data.into());
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size))
            .filter(|&bytes| bytes <= isize::MAX as usize);
        match expected {
            None => Err(TensorError::TooLarge { shape, dtype }),
            Some(expected) if expected != data.len() => {
                Err(TensorError::Length { shape, dtype, expected, actual: data.len() })
            }
            Some(_) => Ok(Tensor { dtype, shape, data }),
        }
    }

    /// A `f32` tensor.
    ///
    /// # Panics
    /// When the number of values is not the product of the sizes.
    pub fn from_f32(shape: &[usize], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(DType::F32, shape, data).expect("one value per element")
    }

    /// An `i64` tensor.
    ///
    /// # Panics
    /// When the number of values is not the product of the sizes.
    pub fn from_i64(shape: &[usize], values: &[i64]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(DType::I64, shape, data).expect("one value per element")
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// Whether the tensor has no element.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The elements' bytes, row-major, little-endian.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, shape, self.data.clone())
    }

    /// All elements as `f64`: exact for every type but 64-bit integers beyond 2^53.
    pub fn to_f64(&self) -> Vec<f64> {
        let read = real_reader(self.dtype);
        self.data.chunks_exact(self.dtype.size()).map(read).collect()
    }

    /// All elements as `i64` (`u64` by its bits), or nothing when the type is a float.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        let read = integer_reader(self.dtype)?;
        Some(self.data.chunks_exact(self.dtype.size()).map(read).collect())
    }

    /// The element at a row-major position as `f64`; see [`Tensor::to_f64`].
    ///
    /// # Panics
    /// When there is no such element.
    pub fn f64_at(&self, position: usize) -> f64 {
        real_reader(self.dtype)(self.element(position))
    }

    /// The element at a row-major position as `i64`; see [`Tensor::to_i64`].
    ///
    /// # Panics
    /// When there is no such element.
    pub fn i64_at(&self, position: usize) -> Option<i64> {
        Some(integer_reader(self.dtype)?(self.element(position)))
    }

    fn element(&self, position: usize) -> &[u8] {
        let size = self.dtype.size();
        &self.data[position * size..][..size]
    }
}

fn bytes<const N: usize>(element: &[u8]) -> [u8; N] {
    element.try_into().expect("invariant: as many bytes as the type's size")
}

/// How the bytes of one element are read as `f64`.
fn real_reader(dtype: DType) -> fn(&[u8]) -> f64 {
    match dtype {
        DType::F64 => |b| f64::from_le_bytes(bytes(b)),
        DType::F32 => |b| f64::from(f32::from_le_bytes(bytes(b))),
        DType::F16 => |b| half::f16::from_le_bytes(bytes(b)).to_f64(),
        DType::BF16 => |b| half::bf16::from_le_bytes(bytes(b)).to_f64(),
        DType::F8E4M3 => |b| f8_to_f64(b[0], 4, 3, 7, true),
        DType::F8E5M2 => |b| f8_to_f64(b[0], 5, 2, 15, false),
        DType::I64 => |b| i64::from_le_bytes(bytes(b)) as f64,
        DType::U64 => |b| u64::from_le_bytes(bytes(b)) as f64,
        DType::I32 => |b| f64::from(i32::from_le_bytes(bytes(b))),
        DType::U32 => |b| f64::from(u32::from_le_bytes(bytes(b))),
        DType::I16 => |b| f64::from(i16::from_le_bytes(bytes(b))),
        DType::U16 => |b| f64::from(u16::from_le_bytes(bytes(b))),
        DType::I8 => |b| f64::from(b[0] as i8),
        DType::U8 | DType::Bool => |b| f64::from(b[0]),
    }
}

/// How the bytes of one element are read as `i64`; nothing for float types.
fn integer_reader(dtype: DType) -> Option<fn(&[u8]) -> i64> {
    Some(match dtype {
        DType::I64 | DType::U64 => |b| i64::from_le_bytes(bytes(b)),
        DType::I32 => |b| i64::from(i32::from_le_bytes(bytes(b))),
        DType::U32 => |b| i64::from(u32::from_le_bytes(bytes(b))),
        DType::I16 => |b| i64::from(i16::from_le_bytes(bytes(b))),
        DType::U16 => |b| i64::from(u16::from_le_bytes(bytes(b))),
        DType::I8 => |b| i64::from(b[0] as i8),
        DType::U8 | DType::Bool => |b| i64::from(b[0]),
        _ => return None,
    })
}

/// Decodes an 8-bit float (OCP 8-bit Floating Point Specification, revision 1.0, section 5).
///
/// `finite_only` formats have no infinities: only the all-ones pattern is NaN.
fn f8_to_f64(
    bits: u8,
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    finite_only: bool,
) -> f64 {
    let mantissa_mask = (1u8 << mantissa_bits) - 1;
    let exponent_mask = (1u8 << exponent_bits) - 1;
    let sign = if bits >> 7 == 1 { -1.0 } else { 1.0 };
    let exponent = (bits >> mantissa_bits) & exponent_mask;
    let mantissa = bits & mantissa_mask;
    let fraction = f64::from(mantissa) / f64::from(1u32 << mantissa_bits);
    if exponent == exponent_mask && (!finite_only || mantissa == mantissa_mask) {
        return if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if exponent == 0 {
        sign * fraction * f64::powi(2.0, 1 - bias)
    } else {
        sign * (1.0 + fraction) * f64::powi(2.0, i32::from(exponent) - bias)
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.to_f64();
        let shown = &values[..values.len().min(8)];
        let more = if values.len() > shown.len() { ", .." } else { "" };
        write!(f, "{}{:?} {shown:?}{more}", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_checked() {
        assert!(Tensor::new(DType::F32, [2, 3], vec![0; 24]).is_ok());
        let error = Tensor::new(DType::F32, [2, 3], vec![0; 20]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a tensor of shape [2, 3] and type f32 takes 24 bytes, not 20"
        );
        let error = Tensor::new(DType::F32, [usize::MAX, 2], vec![]).unwrap_err();
        assert!(matches!(error, TensorError::TooLarge { .. }));
    }

    #[test]
    fn eight_bit_floats_decode() {
        let e4m3 = Tensor::new(DType::F8E4M3, [4], vec![0x38, 0x7e, 0x01, 0xb8]).unwrap();
        assert_eq!(e4m3.to_f64(), [1.0, 448.0, 1.0 / 512.0, -1.0]);
        let e5m2 = Tensor::new(DType::F8E5M2, [3], vec![0x3c, 0x7b, 0x7c]).unwrap();
        assert_eq!(e5m2.to_f64(), [1.0, 57344.0, f64::INFINITY]);
    }
}
