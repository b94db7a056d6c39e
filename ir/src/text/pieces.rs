//! Pieces of text forms that are read by themselves, for tests and command lines.

use fornax_bundle::Tensor;

use super::TextErrors;
use super::literal::{SplatBudget, print_elements};
use super::parser::{Parse, Parser};
use crate::op::{self, OpRef};
use crate::{Attrs, Diagnostic, Type, infer};

/// An op with attributes and the types of its operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// The op.
    pub op: OpRef,
    /// Its attributes.
    pub attrs: Attrs,
    /// The operands' types.
    pub operands: Vec<Type>,
}

impl Application {
    /// The type of the result.
    ///
    /// # Errors
    /// When the op does not take these operands or attributes.
    pub fn infer(&self) -> Result<Type, Diagnostic> {
        infer(self.op, &self.attrs, &self.operands)
    }
}

/// Reads an op on operand types: `reduce_sum f32[8,N] {axes = [1], keepdims = true}`.
///
/// # Errors
/// All faults, when the text is none.
pub fn parse_application(text: &str) -> Result<Application, TextErrors> {
    whole(text, |parser| {
        let start = parser.start;
        let word = parser.word("an op")?;
        let Some(op) = op::by_name(word) else {
            return parser.fail(start, "op", format!("there is no op `{word}`"));
        };
        let mut operands = Vec::new();
        if parser.at_any_word() {
            operands.push(parser.ty()?);
            while parser.eat(",") {
                operands.push(parser.ty()?);
            }
        }
        let attrs = parser.attrs(op)?;
        Ok(Application { op, attrs, operands })
    })
}

/// Reads tensors: `f32[2] [1.0, 2.0], [3], i64[7] splat 0`. A tensor without a type has the one in its
/// place in `types`.
///
/// # Errors
/// All faults, when the text is none.
pub fn parse_tensors(text: &str, types: &[Type]) -> Result<Vec<Tensor>, TextErrors> {
    whole(text, |parser| {
        let mut tensors = Vec::new();
        while tensors.is_empty() || parser.eat(",") {
            let is_typed = parser.at_any_word() && !parser.at_word("splat");
            let ty = match types.get(tensors.len()) {
                _ if is_typed => parser.ty()?,
                Some(ty) => ty.clone(),
                None => return parser.unexpected("a tensor's type"),
            };
            tensors.push(parser.elements(&ty)?);
        }
        Ok(tensors)
    })
}

/// The text of a tensor, `f32[2] [1.0, 2.0]`.
pub fn print_tensor(tensor: &Tensor) -> String {
    let ty = Type::new(tensor.dtype(), tensor.shape());
    format!("{ty} {}", print_elements(tensor, &mut SplatBudget::default()))
}

fn whole<'a, T>(
    text: &'a str,
    read: impl FnOnce(&mut Parser<'a>) -> Parse<T>,
) -> Result<T, TextErrors> {
    let mut parser = Parser::new(text);
    match read(&mut parser).and_then(|value| parser.end().map(|()| value)) {
        Ok(value) if parser.errors.is_empty() => Ok(value),
        _ => Err(TextErrors::new(parser.errors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_are_inferred() {
        let infer = |text: &str| match parse_application(text).unwrap().infer() {
            Ok(ty) => ty.to_string(),
            Err(diagnostic) => diagnostic.to_string(),
        };
        assert_eq!(infer("matmul f32[N,3], f32[3,4]"), "f32[N,4]");
        assert_eq!(infer("iota {axis = 1, dtype = i64, shape = [2,N]}"), "i64[2,N]");
        assert_eq!(infer("matmul f32[]"), "error[matmul.arity]: `matmul` takes 2 operands, not 1");
        let errors = parse_application("matmul f32[2] f32[2]").unwrap_err();
        assert_eq!(
            errors.to_string(),
            "1:15: error[text-syntax]: expected the end of the text, found `f32`"
        );
    }

    #[test]
    fn tensors_take_the_types_of_their_places() {
        let types = [Type::new(fornax_bundle::DType::F32, [2usize].as_slice())];
        let tensors = parse_tensors("splat -0.0, i64[] [3]", &types).unwrap();
        let texts: Vec<String> = tensors.iter().map(print_tensor).collect();
        assert_eq!(texts, ["f32[2] splat -0.0", "i64[] [3]"]);
        assert!(parse_tensors("[1.0, 2.0], [3]", &types).is_err());
        assert!(parse_tensors("[1.0]", &types).is_err());
    }
}
