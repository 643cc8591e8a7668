//! Who asks, and whether they may: client certificates are believed by TLS, tokens and permissions are asked of the
//! apiserver and remembered for a while. Nobody is anonymous.

use super::answer::Refusal;
use super::route;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Upstream's times.
const TOKEN_TTL: Duration = Duration::from_secs(2 * 60);
const PERMITTED_TTL: Duration = Duration::from_secs(5 * 60);
const FORBIDDEN_TTL: Duration = Duration::from_secs(30);
/// More answers than this are not remembered.
const MOST_REMEMBERED: usize = 1024;
const MASTERS: &str = "system:masters";

/// Somebody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid, where there is one.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Whatever else the apiserver said.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Tells who somebody is and what they may do.
pub struct Identity {
    client: Option<kube::Client>,
    node_name: String,
    tokens: Memory<[u8; 32], User>,
    permissions: Memory<(User, &'static str, &'static str), bool>,
}

impl Identity {
    /// Asks this apiserver.
    pub fn new(client: Option<kube::Client>, node_name: String) -> Identity {
        Identity { client, node_name, tokens: Memory::default(), permissions: Memory::default() }
    }

    /// Who asks, if they may; `certificate` is what TLS believes.
    pub async fn admit(
        &self,
        certificate: Option<&User>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let unauthorized = || (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        let user = match (certificate, bearer(headers)) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) => self.user_of_token(token).await?.ok_or_else(unauthorized)?,
            (None, None) => return Err(unauthorized()),
        };
        let verb = route::verb(method);
        let subresources = route::subresources(path);
        for subresource in subresources {
            if self.may(&user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err((
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
                user.name,
                subresources.join(" ")
            ),
        ))
    }

    async fn user_of_token(&self, token: &str) -> Result<Option<User>, Refusal> {
        let key = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let key: [u8; 32] = key.as_ref().try_into().expect("SHA-256 has 32 bytes");
        if let Some(user) = self.tokens.get(&key) {
            return Ok(Some(user));
        }
        let Some(client) = &self.client else { return Ok(None) };
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let answer =
            Api::all(client.clone()).create(&PostParams::default(), &review).await.map_err(not_asked)?;
        let status = answer.status.unwrap_or_default();
        let Some(found) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(None) };
        let user = User {
            name: found.username.unwrap_or_default(),
            uid: found.uid,
            groups: found.groups.unwrap_or_default(),
            extra: found.extra.unwrap_or_default(),
        };
        self.tokens.keep(key, user.clone(), TOKEN_TTL);
        Ok(Some(user))
    }

    async fn may(&self, user: &User, verb: &'static str, subresource: &'static str) -> Result<bool, Refusal> {
        // They may do everything, and must be able to look when the apiserver is away.
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let Some(client) = &self.client else { return Ok(false) };
        let key = (user.clone(), verb, subresource);
        if let Some(known) = self.permissions.get(&key) {
            return Ok(known);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: user.uid.clone(),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node_name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer =
            Api::all(client.clone()).create(&PostParams::default(), &review).await.map_err(not_asked)?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.permissions.keep(key, allowed, if allowed { PERMITTED_TTL } else { FORBIDDEN_TTL });
        Ok(allowed)
    }
}

fn not_asked(error: kube::Error) -> Refusal {
    tracing::warn!(%error, "the apiserver cannot be asked who somebody is or what they may do");
    (StatusCode::INTERNAL_SERVER_ERROR, "Authorization error: the apiserver cannot be asked".to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Who a client certificate is of: the common name, in the groups of its organizations.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let facts = pki::Facts::from_der(der).ok()?;
    let mut groups = facts.organizations;
    groups.push("system:authenticated".to_owned());
    Some(User { name: facts.common_name, groups, ..User::default() }).filter(|user| !user.name.is_empty())
}

/// Answers that hold for a while.
struct Memory<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Memory(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> Memory<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock();
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    fn keep(&self, key: K, value: V, ttl: Duration) {
        let mut known = self.0.lock();
        let now = Instant::now();
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST_REMEMBERED {
            known.insert(key, (value, now + ttl));
        }
    }
}
