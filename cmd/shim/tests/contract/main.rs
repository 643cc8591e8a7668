//! The runtime's contract, the same as runc's, by our own shim.

mod escapes;
#[path = "../../../../pkg/kubelet/tests/containerd/faults.rs"]
mod faults;
mod kills;
#[path = "../../../../pkg/kubelet/tests/containerd/lifecycle.rs"]
mod lifecycle;
#[path = "../../../../pkg/kubelet/tests/containerd/limits.rs"]
mod limits;
#[path = "../../../../pkg/kubelet/tests/containerd/logs.rs"]
mod logs;
#[path = "../../../../pkg/kubelet/tests/containerd/node.rs"]
mod node;
#[path = "../../../../pkg/kubelet/tests/containerd/security.rs"]
mod security;
#[path = "../../../../pkg/kubelet/tests/containerd/sessions.rs"]
mod sessions;
