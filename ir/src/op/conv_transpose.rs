//! Transposed convolution.

use fornax_bundle::Dim;

use super::contraction::{Ring, accumulator, eval_sum_of_products, zeros};
use super::conv::{ConvAxes, require_operands};
use super::sliding::{Extent, Sliding, inside};
use super::{Arity, ContractionForm, OpClass, OpCtx, OpDef, OperandMap, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, Guard, IndexExpr, Type, eval_polynomial};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "conv_transpose",
    arity: Arity::Exactly(2),
    attrs: &[
        ("strides", AttrKind::Ints),
        ("pads_begin", AttrKind::Ints),
        ("pads_end", AttrKind::Ints),
        ("dilations", AttrKind::Ints),
        ("groups", AttrKind::Int),
        ("output_padding", AttrKind::Ints),
    ],
    infer,
    eval: eval_polynomial!(eval),
    class: OpClass::Contraction(form),
    doc: "Transposed convolution of `x: [N, C, spatial...]` with `w: [C, OC / groups, kernel...]`, \
          without bias: the element of `x` at `i`, times `w` at `k`, is added to the result at `i \
          * stride + k * dilation - pad_begin`, if that lies inside. A spatial size of the result \
          is `stride * (size - 1) + output_padding + (kernel - 1) * dilation + 1 - pad_begin - \
          pad_end`. Floats narrower than 32 bits are accumulated in `f32`. (C1) `x` has 1 to 3 \
          spatial axes and `w` has the rank of `x`. (C2) Both have one element type, a number. \
          (C3) `strides`, `pads_begin`, `pads_end`, `dilations` and `output_padding` have one \
          entry per spatial axis; strides and dilations are positive, the others not negative. \
          (C4) `groups` is positive and divides `C`, which is also the first size of `w`. (C5) The \
          spatial sizes of the result are not negative. Source: ONNX ConvTranspose, opset 11.",
}];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let sliding = Sliding::of(ctx.attrs);
    require_operands(ctx, &sliding)?;
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    let output_padding = ctx.attrs.ints("output_padding");
    require(
        output_padding.len() == x.rank() - 2 && output_padding.iter().all(|&pad| pad >= 0),
        "C3",
        || format!("`output_padding` {output_padding:?} is not {} sizes", x.rank() - 2),
    )?;
    let groups = Dim::constant(ctx.attrs.int("groups"));
    require(x.shape[1] == w.shape[0] && w.shape[0].divided_exactly(&groups).is_some(), "C4", || {
        format!("channels of {x} are not those of {w}, or not divisible into {groups} groups")
    })?;
    let spatial = out_sizes(ctx);
    for (axis, size) in spatial.iter().enumerate() {
        require(size.as_const().is_none_or(|size| size >= 0), "C5", || {
            format!("the result's spatial axis {axis} would have size {size}")
        })?;
    }
    let mut shape = vec![x.shape[0].clone(), &w.shape[1] * &groups];
    shape.extend(spatial);
    Ok(Type::new(x.dtype, shape))
}

fn out_sizes(ctx: &OpCtx<'_>) -> Vec<Dim> {
    let sliding = Sliding::of(ctx.attrs);
    let output_padding = ctx.attrs.ints("output_padding");
    let one = Dim::constant(1);
    let spatial = std::iter::zip(&ctx.operands[0].shape[2..], &ctx.operands[1].shape[2..]);
    spatial
        .enumerate()
        .map(|(axis, (size, kernel))| {
            let last = (size - &one) * Dim::constant(sliding.strides[axis]);
            let reach = (kernel - &one) * Dim::constant(sliding.dilations[axis]);
            let cut = sliding.pads_begin[axis] + sliding.pads_end[axis];
            last + reach + Dim::constant(output_padding[axis] + 1 - cut)
        })
        .collect()
}

fn form(ctx: &OpCtx<'_>) -> ContractionForm {
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    let sliding = Sliding::of(ctx.attrs);
    let groups = ctx.attrs.int("groups");
    let inner = w.shape[0].floor_div(&Dim::constant(groups));
    let axes = ConvAxes::new(
        &x.shape[0],
        groups,
        &w.shape[1],
        &inner,
        &out_sizes(ctx),
        &w.shape[2..],
    );
    let mut lhs = OperandMap {
        index: vec![axes.batch.clone(), axes.channel.clone()],
        guards: Vec::new(),
    };
    for (axis, size) in x.shape[2..].iter().enumerate() {
        let stride = sliding.strides[axis];
        let scaled = axes.spatial[axis]
            .clone()
            .plus(axes.kernel[axis].clone().times(-sliding.dilations[axis]))
            .plus(IndexExpr::size(sliding.pads_begin[axis]));
        if stride > 1 {
            let divisor = Dim::constant(stride);
            lhs.guards.push(Guard::Divisible { value: scaled.clone(), divisor });
        }
        let index = scaled.floor_div(stride);
        lhs.guards.push(inside(&index, size));
        lhs.index.push(index);
    }
    let mut weight_index = vec![axes.channel.clone(), axes.column.clone()];
    weight_index.extend(axes.kernel.iter().cloned());
    ContractionForm {
        lhs,
        rhs: OperandMap { index: weight_index, guards: Vec::new() },
        out: axes.out(),
        accumulator: accumulator(x.dtype),
        axes: axes.axes,
    }
}

fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval_sum_of_products!(ctx, operands, spread)
}

fn spread<R: Ring>(ctx: &EvalCtx<'_>, x: &Array<R>, w: &Array<R>) -> Array<R> {
    let groups = ctx.attrs.axis("groups");
    let spans = Sliding::of(ctx.attrs).spans(&ctx.shape[2..], &x.shape[2..], &w.shape[2..]);
    let (channels, group_columns) = (x.shape[1], w.shape[1]);
    let out_channels = group_columns * groups;
    let plane: usize = spans.iter().map(|span| span.windows).product();
    let out_plane: usize = spans.iter().map(|span| span.size).product();
    let kernel: usize = spans.iter().map(|span| span.window).product();
    let extents = spans.map(Extent::new);
    let mut out = zeros(ctx.shape);
    for batch in 0..x.shape[0] {
        for channel in 0..channels {
            let group = channel / (channels / groups);
            let image = &x.data[(batch * channels + channel) * plane..][..plane];
            for column in 0..group_columns {
                let out_channel = batch * out_channels + group * group_columns + column;
                let sums = &mut out.data[out_channel * out_plane..][..out_plane];
                let weights = &w.data[(channel * group_columns + column) * kernel..][..kernel];
                spread_channel(sums, image, weights, &extents);
            }
        }
    }
    out
}

/// Adds what one channel, through one kernel, gives to `sums`.
fn spread_channel<R: Ring>(
    sums: &mut [R],
    image: &[R],
    weights: &[R],
    [depth, height, width]: &[Extent; 3],
) {
    let mut weights = weights.iter();
    for run_d in &depth.runs {
        for run_h in &height.runs {
            for (run_w, &weight) in width.runs.iter().zip(&mut weights) {
                for (d, out_d) in run_d.pairs() {
                    for (h, out_h) in run_h.pairs() {
                        let sums = &mut sums[(out_d * height.size + out_h) * width.size..];
                        let row = &image[(d * height.windows + h) * width.windows..];
                        for (w, out_w) in run_w.pairs() {
                            sums[out_w] = sums[out_w].add_product(row[w], weight);
                        }
                    }
                }
            }
        }
    }
}
