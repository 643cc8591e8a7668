//! Every pod runs as a service account, with that account's token mounted unless somebody said not to.

use super::{Operation, Request};
use crate::error::{ApiError, Result};
use api::{Value, object};
use serde_json::json;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_SECONDS: i64 = 3607;
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn admit(request: &Request<'_>, pod: Option<&mut Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    if !request.is_for("", "pods") || request.operation != Operation::Create {
        return Ok(());
    }
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return refuse_account_of_mirror_pod(request, pod);
    }
    let spec = object::object_mut(pod, "spec");
    let name =
        match spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).and_then(Value::as_str) {
            None | Some("") => "default".to_owned(),
            Some(name) => name.to_owned(),
        };
    spec.insert("serviceAccountName".into(), name.as_str().into());
    // The older name of the same field is kept in step, as upstream does.
    spec.insert("serviceAccount".into(), name.as_str().into());
    let account =
        request.server.lookup("", "serviceaccounts", &request.namespace, &name).ok_or_else(|| {
            let why = format!(
                "error looking up service account {0}/{name}: serviceaccount {name:?} not found",
                request.namespace
            );
            ApiError::forbidden(request.kind, &request.name, why)
        })?;
    let wants_token = spec
        .get("automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool)
        .unwrap_or(true);
    if wants_token {
        mount_token(pod);
    }
    let spec = object::object_mut(pod, "spec");
    let has_secrets =
        spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if let Some(secrets) = account.get("imagePullSecrets").filter(|_| !has_secrets) {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    Ok(())
}

/// A mirror pod only shows what a node runs by itself: it cannot use anything of the API.
fn refuse_account_of_mirror_pod(request: &Request<'_>, pod: &Value) -> Result<()> {
    let has_account =
        pod["spec"].get("serviceAccountName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if has_account {
        return Err(ApiError::forbidden(
            request.kind,
            &request.name,
            "a mirror pod may not reference service accounts",
        ));
    }
    Ok(())
}

fn mount_token(pod: &mut Value) {
    let spec = object::object_mut(pod, "spec");
    let existing = spec.get("volumes").and_then(Value::as_array).into_iter().flatten().find_map(|volume| {
        volume["name"].as_str().filter(|name| name.starts_with("kube-api-access-")).map(str::to_owned)
    });
    let volume = existing.clone().unwrap_or_else(|| crate::names::generate("kube-api-access-"));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container.get("volumeMounts").and_then(Value::as_array).cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) || !container.is_object() {
                continue;
            }
            let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            container["volumeMounts"] = mounts.into_iter().chain([mount]).collect();
            mounted = true;
        }
    }
    if mounted && existing.is_none() {
        let volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        spec.insert("volumes".into(), volumes.into_iter().chain([token_volume(&volume)]).collect());
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}
