//! Resampling along axes.

use std::collections::BTreeMap;

use fornax_bundle::Dim;

use super::domain::Domain;
use super::{Arity, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Real, Value};
use crate::{AttrKind, Attrs, Type, eval_real};

mod expand;

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "resize",
    arity: Arity::Exactly(1),
    attrs: &[
        ("axes", AttrKind::Ints),
        ("sizes", AttrKind::Dims),
        ("scales", AttrKind::Tensor),
        ("mode", AttrKind::Text),
        ("coordinate_transformation_mode", AttrKind::Text),
        ("nearest_mode", AttrKind::Text),
        ("cubic_coeff_a", AttrKind::Float),
        ("exclude_outside", AttrKind::Bool),
        ("antialias", AttrKind::Bool),
        ("roi", AttrKind::Tensor),
        ("extrapolation_value", AttrKind::Float),
    ],
    infer,
    eval: eval_real!(eval),
    class: OpClass::Composite(expand::expand),
    doc: "Resamples `x` along `axes`, one after the other, to `sizes`. A position `y` of the \
          result lies at a coordinate of `x` that `coordinate_transformation_mode` gives with the \
          axis' entry in `scales` (where ONNX says the resized length, `scales * size`, which need \
          not be an integer). `mode` `nearest` takes the element that `nearest_mode` rounds to, \
          `linear` and `cubic` weigh the elements around (stretched by `1 / scale` with \
          `antialias` and a scale below 1); elements outside are those at the border, or left out \
          with `exclude_outside`. With `tf_crop_and_resize`, `roi` has the starts, then the ends \
          along the axes, and elements outside `x` are `extrapolation_value`; else `roi` is empty. \
          Elements of weight 0 do not take part. (C1) `mode` is one of \
          these, `coordinate_transformation_mode` is `half_pixel`, `half_pixel_symmetric`, \
          `pytorch_half_pixel`, `align_corners`, `asymmetric` or `tf_crop_and_resize`, \
          `nearest_mode` is `round_prefer_floor`, `round_prefer_ceil`, `floor` or `ceil`, and \
          `antialias` is not used with `nearest`. (C2) `axes` are axes of `x` in rising order; \
          `sizes` and `scales` have one entry each, `roi` two or none as said. (C3) Sizes and scales are positive. (C4) `x` is float, or \
          `mode` is `nearest`. (C5) Sizes of `x` and the result along `axes` are known, unless \
          `nearest` repeats each element an integer number of times. Source: ONNX Resize, opset \
          19.",
}];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    CropAndResize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

/// The attributes of a resize.
#[derive(Debug, Clone)]
struct Resize {
    mode: Mode,
    coordinates: Coordinates,
    nearest: Nearest,
    cubic_coeff_a: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation_value: f64,
    axes: Vec<AxisScale>,
}

/// How one axis is scaled.
#[derive(Debug, Clone, PartialEq)]
struct AxisScale {
    axis: usize,
    size: Dim,
    scale: f64,
    roi: (f64, f64),
}

impl Resize {
    /// The attributes, if they are words and lists that fit together.
    fn parse(attrs: &Attrs) -> Result<Resize, Violation> {
        let (mode, coordinates, nearest) = words(attrs)?;
        let antialias = attrs.flag("antialias");
        require(!(antialias && mode == Mode::Nearest), "C1", || {
            "`antialias` with mode `nearest`".to_owned()
        })?;
        Ok(Resize {
            mode,
            coordinates,
            nearest,
            cubic_coeff_a: attrs.float("cubic_coeff_a"),
            exclude_outside: attrs.flag("exclude_outside"),
            antialias,
            extrapolation_value: attrs.float("extrapolation_value"),
            axes: axis_scales(attrs, coordinates)?,
        })
    }

    /// The attributes of a node that inference accepted.
    fn of(attrs: &Attrs) -> Resize {
        Resize::parse(attrs).expect("invariant: inference checked the attributes")
    }
}

fn words(attrs: &Attrs) -> Result<(Mode, Coordinates, Nearest), Violation> {
    let word = |name: &str| {
        let text = attrs.text(name);
        (text, Violation::new("C1", format!("`{text}` is no {name} of ONNX Resize")))
    };
    let (text, unknown) = word("mode");
    let mode = match text {
        "nearest" => Mode::Nearest,
        "linear" => Mode::Linear,
        "cubic" => Mode::Cubic,
        _ => return Err(unknown),
    };
    let (text, unknown) = word("coordinate_transformation_mode");
    let coordinates = match text {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_crop_and_resize" => Coordinates::CropAndResize,
        _ => return Err(unknown),
    };
    let (text, unknown) = word("nearest_mode");
    let nearest = match text {
        "round_prefer_floor" => Nearest::RoundPreferFloor,
        "round_prefer_ceil" => Nearest::RoundPreferCeil,
        "floor" => Nearest::Floor,
        "ceil" => Nearest::Ceil,
        _ => return Err(unknown),
    };
    Ok((mode, coordinates, nearest))
}

fn axis_scales(attrs: &Attrs, coordinates: Coordinates) -> Result<Vec<AxisScale>, Violation> {
    let (axes, sizes) = (attrs.ints("axes"), attrs.dims("sizes"));
    let (scales, roi) = (attrs.tensor("scales").to_f64(), attrs.tensor("roi").to_f64());
    let roi_len = if coordinates == Coordinates::CropAndResize { 2 * axes.len() } else { 0 };
    require(axes.is_sorted_by(|a, b| a < b) && axes.iter().all(|&axis| axis >= 0), "C2", || {
        format!("`axes` {axes:?} are not in rising order")
    })?;
    let lengths = [sizes.len(), scales.len(), roi.len()];
    require(lengths == [axes.len(), axes.len(), roi_len], "C2", || {
        format!("{} axes do not go with {lengths:?} sizes, scales and roi entries", axes.len())
    })?;
    let scale_of = |(i, &axis): (usize, &i64)| AxisScale {
        axis: axis as usize,
        size: sizes[i].clone(),
        scale: scales[i],
        roi: roi.get(i).map_or((0.0, 1.0), |&start| (start, roi[axes.len() + i])),
    };
    Ok(axes.iter().enumerate().map(scale_of).collect())
}

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let resize = Resize::parse(ctx.attrs)?;
    let x = ctx.first();
    let mut shape = x.shape.to_vec();
    for axis in &resize.axes {
        require(axis.axis < x.rank(), "C2", || format!("axis {} is no axis of {x}", axis.axis))?;
        let old = &x.shape[axis.axis];
        let positive = [old, &axis.size].map(|size| size.as_const().is_none_or(|size| size > 0));
        require(positive == [true, true] && axis.scale > 0.0 && axis.scale.is_finite(), "C3", || {
            format!("size {old} cannot be scaled to {} by {}", axis.size, axis.scale)
        })?;
        shape[axis.axis] = axis.size.clone();
    }
    match resize.mode {
        Mode::Nearest => Domain::Any.require(x.dtype, "C4")?,
        Mode::Linear | Mode::Cubic => Domain::Float.require(x.dtype, "C4")?,
    }
    for axis in &resize.axes {
        let old = &x.shape[axis.axis];
        let known = old.as_const().is_some() && axis.size.as_const().is_some();
        let repeats = || *old == axis.size || expand::repeats(&resize, axis, old).is_some();
        require(known || repeats(), "C5", || {
            format!("sizes {old} and {} of axis {} are not known", axis.size, axis.axis)
        })?;
    }
    Ok(Type::new(x.dtype, shape))
}

fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let resize = Resize::of(ctx.attrs);
    match operands[0] {
        Value::Float(x) => {
            Value::Float(resample(&resize, x, ctx.shape, resize.extrapolation_value, |taps| {
                let weighted = taps.iter().map(|&(x, weight)| x * T::from_f64(weight));
                weighted.fold(T::zero(), |sum, x| sum + x)
            }))
        }
        Value::Int(x) => {
            let outside = resize.extrapolation_value;
            let widened = Array::new(x.shape.clone(), x.data.iter().map(|&x| Exact(x)).collect());
            let result = resample(&resize, &widened, ctx.shape, outside, |taps| taps[0].0);
            Value::Int(Array::new(ctx.shape, result.data.into_iter().map(|Exact(x)| x).collect()))
        }
    }
}

/// An integer that is only moved.
#[derive(Clone, Copy)]
struct Exact(i64);

/// What can stand outside a resized tensor.
trait FromReal {
    fn from_real(value: f64) -> Self;
}

impl<T: Element> FromReal for T {
    fn from_real(value: f64) -> T {
        T::from_f64(value)
    }
}

impl FromReal for Exact {
    fn from_real(value: f64) -> Exact {
        Exact(value as i64)
    }
}

/// Resamples axis by axis; `blend` makes one element of elements and weights.
fn resample<N: Copy + FromReal>(
    resize: &Resize,
    x: &Array<N>,
    shape: &[usize],
    outside: f64,
    blend: impl Fn(&[(N, f64)]) -> N,
) -> Array<N> {
    let mut x = x.clone();
    for axis in &resize.axes {
        let (old, new) = (x.shape[axis.axis], shape[axis.axis]);
        let inner: usize = x.shape[axis.axis + 1..].iter().product();
        let positions: Vec<Option<Vec<(usize, f64)>>> =
            (0..new).map(|y| neighbours(resize, axis, y, old, new)).collect();
        let mut data = Vec::with_capacity(x.data.len() / old * new);
        let mut taps = Vec::new();
        for block in x.data.chunks_exact((old * inner).max(1)) {
            for position in &positions {
                for offset in 0..inner {
                    data.push(match position {
                        None => N::from_real(outside),
                        Some(neighbours) => {
                            taps.clear();
                            let tap = |&(i, weight)| (block[i * inner + offset], weight);
                            taps.extend(neighbours.iter().map(tap));
                            blend(&taps)
                        }
                    });
                }
            }
        }
        x.shape[axis.axis] = new;
        x.data = data;
    }
    x
}

/// The coordinate in the operand of position `y` of the result, as the specification defines it.
fn original(resize: &Resize, axis: &AxisScale, y: usize, old: usize, new: usize) -> f64 {
    let (y, old, scale) = (y as f64, old as f64, axis.scale);
    let output_width = scale * old;
    match resize.coordinates {
        Coordinates::HalfPixel => (y + 0.5) / scale - 0.5,
        Coordinates::HalfPixelSymmetric => {
            let adjustment = new as f64 / output_width;
            let offset = old / 2.0 * (1.0 - adjustment);
            offset + (y + 0.5) / scale - 0.5
        }
        Coordinates::PytorchHalfPixel if output_width > 1.0 => (y + 0.5) / scale - 0.5,
        Coordinates::PytorchHalfPixel => 0.0,
        Coordinates::AlignCorners if output_width == 1.0 => 0.0,
        Coordinates::AlignCorners => y * (old - 1.0) / (output_width - 1.0),
        Coordinates::Asymmetric => y / scale,
        Coordinates::CropAndResize => {
            let (start, end) = axis.roi;
            let inner = if output_width == 1.0 {
                (end - start) * (old - 1.0) / 2.0
            } else {
                y * (end - start) * (old - 1.0) / (output_width - 1.0)
            };
            inner + start * (old - 1.0)
        }
    }
}

/// The elements that make position `y` of the result, with their weights; none outside the operand.
fn neighbours(
    resize: &Resize,
    axis: &AxisScale,
    y: usize,
    old: usize,
    new: usize,
) -> Option<Vec<(usize, f64)>> {
    let x = original(resize, axis, y, old, new);
    let last = old as i64 - 1;
    if resize.coordinates == Coordinates::CropAndResize && !(0.0..=last as f64).contains(&x) {
        return None;
    }
    if resize.mode == Mode::Nearest {
        let nearest = match resize.nearest {
            Nearest::RoundPreferFloor => (x - 0.5).ceil(),
            Nearest::RoundPreferCeil => (x + 0.5).floor(),
            Nearest::Floor => x.floor(),
            Nearest::Ceil => x.ceil(),
        };
        return Some(vec![((nearest as i64).clamp(0, last) as usize, 1.0)]);
    }
    // The left neighbour of a coordinate that is an integer is the element before it (weight 0).
    let left = x.ceil() as i64 - 1;
    let ratio = x - left as f64;
    let scale = if resize.antialias { axis.scale.min(1.0) } else { 1.0 };
    let reach = if resize.mode == Mode::Linear { 1.0 } else { 2.0 };
    let start = (-reach / scale).floor() as i64 + 1;
    let mut taps: BTreeMap<usize, f64> = BTreeMap::new();
    for offset in start..2 - start {
        let distance = ((offset as f64 - ratio) * scale).abs();
        let weight = match resize.mode {
            Mode::Cubic => keys_kernel(distance, resize.cubic_coeff_a),
            _ => (1.0 - distance).max(0.0),
        };
        let index = left + offset;
        if !resize.exclude_outside || (0..=last).contains(&index) {
            *taps.entry(index.clamp(0, last) as usize).or_insert(0.0) += weight;
        }
    }
    let total: f64 = taps.values().sum();
    taps.retain(|_, weight| *weight != 0.0);
    Some(taps.into_iter().map(|(index, weight)| (index, weight / total)).collect())
}

/// Equation (4) of R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
fn keys_kernel(distance: f64, a: f64) -> f64 {
    let d = distance;
    if d <= 1.0 {
        (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0
    } else if d < 2.0 {
        a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a
    } else {
        0.0
    }
}
