//! What a new cluster must hold so that machines can join it, and so that people find what it offers: upstream kubeadm's
//! objects, under upstream's names.

use crate::cluster::Cluster;
use anyhow::{Context, Result};
use api::kinds::networking::ingress_class::{DEFAULT_CLASS, OWN_CLASS, OWN_CONTROLLER};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pki::BootstrapToken;
use serde_json::{Value, json};

/// The group of those who join with a token.
pub const JOINERS: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The port that knative takes calls at.
pub const ACTIVATOR_PORT: u16 = 10270;

/// Everything but the token.
pub fn all(cluster: &Cluster, ca_pem: &str) -> Result<Vec<Value>> {
    let info = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {
            "server": cluster.url(), "certificate-authority-data": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, ca_pem),
        }}],
        "contexts": null, "current-context": "", "preferences": {}, "users": null,
    });
    let config_reader = "kubeadm:nodes-kubeadm-config";
    let info_reader = "kubeadm:bootstrap-signer-clusterinfo";
    let nodeclient = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    let selfnodeclient = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
    Ok(vec![
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
            "data": {"ClusterConfiguration": cluster.to_yaml()?},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": serde_saphyr::to_string(&info)?},
        }),
        role("kube-public", info_reader, "configmaps", "cluster-info"),
        role_binding("kube-public", info_reader, &[user("system:anonymous")]),
        role("kube-system", config_reader, "configmaps", "kubeadm-config"),
        role_binding("kube-system", config_reader, &[group(JOINERS), group("system:nodes")]),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "kubeadm:get-nodes"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        }),
        cluster_role_binding(pki::CLUSTER_ADMINS, "cluster-admin", pki::CLUSTER_ADMINS),
        cluster_role_binding("kubeadm:get-nodes", "kubeadm:get-nodes", JOINERS),
        cluster_role_binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", JOINERS),
        cluster_role_binding("kubeadm:node-autoapprove-bootstrap", nodeclient, JOINERS),
        cluster_role_binding("kubeadm:node-autoapprove-certificate-rotation", selfnodeclient, "system:nodes"),
        // kube-proxy runs as its node.
        cluster_role_binding("minik8s:node-proxier", "system:node-proxier", "system:nodes"),
        name_server(cluster)?,
        activator(),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": OWN_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
            "spec": {"controller": OWN_CONTROLLER},
        }),
    ])
}

/// The name server as a service, by which it is found, and by which nobody else gets its address. Every node answers
/// there by itself, so that there is nothing for kube-proxy to do.
fn name_server(cluster: &Cluster) -> Result<Value> {
    let port = |name: &str, protocol: &str| json!({"name": name, "port": 53, "targetPort": 53, "protocol": protocol});
    Ok(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {
            "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
            "service.kubernetes.io/service-proxy-name": OWN_CLASS,
        }},
        "spec": {"clusterIP": cluster.dns_address()?, "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")]},
    }))
}

/// The way in to functions, for those inside of the cluster and for the API server.
fn activator() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "knative", "namespace": "kube-system", "labels": {"component": "knative"}},
        "spec": {
            "selector": {"component": "knative"},
            "ports": [{"name": "https", "port": 443, "targetPort": ACTIVATOR_PORT, "protocol": "TCP"}],
        },
    })
}

/// A token's Secret.
pub fn token(token: &BootstrapToken, description: &str, expires: Option<jiff::Timestamp>) -> Value {
    let mut data = json!({
        "token-id": token.id(), "token-secret": token.secret(), "description": description,
        "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        "auth-extra-groups": JOINERS,
    });
    if let Some(expires) = expires {
        data["expiration"] = json!(expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", token.id()), "namespace": "kube-system"},
        "stringData": data,
    })
}

/// Puts objects into the cluster; what stands there is changed to be so.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    let applied = objects.iter().map(|object| apply_one(client, object));
    futures::future::try_join_all(applied).await.map(|_| ())
}

async fn apply_one(client: &Client, object: &Value) -> Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let parameters = PatchParams::apply("kubeadm").force();
    api.patch(name, &parameters, &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    Ok(())
}

/// The tokens that there are.
pub async fn tokens(client: &Client) -> Result<Vec<Secret>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let parameters = kube::api::ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    Ok(api.list(&parameters).await.context("list the tokens")?.items)
}

fn role(namespace: &str, name: &str, resource: &str, object: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": [resource], "resourceNames": [object], "verbs": ["get"]}],
    })
}

fn role_binding(namespace: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": subjects,
    })
}

fn cluster_role_binding(name: &str, role: &str, to: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [group(to)],
    })
}

fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}
