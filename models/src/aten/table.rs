//! The table of ATen operators: one line for each overload.
//!
//! A line's signature is that of PyTorch's `aten/src/ATen/native/native_functions.yaml` without aliases and result.
//! Operators in place need no line: `add_` is found by `add`. Of several overloads with one name, the first that
//! the arguments fit is taken where a program does not name one (TorchScript), so narrower ones come first.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fornax_ir::NodeId;

use super::Item;
use super::call::{Call, Result};
use super::ops::{
    attention, contraction, convert, create, facts, index, join, loss, norm, pad, pointwise, pool,
    recurrent, reduce, resize, shape, window,
};
use super::schema::Schema;
use crate::build::known::Binary;

/// How a call becomes a part of the graph.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// One tensor with memory of its own.
    Node(fn(&mut Call<'_>) -> Result<NodeId>),
    /// One tensor with memory of its own, which may be known while importing.
    Fresh(fn(&mut Call<'_>) -> Result<Item>),
    /// Anything else: views, several tensors, the operand itself.
    Item(fn(&mut Call<'_>) -> Result<Item>),
}

/// A line of the table.
pub(super) struct Row {
    pub(super) schema: Schema,
    pub(super) handler: Handler,
}

/// The lines for an operator, those of one overload or all, in the table's order.
pub(super) fn find(name: &str, overload: Option<&str>) -> Vec<&'static Row> {
    let rows = ROWS.get(name).map_or(&[][..], Vec::as_slice);
    rows.iter().filter(|row| overload.is_none_or(|wanted| row.schema.overload == wanted)).collect()
}

static ROWS: LazyLock<BTreeMap<String, Vec<Row>>> = LazyLock::new(|| {
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for &(signature, handler) in TABLE {
        let schema =
            Schema::parse(signature).expect("invariant: the table's signatures are well-formed");
        rows.entry(schema.name.clone()).or_default().push(Row { schema, handler });
    }
    rows
});

macro_rules! table {
    ($($signature:literal => $kind:ident($handler:expr);)*) => {
        &[$(($signature, Handler::$kind($handler))),*]
    };
}

#[rustfmt::skip]
const TABLE: &[(&str, Handler)] = table! {
    // Functions of one element.
    "abs(Tensor self)" => Node(|c| pointwise::unary(c, "abs"));
    "acos(Tensor self)" => Node(|c| pointwise::float_unary(c, "acos"));
    "acosh(Tensor self)" => Node(|c| pointwise::float_unary(c, "acosh"));
    "asin(Tensor self)" => Node(|c| pointwise::float_unary(c, "asin"));
    "asinh(Tensor self)" => Node(|c| pointwise::float_unary(c, "asinh"));
    "atan(Tensor self)" => Node(|c| pointwise::float_unary(c, "atan"));
    "atanh(Tensor self)" => Node(|c| pointwise::float_unary(c, "atanh"));
    "bitwise_not(Tensor self)" => Node(pointwise::bitwise_not);
    "ceil(Tensor self)" => Node(|c| pointwise::rounding(c, "ceil"));
    "celu(Tensor self, Scalar alpha=1.0)" => Node(|c| convert::with_alpha(c, "celu", "alpha"));
    "cos(Tensor self)" => Node(|c| pointwise::float_unary(c, "cos"));
    "cosh(Tensor self)" => Node(|c| pointwise::float_unary(c, "cosh"));
    "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1)" => Node(convert::elu);
    "erf(Tensor self)" => Node(|c| pointwise::float_unary(c, "erf"));
    "erfc(Tensor self)" => Node(|c| pointwise::complement(c, "erf"));
    "exp(Tensor self)" => Node(|c| pointwise::float_unary(c, "exp"));
    "exp2(Tensor self)" => Node(pointwise::exp2);
    "expm1(Tensor self)" => Node(|c| pointwise::float_unary(c, "expm1"));
    "fix(Tensor self)" => Node(|c| pointwise::rounding(c, "trunc"));
    "floor(Tensor self)" => Node(|c| pointwise::rounding(c, "floor"));
    "gelu(Tensor self, *, str approximate=\"none\")" => Node(convert::gelu);
    "glu(Tensor self, int dim=-1)" => Node(convert::glu);
    "hardshrink(Tensor self, Scalar lambd=0.5)" => Node(|c| convert::shrink(c, false));
    "hardsigmoid(Tensor self)" => Node(convert::hard_sigmoid);
    "hardswish(Tensor self)" => Node(|c| pointwise::unary(c, "hard_swish"));
    "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1)" => Node(pointwise::hardtanh);
    "isfinite(Tensor self)" => Node(pointwise::is_finite);
    "isinf(Tensor self)" => Node(pointwise::is_inf);
    "isnan(Tensor self)" => Node(|c| pointwise::float_unary(c, "is_nan"));
    "leaky_relu(Tensor self, Scalar negative_slope=0.01)" => Node(|c| convert::with_alpha(c, "leaky_relu", "negative_slope"));
    "log(Tensor self)" => Node(|c| pointwise::float_unary(c, "log"));
    "log10(Tensor self)" => Node(|c| pointwise::times(c, "log", std::f64::consts::LOG10_E));
    "log1p(Tensor self)" => Node(|c| pointwise::float_unary(c, "log1p"));
    "log2(Tensor self)" => Node(|c| pointwise::times(c, "log", std::f64::consts::LOG2_E));
    "log_sigmoid(Tensor self)" => Node(convert::log_sigmoid);
    "logical_not(Tensor self)" => Node(pointwise::logical_not);
    "mish(Tensor self)" => Node(|c| pointwise::unary(c, "mish"));
    "neg(Tensor self)" => Node(|c| pointwise::unary(c, "neg"));
    "prelu(Tensor self, Tensor weight)" => Node(convert::prelu);
    "reciprocal(Tensor self)" => Node(|c| pointwise::float_unary(c, "reciprocal"));
    "relu(Tensor self)" => Node(|c| pointwise::unary(c, "relu"));
    "relu6(Tensor self)" => Node(|c| pointwise::clip_between(c, 0.0, 6.0));
    "round(Tensor self)" => Node(|c| pointwise::rounding(c, "round"));
    "rsqrt(Tensor self)" => Node(|c| pointwise::float_unary(c, "rsqrt"));
    "selu(Tensor self)" => Node(convert::selu);
    "sigmoid(Tensor self)" => Node(|c| pointwise::float_unary(c, "sigmoid"));
    "sign(Tensor self)" => Node(|c| pointwise::unary(c, "sign"));
    "silu(Tensor self)" => Node(convert::silu);
    "sin(Tensor self)" => Node(|c| pointwise::float_unary(c, "sin"));
    "sinh(Tensor self)" => Node(|c| pointwise::float_unary(c, "sinh"));
    "softplus(Tensor self, Scalar beta=1, Scalar threshold=20)" => Node(convert::softplus);
    "softshrink(Tensor self, Scalar lambd=0.5)" => Node(|c| convert::shrink(c, true));
    "sqrt(Tensor self)" => Node(|c| pointwise::float_unary(c, "sqrt"));
    "square(Tensor self)" => Node(pointwise::square);
    "tan(Tensor self)" => Node(|c| pointwise::float_unary(c, "tan"));
    "tanh(Tensor self)" => Node(|c| pointwise::float_unary(c, "tanh"));
    "threshold(Tensor self, Scalar threshold, Scalar value)" => Node(convert::threshold);
    "trunc(Tensor self)" => Node(|c| pointwise::rounding(c, "trunc"));

    // Functions of several elements.
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)" => Fresh(|c| pointwise::folded(c, Binary::Add, |c| pointwise::sum(c, "add")));
    "add.Scalar(Tensor self, Scalar other, Scalar alpha=1)" => Fresh(|c| pointwise::folded(c, Binary::Add, |c| pointwise::sum(c, "add")));
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)" => Node(|c| pointwise::add_combined(c, "div"));
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)" => Node(|c| pointwise::add_combined(c, "mul"));
    "bitwise_and.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_and", "and"));
    "bitwise_and.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary_or(c, "bit_and", "and"));
    "bitwise_or.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_or", "or"));
    "bitwise_or.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary_or(c, "bit_or", "or"));
    "bitwise_xor.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_xor", "xor"));
    "bitwise_xor.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary_or(c, "bit_xor", "xor"));
    "__and__.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_and", "and"));
    "__or__.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_or", "or"));
    "__xor__.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "bit_xor", "xor"));
    "clamp(Tensor self, Scalar? min=None, Scalar? max=None)" => Node(pointwise::clamp);
    "clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None)" => Node(pointwise::clamp);
    "clamp_max(Tensor self, Scalar max)" => Node(pointwise::clamp);
    "clamp_min(Tensor self, Scalar min)" => Node(pointwise::clamp);
    "clip(Tensor self, Scalar? min=None, Scalar? max=None)" => Node(pointwise::clamp);
    "div.Tensor(Tensor self, Tensor other)" => Node(pointwise::div);
    "div.Scalar(Tensor self, Scalar other)" => Node(pointwise::div);
    "div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode)" => Node(pointwise::div);
    "div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode)" => Node(pointwise::div);
    "divide.Tensor(Tensor self, Tensor other)" => Node(pointwise::div);
    "divide.Scalar(Tensor self, Scalar other)" => Node(pointwise::div);
    "true_divide.Tensor(Tensor self, Tensor other)" => Node(pointwise::div);
    "eq.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "eq"));
    "eq.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "eq"));
    "floor_divide(Tensor self, Tensor other)" => Fresh(|c| pointwise::folded(c, Binary::Div, pointwise::floor_divide));
    "floor_divide.Scalar(Tensor self, Scalar other)" => Fresh(|c| pointwise::folded(c, Binary::Div, pointwise::floor_divide));
    "fmod.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "rem"));
    "fmod.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "rem"));
    "ge.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "ge"));
    "ge.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "ge"));
    "gt.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "gt"));
    "gt.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "gt"));
    "le.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "le"));
    "le.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "le"));
    "lerp.Scalar(Tensor self, Tensor end, Scalar weight)" => Node(pointwise::lerp);
    "lerp.Tensor(Tensor self, Tensor end, Tensor weight)" => Node(pointwise::lerp);
    "logical_and(Tensor self, Tensor other)" => Node(|c| pointwise::logical(c, "and"));
    "logical_or(Tensor self, Tensor other)" => Node(|c| pointwise::logical(c, "or"));
    "logical_xor(Tensor self, Tensor other)" => Node(|c| pointwise::logical(c, "xor"));
    "lt.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "lt"));
    "lt.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "lt"));
    "masked_fill.Scalar(Tensor self, Tensor mask, Scalar value)" => Node(pointwise::masked_fill);
    "masked_fill.Tensor(Tensor self, Tensor mask, Tensor value)" => Node(pointwise::masked_fill);
    "maximum(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "max"));
    "minimum(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "min"));
    "mul.Tensor(Tensor self, Tensor other)" => Fresh(|c| pointwise::folded(c, Binary::Mul, |c| pointwise::binary_or(c, "mul", "and")));
    "mul.Scalar(Tensor self, Scalar other)" => Fresh(|c| pointwise::folded(c, Binary::Mul, |c| pointwise::binary_or(c, "mul", "and")));
    "multiply.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary_or(c, "mul", "and"));
    "multiply.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary_or(c, "mul", "and"));
    "ne.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "ne"));
    "ne.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "ne"));
    "pow.Tensor_Tensor(Tensor self, Tensor exponent)" => Node(pointwise::pow);
    "pow.Tensor_Scalar(Tensor self, Scalar exponent)" => Node(pointwise::pow);
    "pow.Scalar(Scalar self, Tensor exponent)" => Node(pointwise::pow);
    "remainder.Tensor(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "mod"));
    "remainder.Scalar(Tensor self, Scalar other)" => Node(|c| pointwise::binary(c, "mod"));
    "rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)" => Node(pointwise::reversed_sub);
    "rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1)" => Node(pointwise::reversed_sub);
    "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)" => Fresh(|c| pointwise::folded(c, Binary::Sub, |c| pointwise::sum(c, "sub")));
    "sub.Scalar(Tensor self, Scalar other, Scalar alpha=1)" => Fresh(|c| pointwise::folded(c, Binary::Sub, |c| pointwise::sum(c, "sub")));
    "subtract.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)" => Node(|c| pointwise::sum(c, "sub"));
    "where.self(Tensor condition, Tensor self, Tensor other)" => Node(pointwise::select);
    "where.ScalarSelf(Tensor condition, Scalar self, Tensor other)" => Node(pointwise::select);
    "where.ScalarOther(Tensor condition, Tensor self, Scalar other)" => Node(pointwise::select);
    "where.Scalar(Tensor condition, Scalar self, Scalar other)" => Node(pointwise::select);

    // Conversions, copies, and what returns its operand.
    "alias(Tensor self)" => Item(convert::alias);
    "alpha_dropout(Tensor input, float p, bool train)" => Item(convert::dropout);
    "clone(Tensor self, *, MemoryFormat? memory_format=None)" => Item(convert::copy);
    "contiguous(Tensor self, *, MemoryFormat memory_format=None)" => Item(convert::contiguous);
    "copy_(Tensor self, Tensor src, bool non_blocking=False)" => Item(convert::copy_into);
    "cpu(Tensor self)" => Item(convert::alias);
    "detach(Tensor self)" => Item(convert::alias);
    "detach_(Tensor self)" => Item(convert::alias);
    "dropout(Tensor input, float p, bool train)" => Item(convert::dropout);
    "dropout_(Tensor self, float p, bool train)" => Item(convert::dropout);
    "feature_dropout(Tensor input, float p, bool train)" => Item(convert::dropout);
    "fill_.Scalar(Tensor self, Scalar value)" => Item(convert::fill);
    "fill_.Tensor(Tensor self, Tensor value)" => Item(convert::fill);
    "lift_fresh(Tensor self)" => Item(convert::alias);
    "lift_fresh_copy(Tensor self)" => Item(convert::copy);
    "real(Tensor self)" => Node(convert::real);
    "requires_grad_(Tensor self, bool requires_grad=True)" => Item(convert::alias);
    "to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None)" => Item(convert::to);
    "to.dtype_layout(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None)" => Item(convert::to);
    "to.other(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None)" => Item(convert::to);
    "to.device(Tensor self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None)" => Item(convert::to);
    "to.prim_Device(Tensor self, Device? device, ScalarType? dtype=None, bool non_blocking=False, bool copy=False)" => Item(convert::to);
    "type_as(Tensor self, Tensor other)" => Item(convert::to);
    "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None)" => Item(convert::to);
    "zero_(Tensor self)" => Item(convert::fill);

    // Views.
    "broadcast_tensors(Tensor[] tensors)" => Item(shape::broadcast_tensors);
    "broadcast_to(Tensor self, int[] size)" => Item(shape::expand);
    "chunk(Tensor self, int chunks, int dim=0)" => Item(shape::split);
    "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1)" => Node(shape::diagonal);
    "expand(Tensor self, int[] size, *, bool implicit=False)" => Item(shape::expand);
    "expand_as(Tensor self, Tensor other)" => Item(shape::expand_as);
    "flatten.using_ints(Tensor self, int start_dim=0, int end_dim=-1)" => Item(shape::flatten);
    "mT(Tensor self)" => Item(shape::matrix_turned);
    "movedim.intlist(Tensor self, int[] source, int[] destination)" => Item(shape::move_axes);
    "movedim.int(Tensor self, int source, int destination)" => Item(shape::move_axes);
    "narrow(Tensor self, int dim, int start, int length)" => Item(shape::narrow);
    "numpy_T(Tensor self)" => Item(shape::turned);
    "permute(Tensor self, int[] dims)" => Item(shape::permute);
    "reshape(Tensor self, int[] shape)" => Item(shape::reshape);
    "reshape_as(Tensor self, Tensor other)" => Item(shape::reshape_as);
    "select.int(Tensor self, int dim, int index)" => Item(shape::select);
    "slice.Tensor(Tensor self, int dim=0, int? start=None, int? end=None, int step=1)" => Item(shape::slice);
    "split.Tensor(Tensor self, int split_size, int dim=0)" => Item(shape::split);
    "split.sizes(Tensor self, int[] split_sizes, int dim=0)" => Item(shape::split);
    "split_with_sizes(Tensor self, int[] split_sizes, int dim=0)" => Item(shape::split);
    "squeeze(Tensor self)" => Item(shape::squeeze);
    "squeeze.dim(Tensor self, int dim)" => Item(shape::squeeze);
    "squeeze.dims(Tensor self, int[] dim)" => Item(shape::squeeze);
    "swapaxes(Tensor self, int dim0, int dim1)" => Item(shape::transpose);
    "t(Tensor self)" => Item(shape::turned);
    "transpose.int(Tensor self, int dim0, int dim1)" => Item(shape::transpose);
    "unbind.int(Tensor self, int dim=0)" => Item(shape::unbind);
    "unflatten.int(Tensor self, int dim, int[] sizes)" => Item(shape::unflatten);
    "unsqueeze(Tensor self, int dim)" => Item(shape::unsqueeze);
    "view(Tensor self, int[] size)" => Item(shape::view);
    "view_as(Tensor self, Tensor other)" => Item(shape::reshape_as);
    "_unsafe_view(Tensor self, int[] size)" => Item(shape::reshape);

    // Joining, repeating, rearranging.
    "cat(Tensor[] tensors, int dim=0)" => Node(join::cat);
    "channel_shuffle(Tensor self, int groups)" => Node(join::channel_shuffle);
    "concat(Tensor[] tensors, int dim=0)" => Node(join::cat);
    "concatenate(Tensor[] tensors, int dim=0)" => Node(join::cat);
    "constant_pad_nd(Tensor self, int[] pad, Scalar value=0)" => Node(pad::constant);
    "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False)" => Node(index::embedding);
    "flip(Tensor self, int[] dims)" => Node(join::flip);
    "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False)" => Node(index::gather);
    "index.Tensor(Tensor self, Tensor?[] indices)" => Node(index::index);
    "index_select(Tensor self, int dim, Tensor index)" => Node(index::index_select);
    "meshgrid(Tensor[] tensors)" => Item(join::meshgrid);
    "meshgrid.indexing(Tensor[] tensors, *, str indexing)" => Item(join::meshgrid);
    "one_hot(Tensor self, int num_classes=-1)" => Node(index::one_hot);
    "pad(Tensor self, int[] pad, str mode=\"constant\", float? value=None)" => Node(pad::pad);
    "pixel_shuffle(Tensor self, int upscale_factor)" => Node(join::pixel_shuffle);
    "pixel_unshuffle(Tensor self, int downscale_factor)" => Node(join::pixel_unshuffle);
    "reflection_pad1d(Tensor self, int[2] padding)" => Node(|c| pad::repeated(c, "reflect"));
    "reflection_pad2d(Tensor self, int[4] padding)" => Node(|c| pad::repeated(c, "reflect"));
    "reflection_pad3d(Tensor self, int[6] padding)" => Node(|c| pad::repeated(c, "reflect"));
    "repeat(Tensor self, int[] repeats)" => Node(|c| join::repeat(c, "repeats"));
    "repeat_interleave.self_int(Tensor self, int repeats, int? dim=None, *, int? output_size=None)" => Node(join::repeat_interleave);
    "replication_pad1d(Tensor self, int[2] padding)" => Node(|c| pad::repeated(c, "edge"));
    "replication_pad2d(Tensor self, int[4] padding)" => Node(|c| pad::repeated(c, "edge"));
    "replication_pad3d(Tensor self, int[6] padding)" => Node(|c| pad::repeated(c, "edge"));
    "roll(Tensor self, int[1] shifts, int[1] dims=[])" => Node(join::roll);
    "stack(Tensor[] tensors, int dim=0)" => Node(join::stack);
    "tile(Tensor self, int[] dims)" => Node(|c| join::repeat(c, "dims"));
    "tril(Tensor self, int diagonal=0)" => Node(|c| join::triangle(c, false));
    "triu(Tensor self, int diagonal=0)" => Node(|c| join::triangle(c, true));

    // Tensors from sizes and numbers.
    "arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Item(create::arange);
    "arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Item(create::arange);
    "arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Item(create::arange);
    "empty.memory_format(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None)" => Node(|c| create::full(c, 0.0));
    "eye(int n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(create::eye);
    "eye.m(int n, int m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(create::eye);
    "full(int[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(create::full_of);
    "full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None)" => Node(create::full_like);
    "linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(create::linspace);
    "new_full(Tensor self, int[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(create::full_of);
    "new_ones(Tensor self, int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(|c| create::full(c, 1.0));
    "new_zeros(Tensor self, int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(|c| create::full(c, 0.0));
    "ones(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(|c| create::full(c, 1.0));
    "ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None)" => Node(|c| create::like(c, 1.0));
    "scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Item(|c| create::scalar_tensor(c, "s"));
    "tensor(Scalar t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False)" => Item(|c| create::scalar_tensor(c, "t"));
    "zeros(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)" => Node(|c| create::full(c, 0.0));
    "zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None)" => Node(|c| create::like(c, 0.0));

    // Reductions and scans.
    "all(Tensor self)" => Node(|c| reduce::truths(c, "reduce_all"));
    "all.dim(Tensor self, int dim, bool keepdim=False)" => Node(|c| reduce::truths(c, "reduce_all"));
    "amax(Tensor self, int[1] dim=[], bool keepdim=False)" => Node(|c| reduce::extreme(c, "reduce_max"));
    "amin(Tensor self, int[1] dim=[], bool keepdim=False)" => Node(|c| reduce::extreme(c, "reduce_min"));
    "any(Tensor self)" => Node(|c| reduce::truths(c, "reduce_any"));
    "any.dim(Tensor self, int dim, bool keepdim=False)" => Node(|c| reduce::truths(c, "reduce_any"));
    "argmax(Tensor self, int? dim=None, bool keepdim=False)" => Node(|c| reduce::arg_extreme(c, "arg_max"));
    "argmin(Tensor self, int? dim=None, bool keepdim=False)" => Node(|c| reduce::arg_extreme(c, "arg_min"));
    "cumprod(Tensor self, int dim, *, ScalarType? dtype=None)" => Node(|c| reduce::scan(c, "cum_prod"));
    "cumsum(Tensor self, int dim, *, ScalarType? dtype=None)" => Node(|c| reduce::scan(c, "cum_sum"));
    "frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False)" => Node(reduce::norm);
    "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)" => Node(reduce::norm);
    "log_softmax.int(Tensor self, int dim, ScalarType? dtype=None)" => Node(|c| reduce::softmax(c, "log_softmax"));
    "_log_softmax(Tensor self, int dim, bool half_to_float)" => Node(|c| reduce::softmax(c, "log_softmax"));
    "logsumexp(Tensor self, int[1] dim, bool keepdim=False)" => Node(|c| reduce::floats(c, "reduce_log_sum_exp"));
    "max.other(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "max"));
    "max(Tensor self)" => Node(|c| reduce::extreme(c, "reduce_max"));
    "max.dim(Tensor self, int dim, bool keepdim=False)" => Item(|c| reduce::with_positions(c, "reduce_max", "arg_max"));
    "mean(Tensor self, *, ScalarType? dtype=None)" => Node(reduce::mean);
    "mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)" => Node(reduce::mean);
    "min.other(Tensor self, Tensor other)" => Node(|c| pointwise::binary(c, "min"));
    "min(Tensor self)" => Node(|c| reduce::extreme(c, "reduce_min"));
    "min.dim(Tensor self, int dim, bool keepdim=False)" => Item(|c| reduce::with_positions(c, "reduce_min", "arg_min"));
    "norm.Scalar(Tensor self, Scalar p=2)" => Node(reduce::norm);
    "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False)" => Node(reduce::norm);
    "prod(Tensor self, *, ScalarType? dtype=None)" => Node(|c| reduce::sum(c, "reduce_prod"));
    "prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None)" => Node(|c| reduce::sum(c, "reduce_prod"));
    "softmax.int(Tensor self, int dim, ScalarType? dtype=None)" => Node(|c| reduce::softmax(c, "softmax"));
    "_softmax(Tensor self, int dim, bool half_to_float)" => Node(|c| reduce::softmax(c, "softmax"));
    "std(Tensor self, bool unbiased=True)" => Node(reduce::deviation);
    "std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)" => Node(reduce::deviation);
    "std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)" => Node(reduce::deviation);
    "sum(Tensor self, *, ScalarType? dtype=None)" => Node(|c| reduce::sum(c, "reduce_sum"));
    "sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)" => Node(|c| reduce::sum(c, "reduce_sum"));
    "var(Tensor self, bool unbiased=True)" => Node(reduce::variance);
    "var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)" => Node(reduce::variance);
    "var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)" => Node(reduce::variance);

    // Products.
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)" => Node(|c| contraction::add_matmul(c, "mat1", "mat2"));
    "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)" => Node(|c| contraction::add_matmul(c, "batch1", "batch2"));
    "bmm(Tensor self, Tensor mat2)" => Node(|c| contraction::matmul(c, "self", "mat2"));
    "dot(Tensor self, Tensor tensor)" => Node(|c| contraction::matmul(c, "self", "tensor"));
    "einsum(str equation, Tensor[] tensors, *, int[]? path=None)" => Node(contraction::einsum);
    "linear(Tensor input, Tensor weight, Tensor? bias=None)" => Node(contraction::linear);
    "matmul(Tensor self, Tensor other)" => Node(|c| contraction::matmul(c, "self", "other"));
    "mm(Tensor self, Tensor mat2)" => Node(|c| contraction::matmul(c, "self", "mat2"));
    "mv(Tensor self, Tensor vec)" => Node(|c| contraction::matmul(c, "self", "vec"));
    "outer(Tensor self, Tensor vec2)" => Node(contraction::outer);
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)" => Node(attention::scaled_dot_product);

    // Convolutions and pooling.
    "conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] dilation=1, int groups=1)" => Node(window::conv);
    "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding=\"valid\", int[1] dilation=1, int groups=1)" => Node(window::conv);
    "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1)" => Node(window::conv);
    "conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding=\"valid\", int[2] dilation=1, int groups=1)" => Node(window::conv);
    "conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] dilation=1, int groups=1)" => Node(window::conv);
    "conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, str padding=\"valid\", int[3] dilation=1, int groups=1)" => Node(window::conv);
    "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] output_padding=0, int groups=1, int[1] dilation=1)" => Node(window::conv_transpose);
    "conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] output_padding=0, int groups=1, int[2] dilation=1)" => Node(window::conv_transpose);
    "conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] output_padding=0, int groups=1, int[3] dilation=1)" => Node(window::conv_transpose);
    "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)" => Node(window::convolution);
    "_convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32=True)" => Node(window::convolution);
    "adaptive_avg_pool1d(Tensor self, int[1] output_size)" => Node(|c| pool::adaptive(c, 1, "avg_pool"));
    "adaptive_avg_pool2d(Tensor self, int[2] output_size)" => Node(|c| pool::adaptive(c, 2, "avg_pool"));
    "adaptive_avg_pool3d(Tensor self, int[3] output_size)" => Node(|c| pool::adaptive(c, 3, "avg_pool"));
    "_adaptive_avg_pool2d(Tensor self, int[2] output_size)" => Node(|c| pool::adaptive(c, 2, "avg_pool"));
    "_adaptive_avg_pool3d(Tensor self, int[3] output_size)" => Node(|c| pool::adaptive(c, 3, "avg_pool"));
    "adaptive_max_pool1d(Tensor self, int[1] output_size)" => Item(|c| pool::adaptive_pair(c, 1));
    "adaptive_max_pool2d(Tensor self, int[2] output_size)" => Item(|c| pool::adaptive_pair(c, 2));
    "adaptive_max_pool3d(Tensor self, int[3] output_size)" => Item(|c| pool::adaptive_pair(c, 3));
    "avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True)" => Node(|c| pool::avg_pool(c, 1));
    "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)" => Node(|c| pool::avg_pool(c, 2));
    "avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)" => Node(|c| pool::avg_pool(c, 3));
    "max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False)" => Node(|c| pool::max_pool(c, 1));
    "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False)" => Node(|c| pool::max_pool(c, 2));
    "max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False)" => Node(|c| pool::max_pool(c, 3));
    "max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False)" => Item(|c| pool::max_pool_pair(c, 1));
    "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False)" => Item(|c| pool::max_pool_pair(c, 2));
    "max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False)" => Item(|c| pool::max_pool_pair(c, 3));
    "upsample_bicubic2d(Tensor input, int[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)" => Node(|c| resize::upsample(c, "cubic", 2));
    "upsample_bicubic2d.vec(Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors)" => Node(|c| resize::upsample(c, "cubic", 2));
    "upsample_bilinear2d(Tensor input, int[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)" => Node(|c| resize::upsample(c, "linear", 2));
    "upsample_bilinear2d.vec(Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors)" => Node(|c| resize::upsample(c, "linear", 2));
    "upsample_linear1d(Tensor input, int[1] output_size, bool align_corners, float? scales=None)" => Node(|c| resize::upsample(c, "linear", 1));
    "upsample_linear1d.vec(Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors)" => Node(|c| resize::upsample(c, "linear", 1));
    "upsample_nearest1d(Tensor input, int[1] output_size, float? scales=None)" => Node(|c| resize::upsample(c, "nearest", 1));
    "upsample_nearest1d.vec(Tensor input, int[]? output_size, float[]? scale_factors)" => Node(|c| resize::upsample(c, "nearest", 1));
    "upsample_nearest2d(Tensor input, int[2] output_size, float? scales_h=None, float? scales_w=None)" => Node(|c| resize::upsample(c, "nearest", 2));
    "upsample_nearest2d.vec(Tensor input, int[]? output_size, float[]? scale_factors)" => Node(|c| resize::upsample(c, "nearest", 2));
    "upsample_nearest3d(Tensor input, int[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None)" => Node(|c| resize::upsample(c, "nearest", 3));
    "upsample_nearest3d.vec(Tensor input, int[]? output_size, float[]? scale_factors)" => Node(|c| resize::upsample(c, "nearest", 3));
    "upsample_trilinear3d.vec(Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors)" => Node(|c| resize::upsample(c, "linear", 3));

    // Normalisations.
    "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)" => Node(norm::batch_norm);
    "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps)" => Item(norm::batch_norm_tuple);
    "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True)" => Node(|c| norm::group_norm(c, "num_groups"));
    "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled)" => Node(norm::instance_norm);
    "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True)" => Node(norm::layer_norm);
    "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps)" => Item(norm::group_norm_tuple);
    "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps)" => Item(norm::layer_norm_tuple);
    "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)" => Node(norm::rms_norm);

    // Losses and distances.
    "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean)" => Node(loss::binary_cross_entropy);
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=Mean)" => Node(loss::binary_cross_entropy_with_logits);
    "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08)" => Node(loss::cosine_similarity);
    "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, int ignore_index=-100, float label_smoothing=0.0)" => Node(loss::cross_entropy);
    "huber_loss(Tensor self, Tensor target, int reduction=Mean, float delta=1.0)" => Node(|c| loss::smooth_l1(c, "delta", true));
    "kl_div(Tensor self, Tensor target, int reduction=Mean, *, bool log_target=False)" => Node(loss::kl_divergence);
    "l1_loss(Tensor self, Tensor target, int reduction=Mean)" => Node(loss::l1);
    "mse_loss(Tensor self, Tensor target, int reduction=Mean)" => Node(loss::mse);
    "nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, int ignore_index=-100)" => Node(loss::negative_log_likelihood);
    "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, int ignore_index=-100)" => Node(loss::negative_log_likelihood);
    "pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False)" => Node(loss::pairwise_distance);
    "smooth_l1_loss(Tensor self, Tensor target, int reduction=Mean, float beta=1.0)" => Node(|c| loss::smooth_l1(c, "beta", false));
    "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, bool swap=False, int reduction=Mean)" => Node(loss::triplet_margin);

    // What programs ask about tensors.
    "dim(Tensor self)" => Item(facts::rank);
    "dtype(Tensor a)" => Item(facts::element_type);
    "is_complex(Tensor self)" => Item(facts::never);
    "is_floating_point(Tensor self)" => Item(facts::is_float);
    "item(Tensor self)" => Item(facts::item);
    "len.Tensor(Tensor self)" => Item(facts::length);
    "numel(Tensor self)" => Item(facts::elements);
    "size.int(Tensor self, int dim)" => Item(facts::size);
    "size(Tensor self)" => Item(facts::sizes);
    "sym_numel(Tensor self)" => Item(facts::elements);
    "sym_size.int(Tensor self, int dim)" => Item(facts::size);

    // Recurrent layers.
    "gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)" => Item(recurrent::gru);
    "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)" => Item(recurrent::lstm);
    "rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)" => Item(|c| recurrent::rnn(c, true));
    "rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)" => Item(|c| recurrent::rnn(c, false));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_is_there_once() {
        let mut seen = std::collections::BTreeSet::new();
        for (signature, _) in TABLE {
            let schema = Schema::parse(signature).unwrap_or_else(|| panic!("{signature}"));
            assert!(seen.insert((schema.name.clone(), schema.overload.clone())), "{signature}");
            assert!(!find(&schema.name, Some(&schema.overload)).is_empty());
        }
    }
}
