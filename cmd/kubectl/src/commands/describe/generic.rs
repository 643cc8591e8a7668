//! Kinds without a layout of their own: everything, titles in words.

use super::page::{Page, shown, text};
use serde_json::Value;

pub fn describe(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.field("Namespace", text(object, "/metadata/namespace"));
    page.labels_and_annotations(object);
    let mut rest = object.clone();
    if let Some(metadata) = rest["metadata"].as_object_mut() {
        for said in ["name", "namespace", "labels", "annotations", "managedFields"] {
            metadata.remove(said);
        }
    }
    fields(&rest, 0, page);
}

fn fields(value: &Value, depth: usize, page: &mut Page) {
    let indent = "  ".repeat(depth);
    for (field, value) in value.as_object().into_iter().flatten() {
        let title = words(field);
        match value {
            Value::Object(_) => {
                page.line(&format!("{indent}{title}:"));
                fields(value, depth + 1, page);
            }
            Value::Array(items) => {
                page.line(&format!("{indent}{title}:"));
                for item in items {
                    match item {
                        Value::Object(_) => fields(item, depth + 1, page),
                        item => page.line(&format!("{indent}  {}", shown(item))),
                    }
                }
            }
            Value::Null => page.line(&format!("{indent}{title}:\t<nil>")),
            value => page.line(&format!("{indent}{title}:\t{}", shown(value))),
        }
    }
}

/// `hostNetwork` is `Host Network`, `podIP` is `Pod Ip`.
fn words(field: &str) -> String {
    const ACRONYMS: [&str; 5] = ["API", "URL", "UID", "OSB", "GUID"];
    // Keys that are not fields' names stay as they are.
    if !field.chars().all(|letter| letter.is_alphabetic() || letter == '-') {
        return field.to_owned();
    }
    let letters: Vec<char> = field.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| letters.get(index));
        let ends_acronym = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        let begins = match before {
            None => true,
            Some(before) if before.is_uppercase() && letter.is_uppercase() => ends_acronym,
            Some(before) => letter.is_uppercase() || before.is_alphabetic() != letter.is_alphabetic(),
        };
        match words.last_mut().filter(|_| !begins) {
            Some(word) => word.push(*letter),
            None => words.push(letter.to_string()),
        }
    }
    let titled = words.iter().map(|word| {
        let upper = word.to_uppercase();
        if ACRONYMS.contains(&upper.as_str()) {
            return upper;
        }
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().to_string() + &letters.as_str().to_lowercase())
            .unwrap_or_default()
    });
    titled.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_read_as_words() {
        let check = |field: &str, expected: &str| assert_eq!(words(field), expected);
        check("hostNetwork", "Host Network");
        check("podIP", "Pod Ip");
        check("apiVersion", "API Version");
        check("HTTPGet", "Http Get");
        check("v1beta1", "v1beta1");
        check("app.kubernetes.io/name", "app.kubernetes.io/name");
    }

    #[test]
    fn an_object_is_shown_whole() {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Shelf", "metadata": {"name": "oak", "namespace": "default", "labels": {"a": "b"}},
            "spec": {"size": "small", "books": [{"title": "Emma"}], "args": ["x"]}});
        let mut page = Page::default();
        describe(&object, &mut page);
        let expected = "Name:         oak\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\
            API Version:  example.com/v1\nKind:         Shelf\nMetadata:\nSpec:\n  Args:\n    x\n  Books:\n    \
            Title:  Emma\n  Size:     small\n";
        assert_eq!(page.text(), expected);
    }
}
