//! Opcodes: a name and modifiers, each of which a decoder must take.

use super::super::parse::{Instruction, Operand, Type};
use super::super::program::Rounding;

/// An opcode with the modifiers that are not yet taken.
pub(super) struct Opcode<'a> {
    /// The part before the first dot.
    pub(super) name: &'a str,
    /// The operands.
    pub(super) operands: &'a [Operand],
    parts: Vec<Option<&'a str>>,
}

impl<'a> Opcode<'a> {
    pub(super) fn new(instruction: &'a Instruction) -> Opcode<'a> {
        let mut parts = instruction.opcode.iter().map(String::as_str);
        let name = parts.next().unwrap_or("");
        Opcode { name, operands: &instruction.operands, parts: parts.map(Some).collect() }
    }

    /// Whether the last modifier is a floating-point type.
    pub(super) fn ends_in_float(&self) -> bool {
        let last = self.parts.last().copied().flatten();
        last.and_then(Type::from_name).is_some_and(Type::is_float)
    }

    /// Takes a modifier if it is there.
    pub(super) fn take(&mut self, part: &str) -> bool {
        for slot in &mut self.parts {
            if *slot == Some(part) {
                *slot = None;
                return true;
            }
        }
        false
    }

    /// Takes whichever of the modifiers is there.
    pub(super) fn take_any<'b>(&mut self, parts: &[&'b str]) -> Option<&'b str> {
        parts.iter().copied().find(|part| self.take(part))
    }

    /// Takes the first modifier for which `find` has a value.
    pub(super) fn take_map<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        for slot in &mut self.parts {
            if let Some(value) = slot.and_then(&find) {
                *slot = None;
                return Some(value);
            }
        }
        None
    }

    /// Takes the first modifier that is a type.
    pub(super) fn take_type(&mut self) -> Option<Type> {
        self.take_map(Type::from_name)
    }

    /// Takes a rounding modifier of floating-point results.
    pub(super) fn take_rounding(&mut self) -> Option<Rounding> {
        self.take_map(|part| {
            Some(match part {
                "rn" => Rounding::Nearest,
                "rna" => Rounding::NearestAway,
                "rz" => Rounding::Zero,
                "rm" => Rounding::Down,
                "rp" => Rounding::Up,
                _ => return None,
            })
        })
    }

    /// A modifier that nothing took.
    pub(super) fn unused(&self) -> Option<&'a str> {
        self.parts.iter().copied().flatten().next()
    }
}
