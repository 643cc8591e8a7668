//! The built-in kinds: one file each, one line each in [`BUILT_IN`].

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod events;
pub mod flowcontrol;
pub mod minik8s;
pub mod networking;
pub mod node;
pub mod pod_spec;
pub mod policy;
pub mod rbac;
pub mod resource;
mod rules;
pub mod scheduling;
pub mod storage;

use crate::kind::Kind;
use std::sync::{Arc, LazyLock};

/// The list of kinds. A new kind is a file beside this one and a line here.
const BUILT_IN: &[fn() -> Kind] = &[
    // core/v1
    core::binding::kind,
    core::config_map::kind,
    core::endpoints::kind,
    core::event::kind,
    core::limit_range::kind,
    core::namespace::kind,
    core::node::kind,
    core::persistent_volume::kind,
    core::persistent_volume_claim::kind,
    core::pod::kind,
    core::pod_template::kind,
    core::replication_controller::kind,
    core::resource_quota::kind,
    core::secret::kind,
    core::service::kind,
    core::service_account::kind,
    // admissionregistration.k8s.io/v1
    admissionregistration::mutating_webhook_configuration::kind,
    admissionregistration::validating_admission_policy::kind,
    admissionregistration::validating_admission_policy_binding::kind,
    admissionregistration::validating_webhook_configuration::kind,
    // apiextensions.k8s.io/v1
    apiextensions::custom_resource_definition::kind,
    // apiregistration.k8s.io/v1
    apiregistration::api_service::kind,
    // apps/v1
    apps::controller_revision::kind,
    apps::daemon_set::kind,
    apps::deployment::kind,
    apps::replica_set::kind,
    apps::stateful_set::kind,
    // authentication.k8s.io/v1
    authentication::self_subject_review::kind,
    authentication::token_review::kind,
    // authorization.k8s.io/v1
    authorization::local_subject_access_review::kind,
    authorization::self_subject_access_review::kind,
    authorization::self_subject_rules_review::kind,
    authorization::subject_access_review::kind,
    // autoscaling/v1 and v2
    autoscaling::horizontal_pod_autoscaler::kind,
    autoscaling::horizontal_pod_autoscaler_v1::kind,
    // batch/v1
    batch::cron_job::kind,
    batch::job::kind,
    // certificates.k8s.io/v1
    certificates::certificate_signing_request::kind,
    // coordination.k8s.io/v1
    coordination::lease::kind,
    // discovery.k8s.io/v1
    discovery::endpoint_slice::kind,
    // events.k8s.io/v1
    events::event::kind,
    // flowcontrol.apiserver.k8s.io/v1
    flowcontrol::flow_schema::kind,
    flowcontrol::priority_level_configuration::kind,
    // networking.k8s.io/v1
    networking::ingress::kind,
    networking::ingress_class::kind,
    networking::ip_address::kind,
    networking::network_policy::kind,
    networking::service_cidr::kind,
    // node.k8s.io/v1
    node::runtime_class::kind,
    // policy/v1
    policy::pod_disruption_budget::kind,
    // rbac.authorization.k8s.io/v1
    rbac::cluster_role::kind,
    rbac::cluster_role_binding::kind,
    rbac::role::kind,
    rbac::role_binding::kind,
    // resource.k8s.io/v1
    resource::device_class::kind,
    resource::resource_claim::kind,
    resource::resource_claim_template::kind,
    resource::resource_slice::kind,
    // scheduling.k8s.io/v1
    scheduling::priority_class::kind,
    // storage.k8s.io/v1
    storage::csi_driver::kind,
    storage::csi_node::kind,
    storage::csi_storage_capacity::kind,
    storage::storage_class::kind,
    storage::volume_attachment::kind,
    storage::volume_attributes_class::kind,
    // minik8s.io/v1
    minik8s::dns::kind,
    minik8s::function::kind,
    minik8s::function_call::kind,
    minik8s::workflow::kind,
    minik8s::workflow_run::kind,
    minik8s::workflow_step::kind,
    minik8s::workflow_step::value_kind,
];

/// All built-in kinds, made once.
pub fn all() -> &'static [Arc<Kind>] {
    static ALL: LazyLock<Vec<Arc<Kind>>> =
        LazyLock::new(|| BUILT_IN.iter().map(|kind| Arc::new(kind())).collect());
    &ALL
}
