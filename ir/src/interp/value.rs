//! Values of the reference interpreter.

use fornax_bundle::{DType, Tensor};

use super::{Element, Offsets};

/// A dense row-major array.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub data: Vec<T>,
}

/// A tensor under evaluation. Floats of all widths are `T`; integers of all widths (`u64` by its bits)
/// and bool (0 or 1) are exact `i64`s, wrapped to their type after each op.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<T> {
    /// A tensor of a float type.
    Float(Array<T>),
    /// A tensor of an integer type or bool.
    Int(Array<i64>),
}

impl<T> Array<T> {
    /// An array over its elements.
    ///
    /// # Panics
    /// When the number of elements is not the product of the sizes.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<T>) -> Array<T> {
        let shape = shape.into();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "invariant: one value per element");
        Array { shape, data }
    }
}

impl<T: Copy> Array<T> {
    /// The array of a function's results.
    pub fn map<U>(&self, function: impl Fn(T) -> U) -> Array<U> {
        Array::new(self.shape.as_slice(), self.data.iter().map(|&x| function(x)).collect())
    }

    /// The array of a function's results on this array's elements and another's at the same positions.
    pub fn zip<U: Copy, V>(&self, other: &Array<U>, function: impl Fn(T, U) -> V) -> Array<V> {
        let pairs = self.data.iter().zip(&other.data);
        Array::new(self.shape.as_slice(), pairs.map(|(&x, &y)| function(x, y)).collect())
    }
}

impl<T: Copy> Array<T> {
    /// The elements of a strided view, see [`Offsets`].
    ///
    /// # Panics
    /// When the view leaves the array.
    pub fn view(&self, shape: &[usize], strides: &[isize], start: isize) -> Array<T> {
        Array::new(shape, Offsets::new(shape, strides, start).map(|o| self.data[o]).collect())
    }
}

impl<T: Copy> Value<T> {
    /// As [`Array::view`].
    ///
    /// # Panics
    /// When the view leaves the array.
    pub fn view(&self, shape: &[usize], strides: &[isize], start: isize) -> Value<T> {
        match self {
            Value::Float(array) => Value::Float(array.view(shape, strides, start)),
            Value::Int(array) => Value::Int(array.view(shape, strides, start)),
        }
    }
}

impl<T> Value<T> {
    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::Float(array) => &array.shape,
            Value::Int(array) => &array.shape,
        }
    }

    /// The elements of a float tensor.
    ///
    /// # Panics
    /// When the value is an integer tensor.
    pub fn float(&self) -> &Array<T> {
        match self {
            Value::Float(array) => array,
            Value::Int(_) => panic!("invariant: inference checked for a float operand"),
        }
    }

    /// The elements of an integer or bool tensor.
    ///
    /// # Panics
    /// When the value is a float tensor.
    pub fn int(&self) -> &Array<i64> {
        match self {
            Value::Int(array) => array,
            Value::Float(_) => panic!("invariant: inference checked for an integer operand"),
        }
    }
}

impl<T: Element> Value<T> {
    /// The value of a tensor.
    pub fn from_tensor(tensor: &Tensor) -> Value<T> {
        match tensor.to_i64() {
            Some(data) => Value::Int(Array::new(tensor.shape(), data)),
            None => {
                let data = tensor.to_f64().into_iter().map(T::from_f64).collect();
                Value::Float(Array::new(tensor.shape(), data))
            }
        }
    }

    /// The value rounded into a tensor of an element type.
    pub fn to_tensor(&self, dtype: DType) -> Tensor {
        let data: Vec<u8> = match self {
            Value::Float(array) => {
                array.data.iter().flat_map(|value| float_bytes(dtype, value.to_f64())).collect()
            }
            Value::Int(array) => {
                array.data.iter().flat_map(|&value| int_bytes(dtype, value)).collect()
            }
        };
        Tensor::new(dtype, self.shape(), data).expect("invariant: one value per element")
    }
}

/// A number of rank 0, converted to `dtype` (truncated for integers).
pub fn scalar_tensor(dtype: DType, value: f64) -> Tensor {
    let data =
        if dtype.is_float() { float_bytes(dtype, value) } else { int_bytes(dtype, value as i64) };
    Tensor::new(dtype, [], data).expect("invariant: one value")
}

/// An integer wrapped to an element type, as [`Value::Int`] holds it (`u64` by its bits); for bool: whether
/// it is not zero.
pub fn wrapped(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I32 => i64::from(value as i32),
        DType::I16 => i64::from(value as i16),
        DType::I8 => i64::from(value as i8),
        DType::U32 => i64::from(value as u32),
        DType::U16 => i64::from(value as u16),
        DType::U8 => i64::from(value as u8),
        DType::Bool => i64::from(value != 0),
        _ => value,
    }
}

/// The number of a float type nearest to `value`, ties to even; beyond the range: infinity.
pub fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => half::f16::from_f32(to_odd_f32(value)).to_f64(),
        DType::BF16 => half::bf16::from_f32(to_odd_f32(value)).to_f64(),
        _ => value,
    }
}

/// `value` rounded to `f32` so that rounding the result to a type of at most 22 bits of precision gives
/// what rounding `value` at once gives: inexact results have an odd last bit (Boldo & Melquiond 2008).
fn to_odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let exact = f64::from(nearest);
    if exact == value || value.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    let towards_zero = exact.abs() > value.abs();
    let bits = nearest.to_bits();
    f32::from_bits(if towards_zero { bits - 1 } else { bits + 1 })
}

fn float_bytes(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(to_odd_f32(value)).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(to_odd_f32(value)).to_le_bytes().to_vec(),
        other => unreachable!("invariant: no op computes {other} floats"),
    }
}

fn int_bytes(dtype: DType, value: i64) -> Vec<u8> {
    match dtype.size() {
        8 => value.to_le_bytes().to_vec(),
        4 => (value as i32).to_le_bytes().to_vec(),
        2 => (value as i16).to_le_bytes().to_vec(),
        _ => (value as i8).to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_half_is_done_once() {
        // Just above the tie between 1 and 1 + 2^-10: by way of f32 this would round down to even.
        let above = 1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40);
        assert_eq!(rounded(DType::F16, above), 1.0 + f64::powi(2.0, -10));
        assert_eq!(rounded(DType::F16, 1.0 + f64::powi(2.0, -11)), 1.0);
        assert_eq!(rounded(DType::F16, -above), -1.0 - f64::powi(2.0, -10));
        let above = 1.0 + f64::powi(2.0, -8) + f64::powi(2.0, -50);
        assert_eq!(rounded(DType::BF16, above), 1.0 + f64::powi(2.0, -7));
        assert_eq!(rounded(DType::BF16, 1.0 + f64::powi(2.0, -8)), 1.0);
    }

    #[test]
    fn rounding_covers_the_ends_of_the_range() {
        assert_eq!(rounded(DType::F16, 65519.999), 65504.0);
        assert_eq!(rounded(DType::F16, 65520.0), f64::INFINITY);
        assert_eq!(rounded(DType::F16, 1e300), f64::INFINITY);
        assert_eq!(rounded(DType::F16, f64::powi(2.0, -25)), 0.0);
        assert_eq!(rounded(DType::F16, f64::powi(2.0, -25) * 1.0001), f64::powi(2.0, -24));
        assert_eq!(rounded(DType::BF16, 3.39e38), 3.3895313892515355e38);
        assert_eq!(rounded(DType::F32, 1e39), f64::INFINITY);
        assert!(rounded(DType::F16, f64::NAN).is_nan());
        assert!(rounded(DType::BF16, -0.0).is_sign_negative());
    }
}
