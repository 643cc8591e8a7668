//! Ingress: hosts and paths that lead to services.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::rules;
use crate::{names, printing};
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::Value;

/// How a class was named before there was a field for it.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const BAD_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const BAD_SUFFIXES: [&str; 2] = ["/..", "/."];
/// How many hosts a cell shows.
const SHOWN: usize = 3;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Class", "string", |ingress, _| {
                let class = printing::at(ingress, "spec.ingressClassName").and_then(Value::as_str);
                class.unwrap_or(printing::NONE).into()
            }),
            column("Hosts", "string", |ingress, _| hosts_cell(ingress).into()),
            column("Address", "string", |ingress, _| address_cell(ingress).into()),
            column("Ports", "string", |ingress, _| {
                if printing::items(ingress, "spec.tls").is_empty() { "80" } else { "80, 443" }.into()
            }),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        validate_create,
        validate_status: |new, _, errors| validate_status(new, errors),
        hosts: Some(hosts),
        ..Kind::new::<Ingress>().short(&["ing"]).with_status().with_generation()
    }
}

/// Those of its rules, and those that it names for TLS, which its default backend serves.
fn hosts(ingress: &Value) -> Vec<String> {
    let ruled = printing::items(ingress, "spec.rules").iter().map(|rule| printing::text(rule, "host"));
    let named = printing::items(ingress, "spec.tls").iter().flat_map(|tls| printing::items(tls, "hosts"));
    let named = named.filter_map(Value::as_str).filter(|_| ingress["spec"]["defaultBackend"].is_object());
    ruled.chain(named).filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

fn validate(ingress: &Field<'_>, errors: &mut Errors) {
    let spec = ingress.get("spec");
    let (rules, default_backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !default_backend.exists() {
        spec.invalid_value(
            rules.value().clone(),
            "either `defaultBackend` or `rules` must be specified",
            errors,
        );
    }
    if default_backend.exists() {
        validate_backend(&default_backend, errors);
    }
    for rule in rules.items() {
        validate_rule(&rule, errors);
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            validate_host(&host, errors);
        }
        let secret = tls.get("secretName");
        if !secret.text().is_empty() {
            secret.conforms(names::is_dns1123_subdomain, errors);
        }
    }
    let class = spec.get("ingressClassName");
    if class.exists() {
        class.conforms(names::is_dns1123_subdomain, errors);
    }
}

/// Two ways to say the class must not say two things.
fn validate_create(ingress: &Field<'_>, errors: &mut Errors) {
    let spec = ingress.get("spec");
    let class = spec.get("ingressClassName");
    let metadata = ingress.get("metadata");
    let annotations = metadata.get("annotations");
    let annotation = annotations.key(CLASS_ANNOTATION);
    if annotation.exists() && class.exists() && annotation.text() != class.text() {
        let path = format!("annotations.{CLASS_ANNOTATION}");
        let detail = "must match `ingressClassName` when both are specified";
        rules::complain_at(&path, Reason::Invalid, Some(annotation.text().into()), detail, errors);
    }
}

fn validate_host(host: &Field<'_>, errors: &mut Errors) {
    let is_wildcard = host.text().contains('*');
    host.conforms(
        if is_wildcard { names::is_wildcard_dns1123_subdomain } else { names::is_dns1123_subdomain },
        errors,
    );
}

fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let host = rule.get("host");
    if !host.text().is_empty() {
        if rules::parse_ip(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address", errors);
        }
        validate_host(&host, errors);
    }
    let http = rule.get("http");
    if !http.exists() {
        return;
    }
    let paths = http.get("paths");
    paths.required(errors);
    for path in paths.items() {
        validate_path(&path, errors);
    }
}

fn validate_path(entry: &Field<'_>, errors: &mut Errors) {
    let (path, path_type) = (entry.get("path"), entry.get("pathType"));
    if !path_type.exists() {
        path_type.complain(Reason::Required, "pathType must be specified", errors);
        return;
    }
    let text = path.text();
    match path_type.text() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                path.invalid_value(text, "must be an absolute path", errors);
            }
            for sequence in BAD_SEQUENCES.iter().filter(|&&sequence| text.contains(sequence)) {
                path.invalid(format!("must not contain '{sequence}'"), errors);
            }
            for suffix in BAD_SUFFIXES.iter().filter(|&&suffix| text.ends_with(suffix)) {
                path.invalid(format!("cannot end with '{suffix}'"), errors);
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                path.invalid("must be an absolute path", errors);
            }
        }
        _ => path_type.not_supported(&["Exact", "ImplementationSpecific", "Prefix"], errors),
    }
    validate_backend(&entry.get("backend"), errors);
}

fn validate_backend(backend: &Field<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.exists(), service.exists()) {
        (true, true) => backend.invalid_value("", "cannot set both resource and service backends", errors),
        (true, false) => validate_typed_reference(&resource, errors),
        (false, true) => validate_service_backend(backend, &service, errors),
        (false, false) => backend.invalid_value("", "resource or service backend is required", errors),
    }
}

fn validate_service_backend(backend: &Field<'_>, service: &Field<'_>, errors: &mut Errors) {
    let name = service.get("name");
    if name.required(errors) {
        name.conforms(names::is_dns1035_label, errors);
    }
    let port = service.get("port");
    let (port_name, number) = (port.get("name"), port.get("number"));
    match (!port_name.text().is_empty(), number.int().unwrap_or(0) != 0) {
        (true, true) => backend.invalid_value("", "cannot set both port name & port number", errors),
        (true, false) => port_name.conforms(names::is_port_name, errors),
        (false, true) => rules::validate_port(&number, errors),
        (false, false) => backend.complain(Reason::Required, "port name or number is required", errors),
    }
}

/// A reference by group, kind and name.
pub(super) fn validate_typed_reference(reference: &Field<'_>, errors: &mut Errors) {
    let group = reference.get("apiGroup");
    if group.exists() {
        group.conforms(names::is_dns1123_subdomain, errors);
    }
    rules::validate_kind_and_name(reference, errors);
}

fn validate_status(ingress: &Field<'_>, errors: &mut Errors) {
    let status = ingress.get("status");
    let balancer = status.get("loadBalancer");
    for point in balancer.get("ingress").items() {
        let (ip, hostname) = (point.get("ip"), point.get("hostname"));
        if !ip.text().is_empty() {
            ip.conforms(names::is_legacy_ip, errors);
        }
        if !hostname.text().is_empty() {
            hostname.conforms(names::is_dns1123_subdomain, errors);
            if rules::parse_ip(hostname.text()).is_some() {
                hostname.invalid("must be a DNS name, not an IP address", errors);
            }
        }
    }
}

fn hosts_cell(ingress: &Value) -> String {
    let rules = printing::items(ingress, "spec.rules");
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= hosts.len() == SHOWN;
        let host = printing::text(rule, "host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match hosts.join(",") {
        none if none.is_empty() => "*".into(),
        hosts if more => format!("{hosts} + {} more...", rules.len() - SHOWN),
        hosts => hosts,
    }
}

fn address_cell(ingress: &Value) -> String {
    let mut points: Vec<&str> = printing::items(ingress, "status.loadBalancer.ingress")
        .iter()
        .map(|point| match printing::text(point, "ip") {
            "" => printing::text(point, "hostname"),
            ip => ip,
        })
        .filter(|point| !point.is_empty())
        .collect();
    points.sort_unstable();
    points.dedup();
    points.join(",")
}
