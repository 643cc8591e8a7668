//! The kubelet as it is built, on a real containerd, in a network of its own.

mod faults;
mod machine;
mod pods;
mod restarts;
mod static_pods;
