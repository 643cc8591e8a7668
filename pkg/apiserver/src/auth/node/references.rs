//! What pods, volumes and ingresses refer to: everything that a machine has to read to run or serve them.

use api::object::{name, namespace};
use serde_json::Value;

/// What kind of object is referred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    Claim,
    ServiceAccount,
    ResourceClaim,
}

/// The objects a pod needs, all in its own namespace.
pub(super) fn of_pod(pod: &Value) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let spec = &pod["spec"];
    push(&mut found, Kind::ServiceAccount, &spec["serviceAccountName"]);
    for secret in items(&spec["imagePullSecrets"]) {
        push(&mut found, Kind::Secret, &secret["name"]);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items(&spec[list]).for_each(|container| environment(container, &mut found));
    }
    for volume in items(&spec["volumes"]) {
        volume_sources(volume, &mut found);
        if volume.get("ephemeral").is_some_and(Value::is_object) {
            found.push((Kind::Claim, ephemeral_claim(pod, volume)));
        }
    }
    for claim in items(&spec["resourceClaims"]) {
        push(&mut found, Kind::ResourceClaim, &claim["resourceClaimName"]);
        // Made from a template: the status says under which name.
        let statuses = items(&pod["status"]["resourceClaimStatuses"]);
        for status in statuses.filter(|status| status["name"] == claim["name"]) {
            push(&mut found, Kind::ResourceClaim, &status["resourceClaimName"]);
        }
    }
    push(&mut found, Kind::ResourceClaim, &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
    found
}

/// The secrets that a node needs to mount a volume, with their namespaces.
pub(super) fn secrets_of_volume(volume: &Value) -> Vec<(String, String)> {
    let spec = &volume["spec"];
    let claim_namespace = text(&spec["claimRef"]["namespace"]);
    let mut found = Vec::new();
    let mut add = |namespace: &str, name: &str| {
        if !name.is_empty() {
            found.push((namespace.to_owned(), name.to_owned()));
        }
    };
    let or_claim = |namespace: &Value| match text(namespace) {
        "" => claim_namespace.to_owned(),
        own => own.to_owned(),
    };
    let azure = &spec["azureFile"];
    add(&or_claim(&azure["secretNamespace"]), text(&azure["secretName"]));
    for source in ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"] {
        let reference = &spec[source]["secretRef"];
        add(&or_claim(&reference["namespace"]), text(&reference["name"]));
    }
    for reference in [
        &spec["cinder"]["secretRef"],
        &spec["storageos"]["secretRef"],
        &spec["csi"]["nodePublishSecretRef"],
        &spec["csi"]["nodeStageSecretRef"],
        &spec["csi"]["nodeExpandSecretRef"],
    ] {
        add(text(&reference["namespace"]), text(&reference["name"]));
    }
    found
}

/// The secrets, in an ingress's own namespace, that its certificates are in.
pub(super) fn secrets_of_ingress(ingress: &Value) -> impl Iterator<Item = &str> {
    items(&ingress["spec"]["tls"]).map(|tls| text(&tls["secretName"])).filter(|name| !name.is_empty())
}

/// What a mirror pod must not refer to and does, in upstream's words.
pub(super) fn forbidden_in_mirror_pods(pod: &Value) -> Result<Option<&'static str>, String> {
    let references = of_pod(pod);
    let refers = |kind| references.iter().any(|(found, _)| *found == kind);
    if refers(Kind::ServiceAccount) {
        return Ok(Some("serviceaccounts"));
    }
    if refers(Kind::Secret) {
        return Ok(Some("secrets"));
    }
    if refers(Kind::ConfigMap) {
        return Ok(Some("configmaps"));
    }
    if items(&pod["spec"]["resourceClaims"]).next().is_some() {
        return Ok(Some("resourceclaims"));
    }
    for volume in items(&pod["spec"]["volumes"]) {
        if let Some(what) = forbidden_volume(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// The claim that is made for an ephemeral volume.
pub(super) fn ephemeral_claim(pod: &Value, volume: &Value) -> String {
    format!("{}-{}", name(pod), text(&volume["name"]))
}

/// Whether it is the image of a pod that a node runs from a file.
pub(super) fn is_mirror(pod: &Value) -> bool {
    let annotations = pod.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// The annotation of mirror pods.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Namespace and name.
pub(super) fn key(object: &Value) -> (String, String) {
    (namespace(object).to_owned(), name(object).to_owned())
}

/// The string here, empty where there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The elements here, none where there is no list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn environment(container: &Value, found: &mut Vec<(Kind, String)>) {
    for source in items(&container["envFrom"]) {
        push(found, Kind::Secret, &source["secretRef"]["name"]);
        push(found, Kind::ConfigMap, &source["configMapRef"]["name"]);
    }
    for variable in items(&container["env"]) {
        let from = &variable["valueFrom"];
        push(found, Kind::Secret, &from["secretKeyRef"]["name"]);
        push(found, Kind::ConfigMap, &from["configMapKeyRef"]["name"]);
    }
}

fn volume_sources(volume: &Value, found: &mut Vec<(Kind, String)>) {
    push(found, Kind::Claim, &volume["persistentVolumeClaim"]["claimName"]);
    push(found, Kind::ConfigMap, &volume["configMap"]["name"]);
    push(found, Kind::Secret, &volume["secret"]["secretName"]);
    push(found, Kind::Secret, &volume["azureFile"]["secretName"]);
    push(found, Kind::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
    for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
        push(found, Kind::Secret, &volume[source]["secretRef"]["name"]);
    }
    for source in items(&volume["projected"]["sources"]) {
        push(found, Kind::Secret, &source["secret"]["name"]);
        push(found, Kind::ConfigMap, &source["configMap"]["name"]);
    }
}

fn forbidden_volume(volume: &Value) -> Result<Option<&'static str>, String> {
    const HARMLESS: [&str; 22] = [
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    ];
    let has = |name: &str| volume.get(name).is_some_and(|source| !source.is_null());
    if HARMLESS.iter().any(|name| has(name)) {
        return Ok(None);
    }
    for (source, what) in [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ] {
        if has(source) {
            return Ok(Some(what));
        }
    }
    if !has("projected") {
        return Err(format!("unknown volume type for volume  {:?}", text(&volume["name"])));
    }
    for projected in items(&volume["projected"]["sources"]) {
        let has = |name: &str| projected.get(name).is_some_and(|source| !source.is_null());
        for (source, what) in [
            ("configMap", "configmaps (via projected volumes)"),
            ("secret", "secrets (via projected volumes)"),
            ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
            ("clusterTrustBundle", "clustertrustbundles"),
            ("podCertificate", "podcertificates"),
        ] {
            if has(source) {
                return Ok(Some(what));
            }
        }
        if !has("downwardAPI") {
            return Err(format!("unknown source for projected volume {:?}", text(&volume["name"])));
        }
    }
    Ok(None)
}

fn push(found: &mut Vec<(Kind, String)>, kind: Kind, name: &Value) {
    if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
        found.push((kind, name.to_owned()));
    }
}
