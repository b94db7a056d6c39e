//! Splits a text into tokens, on demand.

use std::fmt;

/// A piece of text with a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, op, element type, attribute name; also `inf`, `-inf` and `nan`.
    Word(&'a str),
    /// A number as it is written, with its sign; `0x` starts bits.
    Number(&'a str),
    /// A quoted text.
    Text(String),
    /// `%` and a name.
    Value(ValueName),
    /// Punctuation.
    Symbol(&'a str),
    /// No token, with the reason.
    Bad(String),
    /// The end of the text.
    End,
}

/// How a value is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueName {
    /// `%3`
    Number(u64),
    /// `%x`, `%"x:0"`
    Name(String),
}

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueName::Number(number) => write!(f, "%{number}"),
            ValueName::Name(name) => write!(f, "%{}", quoted_unless_identifier(name)),
        }
    }
}

/// Whether a name needs no quotes.
pub(super) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_identifier_char)
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The name in quotes, or bare if it is an identifier.
pub(super) fn quoted_unless_identifier(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { quoted(name) }
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

pub(super) struct Lexer<'a> {
    pub text: &'a str,
    /// Offset of what comes after the last token.
    pub offset: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// Takes as many bytes as the longest prefix of characters that pass.
    fn take_while(&mut self, passes: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !passes(c)).unwrap_or(rest.len());
        self.offset += end;
        &rest[..end]
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with(';') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    /// The next token and where it starts.
    pub fn token(&mut self) -> (Token<'a>, usize) {
        self.skip_blanks();
        let start = self.offset;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return (Token::End, start);
        };
        let second = rest[first.len_utf8()..].chars().next().unwrap_or(' ');
        let token = match first {
            '"' => self.quoted().map_or_else(Token::Bad, Token::Text),
            '%' => self.value(),
            '-' if second == '>' => self.symbol(2),
            '.' if second == '.' => self.symbol(2),
            '-' if second.is_ascii_alphabetic() => {
                self.offset += 1;
                self.take_while(is_identifier_char);
                Token::Word(&self.text[start..self.offset])
            }
            c if c.is_ascii_digit() || (c == '-' && second.is_ascii_digit()) => self.number(),
            c if c.is_ascii_alphabetic() || c == '_' => {
                Token::Word(self.take_while(is_identifier_char))
            }
            '(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=' | '#' | '@' => self.symbol(1),
            other => {
                self.offset += other.len_utf8();
                Token::Bad(format!("unexpected character `{}`", other.escape_debug()))
            }
        };
        (token, start)
    }

    fn symbol(&mut self, bytes: usize) -> Token<'a> {
        let symbol = &self.rest()[..bytes];
        self.offset += bytes;
        Token::Symbol(symbol)
    }

    fn number(&mut self) -> Token<'a> {
        let start = self.offset;
        if self.rest().starts_with('-') {
            self.offset += 1;
        }
        if self.rest().starts_with("0x") {
            self.offset += 2;
            self.take_while(|c| c.is_ascii_hexdigit());
            return Token::Number(&self.text[start..self.offset]);
        }
        let is_digit = |c: char| c.is_ascii_digit();
        self.take_while(is_digit);
        // `1..8` is a range, so a point belongs to the number only before a digit.
        let mut rest = self.rest().chars();
        if rest.next() == Some('.') && rest.next().is_some_and(is_digit) {
            self.offset += 1;
            self.take_while(is_digit);
        }
        if self.rest().starts_with(['e', 'E']) {
            self.offset += 1;
            if self.rest().starts_with(['+', '-']) {
                self.offset += 1;
            }
            self.take_while(is_digit);
        }
        Token::Number(&self.text[start..self.offset])
    }

    fn value(&mut self) -> Token<'a> {
        self.offset += 1;
        let rest = self.rest();
        if rest.starts_with('"') {
            return self
                .quoted()
                .map_or_else(Token::Bad, |name| Token::Value(ValueName::Name(name)));
        }
        let word = self.take_while(is_identifier_char);
        if is_identifier(word) {
            Token::Value(ValueName::Name(word.to_owned()))
        } else {
            match word.parse() {
                Ok(number) => Token::Value(ValueName::Number(number)),
                Err(_) => Token::Bad(format!("`%{word}` is not a value's name")),
            }
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.offset += 1;
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|c| !matches!(c, '"' | '\\' | '\n')));
            let rest = self.rest();
            match rest.chars().next() {
                Some('"') => {
                    self.offset += 1;
                    return Ok(text);
                }
                Some('\\') => text.push(self.escape()?),
                _ => return Err("a text has no closing quote on its line".into()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.offset += 1;
        let Some(kind) = self.rest().chars().next() else {
            return Err("a text ends after `\\`".into());
        };
        self.offset += kind.len_utf8();
        match kind {
            '"' | '\\' => Ok(kind),
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'u' => {
                let digits = self.take_while(|c| c.is_ascii_hexdigit() || matches!(c, '{' | '}'));
                digits
                    .strip_prefix('{')
                    .and_then(|digits| digits.strip_suffix('}'))
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                    .and_then(char::from_u32)
                    .ok_or_else(|| format!("`\\u{digits}` is not a character"))
            }
            other => Err(format!("unknown escape `\\{}`", other.escape_debug())),
        }
    }

    /// What is written up to the next `,` or `]` outside parentheses, on this line: one size of a shape.
    pub fn size(&mut self) -> &'a str {
        let rest = self.rest();
        let mut depth = 0usize;
        let end = rest
            .find(|c| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    ',' | ']' => return depth == 0,
                    '\n' | ';' => return true,
                    _ => {}
                }
                false
            })
            .unwrap_or(rest.len());
        self.offset += end;
        rest[..end].trim()
    }

    /// Goes on behind the end of the line that `offset` is in.
    pub fn skip_line_of(&mut self, offset: usize) {
        let rest = &self.text[offset..];
        self.offset = offset + rest.find('\n').unwrap_or(rest.len());
    }
}
