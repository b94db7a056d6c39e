//! Sizes on the command line: `batch=8`, `x=1,3,224,224`.

use std::collections::BTreeMap;

/// Parses `batch=8` options into fixed sizes.
///
/// # Errors
/// When an entry is not `name=number`.
pub fn parse_dims(entries: &[String]) -> Result<BTreeMap<String, u64>, String> {
    entries
        .iter()
        .map(|entry| {
            let (name, value) =
                entry.split_once('=').ok_or_else(|| format!("`{entry}`: expected name=number"))?;
            if value.contains("..") {
                return Err(format!(
                    "`{entry}`: ranges are not supported yet; give one size, as in {name}=8"
                ));
            }
            let value = value.parse().map_err(|_| format!("`{entry}`: `{value}` is not a size"))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Parses `x=1,3,224,224` options into shapes.
///
/// # Errors
/// When an entry is not `name=size,size,...`.
pub fn parse_shapes(entries: &[String]) -> Result<BTreeMap<String, Vec<u64>>, String> {
    entries
        .iter()
        .map(|entry| {
            let (name, sizes) = entry
                .rsplit_once('=')
                .ok_or_else(|| format!("`{entry}`: expected input=size,size,..."))?;
            let sizes = sizes
                .split(',')
                .filter(|size| !size.is_empty())
                .map(|size| {
                    size.trim().parse().map_err(|_| format!("`{entry}`: `{size}` is not a size"))
                })
                .collect::<Result<_, _>>()?;
            Ok((name.to_owned(), sizes))
        })
        .collect()
}
