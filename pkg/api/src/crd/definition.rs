//! The schemas in a definition. What stands around them is the business of the CustomResourceDefinition's own kind.

use super::structural::{Additional, Structural};
use super::validations::Rule;
use super::{format, rules, text, versions};
use crate::field::{Errors, Field};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Complains about the schemas and selectable fields of a definition's versions; `spec` is the definition's.
///
/// Where all versions say the same, upstream sees it once, above the versions, and so do its complaints.
pub fn validate_schemas(spec: &Field<'_>, errors: &mut Errors) {
    let list = spec.get("versions");
    let has_status = |version: &Value| version.pointer("/subresources/status").is_some_and(Value::is_object);
    let all: Vec<&Value> = list.value().as_array().into_iter().flatten().collect();
    let shared = |name: &str| {
        let first = all.first()?.get(name).filter(|value| !value.is_null())?;
        all.iter().all(|version| version.get(name) == Some(first)).then_some(first)
    };
    if let Some(shared) = shared("schema") {
        let place = spec.get("validation");
        let schema = place.with_value(shared);
        let schema = schema.get("openAPIV3Schema");
        if schema.exists() {
            rules::validate(&schema, all.iter().any(|version| has_status(version)), errors);
        }
    } else {
        for version in list.items() {
            let schema = version.get("schema");
            let schema = schema.get("openAPIV3Schema");
            if schema.exists() {
                rules::validate(&schema, has_status(version.value()), errors);
            }
        }
    }
    if let (Some(schema), Some(fields)) = (shared("schema"), shared("selectableFields")) {
        let schema = schema.get("openAPIV3Schema").unwrap_or(&Value::Null);
        validate_selectable_fields(&spec.get("selectableFields").with_value(fields), schema, errors);
    } else {
        for version in list.items() {
            let schema = version.value().pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
            validate_selectable_fields(&version.get("selectableFields"), schema, errors);
        }
    }
}

/// What the writer of a definition should know though it is accepted: formats nobody checks, rules that are not
/// evaluated.
pub fn warnings(definition: &Value) -> Vec<String> {
    let mut formats = BTreeSet::new();
    let mut warnings = Vec::new();
    for (index, version) in versions(definition).enumerate() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { continue };
        survey(schema, &mut formats);
        let mut missing = BTreeMap::new();
        missing_functions(&Structural::compile(schema), &mut missing);
        for (function, rules) in missing {
            warnings.push(format!(
                "spec.versions[{index}].schema.openAPIV3Schema: {rules} x-kubernetes-validations rules are stored but \
                 not evaluated by this server, which does not have their function {function}"
            ));
        }
    }
    formats.into_iter().map(|format| format!("unrecognized format {format:?}")).chain(warnings).collect()
}

/// The most fields by which objects of one version may be selected.
const MOST_SELECTABLE_FIELDS: usize = 8;

/// Counts rules in CEL by the functions for which they are not evaluated.
fn missing_functions(node: &Structural, missing: &mut BTreeMap<String, usize>) {
    if !node.has_validations {
        return;
    }
    for function in node.validations().iter().flat_map(Rule::missing) {
        *missing.entry(function.to_owned()).or_default() += 1;
    }
    let below = node.properties.values().chain(node.items.as_deref());
    below.for_each(|node| missing_functions(node, missing));
    if let Additional::Schema(node) = &node.additional {
        missing_functions(node, missing);
    }
}

/// Finds formats that are not checked.
fn survey<'a>(schema: &'a Value, formats: &mut BTreeSet<&'a str>) {
    let format = text(schema, "format");
    if text(schema, "type") == "string" && !format.is_empty() && !format::is_known(format) {
        formats.insert(format);
    }
    for property in schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|p| p.values()) {
        survey(property, formats);
    }
    for below in ["items", "additionalProperties", "not"].into_iter().filter_map(|name| schema.get(name)) {
        survey(below, formats);
    }
    for clauses in ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name)?.as_array()) {
        clauses.iter().for_each(|clause| survey(clause, formats));
    }
}

fn validate_selectable_fields(fields: &Field<'_>, schema: &Value, errors: &mut Errors) {
    if fields.is_empty() {
        return;
    }
    let compiled = Structural::compile(schema);
    let mut seen: Vec<String> = Vec::new();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if !path.required(errors) {
            continue;
        }
        let steps: Vec<&str> = path.text().trim_start_matches('.').split('.').collect();
        let Some(node) = compiled.at(&steps).filter(|_| path.text().starts_with('.')) else {
            path.invalid("is an invalid path: does not refer to a valid field", errors);
            continue;
        };
        if steps[0] == "metadata" {
            path.invalid("must not point to fields in metadata", errors);
        }
        if !node.is_selectable() {
            path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
                errors,
            );
        }
        if seen.iter().any(|seen| seen == path.text()) {
            path.duplicate(errors);
        } else {
            seen.push(path.text().to_owned());
        }
    }
    if seen.len() > MOST_SELECTABLE_FIELDS {
        fields.too_many(MOST_SELECTABLE_FIELDS, errors);
    }
}

#[cfg(test)]
mod tests;
