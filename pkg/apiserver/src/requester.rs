//! Who asks for a certificate is part of what is asked for, so the server writes it down, not the client.

use crate::auth::User;
use api::{Kind, Value, object};
use serde_json::json;

/// Sets the requester of a new CertificateSigningRequest; other kinds have none.
pub fn stamp(kind: &Kind, request: &mut Value, user: &User) {
    if kind.plural != "certificatesigningrequests" || kind.group != "certificates.k8s.io" {
        return;
    }
    let spec = object::object_mut(request, "spec");
    spec.insert("username".into(), user.name.as_str().into());
    spec.insert("groups".into(), json!(user.groups));
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
}
