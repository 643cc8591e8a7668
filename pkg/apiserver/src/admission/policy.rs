//! Validating admission policies: what requests must be like, wherever a binding says so.
//!
//! ```text
//! policies, bindings (caches) ──> understood once ──> which match ──> parameters (caches) ──> denials ──> refusal, warnings
//! ```
//!
//! Where there is no policy, or no binding, nothing is done. What is wrong with a policy or its parameters refuses the
//! request unless the policy ignores failures.

use super::matching::Matching;
use super::question::{GROUP, Question, concerns_policies};
use super::understood::Understood;
use crate::error::{ApiError, Result};
use crate::registry::{Registry, Resource};
use crate::storage::parse;
use api::admission::{Conditions, Denial, Program};
use api::selector::LabelSelector;
use api::{Kind, Value, object};
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;

/// The policies and their bindings.
pub struct Policies {
    policies: Understood<Policy>,
    bindings: Understood<Binding>,
}

struct Policy {
    name: String,
    matching: Matching,
    /// apiVersion and kind of its parameters, where it has any.
    param_kind: Option<(String, String)>,
    conditions: Conditions,
    program: Program,
    ignores_failure: bool,
}

struct Binding {
    name: String,
    policy: String,
    /// What it is about; everything if it does not say.
    matching: Option<Matching>,
    params: Option<ParamRef>,
    warns: bool,
    denies: bool,
}

struct ParamRef {
    /// Empty where a selector is given.
    name: String,
    /// Empty where it is that of the request.
    namespace: String,
    selector: LabelSelector,
    are_required: bool,
}

/// What a policy sees of a request.
struct Case<'a> {
    object: &'a Value,
    old_object: &'a Value,
    request: &'a Value,
    namespace: &'a Value,
}

impl Policies {
    /// Those in the caches.
    pub fn new(registry: &Registry) -> Policies {
        Policies {
            policies: Understood::new(registry.built_in(GROUP, "validatingadmissionpolicies"), Policy::new),
            bindings: Understood::new(
                registry.built_in(GROUP, "validatingadmissionpolicybindings"),
                Binding::new,
            ),
        }
    }

    /// Whether there is nothing to heed.
    pub fn are_none(&self) -> bool {
        self.policies.is_empty() || self.bindings.is_empty()
    }

    /// Refuses what a policy denies, and warns of what it warns of. The first denial is the one that is told.
    pub async fn approve(
        &self,
        question: &Question<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<()> {
        if self.are_none() || !concerns_policies(question.kind, question.context) {
            return Ok(());
        }
        let bindings = self.bindings.all();
        let mut refusal = None;
        for policy in self.policies.all().iter() {
            let is_bound = |binding: &&Arc<Binding>| binding.policy == policy.name;
            let bound: Vec<Arc<Binding>> = bindings.iter().filter(is_bound).cloned().collect();
            if !bound.is_empty() {
                let refused = policy.approve(&bound, question, new, old).await;
                refusal = refusal.or(refused);
            }
        }
        refusal.map_or(Ok(()), Err)
    }
}

impl Policy {
    fn new(policy: &Value) -> Policy {
        let spec = &policy["spec"];
        let param_kind = spec.get("paramKind").map(|kind| (text(kind, "apiVersion"), text(kind, "kind")));
        Policy {
            name: object::name(policy).to_owned(),
            matching: Matching::of_resources(&spec["matchConstraints"]),
            param_kind,
            conditions: Conditions::compile(spec),
            program: Program::compile(spec),
            ignores_failure: spec["failurePolicy"] == "Ignore",
        }
    }

    /// Why a request is refused, if it is.
    async fn approve(
        &self,
        bindings: &[Arc<Binding>],
        question: &Question<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Option<ApiError> {
        let applies = match self.matching.applies(question, new, old) {
            Ok(seen_as) => seen_as.map(|seen_as| Ok((seen_as, self.param_resource(question)?))),
            Err(error) => Some(Err(error.message)),
        };
        let (seen_as, params_of) = match applies? {
            Ok(found) => found,
            Err(why) => return self.misconfigured(question, None, &why),
        };
        let (object, old_object) = (question.seen(&seen_as, new), question.seen(&seen_as, old));
        let request = question.request(&seen_as);
        let namespace = match namespace_object(question) {
            Ok(namespace) => namespace,
            Err(error) => return Some(error),
        };
        let case =
            Case { object: &object, old_object: &old_object, request: &request, namespace: &namespace };
        let mut refusal = None;
        for binding in bindings {
            let applies = match &binding.matching {
                Some(matching) => matching.applies(question, new, old).map(|kind| kind.is_some()),
                None => Ok(true),
            };
            let params = match applies {
                Ok(false) => continue,
                Ok(true) => params(question, params_of.as_deref(), binding.params.as_ref()).await,
                Err(error) => Err(error.message),
            };
            match params {
                Err(why) => {
                    refusal = refusal.or_else(|| self.misconfigured(question, Some(&**binding), &why))
                }
                Ok(params) => {
                    for denial in params.iter().flat_map(|params| self.denials(&case, params)) {
                        let refused = self.outcome(binding, question, denial);
                        refusal = refusal.or(refused);
                    }
                }
            }
        }
        refusal
    }

    /// The refusal for what is wrong with the policy, or a binding.
    fn misconfigured(
        &self,
        question: &Question<'_>,
        binding: Option<&Binding>,
        why: &str,
    ) -> Option<ApiError> {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        (!self.ignores_failure).then(|| self.refusal(question, binding, &message, ""))
    }

    /// What stands against the request with these parameters.
    fn denials(&self, case: &Case<'_>, params: &Value) -> Vec<Denial> {
        let given = |namespace| {
            [
                ("object", case.object),
                ("oldObject", case.old_object),
                ("request", case.request),
                ("namespaceObject", namespace),
                ("params", params),
            ]
        };
        if !self.conditions.are_none() {
            // Conditions see no namespace, as upstream's do not.
            match self.conditions.hold(&given(&Value::Null)) {
                Ok(true) => {}
                Ok(false) => return Vec::new(),
                Err(message) => {
                    return vec![Denial { message, reason: String::new(), is_final: false }];
                }
            }
        }
        self.program.evaluate(&given(case.namespace))
    }

    /// What comes of a denial, as the binding says.
    fn outcome(&self, binding: &Binding, question: &Question<'_>, denial: Denial) -> Option<ApiError> {
        if binding.warns && !denial.is_final {
            question.context.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                self.name, binding.name, denial.message
            ));
        }
        (binding.denies || denial.is_final)
            .then(|| self.refusal(question, Some(binding), &denial.message, &denial.reason))
    }

    fn refusal(
        &self,
        question: &Question<'_>,
        binding: Option<&Binding>,
        message: &str,
        reason: &str,
    ) -> ApiError {
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {message}", self.name);
        let mut error = ApiError::forbidden(question.kind, question.name, &message);
        let reason = if reason.is_empty() { "Invalid" } else { reason };
        error.code = match reason {
            "Forbidden" => StatusCode::FORBIDDEN,
            "RequestEntityTooLarge" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        error.reason = reason.to_owned().into();
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{ "message": message }]);
        }
        error
    }

    /// Where its parameters are, if it has any; or why they cannot be found.
    fn param_resource(&self, question: &Question<'_>) -> Result<Option<Arc<Resource>>, String> {
        let Some((api_version, kind)) = &self.param_kind else { return Ok(None) };
        let resources = question.server.registry.resources();
        let is_it = |found: &&Arc<Resource>| {
            let found: &Kind = &found.kind;
            found.kind == *kind && found.api_version() == *api_version
        };
        let found = resources.iter().find(is_it).cloned();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let missing =
            || format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'");
        found.map(Some).ok_or_else(missing)
    }
}

impl Binding {
    fn new(binding: &Value) -> Binding {
        let spec = &binding["spec"];
        let acts = |action: &str| {
            spec["validationActions"].as_array().is_some_and(|all| all.contains(&action.into()))
        };
        let params = spec.get("paramRef").map(|reference| ParamRef {
            name: text(reference, "name"),
            namespace: text(reference, "namespace"),
            // It is validated when it is written.
            selector: LabelSelector::from_json(&reference["selector"])
                .unwrap_or_else(|_| LabelSelector::nothing()),
            are_required: reference["parameterNotFoundAction"] == "Deny",
        });
        Binding {
            name: object::name(binding).to_owned(),
            policy: text(spec, "policyName"),
            matching: spec.get("matchResources").map(Matching::of_resources),
            params,
            warns: acts("Warn"),
            denies: acts("Deny"),
        }
    }
}

/// The parameters of a binding: one evaluation for each. Where there is nothing to look for, that is one without.
async fn params(
    question: &Question<'_>,
    resource: Option<&Resource>,
    reference: Option<&ParamRef>,
) -> Result<Vec<Value>, String> {
    let (Some(resource), Some(reference)) = (resource, reference) else { return Ok(vec![Value::Null]) };
    let is_namespaced = resource.kind.namespaced();
    let namespace = match (is_namespaced, reference.namespace.as_str()) {
        (true, "") => question.namespace(),
        (_, given) => given,
    };
    if is_namespaced && namespace.is_empty() {
        let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
        return Err(why.to_owned());
    }
    if !is_namespaced && !namespace.is_empty() {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
    }
    let found = if reference.name.is_empty() {
        let mut all = resource.objects(is_namespaced.then_some(namespace));
        all.retain(|object| reference.selector.matches(object.labels()));
        all
    } else {
        resource.cache.get(namespace, &reference.name).into_iter().collect()
    };
    if found.is_empty() && reference.are_required {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let found: Result<Vec<Value>> = found.iter().map(|object| parse(object.as_json())).collect();
    let in_version = async { resource.all_in_version(question.server, found?).await };
    in_version.await.map_err(|error: ApiError| error.message)
}

/// The namespace of the object, as expressions see it: what is in none has none, and neither has a namespace itself.
fn namespace_object(question: &Question<'_>) -> Result<Value> {
    if question.is_namespace() || question.namespace.is_empty() {
        return Ok(Value::Null);
    }
    let server = question.server;
    let found = server.lookup("", "namespaces", "", question.namespace);
    let mut found =
        found.ok_or_else(|| ApiError::not_found(&server.kind("", "namespaces"), question.namespace))?;
    let metadata = object::object_mut(&mut found, "metadata");
    metadata.retain(|name, _| !matches!(name.as_str(), "managedFields" | "ownerReferences"));
    Ok(found)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
