//! The values of parameters, buffers and constants.

use std::collections::BTreeMap;

use fornax_ir::Tensor;

use super::schema::{PayloadConfig, Size, TensorMeta};
use crate::aten::dtype;
use crate::torch::archive::Archive;
use crate::torch::pickle::{self, Pickled};
use crate::torch::storage::Strided;

/// Tensors by their names in the model, each with what is wrong with it, if it cannot be had.
#[derive(Default)]
pub(super) struct Weights(BTreeMap<String, Result<Tensor, String>>);

impl Weights {
    /// Reads what the archive holds for the program of that name.
    ///
    /// # Errors
    /// When a list of weights is malformed; single tensors fail when they are asked for.
    pub(super) fn read(archive: &mut Archive, model: &str) -> Result<Self, String> {
        let mut weights = Self::default();
        for (folder, kind) in [("data/weights", "weights"), ("data/constants", "constants")] {
            let list = format!("{folder}/{model}_{kind}_config.json");
            if archive.contains(&list) {
                weights.add_listed(archive, folder, &list)?;
            }
            // As PyTorch 2.8 has it.
            weights.add_saved(archive, &format!("{folder}/{model}.pt"))?;
        }
        // As PyTorch up to 2.7 has it.
        weights.add_saved(archive, "serialized_state_dict.pt")?;
        weights.add_saved(archive, "serialized_constants.pt")?;
        Ok(weights)
    }

    /// The tensor of that name; `None` if the archive holds none.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn take(&mut self, name: &str) -> Result<Option<Tensor>, String> {
        self.0.get(name).cloned().transpose()
    }

    /// Tensors that have an entry each, described in a list.
    fn add_listed(
        &mut self,
        archive: &mut Archive,
        folder: &str,
        list: &str,
    ) -> Result<(), String> {
        let text = archive.text(list).map_err(|error| error.to_string())?;
        let list: PayloadConfig =
            serde_json::from_str(&text).map_err(|error| format!("its entry {list:?}: {error}"))?;
        for (name, payload) in list.config {
            let tensor = match payload.tensor_meta {
                Some(meta) if !payload.use_pickle => {
                    let entry = format!("{folder}/{}", payload.path_name);
                    // Weights that are not in the file are bound by name later.
                    if !archive.contains(&entry) {
                        continue;
                    }
                    layout(&meta).and_then(|layout| {
                        let storage = archive.read(&entry).map_err(|error| error.to_string())?;
                        layout.tensor(&storage)
                    })
                }
                _ => Err("it is an object, not a tensor".to_owned()),
            };
            self.0.insert(name, tensor);
        }
        Ok(())
    }

    /// A dictionary of tensors in an archive of its own, which `torch.save` has written.
    fn add_saved(&mut self, archive: &mut Archive, entry: &str) -> Result<(), String> {
        if !archive.contains(entry) {
            return Ok(());
        }
        let bytes = archive.read(entry).map_err(|error| error.to_string())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let wrong = |error: &dyn std::fmt::Display| format!("its entry {entry:?}: {error}");
        let mut inner = Archive::open(bytes).map_err(|error| wrong(&error))?;
        let data = inner.read("data.pkl").map_err(|error| wrong(&error))?;
        let pickle = pickle::read(&data).map_err(|error| wrong(&error))?;
        let Pickled::Dict(dict) = &pickle.root else {
            return Err(wrong(&"it holds no dictionary"));
        };
        for (name, value) in dict.borrow().iter() {
            let Pickled::Text(name) = name else { continue };
            let tensor = match value {
                Pickled::Tensor(stored) => inner
                    .read(&format!("data/{}", stored.key))
                    .map_err(|error| error.to_string())
                    .and_then(|storage| stored.layout.tensor(&storage)),
                _ => Err("it is no tensor".to_owned()),
            };
            self.0.insert(name.to_string(), tensor);
        }
        Ok(())
    }
}

fn layout(meta: &TensorMeta) -> Result<Strided, String> {
    let fixed = |size: &Size| match size {
        Size::AsInt(size) => Ok(*size),
        Size::AsExpr(_) => Err("its size is symbolic".to_owned()),
    };
    let dtype = dtype::of_exported(meta.dtype)
        .ok_or_else(|| format!("its element type, number {}, is not supported", meta.dtype))?;
    Ok(Strided {
        dtype,
        offset: meta.storage_offset.as_ref().map_or(Ok(0), fixed)?,
        sizes: meta.sizes.iter().map(fixed).collect::<Result<_, _>>()?,
        strides: meta.strides.iter().map(fixed).collect::<Result<_, _>>()?,
    })
}
