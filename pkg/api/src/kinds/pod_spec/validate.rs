//! Rules for pod specs and templates.

use crate::field::{Errors, Field};
use crate::meta;

/// Where the spec stands, as far as rules depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// In a Pod itself rather than in a template.
    pub in_pod: bool,
}

/// Complains about a `PodTemplateSpec`.
pub fn validate_template(template: &Field<'_>, errors: &mut Errors) {
    meta::validate_labels(&template.get("metadata").get("labels"), errors);
    meta::validate_annotations(&template.get("metadata").get("annotations"), errors);
    validate_pod_spec(&template.get("spec"), Options::default(), errors);
}

/// Complains about a `PodSpec`.
pub fn validate_pod_spec(spec: &Field<'_>, _options: Options, errors: &mut Errors) {
    spec.get("containers").required(errors);
}
