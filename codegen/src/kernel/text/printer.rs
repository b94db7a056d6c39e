//! Printing kernels.

use std::fmt::{self, Display, Formatter, Write};

use fornax_ir::{Scalar, ScalarExpr};

use crate::kernel::{
    Block, Instruction, Kernel, Layout, Memory, Mode, Param, Statement, Ty, ValueId,
};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut layouts: Vec<&Layout> = Vec::new();
        for layout in self.values.iter().filter_map(Ty::layout) {
            if !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
        write!(f, "kernel @{} threads {} ", self.name, self.threads)?;
        if self.resident != 1 {
            write!(f, "resident {} ", self.resident)?;
        }
        writeln!(f, "{{")?;
        for param in &self.params {
            print_param(f, param)?;
        }
        for array in &self.shared {
            let swizzled = if array.swizzled { " swizzled" } else { "" };
            writeln!(f, "  shared {}: {}[{}]{swizzled}", array.name, array.dtype, array.len)?;
        }
        for (index, layout) in layouts.iter().enumerate() {
            let shape: Vec<String> = layout.shape.iter().map(u32::to_string).collect();
            let (registers, threads) = (modes(&layout.registers), modes(&layout.threads));
            let shape = shape.join(", ");
            writeln!(
                f,
                "  layout #{index} = [{shape}] registers ({registers}) threads ({threads})"
            )?;
        }
        writeln!(f)?;
        let mut printer = Printer { kernel: self, layouts, depth: 1, out: f };
        printer.block(&self.body)?;
        writeln!(f, "}}")
    }
}

fn print_param(f: &mut Formatter<'_>, param: &Param) -> fmt::Result {
    match param {
        Param::Global { name, dtype, written, multiple } => {
            let written = if *written { " written" } else { "" };
            write!(f, "  global {name}: {dtype}")?;
            if *multiple != dtype.size() as u32 {
                write!(f, " by {multiple}")?;
            }
            writeln!(f, "{written}")
        }
        Param::Scalar { name, dtype, range } => {
            let (min, max, divisor) = (range.min, range.max, range.divisor);
            writeln!(f, "  scalar {name}: {dtype} in {min} to {max} by {divisor}")
        }
    }
}

fn modes(modes: &[Mode]) -> String {
    let modes: Vec<String> =
        modes.iter().map(|m| format!("{} {} {}", m.dim, m.size, m.stride)).collect();
    modes.join(", ")
}

struct Printer<'k, 'f, 'g> {
    kernel: &'k Kernel,
    layouts: Vec<&'k Layout>,
    depth: usize,
    out: &'f mut Formatter<'g>,
}

impl Printer<'_, '_, '_> {
    fn block(&mut self, block: &Block) -> fmt::Result {
        block.0.iter().try_for_each(|statement| self.statement(statement))
    }

    fn line(&mut self, text: &str) -> fmt::Result {
        writeln!(self.out, "{:indent$}{text}", "", indent = 2 * self.depth)
    }

    /// A block in braces after `head`, with `tail` as its last line.
    fn nested(&mut self, head: &str, block: &Block, tail: Option<String>) -> fmt::Result {
        self.line(&format!("{head} {{"))?;
        self.depth += 1;
        self.block(block)?;
        if let Some(tail) = tail {
            self.line(&tail)?;
        }
        self.depth -= 1;
        self.line("}")
    }

    fn typed(&self, value: ValueId) -> String {
        let ty = &self.kernel.values[value.0 as usize];
        let mut text = format!("%{}: {}", value.0, ty.dtype());
        if let Some(layout) = ty.layout() {
            let index = self.layouts.iter().position(|other| *other == layout);
            let index = index.expect("invariant: the layouts of all values are listed");
            let _ = write!(text, "#{index}");
        }
        text
    }

    fn memory(&self, memory: Memory) -> &str {
        match memory {
            Memory::Global(index) => self.kernel.params[index as usize].name(),
            Memory::Shared(index) => &self.kernel.shared[index as usize].name,
        }
    }

    fn statement(&mut self, statement: &Statement) -> fmt::Result {
        let results: Vec<String> = statement.results.iter().map(|&v| self.typed(v)).collect();
        let mut head = results.join(", ");
        if !head.is_empty() {
            head += " = ";
        }
        head += statement.instruction.name();
        match &statement.instruction {
            Instruction::For { index, from, to, step, carried, body, yields, unroll } => {
                let _ =
                    write!(head, " {} = {} to {} step {step}", self.typed(*index), v(from), v(to));
                let _ = write!(head, " unroll {unroll} carry (");
                let carried: Vec<String> = carried
                    .iter()
                    .map(|(value, inside)| format!("{} = {}", self.typed(*inside), v(value)))
                    .collect();
                head += &carried.join(", ");
                head += ")";
                self.nested(
                    &head,
                    body,
                    Some(format!("yield {}", values(yields)).trim_end().into()),
                )
            }
            Instruction::If { condition, uniform, body } => {
                let kind = if *uniform { " uniform" } else { "" };
                self.nested(&format!("{head}{kind} {}", v(condition)), body, None)
            }
            other => {
                let operands = self.operands(other);
                self.line(format!("{head} {operands}").trim_end())
            }
        }
    }

    fn operands(&self, instruction: &Instruction) -> String {
        match instruction {
            Instruction::Constant(number) => scalar(*number),
            Instruction::Param(index) => self.kernel.params[*index as usize].name().to_owned(),
            Instruction::BlockIndex(number) | Instruction::Coordinate(number) => number.to_string(),
            Instruction::Splat(x)
            | Instruction::Broadcast(x)
            | Instruction::Unary(_, x)
            | Instruction::RoundTf32(x)
            | Instruction::Reorder(x)
            | Instruction::WgmmaWait(x) => v(x),
            Instruction::Wgmma { tile, memory, offsets, sums } => {
                let places = [0, 1].map(|side: usize| {
                    format!("{}[{}]", self.memory(memory[side]), v(&offsets[side]))
                });
                format!(
                    "{} {} {} groups {} {} {}, {}, {}",
                    tile.factor.name(),
                    tile.rows,
                    tile.columns,
                    tile.groups_m,
                    tile.groups_n,
                    places[0],
                    places[1],
                    v(sums)
                )
            }
            Instruction::WgmmaRegisters { tile, left, right, sums } => format!(
                "{} {} {} groups {} {} {}, {}[{}], {}",
                tile.factor.name(),
                tile.rows,
                tile.columns,
                tile.groups_m,
                tile.groups_n,
                v(left),
                self.memory(right.0),
                v(&right.1),
                v(sums)
            ),
            Instruction::WgmmaPlaces { tile, left, places, right, sums } => format!(
                "{} {} {} groups {} {} {}[{}] stride {} across {} step {} pitch {} starts ({}), \
                 {}[{}], {}",
                tile.factor.name(),
                tile.rows,
                tile.columns,
                tile.groups_m,
                tile.groups_n,
                self.memory(left.0),
                v(&left.1),
                places.stride,
                places.across,
                places.step,
                places.pitch,
                places.starts.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
                self.memory(right.0),
                v(&right.1),
                v(sums)
            ),
            Instruction::WgmmaPending(pending) | Instruction::CopyWait(pending) => {
                pending.to_string()
            }
            Instruction::Mma { tile, operands } => format!(
                "{} {} {} warps {} {} {}",
                tile.factor.name(),
                tile.rows,
                tile.columns,
                tile.warps_m,
                tile.warps_n,
                values(operands)
            ),
            Instruction::Binary(_, a, b) => values(&[*a, *b]),
            Instruction::Fma(a, b, c) | Instruction::Select(a, b, c) => values(&[*a, *b, *c]),
            Instruction::Cast(dtype, x) => format!("{dtype} {}", v(x)),
            Instruction::Load { memory, offset, mask, vector } => {
                let mut text = format!("{}[{}] vector {vector}", self.memory(*memory), v(offset));
                if let Some((mask, otherwise)) = mask {
                    let _ = write!(text, " mask {} else {}", v(mask), scalar(*otherwise));
                }
                text
            }
            Instruction::Store { memory, offset, value, mask, vector } => {
                let place = format!("{}[{}]", self.memory(*memory), v(offset));
                let mut text = format!("{place}, {} vector {vector}", v(value));
                if let Some(mask) = mask {
                    let _ = write!(text, " mask {}", v(mask));
                }
                text
            }
            Instruction::Lookup { dim, table } => {
                let table: Vec<String> = table.iter().map(i32::to_string).collect();
                format!("{dim} ({})", table.join(", "))
            }
            Instruction::Copy { to, from, masks, vector } => {
                let [to, from] =
                    [to, from].map(|place| format!("{}[{}]", self.memory(place.0), v(&place.1)));
                let mut text = format!("{to}, {from} vector {vector}");
                for (name, mask) in ["mask", "where"].into_iter().zip(masks) {
                    if let Some(mask) = mask {
                        let _ = write!(text, " {name} {}", v(mask));
                    }
                }
                text
            }
            Instruction::Reduce { dim, values: operands, combine }
            | Instruction::Scan { dim, values: operands, combine } => {
                let combine: Vec<String> = combine.iter().map(expression).collect();
                format!("{dim} ({}) by ({})", values(operands), combine.join(", "))
            }
            Instruction::Ticket { memory, offset, of, ordered } => {
                let ordered = if *ordered { " ordered" } else { "" };
                format!("{}[{}] of {}{ordered}", self.memory(*memory), v(offset), v(of))
            }
            Instruction::Meet { memory, offset, blocks } => {
                format!("{}[{}] blocks {blocks}", self.memory(*memory), v(offset))
            }
            Instruction::Send { memory, offset, value, tag, mask } => {
                let place = format!("{}[{}]", self.memory(*memory), v(offset));
                let mut text = format!("{place}, {} tag {}", v(value), v(tag));
                if let Some(mask) = mask {
                    let _ = write!(text, " mask {}", v(mask));
                }
                text
            }
            Instruction::Receive { memory, offset, tag, mask } => {
                let mut text = format!("{}[{}] tag {}", self.memory(*memory), v(offset), v(tag));
                if let Some((mask, otherwise)) = mask {
                    let _ = write!(text, " mask {} else {}", v(mask), scalar(*otherwise));
                }
                text
            }
            Instruction::Barrier
            | Instruction::ProxyFence
            | Instruction::CopyCommit
            | Instruction::For { .. }
            | Instruction::If { .. } => String::new(),
        }
    }
}

fn v(value: &ValueId) -> String {
    format!("%{}", value.0)
}

fn values(values: &[ValueId]) -> String {
    let values: Vec<String> = values.iter().map(v).collect();
    values.join(", ")
}

/// The type and the number; NaN by its bits.
fn scalar(number: Scalar) -> String {
    match number {
        Scalar::Float(dtype, value) if value.0.is_nan() => {
            format!("{dtype} {:#x}", value.0.to_bits())
        }
        Scalar::Float(dtype, value) => format!("{dtype} {:?}", value.0),
        Scalar::Int(dtype, value) => format!("{dtype} {value}"),
    }
}

fn expression(expr: &ScalarExpr) -> String {
    match expr {
        ScalarExpr::Arg(index) => format!("${index}"),
        ScalarExpr::Const(number) => format!("(constant {})", scalar(*number)),
        ScalarExpr::Unary(function, x) => format!("({} {})", function.name(), expression(x)),
        ScalarExpr::Binary(function, a, b) => {
            format!("({} {} {})", function.name(), expression(a), expression(b))
        }
        ScalarExpr::Select(condition, then, otherwise) => {
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| expression(part));
            format!("(select {condition} {then} {otherwise})")
        }
        ScalarExpr::Cast(dtype, x) => format!("(cast {dtype} {})", expression(x)),
    }
}
