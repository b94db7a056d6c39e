//! The cases: a graph over a size for each class of ops and kind of operand.

use fornax_ir::DType::{BF16, Bool, F16, F32, F64, I8, I32, I64, U8};
use fornax_ir::{DType, Dim, NodeId, attrs};
use fornax_runtime::compare::Arithmetic::{self, Contraction, Exact, Pointwise, Reduce};

use crate::sketch::Sketch;

/// A graph over an element type and a size.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What its results may be off.
    pub arithmetic: Arithmetic,
    /// Builds it; integer inputs hold numbers from -9 to 9.
    pub build: fn(&mut Sketch, DType, &Dim),
    /// The element types that it is run with.
    pub dtypes: &'static [DType],
    /// The sizes that it is run at.
    pub sizes: &'static [i64],
}

const FLOATS: &[DType] = &[F32, F16, BF16, F64];
const NUMBERS: &[DType] = &[F32, F16, BF16, F64, I32, I64];
const ALL: &[DType] = &[F32, F16, BF16, F64, I32, I64, U8, Bool];
const INTEGERS: &[DType] = &[I32, I64, I8];

/// For graphs of some elements per `N`.
const LINEAR: &[i64] = &[0, 1, 2, 131, 4099];
/// For graphs of one element per `N`.
const LONG: &[i64] = &[0, 1, 131, 4099, 70001];
/// For graphs with much work per `N`.
const HEAVY: &[i64] = &[0, 1, 13, 131];
/// For graphs where an axis may not be empty.
const FILLED: &[i64] = &[1, 2, 13, 131];

/// A line of the table.
macro_rules! cases {
    ($($name:ident: $arithmetic:ident, $dtypes:expr, $sizes:expr, $build:expr;)*) => {
        &[$(Case {
            name: stringify!($name),
            arithmetic: $arithmetic,
            build: $build,
            dtypes: $dtypes,
            sizes: $sizes,
        }),*]
    };
}

/// All cases.
pub const CASES: &[Case] = cases! {
    pointwise: Pointwise, NUMBERS, LONG, |s, t, n| {
        let (x, y) = (s.input(t, &[n]), s.input(t, &[n]));
        let product = s.plain("mul", &[x, y]);
        let sum = s.plain("add", &[product, x]);
        let result = s.plain("max", &[sum, y]);
        s.output(result);
    };
    pointwise_functions: Pointwise, FLOATS, LONG, |s, t, n| {
        let x = s.input(t, &[n]);
        let (tanh, exp) = (s.plain("tanh", &[x]), s.plain("exp", &[x]));
        let result = s.plain("sub", &[tanh, exp]);
        s.output(result);
    };
    pointwise_integers: Exact, INTEGERS, LONG, |s, t, n| {
        let (x, y) = (s.input(t, &[n]), s.input(t, &[n]));
        let (negative, bits) = (s.plain("neg", &[x]), s.plain("bit_xor", &[x, y]));
        let (low, is_less) = (s.plain("min", &[negative, bits]), s.plain("lt", &[x, y]));
        let result = s.plain("where", &[is_less, low, y]);
        s.output(result);
        s.output(is_less);
    };
    pointwise_bools: Exact, &[Bool], LONG, |s, t, n| {
        let (x, y) = (s.input(t, &[n]), s.input(t, &[n]));
        let (both, one) = (s.plain("and", &[x, y]), s.plain("xor", &[x, y]));
        let not = s.plain("not", &[both]);
        let result = s.plain("or", &[not, one]);
        s.output(result);
    };
    pointwise_scalar: Pointwise, NUMBERS, &[0, 1, 2], |s, t, n| {
        let (x, y) = (s.input(t, &[]), s.input(t, &[]));
        let result = s.plain("add", &[x, y]);
        s.output(result);
        let z = s.input(t, &[n]);
        s.output(z);
    };
    pointwise_broadcast: Pointwise, NUMBERS, LINEAR, |s, t, n| {
        let (three, one) = (&size(3), &size(1));
        let x = s.input(t, &[n, three]);
        let (row, column, scalar) =
            (s.input(t, &[three]), s.input(t, &[n, one]), s.input(t, &[]));
        let [row, column, scalar] = [row, column, scalar].map(|y| s.broadcast(y, &[n, three]));
        let product = s.plain("mul", &[x, row]);
        let sum = s.plain("add", &[product, column]);
        let result = s.plain("sub", &[sum, scalar]);
        s.output(result);
    };
    pointwise_transposed: Pointwise, NUMBERS, LINEAR, |s, t, n| {
        let five = &size(5);
        let (x, y) = (s.input(t, &[n, five]), s.input(t, &[five, n]));
        let x = s.transpose(x, &[1, 0]);
        let result = s.plain("sub", &[x, y]);
        s.output(result);
    };
    pointwise_strided: Pointwise, NUMBERS, LINEAR, |s, t, n| {
        let (length, two) = (n * size(3) + size(1), &size(2));
        let x = s.input(t, &[two, &length]);
        let forward = strided(s, x, size(1), n, 3);
        let backward = strided(s, x, n * size(3), n, -2);
        let result = s.plain("sub", &[forward, backward]);
        s.output(result);
    };
    cast: Pointwise, &[F32, F16, F64, I32, U8, Bool], LONG, |s, t, n| {
        let x = s.input(t, &[n]);
        for to in [F32, F64, I64, Bool] {
            let result = s.op("cast", attrs! { to: to }, &[x]);
            s.output(result);
        }
    };
    select: Exact, ALL, LONG, |s, t, n| {
        let condition = s.input(Bool, &[n]);
        let (x, y) = (s.input(t, &[n]), s.input(t, &[n]));
        let result = s.plain("where", &[condition, x, y]);
        s.output(result);
    };

    reduce_rows: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(7)]);
        reduce(s, x, &[1]);
    };
    reduce_columns: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(7)]);
        reduce(s, x, &[0]);
    };
    reduce_long_rows: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(3), n]);
        reduce(s, x, &[1]);
    };
    reduce_middle: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(3), n, &size(5)]);
        reduce(s, x, &[1]);
    };
    reduce_outer_and_inner: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(3), n, &size(5)]);
        reduce(s, x, &[0, 2]);
    };
    reduce_all: Reduce, NUMBERS, LONG, |s, t, n| {
        let x = s.input(t, &[n]);
        reduce(s, x, &[0]);
    };
    reduce_transposed: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(5)]);
        let x = s.transpose(x, &[1, 0]);
        reduce(s, x, &[1]);
    };
    reduce_broadcast: Reduce, FLOATS, LINEAR, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(5), &size(1)]), s.input(t, &[n]));
        let [x, y] = [x, y].map(|x| s.broadcast(x, &[&size(2), &size(5), n]));
        let sum = s.plain("add", &[x, y]);
        reduce(s, sum, &[2]);
        reduce(s, x, &[2]);
    };
    reduce_bools: Exact, &[Bool], LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        for (name, axes) in [("reduce_any", vec![0]), ("reduce_all", vec![1])] {
            let result = s.op(name, attrs! { axes: axes, keepdims: false }, &[x]);
            s.output(result);
        }
    };
    reduce_product: Reduce, NUMBERS, &[0, 1, 2, 13], |s, t, n| {
        let x = s.input(t, &[&size(3), n]);
        let result = s.op("reduce_prod", attrs! { axes: vec![1], keepdims: false }, &[x]);
        s.output(result);
    };
    arg_reduce: Exact, NUMBERS, &[1, 2, 131, 4099], |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        for (name, axis, last) in [("arg_max", 0, false), ("arg_min", 0, true), ("arg_max", 1, true)] {
            let attrs = attrs! { axis: axis, keepdims: false, select_last: last };
            let result = s.op(name, attrs, &[x]);
            s.output(result);
        }
    };

    scan_rows: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(3), n]);
        scan(s, x, 1);
    };
    scan_columns: Reduce, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        scan(s, x, 0);
    };
    scan_transposed: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        let x = s.transpose(x, &[1, 0]);
        scan(s, x, 1);
    };

    matmul_rows: Contraction, NUMBERS, HEAVY, |s, t, n| {
        let (x, y) = (s.input(t, &[n, &size(17)]), s.input(t, &[&size(17), &size(5)]));
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_columns: Contraction, NUMBERS, HEAVY, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(5), &size(17)]), s.input(t, &[&size(17), n]));
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_inner: Contraction, NUMBERS, LINEAR, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(5), n]), s.input(t, &[n, &size(3)]));
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_square: Contraction, FLOATS, HEAVY, |s, t, n| {
        let (x, y) = (s.input(t, &[n, n]), s.input(t, &[n, n]));
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_transposed: Contraction, FLOATS, HEAVY, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(19), n]), s.input(t, &[&size(7), &size(19)]));
        let (x, y) = (s.transpose(x, &[1, 0]), s.transpose(y, &[1, 0]));
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_batches: Contraction, FLOATS, HEAVY, |s, t, n| {
        let x = s.input(t, &[n, &size(1), &size(3), &size(6)]);
        let y = s.input(t, &[&size(2), &size(6), &size(4)]);
        let result = s.plain("matmul", &[x, y]);
        s.output(result);
    };
    matmul_broadcast: Contraction, FLOATS, HEAVY, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(1), &size(6)]), s.input(t, &[&size(6), &size(1)]));
        let (x, y) = (s.broadcast(x, &[n, &size(6)]), s.broadcast(y, &[&size(6), n]));
        let (product, bias) = (s.plain("matmul", &[x, y]), s.input(t, &[n]));
        let bias = s.broadcast(bias, &[n, n]);
        let result = s.plain("add", &[product, bias]);
        s.output(result);
    };

    conv_batch: Contraction, FLOATS, &[0, 1, 13], |s, t, n| {
        conv(s, t, &[n, &size(2), &size(5), &size(6)], &[&size(3), &size(2), &size(3), &size(2)], 1);
    };
    conv_spatial: Contraction, FLOATS, FILLED, |s, t, n| {
        conv(s, t, &[&size(1), &size(2), n, &size(4)], &[&size(3), &size(2), &size(3), &size(3)], 1);
    };
    conv_channels: Contraction, FLOATS, HEAVY, |s, t, n| {
        conv(s, t, &[&size(1), n, &size(4), &size(3)], &[&size(3), n, &size(3), &size(1)], 1);
    };
    conv_depthwise: Contraction, FLOATS, &[1, 13, 131], |s, t, n| {
        conv(s, t, &[&size(1), &size(6), n], &[&size(6), &size(1), &size(3)], 6);
    };
    conv_transpose: Contraction, FLOATS, FILLED, |s, t, n| {
        let x = s.input(t, &[&size(1), &size(4), n, &size(3)]);
        let w = s.input(t, &[&size(4), &size(2), &size(3), &size(2)]);
        let attrs = attrs! {
            strides: vec![2, 3], pads_begin: vec![1, 0], pads_end: vec![0, 1],
            dilations: vec![1, 2], groups: 2, output_padding: vec![1, 0],
        };
        let result = s.op("conv_transpose", attrs, &[x, w]);
        s.output(result);
    };
    pool_batch: Reduce, FLOATS, &[0, 1, 13], |s, t, n| {
        pool(s, t, &[n, &size(2), &size(7), &size(6)]);
    };
    pool_spatial: Reduce, FLOATS, FILLED, |s, t, n| {
        pool(s, t, &[&size(2), &size(1), n, &size(5)]);
    };

    recurrent_steps: Contraction, &[F32, F16, F64], FILLED, |s, t, n| {
        let x = s.input(t, &[n, &size(3), &size(5)]);
        let layer = (t, n, &size(3), 5, 6);
        let hidden = recurrent(s, ("lstm", 4, 2), x, layer, "bidirectional");
        let layer = (t, n, &size(3), 12, 7);
        let hidden = recurrent(s, ("gru", 3, 1), hidden, layer, "reverse");
        s.output(hidden);
    };
    recurrent_batch: Contraction, &[F32], HEAVY, |s, t, n| {
        let x = s.input(t, &[&size(4), n, &size(3)]);
        let layer = (t, &size(4), n, 3, 9);
        let hidden = recurrent(s, ("rnn", 1, 1), x, layer, "bidirectional");
        s.output(hidden);
    };

    softmax_rows: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(7)]);
        softmax(s, x, 1);
    };
    softmax_long_rows: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(3), n]);
        softmax(s, x, 1);
    };
    softmax_columns: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        softmax(s, x, 0);
    };
    softmax_middle: Reduce, FLOATS, HEAVY, |s, t, n| {
        let x = s.input(t, &[&size(2), n, &size(3)]);
        softmax(s, x, 1);
    };
    softmax_transposed: Reduce, FLOATS, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(3)]);
        let x = s.transpose(x, &[1, 0]);
        softmax(s, x, 1);
    };
    layer_norm_rows: Reduce, FLOATS, LINEAR, |s, t, n| {
        norm(s, t, &[n, &size(7)], &[&size(7)]);
    };
    layer_norm_long_rows: Reduce, FLOATS, LINEAR, |s, t, n| {
        norm(s, t, &[&size(3), n], &[n]);
    };
    layer_norm_broadcast_scale: Reduce, FLOATS, LINEAR, |s, t, n| {
        norm(s, t, &[n, &size(7)], &[&size(1)]);
    };

    gather_rows: Exact, ALL, &[1, 2, 131, 4099], |s, t, n| {
        let (x, at) = (s.input(t, &[n, &size(3)]), s.input(I64, &[&size(2), &size(4)]));
        let result = s.op("gather", attrs! { axis: 0 }, &[x, at]);
        s.output(result);
    };
    gather_many: Exact, ALL, LINEAR, |s, t, n| {
        let (x, at) = (s.input(t, &[&size(4), &size(9)]), s.input(I32, &[n]));
        let result = s.op("gather", attrs! { axis: 1 }, &[x, at]);
        s.output(result);
    };
    concat_outer: Exact, ALL, LINEAR, |s, t, n| {
        let parts = [n, &size(2), n].map(|rows| s.input(t, &[rows, &size(3)]));
        let result = s.op("concat", attrs! { axis: 0 }, &parts);
        s.output(result);
    };
    concat_inner: Exact, ALL, LINEAR, |s, t, n| {
        let parts = [1, 4, 2].map(|columns| s.input(t, &[n, &size(columns)]));
        let result = s.op("concat", attrs! { axis: 1 }, &parts);
        s.output(result);
    };
    concat_transposed: Exact, ALL, LINEAR, |s, t, n| {
        let (x, y) = (s.input(t, &[&size(3), n]), s.input(t, &[n, &size(1)]));
        let (x, y) = (s.transpose(x, &[1, 0]), s.broadcast(y, &[n, &size(2)]));
        let result = s.op("concat", attrs! { axis: 1 }, &[x, y]);
        s.output(result);
    };
    pad_constant: Exact, NUMBERS, LINEAR, |s, t, n| {
        let x = s.input(t, &[&size(2), n]);
        pad(s, x, "constant");
    };
    pad_edge: Exact, NUMBERS, &[1, 2, 131, 4099], |s, t, n| {
        let x = s.input(t, &[&size(2), n]);
        pad(s, x, "edge");
    };
    pad_reflect: Exact, NUMBERS, &[1, 2, 131, 4099], |s, t, n| {
        let x = s.input(t, &[&size(2), n]);
        pad(s, x, "reflect");
    };
    trilu: Exact, ALL, HEAVY, |s, t, n| {
        let x = s.input(t, &[n, n]);
        for (upper, k) in [(true, 1), (false, -2)] {
            let result = s.op("trilu", attrs! { upper: upper, k: k }, &[x]);
            s.output(result);
        }
    };
    reshape: Exact, ALL, LINEAR, |s, t, n| {
        let x = s.input(t, &[n, &size(6)]);
        let x = s.op("reshape", attrs! { shape: vec![n * size(2), size(3)] }, &[x]);
        let x = s.transpose(x, &[1, 0]);
        let result = s.op("reshape", attrs! { shape: vec![n * size(6)] }, &[x]);
        s.output(result);
    };
};

fn size(value: i64) -> Dim {
    Dim::constant(value)
}

/// `n` columns of two rows, `step` apart.
fn strided(s: &mut Sketch, x: NodeId, start: Dim, n: &Dim, step: i64) -> NodeId {
    let attrs = attrs! {
        starts: vec![size(0), start], sizes: vec![size(2), n.clone()], steps: vec![1, step],
    };
    s.op("slice", attrs, &[x])
}

fn reduce(s: &mut Sketch, x: NodeId, axes: &[i64]) {
    for (name, keepdims) in [("reduce_sum", false), ("reduce_max", true), ("reduce_mean", true)] {
        let result = s.op(name, attrs! { axes: axes, keepdims: keepdims }, &[x]);
        s.output(result);
    }
}

fn scan(s: &mut Sketch, x: NodeId, axis: i64) {
    for (exclusive, reverse) in [(false, false), (true, true)] {
        let attrs = attrs! { axis: axis, exclusive: exclusive, reverse: reverse };
        let result = s.op("cum_sum", attrs, &[x]);
        s.output(result);
    }
}

/// A layer of `hidden` units over `[steps, batch, features]` in one or two directions; gives the hidden state
/// after each step as `[steps, batch, directions * hidden]`.
fn recurrent(
    s: &mut Sketch,
    (op, gates, states): (&str, i64, usize),
    x: NodeId,
    (t, steps, batch, features, hidden): (DType, &Dim, &Dim, i64, i64),
    direction: &str,
) -> NodeId {
    let d = Dim::constant(if direction == "bidirectional" { 2 } else { 1 });
    let h = Dim::constant(hidden);
    let times = |count: i64| Dim::constant(count * hidden);
    let mut operands = vec![
        x,
        s.input(t, &[&d, &times(gates), &Dim::constant(features)]),
        s.input(t, &[&d, &times(gates), &h]),
        s.input(t, &[&d, &times(2 * gates)]),
    ];
    operands.extend((0..states).map(|_| s.input(t, &[&d, batch, &h])));
    let mut attrs = attrs! { direction: direction };
    match op {
        "lstm" => {
            attrs.insert("activations", "sigmoid,tanh,tanh");
            attrs.insert("input_forget", false);
            attrs.insert("final_cell", false);
        }
        "gru" => {
            attrs.insert("activations", "sigmoid,tanh");
            attrs.insert("linear_before_reset", true);
        }
        _ => {
            attrs.insert("activations", "tanh");
        }
    }
    let states = s.op(op, attrs, &operands);
    let states = s.transpose(states, &[0, 2, 1, 3]);
    let all = d * h;
    s.op("reshape", attrs! { shape: vec![steps.clone(), batch.clone(), all] }, &[states])
}

fn conv(s: &mut Sketch, t: DType, x: &[&Dim], w: &[&Dim], groups: i64) {
    let spatial = x.len() - 2;
    let (x, w) = (s.input(t, x), s.input(t, w));
    let attrs = attrs! {
        strides: vec![2; spatial], pads_begin: vec![2; spatial], pads_end: vec![1; spatial],
        dilations: vec![1; spatial], groups: groups,
    };
    let result = s.op("conv", attrs, &[x, w]);
    s.output(result);
}

fn pool(s: &mut Sketch, t: DType, x: &[&Dim]) {
    let x = s.input(t, x);
    let geometry = attrs! {
        kernel: vec![3, 2], strides: vec![2, 1], pads_begin: vec![1, 0], pads_end: vec![1, 1],
        dilations: vec![1, 2], ceil_mode: false,
    };
    let result = s.op("max_pool", geometry.clone(), &[x]);
    s.output(result);
    let mut average = geometry;
    average.insert("count_include_pad", false);
    let result = s.op("avg_pool", average, &[x]);
    s.output(result);
}

fn softmax(s: &mut Sketch, x: NodeId, axis: i64) {
    for name in ["softmax", "log_softmax"] {
        let result = s.op(name, attrs! { axis: axis }, &[x]);
        s.output(result);
    }
}

fn norm(s: &mut Sketch, t: DType, x: &[&Dim], scale: &[&Dim]) {
    let (x, scale, bias) = (s.input(t, x), s.input(t, scale), s.input(t, scale));
    let attrs = attrs! { axis: 1, epsilon: 1e-5 };
    let result = s.op("layer_norm", attrs.clone(), &[x, scale, bias]);
    s.output(result);
    let result = s.op("rms_norm", attrs, &[x, scale]);
    s.output(result);
}

fn pad(s: &mut Sketch, x: NodeId, mode: &str) {
    let attrs = attrs! {
        before: vec![size(1), size(3)], after: vec![size(0), size(2)], mode: mode, value: 1.0,
    };
    let result = s.op("pad", attrs, &[x]);
    s.output(result);
}
