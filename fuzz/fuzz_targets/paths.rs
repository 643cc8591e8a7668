//! Any method, path and query. Whatever is understood names what it names in one way only: a name that is permitted is what
//! is selected, and what has no namespaces is below none.
#![no_main]

use api::kind::Verbs;
use apiserver::request::{PathScope, Query, RequestInfo, decoded_path};
use apiserver::scope;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str, &str)| {
    let (method, raw, query) = input;
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"];
    let method = methods[usize::from(method) % methods.len()].parse().expect("a method");
    let (Ok(path), Ok(query)) = (decoded_path(raw), Query::parse(Some(query))) else { return };
    let Ok(info) = RequestInfo::parse(&method, &path, &query) else { return };
    let Some(target) = &info.target else { return };
    assert!(raw.ends_with(target.rest(raw)));
    assert!(!target.resource.contains('/') && !target.namespace.contains('/') && !target.name.contains('/'));
    if info.verb == "watch" || info.verb == "list" {
        let selected = info.fields.pinned("metadata.name");
        assert!(target.name.is_empty() || selected == Some(&*target.name));
    }
    for kind in api::kinds::all().iter().filter(|kind| kind.group == target.group && kind.plural == target.resource) {
        if scope::check(kind, target, &info, &method).is_err() {
            continue;
        }
        match target.scope {
            PathScope::Cluster => assert!(!kind.namespaced() || (target.is_collection && kind.verbs == Verbs::All)),
            PathScope::Namespace => assert!(kind.namespaced()),
            PathScope::Itself => assert!(kind.plural == "namespaces" && kind.group.is_empty()),
        }
    }
});
