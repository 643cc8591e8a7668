//! How messages show values and places: as Go's formatting does, since people and tools know these messages.

use serde_json::Value;

/// Go's `%v`: `map[a:1 b:[x y]]`.
pub(super) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members: Vec<String> =
                members.into_iter().map(|(name, value)| format!("{name}:{}", go_value(value))).collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// The Go type that decoding gives such a value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// JSON's name of the type.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Messages hold no more than this of what was sent.
const MOST_SHOWN_BYTES: usize = 1024;

/// The beginning of a long text.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > MOST_SHOWN_BYTES {
        let end = (0..=MOST_SHOWN_BYTES).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A string in double quotes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// One step of a path, from its wire form: `.name`, `[name="web"]`, `[="x"]`, `[3]`.
pub(super) fn path_element(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", keys)) => match serde_json::from_str(keys) {
            Ok(Value::Object(keys)) => {
                let mut keys: Vec<_> = keys.iter().collect();
                keys.sort_unstable_by_key(|(name, _)| *name);
                let keys: Vec<String> =
                    keys.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            _ => format!("[{keys}]"),
        },
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        _ => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_read_as_go_prints_them() {
        let value = json!({"b": ["x", 1, null], "a": {"c": true}});
        assert_eq!(go_value(&value), "map[a:map[c:true] b:[x 1 <nil>]]");
    }
}
