//! CSIDriver: what a storage driver can do and needs.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::{Value, json};
use std::collections::HashSet;

const LEAST_TOKEN_SECONDS: i64 = 600;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("AttachRequired", "boolean", |driver, _| flag(driver, "attachRequired", true)),
            column("PodInfoOnMount", "boolean", |driver, _| flag(driver, "podInfoOnMount", false)),
            column("StorageCapacity", "boolean", |driver, _| flag(driver, "storageCapacity", false)),
            column("TokenRequests", "string", |driver, _| token_requests_cell(driver).into()),
            column("RequiresRepublish", "boolean", |driver, _| flag(driver, "requiresRepublish", false)),
            column("Modes", "string", |driver, _| modes_cell(driver).into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        default,
        prepare,
        validate,
        validate_update,
        ..Kind::new::<CSIDriver>().with_generation()
    }
}

/// Generations of drivers are counted from the first change on, not from the beginning.
fn prepare(driver: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        object_mut(driver, "metadata").remove("generation");
    }
}

fn default(driver: &mut Value) {
    object_mut(driver, "spec");
    let spec = &mut driver["spec"];
    set_default(spec, "attachRequired", true);
    for name in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set_default(spec, name, false);
    }
    set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if printing::items(spec, "volumeLifecycleModes").is_empty() {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

fn validate(driver: &Field<'_>, errors: &mut Errors) {
    let spec = driver.get("spec");
    // Upstream calls the first one so.
    for (name, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
        ("seLinuxMount", "seLinuxMount"),
    ] {
        if !spec.get(name).exists() {
            spec.get(shown).complain(Reason::Required, "", errors);
        }
    }
    spec.get("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"], errors);
    validate_token_requests(&spec.get("tokenRequests"), errors);
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !matches!(mode.text(), "Persistent" | "Ephemeral")) {
        modes.with_value(mode.value()).not_supported(&["Persistent", "Ephemeral"], errors);
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|seconds| seconds < 10) {
        period.invalid("must be greater than or equal to 10 seconds", errors);
    }
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if in_secrets.exists() && spec.get("tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        in_secrets.invalid(detail, errors);
    }
}

fn validate_token_requests(requests: &Field<'_>, errors: &mut Errors) {
    let mut audiences = HashSet::new();
    for request in requests.items() {
        let (audience, expiration) = (request.get("audience"), request.get("expirationSeconds"));
        if !audiences.insert(audience.text().to_owned()) {
            audience.duplicate(errors);
            continue;
        }
        match expiration.int() {
            Some(seconds) if seconds < LEAST_TOKEN_SECONDS => {
                expiration.invalid("may not specify a duration less than 10 minutes", errors);
            }
            Some(seconds) if seconds > 1 << 32 => {
                expiration.invalid("may not specify a duration larger than 2^32 seconds", errors);
            }
            _ => {}
        }
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let attach = spec.get("attachRequired");
    spec.get("attachedRequired").with_value(attach.value()).immutable(&before.get("attachRequired"), errors);
    spec.get("volumeLifecycleModes").immutable(&before.get("volumeLifecycleModes"), errors);
}

fn flag(driver: &Value, name: &str, default: bool) -> Value {
    driver["spec"][name].as_bool().unwrap_or(default).into()
}

fn token_requests_cell(driver: &Value) -> String {
    if printing::at(driver, "spec.tokenRequests").is_none() {
        return "<unset>".into();
    }
    let requests = printing::items(driver, "spec.tokenRequests").iter();
    requests.map(|request| printing::text(request, "audience")).collect::<Vec<_>>().join(",")
}

fn modes_cell(driver: &Value) -> String {
    let modes = printing::items(driver, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str);
    printing::or_none(&modes.collect::<Vec<_>>().join(",")).into()
}
