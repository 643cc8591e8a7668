//! Rules for pod specs and templates: what holds for the whole, in the order upstream looks at it.

use super::containers::{
    validate_containers, validate_ephemeral_containers, validate_image_is_trimmed, validate_init_containers,
};
use super::resources::{validate_overhead, validate_pod_resources};
use super::scheduling::{
    validate_affinity, validate_scheduling_gates, validate_spread_constraints, validate_tolerations,
};
use super::security::{
    validate_host_processes, validate_host_users, validate_os, validate_pod_security_context,
};
use super::volumes::{Volumes, validate_volumes};
use crate::field::{Errors, Field, Reason};
use crate::{meta, names};
use std::collections::BTreeSet;

/// Where the spec stands, as far as rules depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// The name of the Pod whose own spec it is; `None` in a template.
    pub pod_name: Option<&'a str>,
}

/// What rules for parts of a pod need to know of the whole.
pub(super) struct Pod {
    pub volumes: Volumes,
    pub claims: BTreeSet<String>,
    pub restart_policy: String,
    pub grace_period_seconds: Option<i64>,
    pub host_users: bool,
    pub os: String,
}

/// Complains about a `PodTemplateSpec`.
pub fn validate_template(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    let (labels, annotations) = (metadata.get("labels"), metadata.get("annotations"));
    let spec = template.get("spec");
    // Upstream's paths leave `metadata` out here.
    meta::validate_labels(&template.get("labels").with_value(labels.value()), errors);
    let annotations = template.get("annotations").with_value(annotations.value());
    meta::validate_annotations(&annotations, errors);
    validate_pod_annotations(&annotations, &spec, errors);
    validate_pod_spec(&spec, Options::default(), errors);
    if !spec.get("ephemeralContainers").is_empty() {
        spec.get("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template", errors);
    }
}

/// Complains about a `PodSpec`.
pub fn validate_pod_spec(spec: &Field<'_>, options: Options<'_>, errors: &mut Errors) {
    let grace_period = spec.get("terminationGracePeriodSeconds");
    if !grace_period.exists() {
        grace_period.required(errors);
    }
    let host_users = spec.get("hostUsers");
    let os = spec.get("os");
    let pod = Pod {
        volumes: validate_volumes(&spec.get("volumes"), options.pod_name.unwrap_or_default(), errors),
        claims: validate_resource_claims(&spec.get("resourceClaims"), errors),
        restart_policy: spec.get("restartPolicy").text().to_owned(),
        grace_period_seconds: grace_period.int(),
        host_users: !host_users.exists() || host_users.bool(),
        os: os.get("name").text().to_owned(),
    };
    validate_containers(&spec.get("containers"), &pod, errors);
    validate_init_containers(spec, &pod, errors);
    validate_ephemeral_containers(spec, &pod, errors);
    validate_pod_resources(spec, errors);
    validate_host_ports_match(spec, options.pod_name.is_some(), errors);
    validate_policies_and_names(spec, errors);
    validate_pod_security_context(spec, errors);
    validate_affinity(&spec.get("affinity"), errors);
    validate_dns_config(spec, errors);
    for gate in spec.get("readinessGates").items() {
        gate.get("conditionType").conforms(names::is_qualified_name, errors);
    }
    validate_scheduling_gates(&spec.get("schedulingGates"), errors);
    validate_spread_constraints(&spec.get("topologySpreadConstraints"), errors);
    validate_host_processes(spec, errors);
    validate_host_users(spec, errors);
    validate_tolerations(&spec.get("tolerations"), errors);
    for alias in spec.get("hostAliases").items() {
        alias.get("ip").conforms(names::is_legacy_ip, errors);
        for name in alias.get("hostnames").items() {
            name.conforms(names::is_dns1123_subdomain, errors);
        }
    }
    validate_overhead(&spec.get("overhead"), errors);
    validate_os(spec, errors);
    if options.pod_name.is_some() {
        validate_only_for_pods(spec, errors);
    }
}

/// Complains about annotations that mean something to pods.
pub fn validate_pod_annotations(annotations: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let mirror = annotations.key("kubernetes.io/config.mirror");
    if mirror.exists() && spec.get("nodeName").text().is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set", errors);
    }
    let cost = annotations.key("controller.kubernetes.io/pod-deletion-cost");
    let is_cost = |text: &str| {
        // A leading plus or zero would be two ways to write one number.
        text == "0" || text.parse::<i32>().is_ok() && !text.starts_with(['0', '+']) && !text.starts_with("-0")
    };
    if cost.str().is_some_and(|text| !is_cost(text)) {
        cost.invalid("must be a 32bit integer", errors);
    }
}

fn validate_only_for_pods(spec: &Field<'_>, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            validate_image_is_trimmed(&container, errors);
        }
    }
    for volume in spec.get("volumes").items() {
        let image = volume.get("image");
        if image.exists() {
            image.get("reference").required(errors);
        }
        let projected = volume.get("projected");
        for source in projected.get("sources").items() {
            let token = source.get("serviceAccountToken");
            if token.exists() && spec.get("serviceAccountName").text().is_empty() {
                token.forbidden("must not be specified when serviceAccountName is not set", errors);
            }
        }
    }
}

fn validate_resource_claims(claims: &Field<'_>, errors: &mut Errors) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.get("name");
        if name.required(errors) {
            if taken.insert(name.text().to_owned()) {
                name.conforms(names::is_dns1123_label, errors);
            } else {
                name.duplicate(errors);
            }
        }
        let (direct, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        match (direct.exists(), template.exists()) {
            (true, true) => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                claim.invalid(detail, errors);
            }
            (false, false) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                claim.invalid(detail, errors);
            }
            _ => {}
        }
        for reference in [&direct, &template] {
            if reference.exists() {
                reference.conforms(names::is_dns1123_subdomain, errors);
            }
        }
    }
    taken
}

fn validate_host_ports_match(spec: &Field<'_>, in_pod: bool, errors: &mut Errors) {
    if !spec.get("hostNetwork").bool() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let number = host.int().unwrap_or(0);
            if (in_pod || number != 0) && number != port.get("containerPort").int().unwrap_or(0) {
                host.invalid_value(number, "must match `containerPort` when `hostNetwork` is true", errors);
            }
        }
    }
}

/// Members that are one word each.
fn validate_policies_and_names(spec: &Field<'_>, errors: &mut Errors) {
    spec.get("restartPolicy").required_one_of(&["Always", "Never", "OnFailure"], errors);
    spec.get("dnsPolicy")
        .required_one_of(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], errors);
    meta::validate_labels(&spec.get("nodeSelector"), errors);
    for name in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let reference = spec.get(name);
        if !reference.text().is_empty() {
            reference.conforms(names::is_dns1123_subdomain, errors);
        }
    }
    let runtime_class = spec.get("runtimeClassName");
    if runtime_class.exists() {
        runtime_class.conforms(names::is_dns1123_subdomain, errors);
    }
    for name in ["hostname", "subdomain"] {
        let label = spec.get(name);
        if !label.text().is_empty() {
            label.conforms(names::is_dns1123_label, errors);
        }
    }
    spec.get("activeDeadlineSeconds").in_range(1..=i64::from(i32::MAX), errors);
    let preemption = spec.get("preemptionPolicy");
    if preemption.exists() {
        preemption.required_one_of(&["Never", "PreemptLowerPriority"], errors);
    }
    let hostname = spec.get("hostnameOverride");
    if hostname.exists() {
        for (name, set) in [("setHostnameAsFQDN", "setHostnameAsFQDN"), ("hostNetwork", "hostNetwork")] {
            if spec.get(name).bool() {
                hostname.forbidden(format!("may not be specified when {set} is true"), errors);
            }
        }
        if hostname.text().len() > 64 {
            hostname.too_long(64, errors);
        }
        hostname.conforms(names::is_dns1123_subdomain, errors);
    }
}

fn validate_dns_config(spec: &Field<'_>, errors: &mut Errors) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").text() == "None" {
        if !config.exists() {
            config.complain(Reason::Required, "must provide `dnsConfig` when `dnsPolicy` is None", errors);
            return;
        }
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        if !servers.required_because(detail, errors) {
            return;
        }
    }
    if servers.len() > 3 {
        servers.invalid("must not have more than 3 nameservers", errors);
    }
    for server in servers.items() {
        server.conforms(names::is_legacy_ip, errors);
    }
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths", errors);
    }
    let bytes: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if bytes > 2048 + 1 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        searches.invalid(detail, errors);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let domain = search.text().strip_suffix('.').unwrap_or(search.text());
        for fault in names::is_dns1123_subdomain_with_underscore(domain) {
            search.invalid_value(domain, fault, errors);
        }
    }
    for option in config.get("options").items() {
        if option.get("name").text().is_empty() {
            option.complain(Reason::Required, "must not be empty", errors);
        }
    }
}
