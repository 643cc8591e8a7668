//! JSON → YAML, letter for letter as upstream's kubectl writes it: names in order, lists not indented, quotes only where
//! a reader of YAML 1.1 would need them.

use serde_json::Value;

/// The text of a value, with a line's end.
pub fn emit(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => map(value, 0, &mut text),
        Value::Array(items) if !items.is_empty() => list(value, 0, &mut text),
        value => {
            scalar(value, 0, &mut text);
            text.push('\n');
        }
    }
    text
}

fn map(value: &Value, indent: usize, text: &mut String) {
    for (index, (name, value)) in value.as_object().into_iter().flatten().enumerate() {
        if index > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&quoted(name));
        text.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                text.push('\n');
                text.push_str(&" ".repeat(indent + 2));
                map(value, indent + 2, text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                text.push_str(&" ".repeat(indent));
                list(value, indent, text);
            }
            value => {
                text.push(' ');
                scalar(value, indent + 2, text);
                text.push('\n');
            }
        }
    }
}

fn list(value: &Value, indent: usize, text: &mut String) {
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if index > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => map(item, indent + 2, text),
            Value::Array(items) if !items.is_empty() => list(item, indent + 2, text),
            item => {
                scalar(item, indent + 2, text);
                text.push('\n');
            }
        }
    }
}

fn scalar(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(value) if is_block(value) => block(value, indent, text),
        Value::String(value) => fold(&quoted(value), indent, text),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

/// Writes a text; a line that is full ends at the next single space, and the text goes on in the next line.
fn fold(quoted: &str, indent: usize, text: &mut String) {
    const WIDTH: usize = 80;
    let letters: Vec<char> = quoted.chars().collect();
    let is_double = quoted.starts_with('"');
    let line_begin = text.rfind('\n').map_or(0, |at| at + 1);
    let mut column = text[line_begin..].chars().count();
    let is_space = |at: usize| letters.get(at) == Some(&' ');
    for (at, letter) in letters.iter().enumerate() {
        let is_inside = at > 1 && at + 2 < letters.len();
        let is_alone = at > 0 && !is_space(at - 1) && (is_double || !is_space(at + 1));
        if is_space(at) && is_inside && is_alone && column > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
            if is_double && is_space(at + 1) {
                text.push('\\');
                column += 1;
            }
            continue;
        }
        text.push(*letter);
        column += 1;
    }
}

/// Several lines are written as a block, unless they hold what a block cannot.
fn is_block(value: &str) -> bool {
    let is_printable = |letter: char| letter == '\n' || letter == '\t' || !letter.is_control();
    let has_loose_end = value.lines().any(|line| line.ends_with([' ', '\t']));
    value.contains('\n') && value.chars().all(is_printable) && !has_loose_end && value.trim() != ""
}

fn block(value: &str, indent: usize, text: &mut String) {
    text.push('|');
    if value.starts_with([' ', '\n']) {
        text.push('2');
    }
    let body = value.trim_end_matches('\n');
    text.push_str(match value.len() - body.len() {
        0 => "-",
        1 => "",
        _ => "+",
    });
    for line in value.strip_suffix('\n').unwrap_or(value).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            text.push_str(&" ".repeat(indent));
            text.push_str(line);
        }
    }
}

/// A text, in quotes where it needs them.
fn quoted(text: &str) -> String {
    if text.chars().any(|letter| letter.is_control()) || text.contains('\u{feff}') {
        return double_quoted(text);
    }
    if reads_as_something_else(text) {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    if is_plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\0' => quoted.push_str("\\0"),
            '\u{1b}' => quoted.push_str("\\e"),
            '\u{feff}' => quoted.push_str("\\uFEFF"),
            letter if letter.is_control() => quoted.push_str(&format!("\\x{:02X}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// Words that a reader of YAML 1.1 takes for a number, a boolean, a time or nothing.
fn reads_as_something_else(text: &str) -> bool {
    let is_word = matches!(
        text.to_ascii_lowercase().as_str(),
        "" | "~"
            | "null"
            | "true"
            | "false"
            | "yes"
            | "no"
            | "on"
            | "off"
            | "y"
            | "n"
            | ".inf"
            | "-.inf"
            | "+.inf"
            | ".nan"
            | "<<"
            | "="
    );
    is_word
        || !super::scalar::resolve(text, super::Wanted::Anything).is_string()
        || is_sexagesimal(text)
        || is_time(text)
}

/// `12:30:45` is a number to the base of 60 in YAML 1.1.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (parts, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = parts.split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    !first.is_empty()
        && first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        && !rest.is_empty()
        && rest
            .iter()
            .all(|part| matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_digit()))
        && rest.iter().all(|part| part.parse::<u8>().is_ok_and(|part| part < 60))
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// `2026-01-31`, with or without a time of the day.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits =
        |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let date = digits(0, 4) && bytes.get(4) == Some(&b'-');
    date && (text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10
        || text.parse::<jiff::Timestamp>().is_ok())
}

/// Whether a text may stand without quotes, by the rules of libyaml.
fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return false };
    let second = letters.next();
    let opens = match first {
        '-' | '?' | ':' => second.is_none_or(|second| second == ' '),
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
            true
        }
        _ => false,
    };
    let marks = text.starts_with("---") || text.starts_with("...");
    !opens
        && !marks
        && !text.contains(": ")
        && !text.ends_with(':')
        && !text.contains(" #")
        && !text.starts_with(' ')
        && !text.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::super::{Unknown, parse};
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_written_as_upstream_writes_them() {
        let value = json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "args": ["x", []], "env": {}}], "m": null}});
        let expected = "kind: Pod\nspec:\n  containers:\n  - args:\n    - x\n    - []\n    env: {}\n    name: a\n  m: null\n";
        assert_eq!(emit(&value), expected);
    }

    #[test]
    fn quotes_stand_where_they_are_needed() {
        let check = |text: &str, expected: &str| assert_eq!(quoted(text), expected);
        check("abc", "abc");
        check("", "\"\"");
        check("1", "\"1\"");
        check("0644", "\"0644\"");
        check("true", "\"true\"");
        check("on", "\"on\"");
        check("2026-01-01T00:00:00Z", "\"2026-01-01T00:00:00Z\"");
        check("12:30", "\"12:30\"");
        check("a: b", "'a: b'");
        check("*/5 * * * *", "'*/5 * * * *'");
        check("- a", "'- a'");
        check("-a", "-a");
        check("it's", "it's");
        check("'a'", "'''a'''");
        check("{a}", "'{a}'");
        check("a\tb", "\"a\\tb\"");
        check("1.2.3", "1.2.3");
        check("nginx:1.25", "nginx:1.25");
        check("10.0.0.1/24", "10.0.0.1/24");
        check("a #b", "'a #b'");
        check("a#b", "a#b");
    }

    #[test]
    fn long_lines_are_folded_as_libyaml_folds_them() {
        let long = "a long value that goes on and on and on and on and on and on and on and on and on";
        let value = json!({"metadata": {"annotations": {"note": long, "other": format!("{long}: {long}")}}, "list": [long]});
        let expected = "list:\n- a long value that goes on and on and on and on and on and on and on and on and on\n\
            metadata:\n  annotations:\n    note: a long value that goes on and on and on and on and on and on and on and\n      on and on\n    \
            other: 'a long value that goes on and on and on and on and on and on and on and\n      on and on: a long value that goes on and on and on and on and on and on and\n      \
            on and on and on'\n";
        assert_eq!(emit(&value), expected);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let texts = [
            "a\nb", "a\nb\n", "a\nb\n\n", " a\nb", "a \nb", "\n", "a\n\nb\n", "\ta\nb", "x: y\n", "#", "é ü",
            "a'\"b", "\u{1}", "~", "1e3", "0x1f", "\nq",
        ];
        let long =
            ["word ".repeat(40), "two  spaces ".repeat(20), "a: b ".repeat(30) + "\u{1}", "x".repeat(200)];
        let texts = texts.into_iter().chain(long.iter().map(String::as_str));
        for text in texts {
            for value in [json!({"k": text}), json!([text]), json!({"a": [{"k": text, "z": 1}]})] {
                let written = emit(&value);
                let read = parse(&written).unwrap_or_else(|error| panic!("{written:?}: {error}"));
                assert_eq!(read.expect("something").resolve(Unknown), value, "{written:?}");
            }
        }
    }
}
