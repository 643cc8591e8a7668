//! The kubelet's own client certificate: asked for with a bootstrap token at first, and renewed before it ends.
//!
//! ```text
//! bootstrap kubeconfig ──CSR──> apiserver ──signed──> <cert-dir>/kubelet-client-current.pem <── kubeconfig
//!                                  ▲                          │
//!                                  └──────── CSR ── four fifths of its life later
//! ```
//!
//! The kubeconfig names the file, and clients read a file again when it changes: nothing is restarted.

use crate::error::Error;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use pki::PrivateKey;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CURRENT: &str = "kubelet-client-current.pem";
/// A request that nobody has approved is made again after this long.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const RETRY: Duration = Duration::from_secs(5);

/// How the kubelet comes by its certificate.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The node's name.
    pub node_name: String,
    /// Where certificates are kept.
    pub dir: PathBuf,
    /// The kubeconfig of the node.
    pub kubeconfig: PathBuf,
    /// The one to ask with, while there is none.
    pub bootstrap: Option<PathBuf>,
    /// Whether the certificate is renewed.
    pub rotate: bool,
}

fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Certificate { doing, source: source.into() }
}

impl Certificates {
    /// Makes the node's kubeconfig if there is none yet; waits until the request is approved.
    pub async fn bootstrap(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        let Some(bootstrap) = self.bootstrap.as_ref().filter(|_| !self.kubeconfig.exists()) else {
            return Ok(());
        };
        let cluster = Kubeconfig::read_from(bootstrap).map_err(failed("read the bootstrap kubeconfig"))?;
        let client = client::connect(Some(bootstrap), "kubelet bootstrap");
        let client = client.await.map_err(failed("reach the apiserver with the bootstrap kubeconfig"))?;
        loop {
            let asked = tokio::select! {
                asked = self.ask(&client) => asked,
                () = shutdown.cancelled() => return Ok(()),
            };
            match asked {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(error = crate::error::chain(&error), "ask for a certificate");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.write_kubeconfig(cluster)
    }

    /// Renews the certificate until the token is cancelled.
    pub async fn renew(self, client: Client, shutdown: CancellationToken) {
        loop {
            let pause = match self.renew_at() {
                Some(at) => Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default(),
                // The kubeconfig has a certificate of its own that is not ours to renew.
                None => return,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.cancelled() => return,
            }
            let asked = tokio::select! {
                asked = self.ask(&client) => asked,
                () = shutdown.cancelled() => return,
            };
            match asked {
                Ok(()) => tracing::info!("the client certificate was renewed"),
                Err(error) => {
                    tracing::warn!(error = crate::error::chain(&error), "renew the client certificate");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn renew_at(&self) -> Option<Timestamp> {
        let text = std::fs::read_to_string(self.dir.join(CURRENT)).ok()?;
        let facts = pki::Facts::from_pem(&text).ok()?;
        renew_at(facts.not_before, facts.not_after)
    }

    /// Asks for a certificate and puts it in its place.
    async fn ask(&self, client: &Client) -> Result<(), Error> {
        let key = PrivateKey::generate().map_err(failed("make a key"))?;
        let user = format!("system:node:{}", self.node_name);
        let request = pki::request(&key, &user, &["system:nodes"], &[]).map_err(failed("make a request"))?;
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let request = CertificateSigningRequest {
            metadata: ObjectMeta { generate_name: Some("csr-".into()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: SIGNER.into(),
                usages: Some(vec!["digital signature".into(), "client auth".into()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let made = requests.create(&PostParams::default(), &request).await;
        let made = made.map_err(failed("create a certificate signing request"))?;
        let name = made.metadata.name.unwrap_or_default();
        let decided =
            |request: Option<&CertificateSigningRequest>| request.is_none_or(|r| verdict(r).is_some());
        let waiting = tokio::time::timeout(PATIENCE, await_condition(requests, &name, decided)).await;
        let answer = waiting.map_err(failed("wait for the certificate"))?;
        let answer = answer.map_err(failed("wait for the certificate"))?;
        let certificate = answer.as_ref().and_then(verdict).unwrap_or(Err("the request is gone".into()));
        let certificate = certificate.map_err(|why| failed("get a certificate")(why))?;
        self.keep(&certificate, key.pem())
    }

    /// Certificate and key in one file, so that they always belong together.
    fn keep(&self, certificate: &str, key: &str) -> Result<(), Error> {
        let path = self.dir.join(CURRENT);
        std::fs::create_dir_all(&self.dir).map_err(|source| Error::File {
            doing: "make the folder of certificates",
            path: self.dir.clone(),
            source,
        })?;
        let text = format!("{}\n{key}", certificate.trim_end());
        pki::file::write(&path, text.as_bytes(), pki::file::Mode::Secret)
            .map_err(failed("keep the certificate"))
    }

    fn write_kubeconfig(&self, mut cluster: Kubeconfig) -> Result<(), Error> {
        let file = self.dir.join(CURRENT).display().to_string();
        for user in &mut cluster.auth_infos {
            user.auth_info = Some(kube::config::AuthInfo {
                client_certificate: Some(file.clone()),
                client_key: Some(file.clone()),
                ..kube::config::AuthInfo::default()
            });
        }
        inline_authority(&mut cluster)?;
        // JSON is YAML.
        let text = serde_json::to_vec_pretty(&cluster).map_err(failed("write the kubeconfig"))?;
        pki::file::write(&self.kubeconfig, &text, pki::file::Mode::Secret)
            .map_err(failed("write the kubeconfig"))
    }
}

/// The bootstrap kubeconfig may be removed: what it refers to is taken over.
fn inline_authority(config: &mut Kubeconfig) -> Result<(), Error> {
    for cluster in config.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        if let Some(file) = cluster.certificate_authority.take() {
            let path = Path::new(&file);
            let pem = std::fs::read(path).map_err(|source| Error::File {
                doing: "read the cluster's certificate",
                path: path.to_owned(),
                source,
            })?;
            cluster.certificate_authority_data = Some(BASE64_STANDARD.encode(pem));
        }
    }
    Ok(())
}

/// The certificate, or why there is none; nothing while nobody has decided.
fn verdict(request: &CertificateSigningRequest) -> Option<Result<String, String>> {
    let status = request.status.as_ref()?;
    let refused =
        status.conditions.iter().flatten().find(|c| matches!(c.type_.as_str(), "Denied" | "Failed"));
    if let Some(refused) = refused {
        return Some(Err(format!("{}: {}", refused.type_, refused.message.as_deref().unwrap_or_default())));
    }
    let certificate = status.certificate.as_ref()?;
    Some(String::from_utf8(certificate.0.clone()).map_err(|error| error.to_string()))
}

/// After four fifths of its life.
fn renew_at(not_before: i64, not_after: i64) -> Option<Timestamp> {
    let begins = Timestamp::from_second(not_before).ok()?;
    Some(begins + SignedDuration::from_secs((not_after - not_before) * 4 / 5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_certificate_is_renewed_before_it_ends() {
        assert_eq!(renew_at(100, 200).map(|at| at.as_second()), Some(180));
    }

    #[test]
    fn a_refusal_says_why() {
        let request = |status| {
            let request =
                json!({"metadata": {}, "spec": {"request": "", "signerName": ""}, "status": status});
            serde_json::from_value::<CertificateSigningRequest>(request).expect("a request")
        };
        assert_eq!(verdict(&request(json!({}))), None);
        let denied = json!({"conditions": [{"type": "Denied", "status": "True", "message": "no"}]});
        assert_eq!(verdict(&request(denied)), Some(Err("Denied: no".into())));
        let signed = json!({"certificate": BASE64_STANDARD.encode("PEM")});
        assert_eq!(verdict(&request(signed)), Some(Ok("PEM".into())));
    }
}
