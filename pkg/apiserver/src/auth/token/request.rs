//! TokenRequests: what is checked, and what the token then says.

use super::Settings;
use crate::auth::{Lookup, User};
use api::object::{name as name_of, namespace as namespace_of};
use api::{Errors, Field, FieldError};
use jiff::{SignedDuration, Timestamp};
use pki::Signer;
use serde_json::{Value, json};

/// What kubelets ask for by default: an hour and a bit that tells it from an hour asked for by somebody.
const DEFAULT_OF_PODS_SECONDS: i64 = 60 * 60 + 7;
/// How long tokens asked for with that live where expiration is extended.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
const SHORTEST_SECONDS: i64 = 10 * 60;
const LONGEST_SECONDS: i64 = 1 << 32;

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TokenRequestError {
    /// 422 about the TokenRequest.
    #[error("invalid TokenRequest")]
    Invalid(Vec<FieldError>),
    /// 404.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource, in the plural.
        resource: &'static str,
        /// The name looked for.
        name: String,
    },
    /// 409.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {cause}")]
    Conflict {
        /// What upstream names here: the kind, with its group.
        resource: String,
        /// The name of the object.
        name: String,
        /// What does not match.
        cause: String,
    },
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// 500.
    #[error("failed to generate token")]
    Signing(String),
}

/// A token request that was fulfilled.
#[derive(Debug, Clone)]
pub struct TokenRequested {
    /// The TokenRequest with its status: the answer.
    pub object: Value,
    /// A warning to go with the answer.
    pub warning: Option<String>,
}

/// Fills in what a TokenRequest leaves open.
pub fn set_defaults(request: &mut Value) {
    api::object::object_mut(request, "spec");
    api::object::set_default(&mut request["spec"], "expirationSeconds", 60 * 60);
}

/// Checks a TokenRequest by itself.
pub fn validate(request: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = Field::root(request);
    let spec = root.get("spec");
    let expiration = spec.get("expirationSeconds");
    match expiration.int() {
        Some(seconds) if seconds > LONGEST_SECONDS => {
            expiration.invalid("may not specify a duration larger than 2^32 seconds", &mut errors);
        }
        Some(seconds) if seconds >= SHORTEST_SECONDS => {}
        _ => expiration.invalid("may not specify a duration less than 10 minutes", &mut errors),
    }
    errors.into_vec()
}

/// Fulfils a TokenRequest (with its defaults) for the service account that the path names. `id` is a new UUID.
///
/// The server asks node restriction and other admission before.
pub fn request_token(
    settings: &Settings,
    signer: &Signer,
    (namespace, name): (&str, &str),
    mut request: Value,
    lookup: &dyn Lookup,
    now: Timestamp,
    id: &str,
) -> Result<TokenRequested, TokenRequestError> {
    must_match(&request, "name", name_of(&request), name)?;
    must_match(&request, "namespace", namespace_of(&request), namespace)?;
    let account = lookup
        .identity("serviceaccounts", namespace, name)
        .ok_or_else(|| not_found("serviceaccounts", name))?;
    let uid = api::object::meta(&request, "uid").unwrap_or_default();
    if !uid.is_empty() && uid != account.uid {
        return Err(TokenRequestError::Conflict {
            resource: "TokenRequest.authentication.k8s.io".to_owned(),
            name: name.to_owned(),
            cause: format!(
                "the UID in the token request ({uid}) does not match the UID of the service account ({})",
                account.uid
            ),
        });
    }
    let asked_audiences = request["spec"]["audiences"].as_array().is_some_and(|list| !list.is_empty());
    if !asked_audiences {
        request["spec"]["audiences"] = json!(settings.audiences);
    }
    let errors = validate(&request);
    if !errors.is_empty() {
        return Err(TokenRequestError::Invalid(errors));
    }
    let bound = bound_object(&request, namespace, name, lookup)?;
    let mut warning = None;
    if let (Some(most), Some(asked)) =
        (settings.max_expiration_seconds, request["spec"]["expirationSeconds"].as_i64())
        && asked > most
    {
        warning = Some(format!("requested expiration of {asked} seconds shortened to {most} seconds"));
        request["spec"]["expirationSeconds"] = json!(most);
    }
    let mut claims = claims(settings, &request, &bound, now);
    claims["sub"] = json!(User::service_account_name(namespace, name));
    claims["jti"] = json!(id);
    claims["kubernetes.io"]["namespace"] = json!(namespace);
    claims["kubernetes.io"]["serviceaccount"] = json!({"name": name, "uid": account.uid});
    let token = signer.sign(&claims).map_err(|error| TokenRequestError::Signing(error.to_string()))?;
    let expires = seconds_later(now, request["spec"]["expirationSeconds"].as_i64().unwrap_or_default());
    let metadata = api::object::object_mut(&mut request, "metadata");
    for (key, value) in [("name", name), ("namespace", namespace), ("uid", &account.uid)] {
        metadata.insert(key.to_owned(), json!(value));
    }
    metadata.insert("creationTimestamp".to_owned(), json!(whole_seconds(now)));
    request["status"] = json!({"token": token, "expirationTimestamp": whole_seconds(expires)});
    Ok(TokenRequested { object: request, warning })
}

/// What a token is bound to besides its service account.
#[derive(Debug, Default)]
struct Bound {
    /// `pod`, `secret`, `node`: name and uid of each that there is.
    claims: Vec<(&'static str, Value)>,
    is_pod: bool,
}

fn bound_object(
    request: &Value,
    namespace: &str,
    account: &str,
    lookup: &dyn Lookup,
) -> Result<Bound, TokenRequestError> {
    let reference = &request["spec"]["boundObjectRef"];
    if !reference.is_object() {
        return Ok(Bound::default());
    }
    let text = |name: &str| reference[name].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let (claim, resource, within) = match (group, kind) {
        ("", "Pod") => ("pod", "pods", namespace),
        ("", "Node") => ("node", "nodes", ""),
        ("", "Secret") => ("secret", "secrets", namespace),
        _ => {
            let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(TokenRequestError::BadRequest(text));
        }
    };
    let object = lookup.object(resource, within, name).ok_or_else(|| not_found(resource, name))?;
    let uid = api::object::meta(&object, "uid").unwrap_or_default().to_owned();
    let mut claims = vec![(claim, json!({"name": name, "uid": uid}))];
    if kind == "Pod" {
        if object["spec"]["serviceAccountName"] != account {
            return Err(TokenRequestError::BadRequest(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount \
                 name."
            )));
        }
        if let Some(node) = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let mut claim = json!({"name": node});
            if let Some(found) = lookup.identity("nodes", "", node) {
                claim["uid"] = json!(found.uid);
            }
            claims.push(("node", claim));
        }
    }
    let expected = text("uid");
    if !expected.is_empty() && expected != uid {
        return Err(TokenRequestError::Conflict {
            resource: kind.to_owned(),
            name: name.to_owned(),
            cause: format!(
                "the UID in the bound object reference ({expected}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ),
        });
    }
    Ok(Bound { claims, is_pod: kind == "Pod" })
}

/// The claims but those about the service account.
fn claims(settings: &Settings, request: &Value, bound: &Bound, now: Timestamp) -> Value {
    let asked = request["spec"]["expirationSeconds"].as_i64().unwrap_or(SHORTEST_SECONDS);
    let audiences = request["spec"]["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let for_us = audiences
        .iter()
        .all(|audience| audience.as_str().is_some_and(|a| settings.audiences.iter().any(|own| own == a)));
    let extended = settings.extend_expiration && bound.is_pod && asked == DEFAULT_OF_PODS_SECONDS && for_us;
    let lifetime = if extended { EXTENDED_SECONDS } else { asked };
    let now = now.as_second();
    let mut private = json!({});
    for (name, claim) in &bound.claims {
        private[*name] = claim.clone();
    }
    if extended {
        private["warnafter"] = json!(now + asked);
    }
    json!({
        "iss": settings.issuer,
        "aud": audiences,
        "iat": now,
        "nbf": now,
        "exp": now + lifetime,
        "kubernetes.io": private,
    })
}

fn must_match(request: &Value, field: &str, given: &str, expected: &str) -> Result<(), TokenRequestError> {
    if given.is_empty() || given == expected {
        return Ok(());
    }
    let mut errors = Errors::new();
    let root = Field::root(request);
    let metadata = root.get("metadata");
    metadata.get(field).invalid(format!("must match the service account {field} if specified"), &mut errors);
    Err(TokenRequestError::Invalid(errors.into_vec()))
}

fn not_found(resource: &'static str, name: &str) -> TokenRequestError {
    TokenRequestError::NotFound { resource, name: name.to_owned() }
}

fn seconds_later(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// RFC 3339 without fractions, as the API writes times.
fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
