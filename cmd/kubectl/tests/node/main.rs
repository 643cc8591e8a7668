//! Our kubectl on pods that run: logs, exec, attach, cp, port-forward, top, run.
//!
//! The kubelet's API is the real one, the containers are processes of this machine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../../pkg/kubelet/tests/nodeapi/node.rs"]
#[allow(dead_code, reason = "what the node's own tests need")]
mod node;
#[path = "../../../../pkg/kubelet/tests/nodeapi/processes.rs"]
#[allow(dead_code, reason = "what the node's own tests need")]
mod processes;
mod verbs;
