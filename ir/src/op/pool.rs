//! Pooling: folds over sliding windows.

use fornax_bundle::{DType, Dim};

use super::contraction::accumulator;
use super::domain::Domain;
use super::sliding::{Sliding, Span};
use super::{
    Arity, OpClass, OpCtx, OpDef, Reducer, Violation, WindowCount, WindowForm, require,
};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, BinaryFn, IndexExpr, Scalar, ScalarExpr, Type, UnaryFn, eval_real, linearize};

/// The attributes of all pooling ops, and the given ones.
macro_rules! pool_attrs {
    ($($attr:expr),* $(,)?) => {
        &[
            ("kernel", AttrKind::Ints),
            ("strides", AttrKind::Ints),
            ("pads_begin", AttrKind::Ints),
            ("pads_end", AttrKind::Ints),
            ("dilations", AttrKind::Ints),
            ("ceil_mode", AttrKind::Bool),
            $($attr),*
        ]
    };
}

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "max_pool",
        arity: Arity::Exactly(1),
        attrs: pool_attrs![],
        infer: infer_number,
        eval: eval_real!(eval_max),
        class: OpClass::Window(max_form),
        doc: "The largest element of each window of `x: [N, C, spatial...]`; padding is left out. \
              NaN if one is NaN; the type's lowest value (minus infinity) if a window has no \
              element. With `ceil_mode` the number of windows is rounded up, without those that \
              start behind the operand and the padding before it. (C1) `x` has 1 to 3 spatial \
              axes. (C2) Its elements are numbers. (C3) `kernel`, `strides`, `pads_begin`, \
              `pads_end` and `dilations` have one entry per spatial axis; pads are not negative, \
              the others positive. (C4) The dilated window is not larger than the padded operand. \
              Source: ONNX MaxPool, opset 22.",
    },
    OpDef {
        name: "max_pool_indices",
        arity: Arity::Exactly(1),
        attrs: pool_attrs![("column_major", AttrKind::Bool)],
        infer: infer_indices,
        eval: eval_real!(eval_max_indices),
        class: OpClass::Window(max_indices_form),
        doc: "Where `max_pool` finds each element, as an `i64` position in the whole tensor: the \
              first NaN or else the first of the largest, in row-major order; -1 if a window has \
              no element. The position is row-major; with `column_major` the spatial axes are \
              counted with the first one fastest (ONNX `storage_order` 1). (C1) to (C4) as \
              `max_pool`. Source: ONNX MaxPool, opset 22.",
    },
    OpDef {
        name: "avg_pool",
        arity: Arity::Exactly(1),
        attrs: pool_attrs![("count_include_pad", AttrKind::Bool)],
        infer: infer_real,
        eval: eval_real!(eval_average),
        class: OpClass::Window(average_form),
        doc: "The mean of each window of `x: [N, C, spatial...]`, with windows as `max_pool`. The \
              sum is divided by the number of elements; with `count_include_pad`, padding counts \
              as elements of value 0 (what `ceil_mode` adds behind it never counts). NaN if \
              nothing counts. (C1), (C3), (C4) as `max_pool`. (C2) `x` is float. Source: ONNX \
              AveragePool, opset 22.",
    },
    OpDef {
        name: "lp_pool",
        arity: Arity::Exactly(1),
        attrs: pool_attrs![("p", AttrKind::Int)],
        infer: infer_lp,
        eval: eval_real!(eval_lp),
        class: OpClass::Window(lp_form),
        doc: "The p-norm of each window, `(sum |x|^p)^(1/p)`, with windows as `max_pool`. (C1), \
              (C3), (C4) as `max_pool`. (C2) `x` is float. (C5) `p` is positive. Source: ONNX \
              LpPool, opset 22.",
    },
];

fn out_shape(ctx: &OpCtx<'_>) -> Result<Vec<Dim>, Violation> {
    let x = ctx.first();
    require((3..=5).contains(&x.rank()), "C1", || {
        format!("{x} does not have batch, channels and 1 to 3 spatial axes")
    })?;
    let (sliding, kernel) = (Sliding::of(ctx.attrs), ctx.attrs.ints("kernel"));
    sliding.require_valid(x.rank() - 2, "C3")?;
    require(
        kernel.len() == x.rank() - 2 && kernel.iter().all(|size| (1..1 << 31).contains(size)),
        "C3",
        || format!("`kernel` {kernel:?} is not {} positive sizes", x.rank() - 2),
    )?;
    let mut shape = x.shape[..2].to_vec();
    for (axis, &window) in kernel.iter().enumerate() {
        let (size, window) = (&x.shape[axis + 2], Dim::constant(window));
        sliding.require_room(axis, size, &window, "C4")?;
        shape.push(sliding.windows(axis, size, &window, ctx.attrs.flag("ceil_mode")));
    }
    Ok(shape)
}

fn infer_number(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (shape, dtype) = (out_shape(ctx)?, ctx.first().dtype);
    Domain::Numeric.require(dtype, "C2")?;
    Ok(Type::new(dtype, shape))
}

fn infer_indices(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    Ok(Type { dtype: DType::I64, ..infer_number(ctx)? })
}

fn infer_real(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (shape, dtype) = (out_shape(ctx)?, ctx.first().dtype);
    Domain::Float.require(dtype, "C2")?;
    Ok(Type::new(dtype, shape))
}

fn infer_lp(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let ty = infer_real(ctx)?;
    let p = ctx.attrs.int("p");
    require(p > 0, "C5", || format!("`p` is {p}, not positive"))?;
    Ok(ty)
}

fn form(ctx: &OpCtx<'_>, reducer: Reducer, position: IndexExpr, count: WindowCount) -> WindowForm {
    let (sliding, kernel) = (Sliding::of(ctx.attrs), ctx.attrs.ints("kernel"));
    WindowForm {
        window: kernel.iter().map(|&size| Dim::constant(size)).collect(),
        index: operand_index(&sliding, kernel.len()),
        reducer,
        position,
        count,
    }
}

fn operand_index(sliding: &Sliding, spatial: usize) -> Vec<IndexExpr> {
    let (result, window) = (|axis: usize| 2 + axis, |axis: usize| 2 + spatial + axis);
    let mut index = vec![IndexExpr::axis(0), IndexExpr::axis(1)];
    index.extend((0..spatial).map(|axis| {
        sliding.index(axis, IndexExpr::axis(result(axis)), IndexExpr::axis(window(axis)))
    }));
    index
}

fn no_position() -> IndexExpr {
    IndexExpr::size(0i64)
}

fn max_form(ctx: &OpCtx<'_>) -> WindowForm {
    let reducer = Reducer {
        init: vec![Scalar::lowest(ctx.first().dtype)],
        lift: vec![ScalarExpr::arg(0)],
        combine: vec![ScalarExpr::arg(0).binary(BinaryFn::Max, ScalarExpr::arg(1))],
        finish: ScalarExpr::arg(0),
    };
    form(ctx, reducer, no_position(), WindowCount::Inside)
}

fn max_indices_form(ctx: &OpCtx<'_>) -> WindowForm {
    use BinaryFn::{And, Le, Lt, Or};
    let x = ctx.first();
    let [value, position, other_value, other_position] = [0, 1, 2, 3].map(ScalarExpr::arg);
    let zero = || ScalarExpr::number(DType::I64, 0.0);
    let mut larger = value.clone().binary(Lt, other_value.clone());
    if x.dtype.is_float() {
        let is_nan = |x: &ScalarExpr| x.clone().unary(UnaryFn::IsNan);
        larger = larger
            .binary(Or, is_nan(&value).unary(UnaryFn::Not).binary(And, is_nan(&other_value)));
    }
    let empty = position.clone().binary(Lt, zero());
    let take_other = zero()
        .binary(Le, other_position.clone())
        .binary(And, empty.binary(Or, larger));
    let reducer = Reducer {
        init: vec![Scalar::lowest(x.dtype), Scalar::Int(DType::I64, -1)],
        lift: vec![ScalarExpr::arg(0), ScalarExpr::arg(1)],
        combine: vec![
            take_other.clone().select(other_value, value),
            take_other.select(other_position, position),
        ],
        finish: ScalarExpr::arg(1),
    };
    let mut index = operand_index(&Sliding::of(ctx.attrs), x.rank() - 2);
    let mut sizes = x.shape.to_vec();
    if ctx.attrs.flag("column_major") {
        index[2..].reverse();
        sizes[2..].reverse();
    }
    form(ctx, reducer, linearize(&index, &sizes), WindowCount::Inside)
}

fn average_form(ctx: &OpCtx<'_>) -> WindowForm {
    let x = ctx.first();
    let sum = accumulator(x.dtype);
    let reducer = Reducer {
        init: vec![Scalar::new(sum, 0.0)],
        lift: vec![cast(ScalarExpr::arg(0), x.dtype, sum)],
        combine: vec![ScalarExpr::arg(0) + ScalarExpr::arg(1)],
        finish: cast(ScalarExpr::arg(0) / ScalarExpr::arg(1).cast(sum), sum, x.dtype),
    };
    let count = if ctx.attrs.flag("count_include_pad") {
        let sliding = Sliding::of(ctx.attrs);
        let bounds = x.shape.iter().enumerate().map(|(axis, size)| match axis.checked_sub(2) {
            None => (Dim::constant(0), size.clone()),
            Some(axis) => (
                Dim::constant(-sliding.pads_begin[axis]),
                size + Dim::constant(sliding.pads_end[axis]),
            ),
        });
        WindowCount::Within(bounds.collect())
    } else {
        WindowCount::Inside
    };
    form(ctx, reducer, no_position(), count)
}

fn lp_form(ctx: &OpCtx<'_>) -> WindowForm {
    let x = ctx.first();
    let sum = accumulator(x.dtype);
    let absolute = cast(ScalarExpr::arg(0), x.dtype, sum).unary(UnaryFn::Abs);
    let power = |exponent: f64| ScalarExpr::number(sum, exponent);
    let (lift, root) = match ctx.attrs.int("p") {
        1 => (absolute, ScalarExpr::arg(0)),
        2 => (absolute.clone() * absolute, ScalarExpr::arg(0).unary(UnaryFn::Sqrt)),
        p => (
            absolute.binary(BinaryFn::Pow, power(p as f64)),
            ScalarExpr::arg(0).binary(BinaryFn::Pow, power(1.0 / p as f64)),
        ),
    };
    let reducer = Reducer {
        init: vec![Scalar::new(sum, 0.0)],
        lift: vec![lift],
        combine: vec![ScalarExpr::arg(0) + ScalarExpr::arg(1)],
        finish: cast(root, sum, x.dtype),
    };
    form(ctx, reducer, no_position(), WindowCount::Inside)
}

fn cast(expr: ScalarExpr, from: DType, to: DType) -> ScalarExpr {
    if from == to { expr } else { expr.cast(to) }
}

/// Calls `body` for each window with the plane (batch and channel), the spans and the window's
/// positions, and collects the results.
fn each_window<R>(
    ctx: &EvalCtx<'_>,
    shape: &[usize],
    mut body: impl FnMut(usize, &Window<'_>) -> R,
) -> Array<R> {
    let kernel = ctx.attrs.axes("kernel");
    let spans = Sliding::of(ctx.attrs).spans(&shape[2..], &ctx.shape[2..], &kernel);
    let mut results = Vec::with_capacity(ctx.shape.iter().product());
    for plane in 0..shape[0] * shape[1] {
        for d in 0..spans[0].windows {
            for h in 0..spans[1].windows {
                for w in 0..spans[2].windows {
                    results.push(body(plane, &Window { spans: &spans, at: [d, h, w] }));
                }
            }
        }
    }
    Array::new(ctx.shape, results)
}

/// One window of an evaluation.
struct Window<'a> {
    spans: &'a [Span; 3],
    at: [usize; 3],
}

impl Window<'_> {
    /// Calls `body` with the row-major position in the plane of each element, in order.
    fn each(&self, mut body: impl FnMut(usize)) {
        let [depth, height, width] = self.spans;
        for d in inside(depth, self.at[0]) {
            for h in inside(height, self.at[1]) {
                for w in inside(width, self.at[2]) {
                    body((d * height.size + h) * width.size + w);
                }
            }
        }
    }

    /// The number of positions whose index along each axis is in the range that `bounds` gives.
    fn count(&self, bounds: impl Fn(usize) -> std::ops::Range<i64>) -> usize {
        let axis_count = |axis: usize| {
            let (span, bounds) = (&self.spans[axis], bounds(axis));
            let offsets = 0..span.window;
            offsets.filter(|&offset| bounds.contains(&span.at(self.at[axis], offset))).count()
        };
        (0..3).map(axis_count).product()
    }
}

/// The indices of a window's positions along an axis that lie inside.
fn inside(span: &Span, at: usize) -> impl Iterator<Item = usize> {
    (0..span.window).filter_map(move |offset| span.inside(at, offset))
}

/// Whether `new` replaces `old` as the largest: it is larger, or the first NaN.
fn replaces<N: PartialOrd>(new: N, old: N) -> bool {
    let is_nan = |x: &N| x.partial_cmp(x).is_none();
    new > old || (is_nan(&new) && !is_nan(&old))
}

fn largest<N: PartialOrd + Copy>(ctx: &EvalCtx<'_>, x: &Array<N>, lowest: N) -> Array<N> {
    let plane_size: usize = x.shape[2..].iter().product();
    each_window(ctx, &x.shape, |plane, window| {
        let plane = &x.data[plane * plane_size..][..plane_size];
        let mut best = lowest;
        window.each(|position| {
            if replaces(plane[position], best) {
                best = plane[position];
            }
        });
        best
    })
}

fn eval_max<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(largest(ctx, x, T::from_f64(f64::NEG_INFINITY))),
        Value::Int(x) if ctx.result.dtype == DType::U64 => {
            let unsigned = x.data.iter().map(|&value| value as u64).collect();
            let result = largest(ctx, &Array::new(x.shape.clone(), unsigned), 0);
            let data = result.data.into_iter().map(|value| value as i64).collect();
            Value::Int(Array::new(ctx.shape, data))
        }
        Value::Int(x) => {
            let lowest = match Scalar::lowest(ctx.result.dtype) {
                Scalar::Int(_, lowest) => lowest,
                Scalar::Float(..) => unreachable!("invariant: the type is an integer type"),
            };
            Value::Int(largest(ctx, x, lowest))
        }
    }
}

fn largest_position<N: PartialOrd + Copy>(ctx: &EvalCtx<'_>, x: &Array<N>) -> Array<i64> {
    let spatial = &x.shape[2..];
    let plane_size: usize = spatial.iter().product();
    let column_major = ctx.attrs.flag("column_major");
    each_window(ctx, &x.shape, |plane, window| {
        let values = &x.data[plane * plane_size..][..plane_size];
        let mut best: Option<usize> = None;
        window.each(|position| {
            if best.is_none_or(|best| replaces(values[position], values[best])) {
                best = Some(position);
            }
        });
        let order = |position| if column_major { transposed(position, spatial) } else { position };
        best.map_or(-1, |position| (plane * plane_size + order(position)) as i64)
    })
}

/// A row-major position of a tensor, counted with the first axis fastest.
fn transposed(position: usize, sizes: &[usize]) -> usize {
    let (mut rest, mut stride, mut result) = (position, sizes.iter().product::<usize>(), 0);
    for &size in sizes.iter().rev() {
        stride /= size;
        result += rest % size * stride;
        rest /= size;
    }
    result
}

fn eval_max_indices<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Int(match operands[0] {
        Value::Float(x) => largest_position(ctx, x),
        Value::Int(x) if ctx.operands[0].dtype == DType::U64 => {
            let unsigned = x.data.iter().map(|&value| value as u64).collect();
            largest_position(ctx, &Array::new(x.shape.clone(), unsigned))
        }
        Value::Int(x) => largest_position(ctx, x),
    })
}

fn eval_average<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let x = operands[0].float();
    let plane_size: usize = x.shape[2..].iter().product();
    let first = 3 - (x.shape.len() - 2);
    let (pads_begin, pads_end) = (ctx.attrs.ints("pads_begin"), ctx.attrs.ints("pads_end"));
    let with_padding = ctx.attrs.flag("count_include_pad");
    Value::Float(each_window(ctx, &x.shape, |plane, window| {
        let plane = &x.data[plane * plane_size..][..plane_size];
        let mut sum = T::zero();
        window.each(|position| sum = sum + plane[position]);
        let count = window.count(|axis| {
            let size = window.spans[axis].size as i64;
            match axis.checked_sub(first) {
                Some(axis) if with_padding => -pads_begin[axis]..size + pads_end[axis],
                _ => 0..size,
            }
        });
        T::from_f64(sum.to_f64() / count as f64)
    }))
}

fn eval_lp<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let x = operands[0].float();
    let plane_size: usize = x.shape[2..].iter().product();
    let p = ctx.attrs.int("p") as f64;
    Value::Float(each_window(ctx, &x.shape, |plane, window| {
        let plane = &x.data[plane * plane_size..][..plane_size];
        let mut sum = T::zero();
        window.each(|position| sum = sum + plane[position].map(|x| x.abs().powf(p)));
        sum.map(|sum| sum.powf(1.0 / p))
    }))
}
