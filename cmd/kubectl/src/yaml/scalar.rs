//! What a plain word means.

use serde_json::{Number, Value};

/// What a schema wants at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Text.
    Text,
    /// True or false.
    Boolean,
    /// A number.
    Number,
    /// The schema does not say.
    Anything,
}

/// Whether YAML 1.1 and 1.2 read a plain word differently.
pub fn is_trap(text: &str) -> bool {
    old_boolean(text).is_some() || old_number(text).is_some()
}

/// The value of a plain word.
pub fn resolve(text: &str, wanted: Wanted) -> Value {
    let old = || match wanted {
        Wanted::Text => is_trap(text).then(|| text.into()),
        Wanted::Boolean => old_boolean(text).map(Value::from),
        Wanted::Number => old_number(text).map(Value::from),
        Wanted::Anything => old_boolean(text).map(Value::from).or_else(|| old_number(text).map(Value::from)),
    };
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => old().or_else(|| number(text)).unwrap_or_else(|| text.into()),
    }
}

/// Booleans of YAML 1.1 that 1.2 has as text.
fn old_boolean(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Integers of YAML 1.1 that 1.2 reads otherwise: octal `0644`, binary `0b11`, `1_000`.
fn old_number(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let starts_right = digits.starts_with(|first: char| first.is_ascii_digit());
    let plain: String = digits.chars().filter(|letter| *letter != '_').collect();
    let value = if let Some(binary) = plain.strip_prefix("0b") {
        i64::from_str_radix(binary, 2).ok()
    } else if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|byte| byte.is_ascii_digit()) {
        i64::from_str_radix(&plain, 8).ok()
    } else if digits.contains('_') && plain.bytes().all(|byte| byte.is_ascii_digit()) {
        plain.parse().ok()
    } else {
        None
    };
    value.filter(|_| starts_right).map(|value| sign * value)
}

/// Numbers that both have: decimal, `0x1f`, `0o17`, `1.5e3`.
fn number(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let radix = |prefix: &str, radix: u32| {
        unsigned.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
    };
    if let Some(value) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(if text.starts_with('-') { -value } else { value }.into());
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        // Eight and nine are no octal digits: `089` is text in both.
        if unsigned.len() > 1 && unsigned.starts_with('0') {
            return None;
        }
        if let Ok(value) = digits.parse::<i64>() {
            return Some(value.into());
        }
        if let Ok(value) = digits.parse::<u64>() {
            return Some(value.into());
        }
    }
    let looks_decimal =
        unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+'))
            && unsigned.bytes().any(|byte| byte.is_ascii_digit());
    let value: f64 = if looks_decimal { digits.parse().ok()? } else { return None };
    Number::from_f64(value).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_mean_what_the_schema_says() {
        let check = |text: &str, wanted: Wanted, expected: Value| {
            assert_eq!(resolve(text, wanted), expected, "{text} as {wanted:?}");
        };
        check("on", Wanted::Text, json!("on"));
        check("on", Wanted::Boolean, json!(true));
        check("yes", Wanted::Boolean, json!(true));
        check("No", Wanted::Boolean, json!(false));
        check("no", Wanted::Text, json!("no"));
        check("no", Wanted::Anything, json!(false));
        check("0644", Wanted::Number, json!(420));
        check("0644", Wanted::Text, json!("0644"));
        check("0644", Wanted::Anything, json!(420));
        check("010", Wanted::Number, json!(8));
        check("010", Wanted::Text, json!("010"));
        check("0o644", Wanted::Number, json!(420));
        check("-010", Wanted::Number, json!(-8));
        check("1_000", Wanted::Number, json!(1000));
        check("089", Wanted::Number, json!("089"));
        // What is the same in both stays, and the server says what is wrong with it.
        check("true", Wanted::Text, json!(true));
        check("12", Wanted::Text, json!(12));
        check("on", Wanted::Number, json!("on"));
    }

    #[test]
    fn numbers_are_numbers_and_versions_are_text() {
        let check =
            |text: &str, expected: Value| assert_eq!(resolve(text, Wanted::Anything), expected, "{text}");
        check("0", json!(0));
        check("-3", json!(-3));
        check("18446744073709551615", json!(u64::MAX));
        check("1.5", json!(1.5));
        check("1e3", json!(1000.0));
        check("0x1F", json!(31));
        check("1.2.3", json!("1.2.3"));
        check("10.96.0.1", json!("10.96.0.1"));
        check("2001-01-01", json!("2001-01-01"));
        check("12:30", json!("12:30"));
        check(".inf", json!(".inf"));
        check("-", json!("-"));
        check("~", json!(null));
        check("100m", json!("100m"));
        check("1Gi", json!("1Gi"));
    }
}
