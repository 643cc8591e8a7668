//! Whoever has a policy look at parameters may read them.

use super::Request;
use super::question::GROUP;
use crate::auth::{Attributes, User};
use crate::error::{ApiError, Result};
use api::field::Reason;
use api::{FieldError, Value};

pub(super) fn validate(request: &Request<'_>, new: &Value) -> Result<()> {
    if request.kind.group != GROUP {
        return Ok(());
    }
    let is_policy = request.is_for(GROUP, "validatingadmissionpolicies");
    if !is_policy && !request.is_for(GROUP, "validatingadmissionpolicybindings") {
        return Ok(());
    }
    let member = if is_policy { "paramKind" } else { "paramRef" };
    let spec = &new["spec"];
    let is_as_before = |name: &str| request.old.is_some_and(|old| old["spec"][name] == spec[name]);
    if !spec[member].is_object() || is_as_before(member) && (is_policy || is_as_before("policyName")) {
        return Ok(());
    }
    let denied = if is_policy { of_policy(request, spec) } else { of_binding(request, spec) };
    denied.map_err(|detail| {
        let path = format!("spec.{member}");
        let error = FieldError { reason: Reason::Forbidden, path, value: None, detail };
        ApiError::invalid(request.kind, &request.name, &[error])
    })
}

fn of_policy(request: &Request<'_>, spec: &Value) -> Result<(), String> {
    let kind = ParamKind::of(request, spec);
    if kind.allows(&request.context.user, "get", "*", "*") {
        return Ok(());
    }
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(&request.context.user),
        text(&spec["paramKind"], "kind"),
        text(&spec["paramKind"], "apiVersion")
    ))
}

fn of_binding(request: &Request<'_>, spec: &Value) -> Result<(), String> {
    let (name, params) = (text(spec, "policyName"), &spec["paramRef"]);
    let policy = request.server.lookup(GROUP, "validatingadmissionpolicies", "", name);
    let kind = ParamKind::of(request, policy.as_ref().map_or(&Value::Null, |policy| &policy["spec"]));
    let verb = if text(params, "name").is_empty() { "list" } else { "get" };
    if kind.allows(&request.context.user, verb, text(params, "namespace"), text(params, "name")) {
        return Ok(());
    }
    let user = shown(&request.context.user);
    let anything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Err(match policy.map(|policy| policy["spec"]["paramKind"].clone()) {
        None => format!("unable to get policy {name} {anything}"),
        Some(named) if named.is_object() && kind.resource == "*" => {
            let (version, kind) = (text(&named, "apiVersion"), text(&named, "kind"));
            format!("unable to resolve paramKind &{{{version} {kind}}} {anything}")
        }
        Some(_) => {
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        }
    })
}

/// The resource that parameters are of; `*` where that is not known.
struct ParamKind<'a> {
    request: &'a Request<'a>,
    group: String,
    version: String,
    resource: String,
}

impl<'a> ParamKind<'a> {
    fn of(request: &'a Request<'a>, spec: &Value) -> ParamKind<'a> {
        let unknown = || "*".to_owned();
        let named = &spec["paramKind"];
        if !named.is_object() {
            return ParamKind { request, group: unknown(), version: unknown(), resource: unknown() };
        }
        let (api_version, kind) = (text(named, "apiVersion"), text(named, "kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resources = request.server.registry.resources();
        let mut kinds = resources.kinds().iter();
        let found = kinds.find(|found| found.kind == kind && found.api_version() == api_version);
        ParamKind {
            request,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: found.map_or_else(unknown, |found| found.plural.clone()),
        }
    }

    fn allows(&self, user: &User, verb: &str, namespace: &str, name: &str) -> bool {
        let wanted = Attributes {
            version: &self.version,
            namespace,
            name,
            ..Attributes::resource(user, verb, &self.group, &self.resource)
        };
        self.request.server.auth.authorize(&wanted).allowed
    }
}

/// A user as Go shows one.
fn shown(user: &User) -> String {
    format!("&{{{} {} [{}] map[]}}", user.name, user.uid, user.groups.join(" "))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
