//! Evaluating ops by their class data instead of their reference evaluation.
//!
//! This says what the lowering of an op means: scalar expressions, index maps, folds and expansions are
//! carried out element by element, as slowly as it takes. The two ways to evaluate share no formula; the
//! generic tests hold them against each other for every op. Class data that contradicts itself (an index
//! outside its operand, a function of unlike types) is an error here, not a wrong result.

mod fold;
mod index;
mod scalar;

pub use scalar::{Number, Typed, scalar};

use fornax_bundle::Dims;

use super::{Array, Element, InterpError, Interpreter, Value};
use crate::op::{Expansion, OpClass, OpCtx, OpRef};
use crate::{Attrs, Graph, LocSet, Type, infer};
use index::{Outcome, Positions, Space};

/// Evaluates one op by its class data; the counterpart of [`super::evaluate_op`].
///
/// A composite is expanded and its expansion evaluated by reference.
///
/// # Errors
/// When the op rejects the operands' types, a size has no value, the class has no data to evaluate, or the
/// data contradicts itself (a bug in the op's declaration).
pub fn evaluate_op<T: Element>(
    op: OpRef,
    attrs: &Attrs,
    types: &[Type],
    operands: &[&Value<T>],
    dims: &Dims,
) -> Result<Value<T>, InterpError> {
    let result =
        infer(op, attrs, types).map_err(|diagnostic| InterpError::Invalid(Box::new(diagnostic)))?;
    let name = op.name();
    let shape = super::interpreter::sizes(op, &result.shape, dims)?;
    let ctx = OpCtx { attrs, operands: types };
    let space = Space { types, operands, dims, result: &result, shape: &shape };
    let outcome = match op.class() {
        OpClass::Pointwise(body) => pointwise(&space, &body(&ctx)),
        OpClass::Reduce(form) => fold::reduce(&space, &form(&ctx)),
        OpClass::Scan(form) => fold::scan(&space, &form(&ctx)),
        OpClass::Window(form) => fold::window(&space, &form(&ctx)),
        OpClass::Contraction(form) => fold::contraction(&space, &form(&ctx)),
        OpClass::Movement(form) => index::movement(&space, &form(&ctx)),
        OpClass::Composite(expand) => return expansion(op, *expand, &ctx, operands, dims),
        OpClass::Source(_) => return Err(InterpError::Source(name)),
        class @ (OpClass::Recurrent | OpClass::Opaque(_)) => {
            Err(format!("class {} has no data", class.name()))
        }
    };
    outcome.map_err(|message| InterpError::Lowering { op: name, message })
}

fn pointwise<T: Element>(space: &Space<'_, T>, body: &crate::ScalarExpr) -> Outcome<Value<T>> {
    for (ty, value) in space.types.iter().zip(space.operands) {
        if value.shape() != space.shape {
            return Err(format!(
                "an operand {ty} of shape {:?}, not {:?}",
                value.shape(),
                space.shape
            ));
        }
    }
    let count: usize = space.shape.iter().product();
    let elements = (0..count).map(|position| {
        let args: Vec<Typed<T>> =
            (0..space.operands.len()).map(|operand| space.element(operand, position)).collect();
        scalar(body, &args)
    });
    space.collect(elements)
}

type Expand = fn(&OpCtx<'_>, &mut Expansion<'_>) -> Result<crate::NodeId, crate::Diagnostic>;

/// The reference evaluation of a composite's expansion.
fn expansion<T: Element>(
    op: OpRef,
    expand: Expand,
    ctx: &OpCtx<'_>,
    operands: &[&Value<T>],
    dims: &Dims,
) -> Result<Value<T>, InterpError> {
    let invalid = |diagnostic| InterpError::Invalid(Box::new(diagnostic));
    let mut graph = Graph::new(op.name());
    let mut inputs = Vec::new();
    for (position, ty) in ctx.operands.iter().enumerate() {
        inputs.push(graph.input(&position.to_string(), ty.clone()).map_err(invalid)?);
    }
    let loc = LocSet::none();
    let mut target = Expansion { graph: &mut graph, operands: &inputs, loc: &loc };
    let result = expand(ctx, &mut target).map_err(invalid)?;
    let expected = infer(op, ctx.attrs, ctx.operands).map_err(invalid)?;
    if *graph.ty(result) != expected {
        let message = format!("the expansion is {}, not {expected}", graph.ty(result));
        return Err(InterpError::Lowering { op: op.name(), message });
    }
    graph.output("result", result);
    let inputs = operands.iter().map(|&operand| operand.clone()).collect();
    let interpreter =
        Interpreter::from_values(&graph, inputs, std::collections::BTreeMap::new(), dims.clone())?;
    Ok(interpreter.outputs()?.swap_remove(0))
}

impl<T: Element> Space<'_, T> {
    /// The element of an operand at a row-major position.
    fn element(&self, operand: usize, position: usize) -> Typed<T> {
        let number = match self.operands[operand] {
            Value::Float(array) => Number::Float(array.data[position]),
            Value::Int(array) => Number::Int(array.data[position]),
        };
        Typed { dtype: self.types[operand].dtype, number }
    }

    /// The result from its elements in row-major order.
    fn collect(&self, elements: impl Iterator<Item = Outcome<Typed<T>>>) -> Outcome<Value<T>> {
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        for element in elements {
            let element = element?;
            if element.dtype != self.result.dtype {
                return Err(format!("an element is {}, not {}", element.dtype, self.result.dtype));
            }
            match element.number {
                Number::Float(number) => floats.push(number),
                Number::Int(number) => ints.push(number),
            }
        }
        Ok(if self.result.dtype.is_float() {
            Value::Float(Array::new(self.shape, floats))
        } else {
            Value::Int(Array::new(self.shape, ints))
        })
    }

    /// All positions of the result in row-major order.
    fn positions(&self) -> Positions {
        Positions::new(self.shape)
    }
}
