//! A plugin: what an API server of either generation gives its pods to, over whatever runs them.
//!
//! ```text
//! API server ── create, delete, status, getLogs ──> plugin ──> Site ─┬─ container   our own local node, on containerd
//!                                                                    └─ slurm       a batch system
//! ```
//!
//! What is on the wire is the same for all sites; a site knows nothing of generations.

pub mod container;
mod localize;
mod provided;
mod routes;
pub mod slurm;

pub use provided::ProvidedSite;

use crate::api::Error;
use crate::config::Config;
use crate::door;
use crate::names::PodName;
use crate::secure::Guard;
use crate::wire::{LogOptions, PodState, Pong, RetrievedPod};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Why a site does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// Never, whoever asks again: in the site's own words.
    #[error("{0}")]
    Refused(String),
    /// It does not know the pod or container.
    #[error("{0}")]
    Unknown(String),
    /// Not now.
    #[error("{0}")]
    Busy(String),
}

/// A log as it comes.
pub type LogStream = BoxStream<'static, Result<Bytes, std::io::Error>>;

/// Runs pods that a plugin was given.
#[async_trait]
pub trait Site: Send + Sync + 'static {
    /// Takes a pod on, and says by what name. Asked for one that it has, it says the same again and does nothing.
    async fn create(&self, name: &PodName, given: RetrievedPod) -> Result<String, SiteError>;
    /// Ends a pod; nothing is left of it when this returns.
    async fn delete(&self, name: &PodName) -> Result<(), SiteError>;
    /// How a pod is; none: it is not known.
    fn state(&self, name: &PodName) -> Option<PodState>;
    /// How all are.
    fn states(&self) -> Vec<PodState>;
    /// What a container wrote.
    async fn logs(
        &self,
        name: &PodName,
        container: &str,
        options: &LogOptions,
    ) -> Result<LogStream, SiteError>;
    /// What there is to be had here, if anybody knows.
    async fn size(&self) -> Option<Pong>;
}

/// Serves a site until shutdown.
pub async fn serve(
    config: &Config,
    site: Arc<dyn Site>,
    listen: SocketAddr,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let guard = Guard::new(&config.sidecar_tls, config.sidecar_token_file.as_deref())?;
    guard.may_listen(listen, "SidecarTokenFile", "SidecarTLS")?;
    let listener = TcpListener::bind(listen).await.map_err(|source| Error::Listen(listen, source))?;
    tracing::info!(address = %listen, "interLink plugin serves");
    door::serve(listener, guard, routes::router(site), shutdown).await;
    Ok(())
}
