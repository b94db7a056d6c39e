//! Layouts: which thread holds which elements of a tile in which register.

/// A digit of a register or thread number, and where it moves the element it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mode {
    /// The dimension of the tile that it moves along.
    pub dim: u32,
    /// The number of values the digit has.
    pub size: u32,
    /// The step along the dimension; 0: all values of the digit hold the same element.
    pub stride: u32,
}

/// How a tile is distributed over the threads of a block.
///
/// The register number is read as digits, the first mode's fastest; the thread number likewise. An
/// element's coordinate along a dimension is the sum of digit times stride over both. A blocked layout,
/// a row of a reduction, the accumulators of `mma` and `wgmma` and what `ldmatrix` gives are all of
/// this form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Sizes of the tile.
    pub shape: Vec<u32>,
    /// Digits of the register number.
    pub registers: Vec<Mode>,
    /// Digits of the thread number; the product of sizes is the number of threads in a block.
    pub threads: Vec<Mode>,
}

impl Mode {
    /// A digit.
    pub fn new(dim: u32, size: u32, stride: u32) -> Mode {
        Mode { dim, size, stride }
    }
}

impl Layout {
    /// The number of elements each thread holds.
    pub fn register_count(&self) -> u32 {
        self.registers.iter().map(|mode| mode.size).product()
    }

    /// The number of threads.
    pub fn thread_count(&self) -> u32 {
        self.threads.iter().map(|mode| mode.size).product()
    }

    /// The part of the coordinates that a register number gives.
    pub fn register_coordinate(&self, register: u32) -> Vec<u32> {
        coordinate(&self.registers, register, self.shape.len())
    }

    /// The part of the coordinates that a thread number gives.
    pub fn thread_coordinate(&self, thread: u32) -> Vec<u32> {
        coordinate(&self.threads, thread, self.shape.len())
    }

    /// The coordinates along a dimension that the binary digits of a thread number stand for, those of the
    /// digits that are set.
    pub fn thread_steps(&self, mut thread: u32, dim: u32) -> Vec<u32> {
        let mut steps = Vec::new();
        for mode in &self.threads {
            let digit = thread % mode.size;
            thread /= mode.size;
            if mode.dim == dim && mode.stride > 0 {
                let bits = (0..32).filter(|bit| digit >> bit & 1 == 1);
                steps.extend(bits.map(|bit| mode.stride << bit));
            }
        }
        steps
    }

    /// The layout with size 1 along a dimension: registers along it are dropped, threads along it hold
    /// the same element.
    pub fn dropped(&self, dim: u32) -> Layout {
        let mut shape = self.shape.clone();
        shape[dim as usize] = 1;
        let registers = self.registers.iter().filter(|mode| mode.dim != dim).copied().collect();
        let threads = self
            .threads
            .iter()
            .map(|mode| if mode.dim == dim { Mode { stride: 0, ..*mode } } else { *mode })
            .collect();
        Layout { shape, registers, threads }
    }

    /// Whether `other` with the dimensions dropped in which `self` has size 1 is laid out as `self`.
    pub fn broadcasts_to(&self, other: &Layout) -> bool {
        if self.shape.len() != other.shape.len() {
            return false;
        }
        let mut from = self.clone();
        let mut to = other.clone();
        for dim in (0..self.shape.len() as u32).filter(|&dim| self.shape[dim as usize] == 1) {
            from = from.dropped(dim);
            to = to.dropped(dim);
        }
        from == to
    }
}

impl Layout {
    /// Whether `other` has the same digits, those of the register number in any order.
    pub fn reorders_to(&self, other: &Layout) -> bool {
        let sorted = |layout: &Layout| {
            let mut digits: Vec<(u32, u32, u32)> =
                layout.registers.iter().map(|mode| (mode.dim, mode.size, mode.stride)).collect();
            digits.sort_unstable();
            digits
        };
        self.shape == other.shape && self.threads == other.threads && sorted(self) == sorted(other)
    }
}

fn coordinate(modes: &[Mode], mut number: u32, rank: usize) -> Vec<u32> {
    let mut at = vec![0; rank];
    for mode in modes {
        at[mode.dim as usize] += number % mode.size * mode.stride;
        number /= mode.size;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_give_coordinates() {
        let layout = Layout {
            shape: vec![16, 64],
            registers: vec![Mode::new(1, 4, 1), Mode::new(0, 2, 8)],
            threads: vec![Mode::new(1, 16, 4), Mode::new(0, 8, 1)],
        };
        assert_eq!(layout.register_count() * layout.thread_count(), 16 * 64);
        assert_eq!(layout.register_coordinate(5), [8, 1]);
        assert_eq!(layout.thread_coordinate(17), [1, 4]);
        let row = layout.dropped(1);
        assert_eq!((row.register_count(), row.thread_count()), (2, 128));
        assert_eq!(row.thread_coordinate(17), [1, 0]);
        assert!(row.broadcasts_to(&layout) && !layout.broadcasts_to(&row));
        assert!(!row.broadcasts_to(&layout.dropped(0)));
    }
}
