//! Custom kinds: what a CustomResourceDefinition says, turned into [`Kind`]s.
//!
//! ```text
//! CustomResourceDefinition ──validate_schemas──> Errors          (may it be stored?)
//!            │             ──next_status──> names, conditions      (may it be served?)
//!            └──kinds──> Kind ── CustomSchema ── Structural ──> prune, default, validate   (its objects)
//!                             └─ Versions ──> read                                          (stored ones)
//! ```
//!
//! Everything here is a pure function of JSON. Of the rules in CEL (`x-kubernetes-validations`) those that call a
//! function that is not here are kept and served but not evaluated; [`warnings`] says so to whoever writes them.

mod check;
mod definition;
mod format;
mod keywords;
pub(crate) mod regexp;
mod rules;
mod shape;
mod status;
mod structural;
pub(crate) mod typing;
mod validations;
mod versions;

pub use definition::{validate_schemas, warnings};
pub use status::{Names, mark_terminating, next_status};
pub use structural::Structural;
pub use versions::Versions;

use crate::field::{Errors, FieldError, Reason};
use crate::kind::{Cell, Column, CustomSchema, Kind, Scope, Subresource};
use crate::names::dns_subdomain_name;
use crate::schema::{Format, Properties, Schema, Type, TypeError, UnknownField, definitions};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Where objects of every kind keep what all kinds share.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The kinds that a definition serves: one per served version, the stored one included only if it is served.
///
/// The definition must be one that was accepted; of any other, what can be used is.
pub fn kinds(definition: &Value) -> Vec<Kind> {
    let all = Arc::new(Versions::new(definition));
    versions(definition)
        .filter(|version| flag(version, "served"))
        .map(|v| kind(definition, v, &all))
        .collect()
}

/// The name of the version in which objects are stored.
pub fn storage_version(definition: &Value) -> Option<&str> {
    versions(definition).find(|version| flag(version, "storage"))?.get("name")?.as_str()
}

/// What everybody who uses a version should be told, if it is deprecated.
pub fn deprecation_warning(definition: &Value, version: &str) -> Option<String> {
    let found = versions(definition).find(|found| text(found, "name") == version)?;
    if !flag(found, "deprecated") {
        return None;
    }
    let spec = &definition["spec"];
    Some(match text(found, "deprecationWarning") {
        "" => format!("{}/{version} {} is deprecated", text(spec, "group"), text(&spec["names"], "kind")),
        warning => warning.to_owned(),
    })
}

/// All else follows from what was given.
impl PartialEq for CustomSchema {
    fn eq(&self, other: &CustomSchema) -> bool {
        self.json == other.json
    }
}

impl CustomSchema {
    /// Takes a schema as a definition gives it (`openAPIV3Schema`), and compiles it once for all objects.
    pub fn new(json: Value) -> CustomSchema {
        let structural = Structural::compile(&json);
        let mut schema = Schema::from_json(&json);
        add_object_meta(&mut schema);
        CustomSchema { json, schema, structural }
    }

    /// Checks a decoded object's metadata, removes members that the schema does not have, and lists their paths: what
    /// [`Schema::check`] does for built-in kinds.
    pub fn check(&self, object: &mut Value) -> Result<Vec<UnknownField>, TypeError> {
        let mut unknown = ENVELOPE.check(object)?;
        unknown.extend(self.prune(object));
        Ok(unknown)
    }

    /// Removes members that the schema does not have, and lists their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<UnknownField> {
        shape::prune(&self.structural, object, true)
    }

    /// Fills in the schema's defaults, after dropping `null`s that mean nothing.
    pub fn default(&self, object: &mut Value) {
        shape::default(&self.structural, object);
    }

    /// Complains about an object that is not as the schema says. Of an update, parts that were already so in `old`
    /// and are unchanged are let be: a schema may have become stricter since they were written.
    pub fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        check::validate(&self.structural, object, old, errors);
        if !self.structural.has_validations {
            return;
        }
        let stops_rules = |error: &FieldError| {
            use Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.as_slice().iter().any(stops_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            let (path, value) = (String::new(), Some(Value::Null));
            errors.push(FieldError { reason: Reason::Invalid, path, value, detail: detail.to_owned() });
        } else {
            validations::check_object(&self.structural, object, old, errors);
        }
    }
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect()
}

fn kind(definition: &Value, version: &Value, all: &Arc<Versions>) -> Kind {
    let spec = &definition["spec"];
    // Names that are not accepted are another definition's: serve by those that are.
    let accepted = &definition["status"]["acceptedNames"];
    let names = if text(accepted, "plural").is_empty() { &spec["names"] } else { accepted };
    let (group, kind) = (text(spec, "group").to_owned(), text(names, "kind").to_owned());
    let version_name = text(version, "name").to_owned();
    let list_kind = match text(names, "listKind") {
        "" => format!("{kind}List"),
        given => given.to_owned(),
    };
    let singular = match text(names, "singular") {
        "" => kind.to_ascii_lowercase(),
        given => given.to_owned(),
    };
    Kind {
        deprecated: deprecation_warning(definition, &version_name).map(Into::into),
        stored_version: storage_version(definition)
            .filter(|stored| *stored != version_name)
            .map(str::to_owned),
        definition_name: definition_name(&group, &version_name, &kind),
        group,
        version: version_name,
        list_kind,
        plural: text(names, "plural").to_owned(),
        singular,
        kind,
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        scope: if text(spec, "scope") == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        subresources: subresources(&version["subresources"]),
        columns: columns(version),
        selectable_fields: selectable_fields(version),
        generation: true,
        unconditional_update: false,
        validate_name: dns_subdomain_name,
        custom: all.schema(text(version, "name")).cloned(),
        versions: Some(all.clone()),
        ..Kind::blank()
    }
}

/// The name under which OpenAPI documents list a custom kind: `com.example.stable.v1.CronTab`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

fn subresources(given: &Value) -> Vec<Subresource> {
    let mut served = Vec::new();
    if given.get("status").is_some_and(Value::is_object) {
        served.push(Subresource::Status);
    }
    if let Some(scale) = given.get("scale").filter(|scale| scale.is_object()) {
        let path = |name: &str| text(scale, name).trim_start_matches('.').to_owned();
        served.push(Subresource::Scale {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: Some(path("labelSelectorPath")).filter(|path| !path.is_empty()),
        });
    }
    served
}

/// The given columns after the name; of a definition that gives none, name and age.
fn columns(version: &Value) -> Vec<Column> {
    let given = version.get("additionalPrinterColumns").and_then(Value::as_array);
    given
        .into_iter()
        .flatten()
        .map(|column| {
            let path = text(column, "jsonPath").to_owned();
            let description = match text(column, "description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                description => description.to_owned(),
            };
            Column {
                name: text(column, "name").to_owned(),
                ty: column_type(text(column, "type")),
                format: column_format(text(column, "format")),
                description,
                priority: column["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0),
                cell: Cell::Path(path),
            }
        })
        .collect()
}

/// The types that a column may have.
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
/// The formats that a column may have.
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

fn column_type(given: &str) -> &'static str {
    COLUMN_TYPES.into_iter().find(|&ty| ty == given).unwrap_or("string")
}

fn column_format(given: &str) -> &'static str {
    COLUMN_FORMATS.into_iter().find(|&format| format == given).unwrap_or_default()
}

fn selectable_fields(version: &Value) -> Vec<String> {
    let given = version.get("selectableFields").and_then(Value::as_array);
    given
        .into_iter()
        .flatten()
        .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
        .collect()
}

/// What all objects have, and anything else.
static ENVELOPE: LazyLock<Schema> = LazyLock::new(|| {
    let ty = Type::Object { properties: Properties::default(), additional: Some(Box::default()) };
    let mut schema = Schema { ty, ..Schema::default() };
    add_object_meta(&mut schema);
    schema
});

/// The schema of a custom kind says nothing of its metadata; server-side apply and decoding must know it.
fn add_object_meta(schema: &mut Schema) {
    let Type::Object { properties, .. } = &mut schema.ty else { return };
    let scalar = Schema { ty: Type::String(Format::Plain), ..Schema::default() };
    properties.insert("apiVersion", scalar.clone());
    properties.insert("kind", scalar);
    let known =
        properties.get("metadata").is_some_and(|metadata| metadata.property("ownerReferences").is_some());
    if let Some(meta) = definitions().get(OBJECT_META).filter(|_| !known) {
        properties.insert("metadata", meta.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cron_tabs() -> Value {
        json!({"spec": {
        "group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"]},
        "versions": [
            {"name": "v1", "served": true, "storage": true,
             "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
             "selectableFields": [{"jsonPath": ".spec.color"}],
             "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
             "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}},
            {"name": "v1alpha1", "served": false, "storage": false, "deprecated": true},
        ]}})
    }

    #[test]
    fn served_versions_become_kinds() {
        let definition = cron_tabs();
        let kinds = kinds(&definition);
        assert_eq!(kinds.len(), 1);
        let kind = &kinds[0];
        assert_eq!(kind.api_version(), "stable.example.com/v1");
        assert_eq!(kind.definition_name, "com.example.stable.v1.CronTab");
        assert_eq!((kind.list_kind.as_str(), kind.singular.as_str()), ("CronTabList", "crontab"));
        assert!(kind.has_status());
        assert_eq!(
            kind.subresources[1],
            Subresource::Scale {
                spec_replicas: "spec.replicas".into(),
                status_replicas: "status.replicas".into(),
                selector: Some("status.selector".into()),
            }
        );
        assert_eq!(kind.selectable_fields, ["spec.color"]);
        assert_eq!(
            kind.columns[0].description,
            "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp"
        );
        assert_eq!(storage_version(&definition), Some("v1"));
        assert_eq!(deprecation_warning(&definition, "v1"), None);
        let warning = deprecation_warning(&definition, "v1alpha1");
        assert_eq!(warning.as_deref(), Some("stable.example.com/v1alpha1 CronTab is deprecated"));
    }

    #[test]
    fn metadata_is_checked_as_everybodys() {
        let kinds = kinds(&cron_tabs());
        let custom = kinds[0].custom.as_ref().unwrap();
        let mut object = json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "junk": 1,
            "metadata": {"name": "a", "labels": {"a": "b"}, "nonsense": 1}, "spec": {"keep": null}});
        assert_eq!(custom.check(&mut object).unwrap(), ["metadata.nonsense", "junk", "spec.keep"]);
        let mut wrong = json!({"metadata": {"labels": {"a": 1}}});
        assert_eq!(custom.check(&mut wrong).unwrap_err().path, "metadata.labels.a");
    }
}
