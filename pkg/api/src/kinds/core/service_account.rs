//! ServiceAccount: who a pod is to the apiserver.

use crate::kind::Kind;
use crate::kinds::pod_spec::list_mut;
use crate::names;
use crate::printing::{age_column, name_column, text};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        // Secrets are of the account's own namespace: only their names count.
        prepare: |account, _| {
            for secret in list_mut(account, "secrets") {
                *secret = json!({"name": text(secret, "name")});
            }
        },
        columns: vec![name_column(), age_column()],
        ..Kind::new::<ServiceAccount>().short(&["sa"]).with_subresource(
            "token",
            ("authentication.k8s.io", "v1", "TokenRequest"),
            &["create"],
        )
    }
}
