//! From the program to the graph: inputs, weights, nodes in order, outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fornax_ir::{Diagnostic, Loc, Type};

use super::node::{Target, on_numbers, result_names, source_node};
use super::program;
use super::schema::{
    Argument, InputSpec, Name, Node, OptionalTensor, OutputSpec, Program, Symbolic, TensorMeta,
};
use super::types::{declared_type, range};
use super::weights::Weights;
use crate::aten::{self, Handle, Invocation, Item, dtype};
use crate::build::symbols::{Declared, DeclaredInput, Symbols};
use crate::build::{Builder, Content, Missing, Value, sizes};
use crate::torch::archive::Archive;
use crate::{ImportError, ImportOptions, Imported};

/// Imports the program in an archive; `path` is for messages.
///
/// # Errors
/// [`ImportError`].
pub(crate) fn import(
    mut archive: Archive,
    path: &Path,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let (model, program) = program::open(&mut archive, path)?;
    let weights = Weights::read(&mut archive, &model)
        .map_err(|what| ImportError::Exported { path: path.to_owned(), what })?;
    let name = path.file_stem().map_or("model".into(), |stem| stem.to_string_lossy());
    let mut importer = Importer {
        builder: Builder::new(&name, &path.display().to_string()),
        options,
        values: BTreeMap::new(),
        weights,
    };
    importer.check_supported(&program);
    importer.builder.stop_on_faults()?;
    importer.declare_inputs(&program)?;
    importer.builder.stop_on_faults()?;
    importer.import_nodes(&program.graph_module.graph.nodes);
    importer.builder.stop_on_faults()?;
    importer.name_outputs(&program);
    importer.builder.stop_on_faults()?;
    importer.builder.graph.remove_dead();
    Ok(Imported { graph: importer.builder.graph })
}

struct Importer<'a> {
    builder: Builder,
    options: &'a ImportOptions,
    /// `None`: the node that computes it has failed, which is reported already.
    values: BTreeMap<&'a str, Option<Item>>,
    weights: Weights,
}

impl<'a> Importer<'a> {
    /// All that the program needs and the importer does not have.
    fn check_supported(&mut self, program: &Program) {
        let mut missing = Missing::default();
        for (index, node) in program.graph_module.graph.nodes.iter().enumerate() {
            let known = match Target::of(&node.target) {
                Target::Aten(name, overload) => aten::is_known(name, Some(overload)),
                Target::Unknown => false,
                _ => true,
            };
            if !known {
                let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
                missing.add(target.to_owned(), || source_node(node, index));
            }
        }
        if let Some(fault) = missing.fault("pt2-unsupported-op", &mut self.builder.graph.sources) {
            let higher = fault.message.contains("higher_order");
            let fault = match higher {
                true => fault.note(
                    "higher-order operators hold graphs of their own (control flow, autocast, wraps); \
                     export the model without them",
                ),
                false => fault,
            };
            self.builder.report(fault);
        }
        for output in &program.graph_module.signature.output_specs {
            let (what, name) = match output {
                OutputSpec::BufferMutation { buffer_name } => ("the buffer", buffer_name),
                OutputSpec::ParameterMutation { parameter_name } => {
                    ("the parameter", parameter_name)
                }
                OutputSpec::UserInputMutation { user_input_name } => ("its input", user_input_name),
                _ => continue,
            };
            let message = format!("the model changes {what} {name:?} in place");
            let note = "the compiled model has no state: return the new value instead (for batch \
                        normalisation, call .eval() before the export)";
            self.builder.report(Diagnostic::new("pt2-mutation", message).note(note));
        }
    }

    fn declare_inputs(&mut self, program: &'a Program) -> Result<(), ImportError> {
        let metas = &program.graph_module.graph.tensor_values;
        let mut declared = Vec::new();
        let mut types = Vec::new();
        for spec in &program.graph_module.signature.input_specs {
            match spec {
                InputSpec::UserInput { arg: Argument::AsTensor(input) } => {
                    match declared_type(metas, &input.name) {
                        Ok((dtype, shape)) => {
                            types.push((input.name.as_str(), dtype));
                            declared.push(DeclaredInput {
                                name: input.name.clone(),
                                shape: Some(shape),
                            });
                        }
                        Err(message) => self.builder.report(Diagnostic::new("pt2-input", message)),
                    }
                }
                InputSpec::Parameter { arg, parameter_name } => {
                    self.declare_weight(metas, arg, parameter_name, "the parameter");
                }
                InputSpec::Buffer { arg, buffer_name } => {
                    self.declare_weight(metas, arg, buffer_name, "the buffer");
                }
                InputSpec::TensorConstant { arg, tensor_constant_name } => {
                    self.declare_weight(metas, arg, tensor_constant_name, "the constant");
                }
                InputSpec::ConstantInput { name, value } => {
                    let value = self.item(value).ok();
                    self.values.insert(name, value);
                }
                InputSpec::UserInput { arg: Argument::AsNone(_) } | InputSpec::Token(_) => {}
                InputSpec::UserInput { .. } => {
                    let message = "an input of the model is a number or an object, not a tensor";
                    let note = "make it a constant of the model, or pass a tensor";
                    self.builder.report(Diagnostic::new("pt2-input", message).note(note));
                }
                InputSpec::CustomObj { arg } => {
                    let message = format!("the model holds the script object {:?}", arg.name);
                    self.builder.report(Diagnostic::new("pt2-input", message));
                }
            }
        }
        if self.builder.fault_count() > 0 {
            return Ok(());
        }
        let (symbols, shapes) = Symbols::resolve(&declared, self.options)?;
        for ((name, dtype), shape) in types.into_iter().zip(shapes) {
            for symbol in shape.iter().flat_map(sizes::symbols) {
                let range = range(program, &symbol);
                let range = symbols.range(&symbol, range)?;
                self.builder.graph.dims.entry(symbol).or_insert(range);
            }
            if let Some(what) = sizes::fault(&shape) {
                let message = format!("the shape of {name:?} is not supported: {what}");
                self.builder.report(Diagnostic::new("pt2-size", message));
                continue;
            }
            match self.builder.graph.input(name, Type::new(dtype, shape)) {
                Ok(node) => {
                    let handle = Handle::fixed(node, format!("its input {name:?}"));
                    self.values.insert(name, Some(handle.into()));
                }
                Err(fault) => self.builder.report(fault),
            }
        }
        Ok(())
    }

    fn declare_weight(
        &mut self,
        metas: &BTreeMap<String, TensorMeta>,
        arg: &'a Name,
        name: &str,
        kind: &str,
    ) {
        let value = self.weight(metas, &arg.name, name);
        let value = match value {
            Ok(value) => {
                let fixed = format!("{kind} {name:?}");
                // Constants are copied before a program changes them.
                Some(Handle::fixed(value, fixed).into())
            }
            Err(what) => {
                let message = format!("{kind} {name:?}: {what}");
                self.builder.report(Diagnostic::new("pt2-weight", message));
                None
            }
        };
        self.values.insert(&arg.name, value);
    }

    fn weight(
        &mut self,
        metas: &BTreeMap<String, TensorMeta>,
        value: &str,
        name: &str,
    ) -> Result<Value, String> {
        if let Some(tensor) = self.weights.take(name)? {
            return Ok(Value::tensor(name, tensor));
        }
        if !self.options.allow_missing_weights {
            return Err("its data is not in the file".to_owned());
        }
        let (dtype, shape) = declared_type(metas, value)?;
        let sizes = shape.iter().map(|size| match size {
            Declared::Fixed(size) => Ok(fornax_ir::Dim::constant(*size)),
            _ => Err("its size is symbolic".to_owned()),
        });
        let sizes = sizes.collect::<Result<Vec<_>, String>>()?;
        if let Some(what) = sizes::fault(&sizes) {
            return Err(what);
        }
        Ok(Value::literal(name, Type::new(dtype, sizes), Content::Tensor(None)))
    }

    fn import_nodes(&mut self, nodes: &'a [Node]) {
        for (index, node) in nodes.iter().enumerate() {
            let loc = self.builder.graph.sources.add(source_node(node, index));
            let results = self.results(node, loc);
            if results.is_none() {
                result_names(node).into_iter().for_each(|name| {
                    self.values.insert(name, None);
                });
            }
        }
    }

    /// Computes a node and gives its results their names; `None` when it or a node before it has failed.
    fn results(&mut self, node: &'a Node, loc: Loc) -> Option<()> {
        let mut named = Vec::with_capacity(node.inputs.len());
        let target = Target::of(&node.target);
        if matches!(target, Target::Assertion) {
            return Some(());
        }
        for input in &node.inputs {
            match self.item(&input.arg) {
                Ok(item) => named.push((input.name.clone(), item)),
                Err(Some(what)) => {
                    let message = format!("the argument `{}`: {what}", input.name);
                    self.builder.report(Diagnostic::new("pt2-argument", message).at(loc));
                    return None;
                }
                Err(None) => return None,
            }
        }
        let names = result_names(node);
        let result = match target {
            Target::Aten(name, overload) => {
                let result = names.first().copied().unwrap_or(name);
                let invocation = Invocation {
                    name,
                    overload: Some(overload),
                    positional: &[],
                    named: &named,
                    result,
                    loc,
                };
                aten::call(&mut self.builder, &invocation)
            }
            Target::Number(operator) => on_numbers(operator, &named).map_err(|fault| fault.at(loc)),
            Target::Assertion | Target::Unknown => return None,
        };
        match result.and_then(|item| self.define(node, item).map_err(|fault| fault.at(loc))) {
            Ok(()) => Some(()),
            Err(fault) => {
                self.builder.report(fault);
                None
            }
        }
    }

    /// Gives results their names: one each, a list, or several.
    fn define(&mut self, node: &'a Node, item: Item) -> Result<(), Diagnostic> {
        let mut items = match (&node.outputs[..], item) {
            ([], _) => return Ok(()),
            ([Argument::AsTensors(tensors)], item) => {
                let items = item.elements().unwrap_or_default();
                if items.len() != tensors.len() {
                    let (found, named) = (items.len(), tensors.len());
                    let message = format!("it has {found} results, but {named} are named");
                    return Err(Diagnostic::new("pt2-results", message));
                }
                for (tensor, item) in tensors.iter().zip(items) {
                    self.values.insert(&tensor.name, Some(item));
                }
                return Ok(());
            }
            ([_], item) => vec![item],
            (_, item) => item.elements().unwrap_or_default(),
        }
        .into_iter();
        for output in &node.outputs {
            let name = match output {
                Argument::AsTensor(tensor) => tensor.name.as_str(),
                Argument::AsSymInt(Symbolic::AsName(name))
                | Argument::AsSymFloat(Symbolic::AsName(name))
                | Argument::AsSymBool(Symbolic::AsName(name)) => name,
                Argument::AsNone(_) => {
                    items.next();
                    continue;
                }
                _ => return Err(Diagnostic::new("pt2-results", "a result is of no known kind")),
            };
            let item = items.next().ok_or_else(|| {
                Diagnostic::new("pt2-results", format!("it has no result for {name:?}"))
            })?;
            self.values.insert(name, Some(item));
        }
        Ok(())
    }

    /// The value of an argument.
    ///
    /// # Errors
    /// What is wrong; nothing when that is reported already.
    fn item(&self, argument: &Argument) -> Result<Item, Option<String>> {
        let named = |name: &str| match self.values.get(name) {
            Some(Some(item)) => Ok(item.clone()),
            Some(None) => Err(None),
            None => Err(Some(format!("nothing before it is named {name:?}"))),
        };
        let symbolic = |value: &Symbolic| match value {
            Symbolic::AsName(name) => named(name),
            Symbolic::AsInt(value) => Ok(Item::int(*value)),
            Symbolic::AsFloat(value) => float(value),
            Symbolic::AsBool(value) => Ok(Item::Bool(*value)),
        };
        let optional = |tensor: &OptionalTensor| match tensor {
            OptionalTensor::AsTensor(tensor) => named(&tensor.name),
            OptionalTensor::AsNone(_) => Ok(Item::None),
        };
        let list = |items: Result<Vec<Item>, Option<String>>| items.map(Item::list);
        match argument {
            Argument::AsNone(_) => Ok(Item::None),
            Argument::AsTensor(tensor) => named(&tensor.name),
            Argument::AsTensors(all) => {
                list(all.iter().map(|tensor| named(&tensor.name)).collect())
            }
            Argument::AsInt(value) => Ok(Item::int(*value)),
            Argument::AsInts(all) => list(all.iter().map(|&value| Ok(Item::int(value))).collect()),
            Argument::AsFloat(value) => float(value),
            Argument::AsFloats(all) => list(all.iter().map(float).collect()),
            Argument::AsString(text) => Ok(Item::from(text.as_str())),
            Argument::AsStrings(all) => {
                list(all.iter().map(|text| Ok(Item::from(text.as_str()))).collect())
            }
            Argument::AsSymInt(value)
            | Argument::AsSymFloat(value)
            | Argument::AsSymBool(value) => symbolic(value),
            Argument::AsSymInts(all) | Argument::AsSymFloats(all) | Argument::AsSymBools(all) => {
                list(all.iter().map(symbolic).collect())
            }
            Argument::AsScalarType(value) => match dtype::of_exported(*value) {
                Some(dtype) => Ok(Item::DType(dtype)),
                None => Err(Some(format!("the element type number {value} is not supported"))),
            },
            Argument::AsMemoryFormat(_) | Argument::AsLayout(_) | Argument::AsDevice(_) => {
                Ok(Item::Placement)
            }
            Argument::AsBool(value) => Ok(Item::Bool(*value)),
            Argument::AsBools(all) => {
                list(all.iter().map(|&value| Ok(Item::Bool(value))).collect())
            }
            Argument::AsOptionalTensors(all) => list(all.iter().map(optional).collect()),
            Argument::AsOptionalTensor(tensor) => optional(tensor),
            Argument::AsNestedTensors(_) | Argument::AsIntLists(_) => {
                Err(Some("lists of lists are not supported".to_owned()))
            }
            Argument::AsGraph(_) => {
                Err(Some("a graph within the graph is not supported".to_owned()))
            }
            Argument::AsComplex(_) => Err(Some("complex numbers are not supported".to_owned())),
            Argument::AsCustomObj(_)
            | Argument::AsOperator(_)
            | Argument::AsStringToArgument(_) => Err(Some("an object is not supported".to_owned())),
        }
    }

    fn name_outputs(&mut self, program: &Program) {
        let mut names = BTreeSet::new();
        for output in &program.graph_module.signature.output_specs {
            let OutputSpec::UserOutput { arg } = output else { continue };
            let item = match (arg, self.item(arg)) {
                (Argument::AsTensor(tensor), Ok(Item::Tensor(handle))) => {
                    Ok((&tensor.name, handle))
                }
                (Argument::AsNone(_), _) => continue,
                (_, Err(None)) => continue,
                (_, Err(Some(what))) => Err(what),
                _ => Err("it is no tensor; return tensors only".to_owned()),
            };
            let named = item.map_err(|what| {
                Diagnostic::new("pt2-output", format!("an output of the model: {what}"))
            });
            let named = named.and_then(|(name, handle)| {
                let mut end = aten::Outside::new(&mut self.builder);
                Ok((name, handle.node(&mut end)?))
            });
            match named {
                Ok((name, node)) => {
                    let mut unique = name.clone();
                    while !names.insert(unique.clone()) {
                        unique.push('\'');
                    }
                    self.builder.graph.output(&unique, node);
                }
                Err(fault) => self.builder.report(fault),
            }
        }
        if names.is_empty() && self.builder.fault_count() == 0 {
            let message = "the program has no tensors as outputs, so there is nothing to compute";
            self.builder.report(Diagnostic::new("pt2-output", message));
        }
    }
}

fn float(value: &super::schema::Float) -> Result<Item, Option<String>> {
    value.value().map(Item::Float).ok_or_else(|| Some("a float is malformed".to_owned()))
}
