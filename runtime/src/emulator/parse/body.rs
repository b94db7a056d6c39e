//! Kernel bodies: registers, labels and instructions with their operands.

use std::collections::HashMap;

use super::cursor::Cursor;
use super::lexer::TokenKind;
use super::module::Kernel;
use super::{ParseResult, Type};

/// A register of a kernel: an index into [`Kernel::registers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RegisterId(pub(crate) u32);

/// What a register can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RegisterClass {
    /// A truth value.
    Pred,
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

impl RegisterClass {
    /// Width in bits, 1 for predicates.
    pub(crate) fn n_bits(self) -> u32 {
        match self {
            RegisterClass::Pred => 1,
            RegisterClass::Bits16 => 16,
            RegisterClass::Bits32 => 32,
            RegisterClass::Bits64 => 64,
        }
    }
}

/// `@p` or `@!p` before an instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    /// The predicate.
    pub(crate) register: RegisterId,
    /// Whether the instruction runs where it is false.
    pub(crate) negated: bool,
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Its line.
    pub(crate) line: u32,
    /// The brace scope that it stands in.
    pub(crate) scope: u32,
    /// Which lanes it runs for.
    pub(crate) guard: Option<Guard>,
    /// The opcode's dotted parts, for example `["add", "rn", "f32"]`.
    pub(crate) opcode: Vec<String>,
    /// The operands in order.
    pub(crate) operands: Vec<Operand>,
}

impl Instruction {
    /// Whether an operand names this variable.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.operands.iter().any(|operand| operand.mentions(name))
    }
}

/// The opcode of the pseudo-instruction that makes a register's value arbitrary.
pub(crate) const IMPLICIT_DEF: &str = "implicit-def";

/// An operand.
#[derive(Debug, Clone)]
pub(crate) enum Operand {
    /// A register.
    Register(RegisterId),
    /// `!p`.
    Not(RegisterId),
    /// `a|b`: a result with a predicate beside it.
    Pair(Box<Operand>, Box<Operand>),
    /// An integer literal by its bits.
    Integer(u64),
    /// A single-precision literal by its bits.
    Float32(u32),
    /// A double-precision literal by its bits.
    Float64(u64),
    /// `{a, b, ...}`.
    Vector(Vec<Operand>),
    /// `[base + offset]`.
    Address(Box<Operand>, i64),
    /// A variable, parameter or label, plus an offset.
    Symbol(String, i64),
    /// A special register by its name with the percent sign.
    Special(String),
    /// `_`: a result that is thrown away.
    Sink,
}

impl Operand {
    fn mentions(&self, name: &str) -> bool {
        match self {
            Operand::Symbol(symbol, _) => symbol == name,
            Operand::Address(base, _) => base.mentions(name),
            Operand::Vector(parts) => parts.iter().any(|part| part.mentions(name)),
            Operand::Pair(first, second) => first.mentions(name) || second.mentions(name),
            _ => false,
        }
    }
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, RegisterClass>,
    /// Names declared as `prefix<count>`.
    ranges: HashMap<String, (RegisterClass, u64)>,
    resolved: HashMap<String, RegisterId>,
    id: u32,
}

/// Parses from the opening to the closing brace.
pub(super) fn parse_body(cursor: &mut Cursor<'_>, kernel: &mut Kernel) -> ParseResult<()> {
    let mut body = Body { cursor, kernel, scopes: Vec::new() };
    body.cursor.expect('{')?;
    body.open_scope();
    while !body.scopes.is_empty() {
        body.statement()?;
    }
    Ok(())
}

struct Body<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    kernel: &'c mut Kernel,
    scopes: Vec<Scope>,
}

impl Body<'_, '_> {
    fn open_scope(&mut self) {
        let id = self.kernel.scopes.len() as u32;
        self.kernel.scopes.push(self.scope_id());
        self.scopes.push(Scope { id, ..Scope::default() });
    }

    fn scope_id(&self) -> u32 {
        self.scopes.last().map_or(0, |scope| scope.id)
    }

    fn statement(&mut self) -> ParseResult<()> {
        match self.cursor.peek() {
            TokenKind::Mark('{') => {
                self.cursor.next();
                self.open_scope();
            }
            TokenKind::Mark('}') => {
                self.cursor.next();
                self.scopes.pop();
            }
            TokenKind::Mark(';') => {
                self.cursor.next();
            }
            TokenKind::Mark('@') => self.instruction()?,
            TokenKind::ImplicitDef(name) => self.implicit_def(name)?,
            TokenKind::Word(word) if word.starts_with('.') => self.directive(word)?,
            TokenKind::Word(_) if self.cursor.peek_second() == TokenKind::Mark(':') => {
                self.label()?;
            }
            TokenKind::Word(_) => self.instruction()?,
            _ => return self.cursor.expected("an instruction or `}`"),
        }
        Ok(())
    }

    fn directive(&mut self, word: &str) -> ParseResult<()> {
        match word {
            ".reg" => self.registers(),
            ".shared" | ".local" | ".global" | ".const" => {
                self.cursor.variables(&mut self.kernel.variables)
            }
            ".pragma" => self.cursor.pragma(),
            ".loc" | ".file" => {
                self.cursor.skip_line();
                Ok(())
            }
            other => self.cursor.error(format!("unknown directive `{other}`")),
        }
    }

    fn registers(&mut self) -> ParseResult<()> {
        self.cursor.next();
        let word = self.cursor.word("a register type")?;
        let class = match Type::from_name(word.trim_start_matches('.')) {
            Some(Type::Pred) => RegisterClass::Pred,
            Some(ty) => match ty.n_bytes() {
                2 => RegisterClass::Bits16,
                4 => RegisterClass::Bits32,
                8 => RegisterClass::Bits64,
                _ => {
                    return self
                        .cursor
                        .error(format!("registers of type `{word}` are not supported"));
                }
            },
            None => return self.cursor.error(format!("unknown register type `{word}`")),
        };
        loop {
            let name = self.cursor.word("a register name")?.to_owned();
            let range = if self.cursor.accept('<') {
                let count = self.cursor.integer("a count")?;
                self.cursor.expect('>')?;
                Some(count)
            } else {
                None
            };
            if let Some(scope) = self.scopes.last_mut() {
                match range {
                    Some(count) => drop(scope.ranges.insert(name, (class, count))),
                    None => drop(scope.names.insert(name, class)),
                }
            }
            if !self.cursor.accept(',') {
                break;
            }
        }
        self.cursor.expect(';')
    }

    /// The register of this name in the innermost scope that declares it.
    fn resolve(&mut self, name: &str) -> Option<RegisterId> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let index = name[prefix.len()..].parse::<u64>().ok();
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&id) = scope.resolved.get(name) {
                return Some(id);
            }
            let ranged = || {
                let &(class, count) = scope.ranges.get(prefix)?;
                index.filter(|&index| index < count).map(|_| class)
            };
            if let Some(class) = scope.names.get(name).copied().or_else(ranged) {
                let id = RegisterId(self.kernel.registers.len() as u32);
                self.kernel.registers.push(class);
                self.kernel.register_names.push(name.to_owned());
                scope.resolved.insert(name.to_owned(), id);
                return Some(id);
            }
        }
        None
    }

    fn label(&mut self) -> ParseResult<()> {
        let line = self.cursor.line();
        let name = self.cursor.word("a label")?.to_owned();
        self.cursor.expect(':')?;
        let key = (self.scope_id(), name);
        if self.cursor.accept_word(".branchtargets") {
            let mut targets = Vec::new();
            loop {
                targets.push(self.cursor.word("a label")?.to_owned());
                if !self.cursor.accept(',') {
                    break;
                }
            }
            self.kernel.branch_targets.insert(key, targets);
            return self.cursor.expect(';');
        }
        let index = self.kernel.instructions.len() as u32;
        match self.kernel.labels.insert(key, index) {
            None => Ok(()),
            Some(_) => Err(self.cursor.source.error(line, "this label is defined twice")),
        }
    }

    fn implicit_def(&mut self, name: &str) -> ParseResult<()> {
        let line = self.cursor.line();
        self.cursor.next();
        if let Some(register) = self.resolve(name) {
            self.kernel.instructions.push(Instruction {
                line,
                scope: self.scope_id(),
                guard: None,
                opcode: vec![IMPLICIT_DEF.to_owned()],
                operands: vec![Operand::Register(register)],
            });
        }
        Ok(())
    }

    fn instruction(&mut self) -> ParseResult<()> {
        let guard = if self.cursor.accept('@') {
            let negated = self.cursor.accept('!');
            let register = self.register("a predicate")?;
            Some(Guard { register, negated })
        } else {
            None
        };
        let line = self.cursor.line();
        let opcode: Vec<String> =
            self.cursor.word("an opcode")?.split('.').map(str::to_owned).collect();
        if opcode[0] == "call" {
            return Err(self
                .cursor
                .source
                .error(line, "calls are not supported by the emulator; inline the function"));
        }
        let mut operands = Vec::new();
        if self.cursor.peek() != TokenKind::Mark(';') {
            operands.push(self.operand(0)?);
            while self.cursor.accept(',') {
                operands.push(self.operand(0)?);
            }
        }
        if self.cursor.peek() != TokenKind::Mark(';') {
            return self.cursor.expected("`,` or `;`");
        }
        self.cursor.next();
        let scope = self.scope_id();
        self.kernel.instructions.push(Instruction { line, scope, guard, opcode, operands });
        Ok(())
    }

    fn register(&mut self, what: &str) -> ParseResult<RegisterId> {
        let name = self.cursor.word(what)?;
        match self.resolve(name) {
            Some(register) => Ok(register),
            None => self.cursor.error(format!("register `{name}` is not declared")),
        }
    }

    fn operand(&mut self, depth: u32) -> ParseResult<Operand> {
        if depth > 4 {
            return self.cursor.error("operands are nested too deeply");
        }
        match self.cursor.peek() {
            TokenKind::Mark('{') => {
                self.cursor.next();
                let mut parts = vec![self.operand(depth + 1)?];
                while self.cursor.accept(',') {
                    parts.push(self.operand(depth + 1)?);
                }
                self.cursor.expect('}')?;
                Ok(Operand::Vector(parts))
            }
            TokenKind::Mark('[') => {
                self.cursor.next();
                let base = match self.operand(depth + 1)? {
                    Operand::Symbol(name, offset) => {
                        let base = Box::new(Operand::Symbol(name, 0));
                        Operand::Address(base, offset)
                    }
                    base => Operand::Address(Box::new(base), self.cursor.offset()?),
                };
                self.cursor.expect(']')?;
                Ok(base)
            }
            TokenKind::Mark('!') => {
                self.cursor.next();
                Ok(Operand::Not(self.register("a predicate")?))
            }
            TokenKind::Word(_) => self.named_operand(depth),
            _ => self.literal(),
        }
    }

    fn literal(&mut self) -> ParseResult<Operand> {
        let negative = self.cursor.accept('-');
        let operand = match self.cursor.peek() {
            TokenKind::Integer(value) if negative => Operand::Integer(value.wrapping_neg()),
            TokenKind::Integer(value) => Operand::Integer(value),
            TokenKind::Float32(bits) => {
                Operand::Float32(if negative { bits ^ (1 << 31) } else { bits })
            }
            TokenKind::Float64(bits) => {
                Operand::Float64(if negative { bits ^ (1 << 63) } else { bits })
            }
            _ => return self.cursor.expected("an operand"),
        };
        self.cursor.next();
        Ok(operand)
    }

    fn named_operand(&mut self, depth: u32) -> ParseResult<Operand> {
        let name = self.cursor.word("an operand")?;
        if name == "_" {
            return self.pair(Operand::Sink, depth);
        }
        if let Some(register) = self.resolve(name) {
            return self.pair(Operand::Register(register), depth);
        }
        if name == "WARP_SZ" {
            return Ok(Operand::Integer(32));
        }
        if name.starts_with('%') {
            return Ok(Operand::Special(name.to_owned()));
        }
        Ok(Operand::Symbol(name.to_owned(), self.cursor.offset()?))
    }

    fn pair(&mut self, first: Operand, depth: u32) -> ParseResult<Operand> {
        if !self.cursor.accept('|') {
            return Ok(first);
        }
        let second = self.operand(depth + 1)?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }
}
