//! What PyTorch's files have in common: the zip archive, tensors in storages, pickles.

pub(crate) mod archive;
pub(crate) mod pickle;
pub(crate) mod storage;
