//! What the program says of types, sizes and their ranges.

use std::collections::BTreeMap;

use fornax_ir::{DType, DimRange};

use super::schema::{Program, Size, TensorMeta};
use super::symbolic;
use crate::aten::dtype;
use crate::build::sizes;
use crate::build::symbols::Declared;

/// What the program says of the values of a symbol.
pub(super) fn range(program: &Program, symbol: &str) -> DimRange {
    let Some(range) = program.range_constraints.get(symbol) else { return sizes::SYMBOL_RANGE };
    let DimRange { min, max, divisor } = sizes::SYMBOL_RANGE;
    let min = range.min_val.map_or(min, |low| low.clamp(min, max));
    DimRange { min, max: range.max_val.map_or(max, |high| high.clamp(min, max)), divisor }
}

/// Element type and sizes of a value by its name.
pub(super) fn declared_type(
    metas: &BTreeMap<String, TensorMeta>,
    name: &str,
) -> Result<(DType, Vec<Declared>), String> {
    let meta = metas.get(name).ok_or_else(|| format!("nothing is said about {name:?}"))?;
    let dtype = dtype::of_exported(meta.dtype).ok_or_else(|| {
        format!("the element type of {name:?}, number {}, is not supported", meta.dtype)
    })?;
    let size = |size: &Size| match size {
        Size::AsInt(size) => Ok(Declared::Fixed(*size)),
        Size::AsExpr(expression) => {
            let text = &expression.expr_str;
            let dim = symbolic::parse(text)
                .ok_or_else(|| format!("the size {text:?} of {name:?} is not supported"))?;
            Ok(match (dim.as_const(), &dim.symbols()[..]) {
                (Some(size), _) => Declared::Fixed(size),
                (None, [only]) if dim == fornax_ir::Dim::symbol(only.clone()) => {
                    Declared::Named(only.as_ref().to_owned())
                }
                _ => Declared::Derived(dim),
            })
        }
    };
    Ok((dtype, meta.sizes.iter().map(size).collect::<Result<_, String>>()?))
}
