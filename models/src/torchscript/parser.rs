//! Parsing of TorchScript's code.

use std::rc::Rc;

use super::lexer::{Token, tokens};
use super::syntax::{Class, Expr, Function, Kind, Parameter, Statement, Unit};

/// Deepest nesting of expressions and blocks together.
const MAX_DEPTH: usize = 200;

type Parsed<T> = Result<T, String>;

/// Parses a file.
///
/// # Errors
/// Line, from 1, and reason.
pub(super) fn parse(text: &str) -> Result<Unit, (u32, String)> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    parser.unit().map_err(|reason| (parser.line(), reason))
}

struct Parser<'a> {
    tokens: &'a [(Token, u32)],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.1)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.0)
    }

    fn at_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Some(Token::Mark(found)) if *found == mark)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if &**found == word)
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.at_mark(mark);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        self.at += usize::from(found);
        found
    }

    fn eat_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &str) -> Parsed<()> {
        match self.eat(mark) {
            true => Ok(()),
            false => Err(format!("`{mark}` is missing")),
        }
    }

    fn name(&mut self) -> Parsed<Rc<str>> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err("a name is missing".to_owned()),
        }
    }

    fn end_of_line(&mut self) -> Parsed<()> {
        match self.eat_token(&Token::Line) || self.peek().is_none() {
            true => Ok(()),
            false => Err("something follows the end of a statement".to_owned()),
        }
    }

    fn unit(&mut self) -> Parsed<Unit> {
        let mut unit = Unit::default();
        while self.peek().is_some() {
            if self.eat_word("class") {
                unit.classes.push(Rc::new(self.class()?));
            } else if self.eat_word("def") {
                unit.functions.push(Rc::new(self.function()?));
            } else if self.at_word("import") || self.at_word("from") {
                while !self.eat_token(&Token::Line) && self.peek().is_some() {
                    self.at += 1;
                }
            } else {
                return Err("a class or function is expected".to_owned());
            }
        }
        Ok(unit)
    }

    fn class(&mut self) -> Parsed<Class> {
        let name = self.name()?;
        let mut base = None;
        if self.eat("(") && !self.eat(")") {
            base = Some(self.name()?);
            self.expect(")")?;
        }
        let mut class =
            Class { name, base, fields: Vec::new(), constants: Vec::new(), methods: Vec::new() };
        self.expect(":")?;
        self.end_of_line()?;
        if !self.eat_token(&Token::Indent) {
            return Ok(class);
        }
        while !self.eat_token(&Token::Dedent) {
            if self.eat_word("def") {
                class.methods.push(Rc::new(self.function()?));
            } else if self.eat_word("pass") {
                self.end_of_line()?;
            } else {
                self.member(&mut class)?;
            }
        }
        Ok(class)
    }

    /// `weight : Tensor`, `stride : Final[int] = 1`, `__parameters__ = […]`, `__annotations__["0"] = type`
    fn member(&mut self, class: &mut Class) -> Parsed<()> {
        let name = self.name()?;
        if self.eat("[") {
            self.expression()?;
            self.expect("]")?;
        }
        if self.eat(":") {
            class.fields.push(name.clone());
            self.expression()?;
        }
        if self.eat("=") {
            let value = self.expression()?;
            class.constants.push((name, value));
        }
        self.end_of_line()
    }

    fn function(&mut self) -> Parsed<Function> {
        let name = self.name()?;
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.eat(")") {
            let name = self.name()?;
            let ty = if self.eat(":") { Some(self.expression()?) } else { None };
            let default = if self.eat("=") { Some(self.expression()?) } else { None };
            parameters.push(Parameter { name, ty, default });
            if !self.eat(",") && !self.at_mark(")") {
                return Err("`,` is missing between parameters".to_owned());
            }
        }
        if self.eat("->") {
            self.expression()?;
        }
        let body = self.block()?;
        Ok(Function { name, parameters, body })
    }

    fn block(&mut self) -> Parsed<Vec<Statement>> {
        self.expect(":")?;
        self.end_of_line()?;
        if !self.eat_token(&Token::Indent) {
            return Err("a block is missing".to_owned());
        }
        self.deeper()?;
        let mut body = Vec::new();
        while !self.eat_token(&Token::Dedent) {
            if self.peek().is_none() {
                return Err("the code is cut off".to_owned());
            }
            body.push(self.statement()?);
        }
        self.depth -= 1;
        Ok(body)
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => Err("the code is nested too deeply".to_owned()),
            false => Ok(()),
        }
    }

    fn statement(&mut self) -> Parsed<Statement> {
        let line = self.line();
        let kind = if self.eat_word("if") {
            self.condition()?
        } else if self.eat_word("for") {
            let name = self.name()?;
            if !self.eat_word("in") {
                return Err("`in` is missing".to_owned());
            }
            let over = self.expression()?;
            Kind::For { name, over, body: self.block()? }
        } else if self.eat_word("while") {
            let condition = self.expression()?;
            Kind::While { condition, body: self.block()? }
        } else if self.eat_word("return") {
            let value = match self.peek() {
                Some(Token::Line) | None => Expr::None,
                _ => self.expressions()?,
            };
            self.end_of_line()?;
            Kind::Return(value)
        } else if self.eat_word("pass") {
            self.end_of_line()?;
            Kind::Pass
        } else {
            self.assignment()?
        };
        Ok(Statement { line, kind })
    }

    fn condition(&mut self) -> Parsed<Kind> {
        let condition = self.expression()?;
        let then = self.block()?;
        let otherwise = if self.eat_word("else") { self.block()? } else { Vec::new() };
        Ok(Kind::If { condition, then, otherwise })
    }

    fn assignment(&mut self) -> Parsed<Kind> {
        let target = self.expressions()?;
        if !self.eat("=") {
            self.end_of_line()?;
            return Ok(Kind::Evaluate(target));
        }
        let value = self.expressions()?;
        self.end_of_line()?;
        match target {
            Expr::Name(name) => Ok(Kind::Assign { names: vec![name], unpack: false, value }),
            Expr::Attribute(object, name) => Ok(Kind::SetAttribute { object: *object, name }),
            Expr::Tuple(targets) => {
                let name = |target| match target {
                    Expr::Name(name) => Ok(name),
                    _ => Err("only names can be assigned to".to_owned()),
                };
                let names = targets.into_iter().map(name).collect::<Parsed<_>>()?;
                Ok(Kind::Assign { names, unpack: true, value })
            }
            _ => Err("only names and attributes can be assigned to".to_owned()),
        }
    }

    /// Expressions with commas between: a tuple.
    fn expressions(&mut self) -> Parsed<Expr> {
        let first = self.expression()?;
        if !self.at_mark(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            if self.at_mark("=") || matches!(self.peek(), Some(Token::Line) | None) {
                break;
            }
            items.push(self.expression()?);
        }
        Ok(Expr::Tuple(items))
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.deeper()?;
        let value = self.operand()?;
        let value = match self.eat_word("if") {
            true => {
                let condition = self.expression()?;
                if !self.eat_word("else") {
                    return Err("`else` is missing".to_owned());
                }
                let otherwise = self.expression()?;
                Expr::Choice {
                    condition: Box::new(condition),
                    then: Box::new(value),
                    otherwise: Box::new(otherwise),
                }
            }
            false => value,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn operand(&mut self) -> Parsed<Expr> {
        if self.eat("-") {
            self.deeper()?;
            let value = self.operand()?;
            self.depth -= 1;
            return Ok(Expr::Negative(Box::new(value)));
        }
        let mut value = self.atom()?;
        loop {
            if self.eat(".") {
                value = Expr::Attribute(Box::new(value), self.name()?);
            } else if self.eat("[") {
                let mut index = self.list("]")?;
                let index = match index.len() {
                    1 => index.remove(0),
                    _ => Expr::Tuple(index),
                };
                value = Expr::Index(Box::new(value), Box::new(index));
            } else if self.eat("(") {
                value = self.call(value)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn call(&mut self, function: Expr) -> Parsed<Expr> {
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        while !self.eat(")") {
            let value = self.expression()?;
            match value {
                Expr::Name(name) if self.eat("=") => {
                    named.push((name.to_string(), self.expression()?));
                }
                value => positional.push(value),
            }
            if !self.eat(",") && !self.at_mark(")") {
                return Err("`,` is missing between arguments".to_owned());
            }
        }
        Ok(Expr::Call { function: Box::new(function), positional, named })
    }

    /// Expressions up to a closing bracket.
    fn list(&mut self, end: &str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(self.expression()?);
            if !self.eat(",") && !self.at_mark(end) {
                return Err(format!("`,` or `{end}` is missing"));
            }
        }
        Ok(items)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        let token = self.peek().cloned().ok_or("the code is cut off")?;
        self.at += 1;
        Ok(match token {
            Token::Int(value) => Expr::Int(value),
            Token::Float(value) => Expr::Float(value),
            Token::Text(text) => Expr::Text(text),
            Token::Name(name) => match &*name {
                "True" => Expr::Bool(true),
                "False" => Expr::Bool(false),
                "None" => Expr::None,
                "inf" => Expr::Float(f64::INFINITY),
                "nan" => Expr::Float(f64::NAN),
                _ => Expr::Name(name),
            },
            Token::Mark("(") => {
                let mut items = Vec::new();
                let mut is_tuple = self.at_mark(")");
                while !self.eat(")") {
                    items.push(self.expression()?);
                    if self.eat(",") {
                        is_tuple = true;
                    } else if !self.at_mark(")") {
                        return Err("`)` is missing".to_owned());
                    }
                }
                match (is_tuple, items.pop()) {
                    (false, Some(only)) => only,
                    (_, last) => {
                        items.extend(last);
                        Expr::Tuple(items)
                    }
                }
            }
            Token::Mark("[") => Expr::List(self.list("]")?),
            Token::Mark("{") => {
                let mut pairs = Vec::new();
                while !self.eat("}") {
                    let key = self.expression()?;
                    self.expect(":")?;
                    pairs.push((key, self.expression()?));
                    if !self.eat(",") && !self.at_mark("}") {
                        return Err("`,` or `}` is missing".to_owned());
                    }
                }
                Expr::Dict(pairs)
            }
            _ => {
                self.at -= 1;
                return Err("an expression is expected".to_owned());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "class M(Module):\n  __parameters__ = [\"w\", ]\n  w : Tensor\n  k : Final[Tuple[int, int]] = (1, 1)\n  \
        def forward(self: __torch__.M,\n    x: Tensor,\n    n: Optional[int]=None) -> Tensor:\n    w = self.w\n    \
        a, b, = torch.chunk(x, 2, -1)\n    if torch.__is__(n, None):\n      y = torch.mul(a, w)\n    else:\n      pass\n    \
        for i in range(3):\n      _0 = ops.prim.NumToTensor((b)[0])\n    return (y, {\"k\": 1.5e-05})\n\
        def f(x: Tensor) -> Tensor:\n  return torch.neg(x)\n";

    #[test]
    fn code_is_parsed() {
        let unit = parse(CODE).unwrap();
        assert_eq!(unit.classes.len(), 1);
        assert_eq!(&*unit.functions[0].name, "f");
        let class = &unit.classes[0];
        assert_eq!(class.fields.len(), 2);
        let forward = &class.methods[0];
        assert_eq!(forward.parameters.len(), 3);
        assert_eq!(forward.parameters[2].default, Some(Expr::None));
        assert_eq!(forward.body.len(), 5);
        assert!(
            matches!(&forward.body[1].kind, Kind::Assign { names, unpack: true, .. } if names.len() == 2)
        );
        assert_eq!(forward.body[2].line, 10);
    }

    #[test]
    fn damaged_code_is_refused() {
        for end in 0..CODE.len() {
            let _ = parse(&CODE[..end]);
        }
        let (line, _) = parse("def f(x):\n  y = (1\n").unwrap_err();
        assert_eq!(line, 3);
        assert!(parse("def f(x):\n  y = 1 1\n").is_err());
        assert!(parse(&format!("def f(x):\n  y = {}\n", "(".repeat(5000))).is_err());
        assert!(parse(&format!("def f(x):\n  y = {}1\n", "-".repeat(5000))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-z(){}\\[\\]=,:.\\- \n0-9\"]{0,80}") {
            let _ = parse(&text);
        }
    }
}
