//! The cluster's certificate authority, certificates, kubeconfigs and token keys.
//!
//! ```text
//! Authority ──> certificates ──> kubeconfig        PrivateKey ──> Signer ──> service account tokens
//!     └──────── ensure(dir): all an API server needs ─────┘            Verifier <──┘
//!                                                        BootstrapToken ──> signed cluster-info
//! ```
//!
//! It knows files, keys and clocks that it is told; it knows no API objects, and decides nothing about who may
//! do what. Times are given by the caller.

mod authority;
mod bootstrap_token;
mod certificate;
mod components;
mod der;
mod ensure;
pub mod file;
mod jwt;
mod key;
mod kubeconfig;
mod pem;

pub use authority::{AUTHORITY_LIFETIME, Authority, Identity, LEAF_LIFETIME};
pub use bootstrap_token::BootstrapToken;
pub use certificate::{Facts, Request, San, Usage, public_key_hash, request};
pub use components::{
    CLUSTER_ADMINS, COMPONENTS, Component, ensure_component, renew_component, renew_components,
};
pub use ensure::{
    ACTIVATOR, Config, FRONT_PROXY_CLIENT, RENEW_BEFORE_SECONDS, ServerPki, ensure, ensure_activator,
    ensure_server,
};
pub use jwt::{JwtError, Signer, Verifier, unverified_claims};
pub use key::{Algorithm, PrivateKey, PublicKey};
pub use kubeconfig::{Kubeconfig, kubeconfig};

use std::path::PathBuf;

/// Why a key, certificate or file could not be made or used. Never shows secret content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system gave no random bytes, or the key could not sign.
    #[error("no random bytes, or the key cannot sign")]
    Random,
    /// A PEM text is malformed.
    #[error("malformed PEM: {0}")]
    Pem(String),
    /// A PEM text lacks what is looked for.
    #[error("no {what} found")]
    Missing {
        /// What was looked for.
        what: &'static str,
    },
    /// A key is not of a kind that can be used.
    #[error("unusable key: {0}")]
    Key(String),
    /// A certificate cannot be used.
    #[error("unusable certificate: {0}")]
    Certificate(String),
    /// A signing request cannot be used.
    #[error("unusable certificate request: {0}")]
    Request(String),
    /// A certificate and a key do not belong together.
    #[error("the certificate is not of this key")]
    Mismatch,
    /// A bootstrap token is malformed.
    #[error("a bootstrap token must be of the form [a-z0-9]{{6}}.[a-z0-9]{{16}}")]
    BootstrapToken,
    /// A kubeconfig is malformed.
    #[error("malformed kubeconfig: {0}")]
    Kubeconfig(String),
    /// A file says something unusable.
    #[error("{}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What about it.
        #[source]
        source: Box<Error>,
    },
    /// A file could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("write {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
