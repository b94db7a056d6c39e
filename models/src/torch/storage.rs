//! Tensors that lie in storages: an offset, sizes and strides.

use bytes::Bytes;
use fornax_ir::{DType, Tensor};

/// Where the elements of a tensor lie in a storage. Offset and strides count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    pub(crate) dtype: DType,
    pub(crate) offset: i64,
    pub(crate) sizes: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

/// Most bytes that the copy of a tensor that is not contiguous may take, for each byte of its storage.
const MAX_GROWTH: usize = 64;

impl Strided {
    /// The tensor with the elements in row-major order; shares the storage's bytes where they lie so.
    ///
    /// # Errors
    /// What does not fit together.
    pub(crate) fn tensor(&self, storage: &Bytes) -> Result<Tensor, String> {
        let width = self.dtype.size();
        let sizes: Vec<usize> = convert(&self.sizes).ok_or("a size is negative")?;
        let strides: Vec<usize> = convert(&self.strides).ok_or("a stride is negative")?;
        if sizes.len() != strides.len() || sizes.len() > 64 {
            return Err("the numbers of sizes and strides differ".to_owned());
        }
        let offset = usize::try_from(self.offset).map_err(|_| "the offset is negative")?;
        let count = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let count = count.ok_or("it has too many elements")?;
        let out_of_bounds = || {
            let (sizes, bytes) = (&self.sizes, storage.len());
            format!("its shape {sizes:?} of {} does not fit into {bytes} bytes", self.dtype)
        };
        if count == 0 {
            return Tensor::new(self.dtype, sizes, Bytes::new()).map_err(|error| error.to_string());
        }
        let last = sizes
            .iter()
            .zip(&strides)
            .try_fold(offset, |last, (&size, &stride)| {
                last.checked_add((size - 1).checked_mul(stride)?)
            })
            .and_then(|last| last.checked_add(1)?.checked_mul(width));
        if last.is_none_or(|end| end > storage.len()) {
            return Err(out_of_bounds());
        }
        let data = if is_row_major(&sizes, &strides) {
            storage.slice(offset * width..(offset + count) * width)
        } else {
            let bytes = count
                .checked_mul(width)
                .filter(|&bytes| bytes <= storage.len().saturating_mul(MAX_GROWTH).max(1 << 20));
            gather(
                storage,
                width,
                offset,
                &sizes,
                &strides,
                bytes.ok_or("it repeats its elements too often")?,
            )
        };
        let data = if self.dtype == DType::Bool { normal_bools(data) } else { data };
        Tensor::new(self.dtype, sizes, data).map_err(|error| error.to_string())
    }
}

fn convert(values: &[i64]) -> Option<Vec<usize>> {
    values.iter().map(|&value| usize::try_from(value).ok()).collect()
}

fn is_row_major(sizes: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || stride == expected;
        expected *= size;
        fits
    })
}

fn gather(
    storage: &Bytes,
    width: usize,
    offset: usize,
    sizes: &[usize],
    strides: &[usize],
    bytes: usize,
) -> Bytes {
    let mut data = Vec::with_capacity(bytes);
    let mut index = vec![0; sizes.len()];
    let mut position = offset;
    while data.len() < bytes {
        data.extend_from_slice(&storage[position * width..(position + 1) * width]);
        for axis in (0..sizes.len()).rev() {
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < sizes[axis] {
                break;
            }
            position -= strides[axis] * sizes[axis];
            index[axis] = 0;
        }
    }
    data.into()
}

/// Bytes that are 0 or 1.
fn normal_bools(bytes: Bytes) -> Bytes {
    match bytes.iter().all(|&byte| byte <= 1) {
        true => bytes,
        false => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided(offset: i64, sizes: &[i64], strides: &[i64]) -> Strided {
        Strided { dtype: DType::U8, offset, sizes: sizes.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn elements_are_brought_into_order() {
        let storage = Bytes::from_static(&[0, 1, 2, 3, 4, 5]);
        let whole = strided(0, &[2, 3], &[3, 1]).tensor(&storage).unwrap();
        assert_eq!(whole.bytes().as_ptr(), storage.as_ptr());
        let turned = strided(0, &[3, 2], &[1, 3]).tensor(&storage).unwrap();
        assert_eq!(&turned.bytes()[..], [0, 3, 1, 4, 2, 5]);
        let repeated = strided(4, &[2, 2], &[0, 1]).tensor(&storage).unwrap();
        assert_eq!(&repeated.bytes()[..], [4, 5, 4, 5]);
        let scalar = strided(5, &[], &[]).tensor(&storage).unwrap();
        assert_eq!(&scalar.bytes()[..], [5]);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let storage = Bytes::from_static(&[0; 6]);
        for bad in [
            strided(1, &[2, 3], &[3, 1]),
            strided(0, &[2], &[6]),
            strided(-1, &[1], &[1]),
            strided(0, &[-1], &[1]),
            strided(0, &[1 << 40, 1 << 40], &[0, 0]),
            strided(0, &[1 << 40], &[0]),
            strided(i64::MAX, &[2], &[i64::MAX]),
        ] {
            assert!(bad.tensor(&storage).is_err(), "{bad:?}");
        }
    }
}
