//! Finding the symbolic sizes of a run from the shapes of its inputs.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{Port, Signature};
use crate::{Atom, DType, Dim, DimError, DimRange, Dims, Symbol};

/// Inputs that a bundle does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// Too few or too many inputs.
    #[error("the model takes {expected} inputs ({names}), not {actual}")]
    InputCount {
        /// The number of inputs.
        expected: usize,
        /// Their names.
        names: String,
        /// The number given.
        actual: usize,
    },
    /// An input of another element type.
    #[error("input `{input}` must be {expected}, not {actual}")]
    DType {
        /// The input's name.
        input: String,
        /// Its element type.
        expected: DType,
        /// The element type given.
        actual: DType,
    },
    /// An input of another rank or with an impossible size.
    #[error("input `{input}` has shape {actual:?}, the model takes [{expected}]{detail}")]
    Shape {
        /// The input's name.
        input: String,
        /// Its shape as written in the model.
        expected: String,
        /// The shape given.
        actual: Vec<usize>,
        /// Which dimension is wrong and why.
        detail: String,
    },
    /// A symbolic size outside the range that the bundle was compiled for.
    #[error("dimension `{dim}` is {value}, but the bundle was compiled for {}", range_text(.range))]
    Range {
        /// The symbol.
        dim: Symbol,
        /// Its value.
        value: i64,
        /// The values allowed.
        range: DimRange,
    },
    /// The inputs' shapes leave a size open.
    #[error("the inputs' shapes do not determine the dimension `{0}`")]
    Undetermined(Symbol),
    /// A size cannot be computed.
    #[error(transparent)]
    Dim(#[from] DimError),
}

impl Signature {
    /// The values of all symbolic sizes for inputs of the given types and shapes.
    ///
    /// A size of an input that is linear in one unknown symbol determines it (`N`, `2*N + 1`); the others
    /// are checked. A symbol that only one value is allowed for need not occur.
    ///
    /// # Errors
    /// When the inputs are not what the signature says.
    pub fn solve(&self, inputs: &[(DType, &[usize])]) -> Result<Dims, SignatureError> {
        self.check_inputs(inputs)?;
        let mut dims = Dims::new();
        while let Some((symbol, value)) = self.next_solution(inputs, &dims)? {
            dims.insert(symbol, value);
        }
        for decl in &self.dims {
            if decl.range.min == decl.range.max {
                dims.entry(decl.name.clone()).or_insert(decl.range.min);
            }
        }
        self.check_dims(&dims)?;
        for (port, (_, shape)) in self.inputs.iter().zip(inputs) {
            for (axis, (dim, &size)) in port.shape.iter().zip(*shape).enumerate() {
                let expected = dim.eval(&dims)?;
                if expected != to_i64(size) {
                    let known = if dim.as_const().is_some() { "" } else { " for this run" };
                    let detail = format!(": dimension {axis} must be {expected}{known}");
                    return Err(shape_error(port, shape, detail));
                }
            }
        }
        Ok(dims)
    }

    /// Checks given values of all symbolic sizes.
    ///
    /// # Errors
    /// When one is missing or outside its range.
    pub fn check_dims(&self, dims: &Dims) -> Result<(), SignatureError> {
        for decl in &self.dims {
            let value = *dims
                .get(&decl.name)
                .ok_or_else(|| SignatureError::Undetermined(decl.name.clone()))?;
            let DimRange { min, max, divisor } = decl.range;
            if value < min || value > max || (divisor > 1 && value % divisor != 0) {
                let (dim, range) = (decl.name.clone(), decl.range);
                return Err(SignatureError::Range { dim, value, range });
            }
        }
        Ok(())
    }

    /// The values allowed for each symbolic size.
    pub fn ranges(&self) -> BTreeMap<Symbol, DimRange> {
        self.dims.iter().map(|decl| (decl.name.clone(), decl.range)).collect()
    }

    /// The first declared symbol that no input shape determines.
    pub(crate) fn undetermined(&self) -> Option<&Symbol> {
        let mut known = BTreeSet::new();
        let sizes = || self.inputs.iter().flat_map(|port| &port.shape);
        while let Some((symbol, _)) =
            sizes().find_map(|dim| linear_unknown(dim, |symbol| known.contains(symbol)))
        {
            known.insert(symbol.clone());
        }
        let open = |name: &Symbol, range: DimRange| !known.contains(name) && range.min != range.max;
        self.dims.iter().find(|decl| open(&decl.name, decl.range)).map(|decl| &decl.name)
    }

    fn check_inputs(&self, inputs: &[(DType, &[usize])]) -> Result<(), SignatureError> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<_> = self.inputs.iter().map(|port| port.name.as_str()).collect();
            let (expected, actual) = (self.inputs.len(), inputs.len());
            let names = names.join(", ");
            return Err(SignatureError::InputCount { expected, names, actual });
        }
        for (port, (dtype, shape)) in self.inputs.iter().zip(inputs) {
            if port.dtype != *dtype {
                let (input, expected, actual) = (port.name.clone(), port.dtype, *dtype);
                return Err(SignatureError::DType { input, expected, actual });
            }
            if port.shape.len() != shape.len() {
                return Err(shape_error(port, shape, String::new()));
            }
        }
        Ok(())
    }

    /// A symbol that is not in `dims` and that some input's size gives, with its value.
    fn next_solution(
        &self,
        inputs: &[(DType, &[usize])],
        dims: &Dims,
    ) -> Result<Option<(Symbol, i64)>, SignatureError> {
        for (port, (_, shape)) in self.inputs.iter().zip(inputs) {
            for (axis, (dim, &size)) in port.shape.iter().zip(*shape).enumerate() {
                let Some((symbol, coefficient)) =
                    linear_unknown(dim, |symbol| dims.contains_key(symbol))
                else {
                    continue;
                };
                let unknown = Dim::symbol(symbol.clone()) * Dim::constant(coefficient);
                let rest = to_i64(size).checked_sub((dim - unknown).eval(dims)?);
                let value = rest
                    .filter(|rest| rest.checked_rem(coefficient) == Some(0))
                    .and_then(|rest| rest.checked_div(coefficient));
                let Some(value) = value else {
                    let detail = format!(": dimension {axis} cannot be {size}");
                    return Err(shape_error(port, shape, detail));
                };
                return Ok(Some((symbol, value)));
            }
        }
        Ok(None)
    }
}

/// The one unknown symbol of a size and its coefficient, when the size is `coefficient * symbol` plus
/// something known.
fn linear_unknown(dim: &Dim, known: impl Fn(&Symbol) -> bool) -> Option<(Symbol, i64)> {
    let mut unknown = dim.symbols().into_iter().filter(|symbol| !known(symbol));
    let (Some(symbol), None) = (unknown.next(), unknown.next()) else {
        return None;
    };
    let alone = [Atom::Symbol(symbol.clone())];
    let coefficient = dim.terms().find(|(monomial, _)| **monomial == alone)?.1;
    let rest = dim - Dim::symbol(symbol.clone()) * Dim::constant(coefficient);
    (!rest.symbols().contains(&symbol)).then_some((symbol, coefficient))
}

fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn shape_error(port: &Port, actual: &[usize], detail: String) -> SignatureError {
    let expected: Vec<_> = port.shape.iter().map(Dim::to_string).collect();
    SignatureError::Shape {
        input: port.name.clone(),
        expected: expected.join(", "),
        actual: actual.to_vec(),
        detail,
    }
}

fn range_text(range: &DimRange) -> String {
    match *range {
        DimRange { min, max, .. } if min == max => format!("{min} only"),
        DimRange { min, max, divisor } if divisor > 1 => {
            format!("{min}..={max} in steps of {divisor}")
        }
        DimRange { min, max, .. } => format!("{min}..={max}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::DimDecl;

    fn signature(dims: &[(&str, i64, i64, i64)], inputs: &[&[&str]]) -> Signature {
        let dims = dims.iter().map(|&(name, min, max, divisor)| DimDecl {
            name: name.into(),
            range: DimRange { min, max, divisor },
        });
        let inputs = inputs.iter().enumerate().map(|(index, shape)| Port {
            name: format!("x{index}"),
            dtype: DType::F32,
            shape: shape.iter().map(|dim| dim.parse().unwrap()).collect(),
        });
        Signature { dims: dims.collect(), inputs: inputs.collect(), outputs: Vec::new() }
    }

    fn solve(signature: &Signature, shapes: &[&[usize]]) -> Result<Vec<i64>, String> {
        let inputs: Vec<_> = shapes.iter().map(|&shape| (DType::F32, shape)).collect();
        signature
            .solve(&inputs)
            .map(|dims| dims.into_values().collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn shapes_determine_symbols() {
        let signature =
            signature(&[("M", 1, 64, 1), ("N", 0, 64, 2)], &[&["M*N", "2*M + 1"], &["N"]]);
        assert_eq!(signature.undetermined(), None);
        assert_eq!(solve(&signature, &[&[12, 7], &[4]]), Ok(vec![3, 4]));
        assert_eq!(solve(&signature, &[&[0, 7], &[0]]), Ok(vec![3, 0]));
        let error = |shapes| solve(&signature, shapes).unwrap_err();
        assert_eq!(
            error(&[&[13, 7], &[4]]),
            "input `x0` has shape [13, 7], the model takes [M*N, 2*M + 1]: \
             dimension 0 must be 12 for this run"
        );
        assert_eq!(
            error(&[&[12, 8], &[4]]),
            "input `x0` has shape [12, 8], the model takes [M*N, 2*M + 1]: dimension 1 cannot be 8"
        );
        assert_eq!(
            error(&[&[9, 7], &[3]]),
            "dimension `N` is 3, but the bundle was compiled for 0..=64 in steps of 2"
        );
        assert_eq!(error(&[&[9, 7]]), "the model takes 2 inputs (x0, x1), not 1");
    }

    #[test]
    fn fixed_and_open_symbols_differ() {
        let fixed = signature(&[("N", 8, 8, 1)], &[&["4"]]);
        assert_eq!(fixed.undetermined(), None);
        assert_eq!(solve(&fixed, &[&[4]]), Ok(vec![8]));
        assert!(solve(&fixed, &[&[5]]).unwrap_err().ends_with("dimension 0 must be 4"));
        let open = signature(&[("N", 1, 8, 1)], &[&["N*N"]]);
        assert_eq!(open.undetermined(), Some(&"N".into()));
        assert!(solve(&open, &[&[4]]).is_err());
    }
}
