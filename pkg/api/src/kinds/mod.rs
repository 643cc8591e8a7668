//! The built-in kinds: one file each, one line each in [`BUILT_IN`].

pub mod core;
pub mod pod_spec;

use crate::kind::Kind;
use std::sync::{Arc, LazyLock};

/// The list of kinds. A new kind is a file beside this one and a line here.
const BUILT_IN: &[fn() -> Kind] = &[
    // core/v1
    core::binding::kind,
    core::config_map::kind,
    core::endpoints::kind,
    core::event::kind,
    core::limit_range::kind,
    core::namespace::kind,
    core::node::kind,
    core::persistent_volume::kind,
    core::persistent_volume_claim::kind,
    core::pod::kind,
    core::pod_template::kind,
    core::replication_controller::kind,
    core::resource_quota::kind,
    core::secret::kind,
    core::service_account::kind,
];

/// All built-in kinds, made once.
pub fn all() -> &'static [Arc<Kind>] {
    static ALL: LazyLock<Vec<Arc<Kind>>> =
        LazyLock::new(|| BUILT_IN.iter().map(|kind| Arc::new(kind())).collect());
    &ALL
}
