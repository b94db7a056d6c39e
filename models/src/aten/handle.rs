//! Tensors that can be changed in place, as values: which tensors share memory, and what they hold now.
//!
//! The graph knows no memory. A handle is what a name of the program means; it holds the value of the moment.
//! A view points at the tensor it was taken from. Writing to a view writes the changed part back, step by step, to
//! the tensor that owns the memory; the other views of that are taken anew when they are read.

use std::cell::RefCell;
use std::rc::Rc;

use fornax_ir::{Dim, NodeId, attrs};

use crate::build::movement::{join, permute, take, take_axis};
use crate::build::sizes::Span;
use crate::build::{Build, Result, Value};

/// A tensor of the program.
#[derive(Clone)]
pub(crate) struct Handle(Rc<RefCell<State>>);

struct State {
    value: Value,
    /// Where the memory comes from; nothing for a tensor with memory of its own.
    base: Option<(Handle, View)>,
    /// How often the memory had been written when `value` was taken; for an owner: has been written.
    version: u64,
    /// Why the memory may not be written.
    fixed: Option<Rc<str>>,
    /// How many views lie between this and the owner.
    depth: u32,
    /// Why the value is not known any more.
    lost: Option<&'static str>,
}

/// How a view lies in the memory of its base.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All of it in the same shape.
    Same,
    /// All of it in another shape.
    Reshape(Vec<Dim>),
    /// All of it with the axes in another order.
    Permute(Vec<usize>),
    /// A part of it.
    Slice(Vec<Span>),
    /// Repeated to a shape.
    Expand(Vec<Dim>),
    /// Whether the memory is shared depends on strides, which are not followed.
    Perhaps,
}

/// Most views of views.
const MAX_DEPTH: u32 = 500;

const PERHAPS: &str = "it may or may not share memory with a tensor that is changed in place, depending on strides, \
     which Fornax does not follow; add .clone() before the change";

impl Handle {
    /// A tensor with memory of its own.
    pub(crate) fn new(value: impl Into<Value>) -> Self {
        Self::with(value.into(), None, 0, None)
    }

    /// A tensor that must not be changed in place, with the reason.
    pub(crate) fn fixed(value: impl Into<Value>, reason: impl Into<Rc<str>>) -> Self {
        Self::with(value.into(), None, 0, Some(reason.into()))
    }

    fn with(
        value: Value,
        base: Option<(Self, View)>,
        version: u64,
        fixed: Option<Rc<str>>,
    ) -> Self {
        let depth = base.as_ref().map_or(0, |(base, _)| base.0.borrow().depth + 1);
        Self(Rc::new(RefCell::new(State { value, base, version, fixed, depth, lost: None })))
    }

    /// A view of this tensor.
    pub(crate) fn view(&self, call: &mut impl Build, view: View) -> Result<Self> {
        let value = self.read(call)?;
        self.check_depth(call)?;
        let value = match &view {
            View::Same | View::Perhaps => value,
            _ => {
                let node = call.materialize(&value)?;
                apply(call, node, &view)?.into()
            }
        };
        Ok(Self::with(value, Some((self.clone(), view)), self.owner_version(), None))
    }

    /// A tensor with this value that shares this one's memory, or not, depending on strides.
    pub(crate) fn perhaps(&self, call: &impl Build, node: NodeId) -> Result<Self> {
        self.check_depth(call)?;
        let base = Some((self.clone(), View::Perhaps));
        Ok(Self::with(node.into(), base, self.owner_version(), None))
    }

    fn check_depth(&self, call: &impl Build) -> Result<()> {
        match self.0.borrow().depth >= MAX_DEPTH {
            true => Err(call.unsupported(format!("more than {MAX_DEPTH} views of views"))),
            false => Ok(()),
        }
    }

    /// The value it holds now.
    pub(crate) fn read(&self, call: &mut impl Build) -> Result<Value> {
        let (base, stale) = {
            let state = self.0.borrow();
            if let Some(why) = state.lost {
                return Err(call.unsupported(format!("the value of a tensor is not known: {why}")));
            }
            (state.base.clone(), state.version != self.owner_version())
        };
        if let (Some((base, view)), true) = (base, stale) {
            if matches!(view, View::Perhaps) {
                return Err(
                    call.unsupported(format!("the value of a tensor is not known: {PERHAPS}"))
                );
            }
            let value = base.read(call)?;
            let node = call.materialize(&value)?;
            let node = apply(call, node, &view)?;
            let mut state = self.0.borrow_mut();
            state.value = node.into();
            drop(state);
            let version = self.owner_version();
            self.0.borrow_mut().version = version;
        }
        Ok(self.0.borrow().value.clone())
    }

    /// The node of the graph for the value it holds now.
    pub(crate) fn node(&self, call: &mut impl Build) -> Result<NodeId> {
        let value = self.read(call)?;
        call.materialize(&value)
    }

    /// The value at this moment without looking for changes: for types, which do not change.
    pub(crate) fn peek(&self) -> Value {
        self.0.borrow().value.clone()
    }

    /// Gives it another value of the same type, and with it all that share its memory.
    pub(crate) fn write(&self, call: &mut impl Build, node: NodeId) -> Result<()> {
        let base = self.0.borrow().base.clone();
        let Some((base, view)) = base else {
            let mut state = self.0.borrow_mut();
            if let Some(reason) = &state.fixed {
                return Err(call
                    .unsupported(format!("the model changes {reason} in place"))
                    .note("the compiled model has no state: change a clone instead, or return the new value"));
            }
            state.value = node.into();
            state.version += 1;
            return Ok(());
        };
        let changed = match &view {
            View::Perhaps => {
                // From here on a tensor by itself; whoever reads the other one is told.
                base.lose();
                let mut state = self.0.borrow_mut();
                *state = State {
                    value: node.into(),
                    base: None,
                    version: 0,
                    fixed: None,
                    depth: 0,
                    lost: None,
                };
                return Ok(());
            }
            View::Expand(_) => {
                let message =
                    "a tensor whose elements share memory (by expand) is changed in place";
                return Err(call.unsupported(message));
            }
            View::Same => node,
            View::Reshape(_) => {
                let shape = call.type_of(&base.peek()).shape;
                call.reshape(node, &shape)?
            }
            View::Permute(order) => {
                let mut inverse = vec![0; order.len()];
                order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
                permute(call, node, &inverse)?
            }
            View::Slice(spans) => {
                let whole = base.read(call)?;
                let whole = call.materialize(&whole)?;
                replace_part(call, whole, node, spans)?
            }
        };
        base.write(call, changed)?;
        let version = self.owner_version();
        let mut state = self.0.borrow_mut();
        state.value = node.into();
        state.version = version;
        Ok(())
    }

    fn lose(&self) {
        let base = self.0.borrow().base.clone();
        match base {
            Some((base, _)) => base.lose(),
            None => {
                let mut state = self.0.borrow_mut();
                state.version += 1;
                state.lost = Some(PERHAPS);
            }
        }
    }

    /// How often the memory has been written.
    fn owner_version(&self) -> u64 {
        let state = self.0.borrow();
        match &state.base {
            Some((base, _)) => base.owner_version(),
            None => state.version,
        }
    }
}

fn apply(call: &mut impl Build, node: NodeId, view: &View) -> Result<NodeId> {
    match view {
        View::Same | View::Perhaps => Ok(node),
        View::Reshape(shape) => call.reshape(node, shape),
        View::Permute(order) => permute(call, node, order),
        View::Slice(spans) => take(call, node, spans),
        View::Expand(shape) => call.broadcast(node, shape),
    }
}

/// `whole` with another part where the spans lie: along each axis that is not taken whole, what is before, the part, and
/// what is behind.
fn replace_part(
    call: &mut impl Build,
    whole: NodeId,
    part: NodeId,
    spans: &[Span],
) -> Result<NodeId> {
    let shape = call.graph().ty(whole).shape.clone();
    let Some(axis) = (0..spans.len()).find(|&axis| spans[axis].count != shape[axis]) else {
        return reversed_back(call, part, spans);
    };
    if spans[axis].step != 1 {
        return Err(call.unsupported("a slice with a step is changed in place"));
    }
    let Span { start, count, .. } = spans[axis].clone();
    let mut rest = spans.to_vec();
    rest[axis] = Span { start: Dim::constant(0), count: count.clone(), step: 1 };
    let inner = take_axis(call, whole, axis, start.clone(), count.clone())?;
    let inner = replace_part(call, inner, part, &rest)?;
    let end = &start + &count;
    let mut parts = Vec::new();
    if !start.is(0) {
        parts.push(take_axis(call, whole, axis, Dim::constant(0), start)?);
    }
    parts.push(inner);
    let behind = &shape[axis] - &end;
    if !behind.is(0) {
        parts.push(take_axis(call, whole, axis, end, behind)?);
    }
    join(call, &parts, axis)
}

/// Axes that were taken whole, but backwards, are turned again.
fn reversed_back(call: &mut impl Build, part: NodeId, spans: &[Span]) -> Result<NodeId> {
    if spans.iter().all(|span| span.step == 1) {
        return Ok(part);
    }
    let starts: Vec<Dim> = spans.iter().map(|span| span.start.clone()).collect();
    let sizes: Vec<Dim> = spans.iter().map(|span| span.count.clone()).collect();
    let steps: Vec<i64> = spans.iter().map(|span| span.step).collect();
    call.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[part])
}
