//! The parts of the JSON that are needed.
//!
//! Source: `torch/_export/serde/schema.py`, schema versions 5 to 8 (PyTorch 2.4 to 2.11).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Versions of the schema whose files are read.
pub(super) const MAJOR_VERSIONS: std::ops::RangeInclusive<u64> = 5..=8;

#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) schema_version: Version,
    #[serde(default)]
    pub(super) torch_version: String,
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
}

#[derive(Deserialize)]
pub(super) struct Program {
    pub(super) graph_module: GraphModule,
    #[serde(default)]
    pub(super) range_constraints: BTreeMap<String, Range>,
}

/// The smallest and largest value of an expression of symbols.
#[derive(Deserialize)]
pub(super) struct Range {
    pub(super) min_val: Option<i64>,
    pub(super) max_val: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub(super) graph: Graph,
    pub(super) signature: Signature,
}

#[derive(Deserialize)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) tensor_values: BTreeMap<String, TensorMeta>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) target: String,
    pub(super) inputs: Vec<NamedArgument>,
    pub(super) outputs: Vec<Argument>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub(super) struct NamedArgument {
    pub(super) name: String,
    pub(super) arg: Argument,
}

#[derive(Deserialize)]
pub(super) struct Name {
    pub(super) name: String,
}

/// An argument or a result.
#[allow(clippy::enum_variant_names, reason = "the names in the file")]
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Argument {
    AsNone(IgnoredAny),
    AsTensor(Name),
    AsTensors(Vec<Name>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsString(String),
    AsStrings(Vec<String>),
    AsSymInt(Symbolic),
    AsSymInts(Vec<Symbolic>),
    AsSymFloat(Symbolic),
    AsSymFloats(Vec<Symbolic>),
    AsSymBool(Symbolic),
    AsSymBools(Vec<Symbolic>),
    AsScalarType(i64),
    AsMemoryFormat(IgnoredAny),
    AsLayout(IgnoredAny),
    AsDevice(IgnoredAny),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsOptionalTensors(Vec<OptionalTensor>),
    AsOptionalTensor(OptionalTensor),
    AsNestedTensors(IgnoredAny),
    AsIntLists(IgnoredAny),
    AsGraph(IgnoredAny),
    AsCustomObj(IgnoredAny),
    AsOperator(IgnoredAny),
    AsComplex(IgnoredAny),
    AsStringToArgument(IgnoredAny),
}

/// A float, where JSON has no number for it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Float {
    Number(f64),
    Text(String),
}

impl Float {
    pub(super) fn value(&self) -> Option<f64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => match text.as_str() {
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                "NaN" => Some(f64::NAN),
                _ => None,
            },
        }
    }
}

/// The name of a number that the program computes, or the number.
#[allow(clippy::enum_variant_names, reason = "the names in the file")]
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Symbolic {
    AsName(String),
    AsInt(i64),
    AsFloat(Float),
    AsBool(bool),
}

#[allow(clippy::enum_variant_names, reason = "the names in the file")]
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OptionalTensor {
    AsTensor(Name),
    AsNone(IgnoredAny),
}

/// The type of a tensor and where it lies in its storage.
#[derive(Deserialize)]
pub(super) struct TensorMeta {
    pub(super) dtype: i64,
    pub(super) sizes: Vec<Size>,
    #[serde(default)]
    pub(super) strides: Vec<Size>,
    #[serde(default)]
    pub(super) storage_offset: Option<Size>,
}

#[allow(clippy::enum_variant_names, reason = "the names in the file")]
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Size {
    AsInt(i64),
    AsExpr(Expression),
}

#[derive(Deserialize)]
pub(super) struct Expression {
    pub(super) expr_str: String,
}

#[derive(Deserialize)]
pub(super) struct Signature {
    pub(super) input_specs: Vec<InputSpec>,
    pub(super) output_specs: Vec<OutputSpec>,
}

/// What an input of the graph is.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: Name, parameter_name: String },
    Buffer { arg: Name, buffer_name: String },
    TensorConstant { arg: Name, tensor_constant_name: String },
    ConstantInput { name: String, value: Argument },
    CustomObj { arg: Name },
    Token(IgnoredAny),
}

/// What an output of the graph is.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputSpec {
    UserOutput { arg: Argument },
    BufferMutation { buffer_name: String },
    ParameterMutation { parameter_name: String },
    UserInputMutation { user_input_name: String },
    LossOutput(IgnoredAny),
    GradientToParameter(IgnoredAny),
    GradientToUserInput(IgnoredAny),
    Token(IgnoredAny),
}

/// Which entry of the archive holds each weight or constant.
#[derive(Deserialize)]
pub(super) struct PayloadConfig {
    pub(super) config: BTreeMap<String, Payload>,
}

#[derive(Deserialize)]
pub(super) struct Payload {
    pub(super) path_name: String,
    #[serde(default)]
    pub(super) use_pickle: bool,
    pub(super) tensor_meta: Option<TensorMeta>,
}
