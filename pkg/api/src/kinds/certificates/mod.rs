//! certificates.k8s.io/v1: certificates for those who ask and are let.

pub mod certificate_signing_request;
