//! Tensors in files: `.npy`, `.npz` and `.safetensors`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use fornax_bundle::{DType, Tensor};
use npyz::{NpyFile, TypeChar, WriterBuilder};

use crate::Error;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    |error| invalid(path, reason(&error))
}

/// What went wrong, in words that say so of a file that ends too early, too.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the file is cut off".to_owned(),
        _ => error.to_string(),
    }
}

fn invalid(path: &Path, reason: impl Into<String>) -> Error {
    Error::File { path: path.to_owned(), reason: reason.into() }
}

/// Reads a `.npy` file.
///
/// # Errors
/// When the file cannot be read, is damaged, or has an element type that tensors do not have.
pub fn read_npy(path: &Path) -> Result<Tensor, Error> {
    let file = File::open(path).map_err(failed(path))?;
    from_npy(BufReader::new(file)).map_err(|reason| invalid(path, reason))
}

/// Reads all arrays of a `.npz` file, by name.
///
/// # Errors
/// As [`read_npy`].
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut archive = npyz::npz::NpzArchive::open(path).map_err(failed(path))?;
    let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
    let mut tensors = BTreeMap::new();
    for name in names {
        let array = archive.by_name(&name).map_err(failed(path))?;
        let Some(array) = array else { continue };
        let tensor = to_tensor(array)
            .map_err(|reason| invalid(path, format!("array `{name}`: {reason}")))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Reads all tensors of a `.safetensors` file, by name.
///
/// # Errors
/// As [`read_npy`].
pub fn read_safetensors(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let bytes = std::fs::read(path).map_err(failed(path))?;
    fornax_bundle::archive::read_safetensors(&bytes.into())
        .map_err(|reason| invalid(path, format!("it is no valid .safetensors file: {reason}")))
}

/// Reads all tensors of a `.npz` or `.safetensors` file, by name.
///
/// # Errors
/// As [`read_npy`].
pub fn read_named(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    match path.extension() {
        Some(extension) if extension == "safetensors" => read_safetensors(path),
        _ => read_npz(path),
    }
}

/// Writes a `.npy` file; it appears under its name only when it is whole. bf16, which the format does
/// not know, is widened to f32.
///
/// # Errors
/// When the file cannot be written.
pub fn write_npy(path: &Path, tensor: &Tensor) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).map_err(failed(path))?;
    let mut writer = BufWriter::new(file);
    to_npy(&mut writer, tensor).map_err(failed(path))?;
    let file = writer.into_inner().map_err(|error| invalid(path, error.error().to_string()))?;
    file.persist(path).map_err(|error| invalid(path, error.error.to_string()))?;
    Ok(())
}

fn from_npy(reader: impl Read) -> Result<Tensor, String> {
    to_tensor(NpyFile::new(reader).map_err(|error| reason(&error))?)
}

fn to_tensor<R: Read>(array: NpyFile<R>) -> Result<Tensor, String> {
    let npyz::DType::Plain(ty) = array.dtype() else {
        return Err("structured arrays are not tensors".to_owned());
    };
    let dtype = match (ty.type_char(), ty.size_field()) {
        (TypeChar::Float, 8) => DType::F64,
        (TypeChar::Float, 4) => DType::F32,
        (TypeChar::Float, 2) => DType::F16,
        (TypeChar::Int, 8) => DType::I64,
        (TypeChar::Int, 4) => DType::I32,
        (TypeChar::Int, 2) => DType::I16,
        (TypeChar::Int, 1) => DType::I8,
        (TypeChar::Uint, 8) => DType::U64,
        (TypeChar::Uint, 4) => DType::U32,
        (TypeChar::Uint, 2) => DType::U16,
        (TypeChar::Uint, 1) => DType::U8,
        (TypeChar::Bool, _) => DType::Bool,
        _ => return Err(format!("element type {ty} is not supported")),
    };
    let shape: Vec<usize> =
        array.shape().iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    let fortran = array.order() == npyz::Order::Fortran && shape.len() > 1;
    if fortran {
        return Err("arrays in Fortran order are not supported; use numpy.ascontiguousarray".into());
    }
    fn read<T: npyz::Deserialize, R: Read, const N: usize>(
        array: NpyFile<R>,
        bytes: impl Fn(T) -> [u8; N],
    ) -> Result<Vec<u8>, String> {
        let values = array.into_vec::<T>().map_err(|error| reason(&error))?;
        Ok(values.into_iter().flat_map(bytes).collect())
    }
    let data = match dtype {
        DType::F64 => read(array, f64::to_le_bytes)?,
        DType::F32 => read(array, f32::to_le_bytes)?,
        DType::F16 => read(array, half::f16::to_le_bytes)?,
        DType::I64 => read(array, i64::to_le_bytes)?,
        DType::I32 => read(array, i32::to_le_bytes)?,
        DType::I16 => read(array, i16::to_le_bytes)?,
        DType::I8 => read(array, i8::to_le_bytes)?,
        DType::U64 => read(array, u64::to_le_bytes)?,
        DType::U32 => read(array, u32::to_le_bytes)?,
        DType::U16 => read(array, u16::to_le_bytes)?,
        DType::U8 => read(array, u8::to_le_bytes)?,
        DType::Bool => read(array, |value: bool| [u8::from(value)])?,
        other => unreachable!("invariant: numpy has no {other}"),
    };
    Tensor::new(dtype, shape, data).map_err(|error| error.to_string())
}

fn to_npy(writer: &mut impl Write, tensor: &Tensor) -> std::io::Result<()> {
    let shape: Vec<u64> = tensor.shape().iter().map(|&size| size as u64).collect();
    fn write<T: npyz::AutoSerialize, const N: usize>(
        writer: &mut impl Write,
        shape: &[u64],
        bytes: &[u8],
        read: impl Fn([u8; N]) -> T,
    ) -> std::io::Result<()> {
        let mut npy = npyz::WriteOptions::<T>::new()
            .default_dtype()
            .shape(shape)
            .writer(writer)
            .begin_nd()?;
        npy.extend(bytes.as_chunks::<N>().0.iter().map(|chunk| read(*chunk)))?;
        npy.finish()
    }
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DType::F64 => write(writer, &shape, bytes, f64::from_le_bytes),
        DType::F32 => write(writer, &shape, bytes, f32::from_le_bytes),
        DType::F16 => write(writer, &shape, bytes, half::f16::from_le_bytes),
        DType::I64 => write(writer, &shape, bytes, i64::from_le_bytes),
        DType::I32 => write(writer, &shape, bytes, i32::from_le_bytes),
        DType::I16 => write(writer, &shape, bytes, i16::from_le_bytes),
        DType::I8 => write(writer, &shape, bytes, i8::from_le_bytes),
        DType::U64 => write(writer, &shape, bytes, u64::from_le_bytes),
        DType::U32 => write(writer, &shape, bytes, u32::from_le_bytes),
        DType::U16 => write(writer, &shape, bytes, u16::from_le_bytes),
        DType::U8 => write(writer, &shape, bytes, u8::from_le_bytes),
        DType::Bool => write(writer, &shape, bytes, |[byte]| byte != 0),
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => {
            let widened: Vec<u8> = tensor
                .to_f64()
                .into_iter()
                .flat_map(|value| (value as f32).to_le_bytes())
                .collect();
            write(writer, &shape, &widened, f32::from_le_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npy_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let tensors = [
            Tensor::from_f32(&[2, 3], &[1.0, -0.0, f32::NAN, f32::INFINITY, 1e-40, 5.5]),
            Tensor::from_i64(&[], &[i64::MIN]),
            Tensor::new(DType::Bool, [2], vec![0, 1]).unwrap(),
            Tensor::new(DType::F16, [1], vec![0x01, 0x3c]).unwrap(),
            Tensor::new(DType::U8, [0, 4], vec![]).unwrap(),
        ];
        for tensor in tensors {
            write_npy(&path, &tensor).unwrap();
            let read = read_npy(&path).unwrap();
            assert_eq!((read.dtype(), read.shape()), (tensor.dtype(), tensor.shape()));
            assert_eq!(read.bytes(), tensor.bytes());
        }
        std::fs::write(&path, b"\x93NUMPY").unwrap();
        assert!(matches!(read_npy(&path), Err(Error::File { .. })));
    }
}
