//! Splits PTX text into tokens (PTX ISA section 4, "Syntax").

use super::{ParseResult, Source};

/// A token with its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: TokenKind<'a>,
    /// Line in the text, from 1.
    pub(crate) line: u32,
}

/// The kinds of tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TokenKind<'a> {
    /// An identifier, directive, opcode or register with all its dotted parts.
    Word(&'a str),
    /// An integer literal by its 64 bits.
    Integer(u64),
    /// A `0f` literal by its bits.
    Float32(u32),
    /// A `0d` or decimal literal by its bits.
    Float64(u64),
    /// A string, without its quotes.
    Text(&'a str),
    /// A single character of punctuation.
    Mark(char),
    /// LLVM's comment `// implicit-def: REGISTER`: the register's value is arbitrary from here on.
    ImplicitDef(&'a str),
    /// The end of the text.
    End,
}

impl TokenKind<'_> {
    /// How messages call it.
    pub(crate) fn describe(self) -> String {
        match self {
            TokenKind::Word(word) => format!("`{word}`"),
            TokenKind::Integer(value) => format!("the number {value}"),
            TokenKind::Float32(bits) => format!("the number 0f{bits:08X}"),
            TokenKind::Float64(bits) => format!("the number 0d{bits:016X}"),
            TokenKind::Text(text) => format!("the string \"{text}\""),
            TokenKind::Mark(mark) => format!("`{mark}`"),
            TokenKind::ImplicitDef(_) => "an implicit definition".to_owned(),
            TokenKind::End => "the end of the text".to_owned(),
        }
    }
}

/// All tokens of the text, ending with [`TokenKind::End`].
pub(crate) fn tokenize<'a>(source: &Source<'a>) -> ParseResult<Vec<Token<'a>>> {
    let mut lexer = Lexer { source, rest: source.text, line: 1, tokens: Vec::new() };
    while lexer.step()? {}
    let line = lexer.line;
    lexer.tokens.push(Token { kind: TokenKind::End, line });
    Ok(lexer.tokens)
}

struct Lexer<'a, 's> {
    source: &'s Source<'a>,
    rest: &'a str,
    line: u32,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a, '_> {
    /// Takes one token or piece of space; false at the end of the text.
    fn step(&mut self) -> ParseResult<bool> {
        let Some(first) = self.rest.chars().next() else { return Ok(false) };
        match first {
            '\n' => {
                self.line += 1;
                self.take(1);
            }
            c if c.is_whitespace() => {
                self.take(c.len_utf8());
            }
            '/' if self.rest.starts_with("//") => self.line_comment(),
            '/' if self.rest.starts_with("/*") => self.block_comment()?,
            '"' => self.text()?,
            '0'..='9' => self.number()?,
            c if is_word_start(c) => {
                let length = word_length(self.rest);
                let word = self.take(length);
                self.push(TokenKind::Word(word));
            }
            '{' | '}' | '(' | ')' | '[' | ']' | '<' | '>' | ',' | ';' | ':' | '=' | '+' | '-'
            | '@' | '!' | '|' | '*' => {
                self.take(1);
                self.push(TokenKind::Mark(first));
            }
            other => {
                return Err(self
                    .source
                    .error(self.line, format!("unexpected character {other:?}")));
            }
        }
        Ok(true)
    }

    fn take(&mut self, n_bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(n_bytes);
        self.rest = rest;
        taken
    }

    fn push(&mut self, kind: TokenKind<'a>) {
        self.tokens.push(Token { kind, line: self.line });
    }

    fn line_comment(&mut self) {
        let length = self.rest.find('\n').unwrap_or(self.rest.len());
        let comment = self.take(length)[2..].trim();
        if let Some(register) = comment.strip_prefix("implicit-def: ") {
            self.push(TokenKind::ImplicitDef(register.trim()));
        }
    }

    fn block_comment(&mut self) -> ParseResult<()> {
        let Some(end) = self.rest.find("*/") else {
            return Err(self.source.error(self.line, "this comment has no end `*/`"));
        };
        let comment = self.take(end + 2);
        self.line += comment.matches('\n').count() as u32;
        Ok(())
    }

    fn text(&mut self) -> ParseResult<()> {
        let Some(end) =
            self.rest[1..].find(['"', '\n']).filter(|&end| self.rest.as_bytes()[end + 1] == b'"')
        else {
            return Err(self.source.error(self.line, "this string has no end"));
        };
        let quoted = self.take(end + 2);
        self.push(TokenKind::Text(&quoted[1..=end]));
        Ok(())
    }

    fn number(&mut self) -> ParseResult<()> {
        let length = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(self.rest.len());
        let text = self.take(length);
        match number(text) {
            Some(kind) => {
                self.push(kind);
                Ok(())
            }
            None => Err(self.source.error(self.line, format!("`{text}` is not a number"))),
        }
    }
}

fn number(text: &str) -> Option<TokenKind<'static>> {
    let hex = |digits: &str, length: usize| {
        (digits.len() == length).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
    };
    if let Some(digits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return Some(TokenKind::Float32(hex(digits, 8)? as u32));
    }
    if let Some(digits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return Some(TokenKind::Float64(hex(digits, 16)?));
    }
    if text.contains('.') {
        return text.parse::<f64>().ok().map(|value| TokenKind::Float64(value.to_bits()));
    }
    let integer = text.strip_suffix(['U', 'u']).unwrap_or(text);
    let (digits, radix) = match integer.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&integer[2..], 16),
        [b'0', b'b' | b'B', ..] => (&integer[2..], 2),
        [b'0', _, ..] => (&integer[1..], 8),
        _ => (integer, 10),
    };
    u64::from_str_radix(digits, radix).ok().map(TokenKind::Integer)
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%' | '.')
}

/// Length of the word at the start of `text`; `::` belongs to it as in `.L1::no_allocate`.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        let c = byte as char;
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.') {
            length += 1;
        } else if c == ':'
            && bytes.get(length + 1) == Some(&b':')
            && bytes.get(length + 2).is_some_and(u8::is_ascii_alphanumeric)
        {
            length += 2;
        } else {
            break;
        }
    }
    length
}
