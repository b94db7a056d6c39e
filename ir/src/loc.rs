//! Source locations: which nodes of the imported model a value comes from.

use std::sync::Arc;

use smallvec::SmallVec;

/// An entry of a [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc(u32);

/// The locations a value comes from, sorted, each once. Passes only copy and union them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LocSet(SmallVec<[Loc; 2]>);

impl LocSet {
    /// No location: a value the compiler made.
    pub fn none() -> LocSet {
        LocSet::default()
    }

    /// Whether there is no location.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The locations in order.
    pub fn iter(&self) -> impl Iterator<Item = Loc> {
        self.0.iter().copied()
    }

    /// Adds the locations of another set.
    pub fn union(&mut self, other: &LocSet) {
        self.0.extend(other.iter());
        self.0.sort_unstable();
        self.0.dedup();
    }
}

impl From<Loc> for LocSet {
    fn from(loc: Loc) -> LocSet {
        LocSet(SmallVec::from_slice(&[loc]))
    }
}

impl FromIterator<Loc> for LocSet {
    fn from_iter<I: IntoIterator<Item = Loc>>(locs: I) -> LocSet {
        let mut set = LocSet(locs.into_iter().collect());
        set.0.sort_unstable();
        set.0.dedup();
        set
    }
}

/// A node of the imported model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceNode {
    /// The node's name; its first output's name when it has none.
    pub name: Arc<str>,
    /// The operator in the model's own terms, such as `MatMul`; empty when unknown.
    pub op_type: Arc<str>,
    /// The node's position in the model file, from 0.
    pub index: Option<u32>,
    /// The opset version the operator belongs to.
    pub opset: Option<u32>,
}

/// The nodes of an imported model, by [`Loc`]. Clones share them until one adds a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceMap {
    /// The model's file, for messages.
    pub file: Arc<str>,
    nodes: Arc<Vec<SourceNode>>,
}

impl SourceMap {
    /// An empty map for a file.
    pub fn new(file: impl Into<Arc<str>>) -> SourceMap {
        SourceMap { file: file.into(), ..SourceMap::default() }
    }

    /// Adds a node.
    pub fn add(&mut self, node: SourceNode) -> Loc {
        let loc = u32::try_from(self.nodes.len()).expect("invariant: fewer than 2^32 nodes");
        Arc::make_mut(&mut self.nodes).push(node);
        Loc(loc)
    }

    /// The location of a node that is known by name only (as text forms have it); added on first use.
    pub fn named(&mut self, name: &str) -> Loc {
        match self.nodes.iter().position(|node| &*node.name == name) {
            Some(position) => Loc(position as u32),
            None => self.add(SourceNode {
                name: name.into(),
                op_type: "".into(),
                index: None,
                opset: None,
            }),
        }
    }

    /// Whether the location belongs to this map.
    pub fn contains(&self, loc: Loc) -> bool {
        (loc.0 as usize) < self.nodes.len()
    }

    /// The node at a location.
    ///
    /// # Panics
    /// When the location belongs to another map.
    pub fn get(&self, loc: Loc) -> &SourceNode {
        &self.nodes[loc.0 as usize]
    }

    /// The names at the locations of a set.
    pub fn names(&self, locs: &LocSet) -> Vec<Arc<str>> {
        locs.iter().map(|loc| self.get(loc).name.clone()).collect()
    }
}
