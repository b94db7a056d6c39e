//! Evaluating ops by their class data instead of their reference evaluation.
//!
//! This says what the lowering of an op means: scalar expressions, index maps, folds and expansions are
//! carried out element by element, as slowly as it takes. The two ways to evaluate share no formula; the
//! generic tests hold them against each other for every op. Class data that contradicts itself (an index
//! outside its operand, a function of unlike types) is an error here, not a wrong result.

mod affine;
mod fold;
mod index;
mod recurrent;
mod sampled;
mod scalar;

pub use sampled::{evaluate_samples, operations, symbols};
pub use scalar::{Number, Typed, scalar};

use std::cell::OnceCell;

use fornax_bundle::Dims;

use super::{Array, Element, InterpError, Interpreter, Value};
use crate::op::{
    ContractionForm, Expansion, MovementForm, OpClass, OpCtx, OpRef, RecurrentForm, ReduceForm,
    ScanForm, WindowForm,
};
use crate::{Attrs, Graph, LocSet, ScalarExpr, Type, infer};
use index::{Elements, Outcome, Positions, Space};

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
    if let OpClass::Composite(expand) = op.class() {
        return expansion(op, *expand, &ctx, operands, dims);
    }
    let form = Form::of(op.class(), &ctx).ok_or_else(|| no_data(op))?;
    let operands: Vec<&dyn Elements<T>> =
        operands.iter().map(|&operand| operand as &dyn Elements<T>).collect();
    let space = Space { types, operands: &operands, dims, result: &result, shape: &shape };
    form.whole(&space).map_err(|message| InterpError::Lowering { op: name, message })
}

/// The class data of an op that is evaluated element by element.
#[derive(Debug)]
enum Form {
    Pointwise(ScalarExpr),
    Reduce(ReduceForm),
    Scan(ScanForm),
    Window(WindowForm),
    Contraction(ContractionForm),
    Movement(MovementForm),
    Recurrent(RecurrentForm),
}

/// Gives a result's element at an index.
type ElementAt<'s, T> = dyn Fn(&[i64]) -> Outcome<Typed<T>> + 's;

fn no_data(op: OpRef) -> InterpError {
    match op.class() {
        OpClass::Source(_) => InterpError::Source(op.name()),
        class => InterpError::Lowering {
            op: op.name(),
            message: format!("class {} has no data", class.name()),
        },
    }
}

impl Form {
    fn of(class: &OpClass, ctx: &OpCtx<'_>) -> Option<Form> {
        Some(match class {
            OpClass::Pointwise(body) => Form::Pointwise(body(ctx)),
            OpClass::Reduce(form) => Form::Reduce(form(ctx)),
            OpClass::Scan(form) => Form::Scan(form(ctx)),
            OpClass::Window(form) => Form::Window(form(ctx)),
            OpClass::Contraction(form) => Form::Contraction(form(ctx)),
            OpClass::Movement(form) => Form::Movement(form(ctx)),
            OpClass::Recurrent(form) => Form::Recurrent(form(ctx)),
            OpClass::Source(_) | OpClass::Composite(_) | OpClass::Opaque(_) => return None,
        })
    }

    /// The whole result.
    fn whole<T: Element>(&self, space: &Space<'_, T>) -> Outcome<Value<T>> {
        if let Form::Contraction(form) = self {
            return fold::Product::new(space, form)?.whole(space);
        }
        if let Form::Recurrent(form) = self {
            return Ok(Value::Float(recurrent::whole(space, form)?));
        }
        let elements = self.elements(space)?;
        space.collect(Positions::new(space.shape).map(|at| elements(&at)))
    }

    /// What gives the result's element at an index.
    fn elements<'s, T: Element>(
        &'s self,
        space: &'s Space<'_, T>,
    ) -> Outcome<Box<ElementAt<'s, T>>> {
        Ok(match self {
            Form::Pointwise(body) => {
                check_pointwise(space)?;
                Box::new(move |at| pointwise(space, body, at))
            }
            Form::Reduce(form) => Box::new(move |at| fold::reduce(space, form, at)),
            Form::Scan(form) => Box::new(move |at| fold::scan(space, form, at)),
            Form::Window(form) => Box::new(move |at| fold::window(space, form, at)),
            Form::Contraction(form) => {
                let product = fold::Product::new(space, form)?;
                Box::new(move |at| product.element(space, at))
            }
            Form::Movement(form) => {
                index::check_movement(form)?;
                Box::new(move |at| index::movement(space, form, at))
            }
            Form::Recurrent(form) => {
                // Each element depends on all of a sequence: all of them are computed, at the first.
                let whole = OnceCell::new();
                Box::new(move |at| {
                    let position = index::flatten(at, space.shape).ok_or("an index outside")?;
                    let value: &Outcome<Array<T>> =
                        whole.get_or_init(|| recurrent::whole(space, form));
                    let number =
                        Number::Float(value.as_ref().map_err(Clone::clone)?.data[position]);
                    Ok(Typed { dtype: space.result.dtype, number })
                })
            }
        })
    }
}

fn check_pointwise<T: Element>(space: &Space<'_, T>) -> Outcome<()> {
    for (ty, value) in space.types.iter().zip(space.operands) {
        if value.shape() != space.shape {
            return Err(format!(
                "an operand {ty} of shape {:?}, not {:?}",
                value.shape(),
                space.shape
            ));
        }
    }
    Ok(())
}

fn pointwise<T: Element>(space: &Space<'_, T>, body: &ScalarExpr, at: &[i64]) -> Outcome<Typed<T>> {
    let position = index::flatten(at, space.shape).ok_or("an index outside the result")?;
    let args: Vec<Typed<T>> =
        (0..space.operands.len()).map(|operand| space.element(operand, position)).collect();
    scalar(body, &args)
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
        let number = self.operands[operand].number(position);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{AxisRole, ContractionForm, ContractionKind, MovementForm, OperandMap};
    use crate::{BinaryFn, DType, Dim, IndexExpr, ScalarExpr};

    /// Evaluates class data over two operands `[0, 1, 2]` for a result of type `f32[3]`.
    fn planted<V>(check: impl Fn(&Space<'_, f64>) -> Outcome<V>) -> Outcome<V> {
        let ty = Type::new(DType::F32, [3usize].as_slice());
        let x = Value::Float(Array::new([3], vec![0.0, 1.0, 2.0]));
        check(&Space {
            types: &[ty.clone(), ty.clone()],
            operands: &[&x as &dyn Elements<f64>, &x],
            dims: &Dims::new(),
            result: &ty,
            shape: &[3],
        })
    }

    #[test]
    fn an_index_outside_is_found() {
        let shifted = MovementForm::total(0, vec![IndexExpr::axis(0).plus(IndexExpr::size(1i64))]);
        let error = planted(|space| Form::Movement(shifted.clone()).whole(space)).unwrap_err();
        assert_eq!(error, "index [3] at [2] is outside operand 0 of shape [3]");
        let missing = MovementForm { cases: Vec::new(), fill: None };
        let error = planted(|space| Form::Movement(missing.clone()).whole(space)).unwrap_err();
        assert_eq!(error, "no element for some positions");
    }

    #[test]
    fn a_body_of_unlike_types_is_found() {
        let one = ScalarExpr::number(DType::F64, 1.0);
        let sum = ScalarExpr::arg(0).binary(BinaryFn::Add, one.clone());
        let error = planted(|space| Form::Pointwise(sum.clone()).whole(space)).unwrap_err();
        assert_eq!(error, "Add of f32 and f64");
        let error = planted(|space| Form::Pointwise(one.clone()).whole(space)).unwrap_err();
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
            kind: ContractionKind::Product,
        };
        let whole =
            |form: ContractionForm| planted(|space| Form::Contraction(form.clone()).whole(space));
        let squares = whole(form(3, IndexExpr::axis(0)));
        assert_eq!(squares.unwrap().float().data, [0.0, 1.0, 4.0]);
        let short = whole(form(2, IndexExpr::axis(0)));
        assert_eq!(short.unwrap_err(), "an element is not given");
        let twice = whole(form(3, IndexExpr::size(0i64)));
        assert_eq!(twice.unwrap_err(), "the result's element [0] is given twice");
    }
}
