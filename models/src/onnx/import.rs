//! From a decoded model to the graph: inputs, weights, nodes in order, outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use fornax_ir::{Diagnostic, Loc, SourceNode, Type};

use super::call::Call;
use super::external::{ExternalError, ExternalFiles};
use super::order::{self, Fault, node_name};
use super::proto::{
    DataType, DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto,
    TypeValue, ValueInfoProto,
};
use super::table::{self, Handler};
use super::tensor::{self, TensorError};
use super::{check, file};
use crate::build::known::Known;
use crate::build::symbols::{Declared, DeclaredInput, Symbols};
use crate::build::{Builder, Content, Value, sizes};
use crate::{ImportError, ImportOptions, Imported};

/// Imports the ONNX model at `path`. See [`crate::import`].
///
/// # Errors
/// [`ImportError`].
pub fn import_file(path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let model = file::open(path)?;
    let external = ExternalFiles::beside(path)
        .map_err(|source| ImportError::Read { path: path.to_owned(), source })?;
    import_model(&model, &path.display().to_string(), external, options)
}

/// Imports an ONNX model that is in memory; `name` stands for the file in messages. External data is
/// refused: there is no folder to look in.
///
/// # Errors
/// [`ImportError`].
pub fn import_bytes(
    bytes: Bytes,
    name: &str,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let model = file::decode(bytes, Path::new(name))?;
    import_model(&model, name, ExternalFiles::default(), options)
}

fn import_model(
    model: &ModelProto,
    file: &str,
    external: ExternalFiles,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let Some(proto) = &model.graph else {
        return Err(ImportError::Incomplete { path: file.into(), what: "it holds no graph" });
    };
    let mut importer = Importer {
        builder: Builder::new(&proto.name, file),
        options,
        external,
        opsets: BTreeMap::new(),
        symbols: Symbols::default(),
        scopes: vec![BTreeMap::new()],
        used: BTreeSet::new(),
        after_recurrent: BTreeSet::new(),
    };
    importer.read_opsets(model);
    importer.check_supported(model, proto);
    importer.builder.stop_on_faults()?;
    importer.declare_inputs(proto)?;
    importer.builder.stop_on_faults()?;
    importer.import_graph(proto);
    importer.builder.stop_on_faults()?;
    importer.name_outputs(proto);
    importer.builder.stop_on_faults()?;
    importer.builder.graph.remove_dead();
    Ok(Imported { graph: importer.builder.graph })
}

/// The state of one import.
pub(super) struct Importer<'m> {
    pub(super) builder: Builder,
    options: &'m ImportOptions,
    external: ExternalFiles,
    /// Version of the operator set, by domain.
    opsets: BTreeMap<&'m str, i64>,
    symbols: Symbols,
    /// Values by name, the innermost graph last. `None`: the node that computes it has failed, which is
    /// reported already.
    scopes: Vec<BTreeMap<&'m str, Option<Value>>>,
    /// Names that some node or output uses.
    used: BTreeSet<&'m str>,
    /// Names of values computed from recurrent layers. torch.onnx (2.11) declares results of these with wrong
    /// ranks, and with them what follows.
    after_recurrent: BTreeSet<&'m str>,
}

/// What the model needs.
impl<'m> Importer<'m> {
    /// What an inner graph needs that is not supported.
    pub(super) fn unsupported_inside(&mut self, graph: &GraphProto) -> Option<Diagnostic> {
        check::operators(graph, &self.opsets, &mut self.builder.graph.sources)
    }

    fn read_opsets(&mut self, model: &'m ModelProto) {
        for set in &model.opset_import {
            let domain = table::domain(&set.domain);
            if self.opsets.insert(domain, set.version).is_some_and(|other| other != set.version) {
                let message = format!("two versions of the operator set {domain:?} are named");
                self.builder.report(Diagnostic::new("onnx-opset", message));
            }
        }
    }

    fn check_supported(&mut self, model: &'m ModelProto, graph: &'m GraphProto) {
        for fault in check::unsupported(model, graph, &self.opsets, &mut self.builder.graph.sources)
        {
            self.builder.report(fault);
        }
    }
}

/// Values.
impl<'m> Importer<'m> {
    fn define(&mut self, name: &'m str, value: Option<Value>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, value);
        }
    }

    fn lookup(&self, name: &str) -> Option<&Option<Value>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Whether any node or output uses a value.
    pub(super) fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    /// A tensor of the model as a value.
    ///
    /// # Errors
    /// What is wrong with the tensor.
    pub(super) fn tensor_value(
        &mut self,
        name: &str,
        proto: &TensorProto,
    ) -> Result<Value, TensorError> {
        let ty = tensor::ty(proto)?;
        if sizes::fault(&ty.shape).is_some() {
            return Err(TensorError::TooLarge(proto.dims.clone()));
        }
        match tensor::convert(proto, &mut self.external) {
            Ok(tensor) => Ok(Value::tensor(name, tensor)),
            Err(TensorError::External(ExternalError::Missing { .. }))
                if self.options.allow_missing_weights =>
            {
                Ok(Value::literal(name, ty, Content::Tensor(None)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Inputs, initializers, outputs.
impl<'m> Importer<'m> {
    fn declare_inputs(&mut self, proto: &'m GraphProto) -> Result<(), ImportError> {
        let initializers: BTreeSet<&str> =
            proto.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        // An input that is also an initializer has a default value; Fornax always uses that.
        let inputs: Vec<&'m ValueInfoProto> = proto
            .input
            .iter()
            .filter(|input| !initializers.contains(input.name.as_str()))
            .collect();
        let mut declared = Vec::new();
        let mut types = Vec::new();
        for input in &inputs {
            match declared_type(input) {
                Ok((dtype, shape)) => {
                    types.push(dtype);
                    declared.push(DeclaredInput { name: input.name.clone(), shape });
                }
                Err(message) => self.builder.report(Diagnostic::new("onnx-input", message)),
            }
        }
        if self.builder.fault_count() > 0 {
            return Ok(());
        }
        let (symbols, shapes) = Symbols::resolve(&declared, self.options)?;
        self.symbols = symbols;
        for ((input, dtype), shape) in inputs.into_iter().zip(types).zip(shapes) {
            for symbol in shape.iter().flat_map(sizes::symbols) {
                let range = self.symbols.range(&symbol, sizes::SYMBOL_RANGE)?;
                self.builder.graph.dims.entry(symbol).or_insert(range);
            }
            if let Some(what) = sizes::fault(&shape) {
                let message = format!("the shape of {:?} is not supported: {what}", input.name);
                self.builder.report(Diagnostic::new("onnx-size", message));
                continue;
            }
            match self.builder.graph.input(&input.name, Type::new(dtype, shape)) {
                Ok(node) => self.define(&input.name, Some(node.into())),
                Err(fault) => self.builder.report(fault),
            }
        }
        Ok(())
    }

    fn declare_initializers(&mut self, proto: &'m GraphProto) {
        for tensor in &proto.initializer {
            let value = match self.tensor_value(&tensor.name, tensor) {
                Ok(value) => Some(value),
                // A tensor that nothing uses may be anything.
                Err(_) if !self.is_used(&tensor.name) => None,
                Err(error) => {
                    let message = format!("initializer {:?}: {error}", tensor.name);
                    self.builder.report(Diagnostic::new("onnx-tensor", message));
                    None
                }
            };
            self.define(&tensor.name, value);
        }
    }

    fn name_outputs(&mut self, proto: &'m GraphProto) {
        if proto.output.is_empty() {
            let message = "the graph has no outputs, so there is nothing to compute";
            self.builder.report(Diagnostic::new("onnx-no-outputs", message));
        }
        let mut names = BTreeSet::new();
        for output in &proto.output {
            if !names.insert(&output.name) {
                let message = format!("two outputs of the graph are named {:?}", output.name);
                self.builder.report(Diagnostic::new("onnx-duplicate-name", message));
            }
            // A missing or failed value is reported already.
            let Some(Some(value)) = self.lookup(&output.name).cloned() else { continue };
            match self.builder.materialize(&value, "onnx") {
                Ok(node) => self.builder.graph.output(&output.name, node),
                Err(fault) => self.builder.report(fault),
            }
        }
    }
}

/// Element type and sizes of a declared value.
fn declared_type(
    info: &ValueInfoProto,
) -> Result<(fornax_ir::DType, Option<Vec<Declared>>), String> {
    let name = &info.name;
    let kind = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => {
            let ty = DataType::try_from(tensor.elem_type).map_err(|_| {
                format!("{name:?} has the unknown element type {}", tensor.elem_type)
            })?;
            let dtype = tensor::dtype(ty).ok_or_else(|| {
                format!("{name:?} has the element type {ty}, which is not supported")
            })?;
            return Ok((dtype, tensor.shape.as_ref().map(declared_shape)));
        }
        Some(TypeValue::Sequence(_)) => "a sequence",
        Some(TypeValue::Map(_)) => "a map",
        Some(TypeValue::Optional(_)) => "an optional value",
        Some(TypeValue::SparseTensor(_)) => "a sparse tensor",
        Some(TypeValue::Opaque(_)) => "an opaque value",
        None => return Err(format!("{name:?} has no type")),
    };
    Err(format!("{name:?} is {kind}; only tensors are supported"))
}

/// The sizes of a shape in the file; a negative number is how some exporters write "unknown".
fn declared_shape(proto: &TensorShapeProto) -> Vec<Declared> {
    let size = |value: &Option<DimensionValue>| match value {
        Some(DimensionValue::Value(size)) if *size >= 0 => Declared::Fixed(*size),
        // Some exporters write "?" for sizes that have nothing in common.
        Some(DimensionValue::Param(name)) if !name.is_empty() && name != "?" => {
            Declared::Named(name.clone())
        }
        _ => Declared::Unknown,
    };
    proto.dim.iter().map(|dim| size(&dim.value)).collect()
}

/// Nodes.
impl<'m> Importer<'m> {
    /// Imports the initializers and nodes of a graph into the innermost scope.
    pub(super) fn import_graph(&mut self, proto: &'m GraphProto) {
        let order = match order::order(proto, |name| self.lookup(name).is_some()) {
            Ok(order) => order,
            Err(faults) => {
                for fault in faults {
                    let diagnostic = self.structural(proto, fault);
                    self.builder.report(diagnostic);
                }
                return;
            }
        };
        let outputs = proto.output.iter().map(|output| output.name.as_str());
        self.used.extend(outputs.chain(proto.node.iter().flat_map(order::used_names)));
        self.declare_initializers(proto);
        let infos: BTreeMap<&str, &ValueInfoProto> = proto
            .value_info
            .iter()
            .chain(&proto.output)
            .map(|info| (info.name.as_str(), info))
            .collect();
        for index in order {
            self.import_node(&proto.node[index], index, &infos);
        }
    }

    fn structural(&mut self, proto: &GraphProto, fault: Fault) -> Diagnostic {
        let diagnostic = Diagnostic::new(fault.code, fault.message);
        match fault.node {
            Some(index) => {
                let loc = self.locate(&proto.node[index], index);
                diagnostic.at(loc)
            }
            None => diagnostic,
        }
    }

    fn locate(&mut self, node: &NodeProto, index: usize) -> Loc {
        let opset = self.opsets.get(table::domain(&node.domain));
        self.builder.graph.sources.add(source_node(node, index, opset.copied()))
    }

    fn import_node(
        &mut self,
        node: &'m NodeProto,
        index: usize,
        infos: &BTreeMap<&str, &ValueInfoProto>,
    ) {
        let loc = self.locate(node, index);
        let outputs = self.node_outputs(node, loc);
        let is_after = |name: &String| self.after_recurrent.contains(name.as_str());
        if RECURRENT.contains(&node.op_type.as_str()) || node.input.iter().any(is_after) {
            self.after_recurrent.extend(node.output.iter().map(String::as_str));
        }
        for (position, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty())
        {
            let value = outputs.as_ref().and_then(|values| values.get(position)).cloned();
            if value.is_none() && outputs.is_some() && self.is_used(name) {
                let message = format!("its output {position}, {name:?}, is not supported");
                self.builder.report(Diagnostic::new("onnx-unsupported", message).at(loc));
            }
            if let (Some(value), Some(info)) = (&value, infos.get(name.as_str())) {
                self.check_declared(value, info, loc);
            }
            self.define(name, value);
        }
    }

    /// The node's outputs, or `None` when it or a node before it has failed.
    fn node_outputs(&mut self, node: &'m NodeProto, loc: Loc) -> Option<Vec<Value>> {
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(match name.as_str() {
                "" => None,
                name => Some(self.lookup(name)?.clone()?),
            });
        }
        let opset = self.opsets.get(table::domain(&node.domain)).copied().unwrap_or(0);
        let row = table::find(&node.domain, &node.op_type)?;
        let mut call = Call::new(self, node, opset, loc, inputs);
        let folded = row.fold.and_then(|fold| fold(&call));
        if let Some(known) = folded.filter(|known| known.iter().all(Known::is_small)) {
            let name = node.output.first().map_or("", String::as_str);
            return Some(known.into_iter().map(|known| Value::known(name, known)).collect());
        }
        let result = match row.handler {
            Handler::One(handler) => handler(&mut call).map(|node| vec![node.into()]),
            Handler::Many(handler) => handler(&mut call),
        };
        let checked = result.and_then(|outputs| call.check_attributes().map(|()| outputs));
        match checked {
            Ok(outputs) => Some(outputs),
            Err(fault) => {
                self.builder.report(fault);
                None
            }
        }
    }

    /// The type that the model declares for a value must not contradict the one that is inferred.
    fn check_declared(&mut self, value: &Value, info: &ValueInfoProto, loc: Loc) {
        let Ok((dtype, shape)) = declared_type(info) else { return };
        let actual = match value {
            Value::Node(node) => self.builder.graph.ty(*node).clone(),
            Value::Literal(literal) => literal.ty.clone(),
        };
        let sizes_fit = |declared: &Vec<Declared>| {
            let fits = |(declared, actual): (&Declared, &fornax_ir::Dim)| {
                let declared = self.symbols.size(declared).and_then(|size| size.as_const());
                match (declared, actual.as_const()) {
                    (Some(declared), Some(actual)) => declared == actual,
                    _ => true,
                }
            };
            declared.len() == actual.rank() && declared.iter().zip(actual.shape.iter()).all(fits)
        };
        let any_shape = self.after_recurrent.contains(info.name.as_str());
        if dtype == actual.dtype && (any_shape || shape.as_ref().is_none_or(sizes_fit)) {
            return;
        }
        let text = |size: &Declared| match size {
            Declared::Fixed(size) => size.to_string(),
            Declared::Named(name) => name.clone(),
            Declared::Derived(size) => size.to_string(),
            Declared::Unknown => "?".to_owned(),
        };
        let shape: Vec<String> = shape.iter().flatten().map(text).collect();
        let message = format!(
            "the model declares {:?} to be {dtype}[{}], but it is {actual}",
            info.name,
            shape.join(",")
        );
        self.builder.report(Diagnostic::new("onnx-declared-type", message).at(loc));
    }

    /// Imports an inner graph without inputs in a scope of its own, and gives its outputs.
    pub(super) fn import_inner(&mut self, proto: &'m GraphProto) -> Option<Vec<Value>> {
        self.scopes.push(BTreeMap::new());
        self.import_graph(proto);
        let outputs: Option<Vec<Value>> = proto
            .output
            .iter()
            .map(|output| self.lookup(&output.name).cloned().flatten())
            .collect();
        self.scopes.pop();
        outputs
    }
}

/// Operators whose declared results are not relied on, see [`Importer::after_recurrent`].
const RECURRENT: [&str; 3] = ["GRU", "LSTM", "RNN"];

/// How a node is named in messages and in the graph.
pub(super) fn source_node(node: &NodeProto, index: usize, opset: Option<i64>) -> SourceNode {
    SourceNode {
        name: node_name(node).into(),
        op_type: node.op_type.as_str().into(),
        index: u32::try_from(index).ok(),
        opset: opset.and_then(|version| u32::try_from(version).ok()),
    }
}
