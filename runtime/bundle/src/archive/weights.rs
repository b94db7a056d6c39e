//! `weights.safetensors`: the layout of the embedded weights.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use bytes::Bytes;
use safetensors::{Dtype, SafeTensors};

use super::{DATA_ALIGN, WEIGHTS_ENTRY};
use crate::manifest::WeightDecl;
use crate::{BundleError, DType, Tensor};

/// Checks that exactly the weights declared embedded are there, as declared.
pub(super) fn check(
    decls: &[WeightDecl],
    weights: &BTreeMap<String, Tensor>,
) -> Result<(), BundleError> {
    let embedded: BTreeMap<_, _> =
        decls.iter().filter(|decl| decl.embedded).map(|decl| (&decl.name, decl)).collect();
    for (name, decl) in &embedded {
        let Some(tensor) = weights.get(*name) else {
            return Err(missing(name));
        };
        let same_shape = tensor.shape().iter().map(|&n| n as u64).eq(decl.shape.iter().copied());
        if tensor.dtype() != decl.dtype || !same_shape {
            return Err(disagrees(decl, tensor.dtype(), tensor.shape()));
        }
    }
    match weights.keys().find(|name| !embedded.contains_key(name)) {
        Some(name) => Err(BundleError::malformed(
            WEIGHTS_ENTRY,
            format!("the manifest declares no embedded weight `{name}`"),
        )),
        None => Ok(()),
    }
}

/// The tensors, with padding between them, in file order.
pub(super) struct Layout<'a> {
    header: Vec<u8>,
    pieces: Vec<Piece<'a>>,
    n_bytes: u64,
}

enum Piece<'a> {
    Tensor(&'a Tensor),
    Padding(usize),
}

impl<'a> Layout<'a> {
    pub(super) fn new(weights: &'a BTreeMap<String, Tensor>) -> Layout<'a> {
        let mut layout = Layout { header: Vec::new(), pieces: Vec::new(), n_bytes: 0 };
        let mut entries = Vec::new();
        let taken: BTreeSet<&str> = weights.keys().map(String::as_str).collect();
        let mut padding_names =
            (0..).map(|n| format!(".pad.{n}")).filter(|name| !taken.contains(name.as_str()));
        for (position, (name, tensor)) in weights.iter().enumerate() {
            let gap = layout.n_bytes.next_multiple_of(DATA_ALIGN) - layout.n_bytes;
            if gap > 0 && position > 0 {
                let name = padding_names.next().expect("invariant: names do not run out");
                entries.push(layout.place(&name, "U8", &[gap as usize], gap));
                layout.pieces.push(Piece::Padding(gap as usize));
            }
            let dtype = to_safetensors(tensor.dtype());
            let n_bytes = tensor.bytes().len() as u64;
            entries.push(layout.place(name, &dtype_name(dtype), tensor.shape(), n_bytes));
            layout.pieces.push(Piece::Tensor(tensor));
        }
        let mut json = format!("{{{}}}", entries.join(",")).into_bytes();
        // The header's length takes 8 bytes; the format allows trailing spaces.
        let end = (8 + json.len() as u64).next_multiple_of(DATA_ALIGN);
        json.resize(end as usize - 8, b' ');
        layout.header = (json.len() as u64).to_le_bytes().to_vec();
        layout.header.extend(json);
        layout
    }

    /// Puts a tensor at the end and gives its line of the header.
    fn place(&mut self, name: &str, dtype: &str, shape: &[usize], n_bytes: u64) -> String {
        let start = self.n_bytes;
        self.n_bytes += n_bytes;
        let (name, shape) = (serde_json::Value::from(name), serde_json::Value::from(shape));
        let end = self.n_bytes;
        format!(r#"{name}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    }

    /// The size of the whole entry.
    pub(super) fn n_bytes(&self) -> u64 {
        self.header.len() as u64 + self.n_bytes
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.header)?;
        for piece in &self.pieces {
            match piece {
                Piece::Tensor(tensor) => to.write_all(tensor.bytes())?,
                Piece::Padding(n_bytes) => to.write_all(&[0; DATA_ALIGN as usize][..*n_bytes])?,
            }
        }
        Ok(())
    }
}

/// The embedded weights, sharing the entry's bytes.
pub(super) fn read(
    decls: &[WeightDecl],
    entry: &Bytes,
) -> Result<BTreeMap<String, Tensor>, BundleError> {
    let mut stored =
        read_safetensors(entry).map_err(|reason| BundleError::malformed(WEIGHTS_ENTRY, reason))?;
    let mut weights = BTreeMap::new();
    for decl in decls.iter().filter(|decl| decl.embedded) {
        let tensor = stored.remove(&decl.name).ok_or_else(|| missing(&decl.name))?;
        let sizes = tensor.shape().iter().map(|&n| n as u64);
        if tensor.dtype() != decl.dtype || !sizes.eq(decl.shape.clone()) {
            return Err(disagrees(decl, tensor.dtype(), tensor.shape()));
        }
        weights.insert(decl.name.clone(), tensor);
    }
    Ok(weights)
}

/// The tensors of a safetensors file by name, sharing its bytes.
///
/// # Errors
/// What is wrong with the file, when it is damaged or holds an element type that tensors do not have.
pub fn read_safetensors(file: &Bytes) -> Result<BTreeMap<String, Tensor>, String> {
    let (n_header, metadata) =
        SafeTensors::read_metadata(file).map_err(|error| error.to_string())?;
    let mut tensors = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let dtype = from_safetensors(info.dtype)
            .ok_or_else(|| format!("tensor `{name}` has the type {:?}", info.dtype))?;
        let (start, end) = info.data_offsets;
        let data = (8 + n_header).checked_add(start).zip((8 + n_header).checked_add(end));
        let (start, end) = data
            .filter(|(start, end)| start <= end && *end <= file.len())
            .ok_or_else(|| format!("tensor `{name}` lies outside the file"))?;
        let tensor = Tensor::new(dtype, info.shape.clone(), file.slice(start..end))
            .map_err(|error| format!("tensor `{name}`: {error}"))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

fn missing(name: &str) -> BundleError {
    BundleError::malformed(WEIGHTS_ENTRY, format!("the weight `{name}` is missing"))
}

fn disagrees(decl: &WeightDecl, dtype: DType, shape: &[usize]) -> BundleError {
    BundleError::malformed(
        WEIGHTS_ENTRY,
        format!(
            "weight `{}` is {dtype}{shape:?}, the manifest says {}{:?}",
            decl.name, decl.dtype, decl.shape
        ),
    )
}

fn to_safetensors(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::U64 => Dtype::U64,
        DType::U32 => Dtype::U32,
        DType::U16 => Dtype::U16,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&ours| to_safetensors(ours) == dtype)
}

/// The name in the header. The crate has it only as its serde form, a plain string.
fn dtype_name(dtype: Dtype) -> String {
    let name = serde_json::to_value(dtype).ok();
    let name = name.as_ref().and_then(|value| value.as_str());
    name.expect("invariant: safetensors types serialise as strings").to_owned()
}
