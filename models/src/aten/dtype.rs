//! Element types by the numbers and names that PyTorch's files use.

use fornax_ir::DType;

/// Of `c10::ScalarType`, as TorchScript code has them.
pub(crate) fn of_number(number: i64) -> Option<DType> {
    Some(match number {
        0 => DType::U8,
        1 => DType::I8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::I64,
        5 => DType::F16,
        6 => DType::F32,
        7 => DType::F64,
        11 => DType::Bool,
        15 => DType::BF16,
        23 => DType::F8E5M2,
        24 => DType::F8E4M3,
        27 => DType::U16,
        28 => DType::U32,
        29 => DType::U64,
        _ => return None,
    })
}

/// The inverse of [`of_number`].
pub(crate) fn number_of(dtype: DType) -> Option<i64> {
    (0..30).find(|&number| of_number(number) == Some(dtype))
}

/// Of the class of a storage in a pickle, such as `FloatStorage`.
pub(crate) fn of_storage(class: &str) -> Option<DType> {
    Some(match class {
        "ByteStorage" => DType::U8,
        "CharStorage" => DType::I8,
        "ShortStorage" => DType::I16,
        "IntStorage" => DType::I32,
        "LongStorage" => DType::I64,
        "HalfStorage" => DType::F16,
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "BoolStorage" => DType::Bool,
        "BFloat16Storage" => DType::BF16,
        _ => return None,
    })
}

/// Of `ScalarType` in `torch/_export/serde/schema.py`, as `.pt2` files have them.
pub(crate) fn of_exported(number: i64) -> Option<DType> {
    Some(match number {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        12 => DType::Bool,
        13 => DType::BF16,
        28 => DType::U16,
        29 => DType::F8E4M3,
        30 => DType::F8E5M2,
        _ => return None,
    })
}
