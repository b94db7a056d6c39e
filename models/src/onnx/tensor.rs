//! Tensors as ONNX files hold them, brought to the one encoding of [`Tensor`].

use bytes::Bytes;
use fornax_ir::{DType, Tensor, Type};

use super::external::{ExternalError, ExternalFiles};
use super::proto::{DataType, TensorProto};

/// What is wrong with a tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The element type is not one of ONNX's.
    #[error("its element type {0} is not known")]
    UnknownType(i32),
    /// The element type is one of ONNX's that Fornax does not have.
    #[error("its element type {0} is not supported")]
    UnsupportedType(DataType),
    /// A size is negative.
    #[error("its size {0} is negative")]
    NegativeSize(i64),
    /// The tensor would not fit in memory.
    #[error("its shape {0:?} is too large")]
    TooLarge(Vec<i64>),
    /// The number of elements or bytes does not fit the shape.
    #[error("its shape needs {expected} {unit}, but it has {found}")]
    Length {
        /// How many the shape needs.
        expected: u64,
        /// How many there are.
        found: u64,
        /// Of what: "bytes" or "numbers".
        unit: &'static str,
    },
    /// A number does not fit the element type.
    #[error("element {index}, {value}, does not fit its element type {ty}")]
    OutOfRange {
        /// Which element.
        index: usize,
        /// Its value.
        value: i64,
        /// The element type.
        ty: DataType,
    },
    /// The tensor is stored in pieces.
    #[error("it is stored in segments, which no exporter writes and Fornax does not read")]
    Segmented,
    /// The field that says where the data is has an unknown value.
    #[error("its data_location {0} is not known")]
    Location(i32),
    /// The data in another file cannot be had.
    #[error(transparent)]
    External(#[from] ExternalError),
}

/// The element type in Fornax, or `None` for those it does not have.
pub fn dtype(ty: DataType) -> Option<DType> {
    Some(match ty {
        DataType::Double => DType::F64,
        DataType::Float => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Float8e4m3fn => DType::F8E4M3,
        DataType::Float8e5m2 => DType::F8E5M2,
        DataType::Int64 => DType::I64,
        DataType::Int32 => DType::I32,
        DataType::Int16 => DType::I16,
        DataType::Int8 => DType::I8,
        DataType::Uint64 => DType::U64,
        DataType::Uint32 => DType::U32,
        DataType::Uint16 => DType::U16,
        DataType::Uint8 => DType::U8,
        DataType::Bool => DType::Bool,
        _ => return None,
    })
}

/// Converts a tensor whose data is in the message itself, such as one in a test's `.pb` file.
///
/// # Errors
/// [`TensorError`]: the type is not supported, or the data does not fit the shape and type.
pub fn to_tensor(tensor: &TensorProto) -> Result<Tensor, TensorError> {
    convert(tensor, &mut ExternalFiles::default())
}

/// Converts a tensor. Raw and external data are shared, not copied.
///
/// # Errors
/// As [`to_tensor`], and [`ExternalError`].
pub(crate) fn convert(
    tensor: &TensorProto,
    external: &mut ExternalFiles,
) -> Result<Tensor, TensorError> {
    let layout = Layout::of(tensor)?;
    if tensor.segment.is_some() {
        return Err(TensorError::Segmented);
    }
    let expected = (layout.count * layout.dtype.size()) as u64;
    let bytes = match tensor.data_location {
        0 => match &tensor.raw_data {
            Some(raw) => raw.clone(),
            None => typed(tensor, &layout)?,
        },
        1 => external.bytes(&tensor.external_data, expected)?,
        other => return Err(TensorError::Location(other)),
    };
    let found = bytes.len() as u64;
    if found != expected {
        return Err(TensorError::Length { expected, found, unit: "bytes" });
    }
    let bytes = if layout.dtype == DType::Bool { normal_bools(bytes) } else { bytes };
    Tensor::new(layout.dtype, layout.shape, bytes)
        .map_err(|_| TensorError::TooLarge(tensor.dims.clone()))
}

/// The type of a tensor, without its data.
///
/// # Errors
/// As [`to_tensor`], for type and shape alone.
pub(crate) fn ty(tensor: &TensorProto) -> Result<Type, TensorError> {
    let layout = Layout::of(tensor)?;
    Ok(Type::new(layout.dtype, layout.shape.as_slice()))
}

/// What a tensor says of itself.
struct Layout {
    ty: DataType,
    dtype: DType,
    shape: Vec<usize>,
    /// The number of elements; that many bytes of the type's size fit into memory.
    count: usize,
}

impl Layout {
    fn of(tensor: &TensorProto) -> Result<Self, TensorError> {
        let ty = DataType::try_from(tensor.data_type)
            .map_err(|_| TensorError::UnknownType(tensor.data_type))?;
        let dtype = dtype(ty).ok_or(TensorError::UnsupportedType(ty))?;
        let mut shape = Vec::with_capacity(tensor.dims.len());
        // The sizes other than 0 are bounded too, so that products of some of them cannot overflow.
        let mut bounded = dtype.size();
        for &size in &tensor.dims {
            let size = usize::try_from(size).map_err(|_| TensorError::NegativeSize(size))?;
            shape.push(size);
            bounded = bounded
                .checked_mul(size.max(1))
                .filter(|&bytes| bytes <= isize::MAX as usize)
                .ok_or_else(|| TensorError::TooLarge(tensor.dims.clone()))?;
        }
        let count = shape.iter().product();
        Ok(Self { ty, dtype, shape, count })
    }
}

/// Any byte but 0 is true; later stages rely on true being 1.
fn normal_bools(bytes: Bytes) -> Bytes {
    if bytes.iter().all(|&byte| byte <= 1) {
        bytes
    } else {
        bytes.iter().map(|&byte| u8::from(byte != 0)).collect()
    }
}

/// Elements from the typed fields (`float_data` and its like), little-endian.
fn typed(tensor: &TensorProto, layout: &Layout) -> Result<Bytes, TensorError> {
    let (stored, bytes) = match layout.dtype {
        DType::F32 => (tensor.float_data.len(), le(&tensor.float_data, f32::to_le_bytes)),
        DType::F64 => (tensor.double_data.len(), le(&tensor.double_data, f64::to_le_bytes)),
        DType::I64 => (tensor.int64_data.len(), le(&tensor.int64_data, i64::to_le_bytes)),
        DType::U64 => (tensor.uint64_data.len(), le(&tensor.uint64_data, u64::to_le_bytes)),
        DType::U32 => (tensor.uint64_data.len(), unsigned(tensor)?),
        _ => (tensor.int32_data.len(), narrow(tensor, layout)?),
    };
    let (expected, found) = (layout.count as u64, stored as u64);
    if found == expected {
        Ok(bytes)
    } else {
        Err(TensorError::Length { expected, found, unit: "numbers" })
    }
}

fn le<T: Copy, const N: usize>(values: &[T], encode: fn(T) -> [u8; N]) -> Bytes {
    values.iter().flat_map(|&value| encode(value)).collect()
}

/// UINT32, which `uint64_data` holds.
fn unsigned(tensor: &TensorProto) -> Result<Bytes, TensorError> {
    let mut bytes = Vec::with_capacity(tensor.uint64_data.len() * 4);
    for (index, &value) in tensor.uint64_data.iter().enumerate() {
        let narrow = u32::try_from(value).map_err(|_| TensorError::OutOfRange {
            index,
            value: value.cast_signed(),
            ty: DataType::Uint32,
        })?;
        bytes.extend(narrow.to_le_bytes());
    }
    Ok(bytes.into())
}

/// The types that `int32_data` holds; floats are their bits.
fn narrow(tensor: &TensorProto, layout: &Layout) -> Result<Bytes, TensorError> {
    let (low, high) = match layout.dtype {
        DType::I32 => (i32::MIN, i32::MAX),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U16 | DType::F16 | DType::BF16 => (0, u16::MAX.into()),
        _ => (0, u8::MAX.into()),
    };
    let width = layout.dtype.size();
    let mut bytes = Vec::with_capacity(tensor.int32_data.len() * width);
    for (index, &value) in tensor.int32_data.iter().enumerate() {
        let value = if layout.dtype == DType::Bool { i32::from(value != 0) } else { value };
        if !(low..=high).contains(&value) {
            let ty = layout.ty;
            return Err(TensorError::OutOfRange { index, value: value.into(), ty });
        }
        bytes.extend(&value.to_le_bytes()[..width]);
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(ty: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: ty.into(), dims: dims.to_vec(), ..Default::default() }
    }

    fn bytes(tensor: &TensorProto) -> Result<Vec<u8>, TensorError> {
        to_tensor(tensor).map(|tensor| tensor.bytes().to_vec())
    }

    #[test]
    fn typed_fields_become_bytes() {
        let ints =
            |ty, values: &[i32]| TensorProto { int32_data: values.to_vec(), ..tensor(ty, &[2]) };
        assert_eq!(
            bytes(&ints(DataType::Int32, &[-2, 3])).unwrap(),
            [254, 255, 255, 255, 3, 0, 0, 0]
        );
        assert_eq!(bytes(&ints(DataType::Int16, &[-2, 3])).unwrap(), [254, 255, 3, 0]);
        assert_eq!(bytes(&ints(DataType::Int8, &[-2, 3])).unwrap(), [254, 3]);
        assert_eq!(bytes(&ints(DataType::Uint8, &[255, 3])).unwrap(), [255, 3]);
        assert_eq!(bytes(&ints(DataType::Uint16, &[65535, 3])).unwrap(), [255, 255, 3, 0]);
        assert_eq!(bytes(&ints(DataType::Bool, &[7, 0])).unwrap(), [1, 0]);
        // 1.0 and -2.0 in fp16, in bf16, in e4m3.
        assert_eq!(bytes(&ints(DataType::Float16, &[0x3c00, 0xc000])).unwrap(), [0, 0x3c, 0, 0xc0]);
        assert_eq!(
            bytes(&ints(DataType::Bfloat16, &[0x3f80, 0xc000])).unwrap(),
            [0x80, 0x3f, 0, 0xc0]
        );
        assert_eq!(bytes(&ints(DataType::Float8e4m3fn, &[0x38, 0xc0])).unwrap(), [0x38, 0xc0]);
        let floats = TensorProto { float_data: vec![1.0], ..tensor(DataType::Float, &[]) };
        assert_eq!(bytes(&floats).unwrap(), 1f32.to_le_bytes());
        let doubles = TensorProto { double_data: vec![0.1], ..tensor(DataType::Double, &[1, 1]) };
        assert_eq!(bytes(&doubles).unwrap(), 0.1f64.to_le_bytes());
        let longs = TensorProto { int64_data: vec![-1], ..tensor(DataType::Int64, &[1]) };
        assert_eq!(bytes(&longs).unwrap(), [255; 8]);
        let unsigned = TensorProto { uint64_data: vec![5], ..tensor(DataType::Uint32, &[1]) };
        assert_eq!(bytes(&unsigned).unwrap(), [5, 0, 0, 0]);
    }

    #[test]
    fn raw_bools_become_zero_or_one() {
        let raw = Some(Bytes::from_static(&[0, 1, 255]));
        let bools = TensorProto { raw_data: raw, ..tensor(DataType::Bool, &[3]) };
        assert_eq!(bytes(&bools).unwrap(), [0, 1, 1]);
    }

    #[test]
    fn empty_tensors_need_no_data() {
        assert!(bytes(&tensor(DataType::Float, &[0, 3])).unwrap().is_empty());
    }

    #[test]
    fn lengths_must_fit_the_shape() {
        let error = |tensor: &TensorProto| bytes(tensor).unwrap_err().to_string();
        let floats = TensorProto { float_data: vec![1.0], ..tensor(DataType::Float, &[2, 3]) };
        assert_eq!(error(&floats), "its shape needs 6 numbers, but it has 1");
        let raw = Some(Bytes::from_static(&[0; 5]));
        let raw = TensorProto { raw_data: raw, ..tensor(DataType::Float, &[1]) };
        assert_eq!(error(&raw), "its shape needs 4 bytes, but it has 5");
        assert_eq!(error(&tensor(DataType::Float, &[-1])), "its size -1 is negative");
        let huge = tensor(DataType::Float, &[1 << 40, 1 << 40]);
        assert!(matches!(bytes(&huge), Err(TensorError::TooLarge(_))));
        let hidden = tensor(DataType::Float, &[1 << 40, 1 << 40, 0]);
        assert!(matches!(bytes(&hidden), Err(TensorError::TooLarge(_))));
        assert!(matches!(
            bytes(&tensor(DataType::Int4, &[1])),
            Err(TensorError::UnsupportedType(_))
        ));
        assert!(matches!(
            bytes(&tensor(DataType::String, &[1])),
            Err(TensorError::UnsupportedType(_))
        ));
        assert!(matches!(
            bytes(&tensor(DataType::Undefined, &[])),
            Err(TensorError::UnsupportedType(_))
        ));
    }

    #[test]
    fn numbers_must_fit_the_type() {
        for (ty, value) in
            [(DataType::Uint8, -1), (DataType::Int8, 128), (DataType::Float16, 65536)]
        {
            let tensor = TensorProto { int32_data: vec![value], ..tensor(ty, &[1]) };
            assert!(matches!(bytes(&tensor), Err(TensorError::OutOfRange { index: 0, .. })));
        }
        let unsigned = TensorProto { uint64_data: vec![1 << 32], ..tensor(DataType::Uint32, &[1]) };
        assert!(matches!(bytes(&unsigned), Err(TensorError::OutOfRange { .. })));
    }
}
