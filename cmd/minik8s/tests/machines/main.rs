//! Whole clusters on machines of their own (`testing::Machine`), made by the built program. One test binary: its
//! modules share `support::Node`, and the program is stripped and linked once.

mod bad_days;
mod certificates;
mod cluster;
mod families;
mod fleet;
mod functions;
mod kubeadm;
mod network;
mod package;
mod seed;
mod support;
mod systemd;
mod verbs;
mod workflows;
mod workloads;
