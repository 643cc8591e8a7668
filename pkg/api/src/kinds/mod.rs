//! The built-in kinds: one file each, one line each in [`BUILT_IN`].

use crate::kind::Kind;
use std::sync::{Arc, LazyLock};

// minik8s.io
pub mod minik8s;

/// The list of kinds. A new kind is a file beside this one and a line here.
const BUILT_IN: &[fn() -> Kind] = &[
    // minik8s.io
    minik8s::dns::kind,
    minik8s::function::kind,
    minik8s::workflow::kind,
    minik8s::workflow_run::kind,
];

/// All built-in kinds, made once.
pub fn all() -> &'static [Arc<Kind>] {
    static ALL: LazyLock<Vec<Arc<Kind>>> =
        LazyLock::new(|| BUILT_IN.iter().map(|kind| Arc::new(kind())).collect());
    &ALL
}
