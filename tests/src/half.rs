/// Converts a half-precision number (binary16) to f32, exactly.
pub fn from_half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits) & 0x3ff;
    match exponent {
        // Subnormal: fraction * 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * 2.0f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0xff << 23 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// Converts f32 to half precision (binary16), rounding to nearest, ties to even.
pub fn to_half(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    if magnitude < 2.0f32.powi(-14) {
        return sign | (magnitude * 2.0f32.powi(24)).round_ties_even() as u16;
    }
    // A carry into the exponent is correct here.
    let bits = magnitude.to_bits() - (112 << 23);
    sign | ((bits + 0xfff + (bits >> 13 & 1)) >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives() {
        for bits in 0..=u16::MAX {
            let value = from_half(bits);
            if !value.is_nan() {
                assert_eq!(to_half(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(from_half(0x3c00), 1.0);
        assert_eq!(from_half(0xc000), -2.0);
        assert_eq!(from_half(0x7bff), 65504.0);
        assert_eq!(from_half(0x0001), 2.0f32.powi(-24));
        assert!(from_half(0x7c00).is_infinite());
        // Ties to even.
        assert_eq!(to_half(1.0 + 2.0f32.powi(-11)), 0x3c00);
        assert_eq!(to_half(1.0 + 3.0 * 2.0f32.powi(-11)), 0x3c02);
    }
}
