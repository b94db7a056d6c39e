//! Convolution.

use fornax_bundle::Dim;

use super::contraction::{Ring, accumulator, eval_sum_of_products, require_numbers, zeros};
use super::sliding::{Extent, Sliding};
use super::{
    Arity, AxisRole, ContractionForm, ContractionKind, OpClass, OpCtx, OpDef, OperandMap,
    Violation, require,
};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, IndexExpr, Type, eval_polynomial};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "conv",
    arity: Arity::Exactly(2),
    attrs: &[
        ("strides", AttrKind::Ints),
        ("pads_begin", AttrKind::Ints),
        ("pads_end", AttrKind::Ints),
        ("dilations", AttrKind::Ints),
        ("groups", AttrKind::Int),
    ],
    infer,
    eval: eval_polynomial!(eval),
    class: OpClass::Contraction(form),
    doc: "Convolution (no kernel is flipped) of `x: [N, C, spatial...]` with `w: [OC, C / groups, \
          kernel...]`, without bias: `y[n, oc, o] = sum_{c, k} x[n, c, o * stride + k * dilation - \
          pad_begin] * w[oc, c, k]`, where `x` is 0 outside and `c` runs over the channels of the \
          group of `oc`. Floats narrower than 32 bits are accumulated in `f32`. (C1) `x` has 1 to \
          3 spatial axes and `w` has the rank of `x`. (C2) Both have one element type, a number. \
          (C3) `strides`, `pads_begin`, `pads_end` and `dilations` have one entry per spatial \
          axis; strides and dilations are positive, pads are not negative. (C4) `groups` is \
          positive and divides `OC`, and `C` is `groups` times the second size of `w`. (C5) The \
          dilated kernel is not larger than the padded input. Source: ONNX Conv, opset 11.",
}];

/// Requires operands of a (possibly transposed) convolution: one rank with 1 to 3 spatial axes, one
/// number type, a valid geometry and a positive number of groups.
pub(super) fn require_operands(ctx: &OpCtx<'_>, sliding: &Sliding) -> Result<(), Violation> {
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    require((3..=5).contains(&x.rank()) && w.rank() == x.rank(), "C1", || {
        format!("{x} and {w} do not have batch, channels and 1 to 3 spatial axes each")
    })?;
    require_numbers(x, w, "C2")?;
    sliding.require_valid(x.rank() - 2, "C3")?;
    let groups = ctx.attrs.int("groups");
    require(groups > 0, "C4", || format!("`groups` is {groups}, not positive"))
}

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let sliding = Sliding::of(ctx.attrs);
    require_operands(ctx, &sliding)?;
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    let groups = Dim::constant(ctx.attrs.int("groups"));
    require(w.shape[0].divided_exactly(&groups).is_some(), "C4", || {
        format!("{} output channels are not divisible into {groups} groups", w.shape[0])
    })?;
    require(x.shape[1] == &w.shape[1] * &groups, "C4", || {
        format!("{} channels are not {groups} groups of {} ({x} with {w})", x.shape[1], w.shape[1])
    })?;
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    for axis in 0..x.rank() - 2 {
        let (size, window) = (&x.shape[axis + 2], &w.shape[axis + 2]);
        sliding.require_room(axis, size, window, "C5")?;
        shape.push(sliding.windows(axis, size, window, false));
    }
    Ok(Type::new(x.dtype, shape))
}

/// The positions of an output's spatial axis as `count * quotient + phase - shift`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    /// How many phases there are.
    pub count: i64,
    /// Positions before the first one that are counted too.
    pub shift: i64,
    /// What the phase is to the products.
    pub role: AxisRole,
}

impl Split {
    /// An axis of one phase.
    pub const NONE: Split = Split { count: 1, shift: 0, role: AxisRole::Batch };
}

/// The iteration axes of a (possibly transposed) convolution: batch, group if there are several, phases of
/// the output's spatial axes where there are several, output channels of the group, output's spatial axes
/// within a phase, input channels of the group, kernel.
pub(super) struct ConvAxes {
    pub axes: Vec<(Dim, AxisRole)>,
    pub batch: IndexExpr,
    /// The channel in the result.
    pub out_channel: IndexExpr,
    /// The output channel in its group.
    pub column: IndexExpr,
    /// The channel in the operand.
    pub channel: IndexExpr,
    /// The input channel in its group.
    pub inner: IndexExpr,
    pub spatial: Vec<IndexExpr>,
    /// The phase of each spatial axis; 0 where there is one.
    pub phase: Vec<IndexExpr>,
    pub kernel: Vec<IndexExpr>,
    splits: Vec<Split>,
}

impl ConvAxes {
    /// The axes for sizes per group of output and input channels; `spatial` has the sizes of the output's
    /// spatial axes and how each is split.
    pub fn new(
        batch: &Dim,
        groups: i64,
        columns: &Dim,
        inner: &Dim,
        (spatial, splits): (&[Dim], &[Split]),
        kernel: &[Dim],
    ) -> ConvAxes {
        let mut axes = Vec::new();
        let mut axis = |size: &Dim, role| {
            axes.push((size.clone(), role));
            IndexExpr::axis(axes.len() - 1)
        };
        let batch = axis(batch, AxisRole::Rows);
        let group = (groups > 1).then(|| axis(&Dim::constant(groups), AxisRole::Batch));
        let phase = splits
            .iter()
            .map(|split| match split.count {
                1 => IndexExpr::size(0i64),
                count => axis(&Dim::constant(count), split.role),
            })
            .collect();
        let column = axis(columns, AxisRole::Columns);
        let spatial = std::iter::zip(spatial, splits)
            .map(|(size, split)| {
                let reached = size + Dim::constant(split.shift);
                axis(&reached.ceil_div(&Dim::constant(split.count)), AxisRole::Rows)
            })
            .collect();
        let channel_in_group = axis(inner, AxisRole::Inner);
        let kernel = kernel.iter().map(|size| axis(size, AxisRole::Inner)).collect();
        let in_tensor = |index: &IndexExpr, size: &Dim| match &group {
            Some(group) => group.clone().times(size.clone()).plus(index.clone()),
            None => index.clone(),
        };
        ConvAxes {
            out_channel: in_tensor(&column, columns),
            channel: in_tensor(&channel_in_group, inner),
            inner: channel_in_group,
            axes,
            batch,
            column,
            spatial,
            phase,
            kernel,
            splits: splits.to_vec(),
        }
    }

    /// The result's index.
    pub fn out(&self) -> Vec<IndexExpr> {
        let mut out = vec![self.batch.clone(), self.out_channel.clone()];
        for (axis, split) in self.splits.iter().enumerate() {
            let position = self.spatial[axis].clone().times(split.count);
            let position = position.plus(self.phase[axis].clone());
            out.push(position.plus(IndexExpr::size(-split.shift)));
        }
        out
    }
}

fn form(ctx: &OpCtx<'_>) -> ContractionForm {
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    let sliding = Sliding::of(ctx.attrs);
    let groups = ctx.attrs.int("groups");
    let (sizes, kernel) = (&x.shape[2..], &w.shape[2..]);
    let spatial: Vec<Dim> = (0..sizes.len())
        .map(|axis| sliding.windows(axis, &sizes[axis], &kernel[axis], false))
        .collect();
    let columns = w.shape[0].floor_div(&Dim::constant(groups));
    let splits = vec![Split::NONE; spatial.len()];
    let spatial = (spatial.as_slice(), splits.as_slice());
    let axes = ConvAxes::new(&x.shape[0], groups, &columns, &w.shape[1], spatial, kernel);
    let mut lhs =
        OperandMap { index: vec![axes.batch.clone(), axes.channel.clone()], guards: Vec::new() };
    for (axis, size) in sizes.iter().enumerate() {
        let index = sliding.index(axis, axes.spatial[axis].clone(), axes.kernel[axis].clone());
        lhs.guards.extend(sliding.guard(axis, &index, size));
        lhs.index.push(index);
    }
    let mut weight_index = vec![axes.out_channel.clone(), axes.inner.clone()];
    weight_index.extend(axes.kernel.iter().cloned());
    ContractionForm {
        lhs,
        rhs: OperandMap { index: weight_index, guards: Vec::new() },
        out: axes.out(),
        accumulator: accumulator(x.dtype),
        axes: axes.axes,
        kind: ContractionKind::Convolution { groups, channels: w.shape[1].clone() },
    }
}

fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval_sum_of_products!(ctx, operands, convolve)
}

fn convolve<R: Ring>(ctx: &EvalCtx<'_>, x: &Array<R>, w: &Array<R>) -> Array<R> {
    let groups = ctx.attrs.axis("groups");
    let spans = Sliding::of(ctx.attrs).spans(&x.shape[2..], &ctx.shape[2..], &w.shape[2..]);
    let (channels, out_channels, group_channels) = (x.shape[1], w.shape[0], w.shape[1]);
    let plane: usize = spans.iter().map(|span| span.size).product();
    let out_plane: usize = spans.iter().map(|span| span.windows).product();
    let kernel: usize = spans.iter().map(|span| span.window).product();
    let extents = spans.map(Extent::new);
    let mut out = zeros(ctx.shape);
    for batch in 0..x.shape[0] {
        for out_channel in 0..out_channels {
            let group = out_channel / (out_channels / groups);
            let sums =
                &mut out.data[(batch * out_channels + out_channel) * out_plane..][..out_plane];
            for inner in 0..group_channels {
                let channel = batch * channels + group * group_channels + inner;
                let image = &x.data[channel * plane..][..plane];
                let weights = &w.data[(out_channel * group_channels + inner) * kernel..][..kernel];
                correlate(sums, image, weights, &extents);
            }
        }
    }
    out
}

/// Adds one channel's convolution with one kernel to `sums`.
fn correlate<R: Ring>(
    sums: &mut [R],
    image: &[R],
    weights: &[R],
    [depth, height, width]: &[Extent; 3],
) {
    let mut weights = weights.iter();
    for run_d in &depth.runs {
        for run_h in &height.runs {
            for (run_w, &weight) in width.runs.iter().zip(&mut weights) {
                for (out_d, d) in run_d.pairs() {
                    for (out_h, h) in run_h.pairs() {
                        let sums = &mut sums[(out_d * height.windows + out_h) * width.windows..];
                        let row = &image[(d * height.size + h) * width.size..];
                        for (out_w, w) in run_w.pairs() {
                            sums[out_w] = sums[out_w].add_product(row[w], weight);
                        }
                    }
                }
            }
        }
    }
}
