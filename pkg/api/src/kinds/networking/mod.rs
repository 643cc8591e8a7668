//! networking.k8s.io/v1: how traffic gets in, what traffic is let through, and which addresses services have.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;
