//! Reading and writing memory in groups of up to 16 bytes.
//!
//! Accesses without a mask are LLVM's own. An access with a mask is predicated inline PTX: LLVM would
//! branch around it, which keeps loads from being in flight together, and where the mask is false no
//! memory may be touched (an operand may be an empty tensor).

use fornax_bundle::DType;
use fornax_ir::Scalar;
use inkwell::IntPredicate;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::ir::{Assembly, Ir};

/// An array in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Array<'c> {
    /// Its first element.
    pub base: PointerValue<'c>,
    /// What its elements are stored as.
    pub dtype: DType,
    /// Where it lies.
    pub space: Space,
}

/// Where an array lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// Global memory that no thread of the grid writes.
    Constant,
    /// Global memory.
    Global,
    /// Shared memory.
    Shared,
}

impl Space {
    fn suffix(self, load: bool) -> &'static str {
        match self {
            Space::Constant if load => "global.nc",
            Space::Constant | Space::Global => "global",
            Space::Shared => "shared",
        }
    }
}

/// The largest access, in bytes (PTX ISA, "ld": vectors of at most 128 bits below sm_100).
const MAX_ACCESS: u32 = 16;

/// How inline PTX moves a number of bytes: as `count` words of `bits`.
#[derive(Debug, Clone, Copy)]
struct Words {
    bits: u32,
    count: u32,
}

impl Words {
    fn new(element_bytes: u32, bytes: u32) -> Words {
        let word = if element_bytes == 8 { 8 } else { bytes.min(4) };
        Words { bits: 8 * word, count: bytes / word }
    }

    fn suffix(self) -> String {
        match self.count {
            1 => format!("b{}", self.bits),
            count => format!("v{count}.b{}", self.bits),
        }
    }

    /// The register that holds a word: PTX has none of 8 bits.
    fn register_bits(self) -> u32 {
        self.bits.max(16)
    }

    fn constraint(self) -> &'static str {
        match self.register_bits() {
            16 => "h",
            32 => "r",
            _ => "l",
        }
    }

    /// `$first, $first+1, ...`, in braces for a vector.
    fn operands(self, first: u32) -> String {
        let names: Vec<String> = (first..first + self.count).map(|n| format!("${n}")).collect();
        if self.count == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
    }
}

impl<'c> Ir<'c> {
    /// Reads `count` adjacent elements, `otherwise` where the mask is false.
    pub fn read(
        &self,
        array: Array<'c>,
        offset: IntValue<'c>,
        mask: Option<(IntValue<'c>, Scalar)>,
        count: u32,
    ) -> Vec<BasicValueEnum<'c>> {
        let each = count.min(MAX_ACCESS / array.dtype.size() as u32);
        let address = self.address(array, offset);
        let mut elements = Vec::new();
        for first in (0..count).step_by(each as usize) {
            let at = self.address_after(array, address, first);
            elements.extend(match mask {
                None => self.read_plain(array, at, each),
                Some((mask, otherwise)) => self.read_masked(array, at, mask, otherwise, each),
            });
        }
        elements
    }

    /// Writes adjacent elements, only where the mask is true.
    pub fn write(
        &self,
        array: Array<'c>,
        offset: IntValue<'c>,
        mask: Option<IntValue<'c>>,
        elements: &[BasicValueEnum<'c>],
    ) {
        let each = elements.len().min((MAX_ACCESS as usize) / array.dtype.size());
        let address = self.address(array, offset);
        for (group, elements) in elements.chunks(each).enumerate() {
            let at = self.address_after(array, address, (group * each) as u32);
            let stored: Vec<BasicValueEnum> =
                elements.iter().map(|&element| self.to_storage(array.dtype, element)).collect();
            let value = if stored.len() == 1 { stored[0] } else { self.vector(&stored) };
            let bytes = (stored.len() * array.dtype.size()) as u32;
            match mask {
                None => self.store(value, at, bytes),
                Some(mask) => self.write_masked(array, at, mask, value, bytes),
            }
        }
    }

    /// The address of an element. In shared memory 32 bits suffice, in global memory not.
    pub fn address(&self, array: Array<'c>, offset: IntValue<'c>) -> PointerValue<'c> {
        let offset = self.resize(true, offset, 64);
        self.element_address(self.storage_type(array.dtype), array.base, offset)
    }

    fn address_after(
        &self,
        array: Array<'c>,
        address: PointerValue<'c>,
        elements: u32,
    ) -> PointerValue<'c> {
        let offset = self.i64(elements.into());
        self.element_address(self.storage_type(array.dtype), address, offset)
    }

    fn read_plain(
        &self,
        array: Array<'c>,
        address: PointerValue<'c>,
        count: u32,
    ) -> Vec<BasicValueEnum<'c>> {
        let storage = self.storage_type(array.dtype);
        let align = count * array.dtype.size() as u32;
        let value = self.load(vector_of(storage, count), address, align);
        self.loaded_elements(array.dtype, value, count)
    }

    fn read_masked(
        &self,
        array: Array<'c>,
        address: PointerValue<'c>,
        mask: IntValue<'c>,
        otherwise: Scalar,
        count: u32,
    ) -> Vec<BasicValueEnum<'c>> {
        let size = array.dtype.size() as u32;
        let words = Words::new(size, size * count);
        let stored = self.to_storage(array.dtype, self.number(otherwise));
        let preset = if count == 1 { stored } else { self.vector(&vec![stored; count as usize]) };
        let mut operands = vec![self.address_operand(array, address), mask.into()];
        operands.extend(self.to_words(words, preset));
        let n = words.count;
        let mut constraints = vec![format!("={}", words.constraint()); n as usize];
        constraints.extend([address_constraint(array.space).to_owned(), "b".to_owned()]);
        constraints.extend((0..n).map(|n| n.to_string()));
        let effects = array.space != Space::Constant;
        if effects {
            constraints.push("~{memory}".to_owned());
        }
        let assembly = Assembly {
            text: format!(
                "@${} ld.{}.{} {}, [${n}];",
                n + 1,
                array.space.suffix(true),
                words.suffix(),
                words.operands(0)
            ),
            constraints: constraints.join(","),
            effects,
        };
        let word: BasicTypeEnum = self.int_type(words.register_bits()).into();
        let result = if n == 1 {
            word
        } else {
            self.context.struct_type(&vec![word; n as usize], false).into()
        };
        let result = self
            .assembly(assembly, Some(result), &operands)
            .expect("invariant: a load gives a value");
        let read: Vec<BasicValueEnum> = match n {
            1 => vec![result],
            _ => (0..n).map(|index| self.field(result, index)).collect(),
        };
        let value =
            self.joined_words(words, &read, vector_of(self.storage_type(array.dtype), count));
        self.loaded_elements(array.dtype, value, count)
    }

    fn write_masked(
        &self,
        array: Array<'c>,
        address: PointerValue<'c>,
        mask: IntValue<'c>,
        value: BasicValueEnum<'c>,
        bytes: u32,
    ) {
        let words = Words::new(array.dtype.size() as u32, bytes);
        let mut operands = vec![self.address_operand(array, address), mask.into()];
        operands.extend(self.to_words(words, value));
        let mut constraints = vec![address_constraint(array.space), "b"];
        constraints.extend(vec![words.constraint(); words.count as usize]);
        constraints.push("~{memory}");
        let assembly = Assembly {
            text: format!(
                "@$1 st.{}.{} [$0], {};",
                array.space.suffix(false),
                words.suffix(),
                words.operands(2)
            ),
            constraints: constraints.join(","),
            effects: true,
        };
        self.assembly(assembly, None, &operands);
    }

    fn address_operand(&self, array: Array<'c>, address: PointerValue<'c>) -> BasicValueEnum<'c> {
        match array.space {
            Space::Shared => self.pointer_to_int(address, 32).into(),
            Space::Constant | Space::Global => address.into(),
        }
    }

    /// The bits of a stored element, or a vector of them, as words in registers.
    fn to_words(&self, words: Words, value: BasicValueEnum<'c>) -> Vec<BasicValueEnum<'c>> {
        let word: BasicTypeEnum = self.int_type(words.bits).into();
        let value = self.bit_cast(value, vector_of(word, words.count));
        let parts = match words.count {
            1 => vec![value],
            count => (0..count).map(|index| self.element(value, index)).collect(),
        };
        let widened = parts
            .into_iter()
            .map(|part| self.resize(false, part.into_int_value(), words.register_bits()).into());
        widened.collect()
    }

    fn joined_words(
        &self,
        words: Words,
        read: &[BasicValueEnum<'c>],
        to: BasicTypeEnum<'c>,
    ) -> BasicValueEnum<'c> {
        let parts: Vec<BasicValueEnum> = read
            .iter()
            .map(|word| self.resize(false, word.into_int_value(), words.bits).into())
            .collect();
        let value = if parts.len() == 1 { parts[0] } else { self.vector(&parts) };
        self.bit_cast(value, to)
    }

    fn loaded_elements(
        &self,
        dtype: DType,
        value: BasicValueEnum<'c>,
        count: u32,
    ) -> Vec<BasicValueEnum<'c>> {
        match count {
            1 => vec![self.loaded(dtype, value)],
            _ => (0..count).map(|index| self.loaded(dtype, self.element(value, index))).collect(),
        }
    }

    /// A stored element as it is kept in a register.
    pub fn loaded(&self, dtype: DType, value: BasicValueEnum<'c>) -> BasicValueEnum<'c> {
        match dtype {
            DType::F16 | DType::BF16 => {
                self.fext(value.into_float_value(), self.context.f32_type()).into()
            }
            DType::Bool => {
                let byte = value.into_int_value();
                self.compare(IntPredicate::NE, byte, self.int_like(byte, 0)).into()
            }
            _ => value,
        }
    }

    /// A value as it is stored: narrow floats are rounded here.
    pub fn to_storage(&self, dtype: DType, value: BasicValueEnum<'c>) -> BasicValueEnum<'c> {
        match dtype {
            DType::F16 => self.ftrunc(value.into_float_value(), self.context.f16_type()).into(),
            DType::BF16 => self.ftrunc(value.into_float_value(), self.context.bf16_type()).into(),
            DType::Bool => self.resize(false, value.into_int_value(), 8).into(),
            _ => value,
        }
    }

    /// A number as it is kept in a register.
    pub fn number(&self, number: Scalar) -> BasicValueEnum<'c> {
        match (number, self.register_type(number.dtype())) {
            (Scalar::Float(_, value), BasicTypeEnum::FloatType(ty)) => {
                ty.const_float(value.0).into()
            }
            (Scalar::Int(_, value), BasicTypeEnum::IntType(ty)) => {
                ty.const_int(value as u64, true).into()
            }
            (number, ty) => unreachable!("{number:?} is no {ty:?}"),
        }
    }
}

fn vector_of(element: BasicTypeEnum<'_>, count: u32) -> BasicTypeEnum<'_> {
    match element {
        _ if count == 1 => element,
        BasicTypeEnum::IntType(ty) => ty.vec_type(count).into(),
        BasicTypeEnum::FloatType(ty) => ty.vec_type(count).into(),
        other => unreachable!("{other:?} is no element of a vector"),
    }
}

fn address_constraint(space: Space) -> &'static str {
    match space {
        Space::Shared => "r",
        Space::Constant | Space::Global => "l",
    }
}
