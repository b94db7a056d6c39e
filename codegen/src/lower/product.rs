//! Contractions as batches of matrix products.
//!
//! The iteration axes are grouped by role, each group linearised: a batch of matrix products `M x K` by
//! `K x N`. Operands are pulled element by element where the group's positions map to, so convolution is
//! implicit GEMM and whatever stands before an operand is computed as its tile is filled.

use fornax_ir::op::{AxisRole, ContractionForm, OpClass, OperandMap};
use fornax_ir::plan::adjacent::{is_adjacent, mapped_offset};
use fornax_ir::plan::index::{Index, IndexSpace, Var};
use fornax_ir::plan::{Reduced, Structure};
use fornax_ir::{Dim, NodeId};

use super::CodegenError;
use super::fold::axis_order;
use super::site::Site;

/// A contraction as a batch of matrix products.
pub(super) struct Product<'a> {
    pub site: &'a Site<'a>,
    pub node: NodeId,
    pub form: ContractionForm,
    /// Where the result is reduced along some rows, or columns, the others of them come last.
    pub batch: Group,
    /// How many positions of the batch there are without those, and of those.
    pub batch_parts: [Dim; 2],
    pub rows: Group,
    pub columns: Group,
    pub inner: Group,
    /// Whether adjacent rows are adjacent in the result.
    pub rows_fastest: bool,
}

/// The iteration axes of one role, the slowest first.
pub(super) struct Group {
    pub axes: Vec<usize>,
    pub sizes: Vec<Dim>,
    pub extent: Dim,
}

impl Group {
    /// Blocks of `block` positions along the group.
    pub fn blocks(&self, block: u32) -> Dim {
        self.extent.ceil_div(&Dim::constant(block.into()))
    }
}

/// Along which of its two groups an operand's elements are adjacent in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adjacency {
    /// Along the positions of the result.
    Own,
    /// Along the inner positions.
    Inner,
}

impl<'a> Product<'a> {
    pub fn new(site: &'a Site<'a>, node: NodeId) -> Product<'a> {
        let OpClass::Contraction(form) = site.body.node(node).op.class() else {
            unreachable!("invariant: a contraction's structure has a contraction")
        };
        let form = site.with_ctx(node, form);
        let (order, inner) = axis_order(site, node, &form);
        let inner = inner_order(site, node, &form, inner);
        let is_apart = |axis: usize| match &site.structure {
            Structure::Reduced(reduced) => {
                form.axes[axis].1 == reduced.role && !reduced.axes.contains(&axis)
            }
            _ => false,
        };
        let of = |holds: &dyn Fn(usize) -> bool| -> Vec<usize> {
            order.iter().chain(&inner).copied().filter(|&axis| holds(axis)).collect()
        };
        let grouped = |axes: Vec<usize>| {
            let sizes: Vec<Dim> = axes.iter().map(|&axis| form.axes[axis].0.clone()).collect();
            Group { extent: sizes.iter().product(), axes, sizes }
        };
        let group = |role| grouped(of(&|axis| form.axes[axis].1 == role && !is_apart(axis)));
        let apart = of(&is_apart);
        let batch = of(&|axis| form.axes[axis].1 == AxisRole::Batch);
        let count = |axes: &[usize]| axes.iter().map(|&axis| &form.axes[axis].0).product();
        let batch_parts = [count(&batch), count(&apart)];
        let batch = grouped(batch.into_iter().chain(apart).collect());
        let mut last = order.iter().rev().copied();
        let last = last.find(|&axis| !form.axes[axis].0.is(1) && !is_apart(axis));
        let rows_fastest = last.is_some_and(|axis| form.axes[axis].1 == AxisRole::Rows);
        Product {
            batch_parts,
            batch,
            rows: group(AxisRole::Rows),
            columns: group(AxisRole::Columns),
            inner: group(AxisRole::Inner),
            rows_fastest,
            site,
            node,
            form,
        }
    }

    /// The reductions of the result.
    pub fn reduced(&self) -> Option<&'a Reduced> {
        match &self.site.structure {
            Structure::Reduced(reduced) => Some(reduced),
            _ => None,
        }
    }

    /// Refuses tiles of `rows` by `columns` that do not hold what reductions of the result fold together.
    pub fn check_tile(&self, [rows, columns]: [u32; 2]) -> Result<(), CodegenError> {
        let Some(reduced) = self.reduced().filter(|reduced| !reduced.in_parts) else {
            return Ok(());
        };
        let (side, group) = match reduced.role {
            AxisRole::Rows => (rows, &self.rows),
            _ => (columns, &self.columns),
        };
        if group.extent.bounds(self.site.dims).1 <= i64::from(side) {
            return Ok(());
        }
        let extent = &group.extent;
        let reason = format!("tiles of {side} do not hold the {extent} elements that are folded");
        Err(self.site.error(self.node, reason))
    }

    /// Multiplications and additions of the contraction and functions of the rest.
    pub fn flops(&self) -> Dim {
        let axes: Dim = self.form.axes.iter().map(|(size, _)| size).product();
        axes * Dim::constant(2) + self.site.pointwise_flops()
    }

    /// How an operand lies in memory, and how many adjacent elements start at a multiple of their number,
    /// at most `most`. `group`: the positions of the result that it depends on.
    pub fn adjacency(
        &self,
        operand: NodeId,
        map: &OperandMap,
        group: &Group,
        most: u32,
    ) -> (Adjacency, u32) {
        let mut space = IndexSpace::new(self.site.dims);
        let batch: Vec<Index> =
            self.batch.sizes.iter().map(|size| Index::var(space.add_var(size))).collect();
        let own = space.add_var(&group.extent);
        let inner = space.add_var(&self.inner.extent);
        let positions = [(group, Index::var(own)), (&self.inner, Index::var(inner))];
        let axes = self.axes(&space, &batch, &positions);
        let Some(offset) = mapped_offset(self.site.body, &space, operand, &map.index, &axes) else {
            let single = group.extent.is(1);
            return (if single { Adjacency::Inner } else { Adjacency::Own }, 1);
        };
        let run = |var: Var, extent: &Dim| {
            let mut run = most;
            let whole = |run: u32| {
                extent.divided_exactly(&Dim::constant(run.into())).is_some()
                    && space.aligned(&offset, var, run)
            };
            while run > 1 && !whole(run) {
                run /= 2;
            }
            run
        };
        if is_adjacent(&offset, own) {
            (Adjacency::Own, run(own, &group.extent))
        } else if is_adjacent(&offset, inner) || group.extent.is(1) {
            (Adjacency::Inner, run(inner, &self.inner.extent))
        } else {
            (Adjacency::Own, 1)
        }
    }

    /// The position along each of the contraction's axes; those of groups that are not given are 0.
    pub fn axes(
        &self,
        space: &IndexSpace<'_>,
        batch: &[Index],
        groups: &[(&Group, Index)],
    ) -> Vec<Index> {
        let mut axes = vec![Index::default(); self.form.axes.len()];
        for (&axis, index) in self.batch.axes.iter().zip(batch) {
            axes[axis] = index.clone();
        }
        for (group, position) in groups {
            let index = space.delinearize(position, &group.sizes);
            for (&axis, index) in group.axes.iter().zip(index) {
                axes[axis] = index;
            }
        }
        axes
    }
}

/// Inner axes as the right operand has them in memory, the slowest first, where that is known: a kernel
/// that is turned for it (see the `pack` pass) is read in order.
fn inner_order(
    site: &Site<'_>,
    node: NodeId,
    form: &ContractionForm,
    mut inner: Vec<usize>,
) -> Vec<usize> {
    let mut space = IndexSpace::new(site.dims);
    let vars: Vec<Var> = form.axes.iter().map(|(size, _)| space.add_var(size)).collect();
    let axes: Vec<Index> = vars.iter().map(|&var| Index::var(var)).collect();
    let operand = site.body.operands(node)[1];
    let offset = mapped_offset(site.body, &space, operand, &form.rhs.index, &axes);
    let step = |axis: usize| offset.as_ref()?.step(vars[axis])?.as_const();
    let steps: Option<Vec<i64>> = inner.iter().map(|&axis| step(axis)).collect();
    if steps.is_some() {
        inner.sort_by_key(|&axis| std::cmp::Reverse(step(axis)));
    }
    inner
}
