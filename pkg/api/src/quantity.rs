//! Amounts of resources: `500m`, `1.5Gi`, `12e6`.
//!
//! ```text
//! "1.5Gi" ──parse──> 1610612736 × 10⁹ n, binary ──Display──> "1536Mi"
//! ```
//!
//! A [`Quantity`] is a whole number of billionths, exact from 1n to beyond 10²⁹, and the family of suffixes it was
//! written with. Smaller parts are rounded up (who asks for some gets some); larger amounts stop at the limit.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

/// An amount of a resource. Compares by amount alone: `1` equals `1000m`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The suffixes an amount was written with, and is shown with again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// `m`, `k`, `M`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`: powers of 1024.
    BinarySi,
    /// `e3`: powers of ten.
    DecimalExponent,
}

/// Why text is not a quantity, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number makes no sense.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// No such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANOS: i128 = 1_000_000_000;
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// A whole number, shown with decimal suffixes.
    pub fn from_value(value: i64) -> Self {
        Quantity { nanos: i128::from(value) * NANOS, format: Format::DecimalSi }
    }

    /// A number of thousandths, shown with decimal suffixes.
    pub fn from_milli(milli: i64) -> Self {
        Quantity { nanos: i128::from(milli) * (NANOS / 1000), format: Format::DecimalSi }
    }

    /// The amount rounded up (away from zero) to a whole number, within 64 bits.
    pub fn value(&self) -> i64 {
        clamp(divide_away(self.nanos, NANOS))
    }

    /// The amount rounded up (away from zero) to thousandths, within 64 bits.
    pub fn milli_value(&self) -> i64 {
        clamp(divide_away(self.nanos, NANOS / 1000))
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether it has no fraction.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The same amount with other suffixes.
    pub fn with_format(self, format: Format) -> Self {
        Quantity { format, ..self }
    }

    /// The suffixes it is shown with.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The remainder of a division by another amount; the amount itself if that is zero.
    pub fn remainder(&self, other: &Quantity) -> Quantity {
        Quantity { nanos: self.nanos.checked_rem(other.nanos).unwrap_or(self.nanos), format: self.format }
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let (number, suffix) = split(text)?;
        let (negative, digits) = match number.as_bytes().first() {
            Some(b'-') => (true, &number[1..]),
            Some(b'+') => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if fraction.contains('.') {
            return Err(ParseQuantityError::Numeric);
        }
        let (scale, mut format) = scale(suffix)?;
        let nanos = match scale {
            Scale::Ten(exponent) => decimal(whole, fraction, exponent),
            Scale::Two(bits) => binary(whole, fraction, bits),
        };
        if format == Format::BinarySi && nanos < NANOS {
            format = Format::DecimalSi;
        }
        Ok(Quantity { nanos: if negative { -nanos } else { nanos }, format })
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi && self.nanos.abs() >= 1024 * NANOS && self.is_whole() {
            let (mut number, mut suffix) = (self.nanos / NANOS, 0);
            while number % 1024 == 0 && suffix + 1 < BINARY.len() {
                number /= 1024;
                suffix += 1;
            }
            return write!(f, "{number}{}", BINARY[suffix]);
        }
        let (mut number, mut power) = (self.nanos, 0);
        let most = if self.format == Format::DecimalExponent { u32::MAX } else { 27 };
        while number % 1000 == 0 && power < most {
            number /= 1000;
            power += 3;
        }
        match self.format {
            Format::DecimalExponent if power == 9 => write!(f, "{number}"),
            Format::DecimalExponent => write!(f, "{number}e{}", i64::from(power) - 9),
            _ => write!(f, "{number}{}", DECIMAL[power as usize / 3].0),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Quantity;

    /// The sum, in the format of the first that is not zero.
    fn add(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    /// The difference, in the format of the first that is not zero.
    fn sub(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format }
    }
}

enum Scale {
    Ten(i32),
    Two(u32),
}

/// Number and suffix.
fn split(text: &str) -> Result<(&str, &str), ParseQuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let at = text.len() - unsigned.len() + digits;
    let (number, suffix) = text.split_at(at);
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits == 0 || !exponent.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseQuantityError::Format);
    }
    Ok((number, suffix))
}

fn scale(suffix: &str) -> Result<(Scale, Format), ParseQuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Ten(*power as i32 - 9), Format::DecimalSi));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
        return Ok((Scale::Two(power as u32 * 10), Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(ParseQuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| ParseQuantityError::Suffix)?;
    Ok((Scale::Ten(exponent), Format::DecimalExponent))
}

/// Digits times a power of ten, in nanos, rounded up.
fn decimal(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let shift = i64::from(exponent) - fraction.len() as i64 + 9;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    if shift < 0 {
        let cut = digits.len() as i64 + shift;
        if cut <= 0 {
            return 1;
        }
        let (kept, lost) = digits.split_at(cut as usize);
        let round_up = i128::from(lost.bytes().any(|b| b != b'0'));
        return kept.parse().unwrap_or(i128::MAX).saturating_add(round_up);
    }
    let power = u32::try_from(shift).ok().and_then(|shift| 10i128.checked_pow(shift)).unwrap_or(i128::MAX);
    digits.parse().unwrap_or(i128::MAX).saturating_mul(power)
}

/// Digits times a power of two, in nanos, rounded up, at most what 64 bits hold.
fn binary(whole: &str, fraction: &str, bits: u32) -> i128 {
    // Digits beyond these cannot matter once multiplied by at most 2⁶⁰ and rounded up to nanos.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10i128.pow(fraction.len() as u32);
    let whole: i128 = whole.parse().unwrap_or(if whole.is_empty() { 0 } else { i128::MAX });
    let fraction: i128 = fraction.parse().unwrap_or_default();
    let fraction_nanos = match fraction.checked_mul(1 << bits).and_then(|n| n.checked_mul(NANOS)) {
        Some(nanos) => divide_away(nanos, scale),
        None => divide_away(fraction * (1 << bits), scale).saturating_mul(NANOS),
    };
    let most = i128::from(i64::MAX) * NANOS;
    whole.saturating_mul(1 << bits).saturating_mul(NANOS).saturating_add(fraction_nanos).min(most)
}

fn divide_away(number: i128, by: i128) -> i128 {
    number / by + if number % by == 0 { 0 } else { number.signum() }
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn canonical_forms_are_upstreams() {
        for (text, canonical) in [
            ("0", "0"),
            ("00", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1025Ki", "1025Ki"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("12e6", "12e6"),
            ("1e1", "10"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("1000E", "1000E"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("+5", "5"),
            ("-2Mi", "-2Mi"),
            ("1.1Mi", "1153433600m"),
            ("100Ei", "9223372036854775807"),
        ] {
            assert_eq!(parse(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn faults_are_upstreams() {
        use ParseQuantityError::*;
        for (text, error) in [
            ("", Format),
            ("m", Format),
            ("1 Gi", Format),
            ("abc", Format),
            ("1.2.3", Numeric),
            ("1i", Suffix),
            ("1Mm", Suffix),
            ("1e", Suffix),
            ("1m5", Suffix),
            ("5é", Format),
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(error), "{text}");
        }
    }

    #[test]
    fn amounts_compare_add_and_round_up() {
        assert_eq!(parse("1"), parse("1000m"));
        assert!(parse("1Mi") > parse("1M"));
        assert_eq!((parse("1Gi") + parse("512Mi")).to_string(), "1536Mi");
        assert_eq!((parse("0") + parse("1Mi")).to_string(), "1Mi");
        assert_eq!((parse("1") - parse("1500m")).to_string(), "-500m");
        assert_eq!(parse("1500m").value(), 2);
        assert_eq!(parse("1u").milli_value(), 1);
        assert_eq!(parse("2").milli_value(), 2000);
        assert_eq!(parse("1e40").value(), i64::MAX);
        assert!(!parse("1100m").is_whole());
        assert!(parse("1Gi").remainder(&parse("2Mi")).is_zero());
    }
}
