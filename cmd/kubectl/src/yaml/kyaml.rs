//! JSON → KYAML, letter for letter as upstream's kubectl writes it: YAML in which indentation means nothing. Texts are always
//! quoted, names where somebody might read something else, lists and fields stand in brackets.

use super::scalar::{self, Wanted};
use serde_json::Value;

/// The text of a value, with the line that begins a document and a line's end.
pub fn emit(value: &Value) -> String {
    let mut text = "---\n".to_owned();
    node(value, 0, &mut text);
    text.push('\n');
    text
}

fn node(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::String(value) if value.contains('\n') => block(value, indent + 1, text),
        Value::String(value) => {
            text.push('"');
            value.chars().for_each(|letter| escaped(letter, text));
            text.push('"');
        }
        Value::Array(items) if !items.is_empty() => list(items, indent, text),
        Value::Object(fields) if !fields.is_empty() => {
            text.push_str("{\n");
            for (name, value) in fields {
                begin(indent + 1, text);
                key(name, text);
                text.push_str(": ");
                node(value, indent + 1, text);
                text.push_str(",\n");
            }
            begin(indent, text);
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// Brackets stand against brackets; anything else has a line of its own.
fn list(items: &[Value], indent: usize, text: &mut String) {
    text.push('[');
    if items.iter().all(|item| item.is_array() || item.is_object()) {
        for (index, item) in items.iter().enumerate() {
            text.push_str(if index > 0 { ", " } else { "" });
            node(item, indent, text);
        }
    } else {
        text.push('\n');
        for item in items {
            begin(indent + 1, text);
            node(item, indent + 1, text);
            text.push_str(",\n");
        }
        begin(indent, text);
    }
    text.push(']');
}

/// Several lines: each in its own, folded. What stands before a line's first letter is dropped by who reads it, but for a
/// space that is escaped.
fn block(value: &str, indent: usize, text: &mut String) {
    text.push_str("\"\\\n");
    let mut is_first = true;
    for letter in value.chars() {
        if std::mem::take(&mut is_first) {
            begin(indent, text);
            text.push(if letter.is_whitespace() && letter != '\n' { '\\' } else { ' ' });
        }
        if letter == '\n' {
            text.push_str("\\n\\\n");
            is_first = true;
        } else {
            escaped(letter, text);
        }
    }
    if !is_first {
        text.push_str("\\\n");
    }
    begin(indent, text);
    text.push('"');
}

fn key(name: &str, text: &mut String) {
    if !needs_quotes(name) {
        return text.push_str(name);
    }
    text.push('"');
    for letter in name.chars() {
        match letter {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            letter => escaped(letter, text),
        }
    }
    text.push('"');
}

fn escaped(letter: char, text: &mut String) {
    match letter {
        '"' | '\\' => text.extend(['\\', letter]),
        '\t' => text.push(letter),
        '\u{7}' => text.push_str("\\a"),
        '\u{8}' => text.push_str("\\b"),
        '\u{b}' => text.push_str("\\v"),
        '\u{c}' => text.push_str("\\f"),
        '\r' => text.push_str("\\r"),
        '\0' => text.push_str("\\0"),
        '\u{1b}' => text.push_str("\\e"),
        '\u{85}' => text.push_str("\\N"),
        '\u{a0}' => text.push_str("\\_"),
        '\u{2028}' => text.push_str("\\L"),
        '\u{2029}' => text.push_str("\\P"),
        '\0'..' ' | '\u{7f}' => text.push_str(&format!("\\x{:02x}", u32::from(letter))),
        letter if letter.is_control() || (letter.is_whitespace() && letter != ' ') => {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        }
        letter => text.push(letter),
    }
}

/// Whether a name might be read as something else than a text, or has letters that mean something.
fn needs_quotes(name: &str) -> bool {
    let is_plain = |(index, letter): (usize, char)| {
        let is_inside = index > 0 && index + letter.len_utf8() < name.len();
        letter.is_alphanumeric() || letter == '_' || is_inside && matches!(letter, '-' | '.' | '/')
    };
    !name.char_indices().all(is_plain) || is_ambiguous(name)
}

fn is_ambiguous(name: &str) -> bool {
    let lower = name.to_lowercase();
    let is_word =
        ["t", "f", "yes", "no", "on", "off", "y", "n", "null", "true", "false", "inf", "infinity", "nan"]
            .contains(&&*lower);
    let is_text = |name: &str| scalar::resolve(name, Wanted::Anything).is_string();
    is_word || !is_text(name) || !is_text(&name.replace('_', "")) || is_date(name)
}

/// `2006-1-2`.
fn is_date(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 3 && parts[0].len() == 4 && parts.iter().all(is_number)
}

fn begin(indent: usize, text: &mut String) {
    text.push_str(&"  ".repeat(indent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_upstreams_and_reads_back_as_it_was() {
        let value = json!({
            "apiVersion": "v1",
            "data": {"app.kubernetes.io/name": "y", "no": "1", "1_000": "n", "2020-1-2": "d", "-x": "dash", "": "e"},
            "empty": {"list": [], "map": {}, "text": ""},
            "lines": "one\n  two\n\nthree",
            "last": "a\n",
            "quoted": "a \"b\" \\ c\td \u{7}\u{1}é",
            "spec": {
                "args": ["a", "b"],
                "containers": [{"name": "c", "ports": [{"containerPort": 80}]}, {"name": "d"}],
                "lists": [[1, 2], [{"a": true}]], "none": null, "size": 1.5,
            },
        });
        let expected = r#"---
{
  apiVersion: "v1",
  data: {
    "": "e",
    "-x": "dash",
    "1_000": "n",
    "2020-1-2": "d",
    app.kubernetes.io/name: "y",
    "no": "1",
  },
  empty: {
    list: [],
    map: {},
    text: "",
  },
  last: "\
     a\n\
    ",
  lines: "\
     one\n\
    \  two\n\
     \n\
     three\
    ",
  quoted: "a \"b\" \\ c	d \a\x01é",
  spec: {
    args: [
      "a",
      "b",
    ],
    containers: [{
      name: "c",
      ports: [{
        containerPort: 80,
      }],
    }, {
      name: "d",
    }],
    lists: [[
      1,
      2,
    ], [{
      a: true,
    }]],
    none: null,
    size: 1.5,
  },
}
"#;
        let text = emit(&value);
        assert_eq!(text, expected);
        let node = crate::yaml::parse(text.strip_prefix("---\n").expect("the mark")).expect("readable");
        assert_eq!(node.expect("something").resolve(crate::yaml::Unknown), value);
    }
}
