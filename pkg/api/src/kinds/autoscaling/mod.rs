//! autoscaling: more replicas when there is more to do. Stored as v2; v1 is another view of the same objects.

pub mod horizontal_pod_autoscaler;
pub mod horizontal_pod_autoscaler_v1;
