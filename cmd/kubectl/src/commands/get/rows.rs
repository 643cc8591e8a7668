//! The server's tables as rows of text.

use super::Flags;
use crate::resources::Resource;
use anyhow::Result;
use api::jsonpath::JsonPath;
use serde_json::Value;
use std::cmp::Ordering;

/// The cells of tables of one kind, the names of columns first.
pub fn rows(
    tables: &[Value],
    kind: &Resource,
    flags: &Flags,
    wide: bool,
    with_kind: bool,
) -> Vec<Vec<String>> {
    let Some(first) = tables.first() else { return Vec::new() };
    let columns = first["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let is_shown: Vec<bool> = columns
        .iter()
        .map(|column| match flags.server_print {
            true => wide || column["priority"] == 0,
            false => column["name"] == "Name" || column["name"] == "Age",
        })
        .collect();
    let with_namespace = flags.select.all_namespaces && kind.namespaced;
    let mut header: Vec<String> = with_namespace.then(|| "NAMESPACE".to_owned()).into_iter().collect();
    let shown = columns.iter().zip(&is_shown).filter(|(_, shown)| **shown);
    header.extend(shown.map(|(column, _)| column["name"].as_str().unwrap_or_default().to_uppercase()));
    header.extend(
        flags.label_columns.iter().map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()),
    );
    header.extend(flags.show_labels.then(|| "LABELS".to_owned()));
    let mut rows: Vec<(Value, Vec<String>)> = Vec::new();
    for row in tables.iter().flat_map(|table| table["rows"].as_array().into_iter().flatten()) {
        let metadata = &row["object"]["metadata"];
        let mut cells: Vec<String> = Vec::new();
        if with_namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        let shown = row["cells"].as_array().into_iter().flatten().zip(&is_shown).filter(|(_, shown)| **shown);
        for (index, (value, _)) in shown.enumerate() {
            let text = cell(value);
            cells.push(if index == 0 && with_kind { kind.named(&text) } else { text });
        }
        for label in &flags.label_columns {
            cells.push(metadata["labels"][label].as_str().unwrap_or_default().to_owned());
        }
        if flags.show_labels {
            cells.push(labels(&metadata["labels"]));
        }
        let cells = cells.iter().map(|cell| cli::plain(cell).into_owned()).collect();
        rows.push((row["object"].clone(), cells));
    }
    if let Some(path) = &flags.sort_by {
        // A path that cannot be read is no order.
        let _ = sort(path, &mut rows, |(object, _)| object);
    }
    std::iter::once(header).chain(rows.into_iter().map(|(_, cells)| cells)).collect()
}

/// A cell's text in one line, as upstream shows it.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => match text.split_once(['\n', '\r', '\u{c}']) {
            Some((first, _)) => format!("{first}..."),
            None => text.clone(),
        },
        Value::Null => "<none>".to_owned(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        other => other.to_string(),
    }
}

fn labels(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let text: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if text.is_empty() { "<none>".to_owned() } else { text.join(",") }
}

/// Sorts by what a path finds: numbers by size, text as people count (`a2` before `a10`), what has nothing first.
pub fn sort<T>(path: &str, items: &mut [T], object: impl Fn(&T) -> &Value) -> Result<()> {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}');
    let path = if path.starts_with(['.', '[', '$']) { path.to_owned() } else { format!(".{path}") };
    let path = JsonPath::parse(&path)?;
    items.sort_by(|left, right| compare(path.first(object(left)), path.first(object(right))));
    Ok(())
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(Value::String(left)), Some(Value::String(right))) => natural(left, right),
        (Some(left), Some(right)) => left.to_string().cmp(&right.to_string()),
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}

/// Compares runs of digits as numbers.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (in_left, in_right) = (digits(left), digits(right));
        if in_left > 0 && in_right > 0 {
            let value = |text: &str, count: usize| text[..count].trim_start_matches('0').to_owned();
            let (own, other) = (value(left, in_left), value(right, in_right));
            let order = own.len().cmp(&other.len()).then_with(|| own.cmp(&other));
            if order.is_ne() {
                return order;
            }
            (left, right) = (&left[in_left..], &right[in_right..]);
            continue;
        }
        match (left.chars().next(), right.chars().next()) {
            (Some(own), Some(other)) if own == other => {
                (left, right) = (&left[own.len_utf8()..], &right[other.len_utf8()..]);
            }
            (own, other) => return own.cmp(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn people_count_in_numbers() {
        let mut names =
            vec![json!({"n": "a10"}), json!({"n": "a2"}), json!({"n": "a"}), json!({}), json!({"n": "b1"})];
        sort("{.n}", &mut names, |name| name).expect("a path");
        assert_eq!(
            names,
            [json!({}), json!({"n": "a"}), json!({"n": "a2"}), json!({"n": "a10"}), json!({"n": "b1"})]
        );
    }

    #[test]
    fn cells_stand_in_one_line() {
        assert_eq!(cell(&json!("a\nb")), "a...");
        assert_eq!(cell(&json!(null)), "<none>");
        assert_eq!(cell(&json!(3)), "3");
    }
}
