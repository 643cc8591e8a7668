//! authentication.k8s.io/v1: questions about who somebody is. Nothing here is stored.

pub mod self_subject_review;
pub mod token_review;
