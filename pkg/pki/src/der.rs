//! The few DER forms that keys, certificates and signing requests are made of.
//!
//! Writing only; reading is x509-parser's work. Contents are small, so each form is its own `Vec`.

use jiff::{Timestamp, tz::TimeZone};

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// Tag, length and content.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let bytes = &bytes[length.leading_zeros() as usize / 8..];
        out.push(0x80 | bytes.len() as u8);
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(content);
    out
}

/// A sequence of parts that are encoded already.
pub(crate) fn sequence<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    tlv(SEQUENCE, &concat(parts))
}

/// A set of parts that are encoded already; DER wants them in the order of their bytes.
pub(crate) fn set(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort();
    tlv(SET, &concat(&parts))
}

/// A constructed, context-specific (explicit) tag around a part.
pub(crate) fn explicit(number: u8, part: &[u8]) -> Vec<u8> {
    tlv(0xa0 | number, part)
}

/// An object identifier whose content bytes are given.
pub(crate) fn oid(content: &[u8]) -> Vec<u8> {
    tlv(OID, content)
}

/// A non-negative integer of big-endian bytes.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|&b| b != 0).unwrap_or(bytes.len().saturating_sub(1));
    let mut content = Vec::with_capacity(bytes.len() + 1);
    if bytes.get(start).is_none_or(|&b| b >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(&bytes[start..]);
    tlv(INTEGER, &content)
}

/// A bit string of whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    tlv(BIT_STRING, &concat(&[&[0u8][..], bytes]))
}

/// A bit string of named bits, the first being the most significant: trailing zeros are left out.
pub(crate) fn named_bits(bits: u16) -> Vec<u8> {
    let bytes = bits.to_be_bytes();
    let used = 16 - bits.trailing_zeros().min(16) as usize;
    let length = used.div_ceil(8);
    let unused = (length * 8 - used) as u8;
    tlv(BIT_STRING, &concat(&[&[unused][..], &bytes[..length]]))
}

/// A point in time: two-digit years up to 2049, as RFC 5280 wants it.
pub(crate) fn time(at: Timestamp) -> Vec<u8> {
    let civil = at.to_zoned(TimeZone::UTC).datetime();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    match civil.year() {
        year @ 1950..=2049 => tlv(UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes()),
        year => tlv(GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes()),
    }
}

fn concat<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.as_ref().iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        assert_eq!(tlv(4, &[0; 3])[..2], [4, 3]);
        assert_eq!(tlv(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(tlv(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn integers_are_minimal_and_never_negative() {
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(integer(&[]), [2, 1, 0]);
    }

    #[test]
    fn named_bits_drop_trailing_zeros() {
        assert_eq!(named_bits(0xa000), [3, 2, 5, 0xa0]);
        assert_eq!(named_bits(0x0080), [3, 3, 7, 0, 0x80]);
    }

    #[test]
    fn years_from_2050_have_four_digits() {
        let check = |at: &str, text: &str| {
            assert_eq!(&time(at.parse().unwrap())[2..], text.as_bytes());
        };
        check("2026-01-02T03:04:05Z", "260102030405Z");
        check("2050-01-02T03:04:05Z", "20500102030405Z");
    }
}
