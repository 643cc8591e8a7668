//! One file per command that is not a list of phases.

pub mod backup;
pub mod certs;
pub mod config;
pub mod image;
pub mod redis_users;
pub mod status;
pub mod token;
pub mod version;

use crate::layout;
use anyhow::{Context, Result};
use kube::Client;

/// A client of the cluster whose control plane runs here.
async fn admin_client() -> Result<Client> {
    let path = layout::admin();
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("read {} (is this the control plane, and are you root?)", path.display()))?;
    crate::phases::init::client_of(&text).await
}
