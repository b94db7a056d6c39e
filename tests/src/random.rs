//! Random typed graphs over the whole op table.
//!
//! A graph is a function of a list of numbers, from which every decision is taken in turn: the same
//! numbers give the same graph, and fewer or smaller ones a simpler graph, which is what shrinking
//! needs. Ops are tried with random operands and attributes until inference accepts them, so nothing
//! here knows an op by name.

use std::collections::BTreeMap;

use fornax_ir::interp::{Array, Value};
use fornax_ir::op::{Arity, OpClass, OpDef, OpRef, SourceKind, all, by_name};
use fornax_ir::{
    AttrKind, AttrValue, Attrs, DType, Dim, DimRange, Dims, Float, Graph, LocSet, NodeId,
    SourceNode, Tensor, Type, infer,
};

/// Values of more elements are not made, so that graphs can be evaluated.
const MAX_ELEMENTS: i64 = 2048;

/// How often an op is tried with other operands and attributes.
const ATTEMPTS: usize = 24;

/// Decisions, taken from a list of numbers; after its end always the first choice.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    rest: std::slice::Iter<'a, u32>,
    /// Spreads one number over the many decisions of an op's attempts.
    state: u64,
}

impl<'a> Choices<'a> {
    /// Decisions from these numbers.
    pub fn new(numbers: &'a [u32]) -> Choices<'a> {
        Choices { rest: numbers.iter(), state: 0 }
    }

    /// Starts the decisions that depend on the next number, if there is one.
    pub fn next_step(&mut self) -> bool {
        let next = self.rest.next();
        self.state = next.map_or(0, |&number| u64::from(number));
        next.is_some()
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        if self.state == 0 || count == 0 {
            return 0;
        }
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % count as u64) as usize
    }

    /// True in about so many cases of 100.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of several.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}

/// A random graph, one op for each number at most. It has inputs, weights and constants of all types,
/// two symbolic sizes, odd names, locations, and outputs.
pub fn graph(numbers: &[u32]) -> Graph {
    graph_of(all(), numbers)
}

/// As [`graph`], of some ops alone.
pub fn graph_of(ops: &[&'static OpDef], numbers: &[u32]) -> Graph {
    let mut choices = Choices::new(numbers);
    choices.next_step();
    let mut graph = Graph::new(*choices.pick(&["f", "odd name", "g_1"]));
    graph.dims.insert("N".into(), DimRange { min: 1, max: 4, divisor: 1 });
    graph.dims.insert("M".into(), DimRange { min: 2, max: 8, divisor: 2 });
    let mut builder = Builder { graph, values: Vec::new(), choices };
    let ty = builder.random_type();
    builder.fresh(ty);
    while builder.choices.next_step() {
        builder.step(ops);
    }
    builder.finish()
}

/// A random value of a type, with small numbers that computations keep small.
pub fn value(ty: &Type, dims: &Dims, choices: &mut Choices<'_>) -> Value<f64> {
    let sizes: Vec<usize> = ty
        .shape
        .iter()
        .map(|dim| dim.eval(dims).ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(0))
        .collect();
    let count: usize = sizes.iter().product();
    if ty.dtype.is_float() {
        let numbers = [0.0, 1.0, -1.0, 0.5, -2.0, 0.25, 3.0];
        let data = (0..count).map(|_| *choices.pick(&numbers)).collect();
        return Value::Float(Array::new(sizes, data));
    }
    let most = if ty.dtype == DType::Bool { 2 } else { 4 };
    let data = (0..count).map(|_| choices.below(most) as i64).collect();
    Value::Int(Array::new(sizes, data))
}

/// Values for the symbolic sizes of [`graph`].
pub fn dims(choices: &mut Choices<'_>) -> Dims {
    let n = 1 + choices.below(4) as i64;
    let m = 2 + 2 * choices.below(4) as i64;
    Dims::from([("N".into(), n), ("M".into(), m)])
}

struct Builder<'a> {
    graph: Graph,
    values: Vec<NodeId>,
    choices: Choices<'a>,
}

/// An operand of an op that is tried.
#[derive(Debug, Clone)]
enum Candidate {
    Value(NodeId),
    Fresh(Type),
}

impl Builder<'_> {
    /// Tries to add one op.
    fn step(&mut self, ops: &[&'static OpDef]) {
        let op = by_name(self.choices.pick(ops).name).expect("invariant: ops have their names");
        match op.class() {
            OpClass::Source(SourceKind::Input | SourceKind::Weight) => {
                let ty = self.random_type();
                self.fresh(ty);
            }
            _ => self.try_op(op),
        }
    }

    fn try_op(&mut self, op: OpRef) {
        for _ in 0..ATTEMPTS {
            let candidates = self.candidates(op);
            let types: Vec<Type> =
                candidates.iter().map(|candidate| self.type_of(candidate)).collect();
            let attrs = self.attrs(op, &types);
            let Ok(ty) = infer(op, &attrs, &types) else { continue };
            if !self.is_small(&ty) || !is_decided(&attrs, &types) {
                continue;
            }
            let operands: Vec<NodeId> = candidates
                .into_iter()
                .map(|candidate| match candidate {
                    Candidate::Value(id) => id,
                    Candidate::Fresh(ty) => self.fresh(ty),
                })
                .collect();
            let loc = self.loc();
            let id = self.graph.add(op.name(), attrs, &operands, loc);
            self.values.push(id.expect("invariant: inference has accepted the op"));
            return;
        }
    }

    fn candidates(&mut self, op: OpRef) -> Vec<Candidate> {
        let count = match op.def().arity {
            Arity::Exactly(count) => count,
            Arity::AtLeast(least) => least + self.choices.below(3),
        };
        if let Some(types) = self.documented_types(op, count) {
            return types.into_iter().map(Candidate::Fresh).collect();
        }
        let mut candidates: Vec<Candidate> = Vec::new();
        for _ in 0..count {
            let models: Vec<Type> = [candidates.first(), candidates.last()]
                .into_iter()
                .flatten()
                .map(|candidate| self.type_of(candidate))
                .collect();
            let candidate = if models.is_empty() || self.choices.chance(5) {
                match self.choices.chance(30) {
                    true => Candidate::Fresh(self.random_type()),
                    false => Candidate::Value(*self.choices.pick(&self.values)),
                }
            } else {
                let model = self.choices.pick(&models).clone();
                match self.choices.chance(50) {
                    true => self.of_type(model),
                    false => Candidate::Fresh(self.variation(model)),
                }
            };
            candidates.push(candidate);
        }
        candidates
    }

    /// Types of operands whose shapes the documentation gives as code, as in `g: [T, B, D * 4 * H]`:
    /// sizes that are products of others would never be met by chance.
    fn documented_types(&mut self, op: OpRef, count: usize) -> Option<Vec<Type>> {
        let words = op.def().doc.split('`').skip(1).step_by(2);
        let shapes: Vec<&str> = words
            .filter_map(|word| {
                word.split_once(": [").and_then(|(_, sizes)| sizes.strip_suffix(']'))
            })
            .collect();
        let has_products = shapes.iter().any(|sizes| sizes.contains(" * "));
        if shapes.len() < count || !has_products {
            return None;
        }
        let mut letters: BTreeMap<&str, i64> = BTreeMap::new();
        let dtype = *self.choices.pick(&[DType::F32, DType::F64]);
        let mut factor = |factor: &'static str| {
            let small = 1 + self.choices.below(2) as i64;
            factor.parse().unwrap_or_else(|_| *letters.entry(factor).or_insert(small))
        };
        let mut size =
            |size: &'static str| Dim::constant(size.split(" * ").map(&mut factor).product());
        let shapes = shapes[..count].iter();
        Some(
            shapes
                .map(|sizes| Type::new(dtype, sizes.split(", ").map(&mut size).collect::<Vec<_>>()))
                .collect(),
        )
    }

    fn type_of(&self, candidate: &Candidate) -> Type {
        match candidate {
            Candidate::Value(id) => self.graph.ty(*id).clone(),
            Candidate::Fresh(ty) => ty.clone(),
        }
    }

    /// An existing value of a type, or a new one.
    fn of_type(&mut self, ty: Type) -> Candidate {
        let fitting: Vec<NodeId> =
            self.values.iter().copied().filter(|&id| *self.graph.ty(id) == ty).collect();
        if fitting.is_empty() || self.choices.chance(20) {
            return Candidate::Fresh(ty);
        }
        Candidate::Value(*self.choices.pick(&fitting))
    }

    /// A type that differs a little: another dtype, or some sizes replaced, dropped or exchanged.
    fn variation(&mut self, ty: Type) -> Type {
        const DTYPES: &[DType] =
            &[DType::F32, DType::I64, DType::I64, DType::Bool, DType::I32, DType::I8, DType::F16];
        let dtype = if self.choices.chance(30) { *self.choices.pick(DTYPES) } else { ty.dtype };
        let mut dims = ty.shape.to_vec();
        match self.choices.below(5) {
            0 => dims.reverse(),
            1 => dims.clear(),
            2 if !dims.is_empty() => {
                dims.remove(self.choices.below(dims.len()));
            }
            3 if dims.len() > 1 => dims = vec![dims[self.choices.below(dims.len())].clone()],
            _ => {
                for dim in &mut dims {
                    if self.choices.chance(40) {
                        *dim = Dim::from(1 + self.choices.below(3));
                    }
                }
            }
        }
        Type::new(dtype, dims)
    }

    fn random_type(&mut self) -> Type {
        let dtype = match self.choices.below(10) {
            0..5 => DType::F32,
            5 => DType::I64,
            6 => DType::Bool,
            7 => DType::F16,
            _ => *self.choices.pick(&DType::ALL),
        };
        let rank = self.choices.below(5);
        Type::new(dtype, self.random_dims(rank))
    }

    fn random_dims(&mut self, rank: usize) -> Vec<Dim> {
        let dim = |choices: &mut Choices<'_>| match choices.below(12) {
            10 => Dim::symbol("N"),
            11 => Dim::symbol("M"),
            other => Dim::from(1 + other % 4),
        };
        (0..rank).map(|_| dim(&mut self.choices)).collect()
    }

    fn is_small(&self, ty: &Type) -> bool {
        ty.shape.iter().all(|dim| dim.bounds(&self.graph.dims).0 >= 0)
            && ty.shape.elements().bounds(&self.graph.dims).1 <= MAX_ELEMENTS
    }

    /// A new input, weight or constant.
    fn fresh(&mut self, ty: Type) -> NodeId {
        let number = self.graph.len();
        let sizes = ty.shape.as_const();
        let id = match (self.choices.below(4), sizes) {
            (2, Some(_)) => {
                let name = format!("{}{number}", self.choices.pick(&["w", "fc.weight:", "\"\n"]));
                self.graph.weight(&name, ty, None)
            }
            (3, Some(sizes)) => Ok(self.constant(ty.dtype, &sizes)),
            _ => {
                let name = format!("{}{number}", self.choices.pick(&["x", "in/", "", "%ü"]));
                self.graph.input(&name, ty)
            }
        };
        let id = id.expect("invariant: names hold the node's number");
        self.values.push(id);
        id
    }

    fn constant(&mut self, dtype: DType, sizes: &[usize]) -> NodeId {
        let value = self.tensor(dtype, sizes);
        self.graph.constant(value)
    }

    /// A tensor of any bits that are values of the type.
    fn tensor(&mut self, dtype: DType, sizes: &[usize]) -> Tensor {
        let size = dtype.size();
        let is_splat = self.choices.chance(50);
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..sizes.iter().product() {
            let start = bytes.len();
            if is_splat && start > 0 {
                bytes.extend_from_within(..size);
            } else {
                bytes.extend((0..size).map(|_| self.choices.below(256) as u8));
                if dtype == DType::Bool {
                    bytes[start] &= 1;
                }
            }
        }
        Tensor::new(dtype, sizes, bytes).expect("invariant: one value per element")
    }

    fn attrs(&mut self, op: OpRef, types: &[Type]) -> Attrs {
        let length = self.choices.below(4);
        let attrs = op.def().attrs.iter();
        attrs.map(|&(name, kind)| (name, self.attr(op, name, kind, types, length))).collect()
    }

    /// Lists of one op mostly have one length.
    fn attr(
        &mut self,
        op: OpRef,
        name: &str,
        kind: AttrKind,
        types: &[Type],
        length: usize,
    ) -> AttrValue {
        match kind {
            AttrKind::Int => AttrValue::Int(*self.choices.pick(&[0, 1, 2, -1, 3, 4])),
            AttrKind::Ints => AttrValue::Ints(self.ints(length)),
            AttrKind::Dims => AttrValue::Dims(self.dims(types, length)),
            AttrKind::Float => {
                let values = [0.0, 1.0, -0.0, 0.5, 1e-5, 2.0, -3.25, f64::INFINITY, f64::NAN];
                AttrValue::Float(Float(*self.choices.pick(&values)))
            }
            AttrKind::Bool => AttrValue::Bool(self.choices.chance(50)),
            AttrKind::Text => AttrValue::Text(self.text(op, name).into()),
            AttrKind::DType => AttrValue::DType(*self.choices.pick(&DType::ALL)),
            AttrKind::Tensor => {
                let dtype = *self.choices.pick(&[DType::F32, DType::I64, DType::F64]);
                AttrValue::Tensor(self.tensor(dtype, &[length]))
            }
        }
    }

    /// A text that may be meant for an attribute.
    fn text(&mut self, op: OpRef, attr: &str) -> String {
        match attr {
            "activations" => {
                let count = 1 + self.choices.below(3);
                let names = (0..count).map(|_| *self.choices.pick(&["tanh", "sigmoid", "relu"]));
                names.collect::<Vec<_>>().join(",")
            }
            "direction" => {
                (*self.choices.pick(&["forward", "reverse", "bidirectional"])).to_owned()
            }
            _ => self.word(op, attr).to_owned(),
        }
    }

    /// A word that may be meant for an attribute: the op's documentation has them as code, mostly
    /// behind the attribute's name.
    fn word(&mut self, op: OpRef, attr: &str) -> &'static str {
        let words: Vec<&'static str> = op.def().doc.split('`').skip(1).step_by(2).collect();
        let mentions: Vec<usize> = (0..words.len()).filter(|&at| words[at] == attr).collect();
        let near = match mentions.is_empty() || self.choices.chance(25) {
            true => words.as_slice(),
            false => {
                let after = self.choices.pick(&mentions) + 1;
                &words[after..words.len().min(after + 6)]
            }
        };
        if near.is_empty() { "" } else { self.choices.pick::<&'static str>(near) }
    }

    fn ints(&mut self, length: usize) -> Vec<i64> {
        let length = if self.choices.chance(15) { self.choices.below(5) } else { length };
        let ascending = 0..length as i64;
        match self.choices.below(6) {
            0 => vec![1; length],
            1 => vec![0; length],
            2 => ascending.collect(),
            3 => ascending.rev().collect(),
            4 => ascending.map(|axis| axis + 1).collect(),
            _ => ascending.map(|_| self.choices.below(4) as i64).collect(),
        }
    }

    fn dims(&mut self, types: &[Type], length: usize) -> Vec<Dim> {
        let shapes: Vec<&Type> = types.iter().collect();
        match (self.choices.below(6), shapes.as_slice()) {
            (0, [_, ..]) => self.choices.pick(&shapes).shape.to_vec(),
            (1, [ty, ..]) => vec![ty.shape.elements()],
            (2, [ty, ..]) => [ty.shape.to_vec(), vec![Dim::constant(1)]].concat(),
            (3, [ty, ..]) => [self.random_dims(1), ty.shape.to_vec()].concat(),
            (4, [ty, ..]) => vec![Dim::from(self.choices.below(2)); ty.rank()],
            _ => self.random_dims(length),
        }
    }

    fn loc(&mut self) -> LocSet {
        let mut loc = LocSet::none();
        for name in ["fc/MatMul", "b\n\"", "zz"] {
            if self.choices.chance(30) {
                let node = SourceNode {
                    name: name.into(),
                    op_type: "Op".into(),
                    index: Some(self.graph.len() as u32),
                    opset: None,
                };
                loc.union(&self.graph.sources.add(node).into());
            }
        }
        loc
    }

    fn finish(mut self) -> Graph {
        let unused: Vec<NodeId> =
            self.graph.nodes().filter(|&id| self.graph.users(id).is_empty()).collect();
        for (number, id) in unused.into_iter().enumerate() {
            let name = if number % 5 == 3 { format!("odd {number}") } else { format!("y{number}") };
            self.graph.output(name, id);
        }
        self.graph
    }
}

/// Whether inference has decided that a slice lies in its operand: where symbols keep it from that, whoever
/// builds the node must see to it.
fn is_decided(attrs: &Attrs, types: &[Type]) -> bool {
    if attrs.get("starts").is_none() {
        return true;
    }
    let (starts, sizes, steps) = (attrs.dims("starts"), attrs.dims("sizes"), attrs.ints("steps"));
    (0..starts.len()).all(|axis| {
        let (start, size, operand) = (&starts[axis], &sizes[axis], &types[0].shape[axis]);
        let is_whole = start.as_const() == Some(0) && size == operand && steps[axis] == 1;
        is_whole || [start, size, operand].iter().all(|dim| dim.as_const().is_some())
    })
}
