//! Einstein summation of two operands.

use fornax_bundle::Dim;

use super::contraction::{Ring, accumulator, eval_sum_of_products, require_numbers, zeros};
use super::{
    Arity, AxisRole, ContractionForm, ContractionKind, OpClass, OpCtx, OpDef, OperandMap, Violation, require,
};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, IndexExpr, Type, eval_polynomial};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "einsum",
    arity: Arity::Exactly(2),
    attrs: &[("equation", AttrKind::Text)],
    infer,
    eval: eval_polynomial!(eval),
    class: OpClass::Contraction(form),
    doc: "Sum of products over the letters that the result does not have, such as `bij,bjk->bik`. \
          Integers wrap; floats narrower than 32 bits are accumulated in `f32`. (C1) `equation` is \
          two lists of lower-case letters and the result's, `left,right->result`, none with a \
          letter twice. (C2) Each list has one letter per axis. (C3) A letter stands for one size. \
          (C4) Each letter of the result is in an operand, and each letter of an operand is in the \
          other or the result. (C5) Both operands have one element type, a number. Source: ONNX \
          Einsum, opset 12.",
}];

/// The letters of an equation.
struct Equation<'a> {
    left: &'a [u8],
    right: &'a [u8],
    result: &'a [u8],
}

impl<'a> Equation<'a> {
    fn parse(text: &'a str) -> Option<Equation<'a>> {
        let (operands, result) = text.split_once("->")?;
        let (left, right) = operands.split_once(',')?;
        let [left, right, result] = [left, right, result].map(str::as_bytes);
        let distinct = |letters: &[u8]| {
            letters.iter().enumerate().all(|(i, letter)| {
                letter.is_ascii_lowercase() && !letters[..i].contains(letter)
            })
        };
        let valid = distinct(left) && distinct(right) && distinct(result);
        valid.then_some(Equation { left, right, result })
    }

    /// The equation of a node that inference accepted.
    fn of(text: &'a str) -> Equation<'a> {
        Equation::parse(text).expect("invariant: inference checked the equation")
    }

    /// The summed letters, in the order of the left operand.
    fn summed(&self) -> impl Iterator<Item = u8> {
        self.left.iter().copied().filter(|letter| !self.result.contains(letter))
    }

    /// The iteration axes' letters: those of the result, then the summed ones.
    fn letters(&self) -> Vec<u8> {
        self.result.iter().copied().chain(self.summed()).collect()
    }
}

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (a, b) = (&ctx.operands[0], &ctx.operands[1]);
    let text = ctx.attrs.text("equation");
    let Some(equation) = Equation::parse(text) else {
        let message = format!("`{text}` is not `left,right->result` with distinct lower-case letters");
        return Err(Violation::new("C1", message));
    };
    for (ty, letters) in [(a, equation.left), (b, equation.right)] {
        require(ty.rank() == letters.len(), "C2", || {
            format!("`{text}` has {} letters for {ty}", letters.len())
        })?;
    }
    for (axis, letter) in equation.left.iter().enumerate() {
        if let Some(other) = equation.right.iter().position(|other| other == letter) {
            let (left, right) = (&a.shape[axis], &b.shape[other]);
            require(left == right, "C3", || {
                format!("`{}` is {left} in {a} and {right} in {b}", char::from(*letter))
            })?;
        }
    }
    let lists = [equation.left, equation.right, equation.result];
    for &letter in lists.concat().iter() {
        let uses = lists.iter().filter(|letters| letters.contains(&letter)).count();
        require(uses >= 2, "C4", || {
            format!("`{}` is in only one list of `{text}`", char::from(letter))
        })?;
    }
    require_numbers(a, b, "C5")?;
    let shape: Vec<Dim> = equation.result.iter().map(|&l| size(&equation, a, b, l)).collect();
    Ok(Type::new(a.dtype, shape))
}

fn size(equation: &Equation<'_>, a: &Type, b: &Type, letter: u8) -> Dim {
    let of = |letters: &[u8], ty: &Type| {
        letters.iter().position(|&other| other == letter).map(|axis| ty.shape[axis].clone())
    };
    of(equation.left, a)
        .or_else(|| of(equation.right, b))
        .expect("invariant: each letter is in an operand")
}

fn form(ctx: &OpCtx<'_>) -> ContractionForm {
    let (a, b) = (&ctx.operands[0], &ctx.operands[1]);
    let equation = Equation::of(ctx.attrs.text("equation"));
    let letters = equation.letters();
    let role = |letter: &u8| {
        let list = [equation.left, equation.right, equation.result];
        match list.map(|letters| letters.contains(letter)) {
            [_, _, false] => AxisRole::Inner,
            [true, true, true] => AxisRole::Batch,
            [true, false, true] => AxisRole::Rows,
            [false, _, true] => AxisRole::Columns,
        }
    };
    let position = |letter: &u8| {
        let axis = letters.iter().position(|other| other == letter);
        IndexExpr::axis(axis.expect("invariant: every letter is an iteration axis"))
    };
    let operand = |letters: &[u8]| OperandMap {
        index: letters.iter().map(position).collect(),
        guards: Vec::new(),
    };
    ContractionForm {
        axes: letters.iter().map(|l| (size(&equation, a, b, *l), role(l))).collect(),
        lhs: operand(equation.left),
        rhs: operand(equation.right),
        out: (0..equation.result.len()).map(IndexExpr::axis).collect(),
        accumulator: accumulator(a.dtype),
        kind: ContractionKind::Product,
    }
}

fn eval<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    eval_sum_of_products!(ctx, operands, sum_products)
}

fn sum_products<R: Ring>(ctx: &EvalCtx<'_>, a: &Array<R>, b: &Array<R>) -> Array<R> {
    let equation = Equation::of(ctx.attrs.text("equation"));
    let left = |letter| stride_and_size(equation.left, &a.shape, letter);
    let right = |letter| stride_and_size(equation.right, &b.shape, letter);
    let summed: Vec<Loop> = equation
        .summed()
        .map(|letter| Loop { size: left(letter).1, left: left(letter).0, right: right(letter).0 })
        .collect();
    let kept: Vec<Loop> = std::iter::zip(equation.result, ctx.shape)
        .map(|(&letter, &size)| Loop { size, left: left(letter).0, right: right(letter).0 })
        .collect();
    let mut out = zeros(ctx.shape);
    let mut position = 0;
    for_each(&kept, 0, 0, &mut |left, right| {
        let mut sum = (R::ZERO)();
        for_each(&summed, left, right, &mut |left, right| {
            sum = sum.add_product(a.data[left], b.data[right]);
        });
        out.data[position] = sum;
        position += 1;
    });
    out
}

/// One loop, with the distance that a step goes in each operand.
struct Loop {
    size: usize,
    left: usize,
    right: usize,
}

/// Calls `body` with the operands' positions for each position of nested loops.
fn for_each(loops: &[Loop], left: usize, right: usize, body: &mut impl FnMut(usize, usize)) {
    match loops {
        [] => body(left, right),
        [only] => (0..only.size).for_each(|i| body(left + i * only.left, right + i * only.right)),
        [outer, inner @ ..] => {
            for i in 0..outer.size {
                for_each(inner, left + i * outer.left, right + i * outer.right, body);
            }
        }
    }
}

/// The row-major stride and the size of a letter's axis; stride 0 where the operand lacks the letter.
fn stride_and_size(letters: &[u8], shape: &[usize], letter: u8) -> (usize, usize) {
    match letters.iter().position(|&other| other == letter) {
        Some(axis) => (shape[axis + 1..].iter().product(), shape[axis]),
        None => (0, 1),
    }
}
