//! RoleBinding: gives a role to somebody, in one namespace.

use super::binding;
use crate::kind::Kind;
use crate::names;
use k8s_openapi::api::rbac::v1::RoleBinding;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: binding::columns(),
        create_on_update: true,
        validate_name: names::path_segment_name,
        default: binding::default,
        validate: |object, errors| binding::validate(object, &["Role", "ClusterRole"], errors),
        validate_update: binding::validate_update,
        ..Kind::new::<RoleBinding>()
    }
}
