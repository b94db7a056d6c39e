//! Evaluation of a region's nodes at an index, by inlining: what a node needs is pulled from its
//! operands at the index its class maps to, down to the region's operands, which are loaded.

use fornax_ir::op::{MovementCase, OpClass, OperandMap, SourceKind};
use fornax_ir::plan::Structure;
use fornax_ir::{
    BinaryFn, DType, Dim, Guard, IndexExpr, NodeId, Scalar, ScalarExpr, Tensor, UnaryFn,
};

use super::CodegenError;
use super::emit::{Array, Emitter};
use super::index::{Index, Mask};
use crate::kernel::{KernelBuilder, Memory, ValueId};

impl Emitter<'_> {
    /// The value of a node at an index (one per axis of its result). It depends on no more dimensions
    /// of the tile than it must. Where `mask` does not hold, nothing is read and the value is arbitrary.
    pub fn pull(
        &mut self,
        b: &mut KernelBuilder,
        node: NodeId,
        index: &[Index],
        mask: &Mask,
    ) -> Result<ValueId, CodegenError> {
        let shape = &self.site.body.ty(node).shape;
        let index: Vec<Index> = index
            .iter()
            .zip(shape.iter())
            .map(|(index, size)| if size.is(1) { Index::default() } else { index.clone() })
            .collect();
        self.once_per_node(b, (node, &index, mask), |emitter, b| {
            emitter.evaluate(b, node, &index, mask)
        })
    }

    /// As [`Emitter::pull`], with `fill` where one of `guards` does not hold.
    pub fn pull_or(
        &mut self,
        b: &mut KernelBuilder,
        node: NodeId,
        index: &[Index],
        (mask, guards): (&Mask, &Mask),
        fill: Scalar,
    ) -> Result<ValueId, CodegenError> {
        let both = union(mask, guards);
        if let Some(operand) = self.site.operand_of(node) {
            let offset = self.space.linearize(index, &self.site.body.ty(node).shape);
            let kept = self.space.relevant(&both, &offset);
            if guards.is_subset(&kept) {
                let place = (node, index, &kept);
                return self.once_per_fill(b, place, fill, |emitter, b| {
                    let memory = emitter.array(b, Array::Operand(operand));
                    Ok(emitter.load(b, memory, &offset, &kept, fill))
                });
            }
        }
        let value = self.pull(b, node, index, &both)?;
        Ok(match self.mask(b, guards) {
            Some(holds) => self.select_or(b, holds, value, fill),
            None => value,
        })
    }

    fn evaluate(
        &mut self,
        b: &mut KernelBuilder,
        node: NodeId,
        index: &[Index],
        mask: &Mask,
    ) -> Result<ValueId, CodegenError> {
        let body = self.site.body;
        if let Some((at, value)) = self.bound(node) {
            let same = at.iter().zip(index).all(|(at, index)| at == index || is_zero(index));
            return match same {
                true => Ok(*value),
                false => Err(self.site.error(node, "its result is used at another position")),
            };
        }
        match body.node(node).op.class() {
            OpClass::Source(kind) => self.source(b, node, *kind, index, mask),
            OpClass::Pointwise(function) => {
                let expr = self.site.with_ctx(node, function);
                let args = body
                    .operands(node)
                    .into_iter()
                    .map(|operand| self.pull(b, operand, index, mask))
                    .collect::<Result<Vec<_>, _>>()?;
                if let Some(quotient) = self.quotient_of_rows(b, &expr, &args) {
                    return Ok(quotient);
                }
                let args = self.unified(b, &args);
                Ok(b.evaluate(&expr, &args))
            }
            OpClass::Movement(form) => {
                let form = self.site.with_ctx(node, form);
                self.movement(b, node, (&form.cases, form.fill), index, mask)
            }
            class => {
                let reason = format!("a {} cannot be computed inside this region", class.name());
                Err(self.site.error(node, reason))
            }
        }
    }

    /// The quotient of many values by one that they share, `f32`: the reciprocal is computed once, each
    /// product with it is corrected by its remainder, which rounds as a division does (Markstein,
    /// "Computation of elementary functions on the IBM RISC System/6000", 1990, theorem 7). Both are
    /// scaled by a power of two first where the reciprocal would overflow or lose bits; products that
    /// are no numbers, of infinities and zeros, need no correction.
    fn quotient_of_rows(
        &self,
        b: &mut KernelBuilder,
        expr: &ScalarExpr,
        args: &[ValueId],
    ) -> Option<ValueId> {
        let ScalarExpr::Binary(BinaryFn::Div, x, y) = expr else { return None };
        let (ScalarExpr::Arg(x), ScalarExpr::Arg(y)) = (x.as_ref(), y.as_ref()) else {
            return None;
        };
        let (x, y) = (args[*x], args[*y]);
        let registers = |value| b.ty(value).layout().map_or(1, |layout| layout.register_count());
        if b.ty(y).dtype() != DType::F32 || 2 * registers(y) > registers(x) || b.number(y).is_some()
        {
            return None;
        }
        let number = |b: &mut KernelBuilder, value: f64| b.constant(Scalar::new(DType::F32, value));
        let size = b.unary(UnaryFn::Abs, y);
        let (low, high) = (number(b, 2f64.powi(-100)), number(b, 2f64.powi(100)));
        let (up, down, one) = (number(b, 2f64.powi(24)), number(b, 2f64.powi(-24)), number(b, 1.0));
        let (is_small, is_large) = (b.lt(size, low), b.lt(high, size));
        let scale = b.select(is_large, down, one);
        let scale = b.select(is_small, up, scale);
        let y = b.mul(y, scale);
        let inverse = b.binary(BinaryFn::Div, one, y);
        let all = self.unified(b, &[x, y, scale, inverse]);
        let x = b.mul(all[0], all[2]);
        let product = b.mul(x, all[3]);
        let negated = b.unary(UnaryFn::Neg, product);
        let rest = b.fma(negated, all[1], x);
        let quotient = b.fma(rest, all[3], product);
        let is_nan = b.unary(UnaryFn::IsNan, quotient);
        Some(b.select(is_nan, product, quotient))
    }

    fn source(
        &mut self,
        b: &mut KernelBuilder,
        node: NodeId,
        kind: SourceKind,
        index: &[Index],
        mask: &Mask,
    ) -> Result<ValueId, CodegenError> {
        let body = self.site.body;
        let ty = body.ty(node);
        match kind {
            SourceKind::Input => {
                let operand = self.site.operand_of(node).expect("invariant: inputs are operands");
                let memory = self.array(b, Array::Operand(operand));
                let offset = self.space.linearize(index, &ty.shape);
                Ok(self.load(b, memory, &offset, mask, Scalar::new(ty.dtype, 0.0)))
            }
            SourceKind::Iota => {
                let position = self.index(b, &index[body.node(node).attrs.axis("axis")]);
                Ok(b.cast(ty.dtype, position))
            }
            SourceKind::Constant => match uniform(body.node(node).attrs.tensor("value")) {
                Some(number) => Ok(b.constant(number)),
                None => Err(self.site.error(node, "the constant has different elements")),
            },
            SourceKind::Weight => {
                Err(self.site.error(node, "a weight is no operand of the region"))
            }
        }
    }

    fn movement(
        &mut self,
        b: &mut KernelBuilder,
        node: NodeId,
        (cases, fill): (&[MovementCase], Option<Scalar>),
        index: &[Index],
        mask: &Mask,
    ) -> Result<ValueId, CodegenError> {
        let operands = self.site.body.operands(node);
        let mut chosen: Vec<(Mask, NodeId, Vec<Index>)> = Vec::new();
        for case in cases {
            let guards = self.guards(b, &case.guards, index, &operands, mask)?;
            let Some(guards) = guards else { continue };
            let operand = operands[case.operand];
            let reached = union(mask, &guards);
            let at = self.mapped(b, &case.index, index, &operands, &reached)?;
            let always = guards.is_empty();
            chosen.push((guards, operand, at));
            if always {
                break;
            }
        }
        // What is read for a case where an earlier one holds is not used, and may lie outside.
        let inside = |emitter: &Self, position: usize| {
            let (guards, operand, at) = &chosen[position];
            emitter.in_bounds(guards, *operand, at, position > 0)
        };
        let Some(last) = chosen.len().checked_sub(1) else {
            return match fill {
                Some(fill) => Ok(b.constant(fill)),
                None => Err(self.site.error(node, "no case of the movement can hold")),
            };
        };
        let guards = inside(self, last);
        let (_, operand, at) = &chosen[last];
        let mut value = match fill {
            // Where the last case fails too.
            Some(fill) => self.pull_or(b, *operand, at, (mask, &guards), fill)?,
            None => self.pull(b, *operand, at, &union(mask, &guards))?,
        };
        for position in (0..last).rev() {
            let (guards, operand, at) = &chosen[position];
            let holds = self.mask(b, guards).expect("invariant: later cases follow a condition");
            let reached = union(mask, &inside(self, position));
            let this = self.pull(b, *operand, at, &reached)?;
            let all = self.unified(b, &[holds, this, value]);
            value = b.select(all[0], all[1], all[2]);
        }
        Ok(value)
    }

    /// The guards as conditions; nothing when they can never hold.
    pub fn guards(
        &mut self,
        b: &mut KernelBuilder,
        guards: &[Guard],
        axes: &[Index],
        operands: &[NodeId],
        mask: &Mask,
    ) -> Result<Option<Mask>, CodegenError> {
        let mut conditions = Mask::new();
        for guard in guards {
            let (Guard::Within { value, .. } | Guard::Divisible { value, .. }) = guard;
            let value =
                self.mapped(b, std::slice::from_ref(value), axes, operands, mask)?.remove(0);
            if self.space.never(guard, &value) {
                return Ok(None);
            }
            conditions.extend(self.space.guard(guard, &value));
        }
        Ok(Some(conditions))
    }

    /// Index expressions over `axes`; elements that they refer to are loaded from `operands`.
    pub fn mapped(
        &mut self,
        b: &mut KernelBuilder,
        exprs: &[IndexExpr],
        axes: &[Index],
        operands: &[NodeId],
        mask: &Mask,
    ) -> Result<Vec<Index>, CodegenError> {
        let mut loaded = Vec::new();
        for expr in exprs {
            self.load_elements(b, expr, axes, operands, mask, &mut loaded)?;
        }
        Ok(exprs.iter().map(|expr| self.space.compose(expr, axes, &loaded)).collect())
    }

    fn load_elements(
        &mut self,
        b: &mut KernelBuilder,
        expr: &IndexExpr,
        axes: &[Index],
        operands: &[NodeId],
        mask: &Mask,
        loaded: &mut Vec<(IndexExpr, Index)>,
    ) -> Result<(), CodegenError> {
        match expr {
            IndexExpr::Axis(_) | IndexExpr::Size(_) => Ok(()),
            IndexExpr::Mul(x, _) | IndexExpr::FloorDiv(x, _) | IndexExpr::Mod(x, _) => {
                self.load_elements(b, x, axes, operands, mask, loaded)
            }
            IndexExpr::Add(x, y) | IndexExpr::Min(x, y) | IndexExpr::Max(x, y) => {
                self.load_elements(b, x, axes, operands, mask, loaded)?;
                self.load_elements(b, y, axes, operands, mask, loaded)
            }
            IndexExpr::Element { operand, index } => {
                if loaded.iter().any(|(element, _)| element == expr) {
                    return Ok(());
                }
                for inner in index {
                    self.load_elements(b, inner, axes, operands, mask, loaded)?;
                }
                let at: Vec<Index> =
                    index.iter().map(|expr| self.space.compose(expr, axes, loaded)).collect();
                let guards = self.in_bounds(&Mask::new(), operands[*operand], &at, false);
                let reached = union(mask, &guards);
                let value = self.pull(b, operands[*operand], &at, &reached)?;
                let index = self.loaded_index(b, value, &at);
                loaded.push((expr.clone(), index));
                Ok(())
            }
        }
    }

    /// Adds to the guards of an access what keeps it inside the operand where the index depends on
    /// numbers that a kernel loads (whatever those are, nothing outside is read), or everywhere.
    fn in_bounds(&self, guards: &Mask, operand: NodeId, at: &[Index], everywhere: bool) -> Mask {
        let mut guards = guards.clone();
        for (index, size) in at.iter().zip(self.site.body.ty(operand).shape.iter()) {
            if everywhere || self.space.is_unbounded(index) {
                guards.extend(self.space.within(index, &Dim::constant(0), size));
            }
        }
        guards
    }

    /// An element of a contraction's operand, in the accumulator's type; 0 where a guard of the map
    /// fails or one of `limits` does not hold.
    pub fn pull_factor(
        &mut self,
        b: &mut KernelBuilder,
        (node, map): (NodeId, &OperandMap),
        axes: &[Index],
        (mask, limits): (&Mask, &Mask),
        accumulator: DType,
    ) -> Result<ValueId, CodegenError> {
        let zero = Scalar::new(self.site.body.ty(node).dtype, 0.0);
        let reached = union(mask, limits);
        let Some(mut guards) = self.guards(b, &map.guards, axes, &[], &reached)? else {
            return Ok(b.constant(Scalar::new(accumulator, 0.0)));
        };
        guards.extend(limits.iter().cloned());
        let index = self.mapped(b, &map.index, axes, &[], &reached)?;
        let value = self.pull_or(b, node, &index, (mask, &guards), zero)?;
        Ok(b.cast(accumulator, value))
    }

    /// Where the elements of a contraction's operand lie that is moved by known indices alone (see
    /// [`moved_input`](fornax_ir::plan::adjacent::moved_input)): the array, the offset, and the mask outside of
    /// which they are 0. Nothing when they are 0 everywhere. `beyond`: whether some positions are none of the
    /// contraction's, of which nothing is read.
    pub fn locate_factor(
        &mut self,
        b: &mut KernelBuilder,
        (mut node, map): (NodeId, &OperandMap),
        axes: &[Index],
        mask: &Mask,
        beyond: bool,
    ) -> Result<Option<(Memory, Index, Mask)>, CodegenError> {
        let mut mask = mask.clone();
        let Some(guards) = self.guards(b, &map.guards, axes, &[], &mask)? else { return Ok(None) };
        mask.extend(guards);
        let mut index = self.mapped(b, &map.index, axes, &[], &mask)?;
        if beyond {
            mask = self.in_bounds(&mask, node, &index, true);
        }
        let body = self.site.body;
        loop {
            let shape = &body.ty(node).shape;
            for (index, size) in index.iter_mut().zip(shape.iter()) {
                if size.is(1) {
                    *index = Index::default();
                }
            }
            if let Some(operand) = self.site.operand_of(node) {
                let memory = self.array(b, Array::Operand(operand));
                return Ok(Some((memory, self.space.linearize(&index, shape), mask)));
            }
            let OpClass::Movement(form) = body.node(node).op.class() else {
                return Err(self.site.error(node, "is computed where it is copied"));
            };
            let form = self.site.with_ctx(node, form);
            let operands = body.operands(node);
            let case = &form.cases[0];
            let guards = self.guards(b, &case.guards, &index, &operands, &mask)?;
            let Some(guards) = guards else { return Ok(None) };
            mask.extend(guards);
            index = self.mapped(b, &case.index, &index, &operands, &mask)?;
            node = operands[case.operand];
        }
    }

    /// `sum + x * y`; rounded once for floats.
    pub fn add_product(
        &mut self,
        b: &mut KernelBuilder,
        x: ValueId,
        y: ValueId,
        sum: ValueId,
    ) -> ValueId {
        let all = self.unified(b, &[x, y, sum]);
        if b.ty(sum).dtype().is_float() {
            return b.fma(all[0], all[1], all[2]);
        }
        let product = b.binary(BinaryFn::Mul, all[0], all[1]);
        b.binary(BinaryFn::Add, product, all[2])
    }

    /// Computes and writes all results at an index, where a mask holds.
    pub fn store_outputs(
        &mut self,
        b: &mut KernelBuilder,
        index: &[Index],
        mask: &Mask,
    ) -> Result<(), CodegenError> {
        for output in 0..self.site.body.outputs().len() {
            self.store_output(b, output, index, mask)?;
        }
        Ok(())
    }

    /// Where an element of a result lies, which may be a part of a shared array.
    pub fn output_offset(&self, output: usize, index: &[Index]) -> Index {
        let Some(part) = self.site.region.parts.get(&output) else {
            return self.space.linearize(index, &self.site.output_type(output).shape);
        };
        let mut place = index.to_vec();
        let start = Index::size(part.start.clone());
        place[part.axis] = self.space.add(&place[part.axis], &start);
        self.space.linearize(&place, &part.whole)
    }

    /// Computes and writes a result at an index, where a mask holds.
    pub fn store_output(
        &mut self,
        b: &mut KernelBuilder,
        output: usize,
        index: &[Index],
        mask: &Mask,
    ) -> Result<(), CodegenError> {
        let shape = &self.site.output_type(output).shape;
        let offset = self.output_offset(output, index);
        let node = self.site.body.outputs()[output].value;
        let is_contraction = matches!(self.site.structure, Structure::Contraction(_));
        // Some positions of a contraction give an index outside of the result.
        let mut mask = mask.clone();
        if is_contraction {
            for (value, size) in index.iter().zip(shape.iter()) {
                mask.extend(self.space.within(value, &Dim::constant(0), size));
            }
        }
        let value = self.pull(b, node, index, &mask)?;
        let memory = self.array(b, Array::Output(output));
        self.store(b, memory, &offset, value, &mask);
        Ok(())
    }
}

/// The conditions of both masks.
pub(super) fn union(a: &Mask, b: &Mask) -> Mask {
    a.union(b).cloned().collect()
}

fn is_zero(index: &Index) -> bool {
    index.as_size().is_some_and(|size| size.is(0))
}

/// The number that all elements of a tensor are, if there is one.
fn uniform(tensor: &Tensor) -> Option<Scalar> {
    let size = tensor.dtype().size();
    let bytes = tensor.bytes();
    if tensor.is_empty() {
        return Some(Scalar::new(tensor.dtype(), 0.0));
    }
    if !bytes.chunks(size).all(|element| *element == bytes[..size]) {
        return None;
    }
    let first = Tensor::new(tensor.dtype(), [], bytes.slice(..size)).ok()?;
    Some(match first.to_i64() {
        Some(values) => Scalar::Int(tensor.dtype(), values[0]),
        None => Scalar::Float(tensor.dtype(), fornax_ir::Float(first.to_f64()[0])),
    })
}
