//! A place in the tokens of a module, with the steps that all of the parser takes.

use super::lexer::{Token, TokenKind};
use super::{ParseResult, Source};

/// A place in the tokens.
pub(super) struct Cursor<'a> {
    pub(super) source: Source<'a>,
    pub(super) tokens: &'a [Token<'a>],
    pub(super) position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn token(&self) -> Token<'a> {
        self.tokens[self.position]
    }

    pub(super) fn peek(&self) -> TokenKind<'a> {
        self.token().kind
    }

    pub(super) fn peek_second(&self) -> TokenKind<'a> {
        self.tokens.get(self.position + 1).map_or(TokenKind::End, |token| token.kind)
    }

    pub(super) fn line(&self) -> u32 {
        self.token().line
    }

    pub(super) fn next(&mut self) -> TokenKind<'a> {
        let kind = self.peek();
        if kind != TokenKind::End {
            self.position += 1;
        }
        kind
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> ParseResult<T> {
        Err(self.source.error(self.line(), message))
    }

    pub(super) fn expected<T>(&self, what: &str) -> ParseResult<T> {
        self.error(format!("expected {what}, found {}", self.peek().describe()))
    }

    /// Takes the mark if it is next.
    pub(super) fn accept(&mut self, mark: char) -> bool {
        let found = self.peek() == TokenKind::Mark(mark);
        if found {
            self.next();
        }
        found
    }

    /// Takes the word if it is next.
    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.peek() == TokenKind::Word(word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: char) -> ParseResult<()> {
        if self.accept(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    pub(super) fn word(&mut self, what: &str) -> ParseResult<&'a str> {
        match self.peek() {
            TokenKind::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    pub(super) fn integer(&mut self, what: &str) -> ParseResult<u64> {
        match self.peek() {
            TokenKind::Integer(value) => {
                self.next();
                Ok(value)
            }
            _ => self.expected(what),
        }
    }

    pub(super) fn small_integer(&mut self, what: &str) -> ParseResult<u32> {
        let value = self.integer(what)?;
        u32::try_from(value).or_else(|_| self.error(format!("{what} {value} is too large")))
    }

    /// Takes the rest of the current line, for directives that carry nothing to execute.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.peek() != TokenKind::End && self.line() == line {
            self.next();
        }
    }

    pub(super) fn skip_braces(&mut self) -> ParseResult<()> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                TokenKind::Mark('{') => depth += 1,
                TokenKind::Mark('}') => depth -= 1,
                TokenKind::End => return self.expected("`}`"),
                _ => {}
            }
        }
        Ok(())
    }

    /// An optional `+ n`, `- n` or `+ -n`.
    pub(super) fn offset(&mut self) -> ParseResult<i64> {
        let negative = if self.accept('+') {
            self.accept('-')
        } else if self.accept('-') {
            true
        } else {
            return Ok(0);
        };
        let value = self.integer("an offset")? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }
}
