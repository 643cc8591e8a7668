//! minik8s.io/v1: what Kubernetes does not have.
//!
//! ```text
//! DNS ──> host/path -> Service        Workflow ──> nodes -> Function, Job
//! Function ──> code behind HTTP       WorkflowRun ──> one walk through a Workflow; WorkflowStep, WorkflowValue: what it leaves
//! FunctionCall ──> a call for later
//! ```
//!
//! These types are ours, so they are Rust structs here: the schema is derived from them and the doc comments are
//! its descriptions.

pub mod dns;
pub mod function;
pub mod function_call;
mod type_meta;
pub mod workflow;
pub mod workflow_rules;
pub mod workflow_run;
pub mod workflow_step;

pub use dns::{DNS, DNSSpec, DNSStatus, DNSSubpath, DNSSubpathStatus};
pub use function::{
    Function, FunctionAsync, FunctionEvents, FunctionLimits, FunctionSpec, FunctionStatus, FunctionTraffic,
    FunctionTrigger, FunctionTriggerStatus,
};
pub use function_call::{FunctionCall, FunctionCallSpec, FunctionCallStatus};
pub use type_meta::{ApiVersion, KindName};
pub use workflow::{
    Workflow, WorkflowCatch, WorkflowChoice, WorkflowCondition, WorkflowLimits, WorkflowNode,
    WorkflowRetention, WorkflowRetry, WorkflowSpec,
};
pub use workflow_run::{WorkflowJoin, WorkflowRun, WorkflowRunSpec, WorkflowRunStatus, WorkflowThread};
pub use workflow_step::{WorkflowStep, WorkflowStepSpec, WorkflowValue, WorkflowValueSpec};

/// Makes a type a resource of our group.
macro_rules! resource {
    ($type:ident, $plural:literal) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = "minik8s.io/v1";
            const GROUP: &'static str = "minik8s.io";
            const KIND: &'static str = stringify!($type);
            const VERSION: &'static str = "v1";
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}
use resource;
