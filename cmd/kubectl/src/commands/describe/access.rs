//! Who may do what: roles, bindings, and requests for certificates.

use super::page::{Page, bracketed, items, text, time};
use serde_json::{Value, json};

pub fn role(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.labels_and_annotations(object);
    page.line("PolicyRule:\n  Resources\tNon-Resource URLs\tResource Names\tVerbs");
    page.line("  ---------\t-----------------\t--------------\t-----");
    for rule in compact(object) {
        page.line(&format!(
            "  {}\t{}\t{}\t{}",
            resource(&rule),
            bracketed(&rule["nonResourceURLs"]),
            bracketed(&rule["resourceNames"]),
            bracketed(&rule["verbs"])
        ));
    }
}

/// `deployments.apps/scale`
fn resource(rule: &Value) -> String {
    let resource = text(rule, "/resources/0");
    let (name, part) = resource.split_once('/').map_or((resource, None), |(name, part)| (name, Some(part)));
    let mut shown = name.to_owned();
    if !text(rule, "/apiGroups/0").is_empty() && !resource.is_empty() {
        shown = format!("{shown}.{}", text(rule, "/apiGroups/0"));
    }
    part.map_or(shown.clone(), |part| format!("{shown}/{part}"))
}

/// One rule for each resource and name of one, with all its verbs, in upstream's order.
fn compact(role: &Value) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    let mut add = |rule: Value, verb: &Value| {
        let same = |own: &&mut Value| {
            ["apiGroups", "resources", "resourceNames"].iter().all(|field| own[*field] == rule[*field])
                && rule["nonResourceURLs"].is_null()
        };
        match rules.iter_mut().find(same) {
            Some(own) => {
                if let Some(verbs) = own["verbs"].as_array_mut().filter(|verbs| !verbs.contains(verb)) {
                    verbs.push(verb.clone());
                }
            }
            None => {
                let mut rule = rule;
                rule["verbs"] = json!([verb]);
                rules.push(rule);
            }
        }
    };
    for rule in items(role, "/rules") {
        for group in items(rule, "/apiGroups") {
            for resource in items(rule, "/resources") {
                for verb in items(rule, "/verbs") {
                    let one = json!({"apiGroups": [group], "resources": [resource]});
                    let mut names = items(rule, "/resourceNames").peekable();
                    if names.peek().is_none() {
                        add(one.clone(), verb);
                    }
                    for name in names {
                        let mut one = one.clone();
                        one["resourceNames"] = json!([name]);
                        add(one, verb);
                    }
                }
            }
        }
        for url in items(rule, "/nonResourceURLs") {
            items(rule, "/verbs").for_each(|verb| add(json!({"nonResourceURLs": [url]}), verb));
        }
    }
    const ORDER: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];
    rules.sort_by_key(|rule| ORDER.map(|field| bracketed(&rule[field])));
    rules
}

pub fn binding(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.labels_and_annotations(object);
    page.line(&format!(
        "Role:\n  Kind:\t{}\n  Name:\t{}",
        text(object, "/roleRef/kind"),
        text(object, "/roleRef/name")
    ));
    page.line("Subjects:\n  Kind\tName\tNamespace\n  ----\t----\t---------");
    for subject in items(object, "/subjects") {
        let part = |field: &str| subject[field].as_str().unwrap_or_default();
        page.line(&format!("  {}\t{}\t{}", part("kind"), part("name"), part("namespace")));
    }
}

pub fn signing_request(object: &Value, page: &mut Page) {
    let (spec, status, metadata) = (&object["spec"], &object["status"], &object["metadata"]);
    page.field("Name", text(object, "/metadata/name"));
    page.field("Labels", &api::printing::labels(metadata.get("labels")));
    page.field("Annotations", &api::printing::labels(metadata.get("annotations")));
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.field("Requesting User", text(spec, "/username"));
    page.given("Signer", spec.get("signerName"));
    if let Some(seconds) = spec["expirationSeconds"].as_i64() {
        page.field("Requested Duration", &api::printing::human_duration(seconds));
    }
    let has = |kind: &str| items(status, "/conditions").any(|condition| condition["type"] == kind);
    let mut shown = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        shown += ",Failed";
    }
    if !text(status, "/certificate").is_empty() {
        shown += ",Issued";
    }
    page.field("Status", &shown);
    if let Some(request) = super::request::read(text(spec, "/request")) {
        page.line("Subject:");
        let one = |values: &[String]| values.first().cloned().unwrap_or_default();
        page.line(&format!("\tCommon Name:\t{}", one(&request.common_name)));
        page.line(&format!("\tSerial Number:\t{}", one(&request.serial_number)));
        lists(&request.subject, page);
        if request.names.iter().any(|(_, values)| !values.is_empty()) {
            page.line("Subject Alternative Names:");
            lists(&request.names, page);
        }
    }
}

fn lists(lists: &[(&str, Vec<String>)], page: &mut Page) {
    for (title, values) in lists.iter().filter(|(_, values)| !values.is_empty()) {
        page.line(&format!("\t{title}:\t{}", values.join("\n\t\t")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_taken_apart_and_put_together_by_resource() {
        let role = json!({"rules": [
            {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]},
            {"nonResourceURLs": ["/healthz"], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["watch", "get"]},
        ]});
        let rules = compact(&role);
        let found: Vec<String> =
            rules.iter().map(|rule| format!("{} {}", resource(rule), bracketed(&rule["verbs"]))).collect();
        let expected = [
            "deployments.apps [get list watch]",
            "deployments.apps/scale [get list]",
            " [get]",
            "pods [get]",
        ];
        assert_eq!(found, expected);
    }
}
