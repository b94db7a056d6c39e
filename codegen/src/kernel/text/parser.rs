//! Parsing kernels.

use std::str::FromStr;

use fornax_bundle::{DType, DimRange};
use fornax_ir::{BinaryFn, Float, Scalar, ScalarExpr, UnaryFn};

use crate::kernel::{
    Block, Instruction, Kernel, Layout, Memory, MmaTile, Mode, Param, Places, Shared, Statement,
    Ty, ValueId, WgmmaTile,
};

/// Text that is no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

/// Values may have numbers up to this.
const MAX_VALUES: usize = 1 << 20;
/// Blocks and expressions may be nested this deep.
const MAX_DEPTH: usize = 100;

/// Reads a kernel. It is not verified: see [`super::super::verify`].
///
/// # Errors
/// The first thing that is no part of a kernel, with its line.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
        kernel: Kernel {
            name: String::new(),
            threads: 0,
            resident: 1,
            params: Vec::new(),
            shared: Vec::new(),
            body: Block::default(),
            values: Vec::new(),
        },
        layouts: Vec::new(),
        types: Vec::new(),
        depth: 0,
    };
    parser.kernel()?;
    let types = std::mem::take(&mut parser.types);
    let typed: Option<Vec<Ty>> = types.iter().cloned().collect();
    match typed {
        Some(values) => parser.kernel.values = values,
        None => {
            let missing = types.iter().position(Option::is_none).unwrap_or(0);
            return Err(parser.error(format!("%{missing} is nowhere defined")));
        }
    }
    Ok(parser.kernel)
}

/// Words (letters, digits, `_`, `.`, `+`, `-`) and single other characters, with their lines.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
    let mut tokens: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split(';').next().unwrap_or_default();
        let mut word = String::new();
        for c in code.chars().chain([' ']) {
            if is_word(c) {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                tokens.push((number + 1, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() {
                tokens.push((number + 1, c.to_string()));
            }
        }
    }
    tokens
}

struct Parser {
    tokens: Vec<(usize, String)>,
    at: usize,
    kernel: Kernel,
    layouts: Vec<Layout>,
    types: Vec<Option<Ty>>,
    depth: usize,
}

type Parse<T> = Result<T, ParseError>;

impl Parser {
    fn error(&self, message: impl Into<String>) -> ParseError {
        let token = self.tokens.get(self.at.saturating_sub(1)).or(self.tokens.last());
        ParseError { line: token.map_or(1, |token| token.0), message: message.into() }
    }

    fn next(&mut self) -> Parse<String> {
        self.at += 1;
        match self.tokens.get(self.at - 1) {
            Some((_, text)) => Ok(text.clone()),
            None => Err(self.error("the end of the text comes too early")),
        }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", |(_, text)| text)
    }

    /// Whether the next token is `text`, which is then read.
    fn eat(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Parse<()> {
        let found = self.next()?;
        if found == text {
            return Ok(());
        }
        Err(self.error(format!("expected `{text}`, found `{found}`")))
    }

    fn number<T: FromStr>(&mut self) -> Parse<T> {
        let text = self.next()?;
        text.parse().map_err(|_| self.error(format!("`{text}` is no number that fits here")))
    }

    fn dtype(&mut self) -> Parse<DType> {
        let text = self.next()?;
        text.parse::<DType>().map_err(|error| self.error(error.to_string()))
    }

    /// Items between parentheses, with commas.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Parser) -> Parse<T>) -> Parse<Vec<T>> {
        self.expect("(")?;
        let mut items = Vec::new();
        while !self.eat(")") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Parser) -> Parse<T>) -> Parse<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn kernel(&mut self) -> Parse<()> {
        self.expect("kernel")?;
        self.expect("@")?;
        self.kernel.name = self.next()?;
        self.expect("threads")?;
        self.kernel.threads = self.number()?;
        if self.eat("resident") {
            self.kernel.resident = self.number()?;
        }
        self.expect("{")?;
        loop {
            match self.peek() {
                "global" => self.global()?,
                "scalar" => self.scalar_param()?,
                "shared" => self.shared()?,
                "layout" => self.layout()?,
                _ => break,
            }
        }
        self.kernel.body = self.block()?;
        if self.at < self.tokens.len() {
            let rest = self.next()?;
            return Err(self.error(format!("`{rest}` after the kernel's end")));
        }
        Ok(())
    }

    fn named(&mut self) -> Parse<(String, DType)> {
        self.next()?;
        let name = self.next()?;
        self.expect(":")?;
        Ok((name, self.dtype()?))
    }

    fn global(&mut self) -> Parse<()> {
        let (name, dtype) = self.named()?;
        let natural = dtype.size() as u32;
        let multiple = if self.eat("by") { self.number()? } else { natural };
        let written = self.eat("written");
        self.kernel.params.push(Param::Global { name, dtype, written, multiple });
        Ok(())
    }

    fn scalar_param(&mut self) -> Parse<()> {
        let (name, dtype) = self.named()?;
        self.expect("in")?;
        let min = self.number()?;
        self.expect("to")?;
        let max = self.number()?;
        self.expect("by")?;
        let range = DimRange { min, max, divisor: self.number()? };
        self.kernel.params.push(Param::Scalar { name, dtype, range });
        Ok(())
    }

    fn shared(&mut self) -> Parse<()> {
        let (name, dtype) = self.named()?;
        self.expect("[")?;
        let len = self.number()?;
        self.expect("]")?;
        let swizzled = self.eat("swizzled");
        self.kernel.shared.push(Shared { name, dtype, len, swizzled });
        Ok(())
    }

    fn layout(&mut self) -> Parse<()> {
        self.next()?;
        self.expect("#")?;
        let index: usize = self.number()?;
        if index != self.layouts.len() {
            return Err(self.error(format!("layout {} comes next", self.layouts.len())));
        }
        self.expect("=")?;
        self.expect("[")?;
        let mut shape = Vec::new();
        while !self.eat("]") {
            if !shape.is_empty() {
                self.expect(",")?;
            }
            shape.push(self.number()?);
        }
        self.expect("registers")?;
        let registers = self.list(Parser::mode)?;
        self.expect("threads")?;
        let threads = self.list(Parser::mode)?;
        self.layouts.push(Layout { shape, registers, threads });
        Ok(())
    }

    fn mode(&mut self) -> Parse<Mode> {
        Ok(Mode { dim: self.number()?, size: self.number()?, stride: self.number()? })
    }

    /// Statements up to the closing brace.
    fn block(&mut self) -> Parse<Block> {
        let mut statements = Vec::new();
        while !self.eat("}") {
            statements.push(self.deeper(Parser::statement)?);
        }
        Ok(Block(statements))
    }

    fn value(&mut self) -> Parse<ValueId> {
        self.expect("%")?;
        Ok(ValueId(self.number()?))
    }

    /// A value with its type, where it is defined.
    fn definition(&mut self) -> Parse<ValueId> {
        let value = self.value()?;
        self.expect(":")?;
        let dtype = self.dtype()?;
        let ty = if self.eat("#") {
            let index: usize = self.number()?;
            let layout = self.layouts.get(index).cloned();
            let layout = layout.ok_or_else(|| self.error(format!("there is no layout {index}")))?;
            Ty::Fragment(dtype, layout)
        } else {
            Ty::Scalar(dtype)
        };
        let index = value.0 as usize;
        if index >= MAX_VALUES {
            return Err(self.error(format!("%{index} is too large a number for a value")));
        }
        if index >= self.types.len() {
            self.types.resize(index + 1, None);
        }
        self.types[index] = Some(ty);
        Ok(value)
    }

    fn statement(&mut self) -> Parse<Statement> {
        let mut results = Vec::new();
        if self.peek() == "%" {
            results.push(self.definition()?);
            while self.eat(",") {
                results.push(self.definition()?);
            }
            self.expect("=")?;
        }
        let instruction = self.instruction()?;
        Ok(Statement { results, instruction })
    }

    fn instruction(&mut self) -> Parse<Instruction> {
        let name = self.next()?;
        Ok(match name.as_str() {
            "constant" => Instruction::Constant(self.scalar()?),
            "param" => Instruction::Param(self.param()?),
            "block_index" => Instruction::BlockIndex(self.number()?),
            "coordinate" => Instruction::Coordinate(self.number()?),
            "lookup" => {
                let dim = self.number()?;
                Instruction::Lookup { dim, table: self.list(Parser::number)? }
            }
            "splat" => Instruction::Splat(self.value()?),
            "broadcast" => Instruction::Broadcast(self.value()?),
            "fma" => {
                let [a, b, c] = self.values()?;
                Instruction::Fma(a, b, c)
            }
            "select" => {
                let [condition, then, otherwise] = self.values()?;
                Instruction::Select(condition, then, otherwise)
            }
            "cast" => Instruction::Cast(self.dtype()?, self.value()?),
            "round_tf32" => Instruction::RoundTf32(self.value()?),
            "reorder" => Instruction::Reorder(self.value()?),
            "mma" => self.mma()?,
            "wgmma" => self.wgmma()?,
            "wgmma_registers" => self.wgmma_registers()?,
            "wgmma_places" => self.wgmma_places()?,
            "wgmma_wait" => Instruction::WgmmaWait(self.value()?),
            "wgmma_pending" => Instruction::WgmmaPending(self.number()?),
            "copy" => self.copy()?,
            "copy_commit" => Instruction::CopyCommit,
            "copy_wait" => Instruction::CopyWait(self.number()?),
            "proxy_fence" => Instruction::ProxyFence,
            "load" => self.load()?,
            "store" => self.store()?,
            "reduce" | "scan" => self.fold(name == "scan")?,
            "barrier" => Instruction::Barrier,
            "ticket" => {
                let (memory, offset) = self.place()?;
                self.expect("of")?;
                let of = self.value()?;
                Instruction::Ticket { memory, offset, of, ordered: self.eat("ordered") }
            }
            "meet" => {
                let (memory, offset) = self.place()?;
                self.expect("blocks")?;
                Instruction::Meet { memory, offset, blocks: self.number()? }
            }
            "send" => {
                let (memory, offset) = self.place()?;
                self.expect(",")?;
                let value = self.value()?;
                self.expect("tag")?;
                let tag = self.value()?;
                let mask = if self.eat("mask") { Some(self.value()?) } else { None };
                Instruction::Send { memory, offset, value, tag, mask }
            }
            "receive" => {
                let (memory, offset) = self.place()?;
                self.expect("tag")?;
                let tag = self.value()?;
                let mask = self.mask_or()?;
                Instruction::Receive { memory, offset, tag, mask }
            }
            "for" => self.for_loop()?,
            "if" => {
                let uniform = self.eat("uniform");
                let condition = self.value()?;
                self.expect("{")?;
                Instruction::If { condition, uniform, body: self.block()? }
            }
            _ => match (unary_function(&name), binary_function(&name)) {
                (Some(function), _) => Instruction::Unary(function, self.value()?),
                (_, Some(function)) => {
                    let [a, b] = self.values()?;
                    Instruction::Binary(function, a, b)
                }
                _ => return Err(self.error(format!("unknown instruction `{name}`"))),
            },
        })
    }

    /// `tf32 64 32 warps 2 1 %left, %right, %sums`
    fn mma(&mut self) -> Parse<Instruction> {
        let factor = self.next()?;
        let factor = factor.parse().map_err(|error: String| self.error(error))?;
        let (rows, columns) = (self.number()?, self.number()?);
        self.expect("warps")?;
        let (warps_m, warps_n) = (self.number()?, self.number()?);
        let tile = MmaTile { factor, rows, columns, warps_m, warps_n };
        Ok(Instruction::Mma { tile, operands: self.values()? })
    }

    /// `tf32 64 32 groups 1 1`
    fn wgmma_tile(&mut self) -> Parse<WgmmaTile> {
        let factor = self.next()?;
        let factor = factor.parse().map_err(|error: String| self.error(error))?;
        let (rows, columns) = (self.number()?, self.number()?);
        self.expect("groups")?;
        let (groups_m, groups_n) = (self.number()?, self.number()?);
        Ok(WgmmaTile { factor, rows, columns, groups_m, groups_n })
    }

    /// `tf32 64 32 groups 1 1 %left, b[%from], %sums`
    fn wgmma_registers(&mut self) -> Parse<Instruction> {
        let tile = self.wgmma_tile()?;
        let left = self.value()?;
        self.expect(",")?;
        let right = self.place()?;
        self.expect(",")?;
        Ok(Instruction::WgmmaRegisters { tile, left, right, sums: self.value()? })
    }

    /// `tf32 64 32 groups 1 1 a[%from] stride 40 across 1 step 0 pitch 0 starts (0, 256), b[%from], %sums`
    fn wgmma_places(&mut self) -> Parse<Instruction> {
        let tile = self.wgmma_tile()?;
        let left = self.place()?;
        let mut numbers = [0; 4];
        for (name, number) in ["stride", "across", "step", "pitch"].into_iter().zip(&mut numbers) {
            self.expect(name)?;
            *number = self.number()?;
        }
        let [stride, across, step, pitch] = numbers;
        self.expect("starts")?;
        self.expect("(")?;
        let mut starts = vec![self.number()?];
        while self.eat(",") {
            starts.push(self.number()?);
        }
        self.expect(")")?;
        self.expect(",")?;
        let right = self.place()?;
        self.expect(",")?;
        let places = Places { stride, across, step, pitch, starts };
        Ok(Instruction::WgmmaPlaces { tile, left, places, right, sums: self.value()? })
    }

    /// `tf32 64 32 groups 1 1 a[%from], b[%from], %sums`
    fn wgmma(&mut self) -> Parse<Instruction> {
        let tile = self.wgmma_tile()?;
        let left = self.place()?;
        self.expect(",")?;
        let right = self.place()?;
        self.expect(",")?;
        let (memory, offsets) = ([left.0, right.0], [left.1, right.1]);
        Ok(Instruction::Wgmma { tile, memory, offsets, sums: self.value()? })
    }

    fn values<const N: usize>(&mut self) -> Parse<[ValueId; N]> {
        let mut values = [ValueId(0); N];
        for (index, value) in values.iter_mut().enumerate() {
            if index > 0 {
                self.expect(",")?;
            }
            *value = self.value()?;
        }
        Ok(values)
    }

    fn scalar(&mut self) -> Parse<Scalar> {
        let dtype = self.dtype()?;
        if !dtype.is_float() {
            return Ok(Scalar::Int(dtype, self.number()?));
        }
        if let Some(bits) = self.peek().strip_prefix("0x") {
            let bits = u64::from_str_radix(bits, 16);
            self.next()?;
            let bits = bits.map_err(|_| self.error("these are not the bits of a number"))?;
            return Ok(Scalar::Float(dtype, Float(f64::from_bits(bits))));
        }
        Ok(Scalar::Float(dtype, Float(self.number()?)))
    }

    fn param(&mut self) -> Parse<u32> {
        let name = self.next()?;
        let found = self.kernel.params.iter().position(|param| param.name() == name);
        found.map(|index| index as u32).ok_or_else(|| self.error(format!("no parameter `{name}`")))
    }

    /// An array and the offset in brackets.
    fn place(&mut self) -> Parse<(Memory, ValueId)> {
        let name = self.next()?;
        let shared = self.kernel.shared.iter().position(|array| array.name == name);
        let global = self.kernel.params.iter().position(|param| param.name() == name);
        let memory = match (global, shared) {
            (Some(index), _) => Memory::Global(index as u32),
            (_, Some(index)) => Memory::Shared(index as u32),
            _ => return Err(self.error(format!("no array `{name}`"))),
        };
        self.expect("[")?;
        let offset = self.value()?;
        self.expect("]")?;
        Ok((memory, offset))
    }

    fn load(&mut self) -> Parse<Instruction> {
        let (memory, offset) = self.place()?;
        self.expect("vector")?;
        let vector = self.number()?;
        let mask = self.mask_or()?;
        Ok(Instruction::Load { memory, offset, mask, vector })
    }

    /// An optional mask with what stands where it is false.
    fn mask_or(&mut self) -> Parse<Option<(ValueId, Scalar)>> {
        if !self.eat("mask") {
            return Ok(None);
        }
        let mask = self.value()?;
        self.expect("else")?;
        Ok(Some((mask, self.scalar()?)))
    }

    fn store(&mut self) -> Parse<Instruction> {
        let (memory, offset) = self.place()?;
        self.expect(",")?;
        let value = self.value()?;
        self.expect("vector")?;
        let vector = self.number()?;
        let mask = if self.eat("mask") { Some(self.value()?) } else { None };
        Ok(Instruction::Store { memory, offset, value, mask, vector })
    }

    /// `a[%at], x[%offset] vector 4 mask %inside where %wanted`
    fn copy(&mut self) -> Parse<Instruction> {
        let to = self.place()?;
        self.expect(",")?;
        let from = self.place()?;
        self.expect("vector")?;
        let vector = self.number()?;
        let mut masks = [None; 2];
        for (name, mask) in ["mask", "where"].into_iter().zip(&mut masks) {
            if self.eat(name) {
                *mask = Some(self.value()?);
            }
        }
        Ok(Instruction::Copy { to, from, masks, vector })
    }

    fn fold(&mut self, scan: bool) -> Parse<Instruction> {
        let dim = self.number()?;
        let values = self.list(Parser::value)?;
        self.expect("by")?;
        let combine = self.list(Parser::expression)?;
        Ok(if scan {
            Instruction::Scan { dim, values, combine }
        } else {
            Instruction::Reduce { dim, values, combine }
        })
    }

    fn for_loop(&mut self) -> Parse<Instruction> {
        let index = self.definition()?;
        self.expect("=")?;
        let from = self.value()?;
        self.expect("to")?;
        let to = self.value()?;
        self.expect("step")?;
        let step = self.number()?;
        self.expect("unroll")?;
        let unroll = self.number()?;
        self.expect("carry")?;
        let carried = self.list(|parser| {
            let inside = parser.definition()?;
            parser.expect("=")?;
            Ok((parser.value()?, inside))
        })?;
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.eat("yield") {
            statements.push(self.deeper(Parser::statement)?);
        }
        let mut yields = Vec::new();
        while !self.eat("}") {
            if !yields.is_empty() {
                self.expect(",")?;
            }
            yields.push(self.value()?);
        }
        let body = Block(statements);
        Ok(Instruction::For { index, from, to, step, carried, body, yields, unroll })
    }

    fn expression(&mut self) -> Parse<ScalarExpr> {
        self.deeper(|parser| {
            if parser.eat("$") {
                return Ok(ScalarExpr::Arg(parser.number()?));
            }
            parser.expect("(")?;
            let name = parser.next()?;
            let expr = match name.as_str() {
                "constant" => ScalarExpr::Const(parser.scalar()?),
                "cast" => {
                    let dtype = parser.dtype()?;
                    parser.expression()?.cast(dtype)
                }
                "select" => {
                    let condition = parser.expression()?;
                    let then = parser.expression()?;
                    condition.select(then, parser.expression()?)
                }
                _ => match (unary_function(&name), binary_function(&name)) {
                    (Some(function), _) => parser.expression()?.unary(function),
                    (_, Some(function)) => {
                        let a = parser.expression()?;
                        a.binary(function, parser.expression()?)
                    }
                    _ => return Err(parser.error(format!("unknown function `{name}`"))),
                },
            };
            parser.expect(")")?;
            Ok(expr)
        })
    }
}

fn unary_function(name: &str) -> Option<UnaryFn> {
    UnaryFn::ALL.iter().copied().find(|function| function.name() == name)
}

fn binary_function(name: &str) -> Option<BinaryFn> {
    BinaryFn::ALL.iter().copied().find(|function| function.name() == name)
}
