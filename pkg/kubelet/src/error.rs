//! Why the kubelet does not start, and errors as people read them.

use std::path::PathBuf;

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

/// Why the kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Two kubelets claim one node.
    #[error("another kubelet has node {0:?}: see the log")]
    Taken(String),
    /// No client for the apiserver.
    #[error("reach the apiserver")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The container runtime.
    #[error("reach the container runtime")]
    Runtime(#[source] crate::runtime::Error),
    /// The pods' network.
    #[error("set up the network of pods")]
    Network(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A folder or file.
    #[error("{doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The description of a site is none.
    #[error("the site of --config")]
    Site(#[from] crate::providers::slurm::SiteError),
    /// The folder of manifests cannot be watched.
    #[error("watch {path}")]
    Watch {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: notify::Error,
    },
    /// The server could not be started.
    #[error("serve the node's API")]
    Server(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A certificate could not be had.
    #[error("{doing}")]
    Certificate {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
