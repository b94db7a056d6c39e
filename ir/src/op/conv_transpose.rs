//! Transposed convolution.

use fornax_bundle::Dim;

use super::contraction::{Ring, accumulator, eval_sum_of_products, zeros};
use super::conv::{ConvAxes, Split, require_operands};
use super::sliding::{Extent, Sliding, inside};
use super::{
    Arity, AxisRole, ContractionForm, ContractionKind, OpClass, OpCtx, OpDef, OperandMap,
    Violation, require,
};
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
    require(
        x.shape[1] == w.shape[0] && w.shape[0].divided_exactly(&groups).is_some(),
        "C4",
        || format!("channels of {x} are not those of {w}, or not divisible into {groups} groups"),
    )?;
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

/// The result's positions along a spatial axis with stride `s` fall into `s` phases, and each phase meets only
/// some positions of the kernel: what is multiplied are dense convolutions, not zeros between the elements of
/// the operand. Where all phases of an axis can read the same window of the operand, they are further columns
/// of one product (see [`Shared`]); else each phase is a product of its own (see [`Separate`]).
fn form(ctx: &OpCtx<'_>) -> ContractionForm {
    let (x, w) = (&ctx.operands[0], &ctx.operands[1]);
    let sliding = Sliding::of(ctx.attrs);
    let groups = ctx.attrs.int("groups");
    let inner = w.shape[0].floor_div(&Dim::constant(groups));
    let phases: Vec<Phases> = (0..x.rank() - 2)
        .map(|axis| Phases::new(&sliding, axis, &w.shape[axis + 2], axis + 3 == x.rank()))
        .collect();
    let splits: Vec<Split> = phases
        .iter()
        .enumerate()
        .map(|(axis, phases)| phases.split(sliding.strides[axis]))
        .collect();
    let taps: Vec<Dim> = phases.iter().map(Phases::taps).collect();
    let sizes = out_sizes(ctx);
    let spatial = (sizes.as_slice(), splits.as_slice());
    let axes = ConvAxes::new(&x.shape[0], groups, &w.shape[1], &inner, spatial, &taps);
    let mut lhs =
        OperandMap { index: vec![axes.batch.clone(), axes.channel.clone()], guards: Vec::new() };
    let mut rhs =
        OperandMap { index: vec![axes.channel.clone(), axes.column.clone()], guards: Vec::new() };
    for (axis, phases) in phases.iter().enumerate() {
        let size = &x.shape[axis + 2];
        let at = phases.at(&axes.spatial[axis], &axes.phase[axis], &axes.kernel[axis]);
        lhs.guards.extend(at.is_hit);
        lhs.guards.push(inside(&at.position, size));
        lhs.index.push(at.position);
        rhs.guards.extend(at.is_tap);
        rhs.index.push(at.tap);
    }
    ContractionForm {
        lhs,
        rhs,
        out: axes.out(),
        accumulator: accumulator(x.dtype),
        axes: axes.axes,
        kind: ContractionKind::Convolution { groups, channels: inner },
    }
}

/// How a spatial axis falls into phases.
enum Phases {
    Shared(Shared),
    Separate(Separate),
}

/// All phases read the same positions of the operand.
///
/// The element at `i`, times the kernel's at `k`, goes to `o = i * s + k * d - p`. For `o = q * s + phase -
/// shift`, the positions that any phase meets are `i = q + reach - t` for `t = 0, 1, ..`, by `k = (t * s +
/// phase - shift + p - reach * s) / d`, where that is whole and in the kernel.
struct Shared {
    stride: i64,
    dilation: i64,
    shift: i64,
    /// `p - shift - reach * s`
    start: i64,
    reach: i64,
    kernel: i64,
    taps: i64,
}

/// Each phase reads positions of its own.
///
/// With `g = gcd(s, d)`, only `o` with `o + p` divisible by `g` are met, by `k = t * s / g + first` for `t = 0,
/// 1, ..` with `first = (o + p) / g * (d / g)^-1 mod s / g`. For `o = q * s + phase` this is at `i = q + (phase
/// + p - first * d) / s - t * d / g`.
struct Separate {
    stride: i64,
    dilation: i64,
    pad: i64,
    /// `g`
    divisor: i64,
    /// `s / g`
    tap_stride: i64,
    /// The inverse of `d / g` modulo `s / g`.
    inverse: i64,
    kernel: Dim,
}

/// Where a position of the iteration axes lies.
struct PhaseIndex {
    position: IndexExpr,
    tap: IndexExpr,
    is_hit: Option<Guard>,
    is_tap: Vec<Guard>,
}

impl Phases {
    /// `is_last`: adjacent positions are adjacent in memory.
    fn new(sliding: &Sliding, axis: usize, kernel: &Dim, is_last: bool) -> Phases {
        let separate = Separate::new(sliding, axis, kernel);
        let (Some(kernel), true) = (kernel.as_const(), separate.stride > 1) else {
            return Phases::Separate(separate);
        };
        let with_shift = |shift| Shared::new(sliding, axis, kernel, shift);
        // What begins at the first position keeps accesses aligned.
        let aligned = with_shift(0);
        let shifted = with_shift(separate.pad % separate.stride);
        let shared = if is_last && aligned.taps <= shifted.taps { aligned } else { shifted };
        match separate.taps().as_const() {
            Some(taps) if shared.taps <= taps => Phases::Shared(shared),
            _ => Phases::Separate(separate),
        }
    }

    fn split(&self, count: i64) -> Split {
        match self {
            Phases::Shared(shared) => Split { count, shift: shared.shift, role: AxisRole::Columns },
            Phases::Separate(_) => Split { count, ..Split::NONE },
        }
    }

    fn taps(&self) -> Dim {
        match self {
            Phases::Shared(shared) => Dim::constant(shared.taps),
            Phases::Separate(separate) => separate.taps(),
        }
    }

    fn at(&self, quotient: &IndexExpr, phase: &IndexExpr, tap: &IndexExpr) -> PhaseIndex {
        match self {
            Phases::Shared(shared) => shared.at(quotient, phase, tap),
            Phases::Separate(separate) => separate.at(quotient, phase, tap),
        }
    }
}

impl Shared {
    fn new(sliding: &Sliding, axis: usize, kernel: i64, shift: i64) -> Shared {
        let (stride, dilation) = (sliding.strides[axis], sliding.dilations[axis]);
        let pad = sliding.pads_begin[axis];
        let reach = (stride - 1 + pad - shift).div_euclid(stride);
        let start = pad - shift - reach * stride;
        let taps = (dilation * (kernel - 1) - start).div_euclid(stride) + 1;
        Shared { stride, dilation, shift, start, reach, kernel, taps: taps.max(0) }
    }

    fn at(&self, quotient: &IndexExpr, phase: &IndexExpr, tap: &IndexExpr) -> PhaseIndex {
        let back = tap.clone().times(-1i64);
        let position = quotient.clone().plus(IndexExpr::size(self.reach)).plus(back);
        let distance = tap.clone().times(self.stride).plus(phase.clone());
        let distance = distance.plus(IndexExpr::size(self.start));
        let mut is_tap = Vec::new();
        if self.dilation > 1 {
            let divisor = Dim::constant(self.dilation);
            is_tap.push(Guard::Divisible { value: distance.clone(), divisor });
        }
        let at = distance.floor_div(self.dilation);
        let most = (self.taps - 1) * self.stride + self.stride - 1 + self.start;
        if self.start < 0 || most > self.dilation * (self.kernel - 1) {
            is_tap.push(inside(&at, &Dim::constant(self.kernel)));
        }
        PhaseIndex { position, tap: at, is_hit: None, is_tap }
    }
}

impl Separate {
    fn new(sliding: &Sliding, axis: usize, kernel: &Dim) -> Separate {
        let (stride, dilation) = (sliding.strides[axis], sliding.dilations[axis]);
        let divisor = gcd(stride, dilation);
        let tap_stride = stride / divisor;
        let reduced = dilation / divisor;
        let inverse = (0..tap_stride).find(|n| reduced % tap_stride * n % tap_stride == 1);
        let (pad, inverse) = (sliding.pads_begin[axis], inverse.unwrap_or(0));
        Separate { stride, dilation, pad, divisor, tap_stride, inverse, kernel: kernel.clone() }
    }

    fn taps(&self) -> Dim {
        self.kernel.ceil_div(&Dim::constant(self.tap_stride))
    }

    fn at(&self, quotient: &IndexExpr, phase: &IndexExpr, tap: &IndexExpr) -> PhaseIndex {
        let shifted = phase.clone().plus(IndexExpr::size(self.pad));
        let first =
            shifted.clone().floor_div(self.divisor).times(self.inverse).modulo(self.tap_stride);
        let offset =
            shifted.clone().plus(first.clone().times(-self.dilation)).floor_div(self.stride);
        let back = tap.clone().times(-(self.dilation / self.divisor));
        let divisor = Dim::constant(self.divisor);
        let tap = tap.clone().times(self.tap_stride).plus(first);
        let is_whole = self.kernel.divided_exactly(&Dim::constant(self.tap_stride)).is_some();
        PhaseIndex {
            position: quotient.clone().plus(offset).plus(back),
            is_hit: (self.divisor > 1).then_some(Guard::Divisible { value: shifted, divisor }),
            is_tap: if is_whole { Vec::new() } else { vec![inside(&tap, &self.kernel)] },
            tap,
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
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
