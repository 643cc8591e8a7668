//! Every member of every kind that its definition calls required, or gives a closed set of values: what is missing or
//! wrong is refused, and the complaint names the member. Found in the definitions, so that none can be forgotten.
//!
//! Of an otherwise empty object only the way to the member is made; what else it lacks is complained about too, and
//! not looked at.

use api::{Errors, Field, Kind, kinds, schema};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Definitions that contain themselves are followed no further than this.
const DEEPEST: usize = 14;
const WRONG: &str = "Nonsense";

/// A member in a kind.
struct Member {
    /// As in complaints: `spec.containers[0].name`.
    path: String,
    /// `core.v1.Container name`: the same wherever the definition is used.
    id: String,
}

/// All members of a kind that `pick` picks, outside of its status.
fn members(kind: &Kind, pick: fn(&Value, &str, &Value) -> bool) -> Vec<Member> {
    let definitions = schema::raw_definitions();
    let mut found = Vec::new();
    let root = name_of(kind);
    let walk = Walk { definitions: &definitions, pick };
    walk.definition(&root, "", &mut Vec::new(), &mut found);
    found
}

struct Walk<'a> {
    definitions: &'a Map<String, Value>,
    pick: fn(&Value, &str, &Value) -> bool,
}

impl Walk<'_> {
    fn definition(&self, name: &str, path: &str, within: &mut Vec<String>, found: &mut Vec<Member>) {
        if within.len() > DEEPEST || within.iter().any(|other| other == name) {
            return;
        }
        within.push(name.to_owned());
        let definition = &self.definitions[name];
        for (member, schema) in definition["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { member.clone() } else { format!("{path}.{member}") };
            if path == "status" || path == "metadata" {
                continue;
            }
            let list = schema["items"].is_object();
            let place = if list { format!("{path}[0]") } else { path.clone() };
            if (self.pick)(definition, member, schema) {
                let id = format!("{} {member}", short(name));
                let is_element = list && schema["items"]["enum"].is_array();
                found.push(Member { path: if is_element { place.clone() } else { path }, id });
            }
            let target = reference(if list { &schema["items"] } else { schema });
            if let Some(target) = target {
                self.definition(&target, &place, within, found);
            }
        }
        within.pop();
    }
}

fn reference(schema: &Value) -> Option<String> {
    let target = schema.get("$ref").or_else(|| schema.get("allOf")?.get(0)?.get("$ref"));
    target?.as_str()?.rsplit('/').next().map(str::to_owned)
}

fn name_of(kind: &Kind) -> String {
    let definitions = schema::raw_definitions();
    let ends = format!("{}.{}", kind.version, kind.kind);
    let of_group = |name: &&String| {
        let group = kind.group.split('.').next().unwrap_or_default();
        let group = if group.is_empty() { "core" } else { group };
        name.ends_with(&format!("{group}.{ends}"))
    };
    let found = definitions.keys().find(of_group);
    found
        .or_else(|| definitions.keys().find(|name| name.ends_with(&ends)))
        .cloned()
        .unwrap_or_else(|| panic!("{ends}"))
}

/// `core.v1.Container` of `io.k8s.api.core.v1.Container`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(4, '.').collect();
    parts.iter().take(3).rev().copied().collect::<Vec<_>>().join(".")
}

/// An object with nothing in it but what leads to a member.
fn leading_to(kind: &Kind, path: &str, value: Option<Value>) -> Value {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "x"}});
    let mut slot = &mut object;
    let mut steps = path.split(['.', '[']).peekable();
    while let Some(step) = steps.next() {
        if steps.peek().is_none() && value.is_none() {
            if slot.is_null() {
                *slot = json!({});
            }
            break;
        }
        slot = match step.strip_suffix(']') {
            Some(_) => {
                *slot = json!([null]);
                &mut slot[0]
            }
            None => &mut slot[step],
        };
    }
    if let Some(value) = value {
        *slot = value;
    }
    object
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split(['.', '[']).fold(object, |value, step| match step.strip_suffix(']') {
        Some(index) => &value[index.parse::<usize>().expect("an index")],
        None => &value[step],
    })
}

/// The object as defaults leave it, and what is said about it.
fn judged(kind: &Kind, mut object: Value) -> (Value, Vec<String>) {
    if let Err(error) = kind.schema().check(&mut object) {
        return (object, vec![error.to_string()]);
    }
    kind.schema().embed(&mut object);
    (kind.default)(&mut object);
    let mut errors = Errors::new();
    let root = Field::root(&object);
    (kind.validate)(&root, &mut errors);
    (kind.validate_create)(&root, &mut errors);
    let said = errors.into_vec().iter().map(ToString::to_string).collect();
    (object, said)
}

/// Whether something is said about a member. Upstream is not strict about places: it leaves out the numbers of elements
/// (`volumeMounts.mountPropagation`) or complains about what the member is in.
fn is_about(said: &[String], path: &str) -> bool {
    let plain = |path: &str| -> Vec<String> {
        path.split(['.', '[']).filter(|step| !step.ends_with(']')).map(str::to_owned).collect()
    };
    let own = plain(path);
    let parent = &own[..own.len() - 1];
    said.iter().any(|text| {
        // Where upstream has another place, or another name, in its complaints.
        let place = text.split(": ").next().unwrap_or_default();
        let place = plain(&place.replace("metadata.taints", "spec.taints").replace("JSONPath", "jsonPath"));
        let mut rest = own.iter();
        let is_shorter = place.last() == own.last() && place.iter().all(|step| rest.any(|own| own == step));
        is_shorter || (place == parent && place.len() > 1)
    })
}

/// Looks at every member that `pick` picks, wherever it is; each must be found fault with somewhere.
fn check(
    pick: fn(&Value, &str, &Value) -> bool,
    excused: &[&str],
    is_noticed: impl Fn(&Kind, &Member) -> Result<(), Vec<String>>,
) {
    let mut noticed = BTreeSet::new();
    let mut missed = BTreeMap::new();
    for kind in kinds::all() {
        for member in members(kind, pick) {
            match is_noticed(kind, &member) {
                Ok(()) => drop(noticed.insert(member.id)),
                Err(said) => {
                    drop(missed.insert(member.id, format!("{} {}: {said:?}", kind.kind, member.path)))
                }
            }
        }
    }
    assert!(noticed.len() > 50, "only {} members", noticed.len());
    let stale: Vec<_> =
        excused.iter().filter(|id| !missed.contains_key(**id) || noticed.contains(**id)).collect();
    missed.retain(|id, _| !noticed.contains(id) && !excused.contains(&id.as_str()));
    assert!(missed.is_empty(), "{} members: {missed:#?}", missed.len());
    assert!(stale.is_empty(), "excused for nothing: {stale:?}");
}

#[test]
fn a_value_outside_of_a_closed_set_is_refused_by_name() {
    let closed =
        |_: &Value, _: &str, schema: &Value| schema["enum"].is_array() || schema["items"]["enum"].is_array();
    check(closed, FREE, |kind, member| {
        let (_, said) = judged(kind, leading_to(kind, &member.path, Some(WRONG.into())));
        if is_about(&said, &member.path) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn what_is_required_is_filled_in_or_asked_for_by_name() {
    let required = |definition: &Value, member: &str, schema: &Value| {
        // A number or a boolean that is left out is 0 or false.
        let is_plain = matches!(schema["type"].as_str(), Some("integer" | "number" | "boolean"));
        let names = definition["required"].as_array();
        !is_plain && names.is_some_and(|names| names.iter().any(|name| name == member))
    };
    check(required, OPTIONAL, |kind, member| {
        let (object, said) = judged(kind, leading_to(kind, &member.path, None));
        let is_filled = !at(&object, &member.path).is_null();
        if is_filled || is_about(&said, &member.path) { Ok(()) } else { Err(said) }
    });
}

/// Members whose values upstream lists and does not check, or only beside others that are not here.
const FREE: &[&str] = &[
    // Rules in CEL are kept, and not looked at.
    "apiextensions.v1.ValidationRule reason",
    // Not before there is a path.
    "core.v1.HostPathVolumeSource type",
    // The status of a template is dropped.
    "core.v1.ModifyVolumeStatus status",
    "core.v1.PersistentVolumeClaimStatus accessModes",
    "core.v1.PersistentVolumeClaimStatus phase",
];

/// Members that upstream's definitions call required because they are always written, and that may be left out, or
/// are asked for only beside others that are not here.
const OPTIONAL: &[&str] = &[
    // Only where the strategy is `Webhook`.
    "apiextensions.v1.ServiceReference name",
    "apiextensions.v1.ServiceReference namespace",
    "apiextensions.v1.WebhookConversion conversionReviewVersions",
    // Rules in CEL are kept, and not looked at.
    "apiextensions.v1.ValidationRule rule",
    // Without it nothing matches, and that is what is said.
    "apps.v1.DaemonSetSpec selector",
    "batch.v1.PodFailurePolicy rules",
    // Not used any more.
    "core.v1.ConfigMapNodeConfigSource kubeletConfigKey",
    "core.v1.ConfigMapNodeConfigSource name",
    "core.v1.ConfigMapNodeConfigSource namespace",
    // Only beside a policy of the container.
    "core.v1.ContainerRestartRule action",
    "core.v1.ContainerRestartRuleOnExitCodes operator",
    // Called `persistentDisk` by upstream's complaints.
    "core.v1.GCEPersistentDiskVolumeSource pdName",
    "core.v1.LimitRangeSpec limits",
    // The status of a template is dropped.
    "core.v1.ModifyVolumeStatus status",
    "core.v1.PersistentVolumeClaimCondition status",
    "core.v1.PersistentVolumeClaimCondition type",
    // Features that are off.
    "core.v1.PodCertificateProjection keyType",
    "core.v1.PodCertificateProjection signerName",
    "core.v1.WorkloadReference name",
    "core.v1.WorkloadReference podGroup",
    "core.v1.ScaleIOPersistentVolumeSource secretRef",
    "core.v1.ScaleIOVolumeSource secretRef",
    "core.v1.Sysctl value",
    "discovery.v1.EndpointSlice endpoints",
    "discovery.v1.ForZone name",
    // Only of the kind that a subject says it is.
    "flowcontrol.v1.GroupSubject name",
    "flowcontrol.v1.ServiceAccountSubject name",
    "flowcontrol.v1.ServiceAccountSubject namespace",
    "flowcontrol.v1.UserSubject name",
    // Operators of later versions are let through.
    "meta.v1.FieldSelectorRequirement operator",
    "storage.v1.CSINodeSpec drivers",
    // None is the API server's own.
    "storage.v1.TokenRequest audience",
];
