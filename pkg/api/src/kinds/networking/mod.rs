//! networking.k8s.io/v1: how traffic gets in, and what traffic is let through.

pub mod ingress;
pub mod ingress_class;
pub mod network_policy;
