//! Averages of convolutions: both are linear, so that the average goes into the kernel, or, over the
//! whole image, the image is summed first.

use egg::Id;
use fornax_ir::op::{OpClass, OpCtx};
use fornax_ir::{DType, Dim, Shape, attrs};

use super::pool::{Windows, counted, spatial_sizes};
use super::{build, premises, rules};
use crate::egraph::{Rule, Site};

fn groups(site: &Site<'_>) -> i64 {
    site.node("c").attrs().int("groups")
}

premises! {
    WINDOWS_ARE_PLAIN "the windows lie inside, without gaps" |site|
        Windows::of(site.node("p").attrs()).is_plain();
    IS_NOT_DILATED "the convolution is not dilated" |site|
        site.node("c").attrs().ints("dilations").iter().all(|&dilation| dilation == 1);
    HAS_NO_GROUPS "the convolution has one group" |site| groups(site) == 1;
    W_IS_PREPARED "w is prepared" |site| site.data(site.value("w")).prepared;
    IS_NO_STATISTIC "no other fold reads the convolution" |site|
        !site.is_statistic_of(site.node("r").children[0]);
    IS_FLOAT "the elements are floats" |site| site.ty(site.root()).dtype.is_float();
    FOLDS_THE_IMAGE "the spatial axes are folded" |site| {
        let axes = site.reduction(site.node("r")).axes;
        axes.into_iter().eq(2..site.ty(site.value("x")).rank())
    };
    COLUMNS_ARE_POOLED "the matrix is pooled along its columns" |site| {
        let shape = &site.ty(site.node("p").children[0]).shape;
        shape.rank() == 3 && shape[1].is(1) && site.ty(site.value("b")).rank() == 2
            && site.ty(site.value("a")).rank() == 2
    };
    ROWS_ARE_POOLED "the matrix is pooled along its columns, row by row" |site| {
        let (from, to) = (site.ty(site.value("b")), &site.ty(site.node("p").children[0]).shape);
        from.rank() == 2 && to.rank() == 3 && to[0].is(1) && to[2] == from.shape[1]
            && site.ty(site.value("a")).rank() == 2
    };
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Rule> {
    rules! { Algebra:
        "avg-pool-of-conv" Real "(@p=avg_pool (@c=conv ?x ?w))" => build(pooled_conv), if [WINDOWS_ARE_PLAIN, IS_NOT_DILATED] when [W_IS_PREPARED] "An average pooling of a convolution is a convolution with a wider kernel and stride.";
        "avg-pool-of-conv-transpose" Real "(@p=avg_pool (@c=conv_transpose ?x ?w))" => build(pooled_transpose), if [WINDOWS_ARE_PLAIN, IS_NOT_DILATED, HAS_NO_GROUPS] when [W_IS_PREPARED] "An average pooling of a transposed convolution, whose stride divides that of the pooling, is a convolution.";
        "avg-pool-of-columns" Real "(@p=avg_pool (reshape (@c=matmul ?a ?b)))" => build(pooled_columns), if [COLUMNS_ARE_POOLED] when [] "An average pooling along the columns of a product pools the right matrix.";
        "avg-pool-of-row-columns" Real "(@p=avg_pool (reshape (@c=matmul ?a ?b)))" => build(pooled_columns), if [ROWS_ARE_POOLED] when [] "As `avg-pool-of-columns`, with the rows as channels.";
        "mean-of-conv" Real "(@r=reduce_mean (@c=conv ?x ?w))" => build(mean_of_conv), if [FOLDS_THE_IMAGE, IS_FLOAT] when [W_IS_PREPARED, IS_NO_STATISTIC] "The mean of a convolution's image: the image is summed once for each position of the kernel.";
        "mean-of-conv-transpose" Real "(@r=reduce_mean (@c=conv_transpose ?x ?w))" => build(mean_of_conv), if [FOLDS_THE_IMAGE, IS_FLOAT] when [W_IS_PREPARED, IS_NO_STATISTIC] "The mean of a transposed convolution's image: the image is summed once for each position of the kernel.";
    }
}

/// With windows of `m` elements `t` apart over a convolution with stride `s` and kernel `w`, the mean
/// `sum_j y[q t + j] / m` is a convolution with stride `s t` and kernel `sum_j w[u - j s] / m`.
fn pooled_conv(site: &mut Site<'_>) -> Option<Id> {
    let windows = Windows::of(site.node("p").attrs());
    let mut attrs = site.node("c").attrs().clone();
    let strides = attrs.ints("strides").to_vec();
    let axes = 0..strides.len();
    let reach: Vec<i64> =
        axes.clone().map(|axis| (windows.kernel[axis] - 1) * strides[axis]).collect();
    let ones = vec![1; strides.len()];
    let widen = counted(&windows.kernel, &ones, &reach, &reach, &strides);
    let kernel = site.add("avg_pool", widen, &[site.value("w")])?;
    let wider: Vec<i64> = axes.map(|axis| strides[axis] * windows.strides[axis]).collect();
    attrs.insert("strides", wider);
    site.add("conv", attrs, &[site.value("x"), kernel])
}

/// One spatial axis of a pooled transposed convolution as a convolution.
struct Phase {
    /// Stride of the convolution.
    stride: i64,
    /// Size of its kernel.
    taps: i64,
    pad_begin: i64,
    pad_end: i64,
    /// Padding of the flipped kernel before it is pooled to the new one.
    kernel_pads: [i64; 2],
}

impl Phase {
    /// The transposed convolution adds `x[i] w[k]` at `i s + k - p`; the mean of window `q` takes
    /// positions `q t + j`, `0 <= j < m`. With `t = s r` and `i = q r + e` it is
    /// `sum_e x[q r + e] W[e]`, `W[e] = sum_j w[j + p - e s] / m`.
    fn new(size: i64, windows: i64, kernel: i64, s: i64, p: i64, m: i64, t: i64) -> Option<Phase> {
        if t % s != 0 || windows < 1 {
            return None;
        }
        let stride = t / s;
        let first = (p - kernel + 1 + s - 1).div_euclid(s);
        let last = (m - 1 + p).div_euclid(s);
        let taps = last - first + 1;
        let pad_begin = -first;
        let pad_end = ((windows - 1) * stride + taps - size - pad_begin).max(0);
        // In the flipped kernel, window `e - first` ends at `(e - first) s + shift`.
        let shift = first * s - p + kernel - 1;
        let before = m - 1 - shift;
        let after = ((taps - 1) * s + m - kernel - before).max(0);
        let is_exact = (kernel + before + after - m).div_euclid(s) + 1 == taps;
        (taps > 0 && pad_begin >= 0 && before >= 0 && is_exact).then_some(Phase {
            stride,
            taps,
            pad_begin,
            pad_end,
            kernel_pads: [before, after],
        })
    }
}

fn pooled_transpose(site: &mut Site<'_>) -> Option<Id> {
    let windows = Windows::of(site.node("p").attrs());
    let attrs = site.node("c").attrs().clone();
    let (x, w) = (site.value("x"), site.value("w"));
    let (sizes, kernel) = (spatial_sizes(site, x)?, spatial_sizes(site, w)?);
    let pooled = spatial_sizes(site, site.root())?;
    let strides = attrs.ints("strides").to_vec();
    let axes = 0..sizes.len();
    let phase = |axis: usize| {
        Phase::new(
            sizes[axis],
            pooled[axis],
            kernel[axis],
            strides[axis],
            attrs.ints("pads_begin")[axis],
            windows.kernel[axis],
            windows.strides[axis],
        )
    };
    let phases: Vec<Phase> = axes.clone().map(phase).collect::<Option<_>>()?;
    let of = |part: fn(&Phase) -> i64| -> Vec<i64> { phases.iter().map(part).collect() };
    let mut flipped = w;
    for axis in axes {
        flipped = site.slice(flipped, axis + 2, kernel[axis] - 1, kernel[axis], -1)?;
    }
    let ones = vec![1; sizes.len()];
    let (before, after) = (of(|phase| phase.kernel_pads[0]), of(|phase| phase.kernel_pads[1]));
    let pool = counted(&windows.kernel, &strides, &before, &after, &ones);
    let taps = site.add("avg_pool", pool, &[flipped])?;
    if spatial_sizes(site, taps)? != of(|phase| phase.taps) {
        return None;
    }
    let mut perm: Vec<usize> = (0..sizes.len() + 2).collect();
    perm.swap(0, 1);
    let taps = site.transpose(taps, &perm)?;
    let conv = attrs! {
        strides: of(|phase| phase.stride), pads_begin: of(|phase| phase.pad_begin),
        pads_end: of(|phase| phase.pad_end), dilations: ones, groups: 1i64,
    };
    let mut result = site.add("conv", conv, &[x, taps])?;
    for (axis, &size) in pooled.iter().enumerate() {
        result = site.slice(result, axis + 2, 0, size, 1)?;
    }
    Some(result)
}

fn pooled_columns(site: &mut Site<'_>) -> Option<Id> {
    let attrs = site.node("p").attrs().clone();
    let (a, b) = (site.value("a"), site.value("b"));
    let shape = site.ty(b).shape.clone();
    let image: Vec<Dim> = vec![shape[0].clone(), Dim::constant(1), shape[1].clone()];
    let image = site.reshape(b, image)?;
    let pooled = site.add("avg_pool", attrs, &[image])?;
    let columns = site.ty(pooled).shape[2].clone();
    let matrix = site.reshape(pooled, vec![shape[0].clone(), columns])?;
    let product = site.apply("matmul", &[a, matrix])?;
    let result: Shape = site.ty(site.root()).shape.clone();
    site.reshape(product, result)
}

/// The positions of the image that one position of the kernel meets along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Met {
    start: i64,
    count: i64,
    step: i64,
}

impl Met {
    /// Of a convolution: `o s + k d - p` inside the image, for all windows `o`.
    fn by_conv(size: i64, windows: i64, s: i64, offset: i64) -> Met {
        let first = (-offset + s - 1).div_euclid(s).max(0);
        let last = (size - 1 - offset).div_euclid(s).min(windows - 1);
        Met { start: first * s + offset, count: (last - first + 1).max(0), step: s }
    }

    /// Of a transposed convolution: all `i` with `i s + k d - p` inside the result.
    fn by_transpose(size: i64, result: i64, s: i64, offset: i64) -> Met {
        let first = (-offset + s - 1).div_euclid(s).max(0);
        let last = (result - 1 - offset).div_euclid(s).min(size - 1);
        Met { start: first, count: (last - first + 1).max(0), step: 1 }
    }

    fn is_all(self, size: i64) -> bool {
        self.count == size && self.step == 1
    }
}

fn mean_of_conv(site: &mut Site<'_>) -> Option<Id> {
    let node = site.node("c").clone();
    let attrs = node.attrs().clone();
    let (mut x, mut w) = (site.value("x"), site.value("w"));
    let (sizes, kernel) = (spatial_sizes(site, x)?, spatial_sizes(site, w)?);
    let image = node_sizes(site)?;
    let is_transposed = attrs.get("output_padding").is_some();
    for axis in (0..sizes.len()).rev() {
        let met: Vec<Met> = (0..kernel[axis])
            .map(|k| {
                let offset = k * attrs.ints("dilations")[axis] - attrs.ints("pads_begin")[axis];
                let by = if is_transposed { Met::by_transpose } else { Met::by_conv };
                by(sizes[axis], image[axis], attrs.ints("strides")[axis], offset)
            })
            .collect();
        let first = *met.first()?;
        if met.iter().all(|met| *met == first) {
            x = sum_of(site, x, axis + 2, sizes[axis], first)?;
            w = site.reduce("reduce_sum", w, &[axis + 2])?;
        } else {
            let sums: Option<Vec<Id>> =
                met.iter().map(|&met| sum_of(site, x, axis + 2, sizes[axis], met)).collect();
            x = site.add("concat", attrs! { axis: axis as i64 + 2 }, &sums?)?;
        }
    }
    let count: i64 = image.iter().product();
    let ty = site.ty(w).clone();
    let share = site.number(ty.dtype, 1.0 / count as f64, &ty.shape)?;
    let w = site.apply("mul", &[w, share])?;
    let spatial = &"uvw"[..sizes.len()];
    let weights = if is_transposed { "co" } else { "oc" };
    let equation = format!("nc{spatial},{weights}{spatial}->no");
    let product = site.add("einsum", attrs! { equation: equation.as_str() }, &[x, w])?;
    let result = site.ty(site.root()).shape.clone();
    site.reshape(product, result)
}

/// The spatial sizes of the convolution that is reduced.
fn node_sizes(site: &Site<'_>) -> Option<Vec<i64>> {
    let node = site.node("c");
    let types = site.operand_types(node);
    let ctx = OpCtx { attrs: node.attrs(), operands: &types };
    debug_assert!(matches!(node.op().class(), OpClass::Contraction(_)));
    let ty = (node.op().def().infer)(&ctx).ok()?;
    ty.shape[2..].iter().map(|size| size.as_const()).collect()
}

/// The sum of the met positions along an axis, which keeps the size 1. Where few are left out, they are
/// taken from the sum of all, which is shared by all positions of the kernel.
fn sum_of(site: &mut Site<'_>, x: Id, axis: usize, size: i64, met: Met) -> Option<Id> {
    if met.count == 0 {
        let ty = site.ty(x).clone();
        let mut shape = ty.shape.to_vec();
        shape[axis] = Dim::constant(1);
        return zeros(site, ty.dtype, &Shape::from(shape));
    }
    let all = |site: &mut Site<'_>| site.reduce("reduce_sum", x, &[axis]);
    if met.is_all(size) {
        return all(site);
    }
    if met.step != 1 || 2 * met.count < size {
        let part = site.slice(x, axis, met.start, met.count, met.step)?;
        return site.reduce("reduce_sum", part, &[axis]);
    }
    let mut sum = all(site)?;
    let end = met.start + met.count;
    for (start, count) in [(0, met.start), (end, size - end)] {
        if count > 0 {
            let part = site.slice(x, axis, start, count, 1)?;
            let part = site.reduce("reduce_sum", part, &[axis])?;
            sum = site.apply("sub", &[sum, part])?;
        }
    }
    Some(sum)
}

fn zeros(site: &mut Site<'_>, dtype: DType, shape: &Shape) -> Option<Id> {
    site.number(dtype, 0.0, shape)
}
