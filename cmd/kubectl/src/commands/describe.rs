//! `kubectl describe`: an object, indented as people read it, and what happened to it.

use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{self, SelectFlags, name_of};
use anyhow::{Result, bail};
use serde_json::Value;

/// What `describe` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl describe pod web")]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
}

/// Describes.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let found = select::objects(&connection, &flags.select).await?;
    if found.is_empty() {
        bail!("No resources found");
    }
    for (index, (resource, object)) in found.iter().enumerate() {
        if index > 0 {
            println!("\n");
        }
        print!("{}", describe(resource, object));
        print!("{}", events(&connection, object).await?);
    }
    Ok(())
}

/// Names and labels first, then everything else as it is, titles in words.
fn describe(resource: &Resource, object: &Value) -> String {
    let metadata = &object["metadata"];
    let mut lines = vec![("Name".to_owned(), name_of(object).to_owned())];
    if resource.namespaced {
        lines.push(("Namespace".into(), metadata["namespace"].as_str().unwrap_or_default().into()));
    }
    for title in ["labels", "annotations"] {
        let mut pairs = metadata[title].as_object().into_iter().flatten().map(|(key, value)| {
            format!(
                "{key}{}{}",
                if title == "labels" { "=" } else { ": " },
                value.as_str().unwrap_or_default()
            )
        });
        lines.push((words(title), pairs.next().unwrap_or_else(|| "<none>".into())));
        lines.extend(pairs.map(|pair| (String::new(), pair)));
    }
    if let Some(created) = metadata["creationTimestamp"].as_str() {
        lines.push(("Created".into(), created.into()));
    }
    if let Some(deleted) = metadata["deletionTimestamp"].as_str() {
        lines.push(("Terminating since".into(), deleted.into()));
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        lines.push(("Controlled By".into(), format!("{}/{}", text("kind"), text("name"))));
    }
    let width = lines.iter().map(|(title, _)| title.len()).max().unwrap_or_default() + 3;
    let mut text = String::new();
    for (title, value) in lines {
        let title = if title.is_empty() { title } else { format!("{title}:") };
        text.push_str(format!("{title:<width$}{value}").trim_end());
        text.push('\n');
    }
    for (field, value) in object.as_object().into_iter().flatten() {
        if matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "managedFields") {
            continue;
        }
        tree(&words(field), value, 0, &mut text);
    }
    text
}

fn tree(title: &str, value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if fields.is_empty() => text.push_str(&format!("{indent}{title}: <none>\n")),
        Value::Object(fields) => {
            text.push_str(&format!("{indent}{title}:\n"));
            fields.iter().for_each(|(field, value)| tree(&words(field), value, depth + 1, text));
        }
        Value::Array(items) if items.is_empty() => text.push_str(&format!("{indent}{title}: <none>\n")),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            text.push_str(&format!("{indent}{title}: {}\n", items.join(" ")));
        }
        Value::Array(items) => {
            text.push_str(&format!("{indent}{title}:\n"));
            for (index, item) in items.iter().enumerate() {
                let name = ["name", "type", "ip"].iter().find_map(|field| item[*field].as_str());
                let title = name.map_or_else(|| format!("#{index}"), str::to_owned);
                tree(&title, item, depth + 1, text);
            }
        }
        value => text.push_str(&format!("{indent}{title}: {}\n", scalar(value))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
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

async fn events(connection: &Connection, object: &Value) -> Result<String> {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let selector = format!(
        "involvedObject.name={},involvedObject.uid={}",
        name_of(object),
        metadata["uid"].as_str().unwrap_or_default()
    );
    let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={}", select::encode(&selector));
    let list = connection.get(&path).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        return Ok("Events: <none>\n".to_owned());
    }
    let mut rows = vec![["  Type", "Reason", "Age", "From", "Message"].map(str::to_owned).to_vec()];
    rows.extend(items.iter().map(|event| super::events::row(event, "  ")));
    Ok(format!("Events:\n{}", crate::output::table(&rows)))
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
        let resource = Resource { kind: "Pod".into(), namespaced: true, ..Resource::default() };
        let object = json!({"kind": "Pod", "metadata": {"name": "web", "namespace": "default", "labels": {"a": "b"}},
            "spec": {"hostNetwork": true, "containers": [{"name": "c", "args": ["x", "y"]}]}});
        let expected = "Name:         web\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\
            Spec:\n  Containers:\n    c:\n      Args: x y\n      Name: c\n  Host Network: true\n";
        assert_eq!(describe(&resource, &object), expected);
    }
}
