//! Kinds without a layout of their own: everything, titles in words.

use super::page::{Page, shown, text, time};
use crate::resources::Resource;
use base64::Engine;
use serde_json::Value;

pub fn describe(resource: &Resource, object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.field("Namespace", text(object, "/metadata/namespace"));
    page.labels_and_annotations(object);
    page.field("API Version", &resource.api_version());
    page.field("Kind", &resource.kind);
    page.line("Metadata:");
    for (field, value) in object["metadata"].as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "name" | "namespace" | "labels" | "annotations" | "managedFields") {
            tree(&words(field), value, 1, page);
        }
    }
    for (field, value) in object.as_object().into_iter().flatten() {
        let is_secret = resource.kind == "Secret" && matches!(field.as_str(), "data" | "stringData");
        match field.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            _ if is_secret => secret(value, page),
            _ => tree(&words(field), value, 0, page),
        }
    }
}

/// How large they are is all that is shown of secrets.
fn secret(data: &Value, page: &mut Page) {
    page.line("\nData\n====");
    for (key, value) in data.as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        page.line(&format!("{key}:\t{} bytes", bytes.map_or(0, |bytes| bytes.len())));
    }
}

pub fn signing_request(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.labels_and_annotations(object);
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.field("Requesting User", text(object, "/spec/username"));
    page.field("Signer", text(object, "/spec/signerName"));
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut states: Vec<String> = conditions.map(|condition| shown(&condition["type"])).collect();
    if states.is_empty() {
        states.push("Pending".to_owned());
    }
    if object["status"]["certificate"].is_string() {
        states.push("Issued".to_owned());
    }
    page.field("Status", &states.join(","));
}

fn tree(title: &str, value: &Value, depth: usize, page: &mut Page) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if fields.is_empty() => page.line(&format!("{indent}{title}:")),
        Value::Object(fields) => {
            page.line(&format!("{indent}{title}:"));
            fields.iter().for_each(|(field, value)| tree(&words(field), value, depth + 1, page));
        }
        Value::Array(items) if items.is_empty() => page.line(&format!("{indent}{title}:")),
        Value::Array(items) => {
            page.line(&format!("{indent}{title}:"));
            for item in items {
                match item {
                    Value::Object(fields) => {
                        fields.iter().for_each(|(field, value)| tree(&words(field), value, depth + 1, page));
                    }
                    item => page.line(&format!("{indent}  {}", shown(item))),
                }
            }
        }
        value => shown(value).split('\n').enumerate().for_each(|(index, line)| match index {
            0 => page.line(&format!("{indent}{title}:\t{line}")),
            _ => page.line(&format!("{indent}\t{line}")),
        }),
    }
}

/// `hostNetwork` is `Host Network`.
fn words(field: &str) -> String {
    // Keys that are not fields' names stay as they are.
    if field.contains(['.', '/', '-', '_']) {
        return field.to_owned();
    }
    let mut words = String::new();
    let mut last_was_lower = false;
    for (index, letter) in field.chars().enumerate() {
        if letter.is_uppercase() && last_was_lower {
            words.push(' ');
        }
        last_was_lower = letter.is_lowercase() || letter.is_numeric();
        if index == 0 { words.extend(letter.to_uppercase()) } else { words.push(letter) }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_read_as_words() {
        let check = |field: &str, expected: &str| assert_eq!(words(field), expected);
        check("hostNetwork", "Host Network");
        check("podIP", "Pod IP");
        check("app.kubernetes.io/name", "app.kubernetes.io/name");
    }

    #[test]
    fn an_object_is_shown_whole() {
        let resource = Resource {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Shelf".into(),
            ..Resource::default()
        };
        let object = json!({"kind": "Shelf", "metadata": {"name": "oak", "namespace": "default", "labels": {"a": "b"}},
            "spec": {"size": "small", "books": [{"title": "Emma"}], "args": ["x"]}});
        let mut page = Page::default();
        describe(&resource, &object, &mut page);
        let expected = "Name:         oak\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\
            API Version:  example.com/v1\nKind:         Shelf\nMetadata:\nSpec:\n  Args:\n    x\n  Books:\n    \
            Title:  Emma\n  Size:     small\n";
        assert_eq!(page.text(), expected);
    }
}
