//! What is known of the types in a policy's expressions, told in its status as soon as the policy is written.
//!
//! Upstream's controller-manager does so a moment later, and finds here that it is done.

use crate::admission::question::GROUP;
use crate::server::Server;
use api::{Kind, Value, admission, object};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds that the rules of a policy name beyond this many are not looked at.
const MOST_KINDS: usize = 10;

/// Notes in a policy that is new, or has changed, what does not suit the kinds that it is about.
pub fn note(server: &Server, kind: &Kind, new: &mut Value, old: Option<&Value>) {
    if kind.group != GROUP || kind.plural != "validatingadmissionpolicies" {
        return;
    }
    let generation = new["metadata"]["generation"].clone();
    if old.is_some_and(|old| old["metadata"]["generation"] == generation) {
        return;
    }
    let spec = &new["spec"];
    let resources = server.registry.resources();
    let kinds: BTreeMap<_, _> = named(spec, resources.kinds()).map(|kind| (shown(kind), kind)).collect();
    let kinds: Vec<_> =
        kinds.into_iter().take(MOST_KINDS).map(|(shown, kind)| (shown, kind.schema())).collect();
    let params = &spec["paramKind"];
    let is_param =
        |kind: &&Arc<Kind>| params["kind"] == *kind.kind && params["apiVersion"] == kind.api_version();
    let params = resources.kinds().iter().find(is_param).map(|kind| kind.schema());
    let warnings = admission::type_check(spec, &kinds, params);
    let checked = if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
    let status = object::object_mut(new, "status");
    status.insert("observedGeneration".to_owned(), generation);
    status.insert("typeChecking".to_owned(), checked);
}

/// The kinds that the rules of a policy name one by one.
fn named<'a>(spec: &Value, kinds: &'a [Arc<Kind>]) -> impl Iterator<Item = &'a Arc<Kind>> {
    let rules = spec["matchConstraints"]["resourceRules"].as_array().cloned().unwrap_or_default();
    kinds.iter().filter(move |kind| {
        let has = |rule: &Value, member: &str, wanted: &str| {
            rule[member].as_array().is_some_and(|all| all.iter().any(|one| one == wanted))
        };
        rules.iter().any(|rule| {
            has(rule, "apiGroups", &kind.group)
                && has(rule, "apiVersions", &kind.version)
                && has(rule, "resources", &kind.plural)
        })
    })
}

/// Group, version and kind as Go shows them.
fn shown(kind: &Arc<Kind>) -> String {
    format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind)
}
