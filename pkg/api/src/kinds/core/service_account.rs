//! ServiceAccount: who a pod is to the apiserver.

use crate::kind::Kind;
use crate::names;
use crate::printing::{age_column, name_column};
use k8s_openapi::api::core::v1::ServiceAccount;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        columns: vec![name_column(), age_column()],
        ..Kind::new::<ServiceAccount>().short(&["sa"]).with_subresource(
            "token",
            ("authentication.k8s.io", "v1", "TokenRequest"),
            &["create"],
        )
    }
}
