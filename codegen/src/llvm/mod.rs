//! Kernel IR to PTX through LLVM's NVPTX back end. This folder alone knows LLVM.

mod copy;
mod diagnostics;
mod elementwise;
mod emitter;
mod exchange;
mod float_ops;
mod fold;
mod fold_plan;
mod integer;
mod ir;
mod matrix;
mod meet;
mod memory;
mod shared;
mod unroll;
mod wgmma;

use std::sync::Once;

use fornax_bundle::DType;
use inkwell::OptimizationLevel;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::llvm_sys::core::LLVMCreateConstantRangeAttribute;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as Backend, TargetMachine,
    TargetTriple,
};
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::FunctionValue;

use crate::kernel::{Block, Instruction, Kernel, Param, verify};
use crate::{CodegenError, PtxModule, Target};
use emitter::Emitter;
use ir::{GLOBAL, Ir};
use shared::SharedLayout;

/// LLVM's number of the calling convention that makes an `.entry` (`CallingConv::PTX_Kernel`).
const PTX_KERNEL: u32 = 71;

/// The version of LLVM that emits the code, such as `22.1.8`.
pub fn llvm_version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

/// Emits a kernel as PTX. The same kernel and target always give the same text.
///
/// # Errors
/// A function or element type that has no code, more shared memory than the target has, or a fault of
/// ours (a malformed kernel; LLVM refusing it).
pub fn emit_ptx(kernel: &Kernel, target: Target) -> Result<PtxModule, CodegenError> {
    let faults = verify(kernel);
    if !faults.is_empty() {
        return Err(CodegenError::Malformed { kernel: kernel.name.clone(), faults });
    }
    check_types(kernel)?;
    if !target.has_wgmma() && uses_wgmma(&kernel.body) {
        let kernel = kernel.name.clone();
        return Err(CodegenError::UnsupportedInstruction { kernel, target, instruction: "wgmma" });
    }
    let layout = SharedLayout::new(kernel, target)?;
    let context = Context::create();
    diagnostics::start(&context, &kernel.name, target.name());
    let refused = |message: String| {
        let kernel = kernel.name.clone();
        CodegenError::Llvm { kernel, target, message }
    };
    let machine = machine(target).map_err(refused)?;
    let ir = declare(&context, kernel, &machine);
    let ir = Emitter::new(ir, kernel, &layout).run()?;
    ir.module.verify().map_err(|message| refused(message.to_string()))?;
    optimize(&ir, &machine).map_err(refused)?;
    let text = machine
        .write_to_memory_buffer(&ir.module, FileType::Assembly)
        .map_err(|message| refused(message.to_string()))?;
    if let Some(message) = diagnostics::errors() {
        return Err(refused(message));
    }
    let text = String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned();
    Ok(PtxModule {
        text,
        entry: kernel.name.clone(),
        dynamic_shared_bytes: layout.dynamic_bytes(),
        threads: kernel.threads,
    })
}

fn uses_wgmma(block: &Block) -> bool {
    block.0.iter().any(|statement| match &statement.instruction {
        Instruction::Wgmma { .. }
        | Instruction::WgmmaRegisters { .. }
        | Instruction::WgmmaPlaces { .. } => true,
        Instruction::For { body, .. } | Instruction::If { body, .. } => uses_wgmma(body),
        _ => false,
    })
}

fn check_types(kernel: &Kernel) -> Result<(), CodegenError> {
    let params = kernel.params.iter().map(Param::dtype);
    let shared = kernel.shared.iter().map(|array| array.dtype);
    let values = kernel.values.iter().map(|ty| ty.dtype());
    match params
        .chain(shared)
        .chain(values)
        .find(|dtype| matches!(dtype, DType::F8E4M3 | DType::F8E5M2))
    {
        None => Ok(()),
        Some(dtype) => Err(CodegenError::UnsupportedType { kernel: kernel.name.clone(), dtype }),
    }
}

fn machine(target: Target) -> Result<TargetMachine, String> {
    static INITIALIZE: Once = Once::new();
    INITIALIZE.call_once(|| Backend::initialize_nvptx(&InitializationConfig::default()));
    let triple = TargetTriple::create("nvptx64-nvidia-cuda");
    let backend = Backend::from_triple(&triple).map_err(|message| message.to_string())?;
    let level = OptimizationLevel::Aggressive;
    backend
        .create_target_machine(
            &triple,
            target.name(),
            "",
            level,
            RelocMode::Default,
            CodeModel::Default,
        )
        .ok_or_else(|| format!("this LLVM has no code generator for {target}"))
}

/// A module with the entry function and its attributes, without code.
fn declare<'c>(context: &'c Context, kernel: &Kernel, machine: &TargetMachine) -> Ir<'c> {
    let module = context.create_module(&kernel.name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let pointer = context.ptr_type(inkwell::AddressSpace::from(GLOBAL));
    let types: Vec<BasicMetadataTypeEnum> = kernel
        .params
        .iter()
        .map(|param| match param {
            Param::Global { .. } => pointer.into(),
            Param::Scalar { dtype: DType::I64, .. } => context.i64_type().into(),
            Param::Scalar { .. } => context.i32_type().into(),
        })
        .collect();
    let function =
        module.add_function(&kernel.name, context.void_type().fn_type(&types, false), None);
    function.set_call_conventions(PTX_KERNEL);
    let ir = Ir { context, module, builder: context.create_builder(), function };
    let threads = kernel.threads.to_string();
    let bound = context.create_string_attribute("nvvm.maxntid", &threads);
    function.add_attribute(AttributeLoc::Function, bound);
    if kernel.resident > 1 {
        let blocks = kernel.resident.to_string();
        let bound = context.create_string_attribute("nvvm.minctasm", &blocks);
        function.add_attribute(AttributeLoc::Function, bound);
    }
    function.add_attribute(AttributeLoc::Function, ir.attribute("nounwind"));
    for (index, param) in (0..).zip(&kernel.params) {
        describe_param(&ir, function, index, param);
    }
    ir
}

fn describe_param(ir: &Ir<'_>, function: FunctionValue<'_>, index: u32, param: &Param) {
    let place = AttributeLoc::Param(index);
    match param {
        Param::Global { written, multiple, .. } => {
            // LLVM widens loads of three elements to four where the alignment lets it, which it then
            // must do inside of the array.
            function.set_param_alignment(index, *multiple);
            function.add_attribute(place, ir.attribute("noalias"));
            if !written {
                function.add_attribute(place, ir.attribute("readonly"));
            }
        }
        Param::Scalar { dtype, range, .. } => {
            let bits = 8 * dtype.size() as u32;
            let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            let low = range.min as u64 & mask;
            let high = (range.max as u64).wrapping_add(1) & mask;
            // An empty range and one of all numbers have no such attribute.
            if low != high && range.min <= range.max {
                let kind = Attribute::get_named_enum_kind_id("range");
                // SAFETY: the context lives; both bounds are one word of `bits` bits.
                let attribute = unsafe {
                    Attribute::new(LLVMCreateConstantRangeAttribute(
                        ir.context.raw(),
                        kind,
                        bits,
                        &low,
                        &high,
                    ))
                };
                function.add_attribute(place, attribute);
            }
        }
    }
}

fn optimize(ir: &Ir<'_>, machine: &TargetMachine) -> Result<(), String> {
    let options = PassBuilderOptions::create();
    options.set_loop_unrolling(true);
    ir.module.run_passes("default<O3>", machine, options).map_err(|message| message.to_string())
}
