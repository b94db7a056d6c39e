//! The e-graph's language: an operator of the op table with its attributes, over e-classes.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use egg::Id;
use fornax_ir::op::OpRef;
use fornax_ir::{Attrs, LocSet};
use smallvec::SmallVec;

/// An operator with its attributes, shared between the e-nodes that have it.
///
/// Attributes are typed values and never text: two heads are equal when they are the same operator
/// with the same attributes.
#[derive(Clone)]
pub struct Head(Arc<HeadData>);

struct HeadData {
    op: OpRef,
    attrs: Attrs,
    /// Attributes may hold tensors; the hash is taken once.
    hash: u64,
}

impl Head {
    /// An operator with attributes.
    pub fn new(op: OpRef, attrs: Attrs) -> Head {
        // Not keyed by anything random: the same head has the same hash in every run.
        let mut hasher = DefaultHasher::new();
        op.hash(&mut hasher);
        attrs.hash(&mut hasher);
        let hash = hasher.finish();
        Head(Arc::new(HeadData { op, attrs, hash }))
    }

    /// The operator.
    pub fn op(&self) -> OpRef {
        self.0.op
    }

    /// Its attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.0.attrs
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.hash == other.0.hash
                && self.0.op == other.0.op
                && self.0.attrs == other.0.attrs)
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        (self.0.op, &self.0.attrs).cmp(&(other.0.op, &other.0.attrs))
    }
}

impl Hash for Head {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.op)
    }
}

/// An operator over e-classes.
///
/// Sources are leaves: inputs and weights by name, constants by value.
#[derive(Clone)]
pub struct ENode {
    /// Operator and attributes.
    pub head: Head,
    /// The operands.
    pub children: SmallVec<[Id; 3]>,
    /// The rule that made the node, as its number in the rule set; none for a node of the graph.
    /// Not part of its identity: the first to make a node is remembered.
    pub rule: Option<u16>,
    /// The nodes of the imported model that a node made by a rule comes from. Not part of its identity.
    pub loc: LocSet,
}

impl ENode {
    /// A node that no rule made.
    pub fn new(head: Head, children: impl IntoIterator<Item = Id>) -> ENode {
        ENode { head, children: children.into_iter().collect(), rule: None, loc: LocSet::none() }
    }

    /// The operator.
    pub fn op(&self) -> OpRef {
        self.head.op()
    }

    /// The attributes.
    pub fn attrs(&self) -> &Attrs {
        self.head.attrs()
    }
}

impl PartialEq for ENode {
    fn eq(&self, other: &ENode) -> bool {
        self.children == other.children && self.head == other.head
    }
}

impl Eq for ENode {}

impl PartialOrd for ENode {
    fn partial_cmp(&self, other: &ENode) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ENode {
    fn cmp(&self, other: &ENode) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.children.cmp(&other.children))
    }
}

impl Hash for ENode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.head.hash(state);
        self.children.hash(state);
    }
}

impl fmt::Debug for ENode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}", self.op())?;
        for child in &self.children {
            write!(f, " {child}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for ENode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op().fmt(f)
    }
}

impl egg::Language for ENode {
    type Discriminant = OpRef;

    fn discriminant(&self) -> OpRef {
        self.op()
    }

    fn matches(&self, other: &ENode) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}
