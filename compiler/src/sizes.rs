//! Sizes on the command line: `batch=8`, `x=1,3,224,224`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

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
                    "`{entry}`: one size is wanted, as in {name}=8; ranges are for fornax compile"
                ));
            }
            let value = value.parse().map_err(|_| format!("`{entry}`: `{value}` is not a size"))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Fixed sizes and ranges of sizes, by the names of dimensions.
pub type GivenDims = (BTreeMap<String, u64>, BTreeMap<String, RangeInclusive<u64>>);

/// Parses `batch=8` options into fixed sizes, and `batch=1..64`, ends included, into ranges.
///
/// # Errors
/// When an entry is neither, or a range is empty.
pub fn parse_dims_and_ranges(entries: &[String]) -> Result<GivenDims, String> {
    let (ranges, sizes): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| entry.contains(".."));
    let sizes = parse_dims(&sizes)?;
    let range = |entry: String| {
        let wrong = || format!("`{entry}`: expected name=smallest..largest, as in batch=1..64");
        let (name, range) = entry.rsplit_once('=').ok_or_else(wrong)?;
        let (min, max) = range.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let (min, max) = (number(min)?, number(max)?);
        if min > max {
            return Err(format!("`{entry}`: the smallest size is above the largest"));
        }
        if sizes.contains_key(name) {
            return Err(format!("`{entry}`: {name} is given a size, too"));
        }
        Ok((name.to_owned(), min..=max))
    };
    let ranges = ranges.into_iter().map(range).collect::<Result<_, String>>()?;
    Ok((sizes, ranges))
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
