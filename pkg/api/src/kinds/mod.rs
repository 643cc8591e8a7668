//! The built-in kinds: one file each, one line each in [`BUILT_IN`].

pub mod core;
pub mod pod_spec;

use crate::kind::Kind;
use std::sync::{Arc, LazyLock};

/// The list of kinds. A new kind is a file beside this one and a line here.
const BUILT_IN: &[fn() -> Kind] = &[
    // core/v1
];

/// All built-in kinds, made once.
pub fn all() -> &'static [Arc<Kind>] {
    static ALL: LazyLock<Vec<Arc<Kind>>> =
        LazyLock::new(|| BUILT_IN.iter().map(|kind| Arc::new(kind())).collect());
    &ALL
}
