//! Small tensors whose elements are known while importing: the arithmetic that exporters do on shapes.
//!
//! An element is a size expression ([`Dim`]), so the arithmetic works on symbolic sizes too, or a
//! float. Every function gives `None` when the result cannot be told (or would not be exact); the node
//! then becomes an operation of the graph, or an error.

use fornax_ir::{DType, Dim, Tensor};

use super::sizes::{bounds, is_manageable};

/// Tensors with more elements are data, not shapes, and are not folded.
pub(crate) const MAX_ELEMENTS: usize = 1024;

/// Tensors of floats with more elements are data: scales and factors are fewer.
pub(crate) const MAX_FLOATS: usize = 16;

/// One known element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Element {
    /// An integer, perhaps symbolic; a truth value is 0 or 1. In a tensor of floats: a whole number.
    Int(Dim),
    /// A float, rounded to the tensor's element type.
    Float(f64),
}

/// A small tensor with known elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Vec<Element>,
}

/// Element-wise operators of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Min,
    Max,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Xor,
}

/// Element-wise operators of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Not,
    Floor,
    Ceil,
    Sqrt,
}

impl Element {
    /// The integer constant.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(dim) => dim.as_const(),
            Self::Float(_) => None,
        }
    }

    /// The constant, integer or float.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(dim) => dim.as_const().map(|value| value as f64),
            Self::Float(value) => Some(*value),
        }
    }
}

impl From<i64> for Element {
    fn from(value: i64) -> Self {
        Self::Int(Dim::constant(value))
    }
}

impl Known {
    /// A tensor from its parts; `None` when an integer does not fit the element type (Fornax would
    /// wrap it around at run time) or there are too many elements.
    pub(crate) fn new(dtype: DType, shape: Vec<usize>, elements: Vec<Element>) -> Option<Self> {
        let fits = elements.iter().all(|element| match element {
            Element::Int(dim) => match dim.as_const() {
                Some(value) => in_range(dtype, value),
                None => is_manageable(dim),
            },
            Element::Float(_) => dtype.is_float(),
        });
        (fits && elements.len() <= MAX_ELEMENTS).then_some(Self { dtype, shape, elements })
    }

    /// Whether this counts as a result of shape arithmetic. Many floats are data: they are better computed
    /// by the graph.
    pub(crate) fn is_small(&self) -> bool {
        !self.dtype.is_float() || self.elements.len() <= MAX_FLOATS
    }

    /// A vector of `i64` sizes.
    pub(crate) fn from_dims(dims: &[Dim]) -> Self {
        let elements = dims.iter().cloned().map(Element::Int).collect();
        Self { dtype: DType::I64, shape: vec![dims.len()], elements }
    }

    /// The elements of a small constant.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Option<Self> {
        if tensor.len() > MAX_ELEMENTS {
            return None;
        }
        let elements = match tensor.dtype() {
            DType::U64 => {
                let values = tensor.to_i64()?;
                // A negative number here is one beyond the range of i64.
                values.into_iter().map(|v| (v >= 0).then(|| v.into())).collect::<Option<_>>()?
            }
            DType::F8E4M3 | DType::F8E5M2 => return None,
            _ => match tensor.to_i64() {
                Some(values) => values.into_iter().map(Element::from).collect(),
                None => tensor.to_f64().into_iter().map(Element::Float).collect(),
            },
        };
        Some(Self { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), elements })
    }

    /// The tensor, when no element is symbolic.
    pub(crate) fn to_tensor(&self) -> Option<Tensor> {
        let mut data = Vec::with_capacity(self.elements.len() * self.dtype.size());
        for element in &self.elements {
            match self.dtype {
                DType::F64 => data.extend(element.as_f64()?.to_le_bytes()),
                DType::F32 => data.extend((element.as_f64()? as f32).to_le_bytes()),
                DType::F16 => data.extend(half::f16::from_f64(element.as_f64()?).to_le_bytes()),
                DType::BF16 => data.extend(half::bf16::from_f64(element.as_f64()?).to_le_bytes()),
                DType::F8E4M3 | DType::F8E5M2 => return None,
                // Two's complement: the low bytes are the narrow integer.
                _ => data.extend(&element.as_i64()?.to_le_bytes()[..self.dtype.size()]),
            }
        }
        Tensor::new(self.dtype, self.shape.clone(), data).ok()
    }

    /// The elements as sizes, when they are integers and there is at most one axis.
    pub(crate) fn dims(&self) -> Option<Vec<Dim>> {
        let whole = |element: &Element| match element {
            Element::Int(dim) => Some(dim.clone()),
            Element::Float(_) => None,
        };
        (self.shape.len() <= 1 && !self.dtype.is_float())
            .then(|| self.elements.iter().map(whole).collect())
            .flatten()
    }

    /// The elements as integers, when all are constants and there is at most one axis.
    pub(crate) fn ints(&self) -> Option<Vec<i64>> {
        self.dims()?.iter().map(Dim::as_const).collect()
    }

    /// The elements as floats, when all are constants.
    pub(crate) fn floats(&self) -> Option<Vec<f64>> {
        self.elements.iter().map(Element::as_f64).collect()
    }

    /// The same elements under another shape with as many elements.
    pub(crate) fn reshaped(&self, shape: Vec<usize>) -> Option<Self> {
        (shape.iter().product::<usize>() == self.elements.len())
            .then(|| Self { shape, ..self.clone() })
    }

    /// A tensor whose element at each index is this one's element at `source(index)`.
    pub(crate) fn moved(
        &self,
        shape: Vec<usize>,
        mut source: impl FnMut(&[usize]) -> Option<Vec<usize>>,
    ) -> Option<Self> {
        let mut elements = Vec::new();
        for index in indices(&shape)? {
            elements.push(self.elements.get(flat(&source(&index)?, &self.shape)?)?.clone());
        }
        Some(Self { dtype: self.dtype, shape, elements })
    }

    /// The tensor repeated along new and unit axes.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Option<Self> {
        let new_axes = shape.len().checked_sub(self.shape.len())?;
        let fits =
            self.shape.iter().zip(&shape[new_axes..]).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            return None;
        }
        self.moved(shape.to_vec(), |index| {
            let kept = index[new_axes..].iter().zip(&self.shape);
            Some(kept.map(|(&i, &size)| if size == 1 { 0 } else { i }).collect())
        })
    }

    /// Conversion as ONNX Cast does it.
    pub(crate) fn cast(&self, dtype: DType) -> Option<Self> {
        let convert = |element: &Element| {
            Some(match (element, dtype) {
                (_, DType::Bool) => Element::from(i64::from(element.as_f64()? != 0.0)),
                (Element::Float(value), _) if dtype.is_float() => rounded(dtype, *value)?,
                (Element::Float(value), _) => {
                    // Out of range is undefined: left alone.
                    let whole = value.trunc();
                    if !(-9.0e18..=9.0e18).contains(&whole) {
                        return None;
                    }
                    Element::from(whole as i64)
                }
                (Element::Int(dim), _) if dtype.is_float() => match dim.as_const() {
                    Some(value) => rounded(dtype, value as f64)?,
                    None => Element::Int(dim.clone()),
                },
                (Element::Int(dim), _) => Element::Int(dim.clone()),
            })
        };
        let elements = self.elements.iter().map(convert).collect::<Option<_>>()?;
        Self::new(dtype, self.shape.clone(), elements)
    }

    /// An element-wise operator of one operand.
    pub(crate) fn unary(&self, operator: Unary) -> Option<Self> {
        let apply = |element: &Element| unary(operator, self.dtype, element);
        let elements = self.elements.iter().map(apply).collect::<Option<_>>()?;
        Self::new(self.dtype, self.shape.clone(), elements)
    }

    /// An element-wise operator of two operands of one type, with broadcasting.
    pub(crate) fn binary(&self, operator: Binary, other: &Self) -> Option<Self> {
        if self.dtype != other.dtype {
            return None;
        }
        let shape = broadcast_shape(&self.shape, &other.shape)?;
        let (left, right) = (self.broadcast(&shape)?, other.broadcast(&shape)?);
        let pairs = left.elements.iter().zip(&right.elements);
        let elements =
            pairs.map(|(a, b)| binary(operator, self.dtype, a, b)).collect::<Option<_>>()?;
        let dtype = if operator.is_comparison() { DType::Bool } else { self.dtype };
        Self::new(dtype, shape, elements)
    }

    /// `self` chooses between the elements of two tensors.
    pub(crate) fn select(&self, yes: &Self, no: &Self) -> Option<Self> {
        let shape = broadcast_shape(&broadcast_shape(&self.shape, &yes.shape)?, &no.shape)?;
        let (choice, yes, no) =
            (self.broadcast(&shape)?, yes.broadcast(&shape)?, no.broadcast(&shape)?);
        if yes.dtype != no.dtype {
            return None;
        }
        let pick = |at: usize| {
            let (yes, no) = (&yes.elements[at], &no.elements[at]);
            match choice.elements[at].as_i64() {
                Some(chosen) => Some(if chosen != 0 { yes } else { no }.clone()),
                None => (yes == no).then(|| yes.clone()),
            }
        };
        let elements = (0..choice.elements.len()).map(pick).collect::<Option<_>>()?;
        Some(Self { dtype: yes.dtype, shape, elements })
    }

    /// Combines the elements along `axes` with an operator that has the neutral element `start`.
    pub(crate) fn reduce(
        &self,
        operator: Binary,
        start: Option<i64>,
        axes: &[usize],
        keep_dims: bool,
    ) -> Option<Self> {
        let kept: Vec<usize> = (0..self.shape.len()).filter(|axis| !axes.contains(axis)).collect();
        let kept_shape: Vec<usize> = kept.iter().map(|&axis| self.shape[axis]).collect();
        let mut sums: Vec<Option<Element>> = vec![None; kept_shape.iter().product()];
        for (index, element) in indices(&self.shape)?.zip(&self.elements) {
            let kept_index: Vec<usize> = kept.iter().map(|&axis| index[axis]).collect();
            let sum = &mut sums[flat(&kept_index, &kept_shape)?];
            *sum = Some(match sum.take() {
                None => element.clone(),
                Some(sum) => binary(operator, self.dtype, &sum, element)?,
            });
        }
        let finish = |sum: Option<Element>| sum.or(start.map(Element::from));
        let elements = sums.into_iter().map(finish).collect::<Option<_>>()?;
        let shape = match keep_dims {
            false => kept_shape,
            true => {
                let size =
                    |(axis, &size): (usize, &usize)| if axes.contains(&axis) { 1 } else { size };
                self.shape.iter().enumerate().map(size).collect()
            }
        };
        Self::new(self.dtype, shape, elements)
    }

    /// Tensors joined along an axis.
    pub(crate) fn concat(parts: &[&Self], axis: usize) -> Option<Self> {
        let first = parts.first()?;
        let mut shape = first.shape.clone();
        *shape.get_mut(axis)? = 0;
        let mut owners = Vec::new();
        for (part, known) in parts.iter().enumerate() {
            let same = known.shape.len() == shape.len()
                && known.dtype == first.dtype
                && (0..shape.len()).all(|a| a == axis || known.shape[a] == shape[a]);
            if !same {
                return None;
            }
            shape[axis] += known.shape[axis];
            owners.extend((0..known.shape[axis]).map(|at| (part, at)));
        }
        let mut elements = Vec::new();
        for mut index in indices(&shape)? {
            let (part, at) = owners[index[axis]];
            index[axis] = at;
            elements.push(parts[part].elements[flat(&index, &parts[part].shape)?].clone());
        }
        Some(Self { dtype: first.dtype, shape, elements })
    }
}

impl Binary {
    fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual
        )
    }
}

fn in_range(dtype: DType, value: i64) -> bool {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => value == 0 || value == 1,
        _ if dtype.is_signed_int() => bits == 64 || (value >> (bits - 1)) == (value >> 63),
        _ if dtype.is_unsigned_int() => value >= 0 && (bits == 64 || value >> bits == 0),
        _ => true,
    }
}

/// A float rounded to the element type; exact for results of one operation on two operands of that
/// type, since binary64 has more than twice the digits of the narrower types.
fn rounded(dtype: DType, value: f64) -> Option<Element> {
    Some(Element::Float(match dtype {
        DType::F64 => value,
        DType::F32 => f64::from(value as f32),
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::BF16 => half::bf16::from_f64(value).to_f64(),
        _ => return None,
    }))
}

fn unary(operator: Unary, dtype: DType, element: &Element) -> Option<Element> {
    match element {
        Element::Float(value) => {
            let value = match operator {
                Unary::Neg => -value,
                Unary::Abs => value.abs(),
                Unary::Floor => value.floor(),
                Unary::Ceil => value.ceil(),
                Unary::Sqrt => value.sqrt(),
                Unary::Not => return None,
            };
            rounded(dtype, value)
        }
        Element::Int(dim) => Some(Element::Int(match operator {
            Unary::Neg => -dim,
            Unary::Not if dtype == DType::Bool => Dim::constant(1) - dim,
            Unary::Floor | Unary::Ceil if dtype.is_float() => dim.clone(),
            Unary::Abs if bounds(dim).0 >= 0 => dim.clone(),
            Unary::Abs => Dim::constant(dim.as_const()?.checked_abs()?),
            _ => return None,
        })),
    }
}

fn binary(operator: Binary, dtype: DType, a: &Element, b: &Element) -> Option<Element> {
    if dtype.is_float() {
        return match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => float_binary(operator, dtype, a, b),
            // One side is a symbolic whole number: the other must be whole as well.
            _ => match (operator, whole(a)?, whole(b)?) {
                (Binary::Div, a, b) => a.divided_exactly(&b).map(Element::Int),
                (Binary::Mod, ..) => None,
                (_, a, b) => int_binary(operator, dtype, &a, &b),
            },
        };
    }
    int_binary(operator, dtype, &whole(a)?, &whole(b)?)
}

fn whole(element: &Element) -> Option<Dim> {
    match element {
        Element::Int(dim) => Some(dim.clone()),
        Element::Float(value) => {
            (value.fract() == 0.0 && value.abs() < 1e15).then(|| Dim::constant(*value as i64))
        }
    }
}

fn float_binary(operator: Binary, dtype: DType, a: f64, b: f64) -> Option<Element> {
    let truth = |value: bool| Some(Element::from(i64::from(value)));
    match operator {
        Binary::Add => rounded(dtype, a + b),
        Binary::Sub => rounded(dtype, a - b),
        Binary::Mul => rounded(dtype, a * b),
        Binary::Div => rounded(dtype, a / b),
        Binary::Min if !a.is_nan() && !b.is_nan() && a != b => rounded(dtype, a.min(b)),
        Binary::Max if !a.is_nan() && !b.is_nan() && a != b => rounded(dtype, a.max(b)),
        Binary::Equal => truth(a == b),
        Binary::Less => truth(a < b),
        Binary::LessOrEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterOrEqual => truth(a >= b),
        _ => None,
    }
}

fn int_binary(operator: Binary, dtype: DType, a: &Dim, b: &Dim) -> Option<Element> {
    let difference = bounds(&(a - b));
    let truth = |yes: bool, no: bool| match (yes, no) {
        (true, _) => Some(Element::from(1)),
        (_, true) => Some(Element::from(0)),
        _ => None,
    };
    let exact =
        |value: Option<i64>, symbolic: &dyn Fn() -> Option<Dim>| match (a.as_const(), b.as_const())
        {
            (Some(_), Some(_)) => value.map(Dim::constant),
            _ => symbolic(),
        };
    let (x, y) = (a.as_const().unwrap_or(0), b.as_const().unwrap_or(0));
    let dim = match operator {
        Binary::Add => exact(x.checked_add(y), &|| Some(a + b)),
        Binary::Sub => exact(x.checked_sub(y), &|| Some(a - b)),
        Binary::Mul => exact(x.checked_mul(y), &|| Some(a * b)),
        Binary::Div => exact(x.checked_div(y), &|| quotient(a, b)),
        Binary::Mod => {
            let nonzero = y != 0 && !(x == i64::MIN && y == -1);
            exact(nonzero.then(|| a.modulo(b).as_const()).flatten(), &|| {
                (bounds(b).0 > 0).then(|| a.modulo(b))
            })
        }
        Binary::Min => Some(a.minimum(b)),
        Binary::Max => Some(a.maximum(b)),
        Binary::Equal => {
            return truth(a == b, difference.0 > 0 || difference.1 < 0);
        }
        Binary::Less => return truth(difference.1 < 0, difference.0 >= 0),
        Binary::LessOrEqual => return truth(difference.1 <= 0, difference.0 > 0),
        Binary::Greater => return truth(difference.0 > 0, difference.1 <= 0),
        Binary::GreaterOrEqual => return truth(difference.0 >= 0, difference.1 < 0),
        Binary::And | Binary::Or | Binary::Xor => {
            let (x, y) = (a.as_const()?, b.as_const()?);
            (dtype == DType::Bool).then(|| {
                Dim::constant(match operator {
                    Binary::And => x & y,
                    Binary::Or => x | y,
                    _ => x ^ y,
                })
            })
        }
    };
    dim.map(Element::Int)
}

/// ONNX divides integers towards zero, [`Dim::floor_div`] downwards: the same where neither is negative.
fn quotient(a: &Dim, b: &Dim) -> Option<Dim> {
    let positive = bounds(a).0 >= 0 && bounds(b).0 > 0;
    a.divided_exactly(b).or_else(|| positive.then(|| a.floor_div(b)))
}

/// The common shape of two operands, by the rules of multidirectional broadcasting.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis])
    };
    (0..rank)
        .map(|axis| match (size(a, axis), size(b, axis)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}

/// All indices of a small tensor in row-major order.
fn indices(shape: &[usize]) -> Option<impl Iterator<Item = Vec<usize>>> {
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
    let shape = shape.to_vec();
    (count <= MAX_ELEMENTS).then(|| {
        (0..count).map(move |mut rest| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            index
        })
    })
}

fn flat(index: &[usize], shape: &[usize]) -> Option<usize> {
    index.iter().zip(shape).try_fold(0, |flat, (&i, &size)| (i < size).then(|| flat * size + i))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &[&str]) -> Known {
        Known::from_dims(&text.iter().map(|t| t.parse().unwrap()).collect::<Vec<Dim>>())
    }

    fn calc(operator: Binary, a: &[&str], b: &[&str]) -> Option<Vec<String>> {
        let result = known(a).binary(operator, &known(b))?;
        Some(result.dims()?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn arithmetic_is_symbolic() {
        assert_eq!(calc(Binary::Add, &["N", "3"], &["1"]).unwrap(), ["N + 1", "4"]);
        assert_eq!(calc(Binary::Mul, &["N"], &["N + 1"]).unwrap(), ["N + N*N"]);
        assert_eq!(
            calc(Binary::Div, &["6*N", "N"], &["3", "2"]).unwrap(),
            ["2*N", "floordiv(N, 2)"]
        );
        assert_eq!(
            calc(Binary::Equal, &["N", "N + 1", "N"], &["N", "N", "-1"]).unwrap(),
            ["1", "0", "0"]
        );
        assert_eq!(calc(Binary::Less, &["N", "-1"], &["N + 1", "N"]).unwrap(), ["1", "1"]);
        assert_eq!(calc(Binary::Equal, &["N"], &["4"]), None);
        assert_eq!(calc(Binary::Max, &["N", "2"], &["N + 2", "7"]).unwrap(), ["N + 2", "7"]);
    }

    #[test]
    fn integers_divide_towards_zero_and_take_the_remainder_of_the_divisors_sign() {
        assert_eq!(calc(Binary::Div, &["-7", "7"], &["2", "-2"]).unwrap(), ["-3", "-3"]);
        assert_eq!(calc(Binary::Mod, &["-7", "7"], &["2", "-2"]).unwrap(), ["1", "-1"]);
        assert_eq!(calc(Binary::Div, &["1"], &["0"]), None);
        assert_eq!(calc(Binary::Mod, &["1"], &["0"]), None);
        assert_eq!(calc(Binary::Div, &["N - 4"], &["3"]), None, "the sign is not known");
    }

    #[test]
    fn results_outside_the_type_are_not_folded() {
        let bytes = |value: i64| Known::new(DType::U8, vec![1], vec![value.into()]);
        assert!(bytes(255).is_some());
        assert!(bytes(256).is_none());
        assert!(bytes(-1).is_none());
        assert!(bytes(255).unwrap().binary(Binary::Add, &bytes(1).unwrap()).is_none());
        let top = i64::MAX.to_string();
        assert_eq!(calc(Binary::Add, &[&top], &["1"]), None);
    }

    #[test]
    fn floats_round_to_their_type() {
        let floats = |values: &[f32]| {
            Known::from_tensor(&Tensor::from_f32(&[values.len()], values)).unwrap()
        };
        let sum = floats(&[0.1]).binary(Binary::Add, &floats(&[0.2])).unwrap();
        assert_eq!(sum.floats().unwrap(), [f64::from(0.1f32 + 0.2f32)]);
        let scaled = known(&["N"]).cast(DType::F32).unwrap();
        let scaled = scaled.binary(Binary::Mul, &floats(&[2.0])).unwrap();
        assert_eq!(scaled.unary(Unary::Floor).unwrap().cast(DType::I64).unwrap(), known(&["2*N"]));
        assert_eq!(floats(&[2.7, -2.7]).cast(DType::I64).unwrap().ints().unwrap(), [2, -2]);
        assert!(floats(&[f32::NAN]).cast(DType::I64).is_none());
    }

    #[test]
    fn movement_follows_the_index() {
        let table = known(&["0", "1", "2", "3", "4", "5"]).reshaped(vec![2, 3]).unwrap();
        let turned = table.moved(vec![3, 2], |i| Some(vec![i[1], i[0]])).unwrap();
        assert_eq!(turned.reshaped(vec![6]).unwrap(), known(&["0", "3", "1", "4", "2", "5"]));
        let joined = Known::concat(&[&table, &table], 1).unwrap();
        assert_eq!(joined.shape, [2, 6]);
        assert_eq!(joined.elements[3..6], table.elements[..3]);
        let sum = table.reduce(Binary::Mul, Some(1), &[0], true).unwrap();
        assert_eq!(
            (sum.shape.clone(), sum.elements),
            (vec![1, 3], known(&["0", "4", "10"]).elements)
        );
        assert!(table.moved(vec![1], |_| Some(vec![2, 0])).is_none());
    }

    #[test]
    fn constants_go_to_tensors_and_back() {
        let bytes = Known::new(DType::I8, vec![2], vec![(-3).into(), 5.into()]).unwrap();
        assert_eq!(bytes.to_tensor().unwrap().bytes()[..], [253, 5]);
        assert_eq!(Known::from_tensor(&bytes.to_tensor().unwrap()).unwrap(), bytes);
        assert!(known(&["N"]).to_tensor().is_none());
    }
}
