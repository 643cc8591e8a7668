//! Kubeconfigs: where a cluster is, how to recognise it, and who one is there.

use crate::Error;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::json;

/// A kubeconfig of one cluster and one user with a client certificate, everything inline.
pub fn kubeconfig(
    server: &str,
    ca_pem: &str,
    user: &str,
    client_cert_pem: &str,
    client_key_pem: &str,
) -> String {
    // JSON strings are YAML strings, whatever is in them.
    let (server, context, name) = (json!(server), json!(format!("{user}@kubernetes")), json!(user));
    let [ca, certificate, key] =
        [ca_pem, client_cert_pem, client_key_pem].map(|pem| BASE64_STANDARD.encode(pem));
    format!(
        "apiVersion: v1\nkind: Config\n\
         clusters:\n- name: kubernetes\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         users:\n- name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
         contexts:\n- name: {context}\n  context:\n    cluster: kubernetes\n    user: {name}\n\
         current-context: {context}\n"
    )
}

/// What the current context of a kubeconfig says, as far as our own programs need it. Only inline data: whoever
/// needs files, proxies or exec plugins has a full client.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The URL of the API server.
    pub server: String,
    /// The certificates of the authority it is recognised by, as PEM.
    pub ca_pem: String,
    /// The client certificate, as PEM.
    pub client_cert_pem: Option<String>,
    /// The key of the client certificate, as PEM.
    pub client_key_pem: Option<String>,
    /// A bearer token.
    pub token: Option<String>,
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// Reads the current context.
    pub fn parse(text: &str) -> Result<Kubeconfig, Error> {
        let wrong = |what: String| Error::Kubeconfig(what);
        // The parser's message may quote the text, and the text has keys in it: its place is enough.
        let document: Document = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            wrong(format!("not the YAML of a kubeconfig{}", place.unwrap_or_default()))
        })?;
        let current = document.current_context;
        let context = find(document.contexts, &current)
            .and_then(|named| named.context)
            .ok_or_else(|| wrong(format!("no context {current:?}")))?;
        let cluster = find(document.clusters, &context.cluster)
            .and_then(|named| named.cluster)
            .ok_or_else(|| wrong(format!("no cluster {:?}", context.cluster)))?;
        let user = find(document.users, &context.user).and_then(|named| named.user).unwrap_or_default();
        Ok(Kubeconfig {
            server: cluster.server,
            ca_pem: inline(cluster.certificate_authority_data, "certificate-authority-data")?
                .unwrap_or_default(),
            client_cert_pem: inline(user.client_certificate_data, "client-certificate-data")?,
            client_key_pem: inline(user.client_key_data, "client-key-data")?,
            token: user.token,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    contexts: Vec<Named>,
    #[serde(default)]
    users: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    cluster: Option<Cluster>,
    context: Option<Context>,
    user: Option<User>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
}

fn find(list: Vec<Named>, name: &str) -> Option<Named> {
    list.into_iter().find(|named| named.name == name)
}

fn inline(data: Option<String>, field: &str) -> Result<Option<String>, Error> {
    data.map(|data| {
        let bytes = BASE64_STANDARD.decode(data.trim()).ok();
        bytes
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| Error::Kubeconfig(format!("{field} is not base64 of PEM")))
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = kubeconfig("https://[::1]:6443", "CA", "kubernetes-\"admin\"", "CERT", "KEY");
        let read = Kubeconfig::parse(&text).unwrap();
        assert_eq!(
            read,
            Kubeconfig {
                server: "https://[::1]:6443".into(),
                ca_pem: "CA".into(),
                client_cert_pem: Some("CERT".into()),
                client_key_pem: Some("KEY".into()),
                token: None,
            }
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_showing_secrets() {
        let check = |text: &str, expected: &str| {
            let error = Kubeconfig::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("malformed kubeconfig: {expected}"));
        };
        check("current-context: a", "no context \"a\"");
        check("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]", "no cluster \"b\"");
        let good = kubeconfig("https://x", "CA", "u", "CERT", "KEY");
        check(&good.replace("S0VZ", "@secret@"), "not the YAML of a kubeconfig at line 12, column 22");
        check(&good.replace("S0VZ", "S0V_"), "client-key-data is not base64 of PEM");
    }
}
