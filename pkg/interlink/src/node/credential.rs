//! The credential that an API server of the first generation is handed: it reads what this node's pods use, and ends.
//!
//! ```text
//! pods ──needs──> Roles by namespace (get, by name) <── RoleBindings ── ServiceAccount ── token, an hour ──> /setKubeCFG
//! ```
//!
//! Roles follow the pods: what no pod uses any more cannot be read any more.

use super::VirtualNode;
use super::table::Stage;
use crate::gather::{self, HANDED_OVER};
use http::Method;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const FIELD_MANAGER: &str = "interlink";

/// Names of ConfigMaps and of Secrets.
type Names = (BTreeSet<String>, BTreeSet<String>);

/// What is handed over, and what of it is in force.
pub(super) struct Handover {
    client: Client,
    /// The service account, and the roles that it is given.
    account: String,
    namespace: String,
    /// Where the cluster is reached from outside, and its authority, as PEM.
    server: String,
    authority: String,
    state: Mutex<InForce>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct InForce {
    roles: BTreeMap<String, Names>,
    has_account: bool,
    sent: Option<Instant>,
}

impl Handover {
    /// Of this account.
    pub fn new(
        client: Client,
        account: String,
        namespace: String,
        server: String,
        authority: String,
    ) -> Handover {
        Handover {
            client,
            account,
            namespace,
            server,
            authority,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The other side was away: it is handed over again.
    pub fn again(&self) {
        self.state.lock().sent = None;
    }

    /// Sees to it that the other side can read what the pods of the node use. An error says what is missing.
    pub async fn cover(&self, node: &VirtualNode) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        let wanted = wanted(node);
        self.apply(&wanted).await.map_err(|error| {
            format!("the credential for the interLink API cannot be made: {}", kubelet::error::chain(&error))
        })?;
        let half = Duration::from_secs(HANDED_OVER.as_secs().unsigned_abs() / 2);
        if self.state.lock().sent.is_some_and(|at| at.elapsed() < half) {
            return Ok(());
        }
        let kubeconfig = self
            .kubeconfig()
            .await
            .map_err(|error| format!("no token for the interLink API: {}", kubelet::error::chain(&error)))?;
        let sent = node.api.call("/setKubeCFG", Method::POST, kubeconfig.into_bytes(), PATIENCE).await;
        sent.map_err(|error| format!("hand over the credential: {error}"))?;
        self.state.lock().sent = Some(Instant::now());
        Ok(())
    }

    async fn apply(&self, wanted: &BTreeMap<String, Names>) -> Result<(), kube::Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        if !self.state.lock().has_account {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": self.account, "namespace": self.namespace}, "automountServiceAccountToken": false});
            let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
            accounts.patch(&self.account, &params, &Patch::Apply(&account)).await?;
            self.state.lock().has_account = true;
        }
        let present = self.state.lock().roles.clone();
        for (namespace, names) in wanted {
            if present.get(namespace) == Some(names) {
                continue;
            }
            let roles: Api<Role> = Api::namespaced(self.client.clone(), namespace);
            roles.patch(&self.account, &params, &Patch::Apply(&role(&self.account, names))).await?;
            if !present.contains_key(namespace) {
                let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
                bindings.patch(&self.account, &params, &Patch::Apply(&self.binding())).await?;
            }
            self.state.lock().roles.insert(namespace.clone(), names.clone());
        }
        for namespace in present.keys().filter(|namespace| !wanted.contains_key(*namespace)) {
            let roles: Api<Role> = Api::namespaced(self.client.clone(), namespace);
            match roles.delete(&self.account, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done?),
            }
            self.state.lock().roles.remove(namespace);
        }
        Ok(())
    }

    fn binding(&self) -> serde_json::Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": self.account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.account},
            "subjects": [{"kind": "ServiceAccount", "name": self.account, "namespace": self.namespace}],
        })
    }

    async fn kubeconfig(&self) -> Result<String, kube::Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest {
            metadata: ObjectMeta::default(),
            spec: TokenRequestSpec {
                expiration_seconds: Some(HANDED_OVER.as_secs()),
                ..TokenRequestSpec::default()
            },
            status: None,
        };
        let answer = accounts.create_token_request(&self.account, &PostParams::default(), &request).await?;
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        let authority = json!(k8s_openapi::ByteString(self.authority.clone().into_bytes()));
        let name = "interlink";
        Ok(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.server, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": self.namespace}}],
        })
        .to_string())
    }
}

fn role(name: &str, (config_maps, secrets): &Names) -> serde_json::Value {
    let rule = |resource: &str, names: &BTreeSet<String>| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"], "resourceNames": names});
    // A rule without names would be one for all.
    let rules: Vec<_> = [("configmaps", config_maps), ("secrets", secrets)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(resource, names)| rule(resource, names))
        .collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

/// What the pods use that are to be given away, or are there.
fn wanted(node: &VirtualNode) -> BTreeMap<String, Names> {
    let mut wanted: BTreeMap<String, Names> = BTreeMap::new();
    let table = node.table.lock();
    let live = table.entries().filter(|(_, entry)| matches!(entry.stage, Stage::New { .. } | Stage::Given));
    for (_, entry) in live {
        let needs = gather::needs(&entry.pod);
        if needs.config_maps.is_empty() && needs.secrets.is_empty() {
            continue;
        }
        let of = wanted.entry(entry.pod.metadata.namespace.clone().unwrap_or_default()).or_default();
        of.0.extend(needs.config_maps.into_keys());
        of.1.extend(needs.secrets.into_keys());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_names_what_may_be_read_and_nothing_more() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let made = role("vk", &(names(&["m"]), names(&[])));
        assert_eq!(
            made["rules"],
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["m"]}])
        );
        assert_eq!(role("vk", &Names::default())["rules"], json!([]));
    }
}
