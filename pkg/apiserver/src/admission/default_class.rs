//! The class that is taken where none is named: of those marked as the default, the newest.

use super::{Request, mentions};
use api::{Value, object};

/// What every annotation that marks a class as the default ends with.
const MARK: &str = "/is-default-class";

/// The name of the default class, if there is one.
pub(super) fn find(
    request: &Request<'_>,
    group: &str,
    plural: &str,
    is_default: fn(&Value) -> bool,
) -> Option<String> {
    let classes = request.server.registry.built_in(group, plural);
    if classes.cache.is_empty() {
        return None;
    }
    let marked = classes.objects(None).into_iter().filter(|class| mentions(class.as_json(), MARK));
    choose(marked.filter_map(|class| serde_json::from_slice(class.as_json()).ok()).filter(is_default))
}

/// The newest; of several that are, the first by name.
fn choose(classes: impl Iterator<Item = Value>) -> Option<String> {
    let made = |class: &Value| object::meta(class, "creationTimestamp").unwrap_or_default().to_owned();
    let newest =
        classes.min_by(|a, b| made(b).cmp(&made(a)).then_with(|| object::name(a).cmp(object::name(b))));
    newest.map(|class| object::name(&class).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_is_chosen_then_the_first_by_name() {
        let class = |(name, second): &(&str, u32)| json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}});
        let check = |classes: &[(&str, u32)], expected: Option<&str>| {
            assert_eq!(choose(classes.iter().map(class)).as_deref(), expected, "{classes:?}");
        };
        check(&[], None);
        check(&[("a", 1)], Some("a"));
        check(&[("a", 1), ("b", 2), ("c", 0)], Some("b"));
        check(&[("c", 3), ("b", 3), ("a", 1)], Some("b"));
    }
}
