//! Bootstrap tokens: those that have expired go, and the others sign `cluster-info`, by which a machine that joins
//! recognises the cluster.
//!
//! Secrets are read when one of them changes, and not kept.

use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client};
use pki::BootstrapToken;
use std::collections::BTreeMap;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const CLUSTER_INFO: (&str, &str) = ("kube-public", "cluster-info");
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

fn data<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()
}

/// When a token ends; `None` for never. A time that cannot be read has passed.
fn ends(secret: &Secret) -> Option<Timestamp> {
    let text = data(secret, "expiration").filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// What to do about a token.
fn plan_token(secret: &Secret, now: Timestamp) -> Plan {
    match ends(secret).filter(|_| secret.type_.as_deref() == Some(TYPE)) {
        None => Plan::default(),
        Some(at) if at <= now => Plan { writes: vec![Write::delete(secret)], ..Plan::default() },
        Some(at) => Plan::later(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
    }
}

/// What to do about `cluster-info`.
fn plan_signatures(config_map: &ConfigMap, secrets: &[Secret], now: Timestamp) -> Option<Write> {
    let current = config_map.data.clone().unwrap_or_default();
    let kubeconfig = current.get(KUBECONFIG)?;
    let mut next: BTreeMap<String, String> = current.clone();
    next.retain(|key, _| !key.starts_with(SIGNATURE));
    for token in secrets.iter().filter_map(|secret| signing_token(secret, now)) {
        next.insert(format!("{SIGNATURE}{}", token.id()), token.sign(kubeconfig));
    }
    (next != current).then(|| Write::update(&ConfigMap { data: Some(next), ..config_map.clone() }))
}

/// The token, if it may sign and has not expired.
fn signing_token(secret: &Secret, now: Timestamp) -> Option<BootstrapToken> {
    let text = format!("{}.{}", data(secret, "token-id")?, data(secret, "token-secret")?);
    let token: BootstrapToken = text.parse().ok()?;
    let named = secret.metadata.name.as_deref() == Some(&format!("{PREFIX}{}", token.id()));
    let usable = named
        && secret.type_.as_deref() == Some(TYPE)
        && secret.metadata.deletion_timestamp.is_none()
        && data(secret, "usage-bootstrap-signing") == Some("true")
        && ends(secret).is_none_or(|at| at > now);
    usable.then_some(token)
}

fn is_token(key: &Key) -> bool {
    key.namespace == NAMESPACE && key.name.starts_with(PREFIX)
}

struct Cleaner {
    client: Client,
    secrets: Cache<PartialObjectMeta<Secret>>,
}

/// Makes the controller that removes expired tokens.
pub fn start_cleaner(context: &Context) -> Task {
    let secrets = context.informers.metadata::<Secret>();
    let controller = Cleaner { client: context.client.clone(), secrets: secrets.clone() };
    Driver::new(context, controller)
        .watches(&secrets, |change| if is_token(&change.key()) { vec![change.key()] } else { Vec::new() })
        .task()
}

impl Controller for Cleaner {
    type View = Secret;

    async fn observe(&self, key: &Key) -> kube::Result<Option<Secret>> {
        if self.secrets.get(key).is_none() {
            return Ok(None);
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        secrets.get_opt(&key.name).await
    }

    fn plan(&self, secret: &Secret, now: Timestamp) -> Plan {
        plan_token(secret, now)
    }
}

struct Signer {
    client: Client,
}

/// Makes the controller that signs.
pub fn start_signer(context: &Context) -> Task {
    let secrets = context.informers.metadata::<Secret>();
    let config_maps = context.informers.metadata::<ConfigMap>();
    let (namespace, name) = CLUSTER_INFO;
    let target = Key::new(namespace, name);
    let (of_secret, of_config_map) = (target.clone(), target);
    Driver::new(context, Signer { client: context.client.clone() })
        .watches(
            &secrets,
            move |change| {
                if is_token(&change.key()) { vec![of_secret.clone()] } else { Vec::new() }
            },
        )
        .watches(&config_maps, move |change| {
            if change.key() == of_config_map { vec![of_config_map.clone()] } else { Vec::new() }
        })
        .task()
}

impl Controller for Signer {
    type View = (ConfigMap, Vec<Secret>);

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(config_map) = config_maps.get_opt(&key.name).await? else { return Ok(None) };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let tokens = secrets.list(&ListParams::default().fields(&format!("type={TYPE}"))).await?;
        Ok(Some((config_map, tokens.items)))
    }

    fn plan(&self, (config_map, secrets): &Self::View, now: Timestamp) -> Plan {
        let write = plan_signatures(config_map, secrets, now);
        Plan { writes: write.into_iter().collect(), ..Plan::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn secret(id: &str, more: &[(&str, &str)]) -> Secret {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system", "uid": id}, "type": TYPE,
        }))
        .unwrap();
        let own =
            [("token-id", id), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")];
        let all = own.iter().chain(more);
        let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        secret.data = Some(all.map(|(key, value)| ((*key).to_owned(), bytes(value))).collect());
        secret
    }

    #[test]
    fn tokens_end_in_their_time() {
        let cases = [
            ("for ever", secret("abcdef", &[]), 0, None),
            ("not yet", secret("abcdef", &[("expiration", "2026-01-01T00:01:00Z")]), 0, Some(60)),
            ("now", secret("abcdef", &[("expiration", "2026-01-01T00:00:00Z")]), 1, None),
            ("who knows", secret("abcdef", &[("expiration", "soon")]), 1, None),
        ];
        for (name, secret, deletes, again) in cases {
            let plan = plan_token(&secret, now());
            assert_eq!(plan.writes.len(), deletes, "{name}");
            assert_eq!(plan.look_again, again.map(Duration::from_secs), "{name}");
        }
        let mut other = secret("abcdef", &[("expiration", "2025-01-01T00:00:00Z")]);
        other.type_ = Some("Opaque".into());
        assert_eq!(plan_token(&other, now()), Plan::default());
    }

    #[test]
    fn tokens_that_may_sign_do_and_no_others() {
        let config_map = |data| -> ConfigMap {
            serde_json::from_value(
                json!({"metadata": {"name": "cluster-info", "namespace": "kube-public"}, "data": data}),
            )
            .unwrap()
        };
        let secrets = [
            secret("abcdef", &[]),
            secret("silent", &[("usage-bootstrap-signing", "false")]),
            secret("past00", &[("expiration", "2025-12-31T00:00:00Z")]),
        ];
        let unsigned = config_map(json!({"kubeconfig": "K", "jws-kubeconfig-past00": "old"}));
        let write = plan_signatures(&unsigned, &secrets, now()).unwrap();
        let data = write.body["data"].clone();
        assert_eq!(
            data.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["jws-kubeconfig-abcdef", "kubeconfig"]
        );
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        assert!(token.verify("K", data["jws-kubeconfig-abcdef"].as_str().unwrap()));
        assert_eq!(plan_signatures(&config_map(data), &secrets, now()), None);
        assert_eq!(plan_signatures(&config_map(json!({})), &secrets, now()), None);
    }
}
