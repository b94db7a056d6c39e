//! The text form of sizes, in strings and in JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Atom, Dim, DimError, Monomial};

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => f.write_str(symbol),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

impl fmt::Display for Dim {
    /// Non-constant terms first, the constant last: `2*N + 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constant = self.terms.get(&Vec::new() as &Monomial).copied().unwrap_or(0);
        let mut first = true;
        for (monomial, &coefficient) in self.terms.iter().filter(|(m, _)| !m.is_empty()) {
            let sign = match (first, coefficient < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            f.write_str(sign)?;
            if coefficient.unsigned_abs() != 1 {
                write!(f, "{}*", coefficient.unsigned_abs())?;
            }
            for (position, atom) in monomial.iter().enumerate() {
                write!(f, "{}{atom}", if position == 0 { "" } else { "*" })?;
            }
            first = false;
        }
        match (first, constant) {
            (true, value) => write!(f, "{value}"),
            (false, 0) => Ok(()),
            (false, value) if value < 0 => write!(f, " - {}", value.unsigned_abs()),
            (false, value) => write!(f, " + {value}"),
        }
    }
}

impl FromStr for Dim {
    type Err = DimError;

    fn from_str(text: &str) -> Result<Dim, DimError> {
        let mut parser = Parser { text, rest: text, depth: 0 };
        if text.len() > MAX_TEXT_BYTES {
            return Err(parser.error(format!("longer than {MAX_TEXT_BYTES} bytes")));
        }
        let dim = parser.sum()?;
        match parser.rest.trim_start() {
            "" => Ok(dim),
            rest => Err(parser.error(format!("unexpected `{rest}`"))),
        }
    }
}

/// Nesting beyond this is refused, so that hostile text cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Longer text is refused: no size of a model needs it, and its normal form may be far longer.
const MAX_TEXT_BYTES: usize = 4096;

/// Sums of more monomials are refused, since products of sums grow exponentially with the text.
const MAX_TERMS: usize = 1024;

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn error(&self, reason: impl Into<String>) -> DimError {
        let mut text: String = self.text.chars().take(80).collect();
        if text.len() < self.text.len() {
            text.push_str("...");
        }
        DimError::Syntax { text, reason: reason.into() }
    }

    fn eat(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Result<(), DimError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("expected `{token}`"))) }
    }

    fn limited(&self, dim: Option<Dim>) -> Result<Dim, DimError> {
        let dim = dim.ok_or_else(|| self.error("a number leaves 64 bits"))?;
        if dim.terms.len() > MAX_TERMS {
            return Err(self.error(format!("more than {MAX_TERMS} terms")));
        }
        Ok(dim)
    }

    fn add(&self, left: &Dim, right: &Dim) -> Result<Dim, DimError> {
        self.limited(left.checked_add(right))
    }

    fn multiply(&self, left: &Dim, right: &Dim) -> Result<Dim, DimError> {
        if left.terms.len().saturating_mul(right.terms.len()) > 16 * MAX_TERMS {
            return Err(self.error(format!("more than {MAX_TERMS} terms")));
        }
        self.limited(left.checked_mul(right))
    }

    fn sum(&mut self) -> Result<Dim, DimError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        let negative = self.eat('-');
        let mut sum = self.product(negative)?;
        loop {
            let negative = self.eat('-');
            if !negative && !self.eat('+') {
                self.depth -= 1;
                return Ok(sum);
            }
            let term = self.product(negative)?;
            sum = self.add(&sum, &term)?;
        }
    }

    /// A product, or its negative. The sign goes to the first factor, so that `i64::MIN` can be read.
    fn product(&mut self, negative: bool) -> Result<Dim, DimError> {
        let mut product = self.factor(negative)?;
        while self.eat('*') {
            let negative = self.eat('-');
            let factor = self.factor(negative)?;
            product = self.multiply(&product, &factor)?;
        }
        Ok(product)
    }

    fn factor(&mut self, negative: bool) -> Result<Dim, DimError> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let word = self.word()?;
            let digits = if negative { format!("-{word}") } else { word.to_owned() };
            let value = digits.parse().map_err(|_| self.error(format!("bad number `{digits}`")))?;
            return Ok(Dim::constant(value));
        }
        let factor = if self.eat('(') {
            let inner = self.sum()?;
            self.expect(')')?;
            inner
        } else {
            self.named()?
        };
        if negative { self.multiply(&factor, &Dim::constant(-1)) } else { Ok(factor) }
    }

    fn word(&mut self) -> Result<&str, DimError> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '$' | '?')))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(self.error("expected a number or a name"));
        }
        self.rest = rest;
        Ok(word)
    }

    /// A symbol or a function of two sizes.
    fn named(&mut self) -> Result<Dim, DimError> {
        let word = self.word()?.to_owned();
        if !self.eat('(') {
            return Ok(Dim::symbol(word));
        }
        let left = self.sum()?;
        self.expect(',')?;
        let right = self.sum()?;
        self.expect(')')?;
        match word.as_str() {
            "floordiv" | "mod" if right.is(0) => Err(self.error("division by zero")),
            "floordiv" => Ok(left.floor_div(&right)),
            "mod" => Ok(left.modulo(&right)),
            "max" => Ok(left.maximum(&right)),
            "min" => Ok(left.minimum(&right)),
            _ => Err(self.error(format!("unknown function `{word}`"))),
        }
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(value) => serializer.serialize_i64(value),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dim, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(i64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(Dim::constant(value)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
