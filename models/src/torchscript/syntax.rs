//! The code of a TorchScript file.

use std::rc::Rc;

/// An expression. Types in annotations and casts are expressions too.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Name(Rc<str>),
    Attribute(Box<Expr>, Rc<str>),
    Call {
        function: Box<Expr>,
        positional: Vec<Expr>,
        named: Vec<(String, Expr)>,
    },
    Index(Box<Expr>, Box<Expr>),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    Bool(bool),
    None,
    Negative(Box<Expr>),
    /// `then if condition else otherwise`
    Choice {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
}

/// A statement with its line in the file, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) line: u32,
    pub(super) kind: Kind,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// One name, or several that a tuple is taken apart into.
    Assign {
        names: Vec<Rc<str>>,
        unpack: bool,
        value: Expr,
    },
    SetAttribute {
        object: Expr,
        name: Rc<str>,
    },
    Evaluate(Expr),
    If {
        condition: Expr,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    For {
        name: Rc<str>,
        over: Expr,
        body: Vec<Statement>,
    },
    While {
        condition: Expr,
        body: Vec<Statement>,
    },
    Return(Expr),
    Pass,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameter {
    pub(super) name: Rc<str>,
    pub(super) ty: Option<Expr>,
    pub(super) default: Option<Expr>,
}

/// A function or method.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Function {
    pub(super) name: Rc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Statement>,
}

/// A class.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: Rc<str>,
    /// What it derives from: `Module`, `NamedTuple`, …
    pub(super) base: Option<Rc<str>>,
    /// The names of its fields in order.
    pub(super) fields: Vec<Rc<str>>,
    /// Constants of the class.
    pub(super) constants: Vec<(Rc<str>, Expr)>,
    pub(super) methods: Vec<Rc<Function>>,
}

/// A file of code.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Unit {
    pub(super) classes: Vec<Rc<Class>>,
    pub(super) functions: Vec<Rc<Function>>,
}
