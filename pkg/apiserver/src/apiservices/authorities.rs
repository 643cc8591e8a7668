//! The ConfigMap by which other servers know whom to believe.

use super::{backend, put_right};
use crate::bootstrap;
use crate::context::Context;
use crate::error::Result;
use crate::identity::Credentials;
use crate::server::Server;
use api::Value;
use api::selector::FieldSelector;
use listwatch::Scope;
use serde_json::json;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The one object that this is about.
pub fn scope() -> Scope {
    let fields = FieldSelector::parse(&format!("metadata.name={NAME}")).expect("a selector");
    Scope { fields, ..Scope::namespace(NAMESPACE) }
}

/// Tells other servers whose certificates to believe: those of clients, and ours when we speak for one.
pub async fn publish(server: &Server, credentials: &Credentials) -> Result<()> {
    let data = |known: &Value| {
        let with =
            |name: &str, own: &str| with_authority(known["data"][name].as_str().unwrap_or_default(), own);
        json!({
            "client-ca-file": with("client-ca-file", &credentials.clients),
            "requestheader-allowed-names": json!([pki::FRONT_PROXY_CLIENT]).to_string(),
            "requestheader-client-ca-file":
                with("requestheader-client-ca-file", credentials.pki.front_proxy.pem()),
            "requestheader-extra-headers-prefix": json!([backend::EXTRA_PREFIX]).to_string(),
            "requestheader-group-headers": json!([backend::GROUP]).to_string(),
            "requestheader-uid-headers": json!([backend::UID]).to_string(),
            "requestheader-username-headers": json!([backend::USER]).to_string(),
        })
    };
    let Some(known) = server.lookup("", "configmaps", NAMESPACE, NAME) else {
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data(&Value::Null)});
        let context = Context::internal(jiff::Timestamp::now());
        return bootstrap::ensure(server, "", "configmaps", NAMESPACE, wanted, &context).await;
    };
    let resource = server.registry.built_in("", "configmaps");
    put_right(server, &resource, &known, "data", |current| Some(data(current))).await
}

/// Authorities with our own, which other apiservers may not share.
fn with_authority(known: &str, own: &str) -> String {
    match known.contains(own.trim()) {
        true => known.to_owned(),
        false if known.is_empty() || known.ends_with('\n') => format!("{known}{own}"),
        // What others wrote need not end as ours does, and no certificate begins within a line.
        false => format!("{known}\n{own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_of_other_apiservers_stay() {
        let both = with_authority(&with_authority("", "A\n"), "B\n");
        assert_eq!(both, "A\nB\n");
        assert_eq!(with_authority(&both, "A\n"), both);
        assert_eq!(with_authority("A", "B\n"), "A\nB\n");
    }
}
