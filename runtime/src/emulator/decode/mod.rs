//! Turns parsed kernels into [`Program`]s: operations are chosen, operands checked, labels and
//! symbols resolved, and registers packed into slots.
//!
//! A kernel is decoded twice. The first pass gives each register a slot of its own and records what
//! each instruction reads and writes; from that [`allocate`] packs registers of disjoint
//! lifetimes into common slots, and the second pass decodes with those.

mod allocate;
mod control;
mod convert;
mod float;
mod integer;
mod matrix;
mod memory;
mod opcode;
mod operand;
mod warp;

use std::collections::HashMap;
use std::sync::Arc;

use super::parse::{Instruction, Kernel, ParseResult, RegisterId, Source, Space, Variable};
use super::program::{
    AnySrc, AsyncProduct, Dst, Inst, Op, PredSrc, Program, RegisterCheck, SharedRange,
};
use allocate::Allocation;
use opcode::Opcode;

/// Bytes between shared variables that nothing may touch.
const SHARED_GAP_BYTES: u32 = 64;

/// Decodes a kernel. `globals` has the addresses of the module's global and constant variables,
/// `module_shared` its shared variables declared outside kernels.
pub(crate) fn decode(
    source: Source<'_>,
    text: &Arc<str>,
    kernel: &Kernel,
    globals: &HashMap<String, u64>,
    module_shared: &[Variable],
) -> ParseResult<Program> {
    let layout = Layout::new(source, kernel, module_shared)?;
    let first = Decoder::new(source, kernel, globals, &layout, None).run()?;
    let allocation = allocate::allocate(kernel, &first.flow, &first.code, &first.targets);
    let second = Decoder::new(source, kernel, globals, &layout, Some(&allocation)).run()?;
    let tracked_registers = allocation
        .tracked
        .iter()
        .map(|register| kernel.register_names[register.0 as usize].clone())
        .collect();
    let mut code = second.code;
    let register_checks = register_checks(&allocation, &second.flow);
    for check in &register_checks {
        code[check.pc as usize].checks_registers = true;
    }
    Ok(Program {
        name: kernel.name.clone(),
        text: text.clone(),
        parameters: kernel.parameters.iter().map(|p| (p.offset, p.n_bytes)).collect(),
        max_threads: kernel.max_threads,
        required_threads: kernel.required_threads,
        required_cluster: kernel.required_cluster,
        code,
        constants: second.constants,
        dsts: second.dsts,
        srcs: second.srcs,
        targets: second.targets,
        async_products: second.async_products,
        n_slots: allocation.n_slots,
        tracked_registers,
        register_checks,
        n_sites: second.n_sites,
        shared: layout.shared.clone(),
        static_shared_bytes: layout.static_shared_bytes,
        dynamic_shared_offset: layout.dynamic_shared_offset,
        local_bytes: layout.local_bytes,
        shared_grain: second.shared_grain,
        global_grain: second.global_grain,
    })
}

fn register_checks(allocation: &Allocation, flow: &[Flow]) -> Vec<RegisterCheck> {
    let index =
        |register: &RegisterId| Some(allocation.tracked.binary_search(register).ok()? as u32);
    let mut checks = Vec::new();
    for (pc, flow) in flow.iter().enumerate() {
        let tracked = |registers: &[RegisterId]| registers.iter().filter_map(index).collect();
        let (reads, writes): (Vec<u32>, Vec<u32>) = (tracked(&flow.uses), tracked(&flow.defs));
        let guard = flow.guard.as_ref().and_then(index);
        if !reads.is_empty() || !writes.is_empty() {
            checks.push(RegisterCheck { pc: pc as u32, reads, guard, writes });
        }
    }
    checks
}

/// Where a kernel's shared and local variables live.
struct Layout {
    symbols: HashMap<String, (Space, u32)>,
    shared: Vec<SharedRange>,
    static_shared_bytes: u32,
    dynamic_shared_offset: u32,
    local_bytes: u32,
}

impl Layout {
    fn new(source: Source<'_>, kernel: &Kernel, module_shared: &[Variable]) -> ParseResult<Layout> {
        let mut layout = Layout {
            symbols: HashMap::new(),
            shared: Vec::new(),
            static_shared_bytes: 0,
            dynamic_shared_offset: 0,
            local_bytes: 0,
        };
        let mut end = 0u32;
        let mut dynamic = Vec::new();
        let used = |name: &str| kernel.instructions.iter().any(|i| i.mentions(name));
        let module_level = module_shared.iter().filter(|variable| used(&variable.name));
        for variable in module_level.chain(&kernel.variables) {
            let Some(n_bytes) = variable.n_bytes else {
                if variable.space != Space::Shared {
                    return Err(source.error(variable.line, "this array needs its size"));
                }
                dynamic.push(variable);
                continue;
            };
            let too_large = || source.error(variable.line, "this variable is too large");
            let n_bytes = u32::try_from(n_bytes).map_err(|_| too_large())?;
            let place = |end: u32| {
                end.checked_next_multiple_of(variable.align)
                    .filter(|start| start.checked_add(n_bytes).is_some_and(|end| end < 1 << 24))
            };
            match variable.space {
                Space::Shared => {
                    let offset = place(end).ok_or_else(too_large)?;
                    layout.shared.push(SharedRange { offset, n_bytes });
                    let packed = place(layout.static_shared_bytes).ok_or_else(too_large)?;
                    layout.static_shared_bytes = packed + n_bytes;
                    layout.symbols.insert(variable.name.clone(), (Space::Shared, offset));
                    end = offset + n_bytes + SHARED_GAP_BYTES;
                }
                Space::Local => {
                    let offset = place(layout.local_bytes).ok_or_else(too_large)?;
                    layout.symbols.insert(variable.name.clone(), (Space::Local, offset));
                    layout.local_bytes = offset + n_bytes;
                }
                // Checked and placed with the module's variables.
                _ => {}
            }
        }
        let align = dynamic.iter().map(|variable| variable.align).max().unwrap_or(1).max(16);
        layout.dynamic_shared_offset = end.next_multiple_of(align);
        for variable in dynamic {
            let place = (Space::Shared, layout.dynamic_shared_offset);
            layout.symbols.insert(variable.name.clone(), place);
        }
        Ok(layout)
    }
}

/// The registers that an instruction reads and writes, and where it can go.
#[derive(Debug, Default, Clone)]
struct Flow {
    guard: Option<RegisterId>,
    uses: Vec<RegisterId>,
    defs: Vec<RegisterId>,
}

struct Decoder<'a> {
    source: Source<'a>,
    kernel: &'a Kernel,
    globals: &'a HashMap<String, u64>,
    layout: &'a Layout,
    allocation: Option<&'a Allocation>,
    line: u32,
    scope: u32,
    current: Flow,
    flow: Vec<Flow>,
    code: Vec<Inst>,
    constants: Vec<u64>,
    constant_index: HashMap<u64, u32>,
    dsts: Vec<Dst>,
    srcs: Vec<AnySrc>,
    targets: Vec<u32>,
    async_products: Vec<AsyncProduct>,
    n_sites: u32,
    shared_grain: u32,
    global_grain: u32,
}

impl<'a> Decoder<'a> {
    fn new(
        source: Source<'a>,
        kernel: &'a Kernel,
        globals: &'a HashMap<String, u64>,
        layout: &'a Layout,
        allocation: Option<&'a Allocation>,
    ) -> Decoder<'a> {
        Decoder {
            source,
            kernel,
            globals,
            layout,
            allocation,
            line: 0,
            scope: 0,
            current: Flow::default(),
            flow: Vec::new(),
            code: Vec::new(),
            constants: Vec::new(),
            constant_index: HashMap::new(),
            dsts: Vec::new(),
            srcs: Vec::new(),
            targets: Vec::new(),
            async_products: Vec::new(),
            n_sites: 0,
            shared_grain: 16,
            global_grain: 16,
        }
    }

    fn run(mut self) -> ParseResult<Decoder<'a>> {
        for instruction in &self.kernel.instructions {
            self.line = instruction.line;
            self.scope = instruction.scope;
            let guard = match instruction.guard {
                Some(guard) => {
                    self.current.guard = Some(guard.register);
                    self.predicate_register(guard.register, guard.negated)?
                }
                None => PredSrc::Constant(true),
            };
            let op = self.instruction(instruction)?;
            self.push(op, guard);
        }
        self.push(Op::Exit, PredSrc::Constant(true));
        Ok(self)
    }

    fn push(&mut self, op: Op, guard: PredSrc) {
        let mut flow = std::mem::take(&mut self.current);
        // A guarded write leaves the old value in the other lanes, which is not a read.
        flow.uses.sort_unstable();
        flow.uses.dedup();
        self.flow.push(flow);
        self.code.push(Inst { op, guard, line: self.line, checks_registers: false });
    }

    fn error<T>(&self, message: impl Into<String>) -> ParseResult<T> {
        Err(self.source.error(self.line, message))
    }

    fn instruction(&mut self, instruction: &'a Instruction) -> ParseResult<Op> {
        let mut opcode = Opcode::new(instruction);
        let op = match opcode.name {
            "implicit-def" => {
                self.implicit_def(&opcode)?;
                Op::Nop
            }
            "add" | "sub" | "mul" | "mad" | "div" | "neg" | "abs" | "min" | "max" | "fma"
                if opcode.ends_in_float() =>
            {
                self.float(&mut opcode)?
            }
            "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign"
            | "testp" => self.float(&mut opcode)?,
            "add" | "sub" | "mul" | "mad" | "div" | "rem" | "neg" | "abs" | "min" | "max"
            | "mul24" | "mad24" | "sad" | "addc" | "subc" | "and" | "or" | "xor" | "not"
            | "cnot" | "shl" | "shr" | "popc" | "clz" | "bfind" | "brev" | "bfe" | "bfi"
            | "bmsk" | "szext" | "prmt" | "shf" | "lop3" | "dp4a" | "dp2a" => {
                self.integer(&mut opcode)?
            }
            "mov" | "cvt" | "setp" | "set" | "selp" | "slct" => self.convert(&mut opcode)?,
            "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "isspacep" | "prefetch"
            | "prefetchu" | "cp" | "membar" | "fence" | "discard" | "applypriority" => {
                self.memory(&mut opcode)?
            }
            "bra" | "brx" | "ret" | "exit" | "trap" | "bar" | "barrier" | "nanosleep"
            | "pmevent" | "griddepcontrol" | "setmaxnreg" => self.control(&mut opcode)?,
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => {
                self.warp(&mut opcode)?
            }
            "mma" => self.mma(&mut opcode)?,
            "wgmma" => self.wgmma(&mut opcode)?,
            name => {
                return self.error(format!("the emulator has no instruction `{name}`"));
            }
        };
        if let Some(part) = opcode.unused() {
            return self.error(format!("`{}` with `.{part}` is not supported", opcode.name));
        }
        Ok(op)
    }
}
