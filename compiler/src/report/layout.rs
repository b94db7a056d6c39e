//! Where regions and their operators stand on the page: layers from top to bottom, so that every value goes
//! down; inside a region likewise.

use serde::Serialize;

/// The size of an operator's box, and the space around it, in pixels at full size.
const OP: (f64, f64) = (150.0, 34.0);
const OP_GAP: (f64, f64) = (14.0, 16.0);
/// Space inside of a region's border, and above its operators for the name.
const PADDING: f64 = 14.0;
const TITLE: f64 = 26.0;
/// Space between regions.
const GAP: (f64, f64) = (40.0, 60.0);
/// Operators side by side in a region; more go to the next row.
const MAX_COLUMNS: usize = 4;
/// How often regions are moved towards what they are connected with.
const SWEEPS: usize = 4;

/// A rectangle in pixels at full size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

/// What has to be placed.
pub(super) struct Shape<'a> {
    /// How many operators.
    pub ops: usize,
    /// Which reads which.
    pub inner: &'a [[usize; 2]],
    /// Whether it is computed once after loading; such regions stand beside the others.
    pub prepared: bool,
}

/// A placed region; operators' places are absolute.
#[derive(Debug, Clone, Default)]
pub(super) struct Placed {
    pub rect: Rect,
    pub ops: Vec<Rect>,
}

/// Places regions, operands before users; `edges`: from region to region.
pub(super) fn layout(shapes: &[Shape<'_>], edges: &[[usize; 2]]) -> Vec<Placed> {
    let mut placed: Vec<Placed> = shapes.iter().map(inside).collect();
    let mut right = 0.0;
    for prepared in [false, true] {
        let of_band = |region: &usize| shapes[*region].prepared == prepared;
        let band: Vec<usize> = (0..shapes.len()).filter(of_band).collect();
        let inner: Vec<[usize; 2]> =
            edges.iter().copied().filter(|[a, b]| of_band(a) && of_band(b)).collect();
        right = place_band(&band, &inner, &mut placed, right) + 4.0 * GAP.0;
    }
    placed
}

/// Each node's layer: one more than the last of those it reads.
fn layers(count: usize, edges: &[[usize; 2]]) -> Vec<usize> {
    let mut layers = vec![0; count];
    let mut edges = edges.to_vec();
    // Numbers go up along edges, so that one pass in that order suffices.
    edges.sort_unstable_by_key(|&[_, to]| to);
    for [from, to] in edges {
        layers[to] = layers[to].max(layers[from] + 1);
    }
    layers
}

fn inside(shape: &Shape<'_>) -> Placed {
    let layers = layers(shape.ops, shape.inner);
    let mut order: Vec<usize> = (0..shape.ops).collect();
    order.sort_by_key(|&op| (layers[op], op));
    let mut ops = vec![Rect::default(); shape.ops];
    let (mut row, mut column, mut columns, mut last) = (0usize, 0usize, 1usize, None);
    for op in order {
        let is_new = last.is_some_and(|last| last != layers[op]);
        if is_new || column == MAX_COLUMNS {
            (row, column) = (row + 1, 0);
        }
        let x = PADDING + column as f64 * (OP.0 + OP_GAP.0);
        let y = TITLE + PADDING / 2.0 + row as f64 * (OP.1 + OP_GAP.1);
        ops[op] = Rect { x, y, w: OP.0, h: OP.1 };
        (column, last) = (column + 1, Some(layers[op]));
        columns = columns.max(column);
    }
    let w = 2.0 * PADDING + columns as f64 * (OP.0 + OP_GAP.0) - OP_GAP.0;
    let h = TITLE + PADDING + (row + 1) as f64 * (OP.1 + OP_GAP.1) - OP_GAP.1;
    Placed { rect: Rect { x: 0.0, y: 0.0, w, h }, ops }
}

/// Places a band of regions from `left` on; returns its right end.
fn place_band(band: &[usize], edges: &[[usize; 2]], placed: &mut [Placed], left: f64) -> f64 {
    let layer_of = layers(placed.len(), edges);
    let deepest = band.iter().map(|&region| layer_of[region]).max().unwrap_or(0);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); deepest + 1];
    for &region in band {
        rows[layer_of[region]].push(region);
    }
    let width = |row: &[usize], placed: &[Placed]| -> f64 {
        row.iter().map(|&region| placed[region].rect.w + GAP.0).sum::<f64>() - GAP.0
    };
    let widest = rows.iter().map(|row| width(row, placed)).fold(0.0, f64::max);
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); placed.len()];
    for &[from, to] in edges {
        sources[to].push(from);
    }
    let mut top = 0.0;
    for row in &rows {
        let mut x = left + (widest - width(row, placed)) / 2.0;
        let height = row.iter().map(|&region| placed[region].rect.h).fold(0.0, f64::max);
        for &region in row {
            placed[region].rect.x = x;
            placed[region].rect.y = top;
            x += placed[region].rect.w + GAP.0;
        }
        top += height + GAP.1;
    }
    for _ in 0..SWEEPS {
        for row in &mut rows {
            let center = |region: usize, placed: &[Placed]| {
                placed[region].rect.x + placed[region].rect.w / 2.0
            };
            let wanted = |region: usize, placed: &[Placed]| match sources[region].as_slice() {
                [] => center(region, placed),
                from => {
                    from.iter().map(|&from| center(from, placed)).sum::<f64>() / from.len() as f64
                }
            };
            let snapshot = placed.to_vec();
            row.sort_by(|&a, &b| {
                wanted(a, &snapshot).total_cmp(&wanted(b, &snapshot)).then(a.cmp(&b))
            });
            let mean = row.iter().map(|&region| wanted(region, &snapshot)).sum::<f64>()
                / row.len().max(1) as f64;
            let mut x = mean - width(row, &snapshot) / 2.0;
            for &region in row.iter() {
                placed[region].rect.x = x;
                x += placed[region].rect.w + GAP.0;
            }
        }
    }
    let least = band.iter().map(|&region| placed[region].rect.x).fold(f64::INFINITY, f64::min);
    let mut right = left;
    for &region in band {
        let region = &mut placed[region];
        region.rect.x += left - least;
        for op in &mut region.ops {
            op.x += region.rect.x;
            op.y += region.rect.y;
        }
        right = right.max(region.rect.x + region.rect.w);
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_down_and_regions_do_not_overlap() {
        let chain = [[0usize, 1], [1, 2]];
        let shapes: Vec<Shape<'_>> = (0..12)
            .map(|number| Shape { ops: 3, inner: &chain, prepared: number % 5 == 4 })
            .collect();
        let edges = [[0, 1], [0, 2], [0, 3], [1, 5], [2, 5], [3, 6], [5, 7], [6, 7], [4, 9]];
        let placed = layout(&shapes, &edges);
        for [from, to] in edges.iter().filter(|[a, b]| !shapes[*a].prepared && !shapes[*b].prepared)
        {
            assert!(placed[*from].rect.y + placed[*from].rect.h < placed[*to].rect.y);
        }
        for (a, one) in placed.iter().enumerate() {
            assert!(one.ops.windows(2).all(|pair| pair[0].y + pair[0].h < pair[1].y));
            for op in &one.ops {
                assert!(op.x >= one.rect.x && op.x + op.w <= one.rect.x + one.rect.w);
                assert!(op.y >= one.rect.y && op.y + op.h <= one.rect.y + one.rect.h);
            }
            for other in &placed[a + 1..] {
                let (a, b) = (one.rect, other.rect);
                let apart =
                    a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
                assert!(apart, "{a:?} {b:?}");
            }
        }
    }
}
