//! Services.

use super::page::{Page, items, shown, text};
use serde_json::Value;

pub fn describe(service: &Value, slices: &Value, page: &mut Page) {
    let spec = &service["spec"];
    page.field("Name", text(service, "/metadata/name"));
    page.field("Namespace", text(service, "/metadata/namespace"));
    page.labels_and_annotations(service);
    let selector = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", shown(value)));
    let selector = selector.collect::<Vec<_>>().join(",");
    page.field("Selector", if selector.is_empty() { "<none>" } else { &selector });
    page.field("Type", text(spec, "/type"));
    for (title, path) in [("IP Family Policy", "/ipFamilyPolicy")] {
        if !text(spec, path).is_empty() {
            page.field(title, text(spec, path));
        }
    }
    let joined = |path: &str| items(spec, path).map(shown).collect::<Vec<_>>().join(",");
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    if spec["ipFamilies"].is_array() {
        page.field("IP Families", &or_none(joined("/ipFamilies")));
    }
    page.field("IP", text(spec, "/clusterIP"));
    if spec["clusterIPs"].is_array() {
        page.field("IPs", &or_none(joined("/clusterIPs")));
    }
    if !text(spec, "/externalName").is_empty() {
        page.field("External Name", text(spec, "/externalName"));
    }
    for port in items(spec, "/ports") {
        let name = port["name"].as_str().unwrap_or("<unset>");
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        page.line(&format!("Port:\t{name}\t{}/{protocol}", shown(&port["port"])));
        let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
        page.line(&format!("TargetPort:\t{}/{protocol}", shown(target)));
        if port["nodePort"].is_i64() {
            page.line(&format!("NodePort:\t{name}\t{}/{protocol}", shown(&port["nodePort"])));
        }
        page.field("Endpoints", &endpoints(slices, port["name"].as_str().unwrap_or_default()));
    }
    page.field("Session Affinity", spec["sessionAffinity"].as_str().unwrap_or("None"));
    for (title, path) in [
        ("External Traffic Policy", "/externalTrafficPolicy"),
        ("Internal Traffic Policy", "/internalTrafficPolicy"),
    ] {
        if !text(spec, path).is_empty() {
            page.field(title, text(spec, path));
        }
    }
}

/// The addresses behind a port that are ready; a few of them, and how many more.
fn endpoints(slices: &Value, port: &str) -> String {
    let mut found = Vec::new();
    for slice in items(slices, "/items") {
        let number = items(slice, "/ports").find(|own| own["name"].as_str().unwrap_or_default() == port);
        let Some(number) = number.and_then(|own| own["port"].as_i64()) else { continue };
        for endpoint in items(slice, "/endpoints").filter(|endpoint| endpoint["conditions"]["ready"] != false)
        {
            found.extend(items(endpoint, "/addresses").map(|address| format!("{}:{number}", shown(address))));
        }
    }
    match found.len() {
        0 => String::new(),
        count if count > 3 => format!("{} + {} more...", found[..3].join(","), count - 3),
        _ => found.join(","),
    }
}
