//! ControllerRevision: what a StatefulSet or DaemonSet once was, so that it can be again.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::{names, printing};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Controller", "string", |revision, _| controller_cell(revision)),
            column("Revision", "string", |revision, _| printing::int(revision, "revision").into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate: |revision, errors| revision.get("revision").non_negative(errors),
        validate_create: |revision, errors| validate_data(&revision.get("data"), errors),
        validate_update: |new, old, errors| new.get("data").immutable(&old.get("data"), errors),
        ..Kind::new::<ControllerRevision>()
    }
}

fn validate_data(data: &Field<'_>, errors: &mut Errors) {
    if !data.exists() {
        data.complain(Reason::Required, "data is mandatory", errors);
    } else if data.object().is_none() {
        data.complain(Reason::Required, "data must be a valid JSON object", errors);
    }
}

/// `statefulset.apps/web`.
fn controller_cell(revision: &Value) -> Value {
    let owners = printing::items(revision, "metadata.ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else {
        return printing::NONE.into();
    };
    let (kind, name) = (printing::text(owner, "kind").to_lowercase(), printing::text(owner, "name"));
    match printing::text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}").into(),
        None => format!("{kind}/{name}").into(),
    }
}
