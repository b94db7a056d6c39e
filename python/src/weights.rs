//! Weights from Python objects: uploaded from the host, or used where they lie on the GPU.

use std::collections::BTreeMap;

use fornax_bundle::Tensor;
use fornax_bundle::manifest::WeightDecl;
use fornax_runtime::DeviceTensor;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Origin, View};
use crate::error::Error;

/// Weights of a model as the caller gave them.
#[derive(Default)]
pub(crate) struct GivenWeights {
    /// To be copied to the device.
    pub(crate) host: BTreeMap<String, Tensor>,
    /// Used in place.
    pub(crate) device: BTreeMap<String, DeviceTensor>,
    /// The objects behind `host`, to be read again.
    pub(crate) host_objects: BTreeMap<String, Py<PyAny>>,
    /// The objects behind `device`, kept alive.
    pub(crate) device_objects: Vec<Py<PyAny>>,
}

impl GivenWeights {
    /// Picks the weights that the model declares. `device` is the GPU's index, or none on the emulator.
    ///
    /// Names that the model does not declare are skipped: a module's state may hold more than its
    /// graph uses, such as counters of batch norms.
    pub(crate) fn pick(
        given: &Bound<'_, PyDict>,
        declared: &[WeightDecl],
        device: Option<i32>,
    ) -> Result<GivenWeights, Error> {
        let mut picked = GivenWeights::default();
        for decl in declared {
            let Some(object) = given.get_item(&decl.name)? else { continue };
            let what = format!("weight `{}`", decl.name);
            let view = View::of(&object, &what)?;
            match (view.origin, device) {
                (Origin::TorchCuda(index), Some(device)) if index == device => {
                    view.check_contiguous(&what)?;
                    let View { dtype, shape, address, .. } = view;
                    let tensor = DeviceTensor { dtype, shape, address };
                    picked.device.insert(decl.name.clone(), tensor);
                    picked.device_objects.push(object.unbind());
                }
                (Origin::TorchCuda(_), Some(device)) => {
                    let reason = format!(
                        "it is {}, the model on cuda:{device}: `.to(\"cuda:{device}\")` helps",
                        view.origin
                    );
                    return Err(Error::tensor(what, reason));
                }
                _ => {
                    picked.host.insert(decl.name.clone(), view.to_tensor(&what)?);
                    picked.host_objects.insert(decl.name.clone(), object.unbind());
                }
            }
        }
        Ok(picked)
    }

    /// The tensors of a `.safetensors` file that the model declares.
    pub(crate) fn from_file(path: &str, declared: &[WeightDecl]) -> Result<GivenWeights, Error> {
        let failed = |reason: String| Error::Weights { path: path.to_owned(), reason };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let mut host = fornax_bundle::archive::read_safetensors(&bytes.into()).map_err(failed)?;
        host.retain(|name, _| declared.iter().any(|decl| &decl.name == name));
        Ok(GivenWeights { host, ..GivenWeights::default() })
    }
}
