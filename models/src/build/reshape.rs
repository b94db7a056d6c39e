//! Sizes that reshapes leave open.

use fornax_ir::{Dim, Shape};

use super::{Build, Result};

/// `shape` with the size along `axis` such that `from` has as many elements.
pub(crate) fn fill_open(
    call: &impl Build,
    from: &[Dim],
    mut shape: Vec<Dim>,
    axis: usize,
) -> Result<Vec<Dim>> {
    shape[axis] = Dim::constant(1);
    shape[axis] = rest(from, &shape).ok_or_else(|| {
        let text = |shape: &[Dim]| Shape::from(shape).to_string();
        let mut wanted = shape.clone();
        wanted[axis] = Dim::constant(-1);
        let message = format!(
            "the shape {} cannot become {}: -1 has no size that fits",
            text(from),
            text(&wanted)
        );
        call.invalid(message)
    })?;
    Ok(shape)
}

/// What the sizes of `from` have beyond those of `taken`: their quotient.
fn rest(from: &[Dim], taken: &[Dim]) -> Option<Dim> {
    // Equal sizes cancel first: the exact quotient of polynomials is only found for simple divisors.
    let mut left: Vec<&Dim> = from.iter().collect();
    let mut divisor = Dim::constant(1);
    for size in taken {
        match left.iter().position(|other| *other == size && !size.is(0)) {
            Some(position) => {
                left.swap_remove(position);
            }
            None => divisor = divisor * size,
        }
    }
    let total: Dim = left.into_iter().product();
    match (total.as_const(), divisor.as_const()) {
        (_, Some(0)) => None,
        (Some(total), Some(divisor)) if total % divisor != 0 => None,
        _ => Some(total.floor_div(&divisor)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_shape_cancels_equal_sizes() {
        let dims =
            |text: &str| -> Vec<Dim> { text.split(',').map(|t| t.parse().unwrap()).collect() };
        let found =
            |from: &str, taken: &str| rest(&dims(from), &dims(taken)).map(|d| d.to_string());
        assert_eq!(found("2,3,4", "6,1").unwrap(), "4");
        assert_eq!(found("N,H + 1,64", "N,H + 1,1").unwrap(), "64");
        assert_eq!(found("N,64", "1,8").unwrap(), "8*N");
        assert_eq!(found("2,3", "4,1"), None);
        assert_eq!(found("0,3", "0,1"), None);
    }
}
