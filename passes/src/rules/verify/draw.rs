//! Random graphs whose output a pattern matches.

use fornax_ir::interp::scalar_tensor;
use fornax_ir::op::{Arity, OpClass, OpRef};
use fornax_ir::{
    AttrKind, AttrValue, Attrs, DType, Dim, Float, Graph, LocSet, NodeId, Shape, Type, attrs, infer,
};

use crate::egraph::{Pattern, Term};

/// How often attributes and operand types of one operator are drawn until they fit.
const ATTEMPTS: usize = 400;

/// Values of more elements are not drawn.
const MAX_ELEMENTS: i64 = 600;

/// A source of random numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What the leaves of a drawn graph may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// The element type of floats.
    pub float: DType,
    /// Constants are whole numbers, so that they mean the same in the prime field.
    pub whole: bool,
    /// Sizes are at least 2 and mostly differ.
    pub wide: bool,
}

/// A graph with the pattern's root as its only output.
pub(super) fn draw(pattern: &Pattern, style: Style, random: &mut Random) -> Option<Graph> {
    let mut draw =
        Draw { graph: Graph::new("left"), values: vec![None; pattern.values()], style, random };
    let ty = draw.root_type();
    let wanted = if draw.random.chance(50) { Some(&ty) } else { None };
    let root = draw.term(pattern.root(), wanted)?;
    draw.graph.output("y", root);
    draw.graph.remove_dead();
    Some(draw.graph)
}

struct Draw<'r> {
    graph: Graph,
    values: Vec<Option<NodeId>>,
    style: Style,
    random: &'r mut Random,
}

impl Draw<'_> {
    fn size(&mut self) -> i64 {
        if self.style.wide {
            2 + self.random.below(4) as i64
        } else {
            1 + self.random.below(4) as i64
        }
    }

    fn shape(&mut self, rank: usize) -> Shape {
        (0..rank).map(|_| Dim::constant(self.size())).collect()
    }

    fn root_type(&mut self) -> Type {
        let rank = self.random.below(5);
        let dtype = self.dtype();
        Type::new(dtype, self.shape(rank).to_vec())
    }

    fn dtype(&mut self) -> DType {
        if self.random.chance(80) { self.style.float } else { DType::I64 }
    }

    fn is_small(ty: &Type) -> bool {
        ty.shape.elements().as_const().is_some_and(|count| (1..=MAX_ELEMENTS).contains(&count))
    }

    /// A value that a term matches, of a type if one is wanted.
    fn term(&mut self, term: &Term, wanted: Option<&Type>) -> Option<NodeId> {
        match term {
            Term::Value(slot) => {
                let value = match self.values[*slot] {
                    Some(value) => value,
                    None => {
                        let ty = wanted.cloned().unwrap_or_else(|| self.root_type());
                        self.leaf(&ty)
                    }
                };
                self.values[*slot] = Some(value);
                wanted.is_none_or(|ty| ty == self.graph.ty(value)).then_some(value)
            }
            Term::Number(number) => self.number(wanted?, *number),
            Term::Apply { ops, operands, .. } => {
                let op = self.random.pick(ops);
                self.apply(op, operands.as_deref(), wanted)
            }
        }
    }

    fn apply(
        &mut self,
        op: OpRef,
        operands: Option<&[Term]>,
        wanted: Option<&Type>,
    ) -> Option<NodeId> {
        let count = match (operands, op.def().arity) {
            (Some(operands), _) => operands.len(),
            (None, Arity::Exactly(count)) => count,
            (None, Arity::AtLeast(least)) => least + self.random.below(2),
        };
        if !op.def().arity.takes(count) {
            return None;
        }
        for _ in 0..ATTEMPTS {
            let Some((attrs, types)) = self.proposal(op, count, wanted) else { continue };
            let Ok(ty) = infer(op, &attrs, &types) else { continue };
            let fits = wanted.is_none_or(|wanted| *wanted == ty);
            if !fits || !Self::is_small(&ty) || !types.iter().all(Self::is_small) {
                continue;
            }
            let bound = self.values.clone();
            let drawn: Option<Vec<NodeId>> = match operands {
                Some(terms) => self.operands(terms, &types),
                None => Some(types.iter().map(|ty| self.leaf(ty)).collect()),
            };
            match drawn {
                Some(drawn) => {
                    return self.graph.add(op.name(), attrs, &drawn, LocSet::none()).ok();
                }
                // Operators below are the harder part: they are not drawn again for each attempt.
                None if self.random.chance(20) => return None,
                None => self.values = bound,
            }
        }
        None
    }

    /// Operators first: what they fix, such as a shared value's type, holds for the plain values.
    fn operands(&mut self, terms: &[Term], types: &[Type]) -> Option<Vec<NodeId>> {
        let mut drawn = vec![None; terms.len()];
        for applied in [true, false] {
            for (at, term) in terms.iter().enumerate() {
                if matches!(term, Term::Apply { .. }) == applied {
                    drawn[at] = Some(self.term(term, Some(&types[at]))?);
                }
            }
        }
        drawn.into_iter().collect()
    }

    fn number(&mut self, ty: &Type, number: f64) -> Option<NodeId> {
        let scalar = self.graph.constant(scalar_tensor(ty.dtype, number));
        if ty.rank() == 0 {
            return Some(scalar);
        }
        let attrs = attrs! { shape: ty.shape.to_vec() };
        self.graph.add("broadcast", attrs, &[scalar], LocSet::none()).ok()
    }

    /// A value with nothing below it but what makes it special: a constant, repeated along some axes, in
    /// a known range.
    fn leaf(&mut self, ty: &Type) -> NodeId {
        let choice = self.random.below(100);
        let special = match choice {
            0..20 => {
                let numbers: &[f64] =
                    if self.style.whole { &[0.0, 1.0, 2.0, -3.0] } else { &[0.0, 0.5, 1.0, -1.5] };
                let number = self.random.pick(numbers);
                self.number(ty, number)
            }
            20..50 => self.repeated(ty),
            50..65 if ty.dtype.is_float() && !self.style.whole => {
                let below = self.plain(ty);
                let op = self.random.pick(&["relu", "sigmoid", "tanh", "abs"]);
                let ranged = self.graph.add(op, Attrs::none(), &[below], LocSet::none()).ok();
                match ranged {
                    Some(ranged) if self.random.chance(40) => {
                        self.graph.add("neg", Attrs::none(), &[ranged], LocSet::none()).ok()
                    }
                    ranged => ranged,
                }
            }
            _ => None,
        };
        special.unwrap_or_else(|| self.plain(ty))
    }

    fn plain(&mut self, ty: &Type) -> NodeId {
        let name = format!("v{}", self.graph.len());
        let made = match self.random.chance(50) {
            true => self.graph.input(&name, ty.clone()),
            false => self.graph.weight(&name, ty.clone(), None),
        };
        made.expect("invariant: names hold the graph's length")
    }

    fn repeated(&mut self, ty: &Type) -> Option<NodeId> {
        let keep_all_but = self.random.below(4);
        let keep = |draw: &mut Self, axis: usize| match keep_all_but {
            0 => draw.random.chance(50),
            1 => axis == 1,
            2 => axis + 1 == ty.rank(),
            _ => axis < 2,
        };
        let mut sizes = Vec::new();
        for (axis, size) in ty.shape.iter().enumerate() {
            sizes.push(if keep(self, axis) { size.clone() } else { Dim::constant(1) });
        }
        let one = self.plain(&Type::new(ty.dtype, sizes));
        let attrs = attrs! { shape: ty.shape.to_vec() };
        self.graph.add("broadcast", attrs, &[one], LocSet::none()).ok()
    }

    /// Attributes and operand types that an op may accept.
    fn proposal(
        &mut self,
        op: OpRef,
        count: usize,
        wanted: Option<&Type>,
    ) -> Option<(Attrs, Vec<Type>)> {
        let is_pointwise = matches!(op.class(), OpClass::Pointwise(_));
        let base = match wanted {
            Some(wanted) => wanted.clone(),
            None => self.root_type(),
        };
        if let Some(equation) = op.def().attrs.iter().find(|(name, _)| *name == "equation") {
            return self.equation(equation.0, &base, wanted.is_some());
        }
        if let (OpClass::Reduce(_), Some(wanted)) = (op.class(), wanted)
            && op.def().attrs.iter().any(|(name, _)| *name == "axes")
        {
            return Some(self.reduction(wanted));
        }
        if let Some(wanted) = wanted.filter(|ty| ty.rank() > 0) {
            let attrs = op.def().attrs;
            let is_concat =
                count == 2 && matches!((attrs, op.def().arity), ([("axis", _)], Arity::AtLeast(_)));
            let is_slice = attrs.iter().any(|(name, _)| *name == "steps");
            if (is_concat || is_slice) && self.random.chance(50) {
                return Some(if is_slice { self.part(wanted) } else { self.pieces(wanted) });
            }
        }
        let dtype = match base.dtype {
            DType::Bool => self.dtype(),
            dtype => dtype,
        };
        let mut types: Vec<Type> = Vec::new();
        for at in 0..count {
            let mut shape =
                if is_pointwise { base.shape.clone() } else { self.variation(&base.shape) };
            let is_pool = op.def().attrs.iter().any(|(name, _)| *name == "kernel");
            if is_pool && shape.rank() >= 3 && self.random.chance(40) {
                // Matrices are pooled as images of one channel, or in one batch.
                let mut sizes = shape.to_vec();
                sizes[self.random.below(2)] = Dim::constant(1);
                shape = Shape::from(sizes);
            }
            let is_condition = is_pointwise && count == 3 && at == 0 && op.def().attrs.is_empty();
            let dtype = match is_condition && self.random.chance(50) {
                true => DType::Bool,
                false => dtype,
            };
            types.push(Type::new(dtype, shape));
        }
        if count == 2 && matches!(op.class(), OpClass::Contraction(_)) {
            types[1].shape =
                self.counterpart(&types[0].shape, &base.shape, op.def().attrs.is_empty());
        }
        let rank = types.first().map_or(0, Type::rank);
        let mut attrs = Attrs::none();
        for &(name, kind) in op.def().attrs {
            // Windows mostly overlap when both are drawn apart.
            let side_by_side = attrs.get("kernel").filter(|_| name == "strides").cloned();
            let value = match side_by_side {
                Some(kernel) if self.random.chance(30) => kernel,
                _ => self.attr(op, name, kind, rank, &base)?,
            };
            attrs.insert(name, value);
        }
        Some((attrs, types))
    }

    /// Axes and operand of a reduction to a type.
    fn reduction(&mut self, wanted: &Type) -> (Attrs, Vec<Type>) {
        let mut sizes = wanted.shape.to_vec();
        let keepdims = self.random.chance(60);
        let mut axes: Vec<i64> = Vec::new();
        if keepdims {
            for (axis, size) in sizes.iter_mut().enumerate() {
                if size.is(1) && self.random.chance(80) {
                    *size = Dim::constant(1 + self.random.below(4) as i64);
                    axes.push(axis as i64);
                }
            }
        } else {
            for _ in 0..1 + self.random.below(2) {
                let at = self.random.below(sizes.len() + 1);
                sizes.insert(at, Dim::constant(1 + self.random.below(4) as i64));
                axes.iter_mut().filter(|axis| **axis >= at as i64).for_each(|axis| *axis += 1);
                axes.push(at as i64);
            }
            axes.sort_unstable();
        }
        (attrs! { axes: axes, keepdims: keepdims }, vec![Type::new(wanted.dtype, sizes)])
    }

    /// Two pieces of a type along an axis, often with one element in the first.
    fn pieces(&mut self, wanted: &Type) -> (Attrs, Vec<Type>) {
        let axis = self.random.below(wanted.rank());
        let length = wanted.shape[axis].as_const().unwrap_or_default();
        let first = if self.random.chance(60) { 1 } else { self.random.below(4) as i64 };
        let piece = |size: i64| {
            let mut sizes = wanted.shape.to_vec();
            sizes[axis] = Dim::constant(size.max(0));
            Type::new(wanted.dtype, sizes)
        };
        (attrs! { axis: axis as i64 }, vec![piece(first), piece(length - first)])
    }

    /// A slice to a type that reverses an axis, or leaves an end of it out.
    fn part(&mut self, wanted: &Type) -> (Attrs, Vec<Type>) {
        let axis = self.random.below(wanted.rank());
        let mut from = wanted.shape.to_vec();
        let mut starts = vec![Dim::constant(0); wanted.rank()];
        let mut steps = vec![1i64; wanted.rank()];
        match self.random.below(4) {
            0..2 => {
                starts[axis] = &from[axis] - &Dim::constant(1);
                steps[axis] = -1;
            }
            end => {
                from[axis] = &from[axis] + &Dim::constant(1);
                starts[axis] = Dim::constant(if end == 2 { 0 } else { 1 });
            }
        }
        let attrs = attrs! { starts: starts, sizes: wanted.shape.to_vec(), steps: steps };
        (attrs, vec![Type::new(wanted.dtype, from)])
    }

    /// A right operand that may go with a left one.
    fn counterpart(&mut self, left: &Shape, result: &Shape, is_matmul: bool) -> Shape {
        let rank = left.rank();
        let mut sizes: Vec<Dim> = result.to_vec();
        if is_matmul && rank >= 2 && sizes.len() >= 2 {
            let inner = sizes.len() - 2;
            sizes[inner] = left[rank - 1].clone();
            let drop = if self.random.chance(50) { sizes.len() - 2 } else { 0 };
            return Shape::from(sizes.split_off(drop));
        }
        let mut sizes: Vec<Dim> =
            (0..rank).map(|_| Dim::constant(1 + self.random.below(3) as i64)).collect();
        if rank >= 2 && result.rank() >= 2 {
            let [first, second] = match self.random.chance(50) {
                true => [result[1].clone(), left[1].clone()],
                false => [left[1].clone(), result[1].clone()],
            };
            (sizes[0], sizes[1]) = (first, second);
            if self.random.chance(15) {
                sizes[1] = Dim::constant(1);
            }
        }
        Shape::from(sizes)
    }

    /// A shape that has something to do with another one.
    fn variation(&mut self, shape: &Shape) -> Shape {
        let mut sizes = shape.to_vec();
        match self.random.below(10) {
            0 => {}
            1 => sizes.reverse(),
            2 if sizes.len() > 1 => {
                let (a, b) = (self.random.below(sizes.len()), self.random.below(sizes.len()));
                sizes.swap(a, b);
            }
            3 => {
                let at = self.random.below(sizes.len() + 1);
                let size = Dim::constant(self.size());
                sizes.insert(at, size);
            }
            4 => sizes.retain(|size| !size.is(1)),
            5 => {
                let at = self.random.below(sizes.len() + 1);
                sizes.insert(at, Dim::constant(1));
            }
            6..9 => {
                for size in &mut sizes {
                    if self.random.chance(40) {
                        *size = Dim::constant(1);
                    }
                }
            }
            _ => {
                let spatial = self.random.chance(60);
                for (axis, size) in sizes.iter_mut().enumerate() {
                    if self.random.chance(if spatial && axis >= 2 { 90 } else { 30 }) {
                        *size = Dim::constant(1 + self.random.below(7) as i64);
                    }
                }
            }
        }
        Shape::from(sizes)
    }

    /// An einsum whose result has the wanted rank, and operands of fitting shapes.
    fn equation(
        &mut self,
        name: &'static str,
        base: &Type,
        exact: bool,
    ) -> Option<(Attrs, Vec<Type>)> {
        let rank = if exact { base.rank() } else { base.rank().max(1) };
        let summed = self.random.below(3);
        let mut sides = [Vec::new(), Vec::new()];
        for letter in 0..rank + summed {
            match self.random.below(3) {
                _ if letter >= rank => {
                    sides[0].push(letter);
                    sides[1].push(letter);
                }
                0 => sides[0].push(letter),
                1 => sides[1].push(letter),
                _ => {
                    sides[0].push(letter);
                    sides[1].push(letter);
                }
            }
        }
        let mut sizes: Vec<Dim> = base.shape.to_vec();
        while sizes.len() < rank + summed {
            sizes.push(Dim::constant(self.size()));
        }
        for side in &mut sides {
            for at in 0..side.len() {
                let other = self.random.below(side.len());
                side.swap(at, other);
            }
        }
        let word = |letters: &[usize]| -> String {
            letters.iter().map(|&letter| char::from(b'a' + letter as u8)).collect()
        };
        let result: Vec<usize> = (0..rank).collect();
        let equation = format!("{},{}->{}", word(&sides[0]), word(&sides[1]), word(&result));
        let types = sides.map(|side| {
            let shape: Vec<Dim> = side.iter().map(|&letter| sizes[letter].clone()).collect();
            Type::new(base.dtype, shape)
        });
        let attrs = Attrs::from_iter([(name, AttrValue::from(equation.as_str()))]);
        Some((attrs, types.to_vec()))
    }

    fn attr(
        &mut self,
        op: OpRef,
        name: &str,
        kind: AttrKind,
        rank: usize,
        base: &Type,
    ) -> Option<AttrValue> {
        Some(match kind {
            AttrKind::Int => AttrValue::Int(self.random.pick(&[0, 1, 1, 2, 3])),
            AttrKind::Ints => AttrValue::Ints(self.ints(name, rank)),
            AttrKind::Dims => AttrValue::Dims(self.dims(name, rank, base)),
            AttrKind::Float => AttrValue::Float(Float(self.random.pick(&[0.5, 1.0, 2.0, 0.01]))),
            AttrKind::Bool => {
                AttrValue::Bool(self.random.chance(if name == "ceil_mode" { 20 } else { 50 }))
            }
            AttrKind::DType => AttrValue::DType(base.dtype),
            AttrKind::Text => {
                let words: Vec<&str> = op.def().doc.split('`').skip(1).step_by(2).collect();
                if words.is_empty() { return None } else { self.random.pick(&words).into() }
            }
            AttrKind::Tensor => return None,
        })
    }

    fn ints(&mut self, name: &str, rank: usize) -> Vec<i64> {
        let spatial = rank.saturating_sub(2);
        match name {
            "axes" if self.random.chance(40) => (2..rank as i64).collect(),
            "axes" => (0..rank as i64).filter(|_| self.random.chance(50)).collect(),
            "perm" => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                for at in 0..rank {
                    let other = self.random.below(rank);
                    perm.swap(at, other);
                }
                perm
            }
            "steps" => (0..rank).map(|_| self.random.pick(&[1, 1, 1, 2, -1])).collect(),
            _ if name.starts_with("pads") || name == "output_padding" => {
                let padded = self.random.chance(30);
                (0..spatial).map(|_| if padded { self.random.below(3) as i64 } else { 0 }).collect()
            }
            _ if self.random.chance(if name == "dilations" { 75 } else { 30 }) => vec![1; spatial],
            _ => (0..spatial).map(|_| 1 + self.random.below(3) as i64).collect(),
        }
    }

    fn dims(&mut self, name: &str, rank: usize, base: &Type) -> Vec<Dim> {
        match name {
            "starts" => (0..rank).map(|_| Dim::constant(self.random.below(3) as i64)).collect(),
            _ if self.random.chance(70) => base.shape.to_vec(),
            _ => self.variation(&base.shape).to_vec(),
        }
    }
}
