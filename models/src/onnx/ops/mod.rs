//! Handlers: how each ONNX operator becomes operations of the graph.

pub(super) mod attention;
pub(super) mod contraction;
pub(super) mod create;
pub(super) mod flow;
pub(super) mod index;
pub(super) mod loss;
pub(super) mod movement;
pub(super) mod norm;
pub(super) mod pad;
pub(super) mod pointwise;
pub(super) mod pool;
pub(super) mod quantize;
pub(super) mod recurrent;
pub(super) mod reduce;
pub(super) mod reshape;
pub(super) mod resize;
pub(super) mod window;
