//! How attributes and operand types are drawn for each op.
//!
//! Most ops need no entry: by default all operands have one type, and attributes follow from their names
//! and kinds.

use fornax_ir::op::{Arity, OpDef};
use fornax_ir::{AttrKind, AttrValue, Attrs, DType, Dim, Float, Tensor, Type, attrs};

use crate::draw::{Case, DTYPES, Draw, FLOATS};

/// Draws a case of one op.
pub type Generate = fn(&mut Draw) -> Case;

/// The ops that the default does not fit.
const CASES: &[(&str, Generate)] = &[
    ("input", named),
    ("weight", named),
    ("constant", |_| Case {
        attrs: attrs! { value: Tensor::from_f32(&[2], &[0.5, -1.0]) },
        types: Vec::new(),
    }),
    ("iota", |draw| {
        let shape = draw.shape(1, 3);
        let (axis, dtype) = (draw.axis(shape.len()), draw.pick(&[DType::I64, DType::I32]));
        Case { attrs: attrs! { axis: axis, dtype: dtype, shape: shape }, types: Vec::new() }
    }),
    ("cast", |draw| Case {
        attrs: attrs! { to: draw.pick(&DTYPES) },
        types: vec![any_type(draw, 0, 3)],
    }),
    ("gelu", |draw| Case {
        attrs: attrs! { approximate: draw.pick(&["none", "tanh"]) },
        types: vec![float_type(draw, 0, 3)],
    }),
    ("where", |draw| {
        let ty = any_type(draw, 0, 3);
        let condition = Type::new(DType::Bool, ty.shape.clone());
        Case { attrs: Attrs::none(), types: vec![condition, ty.clone(), ty] }
    }),
    ("transpose", |draw| {
        let ty = any_type(draw, 0, 4);
        Case { attrs: attrs! { perm: draw.permutation(ty.rank()) }, types: vec![ty] }
    }),
    ("reshape", reshape),
    ("broadcast", broadcast),
    ("slice", slice),
    ("concat", concat),
    ("pad", pad),
    ("trilu", |draw| Case {
        attrs: attrs! { upper: draw.flag(), k: draw.int(-4, 4) },
        types: vec![any_type(draw, 2, 4)],
    }),
    ("gather", |draw| {
        let x = any_type(draw, 1, 3);
        let indices = index_type(draw, 0, 2);
        Case { attrs: attrs! { axis: draw.axis(x.rank()) }, types: vec![x, indices] }
    }),
    ("gather_elements", |draw| {
        let x = any_type(draw, 1, 3);
        let axis = draw.axis(x.rank());
        let mut shape = x.shape.to_vec();
        shape[axis as usize] = draw.size();
        let indices = Type::new(draw.pick(&[DType::I64, DType::I32]), shape);
        Case { attrs: attrs! { axis: axis }, types: vec![x, indices] }
    }),
    ("gather_nd", gather_nd),
];

/// Draws attributes and operand types for an op; inference may reject them.
pub fn draw_case(def: &OpDef, draw: &mut Draw) -> Case {
    let mut special = CASES.iter().chain(crate::model_cases::CASES);
    match special.find(|(name, _)| *name == def.name) {
        Some((_, generate)) => generate(draw),
        None => by_declaration(def, draw),
    }
}

/// Operands of one type, and attributes by name and kind.
fn by_declaration(def: &OpDef, draw: &mut Draw) -> Case {
    let ty = any_type(draw, 0, 3);
    let count = match def.arity {
        Arity::Exactly(count) => count,
        Arity::AtLeast(least) => least + draw.below(3),
    };
    let value = |&(name, kind): &(&'static str, AttrKind)| {
        let value = match (name, kind) {
            ("axis", AttrKind::Int) => AttrValue::Int(draw.int(0, 2)),
            ("axes", AttrKind::Ints) => AttrValue::Ints(draw.axes(ty.rank())),
            (_, AttrKind::Bool) => AttrValue::Bool(draw.flag()),
            (_, AttrKind::Float) => {
                AttrValue::Float(Float(draw.pick(&[-0.5, 0.01, 0.2, 1.0, 1.702])))
            }
            _ => panic!("{}: add a generator for the attribute `{name}`, {kind}", def.name),
        };
        (name, value)
    };
    Case { attrs: def.attrs.iter().map(value).collect(), types: vec![ty.clone(); count] }
}

/// A type with a rank between two.
pub fn any_type(draw: &mut Draw, low: usize, high: usize) -> Type {
    Type::new(draw.pick(&DTYPES), draw.shape(low, high))
}

/// A float type with a rank between two.
pub fn float_type(draw: &mut Draw, low: usize, high: usize) -> Type {
    Type::new(draw.pick(&FLOATS), draw.shape(low, high))
}

fn index_type(draw: &mut Draw, low: usize, high: usize) -> Type {
    Type::new(draw.pick(&[DType::I64, DType::I32]), draw.shape(low, high))
}

fn named(draw: &mut Draw) -> Case {
    let ty = any_type(draw, 0, 3);
    let attrs = attrs! { name: "x", dtype: ty.dtype, shape: ty.shape.to_vec() };
    Case { attrs, types: Vec::new() }
}

/// Splits and merges axes.
fn reshape(draw: &mut Draw) -> Case {
    let mut from = draw.shape(0, 3);
    let mut to = from.clone();
    for _ in 0..draw.below(3) {
        if draw.flag() && !from.is_empty() {
            // A factor more in both, at places of their own.
            let factor = draw.size();
            let (f, t) = (draw.below(from.len()), draw.below(to.len() + 1));
            from[f] = &from[f] * &factor;
            to.insert(t, factor);
        } else if to.len() >= 2 {
            let axis = draw.below(to.len() - 1);
            let removed = to.remove(axis);
            to[axis] = &to[axis] * &removed;
        } else {
            to.insert(draw.below(to.len() + 1), Dim::constant(1));
        }
    }
    if draw.flag() {
        std::mem::swap(&mut from, &mut to);
    }
    Case { attrs: attrs! { shape: to }, types: vec![Type::new(draw.pick(&DTYPES), from)] }
}

fn broadcast(draw: &mut Draw) -> Case {
    let to = draw.shape(0, 4);
    let leading = draw.below(to.len() + 1);
    let from: Vec<Dim> = to[leading..]
        .iter()
        .map(|dim| if draw.flag() { Dim::constant(1) } else { dim.clone() })
        .collect();
    Case { attrs: attrs! { shape: to }, types: vec![Type::new(draw.pick(&DTYPES), from)] }
}

fn slice(draw: &mut Draw) -> Case {
    let ty = any_type(draw, 0, 3);
    let (mut starts, mut sizes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for dim in ty.shape.iter() {
        let length = draw.value(dim);
        let step = draw.pick(&[1i64, 1, 2, -1, -2, 3]);
        let start = draw.int(0, (length - 1).max(0));
        let room = if step > 0 { length - start } else { start + 1 };
        let most = if length == 0 { 0 } else { (room + step.abs() - 1) / step.abs() };
        let size = draw.int(0, most);
        // A whole axis keeps its symbol.
        let is_whole = step == 1 && start == 0 && size == length;
        starts.push(Dim::constant(start));
        sizes.push(if is_whole { dim.clone() } else { Dim::constant(size) });
        steps.push(step);
    }
    Case { attrs: attrs! { starts: starts, sizes: sizes, steps: steps }, types: vec![ty] }
}

fn concat(draw: &mut Draw) -> Case {
    let first = any_type(draw, 1, 3);
    let axis = draw.axis(first.rank());
    let types = (0..draw.int(1, 3)).map(|_| {
        let mut shape = first.shape.to_vec();
        shape[axis as usize] = draw.shape(1, 1)[0].clone();
        Type::new(first.dtype, shape)
    });
    Case { types: types.collect(), attrs: attrs! { axis: axis } }
}

fn pad(draw: &mut Draw) -> Case {
    let ty = any_type(draw, 0, 3);
    let mut pads = |_| -> Vec<Dim> {
        ty.shape.iter().map(|_| draw.pick(&[0i64, 0, 1, 2, 5, -1]).into()).collect()
    };
    let (before, after) = (pads(()), pads(()));
    let value = if ty.dtype.is_float() { draw.pick(&[0.5, f64::NEG_INFINITY]) } else { 1.0 };
    let mode = draw.pick(&["constant", "edge", "reflect", "wrap"]);
    Case {
        attrs: attrs! { before: before, after: after, mode: mode, value: value },
        types: vec![ty],
    }
}

fn gather_nd(draw: &mut Draw) -> Case {
    let x = any_type(draw, 1, 4);
    let batch = draw.below(x.rank());
    let axes = draw.int(1, (x.rank() - batch) as i64);
    let mut shape = x.shape[..batch].to_vec();
    shape.extend(draw.shape(0, 2));
    shape.push(Dim::constant(axes));
    let indices = Type::new(draw.pick(&[DType::I64, DType::I32]), shape);
    Case { attrs: attrs! { batch_dims: batch as i64 }, types: vec![x, indices] }
}
