//! Where arrays lie in a block's shared memory.

use fornax_bundle::DType;
use inkwell::AddressSpace;
use inkwell::module::Linkage;
use inkwell::values::PointerValue;

use super::fold_plan;
use super::ir::{Ir, SHARED};
use crate::kernel::{Block, Instruction, Kernel};
use crate::{CodegenError, Target};

/// The most shared memory a module may declare statically, in bytes (PTX ISA, ".shared").
const STATIC_LIMIT: u32 = 48 * 1024;
/// Arrays start at multiples of this, in bytes, so that vector accesses are aligned.
const ALIGN: u32 = 16;
/// Swizzled arrays start at multiples of this, in bytes: the pattern is one of addresses (PTX ISA,
/// "Matrix Descriptor Format", base offset 0).
const SWIZZLED_ALIGN: u32 = 1024;

/// Offsets in one array of bytes, which is static as long as it may be and dynamic beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedLayout {
    /// Offset of each array, in bytes.
    pub offsets: Vec<u32>,
    /// Offset of the scratch memory of reductions and scans.
    pub scratch: Option<u32>,
    /// Bytes in all.
    pub bytes: u32,
    /// The whole starts at a multiple of this, in bytes.
    align: u32,
}

impl SharedLayout {
    /// Places a kernel's arrays and scratch memory.
    pub fn new(kernel: &Kernel, target: Target) -> Result<SharedLayout, CodegenError> {
        let mut end: u64 = 0;
        let mut place = |bytes: u64, align: u32| {
            let offset = end.next_multiple_of(align.into());
            end = offset + bytes.next_multiple_of(ALIGN.into());
            offset as u32
        };
        let offsets = kernel
            .shared
            .iter()
            .map(|array| {
                let align = if array.swizzled { SWIZZLED_ALIGN } else { ALIGN };
                place(u64::from(array.len) * array.dtype.size() as u64, align)
            })
            .collect();
        let scratch = match scratch_bytes(kernel, &kernel.body) {
            0 => None,
            bytes => Some(place(bytes, ALIGN)),
        };
        let available = target.max_shared_bytes();
        if end > available.into() {
            let kernel = kernel.name.clone();
            return Err(CodegenError::SharedMemory { kernel, target, needed: end, available });
        }
        let swizzled = kernel.shared.iter().any(|array| array.swizzled);
        let align = if swizzled { SWIZZLED_ALIGN } else { ALIGN };
        Ok(SharedLayout { offsets, scratch, bytes: end as u32, align })
    }

    /// Bytes that the launch has to ask for.
    pub fn dynamic_bytes(&self) -> u32 {
        if self.bytes > STATIC_LIMIT { self.bytes } else { 0 }
    }

    /// Declares the array; none when it would be empty.
    pub fn declare<'c>(&self, ir: &Ir<'c>) -> Option<PointerValue<'c>> {
        if self.bytes == 0 {
            return None;
        }
        let dynamic = self.dynamic_bytes() > 0;
        let length = if dynamic { 0 } else { self.bytes };
        let ty = ir.context.i8_type().array_type(length);
        let array = ir.module.add_global(ty, Some(AddressSpace::from(SHARED)), "shared_memory");
        if dynamic {
            array.set_linkage(Linkage::External);
        } else {
            array.set_linkage(Linkage::Internal);
            array.set_initializer(&ty.get_poison());
        }
        array.set_alignment(self.align);
        Some(array.as_pointer_value())
    }
}

/// Bytes of an element in scratch memory, where narrow floats keep their 32 bits.
pub(super) fn scratch_size(dtype: DType) -> u32 {
    if dtype.is_float() { dtype.size().max(4) as u32 } else { dtype.size() as u32 }
}

fn scratch_bytes(kernel: &Kernel, block: &Block) -> u64 {
    let needs = block.0.iter().map(|statement| match &statement.instruction {
        Instruction::Reduce { dim, values, combine }
        | Instruction::Scan { dim, values, combine } => {
            let scan = matches!(statement.instruction, Instruction::Scan { .. });
            let layout = kernel.values[values[0].0 as usize].layout();
            let layout = layout.expect("invariant: the verifier checks that fragments are folded");
            let ordered = scan || !fold_plan::is_commutative(combine);
            let steps = fold_plan::steps(layout, *dim, ordered);
            let exchanged = u64::from(fold_plan::exchanged(layout, *dim, &steps));
            let sizes = values.iter().map(|value| {
                let size = scratch_size(kernel.values[value.0 as usize].dtype());
                (exchanged * u64::from(size)).next_multiple_of(ALIGN.into())
            });
            sizes.sum()
        }
        Instruction::Ticket { .. } => ALIGN.into(),
        Instruction::For { body, .. } | Instruction::If { body, .. } => scratch_bytes(kernel, body),
        _ => 0,
    });
    needs.max().unwrap_or(0)
}
