//! Oracles against values that ONNX Runtime 1.32.0 computed for the same small integer operands.

use std::collections::BTreeMap;

use fornax_bundle::Dims;

use super::{Expansion, OpClass, OpCtx, by_name};
use crate::interp::{Array, Interpreter, Value, evaluate_op};
use crate::{AttrValue, Attrs, DType, Diagnostic, Dim, Graph, LocSet, NodeId, Tensor, Type, attrs};

/// The operand of a shape: small integers in no simple order.
fn operand(shape: &[usize]) -> Array<f64> {
    let count = shape.iter().product::<usize>();
    Array::new(shape, (0..count).map(|i| ((i * 7 + 3) % 11) as f64 - 5.0).collect())
}

/// The result's shape and elements for operands of these shapes.
fn evaluate(op: &str, attrs: &Attrs, shapes: &[&[usize]]) -> (Vec<usize>, Vec<f64>) {
    let op = by_name(op).unwrap();
    let types: Vec<Type> = shapes.iter().map(|&shape| Type::new(DType::F64, shape)).collect();
    let values: Vec<Value<f64>> = shapes.iter().map(|s| Value::Float(operand(s))).collect();
    let operands: Vec<&Value<f64>> = values.iter().collect();
    let value = evaluate_op(op, attrs, &types, &operands, &Dims::new()).unwrap();
    if let OpClass::Composite(expand) = op.class() {
        let expanded = evaluate_expansion(*expand, attrs, &types, values);
        assert_eq!(value.shape(), expanded.shape());
        for (i, (a, b)) in elements(&value).into_iter().zip(elements(&expanded)).enumerate() {
            let close = (a - b).abs() <= 1e-12 * a.abs().max(1.0);
            assert!(close, "{op} is {a} at {i}, its expansion {b}");
        }
    }
    (value.shape().to_vec(), elements(&value))
}

fn evaluate_expansion(
    expand: fn(&OpCtx<'_>, &mut Expansion<'_>) -> Result<NodeId, Diagnostic>,
    attrs: &Attrs,
    types: &[Type],
    values: Vec<Value<f64>>,
) -> Value<f64> {
    let mut graph = Graph::new("expansion");
    let inputs: Vec<NodeId> = types
        .iter()
        .enumerate()
        .map(|(i, ty)| graph.input(&format!("x{i}"), ty.clone()).unwrap())
        .collect();
    let loc = LocSet::none();
    let mut to = Expansion { graph: &mut graph, operands: &inputs, loc: &loc };
    let result = expand(&OpCtx { attrs, operands: types }, &mut to).unwrap();
    graph.output("y", result);
    let interpreter = Interpreter::from_values(&graph, values, BTreeMap::new(), Dims::new());
    interpreter.unwrap().outputs().unwrap().remove(0)
}

fn elements(value: &Value<f64>) -> Vec<f64> {
    match value {
        Value::Float(array) => array.data.clone(),
        Value::Int(array) => array.data.iter().map(|&value| value as f64).collect(),
    }
}

/// Compares the result's shape and `sum of y[i] * (i mod 7 + 1)` with what is expected, and a composite's
/// expansion with its oracle.
#[track_caller]
fn check(op: &str, attrs: Attrs, shapes: &[&[usize]], shape: &[usize], expected: f64) {
    let (actual_shape, elements) = evaluate(op, &attrs, shapes);
    assert_eq!(actual_shape, shape);
    let actual: f64 = elements.iter().enumerate().map(|(i, y)| y * (i % 7 + 1) as f64).sum();
    let error = (actual - expected).abs();
    assert!(error <= 1e-5 * expected.abs().max(1.0), "{actual}, expected {expected}");
}

#[test]
fn products() {
    check("matmul", attrs! {}, &[&[2, 1, 3, 4], &[5, 4, 2]], &[2, 5, 3, 2], 744.0);
    check("matmul", attrs! {}, &[&[3, 4], &[5, 4, 2]], &[5, 3, 2], 537.0);
    let equation = attrs! { equation: "bij,jbk->kbi" };
    check("einsum", equation, &[&[2, 3, 4], &[4, 2, 5]], &[5, 2, 3], -135.0);
}

/// The attributes of a convolution: strides, pads at the begin, at the end, dilations, groups.
fn conv(strides: &[i64], begin: &[i64], end: &[i64], dilations: &[i64], groups: i64) -> Attrs {
    attrs! {
        strides: strides,
        pads_begin: begin,
        pads_end: end,
        dilations: dilations,
        groups: groups,
    }
}

#[test]
fn convolutions() {
    let one = conv(&[2], &[1], &[2], &[2], 2);
    check("conv", one, &[&[2, 4, 9], &[6, 2, 3]], &[2, 6, 4], 444.0);
    let two = conv(&[2, 1], &[1, 0], &[2, 1], &[1, 2], 1);
    check("conv", two, &[&[2, 3, 7, 6], &[4, 3, 3, 2]], &[2, 4, 4, 5], 452.0);
    let three = conv(&[1, 2, 3], &[0, 1, 1], &[1, 0, 2], &[1, 1, 1], 2);
    check("conv", three, &[&[1, 2, 4, 5, 6], &[2, 1, 2, 3, 2]], &[1, 2, 4, 2, 3], -291.0);
}

#[test]
fn transposed_convolutions() {
    let with = |mut attrs: Attrs, output_padding: &[i64]| {
        attrs.insert("output_padding", output_padding);
        attrs
    };
    let one = with(conv(&[3], &[1], &[2], &[2], 2), &[1]);
    check("conv_transpose", one, &[&[2, 4, 5], &[4, 3, 3]], &[2, 6, 15], -116.0);
    let two = with(conv(&[2, 1], &[1, 0], &[0, 1], &[1, 1], 1), &[1, 0]);
    check("conv_transpose", two, &[&[1, 3, 4, 3], &[3, 2, 3, 2]], &[1, 2, 9, 3], 13.0);
    let three = with(conv(&[1, 2, 3], &[0; 3], &[0; 3], &[1; 3], 1), &[0; 3]);
    let shapes: &[&[usize]] = &[&[1, 2, 2, 3, 2], &[2, 2, 2, 1, 3]];
    check("conv_transpose", three, shapes, &[1, 2, 3, 5, 6], -209.0);
}

/// The attributes of a pooling op with a 3 x 2 window.
fn pool(ceil_mode: bool, dilations: &[i64]) -> Attrs {
    attrs! {
        kernel: vec![3i64, 2],
        strides: vec![2i64, 3],
        pads_begin: vec![1i64, 0],
        pads_end: vec![1i64, 1],
        dilations: dilations,
        ceil_mode: ceil_mode,
    }
}

fn with(mut attrs: Attrs, name: &'static str, value: impl Into<AttrValue>) -> Attrs {
    attrs.insert(name, value);
    attrs
}

#[test]
fn pooling() {
    let x: &[&[usize]] = &[&[2, 2, 7, 8]];
    let (rounded_up, plain) = (pool(true, &[1, 1]), pool(false, &[1, 1]));
    check("max_pool", rounded_up.clone(), x, &[2, 2, 4, 3], 697.0);
    check("max_pool", pool(false, &[2, 1]), x, &[2, 2, 3, 3], 535.0);
    let row_major = with(plain.clone(), "column_major", false);
    check("max_pool_indices", row_major, x, &[2, 2, 4, 3], 22185.0);
    let column_major = with(plain.clone(), "column_major", true);
    check("max_pool_indices", column_major, x, &[2, 2, 4, 3], 21647.0);
    let padded = with(rounded_up.clone(), "count_include_pad", true);
    check("avg_pool", padded, x, &[2, 2, 4, 3], -14.0);
    check("avg_pool", with(rounded_up, "count_include_pad", false), x, &[2, 2, 4, 3], -16.16666656);
    check("lp_pool", with(plain, "p", 3i64), x, &[2, 2, 4, 3], 1080.4102120399475);
}

#[test]
fn pooling_along_one_axis() {
    let attrs = attrs! {
        kernel: vec![3i64],
        strides: vec![2i64],
        pads_begin: vec![1i64],
        pads_end: vec![1i64],
        dilations: vec![2i64],
        ceil_mode: false,
        count_include_pad: false,
    };
    check("avg_pool", attrs, &[&[2, 1, 7]], &[2, 1, 3], 30.8333333);
}

#[test]
fn softmaxes() {
    let along = |axis: i64| attrs! { axis: axis };
    let x: &[&[usize]] = &[&[2, 5, 3]];
    check("softmax", along(1), x, &[2, 5, 3], 22.427411638713238);
    check("log_softmax", along(1), x, &[2, 5, 3], -441.5373593061231);
    check("hardmax", along(1), x, &[2, 5, 3], 19.0);
}

#[test]
fn normalizations() {
    let along = |axis: i64| attrs! { axis: axis, epsilon: 0.01 };
    let three: &[&[usize]] = &[&[2, 3, 5], &[3, 5], &[5]];
    check("layer_norm", along(1), three, &[2, 3, 5], 209.80107581615448);
    check("rms_norm", along(1), &[&[2, 3, 5], &[5]], &[2, 3, 5], 13.992869442160776);
    let five: &[&[usize]] = &[&[2, 4, 3], &[4], &[4], &[4], &[4]];
    check("batch_norm", attrs! { epsilon: 8.0 }, five, &[2, 4, 3], -275.8943075714192);
    let image: &[&[usize]] = &[&[2, 4, 3, 2], &[4], &[4]];
    check("instance_norm", attrs! { epsilon: 0.01 }, image, &[2, 4, 3, 2], 57.873521745204926);
    let groups = attrs! { groups: 2i64, epsilon: 0.01 };
    check("group_norm", groups, image, &[2, 4, 3, 2], 10.755532383918762);
}

#[test]
fn vector_normalizations() {
    let lp = |p: i64| attrs! { axis: 1i64, p: p };
    check("lp_norm", lp(1), &[&[2, 4, 3]], &[2, 4, 3], -2.5084033459424973);
    check("lp_norm", lp(2), &[&[2, 4, 3]], &[2, 4, 3], -4.095083296298981);
    let over = attrs! { axes: vec![0i64, 2, 3], epsilon: 1e-9 };
    check("mean_variance_norm", over, &[&[2, 4, 3, 2]], &[2, 4, 3, 2], 2.961069457232952);
    let lrn = |size: i64| attrs! { alpha: 0.5, beta: 0.75, bias: 2.0, size: size };
    check("lrn", lrn(5), &[&[2, 7, 3, 2]], &[2, 7, 3, 2], -7.039079684145357);
    check("lrn", lrn(4), &[&[2, 7, 3, 2]], &[2, 7, 3, 2], 3.5198456626262367);
}

/// The attributes of a resize of axes 1 and 2.
fn resize(mode: &str, coordinates: &str, sizes: &[i64], scales: &[f32]) -> Attrs {
    attrs! {
        axes: vec![1i64, 2],
        sizes: sizes.iter().map(|&size| Dim::constant(size)).collect::<Vec<_>>(),
        scales: Tensor::from_f32(&[scales.len()], scales),
        mode: mode,
        coordinate_transformation_mode: coordinates,
        nearest_mode: "round_prefer_floor",
        cubic_coeff_a: -0.75,
        exclude_outside: false,
        antialias: false,
        roi: Tensor::from_f32(&[0], &[]),
        extrapolation_value: 10.0,
    }
}

/// Expected values: the reference evaluator of the `onnx` package.
#[test]
fn resizing() {
    let check = |attrs: Attrs, shape: &[usize], expected| {
        check("resize", attrs, &[&[2, 5, 4]], shape, expected);
    };
    let nearest = resize("nearest", "asymmetric", &[10, 12], &[2.0, 3.0]);
    check(with(nearest, "nearest_mode", "floor"), &[2, 10, 12], 251.0);
    let nearest = resize("nearest", "half_pixel", &[10, 2], &[2.0, 0.6]);
    check(with(nearest, "nearest_mode", "round_prefer_ceil"), &[2, 10, 2], 90.0);
    let nearest = resize("nearest", "half_pixel", &[5, 6], &[1.0, 1.7]);
    check(with(nearest, "nearest_mode", "ceil"), &[2, 5, 6], 12.0);
    let corners = resize("linear", "align_corners", &[9, 6], &[1.8, 1.5]);
    check(corners, &[2, 9, 6], 0.8);
    let smaller = resize("linear", "half_pixel", &[3, 2], &[0.6, 0.6]);
    check(with(smaller, "antialias", true), &[2, 3, 2], -5.602622475);
    let cubic = with(resize("cubic", "half_pixel", &[3, 2], &[0.6, 0.5]), "antialias", true);
    check(with(cubic, "cubic_coeff_a", -0.5), &[2, 3, 2], -6.27565971);
    let cubic = resize("cubic", "pytorch_half_pixel", &[7, 8], &[1.5, 2.0]);
    check(with(cubic, "exclude_outside", true), &[2, 7, 8], 42.450354755);
    let crop = resize("linear", "tf_crop_and_resize", &[4, 6], &[0.8, 1.5]);
    let roi = Tensor::from_f32(&[4], &[0.2, -0.25, 0.9, 1.25]);
    check(with(crop, "roi", roi), &[2, 4, 6], 639.49000242);
    let symmetric = resize("linear", "half_pixel_symmetric", &[6, 8], &[1.3, 2.0]);
    check(symmetric, &[2, 6, 8], 49.769216485);
}

/// Evaluates an op and its expansion on given operands.
fn evaluate_on(op: &str, attrs: Attrs, operands: Vec<(DType, Value<f64>)>) -> Vec<f64> {
    let op = by_name(op).unwrap();
    let (types, values): (Vec<Type>, Vec<Value<f64>>) =
        operands.into_iter().map(|(dtype, value)| (Type::new(dtype, value.shape()), value)).unzip();
    let operands: Vec<&Value<f64>> = values.iter().collect();
    let value = evaluate_op(op, &attrs, &types, &operands, &Dims::new()).unwrap();
    let OpClass::Composite(expand) = op.class() else { unreachable!("the op is a composite") };
    let expanded = evaluate_expansion(*expand, &attrs, &types, values);
    assert_eq!(value, expanded, "{} and its expansion", op);
    elements(&value)
}

fn floats(shape: &[usize], data: &[f64]) -> Value<f64> {
    Value::Float(Array::new(shape, data.to_vec()))
}

fn ints(shape: &[usize], data: &[i64]) -> Value<f64> {
    Value::Int(Array::new(shape, data.to_vec()))
}

/// Expected values: worked out by hand from the definition.
#[test]
fn quantization() {
    let to = |dtype: DType, axis: i64, block_size: i64| {
        attrs! { axis: axis, block_size: block_size, to: dtype }
    };
    let x = floats(&[2, 3], &[0.5, 1.5, -300.0, 5.0, 1e30, f64::NAN]);
    let scale = floats(&[3], &[1.0, 1.0, 2.0]);
    let operands =
        vec![(DType::F32, x.clone()), (DType::F32, scale), (DType::I8, ints(&[3], &[0, 10, 1]))];
    let quantized = evaluate_on("quantize_linear", to(DType::I8, 1, 0), operands);
    assert_eq!(quantized, [0.0, 12.0, -128.0, 5.0, 127.0, 0.0]);

    let one = vec![(DType::F32, x), (DType::F32, floats(&[], &[0.5]))];
    let quantized = evaluate_on("quantize_linear", to(DType::U16, 1, 0), one);
    assert_eq!(quantized, [1.0, 3.0, 0.0, 10.0, 65535.0, 0.0]);

    let blocks = vec![
        (DType::U8, ints(&[5, 2], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])),
        (DType::F32, floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        (DType::U8, ints(&[3, 2], &[0, 1, 2, 3, 4, 5])),
    ];
    let real = evaluate_on("dequantize_linear", to(DType::F32, 0, 2), blocks);
    assert_eq!(real, [1.0, 2.0, 3.0, 6.0, 9.0, 12.0, 15.0, 20.0, 25.0, 30.0]);
}

#[test]
fn one_hot_encoding() {
    let operands = || {
        vec![(DType::I64, ints(&[2, 2], &[1, -1, 3, -4])), (DType::F32, floats(&[2], &[-1.0, 5.0]))]
    };
    let last = evaluate_on("one_hot", attrs! { axis: 2i64, depth: 3i64 }, operands());
    let (off, on) = (-1.0, 5.0);
    assert_eq!(last, [off, on, off, off, off, on, off, off, off, off, off, off]);
    let first = evaluate_on("one_hot", attrs! { axis: 0i64, depth: 3i64 }, operands());
    assert_eq!(first, [off, off, off, off, on, off, off, off, off, on, off, off]);
}

#[test]
fn negative_log_likelihood() {
    let operands = || {
        vec![
            (DType::F32, floats(&[2, 3, 2], &(0..12).map(f64::from).collect::<Vec<_>>())),
            (DType::I64, ints(&[2, 2], &[2, 0, -7, 1])),
            (DType::F32, floats(&[3], &[1.0, 2.0, 4.0])),
        ]
    };
    let reduced = |reduction: &str| {
        let attrs = attrs! { ignore_index: vec![-7i64], reduction: reduction };
        evaluate_on("nll_loss", attrs, operands())
    };
    assert_eq!(reduced("none"), [-16.0, -1.0, 0.0, -18.0]);
    assert_eq!(reduced("sum"), [-35.0]);
    assert_eq!(reduced("mean"), [-5.0]);
}
