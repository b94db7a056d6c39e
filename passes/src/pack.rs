//! Packing of weights: right operands in the order and precision in which tiles are multiplied.
//!
//! Tensor cores take inner elements in steps. Where a step lies within one tap of the kernel, its
//! elements are channels of the same pixels, which need no index arithmetic of their own; so taps go
//! outside and channels inside, and the weights have to lie like that; those of matrix products with the
//! inner elements inside. The prepare program turns them once; the region reads the turned weights through
//! the opposite transposition, which the lowering sees through. Weights that are multiplied as TF32 are
//! rounded on the occasion, so that tensor cores can read them as they are.
//!
//! The phases of a transposed convolution with stride meet as many taps each where the kernel has zeros for
//! those that some of them lack: the prepare program adds them, and no tap needs a condition.

use std::collections::BTreeMap;

use fornax_ir::op::{AxisRole, ContractionForm, ContractionKind, OpClass, OpCtx};
use fornax_ir::plan::adjacent::moved_input;
use fornax_ir::plan::index::{Index, IndexSpace};
use fornax_ir::plan::{Phase, Plan, Region, Schedule, ValueRef};
use fornax_ir::{
    Attrs, DType, Dim, Graph, Guard, IndexExpr, LocSet, NodeId, Precision, Type, attrs,
};

use crate::{PassError, schedule};

/// Channels below which a step has several taps anyway.
const FEWEST_CHANNELS: i64 = 8;

/// Turns the weights of convolutions that are multiplied in tiles.
///
/// # Errors
/// When a changed body breaks a constraint of its ops (our bug).
pub fn pack(mut plan: Plan) -> Result<Plan, PassError> {
    let first_run = plan.regions.iter().take_while(|region| region.phase == Phase::Prepare).count();
    let mut packed: Vec<Region> = Vec::new();
    let mut known: BTreeMap<(ValueRef, Turn), usize> = BTreeMap::new();
    // Where regions read packed values: region, operand, number of the packed value.
    let mut reads: Vec<(usize, usize, usize)> = Vec::new();
    for index in first_run..plan.regions.len() {
        let Some(found) = find(&plan, &plan.regions[index]) else { continue };
        let key = (found.value, found.turn.clone());
        let number = match known.get(&key) {
            Some(&number) => number,
            None => {
                packed.push(turned(&plan, &found, packed.len())?);
                known.insert(key, packed.len() - 1);
                packed.len() - 1
            }
        };
        if found.turn.moves() {
            plan.regions[index].body = reading_turned(&plan.regions[index].body, &found)?;
        }
        reads.push((index, found.operand, number));
    }
    if packed.is_empty() {
        return Ok(plan);
    }
    let count = packed.len();
    let moved = |value: ValueRef| match value {
        ValueRef::Region { region, output } if region >= first_run => {
            ValueRef::Region { region: region + count, output }
        }
        other => other,
    };
    for region in &mut plan.regions {
        region.operands.iter_mut().for_each(|operand| *operand = moved(*operand));
    }
    plan.outputs.iter_mut().for_each(|output| output.value = moved(output.value));
    for (index, operand, number) in reads {
        plan.regions[index].operands[operand] =
            ValueRef::Region { region: first_run + number, output: 0 };
    }
    plan.regions.splice(first_run..first_run, packed);
    Ok(plan)
}

/// How a kernel is changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Zeros before and after each axis.
    zeros: Vec<[i64; 2]>,
    /// The axes of the turned kernel.
    order: Vec<i64>,
    /// Whether its elements are rounded to TF32.
    rounded: bool,
}

impl Turn {
    /// Whether elements lie elsewhere afterwards.
    fn moves(&self) -> bool {
        !self.order.is_sorted() || self.zeros.iter().any(|zeros| *zeros != [0; 2])
    }
}

/// A kernel that is to be turned.
struct Found {
    /// The region's operand, and the body's input node for it.
    operand: usize,
    node: NodeId,
    value: ValueRef,
    turn: Turn,
    /// The contraction, and its attributes with the changed kernel.
    anchor: NodeId,
    attrs: Attrs,
}

fn find(plan: &Plan, region: &Region) -> Option<Found> {
    let body = &region.body;
    if !matches!(region.schedule, Schedule::Mma { .. }) {
        return None;
    }
    let (anchor, form) =
        body.in_order().into_iter().find_map(|id| match body.node(id).op.class() {
            OpClass::Contraction(form) => Some((id, form)),
            _ => None,
        })?;
    let factor = body.operands(anchor)[1];
    let node = moved_input(body, factor)?;
    let operand = body.inputs().iter().position(|&input| input == node)?;
    let value = region.operands[operand];
    let prepared = match value {
        ValueRef::Input(_) | ValueRef::Shared(_) => false,
        ValueRef::Weight(_) => true,
        ValueRef::Region { region, .. } => plan.regions[region].phase == Phase::Prepare,
    };
    let reads = region.operands.iter().filter(|&&other| other == value).count();
    if !prepared || reads > 1 || !is_read_once(body, node, anchor) {
        return None;
    }
    let types = body.operand_types(anchor);
    let attrs = &body.node(anchor).attrs;
    let form_of = form;
    let form = form_of(&OpCtx { attrs, operands: &types });
    let rank = body.ty(node).rank();
    let unchanged = || (vec![[0; 2]; rank], attrs.clone());
    let whole = if node == factor { with_zeros(body, attrs, &types[1], &form) } else { None };
    let (zeros, attrs) = whole.unwrap_or_else(unchanged);
    let rounded = region.precision == Precision::Tf32 && body.ty(node).dtype == DType::F32;
    let order = if node == factor { order(&form, rounded) } else { None };
    let order = order.unwrap_or_else(|| (0..rank as i64).collect());
    let turn = Turn { zeros, order, rounded };
    (turn.moves() || rounded).then_some(Found { operand, node, value, turn, anchor, attrs })
}

/// Whether nothing but one chain of nodes leads from a node to another one.
fn is_read_once(body: &Graph, mut node: NodeId, last: NodeId) -> bool {
    while node != last {
        let users = body.users(node);
        let [user] = users.as_slice() else { return false };
        node = *user;
    }
    true
}

/// Zeros around a kernel with which all taps that any position asks for are there, and the attributes of
/// the transposed convolution with that kernel.
fn with_zeros(
    body: &Graph,
    attrs: &Attrs,
    kernel: &Type,
    form: &ContractionForm,
) -> Option<(Vec<[i64; 2]>, Attrs)> {
    attrs.get("output_padding")?;
    let mut space = IndexSpace::new(&body.dims);
    let axes: Vec<Index> =
        form.axes.iter().map(|(size, _)| Index::var(space.add_var(size))).collect();
    let mut zeros = vec![[0; 2]; kernel.rank()];
    let (mut begin, mut end) = (attrs.ints("pads_begin").to_vec(), attrs.ints("pads_end").to_vec());
    for guard in &form.rhs.guards {
        let Guard::Within { value, high, .. } = guard else { return None };
        let axis = form.rhs.index.iter().position(|expr| expr == value)?;
        let spatial = axis.checked_sub(2)?;
        if attrs.ints("dilations")[spatial] != 1 {
            return None;
        }
        let (low, most) = space.bounds(&space.compose(value, &axes, &[]));
        let (low, most) = (low?.as_const()?, most?.as_const()?);
        let last = (high - Dim::constant(1)).as_const()?;
        zeros[axis] = [(-low).max(0), (most - last).max(0)];
        begin[spatial] += zeros[axis][0];
        end[spatial] += zeros[axis][1];
    }
    let mut attrs = attrs.clone();
    attrs.insert("pads_begin", begin);
    attrs.insert("pads_end", end);
    Some((zeros, attrs))
}

/// The order of a right operand's axes that is best for tiles; none where it is like that. Elements that are
/// not `rounded` on the way are turned for convolutions alone.
fn order(form: &ContractionForm, rounded: bool) -> Option<Vec<i64>> {
    match form.kind {
        ContractionKind::Convolution { .. } => taps_outside(form),
        ContractionKind::Product if rounded => inner_last(form),
        ContractionKind::Product => None,
    }
}

/// Inner elements last.
fn inner_last(form: &ContractionForm) -> Option<Vec<i64>> {
    let is_inner = |position: &i64| {
        let axes = form.rhs.index[*position as usize].axes();
        axes.iter().any(|&axis| form.axes[axis].1 == AxisRole::Inner)
    };
    let positions = 0..form.rhs.index.len() as i64;
    let (inner, mut order): (Vec<i64>, Vec<i64>) = positions.partition(is_inner);
    order.extend(inner);
    (!order.is_sorted()).then_some(order)
}

/// Output channels, taps, input channels.
fn taps_outside(form: &ContractionForm) -> Option<Vec<i64>> {
    let is_inner = |axis: usize| form.axes[axis].1 == AxisRole::Inner;
    // The inner axis that an index of the image has without a position of the result.
    let channel = form.lhs.index.iter().find_map(|expr| {
        let axes = expr.axes();
        let alone = axes.iter().all(|&axis| form.axes[axis].1 != AxisRole::Rows);
        axes.into_iter().find(|&axis| alone && is_inner(axis))
    })?;
    if form.axes[channel].0.as_const()? < FEWEST_CHANNELS {
        return None;
    }
    let (mut outer, mut taps, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (position, expr) in form.rhs.index.iter().enumerate() {
        let place = match expr {
            IndexExpr::Axis(axis) if *axis == channel => &mut last,
            IndexExpr::Axis(axis) if is_inner(*axis) => &mut taps,
            _ => &mut outer,
        };
        place.push(position as i64);
    }
    let single = form
        .axes
        .iter()
        .enumerate()
        .all(|(axis, (size, role))| *role != AxisRole::Inner || axis == channel || size.is(1));
    let order: Vec<i64> = outer.into_iter().chain(taps).chain(last.iter().copied()).collect();
    (last.len() == 1 && !single && !order.is_sorted()).then_some(order)
}

/// The region of the prepare program that turns a kernel.
fn turned(plan: &Plan, found: &Found, number: usize) -> Result<Region, PassError> {
    let ty = plan.ty(found.value);
    let mut body = empty_like(plan, "pack");
    let kernel = input(&mut body, "a0", ty)?;
    let mut result = kernel;
    let zeros = &found.turn.zeros;
    if zeros.iter().any(|zeros| *zeros != [0; 2]) {
        let side = |side: usize| zeros.iter().map(|zeros| zeros[side].into()).collect::<Vec<Dim>>();
        let (before, after) = (side(0), side(1));
        let attrs = attrs! { before: before, after: after, mode: "constant", value: 0.0f64 };
        result = body.add("pad", attrs, &[result], LocSet::none())?;
    }
    // A body has to compute something.
    if !found.turn.order.is_sorted() || !found.turn.moves() {
        let order = found.turn.order.clone();
        result = body.add("transpose", attrs! { perm: order }, &[result], LocSet::none())?;
    }
    body.output("y0", result);
    let name = format!("pack{number}");
    let (precision, schedule) = if found.turn.rounded {
        (Precision::Tf32, Schedule::Pack { threads: 256, vector: 4 })
    } else {
        let schedule = schedule::choose(&body, Precision::Ieee, &plan.dims)
            .map_err(|rejection| PassError::Region { region: name.clone(), rejection })?;
        (Precision::Ieee, schedule)
    };
    Ok(Region {
        name,
        phase: Phase::Prepare,
        parts: BTreeMap::new(),
        body,
        operands: vec![found.value],
        precision,
        schedule,
    })
}

/// A body that reads the turned kernel and turns it back.
fn reading_turned(body: &Graph, found: &Found) -> Result<Graph, PassError> {
    let mut copy = Graph::new(body.name.clone());
    copy.dims = body.dims.clone();
    copy.sources = body.sources.clone();
    let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    // Inputs first, in their order.
    for &id in body.inputs() {
        let ty = body.ty(id);
        let name = body.input_name(id);
        let value = if id == found.node {
            let Turn { zeros, order, .. } = &found.turn;
            let sizes = order.iter().map(|&axis| {
                let [before, after] = zeros[axis as usize];
                &ty.shape[axis as usize] + Dim::constant(before + after)
            });
            let turned = Type::new(ty.dtype, sizes.collect::<Vec<_>>());
            let kernel = input(&mut copy, name, &turned)?;
            let mut back = vec![0i64; order.len()];
            for (position, &axis) in order.iter().enumerate() {
                back[axis as usize] = position as i64;
            }
            match order.is_sorted() {
                true => kernel,
                false => copy.add("transpose", attrs! { perm: back }, &[kernel], LocSet::none())?,
            }
        } else {
            input(&mut copy, name, ty)?
        };
        copies.insert(id, value);
    }
    for id in body.in_order() {
        if copies.contains_key(&id) {
            continue;
        }
        let node = body.node(id);
        let operands: Vec<NodeId> =
            body.operands(id).iter().map(|operand| copies[operand]).collect();
        let attrs = if id == found.anchor { &found.attrs } else { &node.attrs };
        let value = copy.add(node.op.name(), attrs.clone(), &operands, node.loc.clone())?;
        copies.insert(id, value);
    }
    for output in body.outputs() {
        copy.output(output.name.clone(), copies[&output.value]);
    }
    Ok(copy)
}

fn empty_like(plan: &Plan, name: &str) -> Graph {
    let mut body = Graph::new(name);
    body.dims = plan.dims.clone();
    body.sources = plan.sources.clone();
    body
}

fn input(body: &mut Graph, name: &str, ty: &Type) -> Result<NodeId, PassError> {
    let shape = ty.shape.to_vec();
    let attrs = attrs! { name: name, dtype: ty.dtype, shape: shape };
    Ok(body.add("input", attrs, &[], LocSet::none())?)
}

#[cfg(test)]
mod tests {
    use fornax_ir::PrecisionPolicy;
    use fornax_ir::verify::verify_plan;

    use super::*;

    fn ty(sizes: &[i64]) -> Type {
        let sizes: Vec<Dim> = sizes.iter().map(|&size| Dim::constant(size)).collect();
        Type::new(DType::F32, sizes)
    }

    /// Two convolutions with one kernel of `channels`.
    fn convolutions(channels: i64) -> Graph {
        let mut graph = Graph::new("f");
        let mut value = graph.input("x", ty(&[8, channels, 64, 64])).unwrap();
        let kernel = graph.weight("w", ty(&[channels, channels, 3, 3]), None).unwrap();
        for _ in 0..2 {
            let attrs = attrs! {
                strides: vec![1i64; 2],
                pads_begin: vec![1i64; 2],
                pads_end: vec![1i64; 2],
                dilations: vec![1i64; 2],
                groups: 1i64,
            };
            value = graph.add("conv", attrs, &[value, kernel], LocSet::none()).unwrap();
        }
        graph.output("y", value);
        graph
    }

    fn packed(channels: i64, policy: PrecisionPolicy) -> Plan {
        let graph = convolutions(channels);
        let plan = pack(crate::fuse(&graph, policy).unwrap()).unwrap();
        assert_eq!(verify_plan(&plan), [], "{plan}");
        plan
    }

    #[test]
    fn a_kernel_is_turned_once() {
        let plan = packed(16, PrecisionPolicy::Tf32);
        assert_eq!(plan.regions.len(), 3);
        assert_eq!(plan.regions[0].phase, Phase::Prepare);
        let turned = ValueRef::Region { region: 0, output: 0 };
        assert_eq!(*plan.ty(turned), ty(&[16, 3, 3, 16]));
        let first = ValueRef::Region { region: 1, output: 0 };
        assert!(plan.regions[1].operands.contains(&turned));
        assert!(plan.regions[2].operands.contains(&turned));
        assert!(plan.regions[2].operands.contains(&first));
        assert_eq!(plan.outputs[0].value, ValueRef::Region { region: 2, output: 0 });
    }

    #[test]
    fn phases_get_as_many_taps() {
        let mut graph = Graph::new("f");
        let x = graph.input("x", ty(&[8, 16, 64, 64])).unwrap();
        let kernel = graph.weight("w", ty(&[16, 32, 3, 4]), None).unwrap();
        let attrs = attrs! {
            strides: vec![2i64; 2],
            pads_begin: vec![1i64; 2],
            pads_end: vec![1i64; 2],
            dilations: vec![1i64; 2],
            groups: 1i64,
            output_padding: vec![1i64, 0],
        };
        let y = graph.add("conv_transpose", attrs, &[x, kernel], LocSet::none()).unwrap();
        graph.output("y", y);
        let before = graph.ty(y).clone();
        let plan = pack(crate::fuse(&graph, PrecisionPolicy::Tf32).unwrap()).unwrap();
        assert_eq!(verify_plan(&plan), [], "{plan}");
        let turned = ValueRef::Region { region: 0, output: 0 };
        assert_eq!(*plan.ty(turned), ty(&[32, 4, 4, 16]));
        let body = &plan.regions[1].body;
        let anchor = body.outputs()[0].value;
        assert_eq!(*body.ty(anchor), before);
        let OpClass::Contraction(form) = body.node(anchor).op.class() else { panic!("{plan}") };
        let operands = body.operand_types(anchor);
        let form = form(&OpCtx { attrs: &body.node(anchor).attrs, operands: &operands });
        assert_eq!(form.rhs.guards, []);
    }

    #[test]
    fn warpgroups_take_rounded_kernels_as_they_are() {
        let plan = crate::use_wgmma(packed(128, PrecisionPolicy::Tf32));
        for region in &plan.regions[1..] {
            let schedule = &region.schedule;
            let packed = matches!(
                schedule,
                Schedule::Patch { packed: 1, .. } | Schedule::Pipeline { packed: 1, .. }
            );
            assert!(packed, "{schedule}");
        }
    }

    #[test]
    fn few_channels_and_other_schedules_stay() {
        assert_eq!(packed(16, PrecisionPolicy::Ieee).regions.len(), 2);
        assert_eq!(packed(4, PrecisionPolicy::Bf16).regions.len(), 2);
    }
}
