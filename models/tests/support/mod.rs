//! Small ONNX models, built in memory.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use bytes::Bytes;
use fornax_models::onnx::import_bytes;
use fornax_models::onnx::proto::*;
use fornax_models::{ImportError, ImportOptions, Imported};
use prost::Message as _;

/// A model under construction: `Model::new(17).input("x", "f32[N,3]").node("Relu", &["x"], &["y"])`.
#[derive(Clone)]
pub struct Model(pub ModelProto);

impl Model {
    pub fn new(opset: i64) -> Self {
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: opset }];
        let graph = GraphProto { name: "test".into(), ..Default::default() };
        Self(ModelProto { ir_version: 8, opset_import, graph: Some(graph), ..Default::default() })
    }

    pub fn graph(&mut self) -> &mut GraphProto {
        self.0.graph.as_mut().unwrap()
    }

    /// An input; the type is an element type and sizes, `f32[2,N,?]`.
    pub fn input(mut self, name: &str, ty: &str) -> Self {
        self.graph().input.push(value(name, ty));
        self
    }

    /// An output without a declared shape.
    pub fn output(mut self, name: &str) -> Self {
        self.graph().output.push(ValueInfoProto { name: name.into(), r#type: None });
        self
    }

    pub fn output_of(mut self, name: &str, ty: &str) -> Self {
        self.graph().output.push(value(name, ty));
        self
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        let dims = vec![values.len() as i64];
        self.initializer(TensorProto { int64_data: values.to_vec(), ..tensor(name, 7, dims) })
    }

    pub fn floats(self, name: &str, dims: &[i64], values: &[f32]) -> Self {
        let tensor = tensor(name, 1, dims.to_vec());
        self.initializer(TensorProto { float_data: values.to_vec(), ..tensor })
    }

    pub fn initializer(mut self, tensor: TensorProto) -> Self {
        self.graph().initializer.push(tensor);
        self
    }

    pub fn node(self, op: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(op, inputs, outputs, &[])
    }

    pub fn node_with(
        mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[AttributeProto],
    ) -> Self {
        self.graph().node.push(node(op, inputs, outputs, attributes));
        self
    }

    pub fn import_with(&self, options: &ImportOptions) -> Result<Imported, ImportError> {
        import_bytes(Bytes::from(self.0.encode_to_vec()), "test.onnx", options)
    }

    pub fn import(&self) -> Result<Imported, ImportError> {
        self.import_with(&ImportOptions::default())
    }

    /// The imported graph's operations, one a line, without types of constants and locations.
    pub fn text(&self) -> String {
        match self.import() {
            Ok(imported) => fornax_ir::text::print_graph(&imported.graph),
            Err(error) => panic!("{error}"),
        }
    }

    /// The message of the error that the import must give.
    pub fn error(&self) -> String {
        self.import().map(|_| ()).unwrap_err().to_string()
    }

    /// The type of the (only) output.
    pub fn output_type(&self) -> String {
        let graph = self.import().unwrap_or_else(|error| panic!("{error}")).graph;
        graph.ty(graph.outputs()[0].value).to_string()
    }
}

pub fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[AttributeProto],
) -> NodeProto {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    NodeProto {
        input: owned(inputs),
        output: owned(outputs),
        op_type: op.into(),
        attribute: attributes.to_vec(),
        ..Default::default()
    }
}

pub fn value(name: &str, ty: &str) -> ValueInfoProto {
    let (dtype, sizes) = ty.strip_suffix(']').unwrap().split_once('[').unwrap();
    let elem_type = match dtype {
        "f32" => 1,
        "i64" => 7,
        "i32" => 6,
        "bool" => 9,
        "f16" => 10,
        other => panic!("{other}"),
    };
    let dim = |size: &str| DimensionProto {
        value: match (size, size.parse()) {
            ("?", _) => None,
            (_, Ok(number)) => Some(DimensionValue::Value(number)),
            (name, Err(_)) => Some(DimensionValue::Param(name.into())),
        },
    };
    let dim = sizes.split(',').filter(|size| !size.is_empty()).map(dim).collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor = TypeValue::Tensor(TensorTypeProto { elem_type, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { value: Some(tensor) }) }
}

pub fn tensor(name: &str, data_type: i32, dims: Vec<i64>) -> TensorProto {
    TensorProto { name: name.into(), data_type, dims, ..Default::default() }
}

pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

pub fn text(name: &str, value: &str) -> AttributeProto {
    let s = Some(Bytes::copy_from_slice(value.as_bytes()));
    AttributeProto { s, ..attribute(name, AttributeType::String) }
}

pub fn graph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: kind.into(), ..Default::default() }
}
