//! Upstream's programs and ours in each other's places, one at a time.
//!
//! ```text
//!                 apiserver   controller-manager, scheduler      node
//! control_plane   ours        upstream's, one beside our other   simulated
//! control_plane   upstream's  ours                               simulated
//! node            upstream's  upstream's                         our kubelet and kubeproxy
//! node            ours        ours                               upstream's kubelet and kube-proxy
//! ```
//!
//! `PEER_BIN` names a folder with upstream's programs, of the version that we serve. Without it nothing here runs.

mod control_plane;
mod node;
mod support;
mod work;
