//! DNS: a host name whose paths lead to services.
//!
//! `host/path` on port 80 of every node reaches the service's ClusterIP and port.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::rules;
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;

/// DNS gives services a host name and paths of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.DNS")]
pub struct DNS {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<DNS>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<DNS>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What the host name leads to.
    pub spec: DNSSpec,
    /// What has been made of it.
    #[serde(default)]
    pub status: DNSStatus,
}

/// A host name, and the paths under it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.DNSSpec")]
pub struct DNSSpec {
    /// The host name, such as `shop.example.com`. It resolves to the node itself, on every node and in every container.
    pub host: String,
    /// The paths under the host name. The longest that fits a request is taken.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub subpaths: Vec<DNSSubpath>,
}

/// One path under a host name, and the service it leads to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.DNSSubpath")]
pub struct DNSSubpath {
    /// The path, which starts with `/`.
    pub path: String,
    /// The name of a service in the same namespace.
    pub service: String,
    /// The service's port.
    pub port: i32,
}

/// What has been made of a DNS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.DNSStatus")]
pub struct DNSStatus {
    /// The generation this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready` is True when every path leads to a service that exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"],
        "x-kubernetes-patch-merge-key" = "type", "x-kubernetes-patch-strategy" = "merge"))]
    pub conditions: Vec<Condition>,
    /// How each path stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub subpaths: Vec<DNSSubpathStatus>,
}

/// How one path stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.DNSSubpathStatus")]
pub struct DNSSubpathStatus {
    /// The path.
    pub path: String,
    /// The service's ClusterIP; empty while there is none.
    #[serde(rename = "clusterIP", default)]
    pub cluster_ip: String,
    /// Why the path leads nowhere; empty if it leads to its service.
    #[serde(default)]
    pub message: String,
}

resource!(DNS, "dnses");

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Host", "string", |dns, _| dns["spec"]["host"].clone()),
            column("Path", "string", |dns, _| subpath_cell(dns, "path")),
            column("Service", "string", |dns, _| subpath_cell(dns, "service")),
            column("Port", "string", |dns, _| subpath_cell(dns, "port")),
            column("Status", "string", |dns, _| status_cell(dns)),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        hosts: Some(|dns| dns["spec"]["host"].as_str().map(str::to_owned).into_iter().collect()),
        ..Kind::new::<DNS>().with_status().with_generation()
    }
}

fn validate(dns: &Field<'_>, errors: &mut Errors) {
    let spec = dns.get("spec");
    let host = spec.get("host");
    if host.required(errors) {
        host.conforms(names::is_dns1123_subdomain, errors);
        if rules::parse_ip(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address", errors);
        }
    }
    let subpaths = spec.get("subpaths");
    subpaths.required(errors);
    let mut seen = HashSet::new();
    for subpath in subpaths.items() {
        let path = subpath.get("path");
        if path.required(errors) {
            if !path.text().starts_with('/') {
                path.invalid("must be an absolute path", errors);
            } else if path
                .text()
                .contains(|c: char| c.is_whitespace() || c.is_control() || "{};\"'\\".contains(c))
            {
                path.invalid("must not contain spaces, quotes, backslashes, braces or semicolons", errors);
            } else if path.text().contains(['?', '#']) {
                path.invalid("must be a path only, without '?' or '#'", errors);
            } else if path.text().split('/').any(|segment| segment == "." || segment == "..")
                || path.text().contains("//")
            {
                path.invalid("must not contain '//', '/./' or '/../'", errors);
            }
            if !seen.insert(path.text().to_owned()) {
                path.duplicate(errors);
            }
        }
        let service = subpath.get("service");
        if service.required(errors) {
            service.conforms(names::is_dns1123_label, errors);
        }
        let port = subpath.get("port");
        if port.required(errors) {
            port.in_range(1..=65535, errors);
        }
    }
}

/// One member of every path, separated by commas.
fn subpath_cell(dns: &Value, member: &str) -> Value {
    let subpaths = dns["spec"]["subpaths"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = subpaths
        .iter()
        .map(|subpath| match &subpath[member] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    texts.join(",").into()
}

fn status_cell(dns: &Value) -> Value {
    let conditions = dns["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    match ready.map(|ready| (&ready["status"], &ready["reason"])) {
        None => "Pending".into(),
        Some((Value::String(status), _)) if status == "True" => "Ready".into(),
        Some((_, reason)) => reason.as_str().filter(|reason| !reason.is_empty()).unwrap_or("NotReady").into(),
    }
}
