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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{AxisRole, ContractionForm, MovementForm, OperandMap};
    use crate::{BinaryFn, DType, Dim, IndexExpr, ScalarExpr};

    /// Evaluates class data over two operands `[0, 1, 2]` for a result of type `f32[3]`.
    fn planted<V>(check: impl Fn(&Space<'_, f64>) -> Outcome<V>) -> Outcome<V> {
        let ty = Type::new(DType::F32, [3usize].as_slice());
        let x = Value::Float(Array::new([3], vec![0.0, 1.0, 2.0]));
        check(&Space {
            types: &[ty.clone(), ty.clone()],
            operands: &[&x, &x],
            dims: &Dims::new(),
            result: &ty,
            shape: &[3],
        })
    }

    #[test]
    fn an_index_outside_is_found() {
        let shifted = MovementForm::total(0, vec![IndexExpr::axis(0).plus(IndexExpr::size(1i64))]);
        let error = planted(|space| index::movement(space, &shifted)).unwrap_err();
        assert_eq!(error, "index [3] at [2] is outside operand 0 of shape [3]");
        let missing = MovementForm { cases: Vec::new(), fill: None };
        let error = planted(|space| index::movement(space, &missing)).unwrap_err();
        assert_eq!(error, "no element for some positions");
    }

    #[test]
    fn a_body_of_unlike_types_is_found() {
        let one = ScalarExpr::number(DType::F64, 1.0);
        let sum = ScalarExpr::arg(0).binary(BinaryFn::Add, one.clone());
        let error = planted(|space| pointwise(space, &sum)).unwrap_err();
        assert_eq!(error, "Add of f32 and f64");
        let error = planted(|space| pointwise(space, &one)).unwrap_err();
        assert_eq!(error, "an element is f64, not f32");
    }

    #[test]
    fn a_contraction_that_gives_no_or_two_elements_is_found() {
        let map = || OperandMap { index: vec![IndexExpr::axis(0)], guards: Vec::new() };
        let form = |count: i64, out: IndexExpr| ContractionForm {
            axes: vec![(Dim::constant(count), AxisRole::Batch)],
            lhs: map(),
            rhs: map(),
            out: vec![out],
            accumulator: DType::F32,
        };
        let squares = planted(|space| fold::contraction(space, &form(3, IndexExpr::axis(0))));
        assert_eq!(squares.unwrap().float().data, [0.0, 1.0, 4.0]);
        let short = planted(|space| fold::contraction(space, &form(2, IndexExpr::axis(0))));
        assert_eq!(short.unwrap_err(), "an element is not given");
        let twice = planted(|space| fold::contraction(space, &form(3, IndexExpr::size(0i64))));
        assert_eq!(twice.unwrap_err(), "the result's element [0] is given twice");
    }
}
