//! ATen, the operators of PyTorch: one table for all importers of PyTorch's files.
//!
//! A program's values are [`Item`]s; tensors are [`Handle`]s, so that operators in place and views mean what they do in
//! PyTorch although the graph knows values only. [`call`] finds the operator's line in the [`table`], binds the
//! arguments to its parameters, and runs the handler, which adds operations to the graph.

mod call;
pub(crate) mod dtype;
mod handle;
mod item;
pub(crate) mod number;
mod ops;
mod promote;
mod schema;
mod table;

use fornax_ir::{Diagnostic, Loc};

use self::call::Call;
pub(crate) use self::handle::Handle;
pub(crate) use self::item::{Item, Number, Object};
use self::schema::Numbers;
use self::table::{Handler, Row};
use crate::build::{Build, Builder};

/// A place outside of all calls: the end of a program.
pub(crate) struct Outside<'a> {
    builder: &'a mut Builder,
    loc: Loc,
}

impl<'a> Outside<'a> {
    pub(crate) fn new(builder: &'a mut Builder) -> Self {
        let loc = builder.graph.sources.named("return");
        Self { builder, loc }
    }
}

impl Build for Outside<'_> {
    const FORMAT: &'static str = "aten";

    fn builder(&self) -> &Builder {
        self.builder
    }

    fn builder_mut(&mut self) -> &mut Builder {
        self.builder
    }

    fn loc(&self) -> Loc {
        self.loc
    }
}

/// A call in a program.
pub(crate) struct Invocation<'a> {
    /// The operator without `aten::`, such as `add_`.
    pub(crate) name: &'a str,
    /// The overload; `None`: the first one that the arguments fit.
    pub(crate) overload: Option<&'a str>,
    pub(crate) positional: &'a [Item],
    pub(crate) named: &'a [(String, Item)],
    /// The name of the result.
    pub(crate) result: &'a str,
    pub(crate) loc: Loc,
}

/// Whether the table has an operator, or the operator that it is the in-place form of.
pub(crate) fn is_known(name: &str, overload: Option<&str>) -> bool {
    !candidates(name, overload).0.is_empty()
}

/// The lines for an operator, and whether it is the in-place form of them.
fn candidates(name: &str, overload: Option<&str>) -> (Vec<&'static Row>, bool) {
    let own = table::find(name, overload);
    match name.strip_suffix('_') {
        Some(plain) if own.is_empty() && !plain.ends_with('_') => {
            (table::find(plain, overload), true)
        }
        _ => (own, false),
    }
}

/// Computes a call: adds its operations to the graph.
///
/// # Errors
/// When the operator is not supported, or its arguments do not fit.
pub(crate) fn call(builder: &mut Builder, invocation: &Invocation<'_>) -> Result<Item, Diagnostic> {
    let Invocation { name, overload, loc, .. } = *invocation;
    let (rows, in_place) = candidates(name, overload);
    let mut reasons = Vec::new();
    // Without a name, numbers choose the overloads that are for numbers, if there are any.
    let attempts = match overload {
        Some(_) => &[Numbers::Allowed][..],
        None => &[Numbers::Refused, Numbers::Allowed],
    };
    for &numbers in attempts {
        reasons.clear();
        for row in &rows {
            match row.schema.bind(invocation.positional, invocation.named, numbers) {
                Ok(arguments) => {
                    let call = Call::new(builder, loc, invocation.result, &row.schema, arguments);
                    return run(call, row, in_place);
                }
                Err(reason) => reasons.push(format!("{name}.{}: {reason}", row.schema.overload)),
            }
        }
    }
    if reasons.is_empty() {
        let full = overload.map_or(name.to_owned(), |overload| format!("{name}.{overload}"));
        let message = format!("the operator aten.{full} is not supported");
        return Err(Diagnostic::new("aten-unsupported-op", message).at(loc));
    }
    let message =
        format!("the arguments of aten.{name} do not fit any form of it that is supported");
    let fault = Diagnostic::new("aten-unsupported-op", message).at(loc);
    Err(reasons.into_iter().fold(fault, |fault, reason| fault.note(reason)))
}

fn run(mut call: Call<'_>, row: &Row, in_place: bool) -> Result<Item, Diagnostic> {
    let result = match row.handler {
        Handler::Node(handler) => Handle::new(handler(&mut call)?).into(),
        Handler::Fresh(handler) => handler(&mut call)?,
        Handler::Item(_) if in_place => {
            return Err(call.unsupported("its in-place form is not supported"));
        }
        Handler::Item(handler) => return handler(&mut call),
    };
    match result {
        Item::Tensor(result) if in_place => {
            let result = result.node(&mut call)?;
            ops::assign(&mut call, result)
        }
        result => Ok(result),
    }
}
