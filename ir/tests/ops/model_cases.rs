//! Cases of contractions, windows, normalisations and the other ops of model layers.

use fornax_ir::{AttrValue, Attrs, DType, Dim, Tensor, Type, attrs};

use crate::cases::Generate;
use crate::draw::{Case, DTYPES, Draw, FLOATS};

/// The ops that the default does not fit.
pub const CASES: &[(&str, Generate)] = &[
    ("matmul", matmul),
    ("einsum", einsum),
    ("conv", conv),
    ("conv_transpose", conv_transpose),
    ("max_pool", |draw| pool(draw, &DTYPES)),
    ("max_pool_indices", |draw| {
        let column_major = draw.flag();
        with(pool(draw, &DTYPES), "column_major", column_major)
    }),
    ("avg_pool", |draw| {
        let count_include_pad = draw.flag();
        with(pool(draw, &FLOATS), "count_include_pad", count_include_pad)
    }),
    ("lp_pool", |draw| {
        let p = draw.int(1, 3);
        with(pool(draw, &FLOATS), "p", p)
    }),
    ("softmax", along_axis),
    ("log_softmax", along_axis),
    ("hardmax", along_axis),
    ("layer_norm", |draw| trailing_norm(draw, 3)),
    ("rms_norm", |draw| trailing_norm(draw, 2)),
    ("batch_norm", |draw| channel_norm(draw, 5)),
    ("instance_norm", |draw| channel_norm(draw, 3)),
    ("group_norm", group_norm),
    ("lp_norm", |draw| {
        let p = draw.int(1, 2);
        with(along_axis(draw), "p", p)
    }),
    ("mean_variance_norm", |draw| {
        let x = float(draw, 1, 4);
        let axes = draw.axes(x.rank());
        Case { attrs: attrs! { axes: axes, epsilon: 1e-3 }, types: vec![x] }
    }),
    ("lrn", |draw| Case {
        attrs: attrs! { alpha: 0.5, beta: 0.75, bias: 1.5, size: draw.int(1, 5) },
        types: vec![float(draw, 2, 4)],
    }),
    ("resize", resize),
    ("quantize_linear", quantize),
    ("dequantize_linear", dequantize),
    ("one_hot", one_hot),
    ("nll_loss", nll_loss),
    ("lstm", |draw| recurrent(draw, Cell::LSTM, true)),
    ("gru", |draw| recurrent(draw, Cell::GRU, true)),
    ("rnn", |draw| recurrent(draw, Cell::RNN, true)),
    ("lstm_recurrence", |draw| recurrent(draw, Cell::LSTM, false)),
    ("gru_recurrence", |draw| recurrent(draw, Cell::GRU, false)),
    ("rnn_recurrence", |draw| recurrent(draw, Cell::RNN, false)),
];

/// What tells recurrent layers apart.
struct Cell {
    gates: i64,
    states: usize,
    activations: usize,
}

impl Cell {
    const LSTM: Cell = Cell { gates: 4, states: 2, activations: 3 };
    const GRU: Cell = Cell { gates: 3, states: 1, activations: 2 };
    const RNN: Cell = Cell { gates: 1, states: 1, activations: 1 };
}

/// A recurrent layer, with the products of its input or without.
fn recurrent(draw: &mut Draw, cell: Cell, with_input: bool) -> Case {
    let dtype = if with_input { draw.pick(&FLOATS) } else { draw.pick(&[DType::F32, DType::F64]) };
    let [steps, batch, input, hidden] = [(); 4].map(|()| draw.size());
    let direction = draw.pick(&["forward", "reverse", "bidirectional"]);
    let directions = Dim::constant(if direction == "bidirectional" { 2 } else { 1 });
    let times = |count: i64| &hidden * &Dim::constant(count);
    let names = (0..cell.activations).map(|_| draw.pick(&["sigmoid", "tanh", "softsign"]));
    let names: Vec<&str> = names.collect();
    let mut attrs = attrs! { direction: direction, activations: names.join(",").as_str() };
    let mut shapes = Vec::new();
    if with_input {
        shapes.push(vec![steps, batch.clone(), input.clone()]);
        shapes.push(vec![directions.clone(), times(cell.gates), input]);
    } else {
        shapes.push(vec![steps, batch.clone(), &directions * &times(cell.gates)]);
    }
    shapes.push(vec![directions.clone(), times(cell.gates), hidden.clone()]);
    if with_input {
        shapes.push(vec![directions.clone(), times(2 * cell.gates)]);
    }
    let state = vec![directions.clone(), batch, hidden.clone()];
    shapes.extend(vec![state; cell.states]);
    match cell.gates {
        4 => {
            attrs.insert("input_forget", draw.flag());
            attrs.insert("final_cell", draw.flag());
            if draw.flag() {
                shapes.push(vec![directions, times(3)]);
            }
        }
        3 => {
            let after = draw.flag();
            attrs.insert("linear_before_reset", after);
            if after && !with_input {
                shapes.push(vec![directions, hidden.clone()]);
            }
        }
        _ => {}
    }
    let types = shapes.into_iter().map(|shape| Type::new(dtype, shape)).collect();
    Case { attrs, types }
}

fn with(mut case: Case, name: &'static str, value: impl Into<AttrValue>) -> Case {
    case.attrs.insert(name, value);
    case
}

fn number(draw: &mut Draw) -> DType {
    loop {
        let dtype = draw.pick(&DTYPES);
        if dtype != DType::Bool {
            return dtype;
        }
    }
}

fn float(draw: &mut Draw, low: usize, high: usize) -> Type {
    Type::new(draw.pick(&FLOATS), draw.shape(low, high))
}

/// The shape, with some sizes 1.
fn broadcastable(draw: &mut Draw, shape: &[Dim]) -> Vec<Dim> {
    let own = draw.below(shape.len() + 1);
    let size = |dim: &Dim| if draw.int(0, 2) == 0 { Dim::constant(1) } else { dim.clone() };
    shape[own..].iter().map(size).collect()
}

fn matmul(draw: &mut Draw) -> Case {
    let (dtype, batch) = (number(draw), draw.shape(0, 2));
    let [rows, inner, columns] = [(); 3].map(|()| draw.shape(1, 1)[0].clone());
    let (mut a, mut b) = (broadcastable(draw, &batch), broadcastable(draw, &batch));
    a.extend([rows, inner.clone()]);
    b.extend([inner, columns]);
    Case { attrs: attrs! {}, types: vec![Type::new(dtype, a), Type::new(dtype, b)] }
}

fn einsum(draw: &mut Draw) -> Case {
    let equation = draw.pick(&[
        "ij,jk->ik",
        "bij,bjk->bik",
        "bij,jbk->kbi",
        "i,i->",
        "i,j->ji",
        "abc,cb->a",
        "nabc,cd->nabd",
        "xy,xy->yx",
    ]);
    let dtype = number(draw);
    let sizes: Vec<Dim> = (0..26).map(|_| draw.shape(1, 1)[0].clone()).collect();
    let operands = equation.split("->").next().unwrap_or_default().split(',');
    let shape = |letters: &str| -> Vec<Dim> {
        letters.bytes().map(|letter| sizes[usize::from(letter - b'a')].clone()).collect()
    };
    let types = operands.map(|letters| Type::new(dtype, shape(letters))).collect();
    Case { attrs: attrs! { equation: equation }, types }
}

/// Numbers between two, one for each spatial axis.
fn entries(draw: &mut Draw, spatial: usize, low: i64, high: i64) -> Vec<i64> {
    (0..spatial).map(|_| draw.int(low, high)).collect()
}

fn sliding(draw: &mut Draw, spatial: usize) -> Attrs {
    attrs! {
        strides: entries(draw, spatial, 1, 3),
        pads_begin: entries(draw, spatial, 0, 2),
        pads_end: entries(draw, spatial, 0, 2),
        dilations: entries(draw, spatial, 1, 2),
    }
}

/// Sizes that leave room for windows.
fn spatial_sizes(draw: &mut Draw, spatial: usize) -> Vec<Dim> {
    (0..spatial).map(|_| draw.size() + Dim::constant(draw.int(0, 3))).collect()
}

fn kernel(draw: &mut Draw, spatial: usize) -> Vec<Dim> {
    entries(draw, spatial, 1, 3).into_iter().map(Dim::constant).collect()
}

fn conv(draw: &mut Draw) -> Case {
    let (dtype, spatial, groups) = (number(draw), draw.int(1, 3) as usize, draw.int(1, 3));
    let (columns, inner) = (draw.int(1, 2), draw.size());
    let mut x = vec![draw.size(), &inner * Dim::constant(groups)];
    x.extend(spatial_sizes(draw, spatial));
    let mut w = vec![Dim::constant(columns * groups), inner];
    w.extend(kernel(draw, spatial));
    let case = Case {
        attrs: sliding(draw, spatial),
        types: vec![Type::new(dtype, x), Type::new(dtype, w)],
    };
    with(case, "groups", groups)
}

fn conv_transpose(draw: &mut Draw) -> Case {
    let (dtype, spatial, groups) = (number(draw), draw.int(1, 3) as usize, draw.int(1, 3));
    let channels = draw.size() * Dim::constant(groups);
    let mut x = vec![draw.size(), channels.clone()];
    x.extend(spatial_sizes(draw, spatial));
    let mut w = vec![channels, draw.size()];
    w.extend(kernel(draw, spatial));
    let case = Case {
        attrs: sliding(draw, spatial),
        types: vec![Type::new(dtype, x), Type::new(dtype, w)],
    };
    let output_padding = entries(draw, spatial, 0, 1);
    with(with(case, "groups", groups), "output_padding", output_padding)
}

fn pool(draw: &mut Draw, dtypes: &[DType]) -> Case {
    let spatial = draw.int(1, 3) as usize;
    let mut shape = draw.shape(2, 2);
    shape.extend(spatial_sizes(draw, spatial));
    let case =
        Case { attrs: sliding(draw, spatial), types: vec![Type::new(draw.pick(dtypes), shape)] };
    let (window, ceil_mode) = (entries(draw, spatial, 1, 3), draw.flag());
    with(with(case, "kernel", window), "ceil_mode", ceil_mode)
}

fn along_axis(draw: &mut Draw) -> Case {
    let x = float(draw, 1, 4);
    Case { attrs: attrs! { axis: draw.axis(x.rank()) }, types: vec![x] }
}

fn trailing_norm(draw: &mut Draw, most: i64) -> Case {
    let x = float(draw, 1, 4);
    let mut types = vec![x.clone()];
    // One operand too many is rejected.
    for _ in 1..draw.int(1, most + 1) {
        types.push(Type::new(x.dtype, broadcastable(draw, &x.shape)));
    }
    Case { attrs: attrs! { axis: draw.axis(x.rank()), epsilon: 0.01 }, types }
}

fn channel_norm(draw: &mut Draw, operands: usize) -> Case {
    let x = float(draw, 2, 4);
    let mut types = vec![Type::new(x.dtype, vec![x.shape[1].clone()]); operands];
    types[0] = x;
    Case { attrs: attrs! { epsilon: 4.0 }, types }
}

fn group_norm(draw: &mut Draw) -> Case {
    let mut case = channel_norm(draw, 3);
    let groups = draw.int(1, 3);
    let mut shape = case.types[0].shape.to_vec();
    shape[1] = &shape[1] * Dim::constant(groups);
    for factor in &mut case.types[1..] {
        *factor = Type::new(factor.dtype, vec![shape[1].clone()]);
    }
    case.types[0] = Type::new(case.types[0].dtype, shape);
    with(case, "groups", groups)
}

fn doubles(values: &[f64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(DType::F64, [values.len()], data).expect("one value per element")
}

fn resize(draw: &mut Draw) -> Case {
    let mode = draw.pick(&["nearest", "nearest", "linear", "cubic"]);
    let shape = draw.shape(1, 3);
    let dtype = if mode == "nearest" { draw.pick(&DTYPES) } else { draw.pick(&FLOATS) };
    let axes = draw.axes(shape.len());
    let coordinates = draw.pick(&[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
    ]);
    let (mut sizes, mut scales) = (Vec::new(), Vec::new());
    for &axis in &axes {
        let scale = draw.pick(&[0.3, 0.5, 0.7, 1.0, 1.3, 2.0, 3.0]);
        let old = &shape[axis as usize];
        sizes.push(match scale {
            1.0 | 2.0 | 3.0 => old * Dim::constant(scale as i64),
            _ => Dim::constant(((draw.value(old) as f64 * scale) as i64).max(1)),
        });
        scales.push(scale);
    }
    let crops = coordinates == "tf_crop_and_resize";
    let roi: Vec<f64> = if crops {
        let starts = axes.iter().map(|_| draw.pick(&[0.0, -0.27, 0.31])).collect::<Vec<_>>();
        let ends = axes.iter().map(|_| draw.pick(&[1.0, 0.79, 1.23])).collect::<Vec<_>>();
        [starts, ends].concat()
    } else {
        Vec::new()
    };
    let attrs = attrs! {
        axes: axes,
        sizes: sizes,
        scales: doubles(&scales),
        mode: mode,
        coordinate_transformation_mode: coordinates,
        nearest_mode: draw.pick(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
        cubic_coeff_a: draw.pick(&[-0.75, -0.5]),
        exclude_outside: draw.flag(),
        antialias: mode != "nearest" && draw.flag(),
        roi: doubles(&roi),
        extrapolation_value: 2.0,
    };
    Case { attrs, types: vec![Type::new(dtype, shape)] }
}

/// The shape of a scale for `shape`, with `axis` and `block_size`.
fn factor_shape(draw: &mut Draw, shape: &[Dim]) -> (Vec<Dim>, i64, i64) {
    let axis = draw.axis(shape.len());
    let size = &shape[axis as usize];
    match draw.below(4) {
        0 => (Vec::new(), axis, 0),
        1 => (vec![Dim::constant(1)], axis, 0),
        2 => (vec![size.clone()], axis, 0),
        _ => {
            let block = draw.int(1, 3);
            let mut blocks = shape.to_vec();
            blocks[axis as usize] = size.ceil_div(&Dim::constant(block));
            (blocks, axis, block)
        }
    }
}

fn quantize(draw: &mut Draw) -> Case {
    let x = float(draw, 1, 3);
    let to = draw.pick(&[DType::I8, DType::U8, DType::I16, DType::U16]);
    let (factor, axis, block_size) = factor_shape(draw, &x.shape);
    let mut types = vec![x, Type::new(DType::F32, factor.clone())];
    if draw.flag() {
        types.push(Type::new(to, factor));
    }
    Case { attrs: attrs! { axis: axis, block_size: block_size, to: to }, types }
}

fn dequantize(draw: &mut Draw) -> Case {
    let from = draw.pick(&[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32]);
    let x = Type::new(from, draw.shape(1, 3));
    let (factor, axis, block_size) = factor_shape(draw, &x.shape);
    let mut types = vec![x, Type::new(draw.pick(&FLOATS), factor.clone())];
    if draw.flag() && from != DType::I32 {
        types.push(Type::new(from, factor));
    }
    let to = draw.pick(&FLOATS);
    Case { attrs: attrs! { axis: axis, block_size: block_size, to: to }, types }
}

fn one_hot(draw: &mut Draw) -> Case {
    let indices = Type::new(draw.pick(&[DType::I64, DType::I32]), draw.shape(0, 3));
    let values = Type::new(draw.pick(&DTYPES), vec![Dim::constant(2)]);
    let axis = draw.axis(indices.rank() + 1);
    Case { attrs: attrs! { axis: axis, depth: draw.int(0, 5) }, types: vec![indices, values] }
}

fn nll_loss(draw: &mut Draw) -> Case {
    let x = float(draw, 2, 4);
    let mut target = x.shape.to_vec();
    let classes = target.remove(1);
    let target = Type::new(draw.pick(&[DType::I64, DType::I32]), target);
    let mut types = vec![x.clone(), target];
    if draw.flag() {
        types.push(Type::new(x.dtype, vec![classes]));
    }
    let ignore_index: Vec<i64> = if draw.flag() { vec![draw.int(-1, 2)] } else { Vec::new() };
    let reduction = draw.pick(&["none", "sum", "mean"]);
    Case { attrs: attrs! { ignore_index: ignore_index, reduction: reduction }, types }
}
