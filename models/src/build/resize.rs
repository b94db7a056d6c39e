//! What resizing ops say of the axes they change.

use fornax_ir::{Attrs, DType, Dim, Tensor, attrs};

/// How one axis changes.
#[derive(Clone, Debug)]
pub(crate) struct AxisChange {
    pub(crate) axis: usize,
    pub(crate) size: Dim,
    /// Resized length over original length, not necessarily what the sizes give exactly.
    pub(crate) scale: f64,
}

/// The attributes of `resize` that say how axes change; `roi` is empty or has a start and an end for each.
pub(crate) fn attributes(changes: &[AxisChange], roi: &[f64]) -> Attrs {
    let scales: Vec<f64> = changes.iter().map(|change| change.scale).collect();
    attrs! {
        axes: changes.iter().map(|change| change.axis as i64).collect::<Vec<i64>>(),
        sizes: changes.iter().map(|change| change.size.clone()).collect::<Vec<Dim>>(),
        scales: doubles(&scales),
        roi: doubles(roi),
    }
}

fn doubles(values: &[f64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(DType::F64, [values.len()], data).expect("invariant: one value per element")
}
