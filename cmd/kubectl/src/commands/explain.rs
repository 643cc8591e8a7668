//! `kubectl explain`: what the server's OpenAPI says of a kind and its fields.

use crate::connection::{ClusterFlags, Connection};
use crate::resources::{Catalogue, Resource};
use crate::schemas::{Schema, Schemas};
use crate::yaml::Shape;
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What `explain` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl explain pod.spec.containers\n  kubectl explain deployment --recursive"
)]
pub struct Flags {
    /// The kind, and a path of fields: pod.spec.containers.
    path: String,
    /// All fields below.
    #[arg(long)]
    recursive: bool,
    /// The group and version, such as autoscaling/v2.
    #[arg(long)]
    api_version: Option<String>,
    /// plaintext or plaintext-openapiv2.
    #[arg(long, short, default_value = "plaintext")]
    output: String,
}

/// Explains.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    if !matches!(flags.output.as_str(), "plaintext" | "plaintext-openapiv2") {
        bail!("--output={}: expected plaintext or plaintext-openapiv2", flags.output);
    }
    let connection = Connection::open(cluster).await?;
    let catalogue = Catalogue::load(&connection).await?;
    let (resource, fields) = find(&catalogue, &flags.path)?;
    let mut resource = resource.clone();
    if let Some(version) = &flags.api_version {
        let found = catalogue.of(version, &resource.kind);
        resource =
            found.with_context(|| format!("the server has no {} in {version}", resource.kind))?.clone();
    }
    let mut schemas = Schemas::default();
    let schema = schemas.kind(&connection, &resource.group, &resource.version, &resource.kind).await?;
    let schema = schema.with_context(|| {
        format!("couldn't find resource for \"{}, Kind={}\"", resource.api_version(), resource.kind)
    })?;
    print!("{}", explain(&resource, schema, &fields, flags.recursive)?);
    Ok(())
}

/// The kind that a path begins with, and the fields after it. Kinds' names may have points themselves.
fn find<'a>(catalogue: &'a Catalogue, path: &str) -> Result<(&'a Resource, Vec<String>)> {
    let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
    for count in (1..=parts.len()).rev() {
        let name = parts[..count].join(".");
        // `deployments.apps` is a kind; `pod.spec` is not.
        if let Ok(resource) = catalogue.find(&name) {
            return Ok((resource, parts[count..].iter().map(|part| (*part).to_owned()).collect()));
        }
    }
    catalogue.find(parts.first().copied().unwrap_or_default()).map(|resource| (resource, Vec::new()))
}

fn explain(resource: &Resource, schema: Schema<'_>, fields: &[String], recursive: bool) -> Result<String> {
    let mut text = String::new();
    if !resource.group.is_empty() {
        text.push_str(&format!("GROUP:      {}\n", resource.group));
    }
    text.push_str(&format!("KIND:       {}\nVERSION:    {}\n\n", resource.kind, resource.version));
    let mut at = schema;
    let mut own = schema;
    for (index, field) in fields.iter().enumerate() {
        let found = at.properties().find(|(name, _)| *name == field).map(|(_, schema)| schema);
        let Some(found) = found else {
            let hint = crate::suggest::closest(field, at.properties().map(|(name, _)| name.as_str()));
            let hint = hint.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
            bail!("field \"{field}\" does not exist{hint}");
        };
        if index + 1 == fields.len() {
            text.push_str(&format!("FIELD: {field} <{}>\n\n", type_of(found)));
            let values = enumeration(found, "");
            text.push_str(if values.is_empty() { "\n" } else { &values });
        }
        own = found;
        at = inner(found);
    }
    text.push_str("DESCRIPTION:\n");
    let description = own.own().and_then(|node| node["description"].as_str());
    let below = at.node().and_then(|node| node["description"].as_str());
    for part in [description, below.filter(|below| Some(*below) != description)].into_iter().flatten() {
        text.push_str(&wrapped(part, 4));
        text.push('\n');
    }
    if description.is_none() && below.is_none() {
        text.push_str("    <empty>\n");
    }
    text.push('\n');
    if at.properties().next().is_some() {
        text.truncate(text.trim_end_matches('\n').len());
        text.push_str("\n    \nFIELDS:\n");
        list(at, 1, recursive, &mut text);
    }
    text.push('\n');
    Ok(text)
}

/// What is inside of lists and maps.
fn inner(schema: Schema<'_>) -> Schema<'_> {
    let mut at = schema;
    for _ in 0..4 {
        let next = if at.element().is_known() { at.element() } else { at.values() };
        if at.properties().next().is_some() || !next.is_known() {
            break;
        }
        at = next;
    }
    at
}

fn list(schema: Schema<'_>, depth: usize, recursive: bool, text: &mut String) {
    let indent = "  ".repeat(depth);
    for (name, field) in schema.properties() {
        text.push_str(&format!("{indent}{name}\t<{}>{}\n", type_of(field), required(schema, name)));
        if recursive {
            text.push_str(&enumeration(field, &indent));
            // Schemas of custom kinds may contain themselves.
            if depth < 15 {
                list(inner(field), depth + 1, true, text);
            }
            continue;
        }
        text.push_str(&enumeration(field, &indent));
        let description = field.own().and_then(|node| node["description"].as_str());
        let description = description.or_else(|| field.node().and_then(|node| node["description"].as_str()));
        text.push_str(&wrapped(description.unwrap_or("<no description>"), 2 * depth + 2));
        text.push_str("\n\n");
    }
}

fn required(schema: Schema<'_>, field: &str) -> &'static str {
    let names = schema.node().and_then(|node| node["required"].as_array());
    if names.into_iter().flatten().any(|name| name == field) { " -required-" } else { "" }
}

fn enumeration(schema: Schema<'_>, indent: &str) -> String {
    let Some(values) =
        schema.node().and_then(|node| node["enum"].as_array()).filter(|values| !values.is_empty())
    else {
        return String::new();
    };
    let shown = |value: &Value| {
        value.as_str().map_or_else(
            || value.to_string(),
            |text| if text.is_empty() { "\"\"".into() } else { text.to_owned() },
        )
    };
    let values: Vec<String> = values.iter().map(shown).collect();
    if indent.is_empty() {
        let lines: String = values.iter().map(|value| format!("    {value}\n")).collect();
        return format!("ENUM:\n{lines}\n");
    }
    let many = if values.len() > 4 { format!("{}, ....", values[..4].join(", ")) } else { values.join(", ") };
    format!("{indent}enum: {many}\n")
}

/// `[]Container`, `map[string]string`, `integer`.
fn type_of(schema: Schema<'_>) -> String {
    if schema.element().is_known() {
        return format!("[]{}", type_of(schema.element()));
    }
    if let Some(name) = schema.reference() {
        let node = schema.node();
        let is_plain = node
            .is_some_and(|node| matches!(node["type"].as_str(), Some("string")) || node["oneOf"].is_array());
        return match name {
            "Time" | "MicroTime" if is_plain => "string".into(),
            name => name.to_owned(),
        };
    }
    if schema.values().is_known() {
        return format!("map[string]{}", type_of(schema.values()));
    }
    let node = schema.node();
    let name = node.and_then(|node| node["type"].as_str()).unwrap_or("Object");
    if name == "object" { "Object".into() } else { name.to_owned() }
}

/// A text in lines of at most 80 letters, indented; its own lines stay apart.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && indent + line.len() + 1 + word.len() > 80 {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    let indent = " ".repeat(indent);
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}
