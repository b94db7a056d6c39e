//! Evaluation against values that ONNX Runtime 1.32.0 computed (CPU, `f32` and `i64`, opset 20).

use fornax_ir::interp::{Array, Value, evaluate_op};
use fornax_ir::op::by_name;
use fornax_ir::{Attrs, DType, Dim, Dims, Type, attrs};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Operands of ops of one float.
const X: [f64; 15] =
    [-INF, -3.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN];

/// Operands of ops of two floats.
const PAIRS: [[f64; 10]; 2] = [
    [-7.0, -6.0, -1.5, 0.0, 0.0, 1.5, 6.0, 7.0, INF, 2.0],
    [3.0, -4.0, 2.0, 0.0, -2.0, -2.5, 4.0, INF, 2.0, NAN],
];

fn floats(shape: &[usize], data: &[f64]) -> Value<f64> {
    Value::Float(Array::new(shape, data.to_vec()))
}

fn ints(shape: &[usize], data: &[i64]) -> Value<f64> {
    Value::Int(Array::new(shape, data.to_vec()))
}

/// The result's elements for operands of these element types.
#[track_caller]
fn evaluate(op: &str, attrs: &Attrs, operands: &[(DType, Value<f64>)]) -> (Vec<usize>, Vec<f64>) {
    let types: Vec<Type> =
        operands.iter().map(|(dtype, value)| Type::new(*dtype, value.shape())).collect();
    let values: Vec<&Value<f64>> = operands.iter().map(|(_, value)| value).collect();
    let op = by_name(op).expect("there is such an op");
    let result =
        evaluate_op(op, attrs, &types, &values, &Dims::new()).expect("the op accepts them");
    let data = match &result {
        Value::Float(array) => array.data.clone(),
        Value::Int(array) => array.data.iter().map(|&value| value as f64).collect(),
    };
    (result.shape().to_vec(), data)
}

/// Requires equal infinities and NaN, and other numbers to be the same in `f32`, nearly.
#[track_caller]
fn check(op: &str, attrs: Attrs, operands: &[(DType, Value<f64>)], expected: &[f64]) {
    let (_, actual) = evaluate(op, &attrs, operands);
    assert_eq!(actual.len(), expected.len(), "{op} {attrs:?}");
    for (position, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let near = (actual - expected).abs() <= 3e-6 * expected.abs().max(0.1);
        let same = actual == expected || (actual.is_nan() && expected.is_nan());
        assert!(same || near, "{op} {attrs:?}: {actual} at {position}, not {expected}");
    }
}

fn f32s(shape: &[usize], data: &[f64]) -> (DType, Value<f64>) {
    (DType::F32, floats(shape, data))
}

fn i64s(shape: &[usize], data: &[i64]) -> (DType, Value<f64>) {
    (DType::I64, ints(shape, data))
}

#[test]
#[rustfmt::skip]
#[expect(clippy::approx_constant)]
fn one_float() {
    let x = [f32s(&[15], &X)];
    check("neg", attrs! {}, &x, &[INF, 3.0, 1.5, 1.0, 0.5, 0.0, -0.0, -0.25, -0.5, -1.0, -1.5, -2.5, -30.0, -INF, NAN]);
    check("abs", attrs! {}, &x, &[INF, 3.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN]);
    check("sign", attrs! {}, &x, &[-1.0, -1.0, -1.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, NAN]);
    check("relu", attrs! {}, &x, &[0.0, 0.0, 0.0, 0.0, 0.0, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN]);
    check("floor", attrs! {}, &x, &[-INF, -3.0, -2.0, -1.0, -1.0, -0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 30.0, INF, NAN]);
    check("ceil", attrs! {}, &x, &[-INF, -3.0, -1.0, -1.0, -0.0, -0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 3.0, 30.0, INF, NAN]);
    check("round", attrs! {}, &x, &[-INF, -3.0, -2.0, -1.0, -0.0, -0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 30.0, INF, NAN]);
    check("sqrt", attrs! {}, &x, &[NAN, NAN, NAN, NAN, NAN, -0.0, 0.0, 0.5, 0.70710677, 1.0, 1.2247449, 1.5811388, 5.4772258, INF, NAN]);
    check("reciprocal", attrs! {}, &x, &[-0.0, -0.33333334, -0.66666669, -1.0, -2.0, -INF, INF, 4.0, 2.0, 1.0, 0.66666669, 0.40000001, 0.033333335, 0.0, NAN]);
    check("exp", attrs! {}, &x, &[0.0, 0.049787067, 0.22313017, 0.36787945, 0.60653067, 1.0, 1.0, 1.2840254, 1.6487212, 2.7182817, 4.481689, 12.182494, 1.0686474e+13, INF, NAN]);
    check("log", attrs! {}, &x, &[NAN, NAN, NAN, NAN, NAN, -INF, -INF, -1.3862944, -0.69314718, 0.0, 0.4054651, 0.91629076, 3.4011974, INF, NAN]);
    check("sin", attrs! {}, &x, &[NAN, -0.14112, -0.997495, -0.84147096, -0.47942555, -0.0, 0.0, 0.24740396, 0.47942555, 0.84147096, 0.997495, 0.59847218, -0.98803163, NAN, NAN]);
    check("cos", attrs! {}, &x, &[NAN, -0.9899925, 0.070737198, 0.54030228, 0.87758255, 1.0, 1.0, 0.96891242, 0.87758255, 0.54030228, 0.070737198, -0.80114359, 0.15425146, NAN, NAN]);
    check("tan", attrs! {}, &x, &[NAN, 0.14254655, -14.10142, -1.5574077, -0.5463025, -0.0, 0.0, 0.25534192, 0.5463025, 1.5574077, 14.10142, -0.74702233, -6.4053311, NAN, NAN]);
    check("asin", attrs! {}, &x, &[NAN, NAN, NAN, -1.5707964, -0.52359873, -0.0, 0.0, 0.25268027, 0.52359873, 1.5707964, NAN, NAN, NAN, NAN, NAN]);
    check("acos", attrs! {}, &x, &[NAN, NAN, NAN, 3.1415927, 2.0943952, 1.5707964, 1.5707964, 1.3181159, 1.0471976, 0.0, NAN, NAN, NAN, NAN, NAN]);
    check("atan", attrs! {}, &x, &[-1.5707964, -1.2490458, -0.98279381, -0.78539813, -0.46364754, -0.0, 0.0, 0.24497868, 0.46364754, 0.78539813, 0.98279381, 1.19029, 1.5374753, 1.5707964, NAN]);
    check("sinh", attrs! {}, &x, &[-INF, -10.017875, -2.1292794, -1.1752012, -0.52109528, -0.0, 0.0, 0.25261232, 0.52109528, 1.1752012, 2.1292794, 6.0502048, 5.3432371e+12, INF, NAN]);
    check("cosh", attrs! {}, &x, &[INF, 10.067662, 2.3524096, 1.5430806, 1.1276259, 1.0, 1.0, 1.0314131, 1.1276259, 1.5430806, 2.3524096, 6.1322894, 5.3432371e+12, INF, NAN]);
    check("tanh", attrs! {}, &x, &[-1.0, -0.99505472, -0.90514821, -0.76159418, -0.46211717, -0.0, 0.0, 0.24491866, 0.46211717, 0.76159418, 0.90514821, 0.98661435, 1.0, 1.0, NAN]);
    check("asinh", attrs! {}, &x, &[-INF, -1.8184465, -1.1947632, -0.88137358, -0.48121184, -0.0, 0.0, 0.24746647, 0.48121184, 0.88137358, 1.1947632, 1.6472312, 4.0946221, INF, NAN]);
    check("acosh", attrs! {}, &x, &[NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0.0, 0.96242368, 1.5667993, 4.0940666, INF, NAN]);
    check("atanh", attrs! {}, &x, &[NAN, NAN, NAN, -INF, -0.54930615, -0.0, 0.0, 0.25541282, 0.54930615, INF, NAN, NAN, NAN, NAN, NAN]);
    check("erf", attrs! {}, &x, &[-1.0, -0.99997789, -0.96610516, -0.84270078, -0.52049989, -0.0, 0.0, 0.27632639, 0.52049989, 0.84270078, 0.96610516, 0.99959308, 1.0, 1.0, NAN]);
    check("sigmoid", attrs! {}, &x, &[0.0, 0.047425866, 0.18242556, 0.26894143, 0.37754071, 0.5, 0.5, 0.56217647, 0.62245929, 0.7310586, 0.81757444, 0.92414182, 1.0, 1.0, NAN]);
    check("softplus", attrs! {}, &x, &[0.0, 0.048587356, 0.20141326, 0.31326169, 0.47407699, 0.69314718, 0.69314718, 0.82593948, 0.97407699, 1.3132617, 1.7014133, 2.5788898, 30.0, INF, NAN]);
    check("softsign", attrs! {}, &x, &[NAN, -0.75, -0.60000002, -0.5, -0.33333334, -0.0, 0.0, 0.2, 0.33333334, 0.5, 0.60000002, 0.71428573, 0.96774191, NAN, NAN]);
    check("mish", attrs! {}, &x, &[NAN, -0.14564745, -0.2980997, -0.30340144, -0.22074378, -0.0, 0.0, 0.16957243, 0.37524524, 0.86509848, 1.4033782, 2.4713924, 30.0, INF, NAN]);
    check("hard_swish", attrs! {}, &x, &[NAN, -0.0, -0.375, -0.33333331, -0.20833333, -0.0, 0.0, 0.13541667, 0.29166666, 0.66666669, 1.125, 2.2916667, 30.0, INF, NAN]);
    check("is_nan", attrs! {}, &x, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    check("elu", attrs! { alpha: 0.5 }, &x, &[-0.5, -0.47510648, -0.38843492, -0.31606027, -0.19673467, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN]);
    check("selu", attrs! { alpha: 1.25, gamma: 2.0 }, &x, &[-2.5, -2.3755324, -1.9421746, -1.5803014, -0.98367333, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 60.0, INF, NAN]);
    check("celu", attrs! { alpha: 2.0 }, &x, &[-2.0, -1.5537397, -1.0552669, -0.78693867, -0.44239843, 0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN]);
    check("leaky_relu", attrs! { alpha: 0.25 }, &x, &[-INF, -0.75, -0.375, -0.25, -0.125, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN]);
    check("thresholded_relu", attrs! { alpha: 0.5 }, &x, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.5, 2.5, 30.0, INF, 0.0]);
    check("hard_sigmoid", attrs! { alpha: 0.25, beta: 0.5 }, &x, &[0.0, 0.0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5625, 0.625, 0.75, 0.875, 1.0, 1.0, 1.0, NAN]);
    check("shrink", attrs! { lambd: 0.75, bias: 0.25 }, &x, &[-INF, -2.75, -1.25, -0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.75, 1.25, 2.25, 29.75, INF, 0.0]);
    check("gelu", attrs! { approximate: "none" }, &x, &[NAN, -0.0040496886, -0.10021082, -0.15865526, -0.15426877, -0.0, 0.0, 0.14967658, 0.34573123, 0.84134471, 1.3997892, 2.4844761, 30.0, INF, NAN]);
    check("gelu", attrs! { approximate: "tanh" }, &x, &[NAN, -0.0036375225, -0.10042843, -0.15880796, -0.154286, -0.0, 0.0, 0.14967535, 0.345714, 0.84119201, 1.3995715, 2.4849157, 30.0, INF, NAN]);
    check("swish", attrs! { alpha: 1.0 }, &[f32s(&[3], &[-1.0, 0.5, 2.0])], &[-0.26894142, 0.31122967, 1.7615942]);
    let negative = attrs! { detect_negative: true, detect_positive: false };
    check("is_inf", negative, &x, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let bounds = [x[0].clone(), f32s(&[15], &[-1.0; 15]), f32s(&[15], &[2.0; 15])];
    check("clip", attrs! {}, &bounds, &[-1.0, -1.0, -1.0, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, NAN]);
}

#[test]
#[rustfmt::skip]
fn two_floats() {
    let pair = PAIRS.map(|data| f32s(&[10], &data));
    check("add", attrs! {}, &pair, &[-4.0, -10.0, 0.5, 0.0, -2.0, -1.0, 10.0, INF, INF, NAN]);
    check("sub", attrs! {}, &pair, &[-10.0, -2.0, -3.5, 0.0, 2.0, 4.0, 2.0, -INF, INF, NAN]);
    check("mul", attrs! {}, &pair, &[-21.0, 24.0, -3.0, 0.0, -0.0, -3.75, 24.0, INF, INF, NAN]);
    check("div", attrs! {}, &pair, &[-2.3333333, 1.5, -0.75, NAN, -0.0, -0.60000002, 1.5, 0.0, INF, NAN]);
    check("pow", attrs! {}, &pair, &[-343.0, 0.00077160494, 2.25, 1.0, INF, 0.36288738, 1296.0, INF, INF, NAN]);
    check("rem", attrs! {}, &pair, &[-1.0, -2.0, -1.5, NAN, 0.0, 1.5, 2.0, 7.0, NAN, NAN]);
    check("max", attrs! {}, &pair, &[3.0, -4.0, 2.0, 0.0, 0.0, 1.5, 6.0, INF, INF, NAN]);
    check("min", attrs! {}, &pair, &[-7.0, -6.0, -1.5, 0.0, -2.0, -2.5, 4.0, 7.0, 2.0, NAN]);
    check("eq", attrs! {}, &pair, &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    check("lt", attrs! {}, &pair, &[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    check("le", attrs! {}, &pair, &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    check("gt", attrs! {}, &pair, &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0]);
    check("ge", attrs! {}, &pair, &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0]);
    check("prelu", attrs! {}, &pair, &[-21.0, 24.0, -3.0, 0.0, 0.0, 1.5, 6.0, 7.0, INF, 2.0]);
}

#[test]
fn two_integers() {
    let x = i64s(&[8], &[-7, -6, 7, 6, -1, 2, 2, 1]);
    let pair = [x.clone(), i64s(&[8], &[3, -4, -3, 4, 5, 10, 0, 3])];
    let nonzero = [x, i64s(&[8], &[3, -4, -3, 4, 5, 10, 7, 3])];
    check("div", attrs! {}, &nonzero, &[-2.0, 1.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    check("pow", attrs! {}, &pair, &[-343.0, 0.0, 0.0, 1296.0, -1.0, 1024.0, 1.0, 1.0]);
    check("rem", attrs! {}, &nonzero, &[-1.0, -2.0, 1.0, 2.0, -1.0, 2.0, 2.0, 1.0]);
    check("mod", attrs! {}, &nonzero, &[2.0, -2.0, -2.0, 2.0, 4.0, 2.0, 2.0, 1.0]);
    check("max", attrs! {}, &pair, &[3.0, -4.0, 7.0, 6.0, 5.0, 10.0, 2.0, 3.0]);
    check("bit_and", attrs! {}, &pair, &[1.0, -8.0, 5.0, 4.0, 5.0, 2.0, 0.0, 1.0]);
    check("bit_or", attrs! {}, &pair, &[-5.0, -2.0, -1.0, 6.0, -1.0, 10.0, 2.0, 3.0]);
    check("bit_xor", attrs! {}, &pair, &[-6.0, 6.0, -6.0, 2.0, -6.0, 8.0, 2.0, 2.0]);
    let bytes = [[1, 3, 200, 255], [1, 7, 3, 2]].map(|data| (DType::U8, ints(&[4], &data)));
    check("shl", attrs! {}, &bytes, &[2.0, 128.0, 64.0, 252.0]);
    check("shr", attrs! {}, &bytes, &[0.0, 0.0, 25.0, 63.0]);
}

#[test]
fn conversions() {
    let x = [f32s(&[6], &[-3.7, -0.5, 0.0, 0.5, 2.5, 200.9])];
    check("cast", attrs! { to: DType::I64 }, &x, &[-3.0, 0.0, 0.0, 0.0, 2.0, 200.0]);
    check("cast", attrs! { to: DType::Bool }, &x, &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    let far = [f32s(&[4], &[1e20, -1e20, NAN, 300.0])];
    check("cast", attrs! { to: DType::U8 }, &far, &[255.0, 0.0, 0.0, 255.0]);
    check("cast", attrs! { to: DType::F16 }, &far, &[INF, -INF, NAN, 300.0]);
}

#[test]
fn reductions() {
    let m = [f32s(&[2, 3], &[1.0, -2.0, 3.0, 4.0, 4.0, -6.0])];
    let along = |axis: i64, keepdims: bool| attrs! { axes: vec![axis], keepdims: keepdims };
    for (op, rows, columns) in [
        ("reduce_sum", [2.0, 2.0], [5.0, 2.0, -3.0]),
        ("reduce_mean", [0.6666667, 0.6666667], [2.5, 1.0, -1.5]),
        ("reduce_max", [3.0, 4.0], [4.0, 4.0, 3.0]),
        ("reduce_min", [-2.0, -6.0], [1.0, -2.0, -6.0]),
        ("reduce_prod", [-6.0, -96.0], [4.0, -8.0, -18.0]),
        ("reduce_l1", [6.0, 14.0], [5.0, 6.0, 9.0]),
        ("reduce_l2", [3.7416575, 8.246211], [4.1231055, 4.472136, 6.708204]),
        ("reduce_sum_square", [14.0, 68.0], [17.0, 20.0, 45.0]),
        ("reduce_log_sum_exp", [3.1328452, 4.6931696], [4.0485873, 4.0024757, 3.0001233]),
    ] {
        assert_eq!(evaluate(op, &along(1, true), &m).0, [2, 1]);
        check(op, along(1, true), &m, &rows);
        assert_eq!(evaluate(op, &along(0, false), &m).0, [3]);
        check(op, along(0, false), &m, &columns);
    }
    let absolute = [f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 4.0, 6.0])];
    check("reduce_log_sum", along(0, false), &absolute, &[1.609438, 1.7917595, 2.1972246]);
    for (op, last, expected) in [
        ("arg_max", false, [2.0, 0.0]),
        ("arg_max", true, [2.0, 1.0]),
        ("arg_min", false, [1.0, 2.0]),
        ("arg_min", true, [1.0, 2.0]),
    ] {
        check(op, attrs! { axis: 1i64, keepdims: false, select_last: last }, &m, &expected);
    }
    for (exclusive, reverse, expected) in [
        (false, false, [1.0, -1.0, 2.0, 4.0, 8.0, 2.0]),
        (false, true, [2.0, 1.0, 3.0, 2.0, -2.0, -6.0]),
        (true, false, [0.0, 1.0, -1.0, 0.0, 4.0, 8.0]),
        (true, true, [1.0, 3.0, 0.0, -2.0, -6.0, 0.0]),
    ] {
        let attrs = attrs! { axis: 1i64, exclusive: exclusive, reverse: reverse };
        check("cum_sum", attrs, &m, &expected);
    }
}

#[test]
fn extremes_of_reductions() {
    let sum_of = |op: &str, data: &[f64]| {
        let x = [f32s(&[data.len()], data)];
        evaluate(op, &attrs! { axes: vec![0i64], keepdims: false }, &x).1[0]
    };
    assert_eq!(sum_of("reduce_log_sum_exp", &[1000.0, 1000.0]), 1000.0 + f64::ln(2.0));
    assert_eq!(sum_of("reduce_log_sum_exp", &[-INF, -INF]), -INF);
    assert_eq!(sum_of("reduce_log_sum_exp", &[INF, 1.0]), INF);
    assert_eq!(sum_of("reduce_sum", &[]), 0.0);
    assert_eq!(sum_of("reduce_max", &[]), -INF);
    assert!(sum_of("reduce_mean", &[]).is_nan());
    assert!(sum_of("reduce_max", &[1.0, NAN, 2.0]).is_nan());
    let with_nan = [f32s(&[4], &[1.0, NAN, 2.0, NAN])];
    let first = attrs! { axis: 0i64, keepdims: false, select_last: false };
    assert_eq!(evaluate("arg_max", &first, &with_nan).1, [1.0]);
    assert_eq!(evaluate("arg_min", &first, &with_nan).1, [1.0]);
    assert_eq!(evaluate("arg_min", &first, &[f32s(&[0], &[])]).1, [-1.0]);
}

fn sizes(values: &[i64]) -> Vec<Dim> {
    values.iter().map(|&value| Dim::constant(value)).collect()
}

#[test]
#[rustfmt::skip]
fn movements() {
    let v = i64s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let x = [v.clone()];
    check("transpose", attrs! { perm: vec![1i64, 0] }, &x, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let backwards = attrs! { starts: sizes(&[1, 2]), sizes: sizes(&[2, 2]), steps: vec![-1i64, -2] };
    check("slice", backwards, &x, &[6.0, 4.0, 3.0, 1.0]);
    let pad = |before: [i64; 2], after: [i64; 2], mode: &str| {
        attrs! { before: sizes(&before), after: sizes(&after), mode: mode, value: 9.0 }
    };
    for (mode, expected) in [
        ("constant", [9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 2, 3, 9, 9, 9, 9, 4, 5, 6, 9, 9]),
        ("edge", [1, 1, 1, 2, 3, 3, 3, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6, 6, 6]),
        ("reflect", [6, 5, 4, 5, 6, 5, 4, 3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4]),
        ("wrap", [5, 6, 4, 5, 6, 4, 5, 2, 3, 1, 2, 3, 1, 2, 5, 6, 4, 5, 6, 4, 5]),
    ] {
        check("pad", pad([1, 2], [0, 2], mode), &x, &expected.map(f64::from));
    }
    check("pad", pad([-1, 1], [1, -2], "constant"), &x, &[9.0, 4.0, 9.0, 9.0]);
    let indices = i64s(&[2, 2], &[0, -1, 2, 1]);
    let gathered = [1.0, 3.0, 3.0, 2.0, 4.0, 6.0, 6.0, 5.0];
    check("gather", attrs! { axis: 1i64 }, &[v.clone(), indices.clone()], &gathered);
    check("gather_elements", attrs! { axis: 1i64 }, &[v.clone(), indices], &[1.0, 3.0, 6.0, 5.0]);
    let tuples = [v.clone(), i64s(&[2, 2], &[0, -1, 1, 1])];
    check("gather_nd", attrs! { batch_dims: 0i64 }, &tuples, &[3.0, 5.0]);
    let batched = [v.clone(), i64s(&[2, 1], &[2, -2])];
    check("gather_nd", attrs! { batch_dims: 1i64 }, &batched, &[3.0, 5.0]);
    check("trilu", attrs! { upper: true, k: 1i64 }, &x, &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    check("trilu", attrs! { upper: false, k: -1i64 }, &x, &[0.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
    let parts = [v.clone(), i64s(&[2, 1], &[1, 4])];
    check("concat", attrs! { axis: 1i64 }, &parts, &[1.0, 2.0, 3.0, 1.0, 4.0, 5.0, 6.0, 4.0]);
    let condition = (DType::Bool, ints(&[2, 3], &[1, 0, 1, 0, 0, 1]));
    let choice = [condition, v, i64s(&[2, 3], &[-1, -2, -3, -4, -5, -6])];
    check("where", attrs! {}, &choice, &[1.0, -2.0, 3.0, -4.0, -5.0, 6.0]);
}

#[test]
fn indices_outside_are_clamped() {
    let x = i64s(&[3], &[1, 2, 3]);
    let indices = i64s(&[4], &[3, -4, i64::MAX, i64::MIN]);
    check("gather", attrs! { axis: 0i64 }, &[x, indices.clone()], &[3.0, 1.0, 3.0, 1.0]);
    check("gather", attrs! { axis: 0i64 }, &[i64s(&[0], &[]), indices], &[0.0; 4]);
}
