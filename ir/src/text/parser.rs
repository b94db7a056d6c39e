//! The tokens and the small pieces that graphs and plans are made of.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Dim, DimRange, Symbol, Tensor};

use super::lexer::{Lexer, Token, ValueName};
use super::literal::{SplatBudget, parse_element, parse_float};
use super::{Position, TextError, TextErrors};
use crate::op::OpRef;
use crate::{
    AttrKind, AttrValue, Attrs, Diagnostic, Float, Loc, LocSet, SourceMap, SourceNode, Type,
};

/// Shapes of more axes are refused.
const MAX_RANK: usize = 32;

/// The product of the numbers of terms of a shape's sizes: how many terms its number of elements may
/// have at most. Refusing more bounds what inference has to multiply out.
const MAX_SHAPE_TERMS: usize = 4096;

/// Messages that quote hostile text are cut.
const MAX_MESSAGE_CHARS: usize = 500;

/// The fault is already recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed;

pub(super) type Parse<T> = Result<T, Failed>;

pub(super) struct Parser<'a> {
    pub lexer: Lexer<'a>,
    /// The token that is looked at, and where it starts.
    pub token: Token<'a>,
    pub start: usize,
    pub errors: Vec<TextError>,
    /// Where nodes come from; one map for the whole text.
    pub sources: SourceMap,
    locs: BTreeMap<String, Loc>,
    splats: SplatBudget,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer { text, offset: 0 };
        let (token, start) = lexer.token();
        Parser {
            lexer,
            token,
            start,
            errors: Vec::new(),
            sources: SourceMap::default(),
            locs: BTreeMap::new(),
            splats: SplatBudget::default(),
        }
    }

    pub fn advance(&mut self) -> Token<'a> {
        let (token, start) = self.lexer.token();
        self.start = start;
        std::mem::replace(&mut self.token, token)
    }

    /// Records a fault.
    pub fn fault(&mut self, offset: usize, diagnostic: Diagnostic) -> Failed {
        let position = Position::of(self.lexer.text, offset);
        if self.errors.len() < TextErrors::MOST {
            let mut message = diagnostic.message;
            if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
                message.truncate(end);
                message.push_str("...");
            }
            let diagnostic = Diagnostic { message, loc: LocSet::none(), ..diagnostic };
            self.errors.push(TextError { position, diagnostic });
        }
        Failed
    }

    pub fn fail<T>(&mut self, offset: usize, code: &str, message: impl Into<String>) -> Parse<T> {
        Err(self.fault(offset, Diagnostic::new(code, message)))
    }

    /// The token that is looked at is not what the grammar asks for.
    pub fn unexpected<T>(&mut self, wanted: &str) -> Parse<T> {
        let message = match &self.token {
            Token::Bad(reason) => reason.clone(),
            Token::End => format!("expected {wanted}, found the end of the text"),
            _ => {
                let found = &self.lexer.text[self.start..self.lexer.offset];
                let shown: String = found.chars().take(40).collect();
                format!("expected {wanted}, found `{shown}`")
            }
        };
        self.fail(self.start, "text-syntax", message)
    }

    pub fn at(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(found) if found == symbol)
    }

    pub fn eat(&mut self, symbol: &str) -> bool {
        let found = self.at(symbol);
        if found {
            self.advance();
        }
        found
    }

    pub fn expect(&mut self, symbol: &str) -> Parse<()> {
        if self.eat(symbol) { Ok(()) } else { self.unexpected(&format!("`{symbol}`")) }
    }

    pub fn at_any_word(&self) -> bool {
        matches!(self.token, Token::Word(_))
    }

    pub fn at_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(found) if found == word)
    }

    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.advance();
        }
        found
    }

    pub fn expect_word(&mut self, word: &str) -> Parse<()> {
        if self.eat_word(word) { Ok(()) } else { self.unexpected(&format!("`{word}`")) }
    }

    pub fn word(&mut self, wanted: &str) -> Parse<&'a str> {
        match self.token {
            Token::Word(word) => {
                self.advance();
                Ok(word)
            }
            _ => self.unexpected(wanted),
        }
    }

    /// A bare or quoted name.
    pub fn name(&mut self, wanted: &str) -> Parse<String> {
        match self.advance_if(|token| matches!(token, Token::Word(_) | Token::Text(_))) {
            Some(Token::Word(word)) => Ok(word.to_owned()),
            Some(Token::Text(text)) => Ok(text),
            _ => self.unexpected(wanted),
        }
    }

    pub fn value_name(&mut self) -> Parse<ValueName> {
        match self.advance_if(|token| matches!(token, Token::Value(_))) {
            Some(Token::Value(name)) => Ok(name),
            _ => self.unexpected("a value such as `%0`"),
        }
    }

    fn advance_if(&mut self, is_wanted: impl Fn(&Token<'a>) -> bool) -> Option<Token<'a>> {
        is_wanted(&self.token).then(|| self.advance())
    }

    pub fn integer(&mut self) -> Parse<i64> {
        match self.token {
            Token::Number(text) => match text.parse() {
                Ok(value) => {
                    self.advance();
                    Ok(value)
                }
                Err(_) => self.fail(
                    self.start,
                    "text-syntax",
                    format!("`{text}` is not a 64-bit integer"),
                ),
            },
            _ => self.unexpected("an integer"),
        }
    }

    /// `open item, item close`, the items possibly none.
    pub fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Parser<'a>) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub fn end(&mut self) -> Parse<()> {
        if self.token == Token::End { Ok(()) } else { self.unexpected("the end of the text") }
    }

    pub fn is_full(&self) -> bool {
        self.errors.len() >= TextErrors::MOST
    }

    /// Goes on with the line after the one that `offset` is in, unless that line is already behind.
    pub fn recover(&mut self, offset: usize) {
        let mut ahead = Lexer { text: self.lexer.text, offset };
        ahead.skip_line_of(offset);
        if self.start < ahead.offset {
            self.lexer.offset = ahead.offset;
            self.advance();
        }
    }
}

/// Types, attributes and places.
impl<'a> Parser<'a> {
    pub fn dtype(&mut self) -> Parse<DType> {
        let start = self.start;
        let word = self.word("an element type such as `f32`")?;
        word.parse().or_else(|_| {
            let known = DType::ALL.map(DType::name).join(", ");
            self.fail(start, "text-syntax", format!("`{word}` is not an element type ({known})"))
        })
    }

    pub fn ty(&mut self) -> Parse<Type> {
        Ok(Type::new(self.dtype()?, self.sizes()?))
    }

    /// `[8,N,2*N + 1]`
    pub fn sizes(&mut self) -> Parse<Vec<Dim>> {
        let start = self.start;
        let mut dims: Vec<Dim> = Vec::new();
        if !self.at("[") {
            return self.unexpected("`[`");
        }
        loop {
            let start = self.lexer.offset;
            let text = self.lexer.size();
            self.advance();
            if text.is_empty() && dims.is_empty() && self.eat("]") {
                return Ok(dims);
            }
            match text.parse() {
                Ok(dim) => dims.push(dim),
                Err(error) => return self.fail(start, "text-syntax", error.to_string()),
            }
            if self.eat("]") {
                break;
            }
            // The comma stays the token that is looked at: the next size starts behind it.
            if !self.at(",") {
                return self.unexpected("`,` or `]`");
            }
        }
        if dims.len() > MAX_RANK {
            let message = format!("{} axes are more than {MAX_RANK}", dims.len());
            return self.fail(start, "text-limit", message);
        }
        let count = |product: usize, dim: &Dim| product.checked_mul(dim.terms().count().max(1));
        if dims.iter().try_fold(1, count).is_none_or(|terms| terms > MAX_SHAPE_TERMS) {
            let message = format!("the sizes multiply to more than {MAX_SHAPE_TERMS} terms");
            return self.fail(start, "text-limit", message);
        }
        Ok(dims)
    }

    /// `f32[2] [1.0, 2.0]`, with the type already read.
    pub fn elements(&mut self, ty: &Type) -> Parse<Tensor> {
        let start = self.start;
        let Some(shape) = ty.shape.as_const() else {
            return self.fail(start, "text-type", format!("a tensor cannot have the type {ty}"));
        };
        let mut bytes = Vec::new();
        if self.eat_word("splat") {
            self.element(ty.dtype, &mut bytes)?;
            let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
            let size = count.and_then(|count| count.checked_mul(ty.dtype.size()));
            match size {
                Some(size) if self.splats.take(size) => {
                    bytes = bytes.repeat(size / ty.dtype.size());
                }
                _ => {
                    let message = format!("a splat of type {ty} takes too much memory");
                    return self.fail(start, "text-limit", message);
                }
            }
        } else {
            self.list("[", "]", |parser| parser.element(ty.dtype, &mut bytes))?;
        }
        Tensor::new(ty.dtype, shape, bytes)
            .or_else(|error| self.fail(start, "text-type", error.to_string()))
    }

    /// One number, added to `bytes`.
    fn element(&mut self, dtype: DType, bytes: &mut Vec<u8>) -> Parse<()> {
        let text = self.number_text()?;
        match parse_element(dtype, text) {
            Ok(element) => {
                bytes.extend(element);
                self.advance();
                Ok(())
            }
            Err(reason) => self.fail(self.start, "text-syntax", reason),
        }
    }

    fn number_text(&mut self) -> Parse<&'a str> {
        match self.token {
            Token::Number(text) | Token::Word(text) => Ok(text),
            _ => self.unexpected("a number"),
        }
    }

    fn float(&mut self) -> Parse<f64> {
        let text = self.number_text()?;
        match parse_float(text) {
            Ok(value) => {
                self.advance();
                Ok(value)
            }
            Err(reason) => self.fail(self.start, "text-syntax", reason),
        }
    }

    fn attr_value(&mut self, kind: AttrKind) -> Parse<AttrValue> {
        Ok(match kind {
            AttrKind::Int => AttrValue::Int(self.integer()?),
            AttrKind::Ints => AttrValue::Ints(self.list("[", "]", Parser::integer)?),
            AttrKind::Dims => AttrValue::Dims(self.sizes()?),
            AttrKind::Float => AttrValue::Float(Float(self.float()?)),
            AttrKind::Bool if self.eat_word("true") => AttrValue::Bool(true),
            AttrKind::Bool if self.eat_word("false") => AttrValue::Bool(false),
            AttrKind::Bool => return self.unexpected("`true` or `false`"),
            AttrKind::Text => AttrValue::Text(self.name("a text")?.into()),
            AttrKind::DType => AttrValue::DType(self.dtype()?),
            AttrKind::Tensor => {
                let ty = self.ty()?;
                AttrValue::Tensor(self.elements(&ty)?)
            }
        })
    }

    /// `{axis = 1, keepdims = true}`, or nothing.
    pub fn attrs(&mut self, op: OpRef) -> Parse<Attrs> {
        let mut attrs = Attrs::none();
        if !self.at("{") {
            return Ok(attrs);
        }
        self.list("{", "}", |parser| {
            let start = parser.start;
            let name = parser.word("an attribute's name")?;
            let Some(&(declared, kind)) = op.def().attrs.iter().find(|(other, _)| *other == name)
            else {
                let message = format!("`{op}` has no attribute `{name}`");
                return parser.fail(start, &format!("{op}.attrs"), message);
            };
            if attrs.get(declared).is_some() {
                return parser.fail(start, "text-name", format!("`{name}` is there twice"));
            }
            parser.expect("=")?;
            let value = parser.attr_value(kind)?;
            attrs.insert(declared, value);
            Ok(())
        })?;
        Ok(attrs)
    }

    /// `@"fc/MatMul"`, `@["a", "b"]`, or nothing.
    pub fn loc(&mut self) -> Parse<LocSet> {
        if !self.eat("@") {
            return Ok(LocSet::none());
        }
        let names = if self.at("[") {
            self.list("[", "]", |parser| parser.name("a node's name"))?
        } else {
            vec![self.name("a node's name")?]
        };
        Ok(names.into_iter().map(|name| self.named_loc(name)).collect())
    }

    fn named_loc(&mut self, name: String) -> Loc {
        if let Some(&loc) = self.locs.get(&name) {
            return loc;
        }
        let node =
            SourceNode { name: name.as_str().into(), op_type: "".into(), index: None, opset: None };
        let loc = self.sources.add(node);
        self.locs.insert(name, loc);
        loc
    }
}

/// What graphs and plans have in common.
impl Parser<'_> {
    /// `@name`
    pub fn title(&mut self) -> Parse<String> {
        self.expect("@")?;
        self.name("a name")
    }

    /// `(%x: f32[8], ...)`: name, type, place and offset of each.
    pub fn inputs(&mut self) -> Parse<Vec<(String, Type, LocSet, usize)>> {
        self.list("(", ")", |parser| {
            let start = parser.start;
            let ValueName::Name(name) = parser.value_name()? else {
                return parser.fail(
                    start,
                    "text-name",
                    "an input's name is not a number; quote it",
                );
            };
            parser.expect(":")?;
            Ok((name, parser.ty()?, parser.loc()?, start))
        })
    }

    /// `dims(N: 8..64 multiple of 8)`, or nothing.
    pub fn dims(&mut self) -> Parse<BTreeMap<Symbol, DimRange>> {
        let mut dims = BTreeMap::new();
        if !self.eat_word("dims") {
            return Ok(dims);
        }
        self.list("(", ")", |parser| {
            let start = parser.start;
            let name: Symbol = parser.name("a dimension's name")?.into();
            parser.expect(":")?;
            let min = parser.integer()?;
            parser.expect("..")?;
            let max = parser.integer()?;
            let divisor = if parser.eat_word("multiple") {
                parser.expect_word("of")?;
                parser.integer()?
            } else {
                1
            };
            if dims.insert(name.clone(), DimRange { min, max, divisor }).is_some() {
                return parser.fail(start, "text-name", format!("`{name}` is declared twice"));
            }
            Ok(())
        })?;
        Ok(dims)
    }

    /// `-> (y: f32[8], ...)`, or nothing: name, type and offset of each.
    pub fn results(&mut self) -> Parse<Vec<(String, Type, usize)>> {
        if !self.eat("->") {
            return Ok(Vec::new());
        }
        self.list("(", ")", |parser| {
            let start = parser.start;
            let name = parser.name("an output's name")?;
            parser.expect(":")?;
            Ok((name, parser.ty()?, start))
        })
    }
}
