//! Tokens of service accounts: signed by us, and good only as long as what they are bound to exists.

use super::cache::Cache;
use super::{Authenticated, intersect, standing_token};
use crate::auth::{Identity, Lookup, User};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use pki::Verifier;
use serde_json::Value;
use std::sync::Arc;

/// How far clocks may differ, and how long something deleted still counts.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// More tokens than most clusters have pods that talk to the API.
const MOST_CACHED: usize = 10_000;

/// The service account tokens that are believed.
#[derive(Debug)]
pub struct ServiceAccountTokens {
    issuers: Vec<String>,
    audiences: Vec<String>,
    verifier: Verifier,
    /// Claims of tokens with a good signature. Whether they count now is checked each time.
    verified: Mutex<Cache<Arc<Claims>>>,
}

/// The claims that matter.
#[derive(Debug)]
struct Claims {
    issuer: String,
    audiences: Vec<String>,
    expires: Option<i64>,
    not_before: Option<i64>,
    issued: Option<i64>,
    id: String,
    namespace: String,
    account: Bound,
    pod: Option<Bound>,
    secret: Option<Bound>,
    node: Option<Bound>,
    /// The secret that the token stands in, of a token without an end.
    stands_in: Option<String>,
}

/// An object that a token is bound to.
#[derive(Debug)]
struct Bound {
    name: String,
    uid: String,
}

impl ServiceAccountTokens {
    /// Believes tokens of these issuers that these keys signed. `audiences` are this server's own names.
    pub fn new(issuers: Vec<String>, audiences: Vec<String>, verifier: Verifier) -> Self {
        ServiceAccountTokens { issuers, audiences, verifier, verified: Mutex::new(Cache::new(MOST_CACHED)) }
    }

    /// This server's own names.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Whose token it is; `None` if it is no token of ours; an error if it is one and does not count.
    pub(super) fn authenticate(
        &self,
        token: &str,
        asked: &[String],
        lookup: &dyn Lookup,
        now: Timestamp,
    ) -> Result<Option<Authenticated>, String> {
        let Some(claims) = self.claims(token)? else { return Ok(None) };
        let own = if claims.audiences.is_empty() { &self.audiences } else { &claims.audiences };
        let audiences = intersect(own, asked);
        if audiences.is_empty() && !self.audiences.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(own),
                quoted(asked)
            ));
        }
        claims.check_time(now)?;
        claims.check_objects(lookup, now)?;
        claims.check_place(token, lookup)?;
        Ok(Some(Authenticated { user: claims.user(), audiences }))
    }

    fn claims(&self, token: &str) -> Result<Option<Arc<Claims>>, String> {
        let key = Cache::<Arc<Claims>>::key(token);
        if let Some(claims) = self.verified.lock().get(&key) {
            return Ok(Some(claims));
        }
        let issuer = pki::unverified_claims(token).and_then(|claims| text(&claims["iss"]));
        if !issuer.is_some_and(|issuer| self.believes(&issuer)) {
            return Ok(None);
        }
        let verified = self.verifier.verify(token).map_err(|error| error.to_string())?;
        let claims = Claims::read(&verified)
            .ok_or_else(|| "service account token claims could not be validated".to_owned())?;
        if !self.believes(&claims.issuer) {
            return Err(format!("token issuer {:?} is invalid", claims.issuer));
        }
        let claims = Arc::new(claims);
        self.verified.lock().insert(key, Arc::clone(&claims));
        Ok(Some(claims))
    }

    fn believes(&self, issuer: &str) -> bool {
        issuer == standing_token::ISSUER || self.issuers.iter().any(|own| own == issuer)
    }
}

impl Claims {
    fn read(claims: &Value) -> Option<Claims> {
        if claims["iss"] == standing_token::ISSUER {
            return Claims::read_standing(claims);
        }
        let private = &claims["kubernetes.io"];
        let bound = |name: &str| {
            let object = private.get(name).filter(|object| object.is_object())?;
            Some(Bound { name: text(&object["name"])?, uid: text(&object["uid"]).unwrap_or_default() })
        };
        let audiences = match &claims["aud"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(list) => list.iter().filter_map(text).collect(),
            _ => Vec::new(),
        };
        // A binding that cannot be read must not make a token that is bound to nothing.
        for name in ["pod", "secret", "node"] {
            if private.get(name).is_some_and(|object| !object.is_null()) && bound(name).is_none() {
                return None;
            }
        }
        let seconds = |name: &str| claims[name].as_f64().map(|seconds| seconds as i64);
        Some(Claims {
            issuer: text(&claims["iss"])?,
            audiences,
            expires: seconds("exp"),
            not_before: seconds("nbf"),
            issued: seconds("iat"),
            id: text(&claims["jti"]).unwrap_or_default(),
            namespace: text(&private["namespace"])?,
            account: bound("serviceaccount")?,
            pod: bound("pod"),
            secret: bound("secret"),
            node: bound("node"),
            stands_in: None,
        })
    }

    fn read_standing(claims: &Value) -> Option<Claims> {
        let [namespace, secret, account, uid] = standing_token::read(claims)?;
        Some(Claims {
            issuer: standing_token::ISSUER.to_owned(),
            audiences: Vec::new(),
            expires: None,
            not_before: None,
            issued: None,
            id: String::new(),
            namespace,
            account: Bound { name: account, uid },
            pod: None,
            secret: None,
            node: None,
            stands_in: Some(secret),
        })
    }

    fn check_time(&self, now: Timestamp) -> Result<(), String> {
        let (now, leeway) = (now.as_second(), LEEWAY.as_secs());
        if self.not_before.is_some_and(|at| now + leeway < at) {
            return Err("service account token is not valid yet".to_owned());
        }
        // Only a token that stands in a secret has no end.
        if self.expires.map_or(self.stands_in.is_none(), |at| now - leeway > at) {
            return Err("service account token has expired".to_owned());
        }
        if self.issued.is_some_and(|at| now + leeway < at) {
            return Err("service account token is issued in the future".to_owned());
        }
        Ok(())
    }

    fn check_objects(&self, lookup: &dyn Lookup, now: Timestamp) -> Result<(), String> {
        let deleted = |object: &Identity| {
            object.deleted.is_some_and(|at| now.checked_sub(LEEWAY).is_ok_and(|limit| at < limit))
        };
        let (namespace, account) = (&self.namespace, &self.account);
        let found = lookup
            .identity("serviceaccounts", namespace, &account.name)
            .ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
        if found.uid != account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                found.uid, account.uid
            ));
        }
        if deleted(&found) {
            return Err(format!("service account {namespace}/{} has been deleted", account.name));
        }
        // The node of a pod's token only tells where the pod runs.
        let node = self.node.as_ref().filter(|_| self.pod.is_none());
        for (bound, resource, kind, namespace) in [
            (self.secret.as_ref(), "secrets", "secret", namespace.as_str()),
            (self.pod.as_ref(), "pods", "pod", namespace.as_str()),
            (node, "nodes", "node", ""),
        ] {
            let Some(bound) = bound else { continue };
            let found = lookup.identity(resource, namespace, &bound.name).filter(|found| !deleted(found));
            let found = found.ok_or_else(|| "service account token has been invalidated".to_owned())?;
            if found.uid != bound.uid {
                return Err(format!(
                    "{kind} UID ({}) does not match service account {kind} ref claim ({})",
                    found.uid, bound.uid
                ));
            }
        }
        Ok(())
    }

    /// Whether the token still stands where it was put.
    fn check_place(&self, token: &str, lookup: &dyn Lookup) -> Result<(), String> {
        let Some(name) = &self.stands_in else { return Ok(()) };
        let secret = lookup.object("secrets", &self.namespace, name);
        let secret = secret.filter(|secret| Identity::of(secret).deleted.is_none());
        let secret = secret.ok_or_else(|| "service account token has been invalidated".to_owned())?;
        let stored = secret["data"]["token"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        if stored.as_deref() != Some(token.as_bytes()) {
            return Err("service account token does not match server's copy".to_owned());
        }
        Ok(())
    }

    fn user(&self) -> User {
        let mut user = User::service_account(&self.namespace, &self.account.name);
        user.uid.clone_from(&self.account.uid);
        let mut extra = |key: &str, value: &str| {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        };
        if let Some(pod) = self.pod.as_ref().filter(|pod| !pod.uid.is_empty()) {
            extra("pod-name", &pod.name);
            extra("pod-uid", &pod.uid);
        }
        if !self.id.is_empty() {
            extra("credential-id", &format!("JTI={}", self.id));
        }
        if let Some(node) = &self.node {
            extra("node-name", &node.name);
            if !node.uid.is_empty() {
                extra("node-uid", &node.uid);
            }
        }
        user
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}
