//! APIService: a version of a group, and the service that answers for it where that is not this server.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::object::set_default;
use crate::{names, object, printing};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::{Value, json};

/// What is said of every one that this server answers for itself: status, reason and message of `Available`.
pub const LOCAL: (&str, &str, &str) = ("True", "Local", "Local APIServices are always available");

/// The kind.
pub fn kind() -> Kind {
    Kind {
        categories: vec!["api-extensions".into()],
        columns: vec![
            printing::name_column(),
            column("Service", "string", |service, _| server(service).into()),
            column("Available", "string", |service, _| available(service).into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::path_segment_name,
        default,
        prepare,
        validate,
        validate_status: |new, _, errors| {
            for condition in new.get("status").get("conditions").items() {
                condition.get("status").one_of(&["True", "False", "Unknown"], errors);
            }
        },
        ..Kind::new::<APIService>().with_status()
    }
}

fn default(service: &mut Value) {
    if let Some(service) = service.pointer_mut("/spec/service").filter(|service| service.is_object()) {
        set_default(service, "port", 443);
    }
}

/// Whether a server elsewhere answers is yet to be found out; that this one does is known from the beginning.
fn prepare(service: &mut Value, old: Option<&Value>) {
    if old.is_none() && printing::at(service, "spec.service").is_none() {
        let (status, reason, message) = LOCAL;
        let since = service["metadata"]["creationTimestamp"].clone();
        service["status"] = json!({"conditions": [{
            "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        }]});
    }
}

fn server(service: &Value) -> String {
    match printing::at(service, "spec.service") {
        Some(place) => format!("{}/{}", printing::text(place, "namespace"), printing::text(place, "name")),
        None => "Local".to_owned(),
    }
}

fn available(service: &Value) -> String {
    let conditions = printing::items(service, "status.conditions");
    let Some(condition) = conditions.iter().find(|condition| condition["type"] == "Available") else {
        return "Unknown".to_owned();
    };
    match (printing::text(condition, "status"), printing::text(condition, "reason")) {
        ("True", _) => "True".to_owned(),
        (status, "") => status.to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    }
}

fn validate(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    if object::name(service.value()) != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        service.get("metadata").get("name").invalid(detail, errors);
    }
    if !group.text().is_empty() {
        group.conforms(names::is_dns1123_subdomain, errors);
    } else if version.text() != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        group.complain(Reason::Required, detail, errors);
    }
    for fault in names::is_dns1035_label(version.text()) {
        version.invalid_value(version.text(), fault, errors);
    }
    for (name, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let number = spec.get(name).int().unwrap_or(0);
        if !(1..=most).contains(&number) {
            let detail = format!("must be positive and less than {most}");
            spec.get(name).invalid_value(number, detail, errors);
        }
    }
    validate_place(&spec, errors);
}

fn validate_place(spec: &Field<'_>, errors: &mut Errors) {
    let (place, bundle, unverified) =
        (spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    let has_bundle = !bundle.text().is_empty();
    if !place.exists() {
        if has_bundle {
            bundle.invalid("local APIServices may not have a caBundle", errors);
        }
        if unverified.bool() {
            unverified.invalid("local APIServices may not have insecureSkipTLSVerify", errors);
        }
        return;
    }
    place.get("namespace").required(errors);
    place.get("name").required(errors);
    let port = place.get("port");
    if !port.int().is_some_and(|port| (1..=65535).contains(&port)) {
        let number = port.int().unwrap_or(0);
        port.invalid_value(number, "port is not valid: must be between 1 and 65535, inclusive", errors);
    }
    if unverified.bool() && has_bundle {
        unverified.invalid("may not be true if caBundle is present", errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_local_one_is_available_from_the_beginning() {
        let now = "2026-01-01T00:00:00Z";
        let mut local =
            json!({"metadata": {"creationTimestamp": now}, "spec": {"group": "a", "version": "v1"}});
        prepare(&mut local, None);
        let condition = &local["status"]["conditions"][0];
        assert_eq!((&condition["reason"], &condition["lastTransitionTime"]), (&json!("Local"), &json!(now)));
        assert_eq!(available(&local), "True");

        let mut remote = json!({"spec": {"service": {"namespace": "a", "name": "b"}}});
        prepare(&mut remote, None);
        assert_eq!(available(&remote), "Unknown");
        let mut changed = json!({"spec": {}, "status": {}});
        prepare(&mut changed, Some(&local));
        assert_eq!(changed["status"], json!({}), "updates say nothing of it");
    }
}
