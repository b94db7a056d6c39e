//! From a TorchScript module to the graph: inputs, the method `forward`, outputs.

use std::collections::BTreeSet;
use std::path::Path;

use fornax_ir::{DType, Diagnostic, Type};

use super::module::Code;
use super::run::Run;
use super::syntax::{Expr, Function};
use crate::aten::{self, Handle, Item};
use crate::build::symbols::{Declared, DeclaredInput, Symbols};
use crate::build::{Builder, sizes};
use crate::torch::archive::Archive;
use crate::{ImportError, ImportOptions, Imported};

/// Whether an archive is one of `torch.jit.save`.
pub(crate) fn is_torchscript(archive: &Archive) -> bool {
    archive.contains("data.pkl") && archive.names().any(|name| name.starts_with("code/"))
}

/// Imports the method `forward` of the module in an archive; `path` is for messages.
///
/// # Errors
/// [`ImportError`].
pub(crate) fn import(
    archive: Archive,
    path: &Path,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let malformed = |what: String| ImportError::TorchScript { path: path.to_owned(), what };
    let code = Code::new(archive);
    let root = code.root().map_err(malformed)?;
    let constants = code.constants().map_err(malformed)?;
    let class = code.class(&root.class).map_err(malformed)?;
    let method = class
        .and_then(|class| class.methods.iter().find(|method| &*method.name == "forward").cloned());
    let Some(forward) = method else {
        return Err(malformed("its module has no method `forward`".to_owned()));
    };
    let name = path.file_stem().map_or("model".into(), |stem| stem.to_string_lossy());
    let mut builder = Builder::new(&name, &path.display().to_string());
    let inputs = declare_inputs(&mut builder, &code, &forward, options)?;
    builder.stop_on_faults()?;
    let mut run = Run::new(&mut builder, &code, constants);
    let positional = [&[Item::Object(root)], &inputs[..]].concat();
    let result = run.method(&forward, &positional, &[]);
    match result {
        Ok(result) => name_outputs(&mut builder, &result),
        Err(fault) => builder.report(fault),
    }
    builder.stop_on_faults()?;
    builder.graph.remove_dead();
    Ok(Imported { graph: builder.graph })
}

/// The values of the method's parameters: tensors become inputs of the graph; what has a default and no given shape
/// is the default.
fn declare_inputs(
    builder: &mut Builder,
    code: &Code,
    forward: &Function,
    options: &ImportOptions,
) -> Result<Vec<Item>, ImportError> {
    let traced = code.traced_inputs("forward");
    let mut declared = Vec::new();
    let mut places = Vec::new();
    for parameter in forward.parameters.iter().skip(1) {
        let name = parameter.name.to_string();
        let (is_tensor, is_optional) = tensor_type(parameter.ty.as_ref());
        if is_tensor && (!is_optional || options.shapes.contains_key(&name)) {
            let example = traced.get(declared.len());
            let fixed = |sizes: &[i64]| sizes.iter().map(|&size| Declared::Fixed(size)).collect();
            let given = options.shapes.contains_key(&name);
            // A trace is for one shape; another one is the user's choice.
            let shape = example.filter(|_| !given).map(|tensor| fixed(&tensor.layout.sizes));
            let dtype = options.dtypes.get(&name).copied();
            let dtype = dtype.or(example.map(|tensor| tensor.layout.dtype)).unwrap_or(DType::F32);
            places.push(Ok((name.clone(), dtype)));
            declared.push(DeclaredInput { name, shape });
            continue;
        }
        match parameter.default.as_ref().and_then(constant) {
            Some(item) => places.push(Err(item)),
            None => {
                let message = format!("the input {name:?} of the model is no tensor");
                let note = "only tensors can be inputs; make it a constant of the model";
                builder.report(Diagnostic::new("torchscript-input", message).note(note));
            }
        }
    }
    if builder.fault_count() > 0 {
        return Ok(Vec::new());
    }
    let (symbols, shapes) = Symbols::resolve(&declared, options)?;
    let mut shapes = shapes.into_iter();
    let mut items = Vec::new();
    for place in places {
        let (name, dtype) = match place {
            Ok(input) => input,
            Err(item) => {
                items.push(item);
                continue;
            }
        };
        let shape = shapes.next().unwrap_or_default();
        for symbol in shape.iter().flat_map(sizes::symbols) {
            let range = symbols.range(&symbol, sizes::SYMBOL_RANGE)?;
            builder.graph.dims.entry(symbol).or_insert(range);
        }
        if let Some(what) = sizes::fault(&shape) {
            let message = format!("the shape of {name:?} is not supported: {what}");
            builder.report(Diagnostic::new("torchscript-size", message));
            continue;
        }
        match builder.graph.input(&name, Type::new(dtype, shape)) {
            Ok(node) => items.push(Handle::fixed(node, format!("its input {name:?}")).into()),
            Err(fault) => builder.report(fault),
        }
    }
    Ok(items)
}

/// Whether a type is a tensor, and whether it is optional. No type means a tensor.
fn tensor_type(ty: Option<&Expr>) -> (bool, bool) {
    match ty {
        None => (true, false),
        Some(Expr::Name(name)) => (&**name == "Tensor", false),
        Some(Expr::Index(outer, inner)) => {
            let optional = matches!(&**outer, Expr::Name(name) if &**name == "Optional");
            (optional && tensor_type(Some(inner)).0, optional)
        }
        Some(_) => (false, false),
    }
}

/// The value of a default.
fn constant(expression: &Expr) -> Option<Item> {
    Some(match expression {
        Expr::None => Item::None,
        Expr::Int(value) => Item::int(*value),
        Expr::Float(value) => Item::Float(*value),
        Expr::Bool(value) => Item::Bool(*value),
        Expr::Text(text) => Item::Text(text.clone()),
        Expr::Negative(inner) => match constant(inner)? {
            Item::Int(dim) => Item::Int(-&dim),
            Item::Float(value) => Item::Float(-value),
            _ => return None,
        },
        _ => return None,
    })
}

/// Names the tensors of a result: by keys of dictionaries, else by number.
fn name_outputs(builder: &mut Builder, result: &Item) {
    let mut found = Vec::new();
    flatten(result, "output", &mut found);
    let mut names = BTreeSet::new();
    for (name, handle) in found {
        let node = handle.node(&mut aten::Outside::new(builder));
        match node {
            Ok(node) => {
                let mut unique = name;
                while !names.insert(unique.clone()) {
                    unique.push('\'');
                }
                builder.graph.output(&unique, node);
            }
            Err(fault) => builder.report(fault),
        }
    }
    if names.is_empty() && builder.fault_count() == 0 {
        let message = "the model gives no tensors, so there is nothing to compute";
        builder.report(Diagnostic::new("torchscript-output", message));
    }
}

fn flatten(item: &Item, name: &str, found: &mut Vec<(String, Handle)>) {
    match item {
        Item::Tensor(handle) => found.push((name.to_owned(), handle.clone())),
        Item::List(_) | Item::Tuple(_) => {
            for (at, item) in item.elements().unwrap_or_default().iter().enumerate() {
                flatten(item, &format!("{name}_{at}"), found);
            }
        }
        Item::Dict(pairs) => {
            for (key, item) in pairs.borrow().iter() {
                let key = key.as_text().map_or_else(|| name.to_owned(), |text| text.to_string());
                flatten(item, &key, found);
            }
        }
        Item::Object(object) => {
            for (key, item) in object.fields.borrow().iter() {
                flatten(item, key, found);
            }
        }
        _ => {}
    }
}
