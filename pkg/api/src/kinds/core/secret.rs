//! Secret: what a ConfigMap is, for what others must not see.

use super::config_map::{MOST_BYTES, decoded_len, validate_immutable};
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::fill;
use crate::names;
use crate::object::object_mut;
use crate::printing::{age_column, at, name_column, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_update,
        columns: vec![
            name_column(),
            column("Type", "string", |secret, _| text(secret, "type").into()),
            column("Data", "string", |secret, _| {
                at(secret, "data").and_then(Value::as_object).map_or(0, Map::len).into()
            }),
            age_column(),
        ],
        ..Kind::new::<Secret>().selectable(&["type"])
    }
}

/// `stringData` is only a way to write `data`.
fn default(secret: &mut Value) {
    fill(secret, "type", "Opaque");
    let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|members| members.remove("stringData"))
    else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    let data = object_mut(secret, "data");
    for (key, value) in plain {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
}

fn validate(secret: &Field<'_>, errors: &mut Errors) {
    let data = secret.get("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for fault in names::is_config_map_key(key) {
            value.invalid_value(key, fault, errors);
        }
        bytes += decoded_len(value.text());
    }
    if bytes > MOST_BYTES {
        data.too_long(MOST_BYTES, errors);
    }
    let missing = |key: &str, errors: &mut Errors| {
        if !data.key(key).exists() {
            data.key(key).complain(Reason::Required, "", errors);
        }
    };
    match secret.get("type").text() {
        "kubernetes.io/service-account-token" => {
            let metadata = secret.get("metadata");
            let annotations = metadata.get("annotations");
            annotations.key("kubernetes.io/service-account.name").required(errors);
        }
        "kubernetes.io/dockercfg" => validate_docker_config(&data.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => validate_docker_config(&data.key(".dockerconfigjson"), errors),
        "kubernetes.io/basic-auth" if !data.key("username").exists() && !data.key("password").exists() => {
            missing("username", errors);
            missing("password", errors);
        }
        "kubernetes.io/ssh-auth" => {
            data.key("ssh-privatekey").required(errors);
        }
        "kubernetes.io/tls" => {
            missing("tls.crt", errors);
            missing("tls.key", errors);
        }
        _ => {}
    }
}

fn validate_docker_config(config: &Field<'_>, errors: &mut Errors) {
    if !config.exists() {
        config.complain(Reason::Required, "", errors);
        return;
    }
    let bytes = STANDARD.decode(config.text()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&bytes) {
        config.invalid_value("<secret contents redacted>", error.to_string(), errors);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    new.get("type").immutable(&old.get("type"), errors);
    validate_immutable(new, old, &["data"], errors);
}
