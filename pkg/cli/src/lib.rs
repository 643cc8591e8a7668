//! What kubectl and kubeadm share: tables, progress, errors.
//!
//! Nothing here talks to a cluster: it only shows things to people, on a terminal or in a pipe.

mod progress;

pub use progress::Progress;
