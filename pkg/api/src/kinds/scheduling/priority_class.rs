//! PriorityClass: a name for how important pods are.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::json;

/// Users' own classes are at most this important.
const MOST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
/// The classes whose names start with [`SYSTEM_PREFIX`], and their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Value", "integer", |class, _| printing::int(class, "value").into()),
            column("Global-Default", "boolean", |class, _| (class["globalDefault"] == true).into()),
            printing::age_column(),
            column("PreemptionPolicy", "string", |class, _| printing::text(class, "preemptionPolicy").into()),
        ],
        validate_name: names::dns_subdomain_name,
        default: |class| set_default(class, "preemptionPolicy", "PreemptLowerPriority"),
        prepare: |class, old| {
            // What matters of a class never changes, and neither does its generation.
            if old.is_none() {
                object_mut(class, "metadata").insert("generation".into(), json!(1));
            }
        },
        validate,
        validate_update,
        ..Kind::new::<PriorityClass>().short(&["pc"])
    }
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    let metadata = class.get("metadata");
    let (name, value) = (metadata.get("name"), class.get("value"));
    let amount = value.int().unwrap_or(0);
    if name.text().starts_with(SYSTEM_PREFIX) {
        let system = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name.text());
        let fault = match system {
            None => Some(format!("{} is not a known system priority class", name.text())),
            Some((name, value)) if *value != amount => {
                Some(format!("value of {name} PriorityClass must be {value}"))
            }
            Some((name, _)) if class.get("globalDefault").bool() => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(fault) = fault {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {fault}"
            );
            name.forbidden(detail, errors);
        }
    } else if amount > MOST_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MOST_USER_PRIORITY}");
        value.forbidden(detail, errors);
    }
    class.get("preemptionPolicy").one_of(&["Never", "PreemptLowerPriority"], errors);
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let value = new.get("value");
    if value.int().unwrap_or(0) != old.get("value").int().unwrap_or(0) {
        value.forbidden("may not be changed in an update.", errors);
    }
    new.get("preemptionPolicy").immutable(&old.get("preemptionPolicy"), errors);
}
