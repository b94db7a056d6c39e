//! Opening bundles with all that commands need of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fornax_bundle::{Bundle, Tensor};
use fornax_ir::plan::Plan;
use fornax_ir::{Graph, text};
use fornax_runtime::{Device, LoadOptions, LoadedBundle, Memory};

use crate::{Error, tensors};

/// A bundle with everything that commands need of it.
pub struct Loaded {
    /// The bundle.
    pub bundle: Bundle,
    /// The bundle on the device.
    pub session: LoadedBundle,
    /// Weights that were bound by name.
    pub weights: BTreeMap<String, Tensor>,
}

impl Loaded {
    /// Opens a bundle, binds weights from a `.safetensors` file and loads it onto a device.
    ///
    /// # Errors
    /// When a file cannot be read, a weight does not fit, or the device fails.
    pub fn open(
        path: &Path,
        device: Arc<dyn Device>,
        target: Option<&str>,
        weights: Option<&Path>,
        memory: Memory,
    ) -> Result<Loaded, Error> {
        let bundle = Bundle::open(path)?;
        let weights = weights.map(tensors::read_safetensors).transpose()?.unwrap_or_default();
        let target = target.map(str::to_owned);
        let options =
            LoadOptions { weights: weights.clone(), target, memory, ..LoadOptions::default() };
        let session = LoadedBundle::load(device, &bundle, options)?;
        Ok(Loaded { bundle, session, weights })
    }

    /// The imported graph, with the weights' values.
    ///
    /// # Errors
    /// When the bundle's text does not parse.
    pub fn graph(&self, path: &Path) -> Result<Graph, Error> {
        let mut graph = text::parse_graph(&self.bundle.parts().graph)
            .map_err(|errors| text_error(path, "graph.gir", &errors))?;
        for (name, tensor) in self.bundle.parts().weights.iter().chain(&self.weights) {
            graph.bind_weight(name.clone(), tensor.clone());
        }
        Ok(graph)
    }

    /// The plan of fused regions.
    ///
    /// # Errors
    /// When the bundle has none, or its text does not parse.
    pub fn plan(&self, path: &Path) -> Result<Plan, Error> {
        let plan = self.bundle.parts().plan.as_deref().unwrap_or_default();
        text::parse_plan(plan).map_err(|errors| text_error(path, "plan.txt", &errors))
    }
}

fn text_error(path: &Path, entry: &str, errors: &impl std::fmt::Display) -> Error {
    Error::Text { path: path.to_owned(), entry: entry.to_owned(), reason: errors.to_string() }
}
