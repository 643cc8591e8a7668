//! Tokens for service accounts: asking for one, asking about one, and telling others how to verify them.
//!
//! ```text
//! TokenRequest ──request_token──> claims ──sign──> token       TokenReview ──review──> whose it is
//!                                 openid_configuration, jwks ──> verified by anybody else
//! ```

mod request;
mod review;

pub use request::{TokenRequestError, TokenRequested, request_token, set_defaults, validate};
pub use review::review;

use pki::Verifier;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How tokens are issued.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who issues them: a URL.
    pub issuer: String,
    /// This server's own names: what a token is meant for unless it says otherwise.
    pub audiences: Vec<String>,
    /// No token lives longer than this; `None` is no such limit.
    pub max_expiration_seconds: Option<i64>,
    /// Whether the tokens that pods get by default outlive what was asked for, so that clients which read them
    /// only once keep working (for a year, with a warning).
    pub extend_expiration: bool,
}

/// The document at `/.well-known/openid-configuration`.
pub fn openid_configuration(issuer: &str, jwks_uri: &str, verifier: &Verifier) -> Value {
    let algorithms: BTreeSet<&str> = verifier.keys().iter().map(|key| key.algorithm().name()).collect();
    json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

#[cfg(test)]
mod tests;
