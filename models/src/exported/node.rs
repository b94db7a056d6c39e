//! Single nodes: what they call, what they are named, and operators on numbers.

use fornax_ir::{Diagnostic, SourceNode};

use super::schema::{Argument, Node, Symbolic};
use crate::aten::{Item, number};

/// Checks of the graph that have no results.
const ASSERTIONS: [&str; 6] = [
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_check_is_size",
];

/// What a node calls.
pub(super) enum Target<'a> {
    /// Nothing that has a result.
    Assertion,
    /// An operator of ATen and its overload.
    Aten(&'a str, &'a str),
    /// An operator on numbers.
    Number(&'a str),
    Unknown,
}

impl<'a> Target<'a> {
    pub(super) fn of(target: &'a str) -> Self {
        let operator = target
            .strip_prefix("_operator.")
            .or_else(|| target.strip_prefix("math."))
            .or_else(|| target.strip_prefix("torch.sym_"))
            .or_else(|| target.strip_prefix("torch._sym_"));
        if let Some(operator) = operator {
            return Self::Number(operator);
        }
        let Some(rest) = target.strip_prefix("torch.ops.aten.") else { return Self::Unknown };
        let (name, overload) = rest.split_once('.').unwrap_or((rest, "default"));
        match ASSERTIONS.contains(&name) {
            true => Self::Assertion,
            false => Self::Aten(name, overload),
        }
    }
}

/// How a node is named in messages and in the graph: the module it comes from and its result.
pub(super) fn source_node(node: &Node, index: usize) -> SourceNode {
    let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
    let result = result_names(node).into_iter().next().unwrap_or(target);
    let module = node.metadata.get("nn_module_stack").and_then(|stack| innermost_module(stack));
    let name = match module {
        Some(module) => format!("{module}/{result}"),
        None => result.to_owned(),
    };
    SourceNode {
        name: name.into(),
        op_type: target.into(),
        index: u32::try_from(index).ok(),
        opset: None,
    }
}

/// The path in `key,path,class;key,path,class` of the last module.
fn innermost_module(stack: &str) -> Option<&str> {
    let path = stack.rsplit(';').next()?.split(',').nth(1)?;
    (!path.is_empty() && !path.starts_with('_')).then_some(path)
}

/// The names of a node's results.
pub(super) fn result_names(node: &Node) -> Vec<&str> {
    let mut names = Vec::new();
    for output in &node.outputs {
        match output {
            Argument::AsTensor(tensor) => names.push(tensor.name.as_str()),
            Argument::AsTensors(tensors) => {
                names.extend(tensors.iter().map(|tensor| tensor.name.as_str()));
            }
            Argument::AsSymInt(Symbolic::AsName(name))
            | Argument::AsSymFloat(Symbolic::AsName(name))
            | Argument::AsSymBool(Symbolic::AsName(name)) => names.push(name),
            _ => {}
        }
    }
    names
}

/// An operator on numbers; `sym_` and the module have been taken off its name.
pub(super) fn on_numbers(operator: &str, arguments: &[(String, Item)]) -> Result<Item, Diagnostic> {
    let numbers: Option<Vec<_>> =
        arguments.iter().map(|(_, argument)| argument.as_number()).collect();
    if arguments.iter().any(|(_, argument)| matches!(argument, Item::Unknown)) {
        return Ok(Item::Unknown);
    }
    let result = match numbers.as_deref() {
        Some([one]) => number::unary(operator, one),
        Some([a, b]) => number::binary(operator, a, b),
        _ => None,
    };
    result.ok_or_else(|| {
        Diagnostic::new(
            "pt2-unsupported-op",
            format!("`{operator}` of these numbers is not supported"),
        )
    })
}
