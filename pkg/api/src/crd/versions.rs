//! All versions of a custom kind together: how its objects are read, whichever version they were stored in.

use super::{flag, selectable_fields, text, versions};
use crate::kind::CustomSchema;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a definition says of its versions, served or not. Two that are equal read objects alike.
#[derive(PartialEq)]
pub struct Versions {
    schemas: BTreeMap<Box<str>, Arc<CustomSchema>>,
    /// What selectors may name in any served version.
    pub selectable_fields: Vec<String>,
    /// Who converts between versions (`spec.conversion.webhook`), where more than the name differs.
    pub conversion_webhook: Option<Value>,
}

impl Versions {
    /// Compiles the schemas of a definition.
    pub(super) fn new(definition: &Value) -> Versions {
        let schema = |version: &Value| {
            let given = version.pointer("/schema/openAPIV3Schema").cloned();
            Arc::new(CustomSchema::new(given.unwrap_or_else(|| json!({}))))
        };
        let schemas = versions(definition).map(|version| (text(version, "name").into(), schema(version)));
        let served = versions(definition).filter(|version| flag(version, "served"));
        let mut fields: Vec<String> = served.flat_map(selectable_fields).collect();
        fields.sort_unstable();
        fields.dedup();
        let conversion = &definition["spec"]["conversion"];
        let webhook = (text(conversion, "strategy") == "Webhook").then(|| conversion["webhook"].clone());
        Versions { schemas: schemas.collect(), selectable_fields: fields, conversion_webhook: webhook }
    }

    pub(super) fn schema(&self, version: &str) -> Option<&Arc<CustomSchema>> {
        self.schemas.get(version)
    }

    /// Makes a stored object what the definition says now, by the version it was stored in: it may say more, or less,
    /// than when the object was written.
    pub fn read(&self, object: &mut Value) {
        if let Some(schema) = self.schema_of(object) {
            schema.prune(object);
            schema.default(object);
        }
    }

    /// Removes from an object what its version does not have.
    pub fn prune(&self, object: &mut Value) {
        if let Some(schema) = self.schema_of(object) {
            schema.prune(object);
        }
    }

    fn schema_of(&self, object: &Value) -> Option<&Arc<CustomSchema>> {
        self.schema(object["apiVersion"].as_str()?.rsplit('/').next()?)
    }
}
