//! The op table: one line for each ONNX operator.

use fornax_ir::NodeId;

use super::call::{Call, Result, Value};
use super::fold;
use super::ops::{
    attention, contraction, create, flow, index, loss, movement, norm, pad, pointwise, pool,
    quantize, recurrent, reduce, reshape, resize, window,
};
use crate::build::known::{Binary, Known, Unary};

/// How a node becomes a part of the graph.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// One output.
    One(fn(&mut Call<'_, '_>) -> Result<NodeId>),
    /// Several outputs, or one that need not be a node. Fewer than the node has are given when the rest is not
    /// supported, which is an error only if they are used.
    Many(fn(&mut Call<'_, '_>) -> Result<Vec<Value>>),
}

/// Computes the outputs of a node while importing, if it can.
pub(super) type Fold = fn(&Call<'_, '_>) -> Option<Vec<Known>>;

/// A line of the table.
pub(super) struct Row {
    /// The operator.
    pub(super) name: &'static str,
    /// The oldest version of the operator set at which the handler is right; it is right for all later
    /// ones too.
    pub(super) since: i64,
    pub(super) handler: Handler,
    /// How it is computed while importing.
    pub(super) fold: Option<Fold>,
}

macro_rules! table {
    ($($name:literal, $since:literal, $kind:ident($handler:expr) $(, fold $fold:expr)?;)*) => {
        &[$(Row {
            name: $name,
            since: $since,
            handler: Handler::$kind($handler),
            fold: table!(@fold $($fold)?),
        }),*]
    };
    (@fold) => { None };
    (@fold $fold:expr) => { Some($fold) };
}

/// Sorted by name.
#[rustfmt::skip]
const TABLE: &[Row] = table! {
    "Abs", 6, One(|c| pointwise::unary(c, "abs")), fold |c| fold::unary(c, Unary::Abs);
    "Acos", 7, One(|c| pointwise::unary(c, "acos"));
    "Acosh", 9, One(|c| pointwise::unary(c, "acosh"));
    "Add", 7, One(|c| pointwise::binary(c, "add")), fold |c| fold::binary(c, Binary::Add);
    "And", 7, One(|c| pointwise::binary(c, "and")), fold |c| fold::binary(c, Binary::And);
    "ArgMax", 1, One(|c| reduce::arg(c, "arg_max"));
    "ArgMin", 1, One(|c| reduce::arg(c, "arg_min"));
    "Asin", 7, One(|c| pointwise::unary(c, "asin"));
    "Asinh", 9, One(|c| pointwise::unary(c, "asinh"));
    "Atan", 7, One(|c| pointwise::unary(c, "atan"));
    "Atanh", 9, One(|c| pointwise::unary(c, "atanh"));
    "Attention", 23, Many(attention::attention);
    "AveragePool", 7, One(pool::average_pool);
    "BatchNormalization", 7, Many(norm::batch_norm);
    "BitShift", 11, One(pointwise::bit_shift);
    "BitwiseAnd", 18, One(|c| pointwise::binary(c, "bit_and"));
    "BitwiseNot", 18, One(|c| pointwise::unary(c, "bitwise_not"));
    "BitwiseOr", 18, One(|c| pointwise::binary(c, "bit_or"));
    "BitwiseXor", 18, One(|c| pointwise::binary(c, "bit_xor"));
    "BlackmanWindow", 17, One(|c| create::window(c, [0.42, -0.5, 0.08]));
    "Cast", 6, One(pointwise::cast), fold fold::cast;
    "CastLike", 15, One(pointwise::cast_like), fold fold::cast_like;
    "Ceil", 6, One(|c| pointwise::unary(c, "ceil")), fold |c| fold::unary(c, Unary::Ceil);
    "Celu", 12, One(|c| pointwise::with_alpha(c, "celu", 1.0));
    "Clip", 6, One(pointwise::clip);
    "Concat", 4, One(movement::concat), fold fold::concat;
    "Constant", 1, Many(create::constant);
    "ConstantOfShape", 9, One(create::constant_of_shape), fold fold::constant_of_shape;
    "Conv", 1, One(window::conv);
    "ConvInteger", 10, One(quantize::conv_integer);
    "ConvTranspose", 1, One(window::conv_transpose);
    "Cos", 7, One(|c| pointwise::unary(c, "cos"));
    "Cosh", 9, One(|c| pointwise::unary(c, "cosh"));
    "CumProd", 26, One(|c| reduce::scan(c, "cum_prod"));
    "CumSum", 11, One(|c| reduce::scan(c, "cum_sum"));
    "DepthToSpace", 1, One(movement::depth_to_space);
    "DequantizeLinear", 10, One(quantize::dequantize);
    "Div", 7, One(|c| pointwise::binary(c, "div")), fold |c| fold::binary(c, Binary::Div);
    "Dropout", 1, Many(pointwise::dropout);
    "DynamicQuantizeLinear", 11, Many(quantize::dynamic_quantize);
    "Einsum", 12, One(contraction::einsum);
    "Elu", 6, One(|c| pointwise::with_alpha(c, "elu", 1.0));
    "Equal", 7, One(|c| pointwise::binary(c, "eq")), fold |c| fold::binary(c, Binary::Equal);
    "Erf", 9, One(|c| pointwise::unary(c, "erf"));
    "Exp", 6, One(|c| pointwise::unary(c, "exp"));
    "Expand", 8, One(movement::expand), fold fold::expand;
    "EyeLike", 9, One(create::eye_like);
    "Flatten", 1, One(|c| reshape::reshape(c, reshape::flatten_shape)), fold |c| fold::reshape(c, reshape::flatten_shape);
    "Floor", 6, One(|c| pointwise::unary(c, "floor")), fold |c| fold::unary(c, Unary::Floor);
    "GRU", 7, Many(recurrent::gru);
    "Gather", 1, One(index::gather), fold fold::gather;
    "GatherElements", 11, One(index::gather_elements);
    "GatherND", 11, One(index::gather_nd);
    "Gelu", 20, One(pointwise::gelu);
    "Gemm", 7, One(contraction::gemm);
    "GlobalAveragePool", 1, One(|c| pool::global(c, "reduce_mean"));
    "GlobalLpPool", 2, One(pool::global_lp);
    "GlobalMaxPool", 1, One(|c| pool::global(c, "reduce_max"));
    "Greater", 7, One(|c| pointwise::binary(c, "gt")), fold |c| fold::binary(c, Binary::Greater);
    "GreaterOrEqual", 12, One(|c| pointwise::binary(c, "ge")), fold |c| fold::binary(c, Binary::GreaterOrEqual);
    "GroupNormalization", 18, One(norm::group_norm);
    "HammingWindow", 17, One(|c| create::window(c, [25.0 / 46.0, -21.0 / 46.0, 0.0]));
    "HannWindow", 17, One(|c| create::window(c, [0.5, -0.5, 0.0]));
    "HardSigmoid", 6, One(pointwise::hard_sigmoid);
    "HardSwish", 14, One(|c| pointwise::unary(c, "hard_swish"));
    "Hardmax", 1, One(|c| reduce::softmax(c, "hardmax"));
    "Identity", 1, One(pointwise::identity), fold fold::identity;
    "If", 1, Many(flow::condition);
    "InstanceNormalization", 6, One(norm::instance_norm);
    "IsInf", 10, One(pointwise::is_inf);
    "IsNaN", 9, One(|c| pointwise::unary(c, "is_nan"));
    "LRN", 1, One(norm::lrn);
    "LSTM", 7, Many(recurrent::lstm);
    "LayerNormalization", 17, Many(norm::layer_norm);
    "LeakyRelu", 6, One(|c| pointwise::with_alpha(c, "leaky_relu", 0.01));
    "Less", 7, One(|c| pointwise::binary(c, "lt")), fold |c| fold::binary(c, Binary::Less);
    "LessOrEqual", 12, One(|c| pointwise::binary(c, "le")), fold |c| fold::binary(c, Binary::LessOrEqual);
    "Log", 6, One(|c| pointwise::unary(c, "log"));
    "LogSoftmax", 1, One(|c| reduce::softmax(c, "log_softmax"));
    "LpNormalization", 1, One(norm::lp_norm);
    "LpPool", 2, One(pool::lp_pool);
    "MatMul", 1, One(contraction::matmul);
    "MatMulInteger", 10, One(quantize::matmul_integer);
    "Max", 8, One(|c| pointwise::variadic(c, "max")), fold |c| fold::variadic(c, Binary::Max);
    "MaxPool", 1, Many(pool::max_pool);
    "Mean", 8, One(pointwise::mean);
    "MeanVarianceNormalization", 9, One(norm::mean_variance_norm);
    "Min", 8, One(|c| pointwise::variadic(c, "min")), fold |c| fold::variadic(c, Binary::Min);
    "Mish", 18, One(|c| pointwise::unary(c, "mish"));
    "Mod", 10, One(pointwise::modulo), fold |c| fold::binary(c, Binary::Mod);
    "Mul", 7, One(|c| pointwise::binary(c, "mul")), fold |c| fold::binary(c, Binary::Mul);
    "Neg", 6, One(|c| pointwise::unary(c, "neg")), fold |c| fold::unary(c, Unary::Neg);
    "NegativeLogLikelihoodLoss", 12, One(loss::negative_log_likelihood);
    "Not", 1, One(|c| pointwise::unary(c, "not")), fold |c| fold::unary(c, Unary::Not);
    "OneHot", 9, One(create::one_hot);
    "Or", 7, One(|c| pointwise::binary(c, "or")), fold |c| fold::binary(c, Binary::Or);
    "PRelu", 7, One(pointwise::prelu);
    "Pad", 2, One(pad::pad);
    "Pow", 7, One(pointwise::pow);
    "QLinearConv", 10, One(quantize::qlinear_conv);
    "QLinearMatMul", 10, One(quantize::qlinear_matmul);
    "QuantizeLinear", 10, One(quantize::quantize);
    "RMSNormalization", 23, One(norm::rms_norm);
    "RNN", 7, Many(recurrent::rnn);
    "Range", 11, One(create::range), fold fold::range;
    "Reciprocal", 6, One(|c| pointwise::unary(c, "reciprocal"));
    "ReduceL1", 1, One(|c| reduce::reduce(c, "reduce_l1"));
    "ReduceL2", 1, One(|c| reduce::reduce(c, "reduce_l2"));
    "ReduceLogSum", 1, One(|c| reduce::reduce(c, "reduce_log_sum"));
    "ReduceLogSumExp", 1, One(|c| reduce::reduce(c, "reduce_log_sum_exp"));
    "ReduceMax", 1, One(|c| reduce::reduce(c, "reduce_max")), fold |c| fold::reduce(c, Binary::Max, None);
    "ReduceMean", 1, One(|c| reduce::reduce(c, "reduce_mean"));
    "ReduceMin", 1, One(|c| reduce::reduce(c, "reduce_min")), fold |c| fold::reduce(c, Binary::Min, None);
    "ReduceProd", 1, One(|c| reduce::reduce(c, "reduce_prod")), fold |c| fold::reduce(c, Binary::Mul, Some(1));
    "ReduceSum", 1, One(|c| reduce::reduce(c, "reduce_sum")), fold |c| fold::reduce(c, Binary::Add, Some(0));
    "ReduceSumSquare", 1, One(|c| reduce::reduce(c, "reduce_sum_square"));
    "Relu", 6, One(|c| pointwise::unary(c, "relu"));
    "Reshape", 5, One(|c| reshape::reshape(c, reshape::reshape_shape)), fold |c| fold::reshape(c, reshape::reshape_shape);
    "Resize", 10, One(resize::resize);
    "ReverseSequence", 10, One(index::reverse_sequence);
    "RotaryEmbedding", 23, One(attention::rotary_embedding);
    "Round", 11, One(|c| pointwise::unary(c, "round"));
    "Selu", 6, One(pointwise::selu);
    "Shape", 1, Many(flow::must_fold), fold fold::shape;
    "Shrink", 9, One(pointwise::shrink);
    "Sigmoid", 6, One(|c| pointwise::unary(c, "sigmoid"));
    "Sign", 9, One(|c| pointwise::unary(c, "sign"));
    "Sin", 7, One(|c| pointwise::unary(c, "sin"));
    "Sinh", 9, One(|c| pointwise::unary(c, "sinh"));
    "Size", 1, Many(flow::must_fold), fold fold::size;
    "Slice", 1, One(movement::slice), fold fold::slice;
    "Softmax", 1, One(|c| reduce::softmax(c, "softmax"));
    "SoftmaxCrossEntropyLoss", 12, Many(loss::softmax_cross_entropy);
    "Softplus", 1, One(|c| pointwise::unary(c, "softplus"));
    "Softsign", 1, One(|c| pointwise::unary(c, "softsign"));
    "SpaceToDepth", 1, One(movement::space_to_depth);
    "Split", 2, Many(movement::split), fold fold::split;
    "Sqrt", 6, One(|c| pointwise::unary(c, "sqrt")), fold |c| fold::unary(c, Unary::Sqrt);
    "Squeeze", 1, One(|c| reshape::reshape(c, reshape::squeeze_shape)), fold |c| fold::reshape(c, reshape::squeeze_shape);
    "Sub", 7, One(|c| pointwise::binary(c, "sub")), fold |c| fold::binary(c, Binary::Sub);
    "Sum", 8, One(|c| pointwise::variadic(c, "add")), fold |c| fold::variadic(c, Binary::Add);
    "SwiGLU", 27, One(attention::swiglu);
    "Swish", 24, One(|c| pointwise::with_alpha(c, "swish", 1.0));
    "Tan", 7, One(|c| pointwise::unary(c, "tan"));
    "Tanh", 6, One(|c| pointwise::unary(c, "tanh"));
    "TensorScatter", 24, One(index::tensor_scatter);
    "ThresholdedRelu", 10, One(|c| pointwise::with_alpha(c, "thresholded_relu", 1.0));
    "Tile", 6, One(movement::tile);
    "Transpose", 1, One(movement::transpose), fold fold::transpose;
    "Trilu", 14, One(index::trilu);
    "Unsqueeze", 1, One(|c| reshape::reshape(c, reshape::unsqueeze_shape)), fold |c| fold::reshape(c, reshape::unsqueeze_shape);
    "Upsample", 7, One(resize::upsample);
    "Where", 9, One(pointwise::select), fold fold::select;
    "Xor", 7, One(|c| pointwise::binary(c, "xor")), fold |c| fold::binary(c, Binary::Xor);
};

/// The domain's name; the standard operators' has two.
pub(super) fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// The line for an operator.
pub(super) fn find(domain_name: &str, operator: &str) -> Option<&'static Row> {
    if !domain(domain_name).is_empty() {
        return None;
    }
    TABLE.binary_search_by_key(&operator, |row| row.name).ok().map(|at| &TABLE[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
    }
}
