//! Where a volume's contents come from.

use super::page::{Page, items, or, shown, text};
use serde_json::Value;

/// The volumes of a pod; those of a template stand a little further in.
pub fn list(spec: &Value, indent: &str, page: &mut Page) {
    let mut volumes = items(spec, "/volumes").peekable();
    if volumes.peek().is_none() {
        page.line(&format!("{indent}Volumes:\t<none>"));
        return;
    }
    page.line(&format!("{indent}Volumes:"));
    let indent = if indent.is_empty() { "  " } else { "   " };
    for volume in volumes {
        page.line(&format!("{indent}{}:", text(volume, "/name")));
        match volume.as_object().into_iter().flatten().find(|(field, _)| *field != "name") {
            Some((kind, source)) => self::source(kind, source, page),
            None => page.line("  <unknown>"),
        }
    }
}

/// One source.
pub fn source(kind: &str, source: &Value, page: &mut Page) {
    let part = |field: &str| source.get(field).map(shown).unwrap_or_default();
    let is = |field: &str| (source[field] == true).to_string();
    let (about, fields): (&str, Vec<(&str, String)>) = match kind {
        "hostPath" => (
            "HostPath (bare host directory volume)",
            vec![
                ("Path", part("path")),
                ("HostPathType", source.get("type").map_or_else(|| "<none>".to_owned(), shown)),
            ],
        ),
        "emptyDir" => (
            "EmptyDir (a temporary directory that shares a pod's lifetime)",
            vec![("Medium", part("medium")), ("SizeLimit", or(&part("sizeLimit"), "<unset>").to_owned())],
        ),
        "secret" => (
            "Secret (a volume populated by a Secret)",
            vec![("SecretName", part("secretName")), ("Optional", is("optional"))],
        ),
        "configMap" => (
            "ConfigMap (a volume populated by a ConfigMap)",
            vec![("Name", part("name")), ("Optional", is("optional"))],
        ),
        "nfs" => (
            "NFS (an NFS mount that lasts the lifetime of a pod)",
            vec![("Server", part("server")), ("Path", part("path")), ("ReadOnly", is("readOnly"))],
        ),
        "persistentVolumeClaim" => (
            "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
            vec![("ClaimName", part("claimName")), ("ReadOnly", is("readOnly"))],
        ),
        "local" => (
            "LocalVolume (a persistent volume backed by local storage on a node)",
            vec![("Path", part("path"))],
        ),
        "image" => (
            "Image (a container image or OCI artifact)",
            vec![("Reference", part("reference")), ("PullPolicy", part("pullPolicy"))],
        ),
        "csi" => {
            let mut fields = vec![("Driver", part("driver")), ("FSType", part("fsType"))];
            if source["volumeHandle"].is_string() {
                fields.push(("VolumeHandle", part("volumeHandle")));
            }
            fields.push(("ReadOnly", is("readOnly")));
            ("CSI (a Container Storage Interface (CSI) volume source)", fields)
        }
        "projected" => {
            ("Projected (a volume that contains injected data from multiple sources)", projected(source))
        }
        "downwardAPI" => ("DownwardAPI (a volume populated by information about the pod)", Vec::new()),
        "ephemeral" => (
            "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
            claim_template(&source["volumeClaimTemplate"]),
        ),
        _ => return page.line("  <unknown>"),
    };
    page.line(&format!("    Type:\t{about}"));
    fields.iter().for_each(|(title, value)| page.line(&format!("    {title}:\t{value}")));
    if kind == "downwardAPI" {
        page.line("    Items:");
        for item in items(source, "/items") {
            let from = item.get("fieldRef").map(|of| text(of, "/fieldPath"));
            let from = from.unwrap_or_else(|| text(item, "/resourceFieldRef/resource"));
            page.line(&format!("      {from} -> {}", text(item, "/path")));
        }
    }
    if kind == "csi" {
        let attributes = source["volumeAttributes"].as_object().into_iter().flatten();
        let mut pairs = attributes.map(|(key, value)| format!("    {key}={}", shown(value)));
        page.line(&format!("    VolumeAttributes:\t{}", pairs.next().unwrap_or_else(|| "<none>".to_owned())));
        pairs.for_each(|pair| page.line(&format!("    \t{pair}")));
    }
}

fn projected(source: &Value) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    for part in items(source, "/sources") {
        for (field, title) in [("secret", "SecretName"), ("configMap", "ConfigMapName")] {
            if part[field].is_object() {
                fields.push((title, shown(&part[field]["name"])));
                fields.push(("Optional", (part[field]["optional"] == true).to_string()));
            }
        }
        if part["downwardAPI"].is_object() {
            fields.push(("DownwardAPI", "true".to_owned()));
        }
        if let Some(seconds) = part["serviceAccountToken"]["expirationSeconds"].as_i64() {
            fields.push(("TokenExpirationSeconds", seconds.to_string()));
        }
    }
    fields
}

/// Upstream sets these a level further in than the rest.
fn further_in(pairs: Option<&Value>) -> String {
    format!("    {}", api::printing::labels(pairs))
}

fn claim_template(template: &Value) -> Vec<(&'static str, String)> {
    let spec = &template["spec"];
    let metadata = &template["metadata"];
    let mut fields = vec![
        ("StorageClass", text(spec, "/storageClassName").to_owned()),
        ("Volume", String::new()),
        ("Labels", further_in(metadata.get("labels"))),
        ("Annotations", further_in(metadata.get("annotations"))),
        ("Capacity", String::new()),
        ("Access Modes", String::new()),
    ];
    if let Some(mode) = spec["volumeMode"].as_str() {
        fields.push(("VolumeMode", mode.to_owned()));
    }
    fields
}
