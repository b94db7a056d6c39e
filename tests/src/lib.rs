//! Test support: filetests and random graphs.

pub mod filetest;
pub mod random;
pub mod regions;
