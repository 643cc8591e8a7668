//! The kubeconfig that ConfigMaps and Secrets are read with: handed over by the virtual node, or a file of this machine.
//!
//! What is handed over is read for what it needs to say and no more: a kubeconfig may also name programs to run.

use http::StatusCode;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Client, Config};
use parking_lot::Mutex;
use pki::file::{Mode, write};
use serde_json::json;
use std::path::{Path, PathBuf};

use super::Refusal;

/// The credential of the moment.
pub(crate) struct Credential {
    file: PathBuf,
    own: Option<PathBuf>,
    client: Mutex<Option<Client>>,
}

impl Credential {
    /// As it was handed over before, below the data folder; or a file of our own, which is not replaced.
    pub fn new(data_root: &Path, own: Option<PathBuf>) -> Credential {
        Credential { file: data_root.join(".kube/config"), own, client: Mutex::default() }
    }

    /// A client, if there is a credential.
    pub async fn client(&self) -> Option<Client> {
        if let Some(client) = self.client.lock().clone() {
            return Some(client);
        }
        let made = match &self.own {
            Some(path) => Kubeconfig::read_from(path).map_err(|error| kubelet::error::chain(&error)),
            None => {
                let text = std::fs::read_to_string(&self.file).ok()?;
                plain(&text).map_err(|(_, why)| why)
            }
        };
        let made = match made {
            Ok(kubeconfig) => connect(kubeconfig).await,
            Err(why) => Err(why),
        };
        match made {
            Ok(client) => {
                *self.client.lock() = Some(client.clone());
                Some(client)
            }
            Err(why) => {
                tracing::warn!(error = why, "the kubeconfig cannot be used");
                None
            }
        }
    }

    /// A virtual node hands one over.
    pub async fn replace(&self, body: &[u8]) -> Result<(), Refusal> {
        let bad = |what: &str| (StatusCode::BAD_REQUEST, what.to_owned());
        let text = std::str::from_utf8(body).map_err(|_| bad("the body is not the text of a kubeconfig"))?;
        let kubeconfig = plain(text)?;
        let client = connect(kubeconfig.clone()).await.map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let failed = |error: &dyn std::error::Error| {
            tracing::error!(error = kubelet::error::chain(error), "keep the kubeconfig");
            (
                StatusCode::INSUFFICIENT_STORAGE,
                "the kubeconfig cannot be kept: see the log of the API server".to_owned(),
            )
        };
        let text = serde_json::to_vec(&kubeconfig).map_err(|error| failed(&error))?;
        if let Some(folder) = self.file.parent() {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(|error| failed(&error))?;
        }
        write(&self.file, &text, Mode::Secret).map_err(|error| failed(&error))?;
        if self.own.is_none() {
            *self.client.lock() = Some(client);
        }
        Ok(())
    }
}

/// Server, authority, and a token or certificate, all inline; nothing else of what a kubeconfig can say.
fn plain(text: &str) -> Result<Kubeconfig, Refusal> {
    let bad = |what: String| {
        (StatusCode::BAD_REQUEST, format!("the body is not a kubeconfig that can be used: {what}"))
    };
    let read = pki::Kubeconfig::parse(text).map_err(|error| bad(kubelet::error::chain(&error)))?;
    if read.server.is_empty() {
        return Err(bad("its cluster has no server".into()));
    }
    if read.token.is_none() && read.client_cert_pem.is_none() {
        return Err(bad("its user has neither a token nor client-certificate-data".into()));
    }
    let encode = |pem: &str| base64_of(pem.as_bytes());
    let name = "interlink".to_owned();
    let user = AuthInfo {
        token: read.token.clone().map(Into::into),
        client_certificate_data: read.client_cert_pem.as_deref().map(encode),
        client_key_data: read.client_key_pem.as_deref().map(encode).map(Into::into),
        ..AuthInfo::default()
    };
    let authority = Some(read.ca_pem.as_str()).filter(|pem| !pem.is_empty()).map(encode);
    let cluster =
        Cluster { server: Some(read.server), certificate_authority_data: authority, ..Cluster::default() };
    Ok(Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() }),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    })
}

/// As a kubeconfig has its contents. serde knows how: by way of a Secret's.
fn base64_of(bytes: &[u8]) -> String {
    let encoded = json!(k8s_openapi::ByteString(bytes.to_vec()));
    encoded.as_str().unwrap_or_default().to_owned()
}

async fn connect(kubeconfig: Kubeconfig) -> Result<Client, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = made.map_err(|error| kubelet::error::chain(&error))?;
    Client::try_from(config).map_err(|error| kubelet::error::chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster: {{server: 'http://127.0.0.1:1'}}\n\
             contexts:\n- name: c\n  context: {{cluster: k, user: u}}\nusers:\n- name: u\n  user: {user}\n"
        )
    }

    #[tokio::test]
    async fn nothing_of_a_kubeconfig_is_run() {
        let dir = tempfile::tempdir().unwrap();
        let credential = Credential::new(dir.path(), None);
        assert!(credential.client().await.is_none());
        let hostile = dir.path().join("ran");
        let exec = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: [{}]}}}}",
            hostile.display()
        );
        for bad in ["", "x: [", &with("{}"), &with(&exec)] {
            assert_eq!(
                credential.replace(bad.as_bytes()).await.unwrap_err().0,
                StatusCode::BAD_REQUEST,
                "{bad}"
            );
        }
        assert!(!hostile.exists() && credential.client().await.is_none());
        credential.replace(with("{token: secret}").as_bytes()).await.unwrap();
        assert!(credential.client().await.is_some());
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.path().join(".kube/config")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Credential::new(dir.path(), None).client().await.is_some());
    }
}
