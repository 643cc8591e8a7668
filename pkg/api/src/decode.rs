//! Decoding's first half: bytes that somebody sent become a [`Value`].
//!
//! ```text
//! bytes ──decode──> Decoded { value, duplicates }          (the shape is checked later, by `Schema::check`)
//!              └──> DecodeError, in the words of Go's decoder
//! ```
//!
//! One pass, as fast as plain serde_json: paths are links on the stack and become text only for a member that
//! stands twice. What is wrong with a text that does not parse is found by a second, slow look ([`syntax`]), since
//! tools and people know Go's wording. Nesting is bounded by serde_json (128 levels), so nothing that comes out of
//! here can exhaust the stack of those who walk it.

mod syntax;

use crate::place::Place;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// What the bytes said.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The value; of members that stand twice, the last.
    pub value: Value,
    /// What a strict decoder says of members that stand twice, such as `duplicate field "spec.containers[0].image"`;
    /// each once, at most a hundred.
    pub duplicates: Vec<String>,
}

/// Why bytes are not a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or JSON that no decoder here takes.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Syntax(String),
    /// JSON, but not an object.
    #[error(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {0} into Go value of type struct \
         {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )]
    NotAnObject(&'static str),
}

/// Decodes any JSON value.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(DecodeError::Syntax("invalid UTF-8 in JSON input".into()));
    };
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let root = Reading { place: Place::root(), duplicates: &duplicates };
    let value = root
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| DecodeError::Syntax(syntax::explain(bytes, &error)))?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

/// Decodes an object: what every body of a create, update or delete is.
pub fn decode_object(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let decoded = decode(bytes)?;
    match decoded.value {
        Value::Object(_) => Ok(decoded),
        Value::Null => Err(DecodeError::NotAnObject("null")),
        Value::Bool(_) => Err(DecodeError::NotAnObject("bool")),
        Value::Number(_) => Err(DecodeError::NotAnObject("number")),
        Value::String(_) => Err(DecodeError::NotAnObject("string")),
        Value::Array(_) => Err(DecodeError::NotAnObject("array")),
    }
}

/// Duplicates beyond this many are dropped without being listed, as upstream does.
const MOST_DUPLICATES: usize = 100;

/// A value that is about to be read.
struct Reading<'a> {
    place: Place<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Reading<'_> {
    fn stands_twice(&self, name: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MOST_DUPLICATES {
            let complaint = format!("duplicate field {:?}", self.place.name(name).path());
            if !duplicates.contains(&complaint) {
                duplicates.push(complaint);
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Reading<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let element = Reading { place: self.place.index(list.len()), duplicates: self.duplicates };
            match access.next_element_seed(&element)? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let member = Reading { place: self.place.name(&name), duplicates: self.duplicates };
            let value = access.next_value_seed(&member)?;
            match members.entry(name) {
                serde_json::map::Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                serde_json::map::Entry::Occupied(mut entry) => {
                    self.stands_twice(entry.key());
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match decode_object(text.as_bytes()) {
            Ok(decoded) => format!("{} {}", decoded.value, decoded.duplicates.join(", ")),
            Err(error) => {
                let text = error.to_string();
                text.trim_start_matches("couldn't get version/kind; json parse error: ").to_owned()
            }
        };
        assert_eq!(found.trim_end(), expected, "{text}");
    }

    #[test]
    fn duplicates_are_listed_once_and_the_last_wins() {
        check(
            r#"{"spec":{"replicas":1,"replicas":2,"replicas":3}}"#,
            r#"{"spec":{"replicas":3}} duplicate field "spec.replicas""#,
        );
        check(
            r#"{"a":[{"b":1},{"b":1,"b":2}],"a":0}"#,
            r#"{"a":0} duplicate field "a[1].b", duplicate field "a""#,
        );
        check(r#"{"metadata":{"labels":{"a":"1"}}}"#, r#"{"metadata":{"labels":{"a":"1"}}}"#);
    }

    #[test]
    fn numbers_keep_what_they_can() {
        check(
            r#"{"a":9223372036854775807,"b":18446744073709551615,"c":-1,"d":1.0,"e":1e3}"#,
            r#"{"a":9223372036854775807,"b":18446744073709551615,"c":-1,"d":1.0,"e":1000.0}"#,
        );
        // Beyond 64 bits a number is a float, as in Go: a field that must be an integer then refuses it.
        check(r#"{"a":100000000000000000000}"#, r#"{"a":1e+20}"#);
        check(r#"{"a":1e999}"#, "json: cannot unmarshal number 1e999 into Go value of type float64");
    }

    #[test]
    fn private_tokens_of_the_decoder_are_ordinary_names() {
        check(
            r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#,
            r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#,
        );
    }

    #[test]
    fn complaints_read_as_gos() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("{\"a\n\":1}", "invalid character '\\n' in string literal"),
            ("{\"\\x\":1}", "invalid character 'x' in string escape code"),
            ("{\"\\u00g0\":1}", "invalid character 'g' in \\u hexadecimal character escape"),
            ("{\"a\":tru}", "invalid character '}' in literal true (expecting 'e')"),
            ("{\"a\":-}", "invalid character '}' in numeric literal"),
            ("{\"a\":1.}", "invalid character '}' after decimal point in numeric literal"),
            ("{\"a\":1ex}", "invalid character 'x' in exponent of numeric literal"),
            ("{\"a\":01}", "invalid character '1' after object key:value pair"),
            ("{\"a\":'b'}", "invalid character '\\'' looking for beginning of value"),
        ] {
            check(text, expected);
        }
        let array = decode_object(b"[]").unwrap_err().to_string();
        assert!(array.contains("cannot unmarshal array into Go value of type struct { APIVersion string"));
        assert!(decode(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            decode(deep.as_bytes()).unwrap_err().to_string(),
            "couldn't get version/kind; json parse error: invalid character '[' exceeded max depth"
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(value in any_json()) {
            let text = value.to_string();
            let decoded = decode(text.as_bytes()).unwrap();
            prop_assert_eq!(decoded, Decoded { value, duplicates: vec![] });
        }

        #[test]
        fn anything_decodes_as_serde_json_does_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let plain: Result<Value, _> = serde_json::from_slice(&bytes);
            prop_assert_eq!(decode(&bytes).map(|d| d.value).ok(), plain.ok());
        }

        #[test]
        fn broken_json_is_explained(value in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = value.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Err(DecodeError::Syntax(text)) = decode(&bytes) {
                prop_assert!(!text.is_empty());
            }
        }
    }
}
