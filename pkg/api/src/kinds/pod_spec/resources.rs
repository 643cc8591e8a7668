//! Rules for amounts of resources: which names there are, which amounts they take.

use super::requests::container_requests;
use crate::field::{Errors, Field, Reason};
use crate::names;
use crate::quantity::Quantity;
use std::collections::BTreeSet;

const HUGE_PAGES: &str = "hugepages-";
const COUNTED: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const STANDARD: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// The amount here, if it is one.
pub fn quantity(field: &Field<'_>) -> Option<Quantity> {
    field.str().and_then(|text| text.parse().ok())
}

/// Whether the name is Kubernetes' own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the name counts whole things of somebody else's making.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether the name is that of pages of one size.
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether the name needs no prefix.
pub fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name)
        || COUNTED.contains(&name)
        || is_huge_page(name)
        || name.strip_prefix("requests.").is_some_and(is_huge_page)
}

/// Complains about the name of any resource.
pub fn validate_resource_name(name: &str, place: &Field<'_>, errors: &mut Errors) -> bool {
    let faults = names::is_qualified_name(name);
    for fault in &faults {
        place.invalid_value(name, fault.as_str(), errors);
    }
    if !faults.is_empty() {
        return false;
    }
    if !name.contains('/') && !is_standard(name) {
        place.invalid_value(name, "must be a standard resource type or fully qualified", errors);
        return false;
    }
    true
}

/// Complains about an amount: less than nothing, or a part of what comes whole.
pub fn validate_amount(name: &str, amount: &Field<'_>, errors: &mut Errors) {
    let Some(quantity) = quantity(amount) else { return };
    if quantity.is_negative() {
        amount.invalid("must be greater than or equal to 0", errors);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.milli_value() % 1000 != 0 {
        amount.invalid("must be an integer", errors);
    }
}

/// Complains about amounts less than nothing, whatever their names.
pub fn validate_basic(list: &Field<'_>, errors: &mut Errors) {
    for (_, amount) in list.entries() {
        if let Some(quantity) = quantity(&amount)
            && quantity.value() < 0
        {
            amount.invalid_value(quantity.value(), "must be a valid resource quantity", errors);
        }
    }
}

/// Complains about the `resources` of a container.
pub fn validate_container_resources(resources: &Field<'_>, claims: &BTreeSet<String>, errors: &mut Errors) {
    validate_requirements(resources, validate_container_resource_name, errors);
    validate_claim_names(&resources.get("claims"), claims, errors);
}

/// Complains about the `resources` of a pod as a whole.
pub fn validate_pod_resources(spec: &Field<'_>, errors: &mut Errors) {
    let resources = spec.get("resources");
    if !resources.exists() {
        return;
    }
    let claims = resources.get("claims");
    if claims.exists() {
        claims.forbidden("claims may not be set for Resources at pod-level", errors);
    }
    validate_requirements(&resources, validate_pod_resource_name, errors);
    let requests = resources.get("requests");
    for (name, amount) in container_requests(spec.value()) {
        let of_pod = requests.key(&name);
        if quantity(&of_pod).is_some_and(|of_pod| amount > of_pod) {
            let detail = format!("must be greater than or equal to aggregate container requests of {amount}");
            of_pod.invalid(detail, errors);
        }
    }
    let limits = resources.get("limits");
    for (index, container) in spec.get("containers").items().enumerate() {
        let requirements = container.get("resources");
        let own = requirements.get("limits");
        for (name, amount) in own.entries() {
            let of_pod = limits.key(name);
            if let (Some(own), Some(most)) = (quantity(&amount), quantity(&of_pod))
                && own > most
            {
                // Upstream's path, odd as it is.
                errors.push(crate::FieldError {
                    reason: Reason::Invalid,
                    path: format!("{}.containers[{index}][{name}].limits", resources.path()),
                    value: Some(own.to_string().into()),
                    detail: format!("must be less than or equal to pod limits of {most}"),
                });
            }
        }
    }
}

/// Complains about the amounts that a runtime class adds to a pod.
pub fn validate_overhead(overhead: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in overhead.entries() {
        validate_container_resource_name(name, &amount, errors);
        validate_amount(name, &amount, errors);
    }
}

/// Complains about the name of a resource that containers may ask for.
pub fn validate_container_resource_name(name: &str, place: &Field<'_>, errors: &mut Errors) {
    validate_resource_name(name, place, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            place.invalid_value(name, "must be a standard resource for containers", errors);
        }
    } else if !is_native(name) && !is_extended(name) {
        place.invalid_value(name, "doesn't follow extended resource name standard", errors);
    }
}

fn validate_pod_resource_name(name: &str, place: &Field<'_>, errors: &mut Errors) {
    if validate_resource_name(name, place, errors) && !matches!(name, "cpu" | "memory") && !is_huge_page(name)
    {
        let value = name.into();
        place.with_value(&value).not_supported(&["cpu", "memory"], errors);
    }
}

fn validate_requirements(
    resources: &Field<'_>,
    validate_name: fn(&str, &Field<'_>, &mut Errors),
    errors: &mut Errors,
) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    let (mut huge_pages, mut compute) = (false, false);
    for list in [&limits, &requests] {
        for (name, amount) in list.entries() {
            validate_name(name, &amount, errors);
            validate_amount(name, &amount, errors);
            compute |= matches!(name, "cpu" | "memory");
            if let Some(size) = name.strip_prefix(HUGE_PAGES) {
                huge_pages = true;
                validate_huge_pages(name, size, &amount, errors);
            }
        }
    }
    for (name, request) in requests.entries() {
        let overcommit = is_native(name) && !is_huge_page(name);
        match (quantity(&request), quantity(&limits.key(name))) {
            (Some(request), Some(limit)) if request != limit && !overcommit => {
                let detail = format!("must be equal to {name} limit of {limit}");
                requests.invalid_value(request.to_string(), detail, errors);
            }
            (Some(request), Some(limit)) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                requests.invalid_value(request.to_string(), detail, errors);
            }
            (_, None) if !overcommit => {
                limits.complain(
                    Reason::Required,
                    "Limit must be set for non overcommitable resources",
                    errors,
                );
            }
            _ => {}
        }
    }
    if huge_pages && !compute {
        resources.forbidden("HugePages require cpu or memory", errors);
    }
}

fn validate_huge_pages(name: &str, size: &str, amount: &Field<'_>, errors: &mut Errors) {
    let Some(quantity) = quantity(amount) else { return };
    let size: Quantity = size.parse().unwrap_or_default();
    let divisible = size.value() > 0 && size.is_whole() && quantity.value() % size.value() == 0;
    if !divisible {
        amount.invalid(format!("{quantity} is not positive integer multiple of {name}"), errors);
    }
}

fn validate_claim_names(claims: &Field<'_>, of_pod: &BTreeSet<String>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let (name, request) = (claim.get("name"), claim.get("request"));
        if name.text().is_empty() {
            claim.complain(Reason::Required, "", errors);
            continue;
        }
        if !request.text().is_empty() {
            request.conforms(names::is_dns1123_label, errors);
        }
        let whole_taken = seen.contains(&(name.text().to_owned(), String::new()));
        let any_taken = seen.iter().any(|(taken, _): &(String, String)| taken == name.text());
        let fresh = seen.insert((name.text().to_owned(), request.text().to_owned()));
        if !fresh || whole_taken || request.text().is_empty() && any_taken {
            claim.with_value(name.value()).duplicate(errors);
        }
        if !of_pod.contains(name.text()) {
            let names: Vec<&str> = of_pod.iter().map(String::as_str).collect();
            let list = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{list}");
            claim.with_value(name.value()).complain(Reason::NotFound, detail, errors);
        }
    }
}
