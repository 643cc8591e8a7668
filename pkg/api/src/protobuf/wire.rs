//! Protobuf's wire format: numbered members, each a scalar or a run of bytes. Nothing is copied here.

use super::Error;

/// The value of a member as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// An integer or a boolean.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Scalar<'a> {
    /// A run of bytes.
    pub fn bytes(&self) -> Result<&'a [u8], Error> {
        match self {
            Scalar::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Malformed("wrong wireType")),
        }
    }

    /// Text.
    pub fn text(&self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Error::Malformed("text that is not UTF-8"))
    }

    /// An integer: negative ones are written as their 64 bits.
    pub fn integer(&self) -> Result<i64, Error> {
        match self {
            Scalar::Varint(value) => Ok(value.cast_signed()),
            _ => Err(Error::Malformed("wrong wireType")),
        }
    }

    /// A floating-point number.
    pub fn float(&self) -> Result<f64, Error> {
        match self {
            Scalar::Fixed64(bits) => Ok(f64::from_bits(*bits)),
            Scalar::Fixed32(bits) => Ok(f32::from_bits(*bits).into()),
            _ => Err(Error::Malformed("wrong wireType")),
        }
    }
}

/// The members of a message, in the order they stand. It ends after the first error.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn field(&mut self) -> Result<(u32, Scalar<'a>), Error> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Error::Malformed("illegal tag"))?;
        let scalar = match tag & 7 {
            0 => Scalar::Varint(self.varint()?),
            1 => Scalar::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_| Error::Malformed("unexpected EOF"))?;
                Scalar::Bytes(self.take(length)?)
            }
            5 => Scalar::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Error::Malformed("illegal wireType")),
        };
        Ok((number, scalar))
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Malformed("integer overflow"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(*taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Scalar<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
