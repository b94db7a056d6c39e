//! Sizes as SymPy's `srepr` writes them, such as `Mul(Integer(2), Symbol('s17', positive=True, integer=True))`.

use fornax_ir::Dim;

use crate::build::sizes::is_manageable;

/// Deepest expression.
const MAX_DEPTH: usize = 32;

/// Parses an expression; `None` for what is no size that Fornax works with.
pub(super) fn parse(text: &str) -> Option<Dim> {
    let mut parser = Parser { rest: text.trim() };
    let dim = parser.expression(0)?;
    (parser.rest.is_empty() && is_manageable(&dim)).then_some(dim)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn expression(&mut self, depth: usize) -> Option<Dim> {
        if depth > MAX_DEPTH {
            return None;
        }
        let word = self.word();
        if !self.eat("(") {
            // Files of older versions write bare names and numbers too.
            return word.parse().ok().filter(|_| !word.is_empty());
        }
        let result = match word {
            "Symbol" => self.symbol()?,
            "Integer" => {
                let negative = self.eat("-");
                let value: i64 = self.word().parse().ok()?;
                Dim::constant(if negative { -value } else { value })
            }
            _ => {
                let operands = self.operands(depth)?;
                return combine(word, &operands);
            }
        };
        self.eat(")").then_some(result)
    }

    /// `'s17', positive=True, integer=True`
    fn symbol(&mut self) -> Option<Dim> {
        let quoted = self.rest.strip_prefix('\'')?;
        let (name, rest) = quoted.split_once('\'')?;
        let end = rest.find(')')?;
        self.rest = &rest[end..];
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        (starts && name.chars().all(allowed)).then(|| Dim::symbol(name))
    }

    fn operands(&mut self, depth: usize) -> Option<Vec<Dim>> {
        let mut operands = Vec::new();
        loop {
            operands.push(self.expression(depth + 1)?);
            if self.eat(")") {
                return Some(operands);
            }
            if !self.eat(",") {
                return None;
            }
        }
    }
}

fn combine(operator: &str, operands: &[Dim]) -> Option<Dim> {
    match (operator, operands) {
        ("Add", _) => Some(operands.iter().cloned().sum()),
        ("Mul", _) => Some(operands.iter().product()),
        ("Pow", [base, exponent]) => {
            let exponent = exponent.as_const().filter(|exponent| (0..=8).contains(exponent))?;
            Some((0..exponent).map(|_| base).product())
        }
        ("FloorDiv" | "CleanDiv", [a, b]) if !b.is(0) => {
            Some(a.divided_exactly(b).unwrap_or_else(|| a.floor_div(b)))
        }
        ("Mod" | "PythonMod", [a, b]) if !b.is(0) => Some(a.modulo(b)),
        ("Max", [first, rest @ ..]) => {
            Some(rest.iter().fold(first.clone(), |sum, next| sum.maximum(next)))
        }
        ("Min", [first, rest @ ..]) => {
            Some(rest.iter().fold(first.clone(), |sum, next| sum.minimum(next)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let of = |text: &str| parse(text).map(|dim| dim.to_string());
        let symbol = "Symbol('s17', positive=True, integer=True)";
        assert_eq!(of(symbol).unwrap(), "s17");
        assert_eq!(of(&format!("Mul(Integer(2), {symbol})")).unwrap(), "2*s17");
        assert_eq!(of(&format!("Add({symbol}, Integer(-1))")).unwrap(), "s17 - 1");
        assert_eq!(of(&format!("FloorDiv({symbol}, Integer(2))")).unwrap(), "floordiv(s17, 2)");
        assert_eq!(of("s0").unwrap(), "s0");
        for bad in [
            "",
            "Mul(",
            "Symbol('a b')",
            "sin(Integer(1))",
            "Integer(1) x",
            "Pow(Integer(2), Integer(99))",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(of(&"Add(".repeat(1000)), None);
    }
}
