//! The geometry of windows that slide over spatial axes: convolutions and pooling.

use fornax_bundle::Dim;

use super::{Violation, require};
use crate::{Attrs, Guard, IndexExpr};

/// How windows lie on the spatial axes: of convolutions and pooling on those of the operand, of
/// transposed convolutions on those of the result. One entry per spatial axis.
#[derive(Debug, Clone)]
pub(super) struct Sliding {
    /// The distance between windows.
    pub strides: Vec<i64>,
    /// Positions before the first element.
    pub pads_begin: Vec<i64>,
    /// Positions after the last element.
    pub pads_end: Vec<i64>,
    /// The distance between the positions of a window.
    pub dilations: Vec<i64>,
}

impl Sliding {
    /// The geometry from the attributes `strides`, `pads_begin`, `pads_end` and `dilations`.
    pub fn of(attrs: &Attrs) -> Sliding {
        Sliding {
            strides: attrs.ints("strides").to_vec(),
            pads_begin: attrs.ints("pads_begin").to_vec(),
            pads_end: attrs.ints("pads_end").to_vec(),
            dilations: attrs.ints("dilations").to_vec(),
        }
    }

    /// Requires one entry per spatial axis, positive strides and dilations, and pads that are not
    /// negative.
    pub fn require_valid(&self, rank: usize, constraint: &'static str) -> Result<(), Violation> {
        let lists = [
            ("strides", &self.strides, 1),
            ("pads_begin", &self.pads_begin, 0),
            ("pads_end", &self.pads_end, 0),
            ("dilations", &self.dilations, 1),
        ];
        for (name, values, least) in lists {
            require(
                values.len() == rank && values.iter().all(|value| (least..1 << 31).contains(value)),
                constraint,
                || format!("`{name}` {values:?} is not {rank} numbers of at least {least}"),
            )?;
        }
        Ok(())
    }

    /// The operand's size with padding, less what a window reaches beyond its first position.
    fn free(&self, axis: usize, size: &Dim, window: &Dim) -> Dim {
        let padding = Dim::constant(self.pads_begin[axis] + self.pads_end[axis]);
        let reach = (window - Dim::constant(1)) * Dim::constant(self.dilations[axis]);
        size + &padding - reach - Dim::constant(1)
    }

    /// The number of windows along an axis: `floor(free / stride) + 1`, or with `ceil_mode`
    /// `ceil(free / stride) + 1` without windows that start behind the operand and the padding before
    /// it (ONNX MaxPool, opset 19).
    pub fn windows(&self, axis: usize, size: &Dim, window: &Dim, ceil_mode: bool) -> Dim {
        let (free, stride) = (self.free(axis, size, window), Dim::constant(self.strides[axis]));
        if !ceil_mode {
            return free.floor_div(&stride) + Dim::constant(1);
        }
        let starts = (size + Dim::constant(self.pads_begin[axis])).ceil_div(&stride);
        (free.ceil_div(&stride) + Dim::constant(1)).minimum(&starts)
    }

    /// Requires that the window is not larger than the padded operand, where sizes are known.
    pub fn require_room(
        &self,
        axis: usize,
        size: &Dim,
        window: &Dim,
        constraint: &'static str,
    ) -> Result<(), Violation> {
        let free = self.free(axis, size, window);
        require(free.as_const().is_none_or(|free| free >= 0), constraint, || {
            format!(
                "window of {window} (dilation {}) is larger than size {size} with padding {} and {}",
                self.dilations[axis], self.pads_begin[axis], self.pads_end[axis]
            )
        })
    }

    /// `position * stride + offset * dilation - pad_begin`: where a window's offset lies.
    pub fn index(&self, axis: usize, position: IndexExpr, offset: IndexExpr) -> IndexExpr {
        position
            .times(self.strides[axis])
            .plus(offset.times(self.dilations[axis]))
            .plus(IndexExpr::size(-self.pads_begin[axis]))
    }

    /// The guard that [`Sliding::index`] lies inside the operand, where padding makes one necessary.
    pub fn guard(&self, axis: usize, index: &IndexExpr, size: &Dim) -> Option<Guard> {
        (self.pads_begin[axis] > 0 || self.pads_end[axis] > 0).then(|| inside(index, size))
    }
}

/// The guard that an index lies inside an axis.
pub(super) fn inside(index: &IndexExpr, size: &Dim) -> Guard {
    Guard::Within { value: index.clone(), low: Dim::constant(0), high: size.clone() }
}

/// Nested loops over exactly three axes serve all spatial ranks: fewer are filled up in front.
pub(super) const SPATIAL: usize = 3;

/// One spatial axis of an evaluation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Size of the side that windows lie on.
    pub size: usize,
    /// Number of windows.
    pub windows: usize,
    /// Number of positions of a window.
    pub window: usize,
    stride: i64,
    dilation: i64,
    pad: i64,
}

impl Sliding {
    /// The axes of an evaluation, filled up with axes of size 1 in front.
    pub fn spans(&self, sizes: &[usize], windows: &[usize], window: &[usize]) -> [Span; SPATIAL] {
        let filler = Span { size: 1, windows: 1, window: 1, stride: 1, dilation: 1, pad: 0 };
        let mut spans = [filler; SPATIAL];
        let first = SPATIAL - sizes.len();
        for axis in 0..sizes.len() {
            spans[first + axis] = Span {
                size: sizes[axis],
                windows: windows[axis],
                window: window[axis],
                stride: self.strides[axis],
                dilation: self.dilations[axis],
                pad: self.pads_begin[axis],
            };
        }
        spans
    }
}

impl Span {
    /// The index of a window's offset, if it lies inside.
    pub fn inside(&self, position: usize, offset: usize) -> Option<usize> {
        usize::try_from(self.at(position, offset)).ok().filter(|&index| index < self.size)
    }

    /// The index of a window's offset, negative or too large in the padding.
    pub fn at(&self, position: usize, offset: usize) -> i64 {
        position as i64 * self.stride + offset as i64 * self.dilation - self.pad
    }

    /// For each offset of a window, the windows for which it lies inside.
    pub fn runs(&self) -> Vec<Run> {
        let run = |offset: usize| {
            let first = self.at(0, offset);
            let skipped = if first < 0 { (-first + self.stride - 1) / self.stride } else { 0 };
            let start = first + skipped * self.stride;
            let room = (self.size as i64 - start + self.stride - 1) / self.stride;
            let count = room.min(self.windows as i64 - skipped).max(0) as usize;
            Run {
                window: skipped as usize,
                index: start as usize,
                stride: self.stride as usize,
                count,
            }
        };
        (0..self.window).map(run).collect()
    }
}

/// What nested loops over windows need of an axis.
#[derive(Debug)]
pub(super) struct Extent {
    /// Size of the side that windows lie on.
    pub size: usize,
    /// Number of windows.
    pub windows: usize,
    /// One run for each offset of a window.
    pub runs: Vec<Run>,
}

impl Extent {
    /// The extent of an axis.
    pub fn new(span: Span) -> Extent {
        Extent { size: span.size, windows: span.windows, runs: span.runs() }
    }
}

/// Neighbouring windows for which one offset lies inside.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The first window.
    pub window: usize,
    /// The offset's index in the first window.
    pub index: usize,
    /// How much the index grows from window to window.
    pub stride: usize,
    /// The number of windows.
    pub count: usize,
}

impl Run {
    /// Pairs of a window and the offset's index in it.
    #[inline]
    pub fn pairs(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count).map(move |step| (self.window + step, self.index + step * self.stride))
    }
}
