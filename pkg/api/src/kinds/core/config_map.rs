//! ConfigMap: files and settings for pods.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::names;
use crate::printing::{age_column, at, name_column};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

/// A ConfigMap or a Secret may hold this many bytes.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update,
        columns: vec![
            name_column(),
            column("Data", "string", |map, _| {
                let count = |name| at(map, name).and_then(Value::as_object).map_or(0, serde_json::Map::len);
                (count("data") + count("binaryData")).into()
            }),
            age_column(),
        ],
        ..Kind::new::<ConfigMap>().short(&["cm"])
    }
}

/// Complains about changes of the named members once `immutable` is set.
pub(super) fn validate_immutable(new: &Field<'_>, old: &Field<'_>, members: &[&str], errors: &mut Errors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.get("immutable").bool() {
        return;
    }
    if !new.get("immutable").bool() {
        new.get("immutable").forbidden(DETAIL, errors);
    }
    for name in members {
        if !crate::meta::same_or_both_empty(new.get(name).value(), old.get(name).value()) {
            new.get(name).forbidden(DETAIL, errors);
        }
    }
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    let digits = base64.trim_end_matches('=').len();
    digits * 3 / 4
}

fn validate(map: &Field<'_>, errors: &mut Errors) {
    let (data, binary) = (map.get("data"), map.get("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for fault in names::is_config_map_key(key) {
            value.invalid_value(key, fault, errors);
        }
        if binary.key(key).exists() {
            value.invalid_value(key, "duplicate of key present in binaryData", errors);
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        for fault in names::is_config_map_key(key) {
            value.invalid_value(key, fault, errors);
        }
        bytes += decoded_len(value.text());
    }
    if bytes > MOST_BYTES {
        map.too_long(MOST_BYTES, errors);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_immutable(new, old, &["data", "binaryData"], errors);
}
