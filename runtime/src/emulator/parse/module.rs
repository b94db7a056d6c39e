//! Modules: directives, variables and kernels (PTX ISA section 11, "Directives").

use std::collections::HashMap;

use super::body::{self, Instruction, RegisterClass};
use super::cursor::Cursor;
use super::lexer::{TokenKind, tokenize};
use super::{ParseResult, Source, Space, Type};

/// A parsed module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Global and constant variables, and shared ones declared outside kernels.
    pub(crate) variables: Vec<Variable>,
    /// The kernels in the order of the text.
    pub(crate) kernels: Vec<Kernel>,
}

/// A variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: String,
    /// Where it lives.
    pub(crate) space: Space,
    /// Alignment in bytes.
    pub(crate) align: u32,
    /// Size in bytes; `None` for an array of open size (dynamic shared memory).
    pub(crate) n_bytes: Option<u64>,
    /// Initial contents, if it has an initialiser: `n_bytes` bytes, missing elements zero.
    pub(crate) initial: Option<Vec<u8>>,
    /// Addresses to be written into `initial`.
    pub(crate) relocations: Vec<Relocation>,
    /// Line of the declaration.
    pub(crate) line: u32,
}

/// The address of a variable inside an initialiser.
#[derive(Debug, Clone)]
pub(crate) struct Relocation {
    /// Byte offset in the initialised variable; eight bytes are written.
    pub(crate) offset: u64,
    /// The variable whose address it is.
    pub(crate) symbol: String,
    /// Added to the address.
    pub(crate) addend: i64,
}

/// A kernel parameter.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: String,
    /// Offset in the parameter space.
    pub(crate) offset: u32,
    /// Size in bytes.
    pub(crate) n_bytes: u32,
}

/// A kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// Its name.
    pub(crate) name: String,
    /// Parameters in order.
    pub(crate) parameters: Vec<Parameter>,
    /// `.maxntid`: the largest number of threads of a block.
    pub(crate) max_threads: Option<[u32; 3]>,
    /// `.reqntid`: the block shape that every launch must have.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the cluster shape that every launch must have.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// Shared and local variables declared inside.
    pub(crate) variables: Vec<Variable>,
    /// Class of each register.
    pub(crate) registers: Vec<RegisterClass>,
    /// Name of each register.
    pub(crate) register_names: Vec<String>,
    /// The instructions.
    pub(crate) instructions: Vec<Instruction>,
    /// Parent of each brace scope; scope 0 is the body itself.
    pub(crate) scopes: Vec<u32>,
    /// Index of the instruction after each label, by scope and name.
    pub(crate) labels: HashMap<(u32, String), u32>,
    /// The labels that a `.branchtargets` directive lists, by scope and name.
    pub(crate) branch_targets: HashMap<(u32, String), Vec<String>>,
}

/// Parses a module.
pub(crate) fn parse(source: Source<'_>) -> ParseResult<Module> {
    let tokens = tokenize(&source)?;
    let mut cursor = Cursor { source, tokens: &tokens, position: 0 };
    let mut module = Module::default();
    while cursor.peek() != TokenKind::End {
        cursor.module_item(&mut module)?;
    }
    Ok(module)
}

impl Cursor<'_> {
    fn module_item(&mut self, module: &mut Module) -> ParseResult<()> {
        if matches!(self.peek(), TokenKind::ImplicitDef(_)) {
            self.next();
            return Ok(());
        }
        let TokenKind::Word(word) = self.peek() else { return self.expected("a directive") };
        match word {
            ".version" | ".target" | ".file" => self.skip_line(),
            ".address_size" => {
                self.next();
                if self.integer("an address size")? != 64 {
                    return self.error("only 64-bit addresses are supported");
                }
            }
            ".section" => {
                self.next();
                self.word("a section name")?;
                self.skip_braces()?;
            }
            ".pragma" => self.pragma()?,
            ".visible" | ".weak" | ".common" | ".extern" => {
                self.next();
                if !matches!(self.peek(), TokenKind::Word(_)) {
                    return self.expected("a declaration");
                }
            }
            ".entry" => {
                let kernel = self.kernel()?;
                if module.kernels.iter().any(|other| other.name == kernel.name) {
                    return self.error(format!("kernel `{}` is defined twice", kernel.name));
                }
                module.kernels.push(kernel);
            }
            ".func" => {
                return self
                    .error("device functions are not supported by the emulator; inline them");
            }
            ".global" | ".const" | ".shared" => self.variables(&mut module.variables)?,
            other => return self.error(format!("unknown directive `{other}`")),
        }
        Ok(())
    }

    pub(super) fn pragma(&mut self) -> ParseResult<()> {
        self.next();
        while self.peek() != TokenKind::Mark(';') {
            match self.next() {
                TokenKind::Text(_) | TokenKind::Mark(',') => {}
                _ => return self.expected("a string"),
            }
        }
        self.expect(';')
    }

    /// Parses a declaration of one or more variables, from the state space to the semicolon.
    pub(super) fn variables(&mut self, variables: &mut Vec<Variable>) -> ParseResult<()> {
        let space_word = self.word("a state space")?;
        let Some(space) = Space::from_name(&space_word[1..]) else {
            return self.error(format!("unknown state space `{space_word}`"));
        };
        let mut align = None;
        let mut n_lanes = 1;
        let element = loop {
            let word = self.word("a type")?;
            match word {
                ".align" => align = Some(self.small_integer("an alignment")?),
                ".v2" => n_lanes = 2,
                ".v4" => n_lanes = 4,
                _ => match Type::from_name(word.get(1..).unwrap_or("")) {
                    Some(element) if element != Type::Pred => break element,
                    _ => return self.error(format!("unknown type `{word}`")),
                },
            }
        };
        let natural = element.n_bytes() * n_lanes;
        let align = align.unwrap_or(natural);
        if !align.is_power_of_two() {
            return self.error(format!("alignment {align} is not a power of two"));
        }
        loop {
            let variable = self.variable(space, element, align, u64::from(natural))?;
            if variables.iter().any(|other| other.name == variable.name) {
                return self.error(format!("variable `{}` is declared twice", variable.name));
            }
            variables.push(variable);
            if !self.accept(',') {
                break;
            }
        }
        self.expect(';')
    }

    fn variable(
        &mut self,
        space: Space,
        element: Type,
        align: u32,
        element_bytes: u64,
    ) -> ParseResult<Variable> {
        let line = self.line();
        let name = self.word("a variable name")?.to_owned();
        let mut n_bytes = Some(element_bytes);
        while self.accept('[') {
            if self.accept(']') {
                n_bytes = None;
                continue;
            }
            let extent = self.integer("an array size")?;
            self.expect(']')?;
            n_bytes = n_bytes.and_then(|n| n.checked_mul(extent));
            if n_bytes.is_none_or(|n| n > 1 << 32) {
                return self.error(format!("variable `{name}` is too large"));
            }
        }
        let mut variable =
            Variable { name, space, align, n_bytes, initial: None, relocations: Vec::new(), line };
        if self.accept('=') {
            if !matches!(space, Space::Global | Space::Const) {
                return self.error(format!("a {} variable has no initialiser", space.name()));
            }
            let mut bytes = Vec::new();
            self.initialiser(element, &mut bytes, &mut variable.relocations, 0)?;
            let Some(n_bytes) = variable.n_bytes else {
                return self.error("an initialised array needs its size");
            };
            if bytes.len() as u64 > n_bytes {
                return self.error("the initialiser is longer than the variable");
            }
            bytes.resize(n_bytes as usize, 0);
            variable.initial = Some(bytes);
        }
        Ok(variable)
    }

    fn initialiser(
        &mut self,
        element: Type,
        bytes: &mut Vec<u8>,
        relocations: &mut Vec<Relocation>,
        depth: u32,
    ) -> ParseResult<()> {
        if depth > 8 {
            return self.error("initialisers are nested too deeply");
        }
        if self.accept('{') {
            while !self.accept('}') {
                self.initialiser(element, bytes, relocations, depth + 1)?;
                if !self.accept(',') && self.peek() != TokenKind::Mark('}') {
                    return self.expected("`,` or `}`");
                }
            }
            return Ok(());
        }
        let negative = self.accept('-');
        let bits = match self.next() {
            TokenKind::Integer(value) if negative => value.wrapping_neg(),
            TokenKind::Integer(value) => value,
            TokenKind::Float32(bits) if element == Type::F32 => u64::from(bits),
            TokenKind::Float64(bits) => {
                let value = f64::from_bits(bits) * if negative { -1.0 } else { 1.0 };
                match element {
                    Type::F64 => value.to_bits(),
                    Type::F32 => u64::from((value as f32).to_bits()),
                    _ => return self.error("a floating-point value initialises an integer"),
                }
            }
            TokenKind::Word(word) if element.n_bytes() == 8 && !negative => {
                let symbol = self.symbol_value(word)?;
                let addend = self.offset()?;
                relocations.push(Relocation { offset: bytes.len() as u64, symbol, addend });
                0
            }
            other => {
                return self.error(format!("{} cannot initialise a variable", other.describe()));
            }
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.n_bytes().min(8) as usize]);
        Ok(())
    }

    /// `name` or `generic(name)`; generic addresses of global variables are their addresses.
    fn symbol_value(&mut self, word: &str) -> ParseResult<String> {
        if word != "generic" {
            return Ok(word.to_owned());
        }
        self.expect('(')?;
        let symbol = self.word("a variable")?.to_owned();
        self.expect(')')?;
        Ok(symbol)
    }

    fn kernel(&mut self) -> ParseResult<Kernel> {
        self.next();
        let mut kernel =
            Kernel { name: self.word("a kernel name")?.to_owned(), ..Kernel::default() };
        if self.accept('(') {
            let mut offset = 0;
            while !self.accept(')') {
                let parameter = self.parameter(&mut offset)?;
                kernel.parameters.push(parameter);
                if !self.accept(',') && self.peek() != TokenKind::Mark(')') {
                    return self.expected("`,` or `)`");
                }
            }
        }
        self.kernel_directives(&mut kernel)?;
        body::parse_body(self, &mut kernel)?;
        Ok(kernel)
    }

    fn parameter(&mut self, end: &mut u32) -> ParseResult<Parameter> {
        if !self.accept_word(".param") {
            return self.expected("`.param`");
        }
        let mut align = None;
        let mut element = None;
        let name = loop {
            let word = self.word("a parameter")?;
            match word {
                ".align" => {
                    let value = self.small_integer("an alignment")?;
                    align = align.or(Some(value));
                }
                // What the pointer points to concerns the optimiser alone.
                ".ptr" => {
                    while let TokenKind::Word(word) = self.peek() {
                        match word {
                            ".global" | ".const" | ".shared" | ".local" => self.next(),
                            ".align" => {
                                self.next();
                                self.next()
                            }
                            _ => break,
                        };
                    }
                }
                _ => match word.strip_prefix('.').and_then(Type::from_name) {
                    Some(ty) => element = Some(ty),
                    None if word.starts_with('.') => {
                        return self.error(format!("unknown parameter attribute `{word}`"));
                    }
                    None => break word.to_owned(),
                },
            }
        };
        let Some(element) = element else { return self.error("the parameter has no type") };
        let mut n_bytes = u64::from(element.n_bytes());
        if self.accept('[') {
            n_bytes *= self.integer("an array size")?.min(1 << 20);
            self.expect(']')?;
        }
        let align = align.unwrap_or(element.n_bytes()).max(1);
        let offset = u64::from(*end).next_multiple_of(u64::from(align));
        // PTX ISA 8.1 raised the limit of the parameter space from 4352 to 32764 bytes.
        if offset + n_bytes > 32_764 {
            return self.error("the parameters take more than 32764 bytes");
        }
        *end = (offset + n_bytes) as u32;
        Ok(Parameter { name, offset: offset as u32, n_bytes: n_bytes as u32 })
    }

    fn kernel_directives(&mut self, kernel: &mut Kernel) -> ParseResult<()> {
        while let TokenKind::Word(word) = self.peek() {
            match word {
                ".maxntid" => kernel.max_threads = Some(self.extents()?),
                ".reqntid" => kernel.required_threads = Some(self.extents()?),
                ".reqnctapercluster" => kernel.required_cluster = Some(self.extents()?),
                ".minnctapersm" | ".maxnctapersm" | ".maxnreg" | ".maxclusterrank" => {
                    self.next();
                    self.integer("a number")?;
                }
                ".explicitcluster" => {
                    self.next();
                }
                ".pragma" => self.pragma()?,
                other => return self.error(format!("unknown kernel directive `{other}`")),
            }
        }
        Ok(())
    }

    fn extents(&mut self) -> ParseResult<[u32; 3]> {
        self.next();
        let mut extents = [1; 3];
        for (axis, extent) in extents.iter_mut().enumerate() {
            if axis > 0 && !self.accept(',') {
                break;
            }
            *extent = self.small_integer("an extent")?;
        }
        Ok(extents)
    }
}
