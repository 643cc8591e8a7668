//! ValidatingAdmissionPolicy: what requests must be like, in expressions.

use super::matching;
use crate::admission::Compiler;
use crate::crd::typing::RESERVED;
use crate::field::{Errors, Field, Reason};
use crate::jsonpath::JsonPath;
use crate::kind::{Kind, column};
use crate::object::{object_mut, set_default};
use crate::{meta, names, object, printing};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::Value;
use std::collections::HashSet;

const MOST_ANNOTATIONS: usize = 20;
/// The longest expression of an annotation, in bytes.
const LONGEST_ANNOTATION: usize = 5 * 1024;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        categories: vec!["api-extensions".into()],
        columns: vec![
            printing::name_column(),
            column("Validations", "integer", |policy, _| {
                printing::items(policy, "spec.validations").len().into()
            }),
            column("ParamKind", "string", |policy, _| param_kind(policy).into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_status: |new, _, errors| validate_status(&new.get("status"), errors),
        ..Kind::new::<ValidatingAdmissionPolicy>().with_status().with_generation()
    }
}

fn param_kind(policy: &Value) -> String {
    match printing::at(policy, "spec.paramKind") {
        Some(kind) => format!("{}/{}", printing::text(kind, "apiVersion"), printing::text(kind, "kind")),
        None => "<unset>".to_owned(),
    }
}

fn default(policy: &mut Value) {
    object_mut(policy, "spec");
    set_default(&mut policy["spec"], "failurePolicy", "Fail");
    matching::default_resources(policy, "matchConstraints");
}

fn validate(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    spec.get("failurePolicy").required_one_of(&["Fail", "Ignore"], errors);
    let param_kind = spec.get("paramKind");
    let has_params = param_kind.exists();
    if has_params {
        validate_param_kind(&param_kind, errors);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.exists() {
        matching::validate_resources(&constraints, errors);
        constraints.get("resourceRules").required(errors);
    } else {
        constraints.complain(Reason::Required, "", errors);
    }
    matching::validate_conditions(&spec.get("matchConditions"), has_params, errors);
    let variables = spec.get("variables");
    let mut compiler = Compiler::new(has_params, !variables.is_empty());
    validate_variables(&variables, &mut compiler, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        validations.required_because(detail, errors);
        annotations.required_because(detail, errors);
    }
    for validation in validations.items() {
        validate_validation(&validation, &mut compiler, errors);
    }
    validate_annotations(&annotations, object::name(policy.value()), &mut compiler, errors);
}

fn validate_param_kind(param_kind: &Field<'_>, errors: &mut Errors) {
    let (version, kind) = (param_kind.get("apiVersion"), param_kind.get("kind"));
    if version.required(errors) {
        let text = if version.text() == "/" { "" } else { version.text() };
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [_, _, _, ..] => version.invalid(format!("unexpected GroupVersion string: {text}"), errors),
            parts => {
                let group = parts.iter().rev().nth(1).copied().unwrap_or_default();
                let faults = names::is_dns1123_subdomain(group);
                if !group.is_empty() && !faults.is_empty() {
                    version.invalid_value(group, faults.join(","), errors);
                }
                let last = parts.last().copied().unwrap_or_default();
                let faults = names::is_dns1035_label(last);
                if last.is_empty() {
                    version.invalid("version must be specified", errors);
                } else if !faults.is_empty() {
                    version.invalid_value(last, faults.join(","), errors);
                }
            }
        }
    }
    if kind.required(errors) {
        let faults = names::is_dns1035_label(&kind.text().to_lowercase());
        if !faults.is_empty() {
            let faults = faults.join(",");
            kind.invalid(format!("may have mixed case, but should otherwise match: {faults}"), errors);
        }
    }
}

fn validate_variables(variables: &Field<'_>, compiler: &mut Compiler<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for variable in variables.items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            name.complain(Reason::Required, "name is not specified", errors);
        } else if !names::is_c_identifier(name.text()).is_empty() || RESERVED.contains(&name.text()) {
            name.invalid("must be a valid CEL identifier", errors);
        } else if !seen.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        if expression.text().trim().is_empty() {
            expression.complain(Reason::Required, "expression is not specified", errors);
        } else if let Err(why) = compiler.variable(name.text(), expression.text()) {
            expression.invalid(why, errors);
        }
    }
}

fn validate_validation(validation: &Field<'_>, compiler: &mut Compiler<'_>, errors: &mut Errors) {
    let (expression, message) = (validation.get("expression"), validation.get("message"));
    let made = validation.get("messageExpression");
    if expression.text().trim().is_empty() {
        expression.complain(Reason::Required, "expression is not specified", errors);
    } else if let Err(why) = compiler.expression(expression.text(), &["bool"]) {
        expression.invalid(why, errors);
    }
    if !made.text().is_empty() && made.text().trim().is_empty() {
        made.invalid("must be non-empty if specified", errors);
    } else if !made.text().is_empty()
        && let Err(why) = compiler.expression(made.text(), &["string"])
    {
        made.invalid(why, errors);
    }
    if !message.text().is_empty() && message.text().trim().is_empty() {
        message.invalid("must be non-empty if specified", errors);
    } else if message.text().trim().contains(['\n', '\r']) {
        message.invalid("must not contain line breaks", errors);
    }
    validation.get("reason").one_of(&["Forbidden", "Invalid", "RequestEntityTooLarge"], errors);
}

fn validate_annotations(
    annotations: &Field<'_>,
    policy: &str,
    compiler: &mut Compiler<'_>,
    errors: &mut Errors,
) {
    if annotations.len() > MOST_ANNOTATIONS {
        let detail = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        annotations.invalid(detail, errors);
    }
    let mut seen = HashSet::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
        if policy.is_empty() {
            key.invalid_value(key.text(), "requires metadata.name be non-empty", errors);
        } else {
            let qualified = format!("{policy}/{}", key.text());
            for fault in names::is_qualified_name(&qualified) {
                key.invalid_value(qualified.as_str(), fault, errors);
            }
        }
        let text = value.text().trim();
        if text.is_empty() {
            value.complain(Reason::Required, "valueExpression is not specified", errors);
        } else if text.len() > LONGEST_ANNOTATION {
            let detail = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            value.complain(Reason::Required, detail, errors);
        } else if let Err(why) = compiler.expression(text, &["string", "null_type"]) {
            value.invalid(why, errors);
        }
        if !seen.insert(key.text().to_owned()) {
            key.duplicate(errors);
        }
    }
}

fn validate_status(status: &Field<'_>, errors: &mut Errors) {
    for warning in status.get("typeChecking").get("expressionWarnings").items() {
        warning.get("warning").required(errors);
        let place = warning.get("fieldRef");
        if place.text().trim().is_empty() {
            place.complain(Reason::Required, "", errors);
        } else if let Err(why) = JsonPath::parse(&format!(".{}", place.text().trim().trim_start_matches('.')))
        {
            place.invalid_value(place.text().trim(), format!("invalid JSONPath: {why}"), errors);
        }
    }
    meta::validate_conditions(&status.get("conditions"), errors);
}
