//! Building graphs in few words.

use fornax_ir::{Attrs, DType, Dim, Graph, LocSet, NodeId, Type, attrs};

/// A graph under construction. Only for graphs that are known to be right.
pub struct Sketch {
    graph: Graph,
}

impl Sketch {
    /// An empty graph.
    pub fn new(name: &str) -> Sketch {
        Sketch { graph: Graph::new(name) }
    }

    /// A new input.
    pub fn input(&mut self, dtype: DType, shape: &[&Dim]) -> NodeId {
        let name = format!("x{}", self.graph.inputs().len());
        let shape: Vec<Dim> = shape.iter().map(|&dim| dim.clone()).collect();
        self.graph.input(&name, Type::new(dtype, shape)).expect("the name is new")
    }

    /// Applies an op.
    pub fn op(&mut self, name: &str, attrs: Attrs, operands: &[NodeId]) -> NodeId {
        self.graph
            .add(name, attrs, operands, LocSet::none())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Applies an op without attributes.
    pub fn plain(&mut self, name: &str, operands: &[NodeId]) -> NodeId {
        self.op(name, Attrs::none(), operands)
    }

    /// Repeats a value to a shape.
    pub fn broadcast(&mut self, value: NodeId, shape: &[&Dim]) -> NodeId {
        let shape: Vec<Dim> = shape.iter().map(|&dim| dim.clone()).collect();
        self.op("broadcast", attrs! { shape: shape }, &[value])
    }

    /// Reorders axes.
    pub fn transpose(&mut self, value: NodeId, perm: &[i64]) -> NodeId {
        self.op("transpose", attrs! { perm: perm }, &[value])
    }

    /// Names a value as an output.
    pub fn output(&mut self, value: NodeId) {
        let name = format!("y{}", self.graph.outputs().len());
        self.graph.output(name, value);
    }

    /// The graph.
    pub fn finish(self) -> Graph {
        self.graph
    }
}
