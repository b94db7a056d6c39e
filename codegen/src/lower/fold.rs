//! Reductions, windows and contractions seen as one thing: a fold of lifted elements for each element
//! of the result.

use fornax_ir::op::{
    AxisRole, ContractionForm, OpClass, OperandMap, ReduceForm, Reducer, WindowCount, WindowForm,
};
use fornax_ir::{BinaryFn, DType, Dim, IndexExpr, NodeId, Scalar, ScalarExpr};

use super::CodegenError;
use super::adjacent::{is_adjacent, mapped_offset};
use super::emit::Emitter;
use super::index::{Index, IndexSpace, Mask, Var};
use super::pull::union;
use super::site::{Site, functions, uses};
use crate::kernel::{KernelBuilder, ValueId};

/// Results along the last axis from which on threads that take adjacent ones read lines, mostly.
const LEAST_ADJACENT: i64 = 8;

/// What an anchor folds.
#[derive(Debug)]
pub(super) struct Folding {
    /// The anchor.
    pub node: NodeId,
    /// Sizes that the result's elements are counted by, row-major.
    pub outer: Vec<Dim>,
    /// Sizes that the folded elements are counted by, row-major.
    pub inner: Vec<Dim>,
    /// How accumulators start and are put together. A count of elements, if one is kept, is the last.
    init: Vec<Scalar>,
    combine: Vec<ScalarExpr>,
    finish: ScalarExpr,
    elements: Elements,
    count: Count,
    /// Whether indices of the result may lie beyond its sizes: what is read for them is held within the
    /// operands, and the fold's result is arbitrary.
    overhangs: bool,
}

/// Where the folded elements come from.
#[derive(Debug)]
enum Elements {
    /// An operand at an index over the outer and then the inner axes.
    Operand { operand: NodeId, index: Vec<IndexExpr>, lift: Vec<ScalarExpr>, position: IndexExpr },
    /// Products of two operands. The maps are over the contraction's own axes: `axes` says which
    /// outer or inner one each is.
    Products { operands: [NodeId; 2], maps: Box<[OperandMap; 2]>, axes: Vec<usize> },
}

/// What `finish` gets as the number of elements.
#[derive(Debug)]
enum Count {
    /// It does not ask.
    Unused,
    /// A number that is known.
    Known(Dim),
    /// Counted: those with an index within bounds, per axis of the operand.
    Within(Vec<(Dim, Dim)>),
}

impl Folding {
    /// What a reduce, window or contraction node folds.
    pub fn new(site: &Site<'_>, node: NodeId) -> Result<Folding, CodegenError> {
        match site.body.node(node).op.class() {
            OpClass::Reduce(form) => Ok(Folding::reduce(site, node, site.with_ctx(node, form))),
            OpClass::Window(form) => Ok(Folding::window(site, node, site.with_ctx(node, form))),
            OpClass::Contraction(form) => {
                Ok(Folding::contraction(site, node, site.with_ctx(node, form)))
            }
            class => Err(site.error(node, format!("a {} is no fold", class.name()))),
        }
    }

    fn reduce(site: &Site<'_>, node: NodeId, form: ReduceForm) -> Folding {
        let operand = site.body.operands(node)[0];
        let shape = &site.body.ty(operand).shape;
        let outer = site.body.ty(node).shape.to_vec();
        let (mut kept, mut folded) = (0, outer.len());
        let mut index = Vec::new();
        for axis in 0..shape.len() {
            if form.axes.contains(&axis) {
                index.push(IndexExpr::axis(folded));
                folded += 1;
                kept += usize::from(form.keepdims);
            } else {
                index.push(IndexExpr::axis(kept));
                kept += 1;
            }
        }
        let inner: Vec<Dim> = form.axes.iter().map(|&axis| shape[axis].clone()).collect();
        let count = Count::Known(inner.iter().product());
        let position = IndexExpr::axis(outer.len());
        Folding::of_operand(node, operand, (outer, inner), (index, position), form.reducer, count)
    }

    fn window(site: &Site<'_>, node: NodeId, form: WindowForm) -> Folding {
        let operand = site.body.operands(node)[0];
        let outer = site.body.ty(node).shape.to_vec();
        let bounds = match form.count {
            WindowCount::Within(bounds) => bounds,
            WindowCount::Inside => {
                let sizes = site.body.ty(operand).shape.iter();
                sizes.map(|size| (Dim::constant(0), size.clone())).collect()
            }
        };
        let count = match always_within(site, (&outer, &form.window), &form.index, &bounds) {
            true => Count::Known(form.window.iter().product()),
            false => Count::Within(bounds),
        };
        let maps = (form.index, form.position);
        Folding::of_operand(node, operand, (outer, form.window), maps, form.reducer, count)
    }

    fn of_operand(
        node: NodeId,
        operand: NodeId,
        (outer, inner): (Vec<Dim>, Vec<Dim>),
        (index, position): (Vec<IndexExpr>, IndexExpr),
        reducer: Reducer,
        count: Count,
    ) -> Folding {
        let Reducer { mut init, lift, mut combine, finish } = reducer;
        let count = if uses(&finish, init.len()) { count } else { Count::Unused };
        if let Count::Within(_) = count {
            (init, combine) = with_counter(init, &combine);
        }
        let elements = Elements::Operand { operand, index, lift, position };
        Folding { node, outer, inner, init, combine, finish, elements, count, overhangs: false }
    }

    fn contraction(site: &Site<'_>, node: NodeId, form: ContractionForm) -> Folding {
        let operands = site.body.operands(node);
        let (order, inner) = axis_order(site, node, &form);
        let outer = order.iter().map(|&axis| form.axes[axis].0.clone()).collect();
        let mut axes = vec![0; form.axes.len()];
        for (position, &axis) in order.iter().chain(&inner).enumerate() {
            axes[axis] = position;
        }
        let inner = inner.iter().map(|&axis| form.axes[axis].0.clone()).collect();
        let dtype = site.body.ty(node).dtype;
        let [sum, addend] = [0, 1].map(ScalarExpr::arg);
        let finish = if form.accumulator == dtype { sum.clone() } else { sum.clone().cast(dtype) };
        Folding {
            node,
            outer,
            inner,
            init: vec![Scalar::new(form.accumulator, 0.0)],
            combine: vec![sum + addend],
            finish,
            elements: Elements::Products {
                operands: [operands[0], operands[1]],
                maps: Box::new([form.lhs, form.rhs]),
                axes,
            },
            count: Count::Unused,
            overhangs: false,
        }
    }

    /// The same fold for indices that may lie beyond the result's sizes.
    pub fn overhanging(self) -> Folding {
        Folding { overhangs: true, ..self }
    }

    /// The index in the result of an outer position.
    pub fn result_index(
        &self,
        site: &Site<'_>,
        space: &IndexSpace<'_>,
        outer: &[Index],
    ) -> Vec<Index> {
        match &self.elements {
            Elements::Operand { .. } => outer.to_vec(),
            Elements::Products { axes, .. } => {
                let OpClass::Contraction(form) = site.body.node(self.node).op.class() else {
                    unreachable!("invariant: products are a contraction's")
                };
                let form = site.with_ctx(self.node, form);
                let own: Vec<Index> =
                    axes.iter().map(|&at| outer.get(at).cloned().unwrap_or_default()).collect();
                form.out.iter().map(|expr| space.compose(expr, &own, &[])).collect()
            }
        }
    }

    /// Whether adjacent results read adjacent elements, and the elements of one fold are not adjacent. Of a
    /// contraction's operands, one that adjacent results share does not count.
    pub fn has_adjacent_results(&self, site: &Site<'_>) -> bool {
        let mut space = IndexSpace::new(site.dims);
        let inner = space.add_var(&self.inner.iter().product());
        let folded = space.delinearize(&Index::var(inner), &self.inner);
        let (outer, mut axes, offsets): (Var, Vec<Index>, Vec<Index>);
        match &self.elements {
            Elements::Operand { operand, index, .. } => {
                outer = space.add_var(&self.outer.iter().product());
                axes = space.delinearize(&Index::var(outer), &self.outer);
                axes.extend(folded);
                let offset = mapped_offset(site.body, &space, *operand, index, &axes);
                offsets = offset.into_iter().collect();
            }
            Elements::Products { operands, maps, axes: order } => {
                let Some(last) = self.outer.iter().rposition(|size| !size.is(1)) else {
                    return false;
                };
                if self.outer[last].bounds(site.dims).0 < LEAST_ADJACENT {
                    return false;
                }
                axes = self.outer.iter().map(|size| Index::var(space.add_var(size))).collect();
                outer = space.add_var(&self.outer[last]);
                axes[last] = Index::var(outer);
                axes.extend(folded);
                let own: Vec<Index> = order.iter().map(|&at| axes[at].clone()).collect();
                let offset = |(&operand, map): (&NodeId, &OperandMap)| {
                    mapped_offset(site.body, &space, operand, &map.index, &own)
                };
                offsets = operands.iter().zip(maps.iter()).filter_map(offset).collect();
            }
        }
        // An operand that all results share, or that the fold does not run along, is small.
        let involved =
            |offset: &&Index| space.depends(offset, outer) && space.depends(offset, inner);
        let mut involved = offsets.iter().filter(involved).peekable();
        involved.peek().is_some()
            && involved.all(|offset| is_adjacent(offset, outer) && !is_adjacent(offset, inner))
    }

    /// The accumulators' types.
    pub fn accumulators(&self) -> impl Iterator<Item = DType> {
        self.init.iter().map(|number| number.dtype())
    }

    /// The accumulators' neutral elements.
    pub fn neutral(&self) -> impl Iterator<Item = Scalar> {
        self.init.iter().copied()
    }

    /// The accumulators at the start, in every element of the tile.
    pub fn initial(&self, emitter: &Emitter<'_>, b: &mut KernelBuilder) -> Vec<ValueId> {
        self.init.iter().map(|&number| emitter.full(b, number)).collect()
    }

    /// Folds one element into the accumulators. Where `mask` does not hold, the result is arbitrary;
    /// where `limits` does not hold, no element is folded.
    pub fn step(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        (outer, inner): (&[Index], &[Index]),
        (mask, limits): (&Mask, &Mask),
        sums: &[ValueId],
    ) -> Result<Vec<ValueId>, CodegenError> {
        let axes: Vec<Index> = outer.iter().chain(inner).cloned().collect();
        let lifted = match &self.elements {
            Elements::Products { operands, maps, axes: order } => {
                let own: Vec<Index> = order.iter().map(|&at| axes[at].clone()).collect();
                let dtype = self.init[0].dtype();
                let mut factors = Vec::with_capacity(2);
                for (&operand, map) in operands.iter().zip(maps.iter()) {
                    let mut limits = limits.clone();
                    if self.overhangs {
                        let at = emitter.mapped(b, &map.index, &own, &[], mask)?;
                        let shape = &emitter.site.body.ty(operand).shape;
                        limits.extend(inside(&emitter.space, &at, shape));
                    }
                    let masks = (mask, &limits);
                    factors.push(emitter.pull_factor(b, (operand, map), &own, masks, dtype)?);
                }
                let [x, y] = factors[..] else { unreachable!("invariant: two factors") };
                let sum = emitter.add_product(b, x, y, sums[0]);
                return Ok(vec![emitter.spread(b, sum)]);
            }
            Elements::Operand { operand, index, lift, position } => {
                let at = emitter.mapped(b, index, &axes, &[], mask)?;
                self.lift(emitter, b, (*operand, &at), (lift, position, &axes), (mask, limits))?
            }
        };
        Ok(self.combine(emitter, b, sums, &lifted))
    }

    fn lift(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        (operand, at): (NodeId, &[Index]),
        (lift, position, axes): (&[ScalarExpr], &IndexExpr, &[Index]),
        (mask, limits): (&Mask, &Mask),
    ) -> Result<Vec<ValueId>, CodegenError> {
        let ty = emitter.site.body.ty(operand);
        let guards = union(&inside(&emitter.space, at, &ty.shape), limits);
        let reached = union(mask, &guards);
        if let ([ScalarExpr::Arg(0)], Count::Unused | Count::Known(_)) = (lift, &self.count)
            && self.init[0].dtype() == ty.dtype
        {
            // What is left out is neutral: no choice is needed where it is read as that.
            return Ok(vec![emitter.pull_or(b, operand, at, (mask, &guards), self.init[0])?]);
        }
        let mut args = vec![emitter.pull(b, operand, at, &reached)?];
        if lift.iter().any(|expr| uses(expr, 1)) {
            let position = emitter.space.compose(position, axes, &[]);
            let position = emitter.index(b, &position);
            args.push(b.cast(DType::I64, position));
        }
        let args = emitter.unified(b, &args);
        let mut lifted: Vec<ValueId> = lift.iter().map(|expr| b.evaluate(expr, &args)).collect();
        if let Some(holds) = emitter.mask(b, &guards) {
            for (value, &neutral) in lifted.iter_mut().zip(&self.init) {
                *value = emitter.select_or(b, holds, *value, neutral);
            }
        }
        if let Count::Within(bounds) = &self.count {
            let counted = within(&emitter.space, at, bounds.iter().cloned());
            let counted = union(&counted, limits);
            let one = b.int(DType::I64, 1);
            lifted.push(match emitter.mask(b, &counted) {
                Some(holds) => emitter.select_or(b, holds, one, Scalar::Int(DType::I64, 0)),
                None => one,
            });
        }
        Ok(lifted)
    }

    /// Elements as accumulators of their own, in every element of the tile; neutral where `limits` does
    /// not hold.
    pub fn lifted(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        axes: &[Index],
        (mask, limits): (&Mask, &Mask),
    ) -> Result<Vec<ValueId>, CodegenError> {
        let Elements::Operand { operand, index, lift, position } = &self.elements else {
            let start = self.initial(emitter, b);
            let (outer, inner) = axes.split_at(self.outer.len());
            return self.step(emitter, b, (outer, inner), (mask, limits), &start);
        };
        let at = emitter.mapped(b, index, axes, &[], mask)?;
        let lifted =
            self.lift(emitter, b, (*operand, &at), (lift, position, axes), (mask, limits))?;
        Ok(lifted.into_iter().map(|value| emitter.spread(b, value)).collect())
    }

    /// Puts two sets of accumulators together; the first one's elements come earlier.
    pub fn combine(
        &self,
        emitter: &Emitter<'_>,
        b: &mut KernelBuilder,
        first: &[ValueId],
        second: &[ValueId],
    ) -> Vec<ValueId> {
        let args: Vec<ValueId> =
            first.iter().chain(second).map(|&value| emitter.spread(b, value)).collect();
        self.combine.iter().map(|expr| b.evaluate(expr, &args)).collect()
    }

    /// How many operands are read for an element.
    pub fn reads(&self) -> u32 {
        match self.elements {
            Elements::Operand { .. } => 1,
            Elements::Products { .. } => 2,
        }
    }

    /// Whether the result depends on the order of the elements by rounding.
    pub fn rounds(&self) -> bool {
        self.init.iter().any(|number| number.dtype().is_float())
            && self.combine.iter().any(adds_or_multiplies)
    }

    /// Folds the tile along one of its dimensions.
    pub fn reduce_tile(&self, b: &mut KernelBuilder, dim: u32, sums: &[ValueId]) -> Vec<ValueId> {
        b.reduce(dim, sums, &self.combine)
    }

    /// The result from the accumulators.
    pub fn finish(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        sums: &[ValueId],
    ) -> ValueId {
        let mut args = sums.to_vec();
        if let Count::Known(count) = &self.count {
            let count = emitter.size(b, count);
            args.push(b.cast(DType::I64, count));
        }
        let args = emitter.unified(b, &args);
        b.evaluate(&self.finish, &args)
    }

    /// Arithmetic operations of the whole fold.
    pub fn flops(&self) -> Dim {
        let each = match &self.elements {
            Elements::Products { .. } => 2,
            Elements::Operand { lift, .. } => {
                lift.iter().chain(&self.combine).map(functions).sum::<usize>().max(1)
            }
        };
        self.outer.iter().chain(&self.inner).product::<Dim>() * Dim::from(each)
    }
}

/// The conditions that an index lies inside a tensor.
fn inside(space: &IndexSpace<'_>, index: &[Index], shape: &[Dim]) -> Mask {
    within(space, index, shape.iter().map(|size| (Dim::constant(0), size.clone())))
}

/// Whether all elements of all windows lie within bounds.
fn always_within(
    site: &Site<'_>,
    (outer, window): (&[Dim], &[Dim]),
    index: &[IndexExpr],
    bounds: &[(Dim, Dim)],
) -> bool {
    let mut space = IndexSpace::new(site.dims);
    let axes: Vec<Index> =
        outer.iter().chain(window).map(|size| Index::var(space.add_var(size))).collect();
    let index: Vec<Index> = index.iter().map(|expr| space.compose(expr, &axes, &[])).collect();
    within(&space, &index, bounds.iter().cloned()).is_empty()
}

/// The conditions that each index lies within its bounds.
fn within(
    space: &IndexSpace<'_>,
    index: &[Index],
    bounds: impl Iterator<Item = (Dim, Dim)>,
) -> Mask {
    let pairs = index.iter().zip(bounds);
    pairs.filter_map(|(index, (low, high))| space.within(index, &low, &high)).collect()
}

/// Accumulators with one more that adds up a count.
fn with_counter(mut init: Vec<Scalar>, combine: &[ScalarExpr]) -> (Vec<Scalar>, Vec<ScalarExpr>) {
    let count = init.len();
    init.push(Scalar::Int(DType::I64, 0));
    let mut combine: Vec<ScalarExpr> = combine.iter().map(|expr| shifted(expr, count)).collect();
    combine.push(ScalarExpr::arg(count).binary(BinaryFn::Add, ScalarExpr::arg(2 * count + 1)));
    (init, combine)
}

fn adds_or_multiplies(expr: &ScalarExpr) -> bool {
    match expr {
        ScalarExpr::Arg(_) | ScalarExpr::Const(_) => false,
        ScalarExpr::Unary(_, x) | ScalarExpr::Cast(_, x) => adds_or_multiplies(x),
        ScalarExpr::Binary(BinaryFn::Add | BinaryFn::Mul, ..) => true,
        ScalarExpr::Binary(_, x, y) => adds_or_multiplies(x) || adds_or_multiplies(y),
        ScalarExpr::Select(c, x, y) => [c, x, y].into_iter().any(|expr| adds_or_multiplies(expr)),
    }
}

/// The expression with arguments from `from` on moved up by one.
fn shifted(expr: &ScalarExpr, from: usize) -> ScalarExpr {
    let inner = |expr: &ScalarExpr| Box::new(shifted(expr, from));
    match expr {
        ScalarExpr::Arg(index) => ScalarExpr::Arg(index + usize::from(*index >= from)),
        ScalarExpr::Const(number) => ScalarExpr::Const(*number),
        ScalarExpr::Unary(function, x) => ScalarExpr::Unary(*function, inner(x)),
        ScalarExpr::Binary(function, x, y) => ScalarExpr::Binary(*function, inner(x), inner(y)),
        ScalarExpr::Select(c, x, y) => ScalarExpr::Select(inner(c), inner(x), inner(y)),
        ScalarExpr::Cast(dtype, x) => ScalarExpr::Cast(*dtype, inner(x)),
    }
}

/// The axes of a contraction: those of the result, the one with the largest step in the result first,
/// and the inner ones in their order.
pub(super) fn axis_order(
    site: &Site<'_>,
    node: NodeId,
    form: &ContractionForm,
) -> (Vec<usize>, Vec<usize>) {
    let mut space = IndexSpace::new(site.dims);
    let vars: Vec<_> = form.axes.iter().map(|(size, _)| space.add_var(size)).collect();
    let axes: Vec<Index> = vars.iter().map(|&var| Index::var(var)).collect();
    let index: Vec<Index> = form.out.iter().map(|expr| space.compose(expr, &axes, &[])).collect();
    let offset = space.linearize(&index, &site.body.ty(node).shape);
    let mut outer: Vec<usize> = Vec::new();
    for axis in (0..form.axes.len()).filter(|&axis| form.axes[axis].1 != AxisRole::Inner) {
        let step = offset.step(vars[axis]);
        let after = outer.iter().position(|&other| {
            let other = offset.step(vars[other]);
            match (&step, &other) {
                (Some(step), Some(other)) => !step.is(0) && space.is_positive(&(step - other)),
                _ => false,
            }
        });
        outer.insert(after.unwrap_or(outer.len()), axis);
    }
    let inner = (0..form.axes.len()).filter(|&axis| form.axes[axis].1 == AxisRole::Inner).collect();
    (outer, inner)
}
