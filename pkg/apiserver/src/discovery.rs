//! What the server serves, for clients that ask: groups, versions, resources.
//!
//! ```text
//! kinds ──> /api, /apis, /apis/{group}                   groups and versions
//!       ──> /api/v1, /apis/{group}/{version}             resources of one version
//!       ──> /api, /apis as APIGroupDiscoveryList         everything in two requests: what clients ask first
//! ```
//!
//! Pure functions of the kinds, and of what other servers serve through this one; the order of groups and versions is
//! upstream's, since clients that are asked for `pods` or for an unversioned kind take the first that has it.

use api::kind::{Kind, Scope, Subresource, Verbs};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The two versions of aggregated discovery that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregated {
    /// `apidiscovery.k8s.io/v2`.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, for clients of before 1.30.
    V2Beta1,
}

impl Aggregated {
    /// The first aggregated form that an `Accept` header asks for, if it comes before plain JSON.
    pub fn accepted(accept: &str) -> Option<Aggregated> {
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
                continue;
            }
            let (mut group, mut version, mut form) = (None, None, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name {
                    "g" => group = Some(value),
                    "v" => version = Some(value),
                    "as" => form = Some(value),
                    _ => {}
                }
            }
            match (group, version, form) {
                (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) => {
                    return Some(Aggregated::V2);
                }
                (Some("apidiscovery.k8s.io"), Some("v2beta1"), Some("APIGroupDiscoveryList")) => {
                    return Some(Aggregated::V2Beta1);
                }
                (None, None, None) => return None,
                _ => {}
            }
        }
        None
    }

    /// The `Content-Type` of such an answer: clients look for it.
    pub fn content_type(self) -> &'static str {
        match self {
            Aggregated::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Aggregated::V2Beta1 => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Aggregated::V2 => "apidiscovery.k8s.io/v2",
            Aggregated::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// `/api`: the versions of the core group. `address` is where clients reach this server, as `host:port`.
pub fn api_versions(kinds: &[Arc<Kind>], address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": versions(kinds, ""),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`: all named groups.
pub fn api_group_list(kinds: &[Arc<Kind>], foreign: &[Foreign]) -> Value {
    let groups = all_groups(kinds, foreign);
    let groups: Vec<Value> = groups.into_iter().map(|group| group_of(kinds, foreign, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`, or `None` if there is no such group.
pub fn api_group(kinds: &[Arc<Kind>], foreign: &[Foreign], group: &str) -> Option<Value> {
    if group.is_empty() || all_versions(kinds, foreign, group).is_empty() {
        return None;
    }
    let mut found = group_of(kinds, foreign, group);
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

/// `/api/v1` or `/apis/{group}/{version}`: the resources of one version, or `None` if there is no such version.
pub fn api_resource_list(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let kinds = of_version(kinds, group, version);
    let first = kinds.first()?;
    let mut resources: Vec<Value> = Vec::new();
    for kind in &kinds {
        resources.push(resource(kind));
        resources.extend(served(kind).into_iter().map(|part| part.api_resource(kind)));
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": first.api_version(),
        "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// `/api` (`core`) or `/apis` in one document.
pub fn aggregated(kinds: &[Arc<Kind>], foreign: &[Foreign], core: bool, form: Aggregated) -> Value {
    let groups = if core { vec![""] } else { all_groups(kinds, foreign) };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|group| {
            let versions: Vec<Value> = all_versions(kinds, foreign, group)
                .into_iter()
                .map(|(version, other)| {
                    let own = || {
                        of_version(kinds, group, version).into_iter().map(|kind| aggregated_resource(kind))
                    };
                    let resources = other.map_or_else(|| own().collect(), |other| other.resources.clone());
                    let is_current = other.is_none_or(|other| other.is_current);
                    let freshness = if is_current { "Current" } else { "Stale" };
                    json!({"version": version, "freshness": freshness, "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": form.api_version(), "metadata": {}, "items": items})
}

/// The places of groups among all, the highest first, as upstream has them; others are of [`OTHER_PRIORITY`].
const PRIORITIES: [(&str, i64); 22] = [
    // No APIService may have this much.
    ("apiregistration.k8s.io", 20_001),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("internal.apiserver.k8s.io", 16_000),
    ("storagemigration.k8s.io", 15_800),
];
const OTHER_PRIORITY: i64 = 1_000;

/// A version of a group that another server answers for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Foreign {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The group's place among all, the highest first.
    pub group_priority: i64,
    /// The version's place in its group, the highest first.
    pub version_priority: i64,
    /// Its resources, as the aggregated form lists them, when it last told.
    pub resources: Vec<Value>,
    /// Whether it told them when it was last asked.
    pub is_current: bool,
}

impl Foreign {
    /// Whether it said that a resource has namespaces, or has none.
    pub fn is_namespaced(&self, plural: &str) -> Option<bool> {
        let known = self.resources.iter().find(|resource| resource["resource"] == plural)?;
        Some(known["scope"] == "Namespaced")
    }

    /// Takes the resources from the list that it serves under its path.
    pub fn learn(&mut self, list: &Value) {
        let response_kind = |resource: &Value| {
            let or = |name: &str, own: &str| resource[name].as_str().unwrap_or(own).to_owned();
            json!({"group": or("group", &self.group), "version": or("version", &self.version), "kind": resource["kind"]})
        };
        let listed = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
        let mut resources = Vec::new();
        for resource in listed.iter().filter(|resource| !name(resource).contains('/')) {
            let prefix = format!("{}/", name(resource));
            let parts = listed.iter().filter_map(|part| {
                let part_name = name(part);
                let subresource = part_name.strip_prefix(&prefix)?;
                Some(json!({"subresource": subresource, "responseKind": response_kind(part), "verbs": part["verbs"]}))
            });
            let parts: Vec<Value> = parts.collect();
            let mut told = json!({
                "resource": name(resource),
                "responseKind": response_kind(resource),
                "scope": if resource["namespaced"] == true { "Namespaced" } else { "Cluster" },
                "singularResource": resource["singularName"],
                "verbs": resource["verbs"],
            });
            for names in ["shortNames", "categories"].into_iter().filter(|names| resource[names].is_array()) {
                told[names] = resource[names].clone();
            }
            if !parts.is_empty() {
                told["subresources"] = parts.into();
            }
            resources.push(told);
        }
        self.resources = resources;
    }
}

/// A group's place among all, the highest first.
pub(crate) fn group_priority(group: &str) -> i64 {
    let known = PRIORITIES.iter().find(|(known, _)| *known == group);
    known.map_or(OTHER_PRIORITY, |(_, priority)| *priority)
}

/// The place of a version in its group, the highest first: as upstream gives them, fifteen to the last, and as many more to
/// each before it.
pub(crate) fn version_priority(kinds: &[Arc<Kind>], group: &str, version: &str) -> i64 {
    let versions = versions(kinds, group);
    let place = versions.iter().rev().position(|known| *known == version).unwrap_or(0);
    15 * (place as i64 + 1)
}

/// The named groups of our own, in order.
pub(crate) fn groups(kinds: &[Arc<Kind>]) -> Vec<&str> {
    all_groups(kinds, &[])
}

/// All named groups, in order.
fn all_groups<'a>(kinds: &'a [Arc<Kind>], foreign: &'a [Foreign]) -> Vec<&'a str> {
    let own = kinds.iter().map(|kind| (kind.group.as_str(), group_priority(&kind.group)));
    let others = foreign.iter().map(|version| (version.group.as_str(), version.group_priority));
    let mut priorities: BTreeMap<&str, i64> = BTreeMap::new();
    for (group, priority) in own.chain(others).filter(|(group, _)| !group.is_empty()) {
        let known = priorities.entry(group).or_default();
        *known = (*known).max(priority);
    }
    let mut groups: Vec<&str> = priorities.keys().copied().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(priorities[group]));
    groups
}

/// All versions of a group, the preferred first, and who answers for those that are not our own.
fn all_versions<'a>(
    kinds: &'a [Arc<Kind>],
    foreign: &'a [Foreign],
    group: &str,
) -> Vec<(&'a str, Option<&'a Foreign>)> {
    let others = || foreign.iter().filter(|version| version.group == group);
    let own = versions(kinds, group).into_iter();
    let own = own.filter(|version| !others().any(|other| other.version == *version));
    let own = own.map(|version| (version_priority(kinds, group, version), version, None));
    let others = others().map(|other| (other.version_priority, other.version.as_str(), Some(other)));
    let mut all: Vec<(i64, &str, Option<&Foreign>)> = own.chain(others).collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| compare_versions(b.1, a.1)));
    all.into_iter().map(|(_, version, other)| (version, other)).collect()
}

/// The versions of a group, the preferred first.
pub(crate) fn versions<'a>(kinds: &'a [Arc<Kind>], group: &str) -> Vec<&'a str> {
    let mut versions: Vec<&str> =
        kinds.iter().filter(|kind| kind.group == group).map(|kind| kind.version.as_str()).collect();
    versions.sort_unstable_by(|a, b| compare_versions(b, a));
    versions.dedup();
    versions
}

/// The kinds of one version, by plural.
pub(crate) fn of_version<'a>(kinds: &'a [Arc<Kind>], group: &str, version: &str) -> Vec<&'a Arc<Kind>> {
    let mut found: Vec<&Arc<Kind>> =
        kinds.iter().filter(|kind| kind.group == group && kind.version == version).collect();
    found.sort_by(|a, b| a.plural.cmp(&b.plural));
    found
}

/// One part of a kind under a path of its own, as discovery and OpenAPI describe it.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// Group, version and kind of what it takes; empty group and version mean the parent's own.
    pub(crate) takes: (&'static str, &'static str, String),
    pub(crate) verbs: &'static [&'static str],
}

/// The parts of a kind, by name.
pub(crate) fn served(kind: &Kind) -> Vec<Part> {
    const READ_AND_WRITE: &[&str] = &["get", "patch", "update"];
    let mut parts: Vec<Part> = kind
        .subresources
        .iter()
        .map(|part| match part {
            Subresource::Status => {
                Part { name: "status", takes: ("", "", kind.kind.clone()), verbs: READ_AND_WRITE }
            }
            Subresource::Scale { .. } => {
                Part { name: "scale", takes: ("autoscaling", "v1", "Scale".into()), verbs: READ_AND_WRITE }
            }
            Subresource::Named { name, takes: (group, version, taken), verbs } => {
                let own = *group == kind.group && *version == kind.version;
                let (group, version) = if own { ("", "") } else { (*group, *version) };
                Part { name, takes: (group, version, (*taken).to_owned()), verbs }
            }
        })
        .collect();
    parts.sort_by_key(|part| part.name);
    parts
}

impl Part {
    fn api_resource(&self, kind: &Kind) -> Value {
        let (group, version, taken) = &self.takes;
        let mut resource = json!({
            "name": format!("{}/{}", kind.plural, self.name),
            "singularName": "",
            "namespaced": kind.namespaced(),
            "kind": taken,
            "verbs": self.verbs,
        });
        if !version.is_empty() {
            resource["group"] = (*group).into();
            resource["version"] = (*version).into();
        }
        resource
    }

    fn aggregated(&self, kind: &Kind) -> Value {
        let (group, version, taken) = &self.takes;
        let response_kind = match kind.custom.is_some() && version.is_empty() {
            true => json!({"group": kind.group, "version": kind.version, "kind": taken}),
            false => json!({"group": group, "version": version, "kind": taken}),
        };
        json!({"subresource": self.name, "responseKind": response_kind, "verbs": self.verbs})
    }
}

/// What may be asked of a kind itself.
fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.verbs {
        Verbs::CreateOnly => &["create"],
        Verbs::ReadOnly => &["get", "list"],
        Verbs::All if kind.custom.is_some() => {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        }
        Verbs::All if !kind.delete_collection => {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        }
        Verbs::All => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

fn group_of(kinds: &[Arc<Kind>], foreign: &[Foreign], group: &str) -> Value {
    let versions: Vec<Value> = all_versions(kinds, foreign, group)
        .into_iter()
        .map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

fn add_names(kind: &Kind, to: &mut Value) {
    let Some(members) = to.as_object_mut() else { return };
    let mut add = |name: &str, list: &[String]| {
        if !list.is_empty() {
            members.insert(name.into(), list.into());
        }
    };
    add("shortNames", &kind.short_names);
    add("categories", &kind.categories);
}

fn resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced(),
        "kind": kind.kind,
        "verbs": verbs(kind),
    });
    add_names(kind, &mut resource);
    if let Some(hash) = storage_version_hash(kind) {
        resource["storageVersionHash"] = hash.into();
    }
    resource
}

/// By this those who move stored objects to another version know which one they are in, as upstream computes it. Kinds
/// that are not stored have none, nor those that are stored as another kind.
fn storage_version_hash(kind: &Kind) -> Option<String> {
    if kind.convert.is_some() || matches!(kind.verbs, Verbs::CreateOnly) {
        return None;
    }
    let version = kind.stored_version.as_ref().unwrap_or(&kind.version);
    let hash = digest(&SHA256, format!("{}/{version}/{}", kind.group, kind.kind).as_bytes());
    Some(BASE64_STANDARD.encode(&hash.as_ref()[..8]))
}

fn aggregated_resource(kind: &Kind) -> Value {
    let (group, version) = match kind.custom {
        Some(_) => (kind.group.as_str(), kind.version.as_str()),
        None => ("", ""),
    };
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": group, "version": version, "kind": kind.kind},
        "scope": match kind.scope { Scope::Namespaced => "Namespaced", Scope::Cluster => "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    add_names(kind, &mut resource);
    let parts: Vec<Value> = served(kind).iter().map(|part| part.aggregated(kind)).collect();
    if !parts.is_empty() {
        resource["subresources"] = parts.into();
    }
    resource
}

/// Kubernetes' order of versions: `v10 > v2 > v1 > v1beta2 > v1beta1 > v1alpha1 >` anything else by name, reversed.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability (alpha 0, beta 1, stable 2), major, minor.
fn parse_version(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, suffix) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if suffix.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (suffix.strip_prefix("alpha"), suffix.strip_prefix("beta")) {
        (Some(minor), _) => (0, minor),
        (_, Some(minor)) => (1, minor),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps, authorization, autoscaling, core};

    fn kinds() -> Vec<Arc<Kind>> {
        let definition = json!({"spec": {"group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}]}});
        let mut kinds = vec![
            Kind::new::<apps::v1::Deployment>().short(&["deploy"]).in_all().with_status().with_scale(
                "spec.replicas",
                "status.replicas",
                "spec.selector",
            ),
            Kind::new::<autoscaling::v1::HorizontalPodAutoscaler>(),
            Kind::new::<autoscaling::v2::HorizontalPodAutoscaler>(),
            Kind::new::<core::v1::Node>(),
            Kind::new::<core::v1::Pod>()
                .with_status()
                .with_subresource("eviction", ("policy", "v1", "Eviction"), &["create"])
                .with_subresource("binding", ("", "", "Binding"), &["create"]),
            Kind { verbs: Verbs::CreateOnly, ..Kind::new::<authorization::v1::SubjectAccessReview>() },
        ];
        kinds.extend(api::crd::kinds(&definition));
        kinds.into_iter().map(Arc::new).collect()
    }

    #[test]
    fn groups_and_versions_stand_in_upstreams_order() {
        let list = api_group_list(&kinds(), &[]);
        let names: Vec<&str> =
            list["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["apps", "authorization.k8s.io", "autoscaling", "stable.example.com"]);
        let autoscaling = api_group(&kinds(), &[], "autoscaling").unwrap();
        assert_eq!(autoscaling["preferredVersion"]["groupVersion"], "autoscaling/v2");
        assert_eq!(autoscaling["versions"][1]["version"], "v1");
        assert_eq!(api_group(&kinds(), &[], "none"), None);
        assert_eq!(api_versions(&kinds(), "10.0.0.1:6443")["versions"], json!(["v1"]));
    }

    #[test]
    fn resources_are_listed_with_their_parts() {
        let list = api_resource_list(&kinds(), "apps", "v1").unwrap();
        assert_eq!(
            list["resources"],
            json!([
                {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
                 "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                 "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": "8aSe+NMegvE="},
                {"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                 "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]},
                {"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment",
                 "verbs": ["get", "patch", "update"]},
            ])
        );
        let core = api_resource_list(&kinds(), "", "v1").unwrap();
        let names: Vec<&str> =
            core["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["nodes", "pods", "pods/binding", "pods/eviction", "pods/status"]);
        assert_eq!(core.get("apiVersion"), None);
        assert_eq!(api_resource_list(&kinds(), "apps", "v2"), None);
        let questions = api_resource_list(&kinds(), "authorization.k8s.io", "v1").unwrap();
        assert_eq!(questions["resources"][0]["verbs"], json!(["create"]));
    }

    #[test]
    fn one_document_says_it_all() {
        let core = aggregated(&kinds(), &[], true, Aggregated::V2);
        assert_eq!(core["items"][0]["metadata"], json!({}));
        assert_eq!(
            core["items"][0]["versions"][0]["resources"][1]["subresources"][1]["responseKind"],
            json!({"group": "policy", "version": "v1", "kind": "Eviction"})
        );
        let all = aggregated(&kinds(), &[], false, Aggregated::V2Beta1);
        assert_eq!(all["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        let custom = &all["items"][3];
        assert_eq!(custom["metadata"]["name"], "stable.example.com");
        assert_eq!(custom["versions"][0]["version"], "v1");
        assert_eq!(custom["versions"][0]["resources"][0]["responseKind"]["version"], "v1");
        assert_eq!(custom["versions"][0]["resources"][0]["scope"], "Namespaced");
    }

    #[test]
    fn clients_are_given_the_form_they_prefer() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
            application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(Aggregated::accepted(kubectl), Some(Aggregated::V2));
        let older =
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(Aggregated::accepted(older), Some(Aggregated::V2Beta1));
        assert_eq!(Aggregated::accepted("application/json, */*"), None);
        assert_eq!(Aggregated::accepted(""), None);
    }

    #[test]
    fn versions_are_compared_as_kubernetes_does() {
        let mut versions =
            ["foo10", "v1", "v3beta1", "v12alpha1", "v11beta2", "v10", "v2", "foo1", "v10beta3"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "foo1", "foo10"]
        );
    }

    #[test]
    fn the_stored_version_is_told_by_upstreams_hash() {
        let hash = |kind: &Kind| resource(kind)["storageVersionHash"].as_str().map(str::to_owned);
        let kinds = kinds();
        let of = |group: &str, version: &str, plural: &str| {
            let found = kinds.iter().find(|kind| {
                (kind.group.as_str(), kind.version.as_str(), kind.plural.as_str()) == (group, version, plural)
            });
            hash(found.unwrap())
        };
        assert_eq!(of("", "v1", "pods").as_deref(), Some("xPOwRZ+Yhw8="));
        assert_eq!(of("authorization.k8s.io", "v1", "subjectaccessreviews"), None);
    }
}
