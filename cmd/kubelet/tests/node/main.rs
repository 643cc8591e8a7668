//! The kubelet as it is built, on a real containerd, in a network of its own.

mod asks;
mod command;
mod faults;
mod isolation;
mod machine;
mod pods;
#[path = "../../../../pkg/kubelet/tests/containerd/registry.rs"]
mod registry;
mod resize;
mod restarts;
mod static_pods;
mod volumes;
