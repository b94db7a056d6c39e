//! One test of the package: a model with recorded inputs and outputs.

use std::path::Path;

use bytes::Bytes;
use fornax_ir::{Graph, Tensor};
use fornax_models::onnx::proto::{ModelProto, TensorProto, TypeValue};
use fornax_models::onnx::{dtype, import_bytes, to_tensor};
use fornax_models::{ImportError, ImportOptions};
use prost::Message as _;

/// A test. Values that are no tensors, or of types that Fornax does not have, are not read.
#[derive(Debug)]
pub struct NodeTest {
    name: String,
    model: ModelProto,
    inputs: Vec<Option<TensorProto>>,
    /// The recorded results in the model's order.
    pub outputs: Vec<Option<Tensor>>,
}

/// An imported test.
#[derive(Debug)]
pub struct Imported {
    /// The model.
    pub graph: Graph,
    /// The values of the graph's inputs, in order.
    pub inputs: Vec<Tensor>,
}

impl NodeTest {
    /// Reads a test's folder.
    ///
    /// # Errors
    /// When a file is missing or damaged.
    pub fn read(folder: &Path) -> Result<NodeTest, String> {
        let read = |file: String| {
            let path = folder.join(file);
            std::fs::read(&path).map(Bytes::from).map_err(|e| format!("{}: {e}", path.display()))
        };
        let undecodable = |error: prost::DecodeError| format!("{}: {error}", folder.display());
        let model = ModelProto::decode(read("model.onnx".to_owned())?).map_err(undecodable)?;
        let graph = model.graph.as_ref().ok_or("the model has no graph")?;
        let value = |kind: &str, number: usize, info: &_| {
            let bytes = read(format!("{kind}_{number}.pb"))?;
            if unsupported_type(info).is_some() {
                return Ok(None);
            }
            TensorProto::decode(bytes).map(Some).map_err(undecodable)
        };
        let inputs = graph.input.iter().enumerate();
        let inputs =
            inputs.map(|(number, info)| value("input", number, info)).collect::<Result<_, _>>()?;
        let mut outputs = Vec::new();
        for (number, info) in graph.output.iter().enumerate() {
            let tensor = value("output", number, info)?.as_ref().map(to_tensor).transpose();
            outputs.push(tensor.map_err(|error| format!("output {number}: {error}"))?);
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(NodeTest { name, model, inputs, outputs })
    }

    /// The name of a type of an input or output that Fornax does not have.
    pub fn unsupported_type(&self) -> Option<String> {
        let graph = self.model.graph.as_ref()?;
        graph.input.iter().chain(&graph.output).find_map(unsupported_type)
    }

    /// Imports the test's model.
    ///
    /// The tests give everything as inputs, also what exporters write as constants and the importer
    /// needs to know: shapes, axes, pads, scales. So if the model cannot be imported as it is, the inputs of
    /// rank 0 and 1 are bound to their recorded values, as few as possible.
    ///
    /// # Errors
    /// What the importer says of the model as it is.
    pub fn import(&self) -> Result<Imported, ImportError> {
        let all = vec![false; self.inputs.len()];
        let error = match self.import_bound(&all) {
            Ok(imported) => return Ok(imported),
            Err(error) => error,
        };
        let is_short = |input: &Option<TensorProto>| {
            input.as_ref().is_some_and(|tensor| tensor.dims.len() <= 1)
        };
        let mut bound: Vec<bool> = self.inputs.iter().map(is_short).collect();
        let Ok(mut best) = self.import_bound(&bound) else { return Err(error) };
        for at in 0..bound.len() {
            if !std::mem::replace(&mut bound[at], false) {
                continue;
            }
            match self.import_bound(&bound) {
                Ok(imported) => best = imported,
                Err(_) => bound[at] = true,
            }
        }
        Ok(best)
    }

    fn import_bound(&self, bound: &[bool]) -> Result<Imported, ImportError> {
        let mut model = self.model.clone();
        let mut inputs = Vec::new();
        if let Some(graph) = &mut model.graph {
            for ((info, value), &bound) in
                std::mem::take(&mut graph.input).into_iter().zip(&self.inputs).zip(bound)
            {
                match value {
                    Some(value) if bound => {
                        let name = info.name.clone();
                        graph.initializer.push(TensorProto { name, ..value.clone() });
                    }
                    _ => {
                        inputs.push(value);
                        graph.input.push(info);
                    }
                }
            }
        }
        let bytes = Bytes::from(model.encode_to_vec());
        let graph = import_bytes(bytes, &self.name, &ImportOptions::default())?.graph;
        let tensor = |value: &Option<TensorProto>| {
            let value = value.as_ref().expect("invariant: the importer refuses such inputs");
            to_tensor(value).expect("invariant: the package's tensors are sound")
        };
        Ok(Imported { graph, inputs: inputs.into_iter().map(tensor).collect() })
    }
}

fn unsupported_type(info: &fornax_models::onnx::proto::ValueInfoProto) -> Option<String> {
    let name = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref())? {
        TypeValue::Tensor(tensor) => {
            let ty = tensor.elem_type.try_into().ok()?;
            return dtype(ty).is_none().then(|| format!("type-{ty}"));
        }
        TypeValue::Sequence(_) => "sequence",
        TypeValue::Map(_) => "map",
        TypeValue::Optional(_) => "optional",
        TypeValue::SparseTensor(_) => "sparse",
        TypeValue::Opaque(_) => "opaque",
    };
    Some(name.to_owned())
}
