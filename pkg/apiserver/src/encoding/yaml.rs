//! YAML out of JSON, straight from its bytes: nothing is built in between.
//!
//! Maps and lists are blocks as kubectl writes them. Text stands plain where nothing could take it for anything else, and
//! otherwise in double quotes on one line.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Appends a JSON value as a YAML document.
///
/// # Errors
/// If it is not JSON.
pub fn write_document(out: &mut Vec<u8>, json: &[u8]) -> serde_json::Result<()> {
    write(out, json, Node { indent: 0, after: After::Nothing })
}

/// Appends a JSON value as an item of a list that is not indented.
///
/// # Errors
/// If it is not JSON.
pub fn write_item(out: &mut Vec<u8>, json: &[u8]) -> serde_json::Result<()> {
    out.extend_from_slice(b"- ");
    write(out, json, Node { indent: 2, after: After::Dash })
}

fn write(out: &mut Vec<u8>, json: &[u8], node: Node) -> serde_json::Result<()> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    Writer { out, node }.deserialize(&mut reader)?;
    reader.end()
}

/// What is deeper stands as JSON on one line, which is YAML too: spaces before every line could make a hundred bytes of one.
const DEEPEST: usize = 40;

/// A value, by what stands before it on its line.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Of the members, if it is a map.
    indent: usize,
    after: After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// It begins the document.
    Nothing,
    /// It is an item.
    Dash,
    /// It is a member.
    Colon,
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    node: Node,
}

impl Writer<'_> {
    fn scalar(self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.node.after == After::Colon {
            self.out.push(b' ');
        }
        write(self.out);
        self.out.push(b'\n');
    }

    fn plain(self, text: &str) {
        self.scalar(|out| out.extend_from_slice(text.as_bytes()));
    }

    /// Begins the line of a member or an item; the first one may share the line of what comes before.
    fn begin_line(&mut self, is_first: bool) {
        match (is_first, self.node.after) {
            (true, After::Dash | After::Nothing) => return,
            (true, After::Colon) => self.out.push(b'\n'),
            (false, _) => {}
        }
        self.out.resize(self.out.len() + self.node.indent, b' ');
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.node.indent <= DEEPEST {
            return deserializer.deserialize_any(self);
        }
        let json = <&RawValue>::deserialize(deserializer)?;
        self.plain(json.get());
        Ok(())
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.plain(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.plain("null");
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.plain(&value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.plain(&value.to_string());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.plain(&serde_json::to_string(&value).map_err(E::custom)?);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.scalar(|out| write_text(out, value));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        // A list is as deep as the key before it.
        if self.node.after == After::Colon {
            self.node.indent -= 2;
        }
        let mut is_first = true;
        loop {
            let item = Item { list: &mut self, is_first };
            if items.next_element_seed(item)?.is_none() {
                break;
            }
            is_first = false;
        }
        if is_first {
            self.plain("[]");
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut is_first = true;
        while members.next_key_seed(Key { map: &mut self, is_first })?.is_some() {
            is_first = false;
            let node = Node { indent: self.node.indent + 2, after: After::Colon };
            members.next_value_seed(Writer { out: self.out, node })?;
        }
        if is_first {
            self.plain("{}");
        }
        Ok(())
    }
}

/// An item of a list that is being written.
struct Item<'a, 'b> {
    list: &'a mut Writer<'b>,
    is_first: bool,
}

impl<'de> DeserializeSeed<'de> for Item<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.list.begin_line(self.is_first);
        self.list.out.extend_from_slice(b"- ");
        let node = Node { indent: self.list.node.indent + 2, after: After::Dash };
        Writer { out: self.list.out, node }.deserialize(deserializer)
    }
}

/// A key of a map that is being written.
struct Key<'a, 'b> {
    map: &'a mut Writer<'b>,
    is_first: bool,
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<(), E> {
        self.map.begin_line(self.is_first);
        // A key of more than 1,024 characters must say that it is one.
        if key.len() > 256 {
            self.map.out.extend_from_slice(b"? ");
            write_text(self.map.out, key);
            self.map.out.push(b'\n');
            self.map.out.resize(self.map.out.len() + self.map.node.indent, b' ');
        } else {
            write_text(self.map.out, key);
        }
        self.map.out.push(b':');
        Ok(())
    }
}

/// What reads as something else than text where it stands plain.
const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan"];

/// Whether text can stand as it is: it begins with a letter or a slash, and has nothing in it that could mean something.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    (first.is_ascii_alphabetic() || *first == b'/')
        && !matches!(last, b':' | b' ')
        && bytes.iter().zip(bytes.iter().skip(1).chain([&b'x'])).all(|(byte, next)| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => true,
            b':' => *next != b' ',
            b' ' => *next != b' ',
            _ => false,
        })
        && !(bytes.len() <= 5 && WORDS.iter().any(|word| word.eq_ignore_ascii_case(text)))
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    let mut copied = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if is_quotable(bytes[at]) {
            at += 1;
            continue;
        }
        let char = text[at..].chars().next().unwrap_or_default();
        let next = at + char.len_utf8();
        if let Some(escape) = escape(char) {
            out.extend_from_slice(&bytes[copied..at]);
            out.extend_from_slice(escape.as_bytes());
            copied = next;
        }
        at = next;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

fn is_quotable(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// How what is not printable, or means something in quotes, is written there.
fn escape(char: char) -> Option<String> {
    Some(match char {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' => format!("\\x{:02x}", u32::from(char)),
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
            format!("\\u{:04x}", u32::from(char))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn yaml(value: &Value) -> String {
        let mut out = Vec::new();
        write_document(&mut out, value.to_string().as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn blocks_are_those_of_kubectl() {
        let object = json!({
            "a": {"b": [1, -2, 1.5, true, null], "empty": {}, "none": []},
            "list": [{"name": "x", "args": ["-c", "echo"]}, [["deep"], []], {}],
        });
        let expected = "\
a:
  b:
  - 1
  - -2
  - 1.5
  - true
  - null
  empty: {}
  none: []
list:
- args:
  - \"-c\"
  - echo
  name: x
- - - deep
  - []
- {}
";
        assert_eq!(yaml(&object), expected);
        let mut item = Vec::new();
        write_item(&mut item, br#"{"a":{"b":1},"c":[2]}"#).unwrap();
        assert_eq!(String::from_utf8(item).unwrap(), "- a:\n    b: 1\n  c:\n  - 2\n");
    }

    #[test]
    fn text_stays_text() {
        let check = |text: &str, expected: &str| assert_eq!(yaml(&text.into()), format!("{expected}\n"));
        check("nginx:1.27", "nginx:1.27");
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("Container is ready", "Container is ready");
        check("/var/log", "/var/log");
        for odd in [
            "", "true", "No", "NULL", "~", "1", "1e3", "0x1", ".5", "-", "- a", "a: b", "a:", "a #b", "*a",
            "&a",
        ] {
            check(odd, &format!("{odd:?}"));
        }
        for odd in [
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "{}",
            "[a]",
            "a ",
            " a",
            "a  b",
            "'a'",
            "!a",
            "%a",
            "@a",
            "|",
            ">",
        ] {
            check(odd, &format!("{odd:?}"));
        }
        check("a\nb\t\"\\", r#""a\nb\t\"\\""#);
        check("é\u{85}\u{feff}\u{1}\u{2028}", r#""é\x85\ufeff\x01\u2028""#);
        assert_eq!(yaml(&json!({"true": 1, "a b": 2, "1": 3})), "\"1\": 3\na b: 2\n\"true\": 1\n");
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = "[a-z0-9 :#'\"\\\\{}\\-~!&*%@|>?,\\[\\]\n\t\u{0}\u{85}\u{2028}é😀]{0,12}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1_000_000..1_000_000).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
            text.prop_map(Value::from),
            Just(Value::from("k".repeat(1500))),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_says_what_the_json_said(value in values()) {
            let text = yaml(&value);
            let read: Value = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, value, "{}", text);
        }
    }

    #[test]
    fn what_is_deep_takes_no_more_room() {
        let mut value = json!([vec![1; 1000], {"a b": "é\n"}]);
        for _ in 0..100 {
            value = json!({ "d": value });
        }
        let text = yaml(&value);
        assert!(text.len() < 5000, "{}", text.len());
        let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: 500 } };
        let read: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn a_long_key_says_that_it_is_one() {
        let key = "k".repeat(3000);
        let read: Value = serde_saphyr::from_str(&yaml(&json!({&key: {"a": [1]}, "z": 2}))).unwrap();
        assert_eq!(read, json!({&key: {"a": [1]}, "z": 2}));
    }
}
