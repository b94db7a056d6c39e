//! Sizes on the command line: `batch=8`, `x=1,3,224,224`.

use std::collections::BTreeMap;

use fornax_bundle::DType;

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

/// The shape of an input, with its element type where that is given.
pub type GivenShape = (Option<DType>, Vec<u64>);

/// Parses `x=1,3,224,224` options into shapes; `x=i64[1,3]` gives the element type too.
///
/// # Errors
/// When an entry is neither.
pub fn parse_shapes(entries: &[String]) -> Result<BTreeMap<String, GivenShape>, String> {
    entries
        .iter()
        .map(|entry| {
            let (name, given) = entry
                .rsplit_once('=')
                .ok_or_else(|| format!("`{entry}`: expected input=size,size,..."))?;
            let (dtype, sizes) = match given.strip_suffix(']').and_then(|text| text.split_once('['))
            {
                Some((dtype, sizes)) => {
                    let known = dtype.trim().parse::<DType>();
                    let unknown = |_| format!("`{entry}`: `{dtype}` is not an element type");
                    (Some(known.map_err(unknown)?), sizes)
                }
                None => (None, given),
            };
            let sizes = sizes
                .split(',')
                .filter(|size| !size.is_empty())
                .map(|size| {
                    size.trim().parse().map_err(|_| format!("`{entry}`: `{size}` is not a size"))
                })
                .collect::<Result<_, _>>()?;
            Ok((name.to_owned(), (dtype, sizes)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_may_have_element_types() {
        let of = |text: &str| parse_shapes(&[text.to_owned()]);
        assert_eq!(of("x=1,3").unwrap()["x"], (None, vec![1, 3]));
        assert_eq!(of("x=i64[4, 5]").unwrap()["x"], (Some(DType::I64), vec![4, 5]));
        assert_eq!(of("x=f32[]").unwrap()["x"], (Some(DType::F32), vec![]));
        assert!(of("x=i65[1]").unwrap_err().contains("`i65`"));
        assert!(of("x=1,y").unwrap_err().contains("`y`"));
    }
}
