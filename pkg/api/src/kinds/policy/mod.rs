//! policy/v1: how many pods may be missing at a time.

pub mod pod_disruption_budget;
