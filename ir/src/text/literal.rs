//! Numbers and tensors in text: what is printed reads back to the same bits.

use std::sync::LazyLock;

use fornax_bundle::{DType, Tensor};

/// How many bytes of tensors one text may hold in the short form `splat x`, so that a short text cannot
/// stand for more memory than there is. Printer and parser count alike; what is beyond is written out.
pub(super) struct SplatBudget(usize);

impl Default for SplatBudget {
    fn default() -> SplatBudget {
        SplatBudget(64 << 20)
    }
}

impl SplatBudget {
    /// Whether a tensor of that size still fits; then it is counted.
    pub fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }
}

/// The elements of a tensor: `[1.0, 2.0]` or `splat 1.0`.
pub(super) fn print_elements(tensor: &Tensor, splats: &mut SplatBudget) -> String {
    let size = tensor.dtype().size();
    let mut elements = tensor.bytes().chunks_exact(size);
    let first = elements.next().unwrap_or_default();
    if tensor.len() > 1
        && elements.all(|element| element == first)
        && splats.take(tensor.bytes().len())
    {
        return format!("splat {}", print_element(tensor.dtype(), first));
    }
    let elements: Vec<String> = tensor
        .bytes()
        .chunks_exact(size)
        .map(|element| print_element(tensor.dtype(), element))
        .collect();
    format!("[{}]", elements.join(", "))
}

/// A real number that reads back to the same bits.
pub(super) fn print_float(value: f64) -> String {
    print_element(DType::F64, &value.to_le_bytes())
}

/// Reads what [`print_float`] prints.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    let bytes = parse_element(DType::F64, text)?;
    let bytes = bytes.try_into().expect("invariant: an f64 has eight bytes");
    Ok(f64::from_le_bytes(bytes))
}

fn print_element(dtype: DType, bytes: &[u8]) -> String {
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    if dtype.is_float() {
        let value = match dtype {
            DType::F32 => return print_f32(f32::from_bits(bits as u32), bits),
            DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
            DType::F8E4M3 | DType::F8E5M2 => float8_values(dtype)[bits as usize],
            _ => f64::from_bits(bits),
        };
        // A narrow number is printed with the digits that tell it from its neighbours in f32.
        return match dtype {
            DType::F64 if value.is_nan() => print_nan(dtype, bits),
            DType::F64 => format!("{value:?}"),
            _ if value.is_nan() => print_nan(dtype, bits),
            _ => format!("{:?}", value as f32),
        };
    }
    match dtype {
        DType::Bool if bits < 2 => (bits == 1).to_string(),
        DType::Bool => format!("0x{bits:x}"),
        _ if dtype.is_signed_int() => {
            let unused = 64 - 8 * dtype.size() as u32;
            ((bits << unused).cast_signed() >> unused).to_string()
        }
        _ => bits.to_string(),
    }
}

fn print_f32(value: f32, bits: u64) -> String {
    if value.is_nan() { print_nan(DType::F32, bits) } else { format!("{value:?}") }
}

fn print_nan(dtype: DType, bits: u64) -> String {
    if usual_nan(dtype) == Some(bits) { "nan".into() } else { format!("0x{bits:x}") }
}

/// The bits that `nan` stands for: the quiet NaN without sign and payload.
fn usual_nan(dtype: DType) -> Option<u64> {
    Some(match dtype {
        DType::F64 => f64::NAN.to_bits(),
        DType::F32 => f32::NAN.to_bits().into(),
        DType::F16 => half::f16::NAN.to_bits().into(),
        DType::BF16 => half::bf16::NAN.to_bits().into(),
        DType::F8E4M3 => 0x7f,
        DType::F8E5M2 => 0x7e,
        _ => return None,
    })
}

/// The value of each of the 256 codes of an 8-bit float.
fn float8_values(dtype: DType) -> &'static [f64] {
    static E4M3: LazyLock<Vec<f64>> = LazyLock::new(|| decode_all(DType::F8E4M3));
    static E5M2: LazyLock<Vec<f64>> = LazyLock::new(|| decode_all(DType::F8E5M2));
    if dtype == DType::F8E4M3 { &E4M3 } else { &E5M2 }
}

fn decode_all(dtype: DType) -> Vec<f64> {
    let codes: Vec<u8> = (0..=u8::MAX).collect();
    Tensor::new(dtype, [codes.len()], codes).expect("invariant: one byte per code").to_f64()
}

/// The little-endian bytes of one element.
pub(super) fn parse_element(dtype: DType, text: &str) -> Result<Vec<u8>, String> {
    let size = dtype.size();
    let bits = parse_bits(dtype, text)?;
    Ok(bits.to_le_bytes()[..size].to_vec())
}

fn parse_bits(dtype: DType, text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a number of type {dtype}");
    if let Some(digits) = text.strip_prefix("0x") {
        let bits = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
        let fits = dtype.size() == 8 || bits >> (8 * dtype.size()) == 0;
        return fits.then_some(bits).ok_or_else(|| format!("`{text}` has more bits than {dtype}"));
    }
    if dtype == DType::Bool {
        return text.parse::<bool>().map(u64::from).map_err(|_| bad());
    }
    if dtype.is_float() {
        return parse_float_bits(dtype, text);
    }
    let value: i128 = text.parse().map_err(|_| bad())?;
    let width = 8 * dtype.size() as u32;
    let (low, high) = if dtype.is_signed_int() {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    } else {
        (0, (1i128 << width) - 1)
    };
    if !(low..=high).contains(&value) {
        return Err(format!("{value} does not fit into {dtype}"));
    }
    Ok(value as u64)
}

fn parse_float_bits(dtype: DType, text: &str) -> Result<u64, String> {
    if text == "nan" {
        return usual_nan(dtype).ok_or_else(|| format!("{dtype} has no NaN"));
    }
    let infinite = matches!(text, "inf" | "-inf");
    if !infinite && !text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("`{text}` is not a number of type {dtype}"));
    }
    let wide: f64 =
        text.parse().map_err(|_| format!("`{text}` is not a number of type {dtype}"))?;
    let (bits, value) = match dtype {
        DType::F64 => (wide.to_bits(), wide),
        DType::F32 => {
            // Directly from the text: rounding to f64 first would round twice.
            let value: f32 = text.parse().unwrap_or(wide as f32);
            (value.to_bits().into(), value.into())
        }
        DType::F16 => {
            let value = half::f16::from_f64(wide);
            (value.to_bits().into(), value.to_f64())
        }
        DType::BF16 => {
            let value = half::bf16::from_f64(wide);
            (value.to_bits().into(), value.to_f64())
        }
        _ => {
            // All values are exact in f32, and so are printed with its digits.
            let wide = f64::from(wide as f32);
            let mut codes = float8_values(dtype).iter();
            let code = codes.position(|value| value.to_bits() == wide.to_bits());
            let code = code.ok_or_else(|| format!("{dtype} has no {text}"))?;
            (code as u64, wide)
        }
    };
    if value.is_infinite() && !infinite {
        return Err(format!("{text} does not fit into {dtype}"));
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_narrow_number_reads_back_to_its_bits() {
        for dtype in [DType::F16, DType::BF16, DType::I16, DType::U16] {
            for bits in 0..=u16::MAX {
                let bytes = bits.to_le_bytes();
                let text = print_element(dtype, &bytes);
                assert_eq!(
                    parse_element(dtype, &text).as_deref(),
                    Ok(&bytes[..]),
                    "{dtype} {text}"
                );
            }
        }
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::I8, DType::U8, DType::Bool] {
            for bits in 0..=u8::MAX {
                let text = print_element(dtype, &[bits]);
                assert_eq!(
                    parse_element(dtype, &text).as_deref(),
                    Ok(&[bits][..]),
                    "{dtype} {text}"
                );
            }
        }
    }

    #[test]
    fn special_wide_numbers_read_back_to_their_bits() {
        let doubles =
            [0.1, -0.0, f64::MIN_POSITIVE / 8.0, f64::MAX, f64::INFINITY, f64::NAN, -f64::NAN];
        for value in doubles {
            assert_eq!(parse_float(&print_float(value)).map(f64::to_bits), Ok(value.to_bits()));
        }
        for bits in [0x7fc0_0001u32, 0xffc0_0000, 0x7f80_0001, 1, 0x7f7f_ffff, 0x3dcc_cccd] {
            let text = print_element(DType::F32, &bits.to_le_bytes());
            assert_eq!(parse_element(DType::F32, &text), Ok(bits.to_le_bytes().to_vec()), "{text}");
        }
        let ends = [i64::MIN.to_le_bytes(), i64::MAX.to_le_bytes(), u64::MAX.to_le_bytes()];
        for (dtype, bytes) in [DType::I64, DType::I64, DType::U64].into_iter().zip(ends) {
            let text = print_element(dtype, &bytes);
            assert_eq!(parse_element(dtype, &text), Ok(bytes.to_vec()), "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (dtype, text) in [
            (DType::F32, "1e39"),
            (DType::F64, "1e999"),
            (DType::F16, "65520.0"),
            (DType::F8E4M3, "0.3"),
            (DType::F8E4M3, "inf"),
            (DType::I8, "128"),
            (DType::U8, "-1"),
            (DType::U8, "0x100"),
            (DType::Bool, "2"),
            (DType::F32, "infinity"),
            (DType::I32, "1.0"),
        ] {
            assert!(parse_element(dtype, text).is_err(), "{dtype} {text}");
        }
    }
}
