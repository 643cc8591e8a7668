//! What every namespace has: the service account `default`, and the authority that its pods are to believe.

use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PartialObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

/// The account that a namespace lacks.
fn account(namespace: &str) -> ServiceAccount {
    ServiceAccount { metadata: metadata(namespace, ACCOUNT), ..ServiceAccount::default() }
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// What to do about a namespace's authority.
pub fn plan_root_ca(namespace: &str, found: Option<&ConfigMap>, authority: &str) -> Option<Write> {
    let data = BTreeMap::from([(ROOT_CA_KEY.to_owned(), authority.to_owned())]);
    let (key, text) = DESCRIPTION;
    match found {
        None => {
            let mut metadata = metadata(namespace, ROOT_CA);
            metadata.annotations = Some(BTreeMap::from([(key.to_owned(), text.to_owned())]));
            let config_map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
            Some(Write::create(&config_map).tolerating(409))
        }
        Some(found) => {
            let annotations = found.metadata.annotations.as_ref();
            let described = annotations.and_then(|all| all.get(key)).is_some_and(|found| found == text);
            if found.data.as_ref() == Some(&data) && described {
                return None;
            }
            let mut next = found.clone();
            next.data = Some(data);
            next.metadata.annotations.get_or_insert_default().insert(key.to_owned(), text.to_owned());
            Some(Write::update(&next))
        }
    }
}

struct Accounts {
    namespaces: Cache<Namespace>,
    accounts: Cache<PartialObjectMeta<ServiceAccount>>,
}

/// Makes the controller of accounts.
pub fn start_accounts(context: &Context) -> Task {
    let namespaces: Cache<Namespace> = context.informers.cache();
    let accounts = context.informers.metadata::<ServiceAccount>();
    let controller = Accounts { namespaces: namespaces.clone(), accounts: accounts.clone() };
    Driver::new(context, controller)
        .owns(&namespaces)
        .watches(&accounts, |change| gone(change.key(), change.new.is_none(), ACCOUNT))
        .task()
}

fn gone(key: Key, is_gone: bool, name: &str) -> Vec<Key> {
    if is_gone && key.name == name { vec![Key::cluster(key.namespace)] } else { Vec::new() }
}

fn active(namespaces: &Cache<Namespace>, key: &Key) -> Option<Arc<Namespace>> {
    namespaces.get(key).filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
}

impl Controller for Accounts {
    type View = String;

    async fn observe(&self, key: &Key) -> kube::Result<Option<String>> {
        let lacks = active(&self.namespaces, key).is_some()
            && self.accounts.get(&Key::new(&key.name, ACCOUNT)).is_none();
        Ok(lacks.then(|| key.name.clone()))
    }

    fn plan(&self, namespace: &String, _now: Timestamp) -> Plan {
        // The apiserver makes it as well: whoever comes first.
        Plan { writes: vec![Write::create(&account(namespace)).tolerating(409)], ..Plan::default() }
    }
}

struct RootCa {
    namespaces: Cache<Namespace>,
    config_maps: Cache<ConfigMap>,
    authority: String,
}

/// Makes the controller of authorities. Without an authority to tell of it does nothing.
pub fn start_root_ca(context: &Context) -> Task {
    let Some(authority) = authority(&context.config) else { return Box::pin(async {}) };
    let namespaces: Cache<Namespace> = context.informers.cache();
    // Of all others only the names are kept.
    let config_maps: Cache<ConfigMap> = context.informers.cache_pruned(|config_map: &mut ConfigMap| {
        if config_map.metadata.name.as_deref() != Some(ROOT_CA) {
            config_map.data = None;
            config_map.binary_data = None;
            config_map.metadata.annotations = None;
        }
    });
    let controller = RootCa { namespaces: namespaces.clone(), config_maps: config_maps.clone(), authority };
    Driver::new(context, controller)
        .owns(&namespaces)
        .watches(&config_maps, |change| gone(change.key(), true, ROOT_CA))
        .task()
}

/// What `--root-ca-file` says, or else what our own kubeconfig makes us believe.
fn authority(config: &crate::Config) -> Option<String> {
    if let Some(path) = &config.root_ca_file {
        let text = std::fs::read_to_string(path);
        return text
            .inspect_err(|error| tracing::error!(%error, path = %path.display(), "read --root-ca-file"))
            .ok();
    }
    let text = std::fs::read_to_string(config.kubeconfig.as_ref()?).ok()?;
    let kubeconfig = pki::Kubeconfig::parse(&text).ok()?;
    Some(kubeconfig.ca_pem)
}

impl Controller for RootCa {
    type View = (String, Option<Arc<ConfigMap>>);

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        let found = self.config_maps.get(&Key::new(&key.name, ROOT_CA));
        Ok(active(&self.namespaces, key).map(|_| (key.name.clone(), found)))
    }

    fn plan(&self, (namespace, found): &Self::View, _now: Timestamp) -> Plan {
        let write = plan_root_ca(namespace, found.as_deref(), &self.authority);
        Plan { writes: write.into_iter().collect(), ..Plan::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Verb;
    use serde_json::json;

    #[test]
    fn the_authority_is_written_where_it_is_not_so() {
        let created = plan_root_ca("a", None, "PEM").unwrap();
        assert_eq!(
            (created.verb, created.target.path()),
            (Verb::Create, "/api/v1/namespaces/a/configmaps/kube-root-ca.crt".into())
        );
        let found: ConfigMap = serde_json::from_value(created.body).unwrap();
        assert_eq!(plan_root_ca("a", Some(&found), "PEM"), None);
        let renewed = plan_root_ca("a", Some(&found), "NEW").unwrap();
        assert_eq!(renewed.body["data"], json!({"ca.crt": "NEW"}));
        let mut more = found;
        more.data.as_mut().unwrap().insert("x".into(), "y".into());
        assert_eq!(plan_root_ca("a", Some(&more), "PEM").unwrap().body["data"], json!({"ca.crt": "PEM"}));
    }
}
