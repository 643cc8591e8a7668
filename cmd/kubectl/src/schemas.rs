//! What the server's OpenAPI says of kinds: types of fields for YAML's traps, names for suggestions, words for `explain`.

use crate::connection::Connection;
use crate::resources::Resource;
use crate::yaml::{Shape, Wanted};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::HashMap;

/// Documents of group versions, each asked for once.
#[derive(Default)]
pub struct Schemas {
    documents: HashMap<String, Option<Value>>,
}

impl Schemas {
    /// The schema of a kind; `None` if the server says nothing of it.
    pub async fn of(&mut self, connection: &Connection, resource: &Resource) -> Option<Schema<'_>> {
        self.kind(connection, &resource.group, &resource.version, &resource.kind).await.ok().flatten()
    }

    /// The schema of a kind of a group and version.
    pub async fn kind(
        &mut self,
        connection: &Connection,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Schema<'_>>> {
        let root =
            if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        if !self.documents.contains_key(&root) {
            let document = match connection.get(&format!("/openapi/v3/{root}")).await {
                Ok(document) => Some(document),
                Err(error) if crate::connection::is_not_found(&error) => None,
                Err(error) => return Err(error).context("ask for the server's schemas"),
            };
            self.documents.insert(root.clone(), document);
        }
        let Some(Some(document)) = self.documents.get(&root) else { return Ok(None) };
        let schemas = document["components"]["schemas"].as_object();
        let is_it = |schema: &&Value| {
            schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().any(|gvk| {
                gvk["group"].as_str().unwrap_or_default() == group
                    && gvk["version"] == version
                    && gvk["kind"] == kind
            })
        };
        let found = schemas.into_iter().flat_map(|schemas| schemas.values()).find(is_it);
        Ok(found.map(|node| Schema { document, node: Some(node) }))
    }
}

/// A part of a schema; or nothing, below what is known.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    document: &'a Value,
    node: Option<&'a Value>,
}

impl<'a> Schema<'a> {
    /// The schema itself, references followed.
    pub fn node(self) -> Option<&'a Value> {
        let mut node = self.node?;
        // References are not circles, but a document may be anything.
        for _ in 0..16 {
            let reference =
                node["$ref"].as_str().or_else(|| match node["allOf"].as_array().map(Vec::as_slice) {
                    Some([only]) => only["$ref"].as_str(),
                    _ => None,
                });
            match reference.and_then(|reference| self.document.pointer(reference.trim_start_matches('#'))) {
                Some(next) => node = next,
                None => break,
            }
        }
        Some(node)
    }

    /// What the field itself says, before references are followed: its own description and default.
    pub fn own(self) -> Option<&'a Value> {
        self.node
    }

    /// The name of what is referred to: `Container`.
    pub fn reference(self) -> Option<&'a str> {
        let node = self.node?;
        let reference = node["$ref"].as_str().or_else(|| node["allOf"][0]["$ref"].as_str())?;
        reference.rsplit(['.', '/']).next()
    }

    /// Fields by name.
    pub fn properties(self) -> impl Iterator<Item = (&'a String, Schema<'a>)> {
        let properties = self.node().and_then(|node| node["properties"].as_object());
        let document = self.document;
        properties
            .into_iter()
            .flatten()
            .map(move |(name, node)| (name, Schema { document, node: Some(node) }))
    }

    fn child(self, node: Option<&'a Value>) -> Schema<'a> {
        Schema { document: self.document, node: node.filter(|node| node.is_object()) }
    }

    /// What keys of a map hold.
    pub fn values(self) -> Schema<'a> {
        self.child(self.node().and_then(|node| node.get("additionalProperties")))
    }

    /// Whether anything is known.
    pub fn is_known(self) -> bool {
        self.node.is_some()
    }
}

impl Shape for Schema<'_> {
    fn wanted(self) -> Wanted {
        let Some(node) = self.node() else { return Wanted::Anything };
        match node["type"].as_str() {
            Some("string") if node["format"] == "int-or-string" => Wanted::Anything,
            Some("string") => Wanted::Text,
            Some("boolean") => Wanted::Boolean,
            Some("integer" | "number") => Wanted::Number,
            _ => Wanted::Anything,
        }
    }

    fn field(self, name: &str) -> Self {
        let known = self.node().and_then(|node| node["properties"].get(name));
        match known {
            Some(node) => self.child(Some(node)),
            None => self.values(),
        }
    }

    fn element(self) -> Self {
        self.child(self.node().and_then(|node| node.get("items")))
    }
}

/// The field that somebody may have meant by a path that the schema does not have.
pub fn suggestion(schema: Schema<'_>, path: &str) -> Option<String> {
    let steps = crate::yaml::steps(path);
    let (last, parents) = steps.split_last()?;
    let mut at = schema;
    for step in parents {
        at = if step.bytes().all(|byte| byte.is_ascii_digit()) { at.element() } else { at.field(step) };
    }
    let names: Vec<&str> = at.properties().map(|(name, _)| name.as_str()).collect();
    crate::suggest::closest(last, names.into_iter()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;
    use serde_json::json;

    fn document() -> Value {
        json!({"components": {"schemas": {
            "io.Meta": {"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string", "default": ""}}}},
            "io.Volume": {"type": "object", "properties": {
                "defaultMode": {"type": "integer", "format": "int32"}, "readOnly": {"type": "boolean"}}},
            "io.Pod": {"type": "object", "properties": {
                "metadata": {"allOf": [{"$ref": "#/components/schemas/io.Meta"}], "default": {}},
                "volumes": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.Volume"}]}},
                "port": {"type": "string", "format": "int-or-string"},
            }},
        }}})
    }

    #[test]
    fn traps_are_read_by_the_type_of_their_field() {
        let document = document();
        let schema = Schema { document: &document, node: document.pointer("/components/schemas/io.Pod") };
        let text = "metadata: {labels: {resourcePolicy: on, zip: 0123}}\n\
            volumes: [{defaultMode: 0644, readOnly: yes}]\nport: 010\nother: off\n";
        let node = parse(text).expect("readable").expect("something");
        assert!(node.has_traps());
        let expected = json!({
            "metadata": {"labels": {"resourcePolicy": "on", "zip": "0123"}},
            "volumes": [{"defaultMode": 420, "readOnly": true}], "port": 8, "other": false,
        });
        assert_eq!(node.resolve(schema), expected);
    }

    #[test]
    fn fields_nearby_are_suggested() {
        let document = document();
        let schema = Schema { document: &document, node: document.pointer("/components/schemas/io.Pod") };
        assert_eq!(suggestion(schema, "volumes[0].defaultmode"), Some("defaultMode".into()));
        assert_eq!(suggestion(schema, "volume"), Some("volumes".into()));
        assert_eq!(suggestion(schema, "metadata.labels.x"), None);
    }
}
