//! Element types of results.
//!
//! Source: PyTorch, "Type promotion" (`torch.result_type`): a number or a tensor of rank 0 changes the result only
//! when it is of a higher kind (truth values, integers, floats) than all tensors with axes.

use fornax_ir::DType;

/// How much an operand counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    /// A number of Python.
    Number,
    /// A tensor of rank 0.
    Scalar,
    /// A tensor with axes.
    Tensor,
}

/// The element type that operands are brought to; `None` where there is none.
pub(crate) fn result(operands: &[(DType, Category)]) -> Option<DType> {
    let of = |category: Category| {
        let mut types = operands.iter().filter(|operand| operand.1 == category).map(|o| o.0);
        let first = types.next()?;
        Some(types.try_fold(first, common))
    };
    let mut found: Option<DType> = None;
    for category in [Category::Tensor, Category::Scalar, Category::Number] {
        let Some(dtype) = of(category) else { continue };
        let dtype = dtype?;
        found = Some(match found {
            None => dtype,
            Some(stronger) if rank(dtype) > rank(stronger) => dtype,
            Some(stronger) => stronger,
        });
    }
    found
}

fn rank(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        _ if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The smallest type of the higher kind that holds both.
pub(crate) fn common(a: DType, b: DType) -> Option<DType> {
    if a == b || rank(a) > rank(b) {
        return Some(a);
    }
    if rank(b) > rank(a) {
        return Some(b);
    }
    if a.is_float() {
        return match (a, b) {
            (DType::F8E4M3 | DType::F8E5M2, _) | (_, DType::F8E4M3 | DType::F8E5M2) => None,
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => Some(DType::F32),
            _ => Some(if a.size() > b.size() { a } else { b }),
        };
    }
    if a.is_signed_int() == b.is_signed_int() {
        return Some(if a.size() > b.size() { a } else { b });
    }
    let (signed, unsigned) = if a.is_signed_int() { (a, b) } else { (b, a) };
    if signed.size() > unsigned.size() {
        return Some(signed);
    }
    match unsigned.size() {
        1 => Some(DType::I16),
        2 => Some(DType::I32),
        4 => Some(DType::I64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_only_raise_the_kind() {
        let (tensor, scalar, number) = (Category::Tensor, Category::Scalar, Category::Number);
        let of = |operands: &[(DType, Category)]| result(operands).unwrap();
        assert_eq!(of(&[(DType::F16, tensor), (DType::F32, number)]), DType::F16);
        assert_eq!(of(&[(DType::F16, tensor), (DType::F32, scalar)]), DType::F16);
        assert_eq!(of(&[(DType::I32, tensor), (DType::F32, number)]), DType::F32);
        assert_eq!(of(&[(DType::I64, number), (DType::Bool, tensor)]), DType::I64);
        assert_eq!(of(&[(DType::U8, tensor), (DType::I8, tensor)]), DType::I16);
        assert_eq!(of(&[(DType::F16, tensor), (DType::BF16, tensor)]), DType::F32);
        assert_eq!(of(&[(DType::I64, scalar), (DType::I32, tensor)]), DType::I32);
    }
}
