//! All the keys and certificates that an API server needs in its data directory, made where they are missing.
//!
//! ```text
//! ca.key ca.crt ──> apiserver.{crt,key}  apiserver-kubelet-client.{crt,key}  admin.{crt,key} ──> admin.kubeconfig
//! front-proxy-ca.{crt,key} ──> front-proxy-client.{crt,key}
//! sa.key ──> sa.pub
//! ```
//!
//! It may be called at any time and again: what is whole and has time left stays, what is missing, half-written,
//! signed by another authority or about to expire is made anew. The authorities and the token key are never
//! replaced, since all trust hangs on them: if they are broken, that is an error that names the file.

use crate::Error;
use crate::authority::{Authority, Identity};
use crate::certificate::{Facts, San};
use crate::components::CLUSTER_ADMINS;
use crate::file::{self, Mode};
use crate::jwt::{Signer, Verifier};
use crate::key::PrivateKey;
use crate::kubeconfig::kubeconfig;
use jiff::Timestamp;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const ADMIN: &str = "kubernetes-super-admin";
/// The name by which kubelets know the API server.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The name by which the servers of other groups know the API server.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
/// The activator of functions, as its files and its certificate call it.
pub const ACTIVATOR: &str = "knative";
/// Less time left than this, and a certificate is made anew: a quarter of its year.
pub const RENEW_BEFORE_SECONDS: i64 = 91 * 24 * 60 * 60;
/// The names every API server answers to.
const SERVER_NAMES: [&str; 7] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
];

/// What must be known to make the serving certificate.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Further names and addresses that the server is reached by: its bind address, its host name.
    pub names: Vec<String>,
    /// The address of the `kubernetes` service: the first of the service range.
    pub service_ip: Option<IpAddr>,
}

/// Everything, ready for use.
#[derive(Debug)]
pub struct ServerPki {
    dir: PathBuf,
    /// Signs certificates of nodes and users.
    pub authority: Authority,
    /// What the server shows to its clients.
    pub serving: Identity,
    /// What the server shows to kubelets.
    pub kubelet_client: Identity,
    /// A client certificate that may do everything.
    pub admin: Identity,
    /// Signs what shows the servers of other groups that a request comes from the API server. An authority of its own:
    /// whoever has such a certificate is believed whatever it says of who asks.
    pub front_proxy: Authority,
    /// Signs service account tokens.
    pub signer: Signer,
}

/// Makes what is missing in the directory (and the directory), and gives back everything.
pub fn ensure(dir: &Path, config: &Config, now: Timestamp) -> Result<ServerPki, Error> {
    let failed = |source| Error::Write { path: dir.to_owned(), source };
    if !dir.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    }
    let (front_proxy, authority) =
        (authority(dir, "front-proxy-ca", "front-proxy-ca", now)?, authority(dir, "ca", "kubernetes", now)?);
    let sans = server_names(config);
    let serving = identity(
        dir,
        "apiserver",
        now,
        &authority,
        |facts| {
            facts.common_name == "kube-apiserver"
                && sans.iter().all(|san| facts.sans.contains(&san.to_string()))
        },
        || authority.server("kube-apiserver", &sans, now),
    )?;
    let user = |file: &str, name: &str, group: &str| {
        let groups = [group];
        identity(
            dir,
            file,
            now,
            &authority,
            |facts| facts.common_name == name && facts.organizations == groups,
            || authority.client(name, &groups, now),
        )
    };
    let kubelet_client = user("apiserver-kubelet-client", KUBELET_CLIENT, CLUSTER_ADMINS)?;
    let admin = user("admin", ADMIN, "system:masters")?;
    identity(
        dir,
        FRONT_PROXY_CLIENT,
        now,
        &front_proxy,
        |facts| facts.common_name == FRONT_PROXY_CLIENT,
        || front_proxy.client(FRONT_PROXY_CLIENT, &[], now),
    )?;
    // Made where there is such a server; here it is only kept fresh.
    if let Some(certificate) = file::read(&dir.join(format!("{ACTIVATOR}.crt")))? {
        let names = Facts::from_pem(&certificate)?.sans;
        ensure_activator(dir, &authority, &names, now)?;
    }
    let signer = Signer::new(token_key(dir)?);
    Ok(ServerPki { dir: dir.to_owned(), authority, serving, kubelet_client, admin, front_proxy, signer })
}

/// Makes the key and the certificate by which the activator of functions is known, unless good ones stand there.
pub fn ensure_activator(
    dir: &Path,
    authority: &Authority,
    names: &[String],
    now: Timestamp,
) -> Result<Identity, Error> {
    ensure_server(dir, ACTIVATOR, authority, names, now)
}

/// Makes the key and the certificate by which a server of the control plane is known, unless good ones stand there.
pub fn ensure_server(
    dir: &Path,
    name: &str,
    authority: &Authority,
    names: &[String],
    now: Timestamp,
) -> Result<Identity, Error> {
    let sans: Vec<San> = names.iter().map(|name| San::parse(name)).collect();
    identity(
        dir,
        name,
        now,
        authority,
        |facts| sans.iter().all(|san| facts.sans.contains(&san.to_string())),
        || authority.server(name, &sans, now),
    )
}

impl ServerPki {
    /// Believes the tokens that are signed here.
    pub fn verifier(&self) -> Verifier {
        Verifier::new([self.signer.public().clone()])
    }

    /// Writes `admin.kubeconfig` for a server at this URL, known only once it listens. Gives back where.
    pub fn write_admin_kubeconfig(&self, server: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join("admin.kubeconfig");
        let text = kubeconfig(server, self.authority.pem(), ADMIN, &self.admin.certificate, &self.admin.key);
        write_secret_if_changed(&path, &text)?;
        Ok(path)
    }
}

fn authority(dir: &Path, file: &str, name: &str, now: Timestamp) -> Result<Authority, Error> {
    let (key_path, path) = (dir.join(format!("{file}.key")), dir.join(format!("{file}.crt")));
    let (key, certificate) = (file::read(&key_path)?, file::read(&path)?);
    match (key, certificate) {
        (Some(key), Some(certificate)) => {
            Authority::load(&certificate, &key).map_err(|source| about(&path, source))
        }
        (None, Some(_)) => Err(about(&key_path, Error::Missing { what: "key of the authority" })),
        (key, None) => {
            // The key is written first: a crash in between leaves a key without a certificate.
            let key = match key {
                Some(key) => PrivateKey::from_pem(&key).map_err(|source| about(&key_path, source))?,
                None => PrivateKey::generate()?,
            };
            let authority = Authority::self_sign(name, key, now)?;
            file::write(&key_path, authority.key_pem().as_bytes(), Mode::Secret)?;
            file::write(&path, authority.pem().as_bytes(), Mode::Public)?;
            Ok(authority)
        }
    }
}

fn identity(
    dir: &Path,
    name: &str,
    now: Timestamp,
    authority: &Authority,
    fits: impl Fn(&Facts) -> bool,
    issue: impl FnOnce() -> Result<Identity, Error>,
) -> Result<Identity, Error> {
    let (key_path, path) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.crt")));
    if let (Some(key), Some(certificate)) = (file::read(&key_path)?, file::read(&path)?)
        && let Ok(facts) = Facts::from_pem(&certificate)
        && facts.not_after - now.as_second() > RENEW_BEFORE_SECONDS
        && fits(&facts)
        && authority.issued(&certificate, &key)
    {
        return Ok(Identity { certificate, key });
    }
    let identity = issue()?;
    file::write(&key_path, identity.key.as_bytes(), Mode::Secret)?;
    file::write(&path, identity.certificate.as_bytes(), Mode::Public)?;
    Ok(identity)
}

fn token_key(dir: &Path) -> Result<PrivateKey, Error> {
    let (path, public_path) = (dir.join("sa.key"), dir.join("sa.pub"));
    let key = match file::read(&path)? {
        Some(text) => PrivateKey::from_pem(&text).map_err(|source| about(&path, source))?,
        None => {
            let key = PrivateKey::generate()?;
            file::write(&path, key.pem().as_bytes(), Mode::Secret)?;
            key
        }
    };
    let public = key.public().pem();
    if file::read(&public_path)?.as_deref() != Some(&public) {
        file::write(&public_path, public.as_bytes(), Mode::Public)?;
    }
    Ok(key)
}

fn server_names(config: &Config) -> Vec<San> {
    let mut sans: Vec<San> = SERVER_NAMES.iter().map(|name| San::parse(name)).collect();
    let given = config.names.iter().filter(|name| !name.is_empty()).map(|name| San::parse(name));
    for san in given.chain(config.service_ip.map(San::Ip)) {
        // Nobody connects to "any address".
        let unspecified = matches!(&san, San::Ip(address) if address.is_unspecified());
        if !unspecified && !sans.contains(&san) {
            sans.push(san);
        }
    }
    sans
}

fn write_secret_if_changed(path: &Path, text: &str) -> Result<(), Error> {
    let private = fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0);
    if !private || file::read(path)?.as_deref() != Some(text) {
        file::write(path, text.as_bytes(), Mode::Secret)?;
    }
    Ok(())
}

fn about(path: &Path, source: Error) -> Error {
    Error::File { path: path.to_owned(), source: Box::new(source) }
}
