//! Values of symbolic sizes from the sizes of inputs.

use fornax_bundle::{Atom, Dim, Dims, Monomial, Symbol};

use super::InterpError;
use crate::Type;

/// Finds the values of all symbols in the inputs' types.
///
/// A symbol is solved for wherever a declared size is `a * S + b` with everything else in it known.
pub(super) fn solve_symbols(
    inputs: &[(&str, &Type, &[usize])],
    dims: &mut Dims,
) -> Result<(), InterpError> {
    for (name, ty, shape) in inputs {
        if ty.rank() != shape.len() {
            return Err(InterpError::Type {
                name: (*name).to_owned(),
                expected: ty.to_string(),
                actual: format!("a tensor of shape {shape:?}"),
            });
        }
    }
    let sizes: Vec<(&Dim, usize)> = inputs
        .iter()
        .flat_map(|(_, ty, shape)| ty.shape.iter().zip(shape.iter().copied()))
        .collect();
    loop {
        let solved: Vec<(Symbol, i64)> =
            sizes.iter().filter_map(|(dim, size)| solve(dim, *size as i64, dims)).collect();
        if solved.is_empty() {
            break;
        }
        for (symbol, value) in solved {
            dims.entry(symbol).or_insert(value);
        }
    }
    let unknown = sizes.iter().flat_map(|(dim, _)| dim.symbols()).find(|s| !dims.contains_key(s));
    unknown.map_or(Ok(()), |symbol| Err(InterpError::Symbol(symbol)))
}

/// The value of the only symbol of `dim` that is not known, when `dim` is linear in it.
///
/// A remainder in the division is left to [`check_shape`], which finds that the size does not fit.
fn solve(dim: &Dim, size: i64, dims: &Dims) -> Option<(Symbol, i64)> {
    let unknown: Vec<Symbol> =
        dim.symbols().into_iter().filter(|symbol| !dims.contains_key(symbol)).collect();
    let [symbol] = unknown.as_slice() else { return None };
    let at = |value: i64| {
        let mut dims = dims.clone();
        dims.insert(symbol.clone(), value);
        dim.eval(&dims).ok()
    };
    if !dim.terms().all(|(monomial, _)| is_linear(monomial, symbol)) {
        return None;
    }
    let offset = at(0)?;
    let slope = at(1)?.checked_sub(offset)?;
    Some((symbol.clone(), size.checked_sub(offset)?.checked_div(slope)?))
}

/// Whether a product has a symbol at most once, and not inside a division or the like.
fn is_linear(monomial: &Monomial, symbol: &Symbol) -> bool {
    let mentions = |dim: &Dim| dim.symbols().contains(symbol);
    let mut degree = 0;
    for atom in monomial {
        match atom {
            Atom::Symbol(other) => degree += usize::from(other == symbol),
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                degree += if mentions(a) || mentions(b) { 2 } else { 0 };
            }
        }
    }
    degree <= 1
}

/// Checks the sizes of an input against its type.
pub(super) fn check_shape(
    name: &str,
    ty: &Type,
    shape: &[usize],
    dims: &Dims,
) -> Result<(), InterpError> {
    if ty.rank() != shape.len() {
        return Err(InterpError::Type {
            name: name.to_owned(),
            expected: ty.to_string(),
            actual: format!("a tensor of shape {shape:?}"),
        });
    }
    for (axis, (dim, &actual)) in ty.shape.iter().zip(shape).enumerate() {
        let expected = dim.eval(dims).map_err(|source| InterpError::Dim { op: "input", source })?;
        if expected != actual as i64 {
            let (name, dim) = (name.to_owned(), dim.clone());
            return Err(InterpError::Size { name, axis, dim, expected, actual });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn solved(types: &[&[&str]], shapes: &[&[usize]]) -> Result<Dims, InterpError> {
        let types: Vec<Type> = types
            .iter()
            .map(|dims| {
                let dims: Vec<Dim> = dims.iter().map(|text| text.parse().unwrap()).collect();
                Type::new(DType::F32, dims)
            })
            .collect();
        let inputs: Vec<(&str, &Type, &[usize])> =
            types.iter().zip(shapes).map(|(ty, shape)| ("x", ty, *shape)).collect();
        let mut dims = Dims::new();
        solve_symbols(&inputs, &mut dims)?;
        for (name, ty, shape) in inputs {
            check_shape(name, ty, shape, &dims)?;
        }
        Ok(dims)
    }

    #[test]
    fn linear_sizes_are_solved_in_any_order() {
        let dims = solved(&[&["N*M", "2*N + 1"], &["M"]], &[&[12, 9], &[3]]).unwrap();
        assert_eq!(dims, Dims::from([("N".into(), 4), ("M".into(), 3)]));
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        let error = solved(&[&["2*N"]], &[&[7]]).unwrap_err();
        assert_eq!(error.to_string(), "axis 0 of `x` has 7 elements, but `2*N` is 6");
        let error = solved(&[&["N", "N"]], &[&[7, 8]]).unwrap_err();
        assert_eq!(error.to_string(), "axis 1 of `x` has 8 elements, but `N` is 7");
        let error = solved(&[&["N*N"]], &[&[9]]).unwrap_err();
        assert_eq!(error, InterpError::Symbol("N".into()));
        let error = solved(&[&["N"]], &[&[9, 1]]).unwrap_err();
        assert_eq!(error.to_string(), "`x` is f32[N], but a tensor of shape [9, 1] was given");
    }
}
