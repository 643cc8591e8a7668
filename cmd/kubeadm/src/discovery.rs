//! How a machine that knows only an address and a token comes to trust a cluster, and the cluster it.
//!
//! ```text
//! address ──(no trust yet)──> cluster-info ──signed with the token, CA of the known hash──> CA
//! CA + token ──> a certificate for this node, signed by the cluster ──> its identity
//! ```

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Client, Config};
use pki::{BootstrapToken, Identity, PrivateKey};
use std::time::Duration;

/// How long a server may take to answer, and a certificate to be signed.
const PATIENCE: Duration = Duration::from_secs(60);
/// A clock that is off by more makes certificates and tokens fail for no visible reason.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// A cluster that has proven itself.
pub struct Trusted {
    /// Its URL.
    pub server: String,
    /// Its authority's certificate.
    pub ca_pem: String,
}

/// Asks the server at `endpoint` (`host:port`) who it is, and believes it if the token has signed the answer and the
/// authority is one of those whose hashes are given. Without hashes, the token's signature alone has to do.
pub async fn discover(endpoint: &str, token: &BootstrapToken, ca_hashes: &[String]) -> Result<Trusted> {
    let server = format!("https://{endpoint}");
    let mut config = Config::new(server.parse().with_context(|| format!("{endpoint:?} is not host:port"))?);
    config.accept_invalid_certs = true;
    config.connect_timeout = Some(Duration::from_secs(10));
    config.read_timeout = Some(Duration::from_secs(10));
    let client = Client::try_from(config).context("make a client")?;
    check_clock(&client).await.with_context(|| format!("reach {server}"))?;
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let info = api
        .get("cluster-info")
        .await
        .with_context(|| format!("ask {server} for cluster-info (was this cluster made by kubeadm init?)"))?;
    let data = info.data.unwrap_or_default();
    let text = data.get("kubeconfig").context("cluster-info has no kubeconfig")?;
    let signature = data.get(&format!("jws-kubeconfig-{}", token.id())).with_context(|| {
        format!(
            "the cluster does not know the token {}: it has expired or was never made; make a new one on the control \
             plane with: kubeadm token create --print-join-command",
            token.id()
        )
    })?;
    if !token.verify(text, signature) {
        bail!("the token's secret is wrong: cluster-info is not signed with it");
    }
    let (server, ca_pem) = authority(text)?;
    check_hash(&ca_pem, ca_hashes)?;
    Ok(Trusted { server, ca_pem })
}

/// The server and the authority that cluster-info names.
fn authority(text: &str) -> Result<(String, String)> {
    let config = Kubeconfig::from_yaml(text).context("cluster-info is not a kubeconfig")?;
    let cluster = config.clusters.into_iter().find_map(|named| named.cluster);
    let cluster = cluster.context("cluster-info names no cluster")?;
    let data = cluster.certificate_authority_data.context("cluster-info has no certificate authority")?;
    let pem = String::from_utf8(BASE64_STANDARD.decode(data.trim())?)?;
    if pem.trim().is_empty() {
        bail!("cluster-info's certificate authority is empty");
    }
    Ok((cluster.server.context("cluster-info has no server")?, pem))
}

fn check_hash(ca_pem: &str, hashes: &[String]) -> Result<()> {
    let found = pki::public_key_hash(ca_pem).context("the certificate authority cannot be read")?;
    if !hashes.is_empty() && !hashes.iter().any(|hash| hash.eq_ignore_ascii_case(&found)) {
        bail!(
            "this is another cluster: its CA has the hash {found}, and {} was expected (--discovery-token-ca-cert-hash)",
            hashes.join(" or ")
        );
    }
    Ok(())
}

/// The server says what time it has; a machine whose clock differs much is told so before it fails obscurely.
async fn check_clock(client: &Client) -> Result<()> {
    let request = http::Request::get("/version").body(kube::client::Body::empty())?;
    let response = tokio::time::timeout(Duration::from_secs(15), client.send(request))
        .await
        .context("no answer in 15 seconds: is the address right, and is a firewall in between?")??;
    let Some(date) = response.headers().get("date").and_then(|date| date.to_str().ok()) else {
        return Ok(());
    };
    let Ok(theirs) = jiff::fmt::rfc2822::parse(date) else { return Ok(()) };
    let (ours, theirs) = (Timestamp::now(), theirs.timestamp());
    if ours.duration_since(theirs).abs() > CLOCK_TOLERANCE {
        bail!("the clocks differ: here it is {ours}, there {theirs}; set this machine's clock first");
    }
    Ok(())
}

/// A client of a trusted cluster that shows a token.
pub fn token_client(trusted: &Trusted, token: &BootstrapToken) -> Result<Client> {
    let mut config = Config::new(trusted.server.parse().context("the server's address")?);
    config.root_cert = Some(vec![pem_to_der(&trusted.ca_pem)?]);
    config.auth_info = AuthInfo { token: Some(token.to_string().into()), ..AuthInfo::default() };
    Client::try_from(config).context("make a client")
}

fn pem_to_der(pem: &str) -> Result<Vec<u8>> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    Ok(BASE64_STANDARD.decode(body.trim())?)
}

/// Asks the cluster for a node's certificate, and waits until it is signed.
pub async fn request_identity(client: &Client, node: &str) -> Result<Identity> {
    let key = PrivateKey::generate()?;
    let request = pki::request(&key, &format!("system:node:{node}"), &["system:nodes"], &[])?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let wanted = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("node-csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api.create(&PostParams::default(), &wanted).await.context(
        "ask for this node's certificate (401: the token has expired; kubeadm token create makes a new one)",
    )?;
    let name = made.metadata.name.unwrap_or_default();
    let signed = tokio::time::timeout(PATIENCE, wait_signed(&api, &name)).await.with_context(|| {
        format!(
            "nobody has signed {name} in {} seconds: is the controller-manager running? (kubectl get csr {name})",
            PATIENCE.as_secs()
        )
    })??;
    Ok(Identity { certificate: signed, key: key.pem().to_owned() })
}

async fn wait_signed(api: &Api<CertificateSigningRequest>, name: &str) -> Result<String> {
    let config = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = client::watcher(api.clone(), config);
    let mut changes = std::pin::pin!(kube::runtime::WatchStreamExt::default_backoff(changes));
    while let Some(event) = changes.next().await {
        use kube::runtime::watcher::Event;
        let Ok(Event::Apply(request) | Event::InitApply(request)) = event else { continue };
        let status = request.status.unwrap_or_default();
        for condition in status.conditions.iter().flatten() {
            if matches!(condition.type_.as_str(), "Denied" | "Failed") {
                bail!("{name} was refused: {}", condition.message.as_deref().unwrap_or(&condition.type_));
            }
        }
        // A join never goes on with an empty certificate.
        if let Some(ByteString(certificate)) = status.certificate.filter(|bytes| !bytes.0.is_empty()) {
            return String::from_utf8(certificate).context("the certificate is not text");
        }
    }
    bail!("the watch of {name} ended")
}
