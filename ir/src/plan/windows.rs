//! Which elements of its left operand a convolution's taps read, and how it is cut into patches of them.

use super::index::{Index, IndexSpace};
use crate::op::{AxisRole, ContractionForm};

/// The largest step between positions, and the largest one between taps.
const MOST_STEP: i64 = 8;
const MOST_TAP_STEP: i64 = 64;

/// The most taps along an axis.
const MOST_TAPS: i64 = 64;

/// Positions that are multiplied together, and adjacent ones of them at least.
const BOX: u32 = 64;
const ADJACENT: u32 = 8;

/// Inner elements of a step, and steps of a patch at most: each of them is code of its own.
const STEP: u32 = 32;
const MOST_STEPS: u32 = 50;

/// Channels that a patch may have; the fewest are those that lie together.
const HELD: [u32; 4] = [32, 16, 8, 4];

/// Bytes of patches in shared memory: of blocks of fewer positions than `LARGE_TILE`, of which two fit into a
/// multiprocessor, and of larger ones.
const LARGE_TILE: u32 = 256;
const MOST_PATCH_BYTES: [u64; 2] = [64 * 1024, 112 * 1024];

/// An axis of the left operand along which windows lie: a tap of a position reads element
/// `step * position + tap_step * tap + start`. One of the two steps is 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowAxis {
    /// The contraction's axis of positions.
    pub position: usize,
    /// Its axis of taps.
    pub tap: usize,
    /// Number of taps.
    pub taps: u32,
    /// From one position to the next.
    pub step: u32,
    /// From one tap to the next.
    pub tap_step: i32,
    /// Where the first one is; nothing where other axes decide about it, too.
    pub start: Option<i64>,
}

/// A convolution: products of windows of the left operand, added up over taps and channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// Where windows lie, in the order of the left operand's axes.
    pub axes: Vec<WindowAxis>,
    /// The contraction's axis of channels.
    pub channel: usize,
}

/// What all taps of a tile of positions read of some channels (see [`super::Schedule::Patch`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchShape {
    /// Positions of the tile along each window axis: a box along the last two.
    pub tile: Vec<u32>,
    /// Positions along the last axis of what is multiplied together: 64 in a row, or 8 by 8.
    pub box_width: u32,
    /// Channels of a patch.
    pub held: u32,
    /// Taps of a step.
    pub taps_held: u32,
    /// Steps of a patch.
    pub steps: u32,
    /// Places from one along each window axis to the next. Along the last axis those that positions have between
    /// them lie apart, in `step` lines of `line` places.
    pub strides: Vec<u32>,
    /// Places of such a line.
    pub line: u32,
    /// All places.
    pub places: u32,
}

impl PatchShape {
    /// Positions that are multiplied together.
    pub const BOX: u32 = BOX;
    /// Adjacent ones of them, at least.
    pub const ADJACENT: u32 = ADJACENT;
    /// Inner elements of a step.
    pub const STEP: u32 = STEP;

    /// Elements of a patch.
    pub fn elements(&self) -> u32 {
        self.held * self.places
    }
}

impl WindowAxis {
    /// What the tap that reads the lowest elements adds.
    pub fn lowest(&self) -> i32 {
        (self.taps as i32 - 1) * self.tap_step.min(0)
    }

    /// Elements that `tile` adjacent positions read.
    pub fn extent(&self, tile: u32) -> u32 {
        (tile - 1) * self.step + (self.taps - 1) * self.tap_step.unsigned_abs() + 1
    }
}

impl Windows {
    /// The windows of a contraction whose left operand's index is linear, with small constant steps; none
    /// where it is of another kind.
    pub fn of(form: &ContractionForm, space: &mut IndexSpace<'_>) -> Option<Windows> {
        let vars: Vec<_> = form.axes.iter().map(|(size, _)| space.add_var(size)).collect();
        let all: Vec<Index> = vars.iter().map(|&var| Index::var(var)).collect();
        let (mut axes, mut channel) = (Vec::new(), None);
        for expr in &form.lhs.index {
            if expr.has_elements() {
                return None;
            }
            let used = expr.axes();
            let of = |wanted: AxisRole| -> Vec<usize> {
                used.iter().copied().filter(|&axis| form.axes[axis].1 == wanted).collect()
            };
            match (of(AxisRole::Rows).as_slice(), of(AxisRole::Inner).as_slice()) {
                (&[position], &[tap]) => {
                    let index = space.compose(expr, &all, &[]);
                    let step = index.step(vars[position])?.as_const()?;
                    let tap_step = index.step(vars[tap])?.as_const()?;
                    let taps = form.axes[tap].0.as_const()?;
                    let small = (1..=MOST_STEP).contains(&step)
                        && tap_step.abs() <= MOST_TAP_STEP
                        && (1..=MOST_TAPS).contains(&taps);
                    if !small || (step != 1 && tap_step != 1) {
                        return None;
                    }
                    axes.push(WindowAxis {
                        position,
                        tap,
                        taps: taps as u32,
                        step: step as u32,
                        tap_step: tap_step as i32,
                        start: index.constant().as_const().filter(|_| used.len() == 2),
                    });
                }
                (_, []) => {}
                (&[], &[axis]) if channel.is_none() => channel = Some(axis),
                _ => return None,
            }
        }
        let channel = channel?;
        let is_known = |axis: usize| axis == channel || axes.iter().any(|of| of.tap == axis);
        let mut inner = (0..form.axes.len()).filter(|&axis| form.axes[axis].1 == AxisRole::Inner);
        let complete = inner.all(|axis| is_known(axis) || form.axes[axis].0.is(1));
        (complete && !axes.is_empty()).then_some(Windows { axes, channel })
    }

    /// Taps of a position along all axes.
    pub fn taps(&self) -> u32 {
        self.axes.iter().map(|axis| axis.taps).product()
    }

    /// The patches of tiles of `positions`, at most `width` of them along the last axis: those that fit, of as
    /// many of the `channels` as possible first, but of less than twice as many as there are. `parts`: patches of
    /// each factor's parts.
    pub fn patches(
        &self,
        channels: i64,
        positions: u32,
        width: u32,
        parts: u32,
    ) -> impl Iterator<Item = PatchShape> {
        let count = self.axes.len();
        let mut tile = vec![1; count];
        tile[count - 1] = if count == 1 { positions } else { width.min(positions) };
        if count > 1 {
            tile[count - 2] = positions / tile[count - 1];
        }
        let is_high = count > 1 && tile[count - 2].is_multiple_of(BOX / ADJACENT);
        let box_width = if is_high { ADJACENT } else { BOX };
        let last = &self.axes[count - 1];
        let line = last.extent(tile[count - 1]).div_ceil(last.step);
        // Large dilations give more places than a number holds; those do not fit.
        let mut strides = vec![1u64];
        let mut places = u64::from(line) * u64::from(last.step);
        for (window, &tile) in self.axes.iter().zip(&tile).rev().skip(1) {
            strides.push(places);
            places = places.saturating_mul(window.extent(tile).into());
        }
        strides.reverse();
        let most = MOST_PATCH_BYTES[usize::from(positions >= LARGE_TILE)];
        let taps = self.taps();
        let cut = move |held: u32| {
            let steps = taps.div_ceil(STEP / held);
            let copies = if channels <= i64::from(held) { 1 } else { 2 };
            let bytes = places.saturating_mul((4 * held * copies * parts).into());
            let fits = tile[count - 1].is_multiple_of(box_width)
                && (held == HELD[HELD.len() - 1] || channels > i64::from(held) / 2)
                && steps <= MOST_STEPS
                && bytes <= most;
            fits.then(|| PatchShape {
                tile: tile.clone(),
                box_width,
                held,
                taps_held: STEP / held,
                steps,
                strides: strides.iter().map(|&stride| stride as u32).collect(),
                line,
                places: places as u32,
            })
        };
        HELD.into_iter().filter_map(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(axes: &[(u32, u32, i32)]) -> Windows {
        let axis = |&(taps, step, tap_step): &(u32, u32, i32)| WindowAxis {
            position: 0,
            tap: 0,
            taps,
            step,
            tap_step,
            start: Some(0),
        };
        Windows { axes: axes.iter().map(axis).collect(), channel: 0 }
    }

    #[test]
    fn patches_have_what_all_taps_of_a_tile_read() {
        // 8 x 16 positions of 3 x 3 taps read 10 x 18 places; of 64 channels 32 fit, twice.
        let shape = windows(&[(3, 1, 1), (3, 1, 1)]).patches(64, 128, 16, 1).next().unwrap();
        assert_eq!((shape.tile, shape.box_width), (vec![8, 16], 8));
        assert_eq!((shape.strides, shape.line, shape.places), (vec![18, 1], 18, 180));
        assert_eq!((shape.held, shape.taps_held, shape.steps), (32, 1, 9));
        // Along the last axis every fourth place is a position's: lines of 18 lie apart.
        let shape = windows(&[(11, 4, 1), (11, 4, 1)]).patches(3, 128, 16, 1).next().unwrap();
        assert_eq!((shape.line, shape.places), (18, 39 * 72));
        assert_eq!((shape.held, shape.steps), (4, 16));
    }

    #[test]
    fn what_does_not_fit_gives_no_patches() {
        // 16 x 4 positions are no boxes.
        let small = windows(&[(3, 1, 1), (3, 1, 1)]);
        assert_eq!(small.patches(64, 64, 4, 1).next(), None);
        let wide = windows(&[(64, 1, 64), (64, 1, 64), (64, 1, 64)]);
        assert_eq!(wide.patches(64, 256, 16, 1).next(), None);
        let many_taps = windows(&[(41, 1, 1), (40, 1, 1)]);
        assert_eq!(many_taps.patches(4, 128, 16, 1).next(), None);
    }
}
