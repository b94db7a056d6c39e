//! The messages of the ONNX file format, as our own structs.
//!
//! Field numbers are those of `onnx.proto` at IR version 14 (ONNX 1.23). Fields that Fornax never
//! looks at are left out: Protocol Buffers readers skip unknown fields. What Fornax *refuses*
//! (sparse tensors, training graphs, segments, strings) is declared, so that it can be recognised.
//!
//! Tensor payloads (`raw_data`) are [`Bytes`]: decoding from a `Bytes` shares its memory, so a
//! model that is memory-mapped is never copied.

use bytes::Bytes;

/// A whole model file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelProto {
    /// Version of the file format itself.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Version of that program.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The graph to import.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets that the nodes refer to, one per domain.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Free-form annotations.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Training graphs (refused).
    #[prost(message, repeated, tag = "20")]
    pub training_info: Vec<TrainingInfoProto>,
    /// Model-local functions.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// A domain and its operator-set version.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OperatorSetIdProto {
    /// Domain; empty for the standard operators.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version of the operator set.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// Training information: only its presence matters here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrainingInfoProto {
    /// Graph that initialises the trained values.
    #[prost(message, optional, tag = "1")]
    pub initialization: Option<GraphProto>,
    /// Graph of one training step.
    #[prost(message, optional, tag = "2")]
    pub algorithm: Option<GraphProto>,
}

/// A key and a value, both text.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A graph: nodes in topological order, with named values between them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GraphProto {
    /// Nodes; each may use only values that come before it.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name of the graph.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants with names: weights, or default values of inputs.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of inner values, as the exporter knew them.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Sparse constants (refused).
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// A named value and its type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueInfoProto {
    /// Name of the value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// One application of an operator.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeProto {
    /// Names of the input values; an empty name is an omitted optional input.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the output values; an empty name is an output nobody wants.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name of the node; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Domain of the operator.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which overload of a model-local function is meant.
    #[prost(string, tag = "8")]
    pub overload: String,
}

/// A named attribute; [`AttributeProto::type`] says which field holds the value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// Text, or bytes.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph (of `If`, `Loop`, `Scan`).
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Several floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Several integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Several texts.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Several tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Several graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Kind of the attribute: one of [`AttributeType`].
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
    /// In the body of a function: the function's attribute that this one copies.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// A sparse tensor (refused).
    #[prost(message, optional, tag = "22")]
    pub sparse_tensor: Option<SparseTensorProto>,
}

/// Kinds of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Not said: the field that is set decides.
    Undefined = 0,
    /// `f`.
    Float = 1,
    /// `i`.
    Int = 2,
    /// `s`.
    String = 3,
    /// `t`.
    Tensor = 4,
    /// `g`.
    Graph = 5,
    /// `floats`.
    Floats = 6,
    /// `ints`.
    Ints = 7,
    /// `strings`.
    Strings = 8,
    /// `tensors`.
    Tensors = 9,
    /// `graphs`.
    Graphs = 10,
    /// `sparse_tensor`.
    SparseTensor = 11,
    /// Several sparse tensors.
    SparseTensors = 12,
    /// A type.
    TypeProto = 13,
    /// Several types.
    TypeProtos = 14,
}

/// A tensor and its elements, in one of several encodings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorProto {
    /// Shape.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Element type: one of [`DataType`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Part of a tensor that is stored in pieces (refused).
    #[prost(message, optional, tag = "3")]
    pub segment: Option<Segment>,
    /// Elements of FLOAT; real and imaginary parts of COMPLEX64.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of every type of at most 32 bits but FLOAT and UINT32, one a number.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of STRING.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements of INT64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements of any type but STRING, little-endian, row-major.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Elements of DOUBLE; real and imaginary parts of COMPLEX128.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of UINT32 and UINT64.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where the elements are when [`TensorProto::data_location`] is EXTERNAL.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 0: in this message; 1: in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// Element types of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
#[allow(missing_docs)] // The names are the documentation: they are ONNX's own.
pub enum DataType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8e4m3fn = 17,
    Float8e4m3fnuz = 18,
    Float8e5m2 = 19,
    Float8e5m2fnuz = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4e2m1 = 23,
    Float8e8m0 = 24,
    Uint2 = 25,
    Int2 = 26,
    Float6e2m3 = 27,
    Float6e3m2 = 28,
}

impl std::fmt::Display for DataType {
    /// ONNX's own spelling, such as `FLOAT8E4M3FN`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_uppercase())
    }
}

/// The range of elements that a piece of a segmented tensor holds.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Segment {
    /// First element.
    #[prost(int64, tag = "1")]
    pub begin: i64,
    /// One past the last element.
    #[prost(int64, tag = "2")]
    pub end: i64,
}

/// A sparse tensor: its non-zero values and where they are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SparseTensorProto {
    /// The values; their name is the tensor's name.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Their indices.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Shape of the dense tensor.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// The type of a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TypeProto {
    /// What kind of value it is.
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<TypeValue>,
}

/// The kinds of values. Only tensors are imported.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum TypeValue {
    /// A dense tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorTypeProto),
    /// A sequence (refused).
    #[prost(message, tag = "4")]
    Sequence(OtherTypeProto),
    /// A map (refused).
    #[prost(message, tag = "5")]
    Map(OtherTypeProto),
    /// An opaque value (refused).
    #[prost(message, tag = "7")]
    Opaque(OtherTypeProto),
    /// A sparse tensor (refused).
    #[prost(message, tag = "8")]
    SparseTensor(TensorTypeProto),
    /// An optional value (refused).
    #[prost(message, tag = "9")]
    Optional(OtherTypeProto),
}

/// Element type and shape of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorTypeProto {
    /// Element type: one of [`DataType`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Shape; absent when even the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A type whose inside Fornax does not look at.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct OtherTypeProto {}

/// A shape with possibly unknown sizes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorShapeProto {
    /// The sizes.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One size of a shape.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DimensionProto {
    /// A number, a name, or nothing at all (unknown).
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// A known or a named size.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// A number.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// A name: the same name means the same size.
    #[prost(string, tag = "2")]
    Param(String),
}

/// A function that is local to the model.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FunctionProto {
    /// Name: the operator that it defines.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of the inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of the outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of attributes without a default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// The body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Operator sets of the body.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Domain of the operator that it defines.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with a default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Which overload this is.
    #[prost(string, tag = "13")]
    pub overload: String,
}
