//! The importer of TorchScript files, which `torch.jit.save` writes: traced and scripted modules.
//!
//! The archive holds the module's attributes as a pickle and its code as text in a small part of Python. The code is
//! parsed ([`syntax`]) and run on values that are known (sizes, numbers, lists, modules) and tensors that are not
//! ([`run`]): calls of operators become operations of the graph, methods are inlined, conditions are decided.

mod builtin;
mod import;
mod lexer;
mod module;
mod parser;
mod run;
mod syntax;

pub(crate) use import::{import, is_torchscript};
