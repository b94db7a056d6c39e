//! Tokens of TorchScript's code, with indentation as tokens of its own.

use std::rc::Rc;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(Rc<str>),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    /// Punctuation, such as `->` or `(`.
    Mark(&'static str),
    /// The end of a line outside of brackets.
    Line,
    Indent,
    Dedent,
}

const MARKS: [&str; 22] = [
    "->", "==", "!=", "<=", ">=", "**", "//", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=",
    "-", "+", "*", "@", "<",
];

/// Most levels of indentation.
const MAX_INDENT: usize = 100;

/// Splits code into tokens with their lines.
///
/// # Errors
/// Line and reason.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, u32)>, (u32, String)> {
    let mut lexer = Lexer { rest: text, line: 1, depth: 0, indents: vec![0], tokens: Vec::new() };
    lexer.run().map_err(|reason| (lexer.line, reason))?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Open brackets.
    depth: usize,
    indents: Vec<usize>,
    tokens: Vec<(Token, u32)>,
}

impl Lexer<'_> {
    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn run(&mut self) -> Result<(), String> {
        self.indentation()?;
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\n' => self.newline()?,
                ' ' | '\t' | '\r' => self.rest = &self.rest[1..],
                '#' => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                '"' | '\'' => {
                    let text = self.text(c)?;
                    self.push(Token::Text(text.into()));
                }
                _ if c.is_ascii_digit() => self.number()?,
                _ if c.is_alphabetic() || c == '_' => {
                    let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                    let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.push(Token::Name(name.into()));
                    self.rest = rest;
                }
                _ => self.mark(c)?,
            }
        }
        if self.depth > 0 {
            return Err("a bracket is not closed".to_owned());
        }
        if !matches!(self.tokens.last(), None | Some((Token::Line, _))) {
            self.push(Token::Line);
        }
        for _ in 1..self.indents.len() {
            self.push(Token::Dedent);
        }
        Ok(())
    }

    fn newline(&mut self) -> Result<(), String> {
        self.rest = &self.rest[1..];
        if self.depth == 0 {
            if !matches!(
                self.tokens.last(),
                None | Some((Token::Line | Token::Indent | Token::Dedent, _))
            ) {
                self.push(Token::Line);
            }
            self.line += 1;
            return self.indentation();
        }
        self.line += 1;
        Ok(())
    }

    fn indentation(&mut self) -> Result<(), String> {
        let width = self.rest.len() - self.rest.trim_start_matches(' ').len();
        let rest = &self.rest[width..];
        if rest.is_empty() || rest.starts_with(['\n', '\r', '#']) {
            return Ok(());
        }
        self.rest = rest;
        let current = self.indents.last().copied().unwrap_or(0);
        if width > current {
            if self.indents.len() >= MAX_INDENT {
                return Err("the code is nested too deeply".to_owned());
            }
            self.indents.push(width);
            self.push(Token::Indent);
        }
        while self.indents.last().is_some_and(|&open| width < open) {
            self.indents.pop();
            self.push(Token::Dedent);
        }
        match self.indents.last() == Some(&width) {
            true => Ok(()),
            false => Err("the indentation fits no open block".to_owned()),
        }
    }

    fn mark(&mut self, c: char) -> Result<(), String> {
        let mark = MARKS.into_iter().find(|mark| self.rest.starts_with(mark));
        let mark = mark.ok_or_else(|| format!("the character {c:?} is not known"))?;
        match mark {
            "(" | "[" | "{" => self.depth += 1,
            ")" | "]" | "}" => {
                self.depth =
                    self.depth.checked_sub(1).ok_or("a bracket is closed that is not open")?;
            }
            _ => {}
        }
        self.push(Token::Mark(mark));
        self.rest = &self.rest[mark.len()..];
        Ok(())
    }

    /// Integers, and floats such as `1.`, `1e-05`, `0.5`.
    fn number(&mut self) -> Result<(), String> {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        let mut is_float = false;
        while let Some(&byte) = bytes.get(end) {
            match byte {
                b'0'..=b'9' => {}
                b'.' => is_float = true,
                b'e' | b'E' => {
                    is_float = true;
                    if matches!(bytes.get(end + 1), Some(b'+' | b'-')) {
                        end += 1;
                    }
                }
                _ => break,
            }
            end += 1;
        }
        let (text, rest) = self.rest.split_at(end);
        let token = match is_float {
            true => text.parse().ok().map(Token::Float),
            false => text.parse().ok().map(Token::Int),
        };
        self.push(token.ok_or_else(|| format!("the number {text:?} is malformed or too large"))?);
        self.rest = rest;
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                '\n' => break,
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(c) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err("a text is not closed".to_owned())
    }
}
