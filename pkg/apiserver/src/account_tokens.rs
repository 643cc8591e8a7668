//! Tokens of service accounts that stand in Secrets: whoever makes a Secret of type
//! `kubernetes.io/service-account-token` for an account finds a token in it, and loses it with the account.
//!
//! ```text
//! Secret, annotated with an account ──> plan ──> filled (token, ca.crt, namespace, the account's uid)
//!                                            └─> removed: there is no such account
//! ```
//! Such tokens have no end; those of TokenRequests do, and are what pods get.

use crate::auth::authn::standing_token;
use crate::error::{ApiError, Result};
use crate::server::Server;
use crate::storage::{Change, parse};
use api::selector::FieldSelector;
use api::{Value, object};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use listwatch::{Page, Scope, Since};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The type of such secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// Names the account.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Tells it from later ones of the same name.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// What is to be done with a secret.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Nothing,
    Remove,
    Fill,
}

/// What to do with a secret of an account that is there, or is not.
fn plan(secret: &Value, account_uid: Option<&str>, authority: &str) -> Plan {
    let annotated = secret["metadata"]["annotations"][ACCOUNT_UID].as_str().unwrap_or_default();
    match account_uid {
        None => Plan::Remove,
        Some(uid) if !annotated.is_empty() && annotated != uid => Plan::Remove,
        Some(_) => {
            let has = |name: &str| secret["data"][name].as_str().is_some_and(|text| !text.is_empty());
            let authority = BASE64_STANDARD.encode(authority);
            let is_full = has("token")
                && has("namespace")
                && !annotated.is_empty()
                && secret["data"]["ca.crt"].as_str() == Some(&authority);
            if is_full { Plan::Nothing } else { Plan::Fill }
        }
    }
}

/// Does what is planned for every such secret.
async fn pass(server: &Server, authority: &str) -> Result<()> {
    let resource = server.registry.built_in("", "secrets");
    // Those that were written before now are judged by the accounts that were written before them.
    server.catch_up().await?;
    for secret in resource.cache.list(&scope(), Page::default())?.objects {
        let (namespace, name) = (secret.namespace(), secret.name());
        let account = parse(secret.as_json())?["metadata"]["annotations"][ACCOUNT].clone();
        let account = account.as_str().unwrap_or_default();
        let uid = server
            .lookup("", "serviceaccounts", namespace, account)
            .and_then(|account| object::meta(&account, "uid").map(str::to_owned));
        let decide = |secret: &Value| match plan(secret, uid.as_deref(), authority) {
            Plan::Nothing => Ok(Change::Keep),
            Plan::Remove => Ok(Change::Remove(Vec::new())),
            Plan::Fill => fill(server, secret, account, uid.as_deref().unwrap_or_default(), authority)
                .map(|filled| Change::Put(Box::new(filled), Vec::new())),
        };
        match server.modify(&resource, namespace, name, false, decide).await {
            Err(error) if error.reason != "NotFound" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn fill(server: &Server, secret: &Value, account: &str, uid: &str, authority: &str) -> Result<Value> {
    let (namespace, name) = (object::namespace(secret), object::name(secret));
    let mut filled = secret.clone();
    filled["metadata"]["annotations"][ACCOUNT_UID] = uid.into();
    let data = object::object_mut(&mut filled, "data");
    if data.get("token").and_then(Value::as_str).is_none_or(str::is_empty) {
        let claims = standing_token::claims(namespace, name, account, uid);
        let token = server.auth.signer.sign(&claims).map_err(|error| {
            tracing::error!(%error, namespace, name, "cannot sign a token");
            ApiError::internal("failed to generate token")
        })?;
        data.insert("token".to_owned(), BASE64_STANDARD.encode(token).into());
    }
    data.insert("namespace".to_owned(), BASE64_STANDARD.encode(namespace).into());
    data.insert("ca.crt".to_owned(), BASE64_STANDARD.encode(authority).into());
    Ok(filled)
}

/// Does so whenever such a secret or an account changes, until shutdown. `authority` is what clients believe us by.
pub async fn keep(server: Arc<Server>, authority: String, shutdown: CancellationToken) {
    let secrets = server.registry.built_in("", "secrets").cache.clone();
    let accounts = server.registry.built_in("", "serviceaccounts").cache.clone();
    while let (Ok(mut secret_news), Ok(mut account_news)) =
        (secrets.watch(scope(), Since::Now), accounts.watch(Scope::default(), Since::Now))
    {
        loop {
            if let Err(error) = pass(&server, &authority).await {
                tracing::warn!(error = error.message, "cannot fill secrets of service accounts");
            }
            tokio::select! {
                news = secret_news.next() => if news.is_err() { break },
                news = account_news.next() => if news.is_err() { break },
                () = shutdown.cancelled() => return,
            }
        }
    }
}

fn scope() -> Scope {
    let fields = FieldSelector::parse(&format!("type={TYPE}")).expect("a selector");
    Scope { fields, ..Scope::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_filled_once_and_goes_with_its_account() {
        let ca = BASE64_STANDARD.encode("ca");
        let full = || {
            json!({"metadata": {"annotations": {ACCOUNT: "a", ACCOUNT_UID: "1"}},
                "data": {"token": "dA==", "namespace": "bnM=", "ca.crt": ca}})
        };
        let check = |pointer: &str, value: Value, uid: Option<&str>, expected: Plan| {
            let mut secret = full();
            *secret.pointer_mut(pointer).unwrap() = value;
            assert_eq!(plan(&secret, uid, "ca"), expected, "{pointer} {uid:?}");
        };
        check(
            "/metadata/annotations/kubernetes.io~1service-account.name",
            "a".into(),
            Some("1"),
            Plan::Nothing,
        );
        check("/data", Value::Null, Some("1"), Plan::Fill);
        check("/data/token", "".into(), Some("1"), Plan::Fill);
        check("/data/ca.crt", "b2xk".into(), Some("1"), Plan::Fill);
        check("/metadata/annotations/kubernetes.io~1service-account.uid", Value::Null, Some("1"), Plan::Fill);
        check("/data/token", "dA==".into(), Some("2"), Plan::Remove);
        check("/data", Value::Null, None, Plan::Remove);
    }
}
