//! Running a program's code: calls of operators go to the graph, everything else is computed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fornax_ir::{Diagnostic, Loc, SourceNode};

use super::builtin::{self, Known};
use super::module::Code;
use super::syntax::{Expr, Function, Kind, Statement};
use crate::aten::{self, Invocation, Item, Object};
use crate::build::Builder;

type Result<T> = std::result::Result<T, Diagnostic>;

/// Deepest nesting of calls.
const MAX_CALLS: usize = 100;

/// Most statements that are run: a loop without end would never be done.
const MAX_STATEMENTS: usize = 2_000_000;

/// Deepest nesting of expressions, blocks and calls together.
const MAX_DEPTH: usize = 400;

/// Names of one call.
type Locals = BTreeMap<Rc<str>, Item>;

/// A program that is being run.
pub(super) struct Run<'a> {
    builder: &'a mut Builder,
    code: &'a Code,
    constants: Vec<Item>,
    /// Paths of the modules whose methods are being run.
    modules: Vec<Rc<str>>,
    statements: usize,
    depth: usize,
    /// What is being computed: the name of its result, and its line.
    result: Rc<str>,
    line: u32,
}

/// How a list of statements ends.
enum Flow {
    Next,
    Return(Item),
}

impl<'a> Run<'a> {
    pub(super) fn new(builder: &'a mut Builder, code: &'a Code, constants: Vec<Item>) -> Self {
        let result: Rc<str> = "".into();
        Self {
            builder,
            code,
            constants,
            modules: Vec::new(),
            statements: 0,
            depth: 0,
            result,
            line: 0,
        }
    }

    /// The place of what is being computed.
    fn locate(&mut self, operator: &str) -> Loc {
        let path = self.modules.iter().rev().find(|path| !path.is_empty());
        let name = match path {
            Some(path) => format!("{path}/{}", self.result),
            None => self.result.to_string(),
        };
        let node =
            SourceNode { name: name.into(), op_type: operator.into(), index: None, opset: None };
        self.builder.graph.sources.add(node)
    }

    fn fault(&mut self, code: &str, message: impl Into<String>) -> Diagnostic {
        let loc = self.locate("");
        let module = self.modules.last().map_or(String::new(), |path| format!(" of {path:?}"));
        Diagnostic::new(format!("torchscript-{code}"), message)
            .at(loc)
            .note(format!("in the code{module}, line {}", self.line))
    }

    fn unsupported(&mut self, message: impl Into<String>) -> Diagnostic {
        self.fault("unsupported", message)
    }

    /// Calls a function with arguments; the first one of a method is its object.
    pub(super) fn method(
        &mut self,
        function: &Function,
        positional: &[Item],
        named: &[(String, Item)],
    ) -> Result<Item> {
        if self.modules.len() >= MAX_CALLS {
            return Err(self.unsupported("calls are nested too deeply"));
        }
        let mut locals = Locals::new();
        for (at, parameter) in function.parameters.iter().enumerate() {
            let given = positional.get(at).cloned().or_else(|| {
                named
                    .iter()
                    .find(|(name, _)| **name == *parameter.name)
                    .map(|(_, item)| item.clone())
            });
            let item = match (given, &parameter.default) {
                (Some(item), _) => item,
                (None, Some(default)) => self.evaluate(default, &locals)?,
                (None, None) => {
                    let message =
                        format!("`{}` lacks the argument `{}`", function.name, parameter.name);
                    return Err(self.unsupported(message));
                }
            };
            locals.insert(parameter.name.clone(), item);
        }
        let path = match positional.first() {
            Some(Item::Object(object)) => object.path.clone(),
            _ => self.modules.last().cloned().unwrap_or_else(|| "".into()),
        };
        self.modules.push(path);
        let line = self.line;
        let flow = self.block(&function.body, &mut locals);
        self.modules.pop();
        self.line = line;
        match flow? {
            Flow::Return(item) => Ok(item),
            Flow::Next => Ok(Item::None),
        }
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => Err(self.unsupported("the program is nested too deeply")),
            false => Ok(()),
        }
    }

    fn block(&mut self, statements: &[Statement], locals: &mut Locals) -> Result<Flow> {
        self.deeper()?;
        let flow = self.statements(statements, locals);
        self.depth -= 1;
        flow
    }

    fn statements(&mut self, statements: &[Statement], locals: &mut Locals) -> Result<Flow> {
        for statement in statements {
            self.statements += 1;
            if self.statements > MAX_STATEMENTS {
                return Err(self.unsupported("the program runs too long; it may loop without end"));
            }
            self.line = statement.line;
            if let Flow::Return(item) = self.statement(&statement.kind, locals)? {
                return Ok(Flow::Return(item));
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, kind: &Kind, locals: &mut Locals) -> Result<Flow> {
        match kind {
            Kind::Assign { names, unpack, value } => {
                self.result = names.first().cloned().unwrap_or_else(|| "".into());
                let item = self.evaluate(value, locals)?;
                if item.is_unwieldy() {
                    return Err(self.unsupported("lists are nested too deeply or too long"));
                }
                if !unpack {
                    locals.insert(names[0].clone(), item);
                    return Ok(Flow::Next);
                }
                let items = self.elements(&item)?;
                if items.len() != names.len() {
                    let message = format!("{} values for {} names", items.len(), names.len());
                    return Err(self.unsupported(message));
                }
                locals.extend(names.iter().cloned().zip(items));
            }
            Kind::SetAttribute { object, name } => {
                let path = match self.evaluate(object, locals)? {
                    Item::Object(object) if !object.path.is_empty() => {
                        format!(" of {:?}", object.path)
                    }
                    _ => String::new(),
                };
                return Err(self
                    .fault("mutation", format!("the model changes its attribute `{name}`{path}"))
                    .note("the compiled model has no state: return the new value instead"));
            }
            Kind::Evaluate(expression) => {
                self.evaluate(expression, locals)?;
            }
            Kind::If { condition, then, otherwise } => {
                let taken = match self.condition(condition, locals)? {
                    true => then,
                    false => otherwise,
                };
                return self.block(taken, locals);
            }
            Kind::For { name, over, body } => {
                let over = self.evaluate(over, locals)?;
                for item in self.elements(&over)? {
                    locals.insert(name.clone(), item);
                    if let Flow::Return(item) = self.block(body, locals)? {
                        return Ok(Flow::Return(item));
                    }
                }
            }
            Kind::While { condition, body } => {
                while self.condition(condition, locals)? {
                    self.statements += 1;
                    if let Flow::Return(item) = self.block(body, locals)? {
                        return Ok(Flow::Return(item));
                    }
                    if self.statements > MAX_STATEMENTS {
                        return Err(self.unsupported("a loop does not end"));
                    }
                }
            }
            Kind::Return(value) => return Ok(Flow::Return(self.evaluate(value, locals)?)),
            Kind::Pass => {}
        }
        Ok(Flow::Next)
    }

    /// The elements of what can be taken apart.
    fn elements(&mut self, item: &Item) -> Result<Vec<Item>> {
        if let Some(items) = item.elements() {
            return Ok(items);
        }
        match item {
            Item::Object(object) => {
                Ok(object.fields.borrow().iter().map(|(_, item)| item.clone()).collect())
            }
            Item::Dict(pairs) => Ok(pairs.borrow().iter().map(|(key, _)| key.clone()).collect()),
            Item::Tensor(_) => match self.operator("unbind", std::slice::from_ref(item), &[])? {
                Item::List(items) => Ok(items.borrow().clone()),
                _ => Ok(Vec::new()),
            },
            other => {
                let message = format!("{} has no elements", other.kind());
                Err(self.unsupported(message))
            }
        }
    }

    fn condition(&mut self, expression: &Expr, locals: &Locals) -> Result<bool> {
        let item = self.evaluate(expression, locals)?;
        let known = match &item {
            Item::Bool(value) => Some(*value),
            Item::Int(dim) => dim.as_const().map(|value| value != 0),
            Item::Float(value) => Some(*value != 0.0),
            Item::None => Some(false),
            Item::Tensor(_) => match self.operator("item", std::slice::from_ref(&item), &[]) {
                Ok(item) => item.as_number().and_then(|number| number.as_f64()).map(|v| v != 0.0),
                Err(_) => None,
            },
            _ => None,
        };
        known.ok_or_else(|| {
            self.fault("control-flow", "a condition is only known at run time").note(
                "it depends on the model's inputs, or on sizes that are not specialised (--shape)",
            )
        })
    }

    fn evaluate(&mut self, expression: &Expr, locals: &Locals) -> Result<Item> {
        self.deeper()?;
        let item = self.value(expression, locals);
        self.depth -= 1;
        item
    }

    fn value(&mut self, expression: &Expr, locals: &Locals) -> Result<Item> {
        match expression {
            Expr::None => Ok(Item::None),
            Expr::Int(value) => Ok(Item::int(*value)),
            Expr::Float(value) => Ok(Item::Float(*value)),
            Expr::Bool(value) => Ok(Item::Bool(*value)),
            Expr::Text(text) => Ok(Item::Text(text.clone())),
            Expr::Negative(inner) => {
                let item = self.evaluate(inner, locals)?;
                self.call_builtin("torch.neg", vec![item], Vec::new())
            }
            Expr::List(items) => Ok(Item::list(self.all(items, locals)?)),
            Expr::Tuple(items) => Ok(Item::tuple(self.all(items, locals)?)),
            Expr::Dict(pairs) => {
                let mut items = Vec::new();
                for (key, value) in pairs {
                    items.push((self.evaluate(key, locals)?, self.evaluate(value, locals)?));
                }
                Ok(Item::Dict(Rc::new(RefCell::new(items))))
            }
            Expr::Choice { condition, then, otherwise } => {
                let taken = if self.condition(condition, locals)? { then } else { otherwise };
                self.evaluate(taken, locals)
            }
            Expr::Index(value, index) => {
                let value = self.evaluate(value, locals)?;
                let index = self.evaluate(index, locals)?;
                self.call_builtin("torch.__getitem__", vec![value, index], Vec::new())
            }
            Expr::Name(_) | Expr::Attribute(..) => self.name_or_attribute(expression, locals),
            Expr::Call { function, positional, named } => {
                self.call(function, positional, named, locals)
            }
        }
    }

    fn all(&mut self, expressions: &[Expr], locals: &Locals) -> Result<Vec<Item>> {
        expressions.iter().map(|expression| self.evaluate(expression, locals)).collect()
    }

    fn name_or_attribute(&mut self, expression: &Expr, locals: &Locals) -> Result<Item> {
        if let Some(path) = global_path(expression, locals) {
            if let Some(constant) = path.strip_prefix("CONSTANTS.c") {
                let item =
                    constant.parse().ok().and_then(|at: usize| self.constants.get(at).cloned());
                return item
                    .ok_or_else(|| self.unsupported(format!("there is no constant `{path}`")));
            }
            if path.starts_with("__torch__.") {
                return Ok(Item::Function(path.into()));
            }
            return Err(self.unsupported(format!("the name `{path}` is not known")));
        }
        match expression {
            Expr::Name(name) => match locals.get(name) {
                Some(item) => Ok(item.clone()),
                None => Err(self.unsupported(format!("the name `{name}` is not known"))),
            },
            Expr::Attribute(object, name) => {
                let object = self.evaluate(object, locals)?;
                self.attribute(&object, name)
            }
            _ => Err(self.unsupported("an expression is no name")),
        }
    }

    fn attribute(&mut self, item: &Item, name: &str) -> Result<Item> {
        let found = match item {
            Item::Object(object) => match object.field(name) {
                Some(item) => Some(item),
                None => self.class_constant(object, name)?,
            },
            Item::Tensor(_) => {
                return self.call_builtin(
                    &format!("ops.prim.{name}"),
                    vec![item.clone()],
                    Vec::new(),
                );
            }
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!("{} has no attribute `{name}`", item.kind());
            self.unsupported(message)
        })
    }

    /// A constant that the class of an object declares.
    fn class_constant(&mut self, object: &Object, name: &str) -> Result<Option<Item>> {
        let class = self.code.class(&object.class);
        let class = class.map_err(|what| self.unsupported(what))?;
        let value = class.and_then(|class| {
            class
                .constants
                .iter()
                .find(|(known, _)| &**known == name)
                .map(|(_, value)| value.clone())
        });
        value.map(|value| self.evaluate(&value, &Locals::new())).transpose()
    }

    fn call(
        &mut self,
        function: &Expr,
        positional: &[Expr],
        named: &[(String, Expr)],
        locals: &Locals,
    ) -> Result<Item> {
        let path = global_path(function, locals);
        // The first argument of these is a type.
        if let Some("annotate" | "unchecked_cast" | "uninitialized") = path.as_deref() {
            return match positional.get(1) {
                Some(value) => self.evaluate(value, locals),
                None => Ok(Item::None),
            };
        }
        let result = self.result.clone();
        let (mut arguments, mut keywords) = (Vec::new(), Vec::new());
        for argument in positional {
            arguments.push(self.evaluate(argument, locals)?);
        }
        for (name, argument) in named {
            keywords.push((name.clone(), self.evaluate(argument, locals)?));
        }
        // Inner calls have left the names of their own results.
        self.result = result;
        if let Some(path) = path {
            return self.call_global(&path, arguments, keywords);
        }
        if let Expr::Attribute(object, name) = function {
            let receiver = self.evaluate(object, locals)?;
            if let Item::Object(object) = &receiver {
                let class = self.code.class(&object.class);
                let class = class.map_err(|what| self.unsupported(what))?;
                let method = class.and_then(|class| {
                    class.methods.iter().find(|method| method.name == *name).cloned()
                });
                if let Some(method) = method {
                    arguments.insert(0, receiver);
                    return self.method(&method, &arguments, &keywords);
                }
            }
            let message = format!("{} has no method `{name}`", receiver.kind());
            return Err(self.unsupported(message));
        }
        match self.evaluate(function, locals)? {
            Item::Function(path) => self.call_global(&path, arguments, keywords),
            other => {
                let message = format!("{} is called", other.kind());
                Err(self.unsupported(message))
            }
        }
    }

    fn call_global(
        &mut self,
        path: &str,
        positional: Vec<Item>,
        named: Vec<(String, Item)>,
    ) -> Result<Item> {
        if !path.starts_with("__torch__.") {
            return self.call_builtin(path, positional, named);
        }
        let function = self.code.function(path).map_err(|what| self.unsupported(what))?;
        if let Some(function) = function {
            return self.method(&function, &positional, &named);
        }
        let class = self.code.class(path).map_err(|what| self.unsupported(what))?;
        match class {
            Some(class) if class.base.as_deref() == Some("NamedTuple") => {
                let fields = class.fields.iter().cloned().zip(positional).collect();
                Ok(Item::Object(Rc::new(Object {
                    class: path.into(),
                    path: "".into(),
                    fields: RefCell::new(fields),
                })))
            }
            _ => Err(self.unsupported(format!("`{path}` cannot be called"))),
        }
    }

    /// A function of the language or an operator.
    fn call_builtin(
        &mut self,
        path: &str,
        positional: Vec<Item>,
        named: Vec<(String, Item)>,
    ) -> Result<Item> {
        match builtin::call(path, &positional, &named) {
            Known::Item(item) => return Ok(item),
            Known::Fault(message) => return Err(self.unsupported(message)),
            Known::Raise(message) => {
                return Err(self
                    .fault("raises", format!("the model raises an error: {message}"))
                    .note("the shapes given for its inputs may not be what it expects"));
            }
            Known::Operator(name) => return self.operator(&name, &positional, &named),
            Known::No => {}
        }
        let name = path.strip_prefix("torch.").or_else(|| path.strip_prefix("ops.aten."));
        match name {
            Some(name) => self.operator(name, &positional, &named),
            None => {
                let loc = self.locate(path);
                let message = format!("the operator {path} is not supported");
                Err(Diagnostic::new("torchscript-unsupported-op", message).at(loc))
            }
        }
    }

    fn operator(
        &mut self,
        name: &str,
        positional: &[Item],
        named: &[(String, Item)],
    ) -> Result<Item> {
        let loc = self.locate(&format!("aten.{name}"));
        let result = self.result.clone();
        let line = self.line;
        let invocation =
            Invocation { name, overload: None, positional, named, result: &result, loc };
        aten::call(self.builder, &invocation).map_err(|fault| {
            let module = self.modules.last().map_or(String::new(), |path| format!(" of {path:?}"));
            fault.note(format!("in the code{module}, line {line}"))
        })
    }
}

/// The dotted path of a name that no local variable hides, such as `torch.add`.
fn global_path(expression: &Expr, locals: &Locals) -> Option<String> {
    match expression {
        Expr::Name(name) if !locals.contains_key(name) => {
            const ROOTS: [&str; 14] = [
                "torch",
                "ops",
                "__torch__",
                "CONSTANTS",
                "annotate",
                "unchecked_cast",
                "uninitialized",
                "getattr",
                "int",
                "float",
                "bool",
                "str",
                "range",
                "len",
            ];
            ROOTS.contains(&&**name).then(|| name.to_string())
        }
        Expr::Attribute(object, name) => Some(format!("{}.{name}", global_path(object, locals)?)),
        _ => None,
    }
}
