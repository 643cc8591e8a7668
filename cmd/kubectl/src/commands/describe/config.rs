//! Namespaces and what they hold besides workloads: settings, secrets, accounts, limits.

use super::page::{Page, items, shown, text};
use base64::Engine;
use serde_json::Value;

pub fn namespace(object: &Value, quotas: &Value, limits: &Value, page: &mut Page) {
    page.opening(object);
    page.field("Status", text(object, "/status/phase"));
    if items(object, "/status/conditions").next().is_some() {
        page.timed_conditions(object);
    }
    page.line("");
    let mut quotas: Vec<&Value> = items(quotas, "/items").collect();
    quotas.sort_by_key(|quota| text(quota, "/metadata/name"));
    page.line(if quotas.is_empty() { "No resource quota." } else { "Resource Quotas" });
    for quota in quotas {
        page.line(&format!("  Name:\t{}", text(quota, "/metadata/name")));
        scopes(quota, "  ", "  * ", page);
        page.line("  Resource\tUsed\tHard\n  --------\t---\t---");
        usage(quota, "  ", page);
    }
    page.line("");
    let mut limits = items(limits, "/items").peekable();
    if limits.peek().is_none() {
        page.line("No LimitRange resource.");
        return;
    }
    page.line("Resource Limits");
    limit_heads(" ", page);
    limits.for_each(|range| limit_rows(range, " ", page));
}

pub fn limit_range(object: &Value, page: &mut Page) {
    page.name(object);
    limit_heads("", page);
    limit_rows(object, "", page);
}

fn limit_heads(indent: &str, page: &mut Page) {
    page.line(&format!(
        "{indent}Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio"
    ));
    page.line(&format!(
        "{indent}----\t--------\t---\t---\t---------------\t-------------\t-----------------------"
    ));
}

fn limit_rows(range: &Value, indent: &str, page: &mut Page) {
    const COLUMNS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
    for limit in items(range, "/spec/limits") {
        let mut names: Vec<&String> = COLUMNS
            .iter()
            .filter_map(|column| limit[column].as_object())
            .flat_map(|map| map.keys())
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let cells = COLUMNS.map(|column| limit[column].get(name).map_or_else(|| "-".to_owned(), shown));
            page.line(&format!("{indent}{}\t{name}\t{}", text(limit, "/type"), cells.join("\t")));
        }
    }
}

pub fn quota(object: &Value, page: &mut Page) {
    page.name(object);
    scopes(object, "", " * ", page);
    page.line("Resource\tUsed\tHard\n--------\t----\t----");
    usage(object, "", page);
}

fn scopes(quota: &Value, indent: &str, bullet: &str, page: &mut Page) {
    let mut scopes: Vec<String> = items(quota, "/spec/scopes").map(shown).collect();
    if scopes.is_empty() {
        return;
    }
    scopes.sort();
    page.line(&format!("{indent}Scopes:\t{}", scopes.join(", ")));
    for scope in scopes {
        let about = match scope.as_str() {
            "Terminating" => {
                "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
            }
            "NotTerminating" => {
                "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
            }
            "BestEffort" => {
                "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
            }
            "NotBestEffort" => {
                "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
            }
            _ => continue,
        };
        page.line(&format!("{bullet}{about}"));
    }
}

fn usage(quota: &Value, indent: &str, page: &mut Page) {
    for (name, hard) in quota["status"]["hard"].as_object().into_iter().flatten() {
        let used = quota["status"]["used"].get(name).map_or_else(|| "0".to_owned(), shown);
        page.line(&format!("{indent}{name}\t{used}\t{}", shown(hard)));
    }
}

/// How large they are is all that is shown of secrets, but for tokens that were made to be read here.
pub fn secret(object: &Value, page: &mut Page) {
    page.opening(object);
    page.line(&format!("\nType:\t{}", text(object, "/type")));
    page.line("\nData\n====");
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        let bytes = bytes.unwrap_or_default();
        if key == "token" && object["type"] == "kubernetes.io/service-account-token" {
            page.field(key, &String::from_utf8_lossy(&bytes));
        } else {
            page.field(key, &format!("{} bytes", bytes.len()));
        }
    }
}

pub fn config_map(object: &Value, page: &mut Page) {
    page.opening(object);
    page.line("\nData\n====");
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        page.line(&format!("{key}:\n----\n{}\n", shown(value)));
    }
    page.line("\nBinaryData\n====");
    for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        page.line(&format!("{key}: {} bytes", bytes.map_or(0, |bytes| bytes.len())));
    }
    page.line("");
}

pub fn service_account(object: &Value, page: &mut Page) {
    page.opening(object);
    let names: Vec<&str> = items(object, "/imagePullSecrets").map(|secret| text(secret, "/name")).collect();
    page.field("Image pull secrets", names.first().copied().unwrap_or("<none>"));
    names.iter().skip(1).for_each(|name| page.line(&format!("                   \t{name}")));
}

pub fn priority_class(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.field("Value", &object["value"].as_i64().unwrap_or_default().to_string());
    page.field("GlobalDefault", &(object["globalDefault"] == true).to_string());
    page.field("PreemptionPolicy", text(object, "/preemptionPolicy"));
    page.field("Description", text(object, "/description"));
    page.field("Annotations", &api::printing::labels(object["metadata"].get("annotations")));
}
