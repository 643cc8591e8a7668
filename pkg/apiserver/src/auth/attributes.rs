//! What somebody wants to do, as far as deciding about it needs.

use super::User;
use api::selector::Term;

/// A request, seen by those who decide. Borrowed: it is made and looked at with every request.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a User,
    /// What: `get`, `list`, `create`, …; of other paths the HTTP method in lower case.
    pub verb: &'a str,
    /// The API group, empty for core.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The namespace, empty for all of them or none.
    pub namespace: &'a str,
    /// The object's name; of a list, the name that a field selector `metadata.name=` restricts it to.
    pub name: &'a str,
    /// What the field selector asks for.
    pub field_selector: &'a [Term],
    /// The path, of what is no resource.
    pub path: &'a str,
    /// Whether a resource is asked for.
    pub is_resource: bool,
}

impl<'a> Attributes<'a> {
    /// About a resource; the rest is filled in by `..`.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Attributes { verb, group, resource, is_resource: true, ..Self::non_resource(user, verb, "") }
    }

    /// About a path that is no resource.
    pub fn non_resource(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Attributes {
            user,
            verb,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            field_selector: &[],
            path,
            is_resource: false,
        }
    }

    /// Why it is refused, in upstream's words: what comes after `… is forbidden: `.
    pub fn denial(&self, reason: &str) -> String {
        let (user, verb) = (&self.user.name, self.verb);
        let mut text = if !self.is_resource {
            format!("User {user:?} cannot {verb} path {:?}", self.path)
        } else {
            let resource = match self.subresource {
                "" => self.resource.to_owned(),
                subresource => format!("{}/{subresource}", self.resource),
            };
            let scope = match self.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!("User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}", self.group)
        };
        if !reason.is_empty() {
            text.push_str(": ");
            text.push_str(reason);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_upstreams() {
        let user = User { name: "jane".into(), ..User::default() };
        let list = Attributes::resource(&user, "list", "apps", "deployments");
        assert_eq!(
            list.denial(""),
            r#"User "jane" cannot list resource "deployments" in API group "apps" at the cluster scope"#
        );
        assert_eq!(
            Attributes { namespace: "n", subresource: "scale", ..list }.denial("because"),
            r#"User "jane" cannot list resource "deployments/scale" in API group "apps" in the namespace "n": because"#
        );
        assert_eq!(
            Attributes::non_resource(&user, "get", "/metrics").denial(""),
            r#"User "jane" cannot get path "/metrics""#
        );
    }
}
