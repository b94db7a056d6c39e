//! Walking over strided views of arrays.

/// The distance between neighbours along each axis of a dense row-major array.
pub fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

/// The offsets of a strided view's elements, in row-major order of the view.
///
/// A stride of 0 repeats, a negative one goes backwards.
#[derive(Debug, Clone)]
pub struct Offsets {
    shape: Vec<usize>,
    strides: Vec<isize>,
    index: Vec<usize>,
    offset: isize,
    left: usize,
}

impl Offsets {
    /// A view of `shape` that starts at `start`.
    ///
    /// # Panics
    /// When there are not as many strides as axes.
    pub fn new(shape: &[usize], strides: &[isize], start: isize) -> Offsets {
        assert_eq!(shape.len(), strides.len(), "invariant: one stride per axis");
        Offsets {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            index: vec![0; shape.len()],
            offset: start,
            left: shape.iter().product(),
        }
    }
}

impl Iterator for Offsets {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let current = self.offset;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            self.offset += self.strides[axis];
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.offset -= self.strides[axis] * self.shape[axis] as isize;
            self.index[axis] = 0;
        }
        Some(current as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Offsets {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_walked_in_their_own_order() {
        assert_eq!(strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(Offsets::new(&[3, 2], &[1, 3], 0).collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(Offsets::new(&[2, 2], &[0, -1], 1).collect::<Vec<_>>(), [1, 0, 1, 0]);
        assert_eq!(Offsets::new(&[], &[], 7).collect::<Vec<_>>(), [7]);
        assert_eq!(Offsets::new(&[0, 3], &[3, 1], 0).count(), 0);
    }
}
