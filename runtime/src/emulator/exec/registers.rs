//! The registers of a warp: one row of 32 lanes a slot, and the lane-wise maps over them.

use super::super::program::{AnySrc, CONSTANT_BIT, Dst, PredSrc, Slot, Src};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Register files of a warp, with the constants that sources may name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Registers {
    predicates: Vec<u32>,
    words: Vec<[u32; LANES]>,
    wides: Vec<[u64; LANES]>,
}

impl Registers {
    /// Makes the files at least as large as asked for; contents are arbitrary.
    pub(crate) fn reserve(&mut self, n_slots: [u32; 3]) {
        let grow = |length: usize, needed: u32| length.max(needed as usize);
        self.predicates.resize(grow(self.predicates.len(), n_slots[0]), 0);
        self.words.resize(grow(self.words.len(), n_slots[1]), [0; LANES]);
        self.wides.resize(grow(self.wides.len(), n_slots[2]), [0; LANES]);
    }

    /// The lanes for which a predicate holds.
    #[inline]
    pub(crate) fn predicate(&self, source: PredSrc) -> u32 {
        match source {
            PredSrc::Slot(slot, false) => self.predicates[slot as usize],
            PredSrc::Slot(slot, true) => !self.predicates[slot as usize],
            PredSrc::Constant(true) => u32::MAX,
            PredSrc::Constant(false) => 0,
        }
    }

    /// Sets a predicate for the lanes of `mask`.
    #[inline]
    pub(crate) fn set_predicate(&mut self, slot: Slot, mask: u32, lanes: u32) {
        let old = &mut self.predicates[slot as usize];
        *old = (*old & !mask) | (lanes & mask);
    }

    /// The lanes of a 16- or 32-bit source.
    #[inline]
    pub(crate) fn words(&self, constants: &[u64], source: Src) -> [u32; LANES] {
        u32::read(self, constants, source)
    }

    /// The lanes of a 64-bit source.
    #[inline]
    pub(crate) fn wides(&self, constants: &[u64], source: Src) -> [u64; LANES] {
        u64::read(self, constants, source)
    }

    /// The lanes of a source of either width, zero-extended.
    #[inline]
    pub(crate) fn any(&self, constants: &[u64], source: AnySrc) -> [u64; LANES] {
        match source {
            AnySrc::Word(src) => widen(&self.words(constants, src)),
            AnySrc::Wide(src) => self.wides(constants, src),
        }
    }

    /// Writes a 32-bit register.
    #[inline]
    pub(crate) fn set_words(&mut self, slot: Slot, mask: u32, values: &[u32; LANES]) {
        u32::write(self, slot, mask, values);
    }

    /// Writes a 64-bit register.
    #[inline]
    pub(crate) fn set_wides(&mut self, slot: Slot, mask: u32, values: &[u64; LANES]) {
        u64::write(self, slot, mask, values);
    }

    /// Writes a result of any width, cut to the register's.
    #[inline]
    pub(crate) fn set_any(&mut self, dst: Dst, mask: u32, values: &[u64; LANES]) {
        match dst {
            Dst::Half(slot) => {
                self.set_words(slot, mask, &row_of(|lane| values[lane] as u32 & 0xffff))
            }
            Dst::Word(slot) => self.set_words(slot, mask, &row_of(|lane| values[lane] as u32)),
            Dst::Wide(slot) => self.set_wides(slot, mask, values),
            Dst::Sink => {}
        }
    }
}

/// A width of registers.
pub(crate) trait Bits: Copy + Default {
    /// The lanes of a source.
    fn read(registers: &Registers, constants: &[u64], source: Src) -> [Self; LANES];

    /// Writes the lanes of `mask`.
    fn write(registers: &mut Registers, slot: Slot, mask: u32, values: &[Self; LANES]);
}

impl Bits for u32 {
    #[inline(always)]
    fn read(registers: &Registers, constants: &[u64], Src(index): Src) -> [u32; LANES] {
        if index & CONSTANT_BIT != 0 {
            [constants[(index & !CONSTANT_BIT) as usize] as u32; LANES]
        } else {
            registers.words[index as usize]
        }
    }

    #[inline(always)]
    fn write(registers: &mut Registers, slot: Slot, mask: u32, values: &[u32; LANES]) {
        blend(&mut registers.words[slot as usize], mask, values);
    }
}

impl Bits for u64 {
    #[inline(always)]
    fn read(registers: &Registers, constants: &[u64], Src(index): Src) -> [u64; LANES] {
        if index & CONSTANT_BIT != 0 {
            [constants[(index & !CONSTANT_BIT) as usize]; LANES]
        } else {
            registers.wides[index as usize]
        }
    }

    #[inline(always)]
    fn write(registers: &mut Registers, slot: Slot, mask: u32, values: &[u64; LANES]) {
        blend(&mut registers.wides[slot as usize], mask, values);
    }
}

#[inline(always)]
fn blend<T: Copy>(row: &mut [T; LANES], mask: u32, values: &[T; LANES]) {
    if mask == u32::MAX {
        *row = *values;
    } else {
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                row[lane] = values[lane];
            }
        }
    }
}

/// A type that lanes are computed in.
pub(crate) trait Lane: Copy {
    /// The register width that holds it.
    type Bits: Bits;

    /// The value of a register.
    fn from_bits(bits: Self::Bits) -> Self;

    /// The register of a value; bits above the type's width are zero.
    fn to_bits(self) -> Self::Bits;
}

macro_rules! lane {
    ($($ty:ty: $bits:ty, $unsigned:ty;)*) => {
        $(impl Lane for $ty {
            type Bits = $bits;

            #[inline(always)]
            fn from_bits(bits: $bits) -> $ty {
                bits as $ty
            }

            #[inline(always)]
            fn to_bits(self) -> $bits {
                self as $unsigned as $bits
            }
        })*
    };
}

lane! {
    u16: u32, u16;
    i16: u32, u16;
    u32: u32, u32;
    i32: u32, u32;
    u64: u64, u64;
    i64: u64, u64;
}

impl Lane for f32 {
    type Bits = u32;

    #[inline(always)]
    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn to_bits(self) -> u32 {
        f32::to_bits(self)
    }
}

impl Lane for f64 {
    type Bits = u64;

    #[inline(always)]
    fn from_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline(always)]
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }
}

/// Registers, constants and active lanes: what a lane-wise operation works on.
pub(crate) struct Row<'a> {
    /// The warp's registers.
    pub(crate) registers: &'a mut Registers,
    /// The program's constants.
    pub(crate) constants: &'a [u64],
    /// The lanes that the instruction runs for.
    pub(crate) mask: u32,
}

impl Row<'_> {
    /// Reads a source.
    #[inline(always)]
    pub(crate) fn get<T: Lane + Default>(&self, source: Src) -> [T; LANES] {
        let bits = self.bits::<T>(source);
        row_of(|lane| T::from_bits(bits[lane]))
    }

    /// Writes a result.
    #[inline(always)]
    pub(crate) fn put<T: Lane>(&mut self, dst: Slot, values: [T; LANES]) {
        let bits = row_of(|lane| values[lane].to_bits());
        T::Bits::write(self.registers, dst, self.mask, &bits);
    }

    #[inline(always)]
    fn bits<T: Lane>(&self, source: Src) -> [T::Bits; LANES] {
        T::Bits::read(self.registers, self.constants, source)
    }

    /// `dst = f(a)` in each lane.
    #[inline(always)]
    pub(crate) fn map1<T: Lane, R: Lane>(&mut self, dst: Slot, a: Src, f: impl Fn(T) -> R) {
        let a = self.bits::<T>(a);
        let result = row_of(|lane| f(T::from_bits(a[lane])).to_bits());
        R::Bits::write(self.registers, dst, self.mask, &result);
    }

    /// `dst = f(a, b)` in each lane.
    #[inline(always)]
    pub(crate) fn map2<A: Lane, B: Lane, R: Lane>(
        &mut self,
        dst: Slot,
        a: Src,
        b: Src,
        f: impl Fn(A, B) -> R,
    ) {
        let (a, b) = (self.bits::<A>(a), self.bits::<B>(b));
        let result = row_of(|lane| f(A::from_bits(a[lane]), B::from_bits(b[lane])).to_bits());
        R::Bits::write(self.registers, dst, self.mask, &result);
    }

    /// `dst = f(a, b, c)` in each lane.
    #[inline(always)]
    pub(crate) fn map3<A: Lane, B: Lane, C: Lane, R: Lane>(
        &mut self,
        dst: Slot,
        (a, b, c): (Src, Src, Src),
        f: impl Fn(A, B, C) -> R,
    ) {
        let (a, b, c) = (self.bits::<A>(a), self.bits::<B>(b), self.bits::<C>(c));
        let result = row_of(|lane| {
            f(A::from_bits(a[lane]), B::from_bits(b[lane]), C::from_bits(c[lane])).to_bits()
        });
        R::Bits::write(self.registers, dst, self.mask, &result);
    }

    /// The lanes in which `f(a, b)` holds, as a mask.
    #[inline(always)]
    pub(crate) fn test2<T: Lane>(&self, a: Src, b: Src, f: impl Fn(T, T) -> bool) -> u32 {
        let (a, b) = (self.bits::<T>(a), self.bits::<T>(b));
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= u32::from(f(T::from_bits(a[lane]), T::from_bits(b[lane]))) << lane;
        }
        mask
    }
}

/// A row made lane by lane. (`std::array::from_fn` and `map` do not become plain loops here.)
#[inline(always)]
pub(crate) fn row_of<T: Copy + Default>(mut f: impl FnMut(usize) -> T) -> [T; LANES] {
    let mut row = [T::default(); LANES];
    for (lane, value) in row.iter_mut().enumerate() {
        *value = f(lane);
    }
    row
}

#[inline(always)]
fn widen(row: &[u32; LANES]) -> [u64; LANES] {
    row_of(|lane| u64::from(row[lane]))
}
