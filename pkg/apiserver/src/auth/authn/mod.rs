//! From what a client shows to who it is.
//!
//! ```text
//! verified client certificate ──> CN is the name, O are the groups
//! bearer token ──> service account (JWT) | bootstrap token (Secret in kube-system)
//! neither ──> system:anonymous
//! ```
//!
//! A token that is shown and not believed is refused: it never makes somebody anonymous.

mod bootstrap_token;
mod cache;
mod certificate;
mod service_account;
pub(crate) mod standing_token;

pub use certificate::user_of_certificate;
pub use service_account::ServiceAccountTokens;

use super::{Lookup, User};
use jiff::Timestamp;

/// Why nobody is believed to be behind a request: for logs and reviews. The client gets 401 and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Nobody knows the token.
    #[error("invalid bearer token")]
    Unknown,
    /// It is known and does not count (any more).
    #[error("[invalid bearer token, {0}]")]
    Invalid(String),
    /// The certificate says something impossible.
    #[error("{0}")]
    Certificate(String),
}

/// Somebody who is believed, and the audiences for which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Who.
    pub user: User,
    /// Those of the audiences asked about that the token is meant for.
    pub audiences: Vec<String>,
}

/// Everybody who can tell who somebody is.
#[derive(Debug)]
pub struct Authenticator {
    service_accounts: ServiceAccountTokens,
}

impl Authenticator {
    /// Believes these service account tokens, and bootstrap tokens.
    pub fn new(service_accounts: ServiceAccountTokens) -> Self {
        Authenticator { service_accounts }
    }

    /// Who is behind a request, given the client certificate (DER, verified by TLS) and the `Authorization` header.
    pub fn request(
        &self,
        certificate: Option<&[u8]>,
        authorization: Option<&str>,
        lookup: &dyn Lookup,
        now: Timestamp,
    ) -> Result<User, Rejected> {
        if let Some(certificate) = certificate
            && let Some(user) = user_of_certificate(certificate)?
        {
            return Ok(user.authenticated());
        }
        match authorization.and_then(bearer) {
            Some(token) => self.token(token, None, lookup, now).map(|found| found.user),
            None => Ok(User::anonymous()),
        }
    }

    /// Whose token it is. `audiences` are those that it must be meant for (one of them); `None`: this server's.
    pub fn token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        lookup: &dyn Lookup,
        now: Timestamp,
    ) -> Result<Authenticated, Rejected> {
        let audiences = audiences.unwrap_or(self.service_accounts.audiences());
        let found = match self.service_accounts.authenticate(token, audiences, lookup, now) {
            Ok(Some(found)) => found,
            Ok(None) => {
                // Bootstrap tokens say no audience: they are meant for this server.
                let own = self.service_accounts.audiences();
                let audiences = intersect(own, audiences);
                let user = (!audiences.is_empty())
                    .then(|| bootstrap_token::authenticate(token, lookup, now))
                    .flatten();
                Authenticated { user: user.ok_or(Rejected::Unknown)?, audiences }
            }
            Err(reason) => return Err(Rejected::Invalid(reason)),
        };
        Ok(Authenticated { user: found.user.authenticated(), ..found })
    }
}

/// The token of an `Authorization` header, if that is what it carries.
fn bearer(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The audiences that are in both, in the order they were asked for.
fn intersect(token: &[String], asked: &[String]) -> Vec<String> {
    asked.iter().filter(|audience| token.contains(audience)).cloned().collect()
}

#[cfg(test)]
mod tests;
