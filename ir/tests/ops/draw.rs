//! Drawing attributes, shapes and values at random, from a seed.

use fornax_ir::interp::{Array, Element, Value, wrapped};
use fornax_ir::{Attrs, DType, Dim, Dims, Scalar, Type};

/// Element types that ops compute with.
pub const DTYPES: [DType; 13] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// Float types that ops compute with.
pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// Numbers where functions change their form, overflow or underflow.
const SPECIAL: [f64; 22] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    3.0,
    -3.0,
    40.0,
    -40.0,
    800.0,
    -800.0,
];

/// Special numbers whose finite sums and products do not depend on the order.
const TAME: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5];

/// Which floats are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floats {
    /// Reals between -3 and 3.
    Ordinary,
    /// Infinities, NaN, zeros, ones and numbers of extreme size.
    Special,
    /// Infinities, NaN, zeros, ones.
    Tame,
}

/// Attributes and operand types of one application of an op.
#[derive(Debug, Clone)]
pub struct Case {
    /// Attributes.
    pub attrs: Attrs,
    /// Operand types; symbols have the values in [`Draw::dims`].
    pub types: Vec<Type>,
}

/// A source of random numbers (SplitMix64, Steele et al. 2014), and the values of symbols.
#[derive(Debug, Clone)]
pub struct Draw {
    state: u64,
    /// The probability that a size is a symbol, in percent.
    pub symbolic_percent: i64,
    /// Values of the symbols that sizes are drawn from.
    pub dims: Dims,
}

impl Draw {
    /// A source with its own sequence.
    pub fn new(seed: u64) -> Draw {
        let dims = Dims::from([("N".into(), 2), ("M".into(), 3), ("K".into(), 1)]);
        Draw { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), symbolic_percent: 0, dims }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer between two, both included.
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1) as u64) as i64
    }

    /// An index below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// True or false.
    pub fn flag(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A size from 1 to 4, or a symbol.
    pub fn size(&mut self) -> Dim {
        if self.int(0, 99) < self.symbolic_percent {
            let symbols: Vec<_> = self.dims.keys().cloned().collect();
            return Dim::symbol(self.pick(&symbols));
        }
        Dim::constant(self.int(1, 4))
    }

    /// Sizes of a rank between two; one in twenty is 0.
    pub fn shape(&mut self, low: usize, high: usize) -> Vec<Dim> {
        let rank = self.int(low as i64, high as i64);
        (0..rank)
            .map(|_| if self.int(0, 19) == 0 { Dim::constant(0) } else { self.size() })
            .collect()
    }

    /// The number of a size.
    pub fn value(&self, dim: &Dim) -> i64 {
        dim.eval(&self.dims).expect("all symbols have values")
    }

    /// An axis of a rank that is not 0.
    pub fn axis(&mut self, rank: usize) -> i64 {
        self.below(rank) as i64
    }

    /// Some axes of a rank, in rising order.
    pub fn axes(&mut self, rank: usize) -> Vec<i64> {
        (0..rank as i64).filter(|_| self.flag()).collect()
    }

    /// The axes of a rank in random order.
    pub fn permutation(&mut self, rank: usize) -> Vec<i64> {
        let mut axes: Vec<i64> = (0..rank as i64).collect();
        for last in (1..rank).rev() {
            let other = self.below(last + 1);
            axes.swap(last, other);
        }
        axes
    }

    /// A tensor's elements.
    pub fn operand<T: Element>(&mut self, ty: &Type, floats: Floats) -> Value<T> {
        let shape: Vec<usize> = ty.shape.iter().map(|dim| self.value(dim) as usize).collect();
        let count = shape.iter().product();
        if ty.dtype.is_float() {
            let data = (0..count).map(|_| T::from_f64(self.float(floats))).collect();
            Value::Float(Array::new(shape, data))
        } else {
            Value::Int(Array::new(shape, (0..count).map(|_| self.integer(ty.dtype)).collect()))
        }
    }

    fn float(&mut self, floats: Floats) -> f64 {
        let ordinary = (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * 6.0 - 3.0;
        match floats {
            Floats::Ordinary => ordinary,
            Floats::Special if self.flag() => ordinary,
            Floats::Special => self.pick(&SPECIAL),
            Floats::Tame => self.pick(&TAME),
        }
    }

    /// A small integer, mostly; else one near the ends of the type, or any.
    fn integer(&mut self, dtype: DType) -> i64 {
        let (Scalar::Int(_, low), Scalar::Int(_, high)) =
            (Scalar::lowest(dtype), Scalar::highest(dtype))
        else {
            unreachable!("the type is an integer");
        };
        let value = match self.int(0, 9) {
            0 => low.wrapping_add(self.int(0, 2)),
            1 => high.wrapping_sub(self.int(0, 2)),
            2 => self.bits() as i64,
            _ => self.int(-4, 9),
        };
        wrapped(dtype, value)
    }
}
