//! Equality saturation over the op table.
//!
//! A canonical graph becomes an e-graph ([`encode`]), rules add what equals what ([`saturate`]), and
//! the cheapest graph is taken out of it again ([`extract`], [`decode`]). [`optimize`] does all of it.

mod analysis;
mod convert;
mod cost;
mod dag;
mod extract;
mod language;
mod optimize;
mod pattern;
mod range;
pub(crate) mod rule;
pub(crate) mod saturate;

pub(crate) use analysis::{Data, OpGraph};
pub use convert::{Choice, Encoded, decode, encode};
pub use cost::{Cost, NodeCost, Roofline};
pub(crate) use dag::{Alternative, Dag, Positions};
pub use extract::{Extraction, extract};
pub(crate) use language::ENode;
pub use optimize::{Applied, Optimized, optimize, optimize_for};
pub(crate) use pattern::{Pattern, Term};
pub use rule::{Group, Numerics, Rewrites, Rule};
pub(crate) use rule::{Premise, Right, Site};
pub use saturate::{Saturation, Stop, saturate};
