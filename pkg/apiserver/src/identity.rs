//! Who asks: credentials that the server has, what clients show, and the indexes that permission is decided from.

use crate::auth::authn::{Authenticator, ServiceAccountTokens, user_of_certificate};
use crate::auth::{Attributes, Authorizer, Decision, Identity, Lookup, User, impersonation, token};
use crate::config::Config;
use crate::connections::{ClientCertificate, Connection};
use crate::error::{ApiError, Result};
use crate::server::{Server, StartError};
use crate::services;
use crate::tls::Tls;
use api::Value;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use listwatch::{Batch, Cache, EventType, Object, Scope, Since, Watcher};
use parking_lot::RwLock;
use pki::{PrivateKey, PublicKey, ServerPki, Signer, Verifier};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// How often certificates are looked at: this long after `kubeadm certs renew`, the new ones are shown.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(30);
/// What roles and bindings are decided from.
const RBAC: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
/// What nodes' permissions are decided from.
const NODE_GRAPH: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("networking.k8s.io", "ingresses"),
];

/// Keys and certificates of this server.
pub struct Credentials {
    /// What connections are secured with.
    pub tls: Tls,
    /// What is in the data directory.
    pub pki: ServerPki,
    /// Who signs the certificates of clients, as PEM.
    pub clients: String,
    names: pki::Config,
}

/// Who somebody is, and what they may do.
pub struct Auth {
    /// Tells who somebody is.
    pub authenticator: Authenticator,
    /// Tells what they may do.
    pub authorizer: RwLock<Authorizer>,
    /// Signs tokens of service accounts.
    pub signer: Signer,
    /// Who those tokens are from.
    pub issuer: String,
    /// What tokens are for where nobody says.
    pub audiences: Vec<String>,
    verifier: Verifier,
}

impl Auth {
    /// Believes the tokens that the configured keys sign.
    pub fn new(config: &Config) -> Result<Auth, StartError> {
        let path = match &config.service_account_signing_key_file {
            Some(path) => path.clone(),
            None => config.cert_dir().join("sa.key"),
        };
        let key = PrivateKey::from_pem(&read(&path)?).map_err(|source| pki_error(&path, source))?;
        let signer = Signer::new(key);
        let mut keys = vec![signer.public().clone()];
        for path in &config.service_account_key_files {
            keys.extend(PublicKey::all_from_pem(&read(path)?).map_err(|source| pki_error(path, source))?);
        }
        let verifier = Verifier::new(keys);
        let issuer = config.service_account_issuer.clone();
        let tokens = ServiceAccountTokens::new(vec![issuer.clone()], config.audiences(), verifier.clone());
        Ok(Auth {
            authenticator: Authenticator::new(tokens),
            authorizer: RwLock::default(),
            signer,
            issuer,
            audiences: config.audiences(),
            verifier,
        })
    }

    /// Whether somebody may do something.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.authorizer.read().authorize(attributes)
    }

    /// The keys that others can check our tokens with.
    pub fn jwks(&self) -> Value {
        self.verifier.jwks()
    }

    /// Where others find those keys.
    pub fn openid_configuration(&self) -> Value {
        token::openid_configuration(&self.issuer, &format!("{}/openid/v1/jwks", self.issuer), &self.verifier)
    }
}

/// Makes or loads everything that this server proves itself with.
pub fn credentials(config: &Config, address: SocketAddr) -> Result<Arc<Credentials>, StartError> {
    let mut names = config.tls_sans.clone();
    names.extend(config.advertised_address(address).map(|ip| ip.to_string()));
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    names
        .extend(std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()));
    let names =
        pki::Config { names, service_ip: Some(services::first_address(&config.service_cluster_ip_range)) };
    let pki = pki::ensure(config.cert_dir(), &names, Timestamp::now())
        .map_err(|source| pki_error(config.cert_dir(), source))?;
    let (certificate, key) = serving_certificate(config, &pki)?;
    let clients = match &config.client_ca_file {
        Some(path) => read(path)?,
        None => pki.authority.pem().to_owned(),
    };
    let tls =
        Tls::new(certificate.as_bytes(), key.as_bytes(), clients.as_bytes()).map_err(StartError::Tls)?;
    Ok(Arc::new(Credentials { tls, pki, clients, names }))
}

fn serving_certificate(config: &Config, pki: &ServerPki) -> Result<(String, String), StartError> {
    match &config.tls {
        Some((certificate, key)) => Ok((read(certificate)?, read(key)?)),
        None => Ok((pki.serving.certificate.clone(), pki.serving.key.clone())),
    }
}

fn read(path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|source| StartError::File { path: path.to_owned(), source })
}

fn pki_error(path: &Path, source: pki::Error) -> StartError {
    StartError::Pki { dir: path.to_owned(), source }
}

/// Keeps the serving certificate fresh: renews our own before it expires, takes over a given one that was replaced.
pub async fn renew(server: Arc<Server>, credentials: Arc<Credentials>) {
    loop {
        if let Err(error) = renew_now(&server.config, &credentials, Timestamp::now()) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot renew certificates");
        }
        tokio::select! {
            () = tokio::time::sleep(RENEWAL_INTERVAL) => {}
            () = server.shutdown.cancelled() => return,
        }
    }
}

fn renew_now(config: &Config, credentials: &Credentials, now: Timestamp) -> Result<(), StartError> {
    let dir = config.cert_dir();
    let pki = pki::ensure(dir, &credentials.names, now).map_err(|source| pki_error(dir, source))?;
    let (certificate, key) = serving_certificate(config, &pki)?;
    credentials.tls.show(certificate.as_bytes(), key.as_bytes()).map_err(StartError::Tls)?;
    if let Some(dir) = &config.kubeconfig_dir {
        let renewed = pki::renew_components(dir, &pki.authority, now, pki::RENEW_BEFORE_SECONDS)
            .map_err(|source| pki_error(dir, source))?;
        for file in renewed {
            tracing::info!(file, "renewed a kubeconfig's certificate");
        }
    }
    Ok(())
}

/// What a client's certificate says of it.
pub fn client_certificate(
    credentials: &Credentials,
    chain: Option<&[CertificateDer<'_>]>,
) -> ClientCertificate {
    let Some(first) = chain.and_then(<[_]>::first) else { return ClientCertificate::None };
    if let Err(error) = credentials.tls.verify_client(chain.unwrap_or_default()) {
        tracing::debug!(%error, "client certificate not accepted");
        return ClientCertificate::Invalid;
    }
    match user_of_certificate(first) {
        Ok(Some(user)) => ClientCertificate::Valid(Arc::new(user.authenticated())),
        Ok(None) | Err(_) => ClientCertificate::Invalid,
    }
}

/// Who is behind a request. A credential that is shown and not believed is never taken for none.
pub fn authenticate(server: &Server, connection: &Connection, headers: &HeaderMap) -> Result<Arc<User>> {
    if let ClientCertificate::Valid(user) = &connection.certificate {
        return Ok(user.clone());
    }
    let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or("Bearer \u{0}"));
    let found = server.auth.authenticator.request(None, authorization, server, Timestamp::now());
    let user = found.map_err(|error| {
        tracing::debug!(%error, "not authenticated");
        ApiError::unauthorized()
    })?;
    if user.name == User::ANONYMOUS && matches!(connection.certificate, ClientCertificate::Invalid) {
        return Err(ApiError::unauthorized());
    }
    Ok(Arc::new(user))
}

/// Who a request wants to be taken for, if its sender may.
pub fn impersonate(server: &Server, user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let Some(wish) = impersonation::from_headers(headers).map_err(ApiError::bad_request)? else {
        return Ok(user);
    };
    for check in &wish.checks {
        let attributes = check.attributes(&user);
        let decision = server.auth.authorize(&attributes);
        if !decision.allowed {
            return Err(forbidden(&attributes, &decision.reason.to_string()));
        }
    }
    Ok(Arc::new(wish.user))
}

/// The refusal, in upstream's words.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> ApiError {
    let denial = attributes.denial(reason);
    if !attributes.is_resource {
        return ApiError::forbidden_text(format!("forbidden: {denial}"));
    }
    let resource = match attributes.group {
        "" => attributes.resource.to_owned(),
        group => format!("{}.{group}", attributes.resource),
    };
    let name = if attributes.name.is_empty() { String::new() } else { format!(" {:?}", attributes.name) };
    let mut error = ApiError::forbidden_text(format!("{resource}{name} is forbidden: {denial}"));
    let mut details = json!({ "kind": attributes.resource });
    for (member, value) in [("name", attributes.name), ("group", attributes.group)] {
        if !value.is_empty() {
            details[member] = value.into();
        }
    }
    error.details = Some(details);
    error
}

impl Lookup for Server {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let resource = self.registry.resources().any_version(group, plural)?.clone();
        serde_json::from_slice(resource.cache.get(namespace, name)?.as_json()).ok()
    }

    fn identity(&self, resource: &str, namespace: &str, name: &str) -> Option<Identity> {
        self.object(resource, namespace, name).map(|object| Identity::of(&object))
    }
}

/// Fills the indexes of roles and of what runs where, and keeps them in step from then on.
pub async fn follow(server: &Arc<Server>, tasks: &TaskTracker) {
    let rbac = RBAC.iter().map(|plural| ("rbac.authorization.k8s.io", *plural));
    for (group, plural) in rbac.chain(NODE_GRAPH) {
        let cache = server.registry.built_in(group, plural).cache.clone();
        let mut follower = Follower { server: server.clone(), cache, group, plural, known: HashSet::new() };
        let Some(watcher) = follower.load().await else { continue };
        tasks.spawn(follower.run(watcher));
    }
}

/// Keeps an index in step with one resource.
struct Follower {
    server: Arc<Server>,
    cache: Arc<Cache>,
    group: &'static str,
    plural: &'static str,
    /// Namespace and name of what is in the index.
    known: HashSet<(String, String)>,
}

impl Follower {
    /// Applies what is there, and forgets what is not there any more.
    async fn load(&mut self) -> Option<Watcher> {
        let mut watcher = self.cache.watch(Scope::default(), Since::InitialEvents).ok()?;
        let before = std::mem::take(&mut self.known);
        loop {
            match watcher.next().await.ok()? {
                Batch::InitialEventsEnd(_) => break,
                Batch::Events(events) => {
                    events.iter().for_each(|event| self.apply(event.kind, &event.object))
                }
            }
        }
        for gone in before.difference(&self.known) {
            self.forget(gone);
        }
        Some(watcher)
    }

    async fn run(mut self, mut watcher: Watcher) {
        let shutdown = self.server.shutdown.clone();
        loop {
            let batch = tokio::select! {
                batch = watcher.next() => batch,
                () = shutdown.cancelled() => return,
            };
            match batch {
                Ok(Batch::Events(events)) => {
                    events.iter().for_each(|event| self.apply(event.kind, &event.object))
                }
                Ok(Batch::InitialEventsEnd(_)) => {}
                Err(_) => match self.load().await {
                    Some(again) => watcher = again,
                    None => return,
                },
            }
        }
    }

    fn apply(&mut self, kind: EventType, object: &Object) {
        let key = (object.namespace().to_owned(), object.name().to_owned());
        if kind == EventType::Deleted || !self.counts(object) {
            if self.known.remove(&key) {
                self.forget(&key);
            }
            return;
        }
        self.known.insert(key);
        match serde_json::from_slice(object.as_json()) {
            Ok(object) => self.change(kind, &object),
            Err(error) => tracing::error!(%error, name = object.name(), "a stored object is not JSON"),
        }
    }

    /// Whether the index has anything to learn from an object: not from a pod that is on no node yet.
    fn counts(&self, object: &Object) -> bool {
        self.plural != "pods"
            || self.cache.field(object, "spec.nodeName").is_some_and(|node| !node.is_empty())
    }

    fn forget(&self, (namespace, name): &(String, String)) {
        let kind = self.server.kind(self.group, self.plural);
        let stub = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {"name": name, "namespace": namespace},
        });
        self.change(EventType::Deleted, &stub);
    }

    fn change(&self, kind: EventType, object: &Value) {
        let mut authorizer = self.server.auth.authorizer.write();
        match (self.group, kind) {
            ("rbac.authorization.k8s.io", EventType::Deleted) => authorizer.rbac.delete(object),
            ("rbac.authorization.k8s.io", _) => authorizer.rbac.apply(object),
            (_, EventType::Deleted) => authorizer.node.delete(object),
            _ => authorizer.node.apply(object),
        }
    }
}
