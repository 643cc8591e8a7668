//! The HTTP surface: routes, identity, admission, patches, watches.

pub mod auth;
pub mod discovery;
pub mod encryption;
pub mod openapi;
pub mod patch;
