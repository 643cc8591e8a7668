//! Volumes, claims and their classes.

use super::page::{Page, bracketed, items, joined, shown, text, time};
use super::volume;
use serde_json::Value;

pub fn persistent_volume(object: &Value, page: &mut Page) {
    let spec = &object["spec"];
    page.field("Name", text(object, "/metadata/name"));
    page.labels_and_annotations(object);
    page.field("Finalizers", &bracketed(&object["metadata"]["finalizers"]));
    page.field("StorageClass", text(spec, "/storageClassName"));
    page.field("Status", &status(object));
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
    } else {
        String::new()
    };
    page.field("Claim", &claim);
    page.field("Reclaim Policy", text(spec, "/persistentVolumeReclaimPolicy"));
    page.field("Access Modes", &access_modes(&spec["accessModes"]));
    page.given("VolumeMode", spec.get("volumeMode"));
    page.field("Capacity", &spec["capacity"].get("storage").map_or_else(|| "0".to_owned(), shown));
    node_affinity(&spec["nodeAffinity"]["required"], page);
    page.field("Message", text(object, "/status/message"));
    page.line("Source:");
    const NO_SOURCE: [&str; 9] = [
        "storageClassName",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "accessModes",
        "volumeMode",
        "capacity",
        "nodeAffinity",
        "mountOptions",
        "volumeAttributesClassName",
    ];
    let source =
        spec.as_object().into_iter().flatten().find(|(field, _)| !NO_SOURCE.contains(&field.as_str()));
    match source {
        Some((kind, source)) => volume::source(kind, source, page),
        None => page.line("  <unknown>"),
    }
}

fn status(object: &Value) -> String {
    match object["metadata"]["deletionTimestamp"].as_str() {
        Some(at) => format!("Terminating (lasts {})", api::printing::since(Some(at), jiff::Timestamp::now())),
        None => text(object, "/status/phase").to_owned(),
    }
}

/// `RWO,ROX`: short names, in this order.
fn access_modes(modes: &Value) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.as_array().into_iter().flatten().any(|own| own == mode);
    SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn node_affinity(required: &Value, page: &mut Page) {
    if !required.is_object() {
        page.field("Node Affinity", "<none>");
        return;
    }
    page.field("Node Affinity", "");
    page.line("  Required Terms:\t");
    for (index, term) in items(required, "/nodeSelectorTerms").enumerate() {
        let rules = items(term, "/matchExpressions").map(|rule| {
            let operator = text(rule, "/operator").to_lowercase();
            match joined(&rule["values"], ", ").as_str() {
                "" => format!("{} {operator}", text(rule, "/key")),
                values => format!("{} {operator} [{values}]", text(rule, "/key")),
            }
        });
        terms("    ", index, rules.collect(), page);
    }
}

fn terms(indent: &str, index: usize, rules: Vec<String>, page: &mut Page) {
    page.line(&format!("{indent}Term {index}:\t{}", rules.first().map_or("<none>", String::as_str)));
    rules.iter().skip(1).for_each(|rule| page.line(&format!("{indent}\t{rule}")));
}

pub fn claim(object: &Value, pods: &Value, page: &mut Page) {
    let (spec, metadata) = (&object["spec"], &object["metadata"]);
    page.name(object);
    page.field("StorageClass", text(spec, "/storageClassName"));
    page.field("Status", &status(object));
    let volume = text(spec, "/volumeName");
    page.field("Volume", volume);
    page.labels_and_annotations(object);
    page.field("Finalizers", &bracketed(&metadata["finalizers"]));
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        let capacity = object["status"]["capacity"].get("storage").map_or_else(|| "0".to_owned(), shown);
        (capacity, access_modes(&object["status"]["accessModes"]))
    };
    page.field("Capacity", &capacity);
    page.field("Access Modes", &modes);
    page.given("VolumeMode", spec.get("volumeMode"));
    if spec["dataSource"].is_object() {
        page.line("DataSource:");
        for (title, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
            if let Some(value) = spec["dataSource"][field].as_str() {
                page.line(&format!("  {title}:\t{value}"));
            }
        }
    }
    let name = text(object, "/metadata/name");
    let uses = |pod: &&Value| {
        items(pod, "/spec/volumes").any(|volume| volume["persistentVolumeClaim"]["claimName"] == name)
            || items(object, "/metadata/ownerReferences").any(|owner| owner["uid"] == pod["metadata"]["uid"])
    };
    let mut users: Vec<String> =
        items(pods, "/items").filter(uses).map(|pod| text(pod, "/metadata/name").to_owned()).collect();
    users.sort();
    page.list("Used By", users);
    if items(object, "/status/conditions").next().is_some() {
        page.line("Conditions:\n  Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage");
        page.line("  ----\t------\t-----------------\t------------------\t------\t-------");
    }
    for condition in items(object, "/status/conditions") {
        let part = |field: &str| condition[field].as_str().unwrap_or_default();
        let (probed, changed) = (time(part("lastProbeTime")), time(part("lastTransitionTime")));
        page.line(&format!(
            "  {} \t{} \t{probed} \t{changed} \t{} \t{}",
            part("type"),
            part("status"),
            part("reason"),
            part("message")
        ));
    }
}

pub fn storage_class(object: &Value, page: &mut Page) {
    let annotations = &object["metadata"]["annotations"];
    let is_default = api::kinds::storage::storage_class::is_default(object);
    page.field("Name", text(object, "/metadata/name"));
    page.field("IsDefaultClass", if is_default { "Yes" } else { "No" });
    page.field("Annotations", &api::printing::labels(Some(annotations)));
    page.field("Provisioner", text(object, "/provisioner"));
    page.field("Parameters", &api::printing::labels(object.get("parameters")));
    page.field("AllowVolumeExpansion", truth(&object["allowVolumeExpansion"]));
    let mut options = items(object, "/mountOptions").peekable();
    if options.peek().is_none() {
        page.field("MountOptions", "<none>");
    } else {
        page.line("MountOptions:");
        options.for_each(|option| page.line(&format!("  {}", shown(option))));
    }
    page.given("ReclaimPolicy", object.get("reclaimPolicy"));
    page.given("VolumeBindingMode", object.get("volumeBindingMode"));
    if object["allowedTopologies"].is_array() {
        page.field("AllowedTopologies", "");
        for (index, term) in items(object, "/allowedTopologies").enumerate() {
            let rules = items(term, "/matchLabelExpressions")
                .map(|rule| format!("{} in [{}]", text(rule, "/key"), joined(&rule["values"], ", ")));
            terms("  ", index, rules.collect(), page);
        }
    }
}

/// `True`, `False`, or that it is not said.
pub fn truth(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

pub fn volume_attributes_class(object: &Value, page: &mut Page) {
    page.field("Name", text(object, "/metadata/name"));
    page.field("Annotations", &api::printing::labels(object["metadata"].get("annotations")));
    page.field("DriverName", text(object, "/driverName"));
    page.field("Parameters", &api::printing::labels(object.get("parameters")));
}

pub fn csi_node(object: &Value, page: &mut Page) {
    page.opening(object);
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.line("Spec:");
    if items(object, "/spec/drivers").next().is_some() {
        page.line("  Drivers:");
    }
    for driver in items(object, "/spec/drivers") {
        page.line(&format!("    {}:\n      Node ID:\t{}", text(driver, "/name"), text(driver, "/nodeID")));
        if let Some(count) = driver["allocatable"]["count"].as_i64() {
            page.line(&format!("      Allocatables:\n        Count:\t{count}"));
        }
        if driver["topologyKeys"].is_array() {
            page.line(&format!("      Topology Keys:\t{}", bracketed(&driver["topologyKeys"])));
        }
    }
}
