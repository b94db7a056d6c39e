//! How often LLVM unrolls a loop.

use inkwell::context::Context;
use inkwell::llvm_sys::core::{
    LLVMMDNodeInContext2, LLVMMDStringInContext2, LLVMMetadataAsValue, LLVMSetMetadata,
    LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use inkwell::values::{AsValueRef, InstructionValue};

/// Sets the number of rounds that become one; 1 forbids unrolling.
///
/// The `llvm.loop` node of the latch's branch has to refer to itself (LLVM Language Reference,
/// "llvm.loop"), which inkwell has no call for: a temporary node is replaced by the finished one.
pub(super) fn set(context: &Context, latch: InstructionValue<'_>, rounds: u32) {
    let count = context.i32_type().const_int(rounds.into(), false);
    // SAFETY: all nodes belong to `context`, which outlives the instruction; the strings and arrays are
    // read during the calls only.
    unsafe {
        let raw = context.raw();
        let name: &str =
            if rounds == 1 { "llvm.loop.unroll.disable" } else { "llvm.loop.unroll.count" };
        let mut property = vec![LLVMMDStringInContext2(raw, name.as_ptr().cast(), name.len())];
        if rounds != 1 {
            property.push(LLVMValueAsMetadata(count.as_value_ref()));
        }
        let property = LLVMMDNodeInContext2(raw, property.as_mut_ptr(), property.len());
        let placeholder = LLVMTemporaryMDNode(raw, std::ptr::null_mut(), 0);
        let mut operands = [placeholder, property];
        let node = LLVMMDNodeInContext2(raw, operands.as_mut_ptr(), operands.len());
        LLVMMetadataReplaceAllUsesWith(placeholder, node);
        let kind = context.get_kind_id("llvm.loop");
        LLVMSetMetadata(latch.as_value_ref(), kind, LLVMMetadataAsValue(raw, node));
    }
}
