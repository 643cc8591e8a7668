//! Getting and listing.

use super::*;

/// `get` and `list` see what was written, as it is served.
pub async fn objects_are_served_with_their_revision(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    let revision = bed.put("a/x", "app=web", "n1").await;
    let object = bed.pods.get("a", "x").unwrap();
    let json: Value = serde_json::from_slice(&object.json()).unwrap();
    assert_eq!(json["metadata"]["resourceVersion"], revision.to_string());
    assert_eq!(json["spec"]["nodeName"], "n1");
    assert_eq!((object.namespace(), object.name(), object.revision()), ("a", "x", revision));
    assert_eq!(object.labels().get("app"), Some("web"));
    assert!(bed.pods.get("a", "y").is_none());
    assert!(bed.pods.get("", "a/x").is_none());
    bed.delete("a/x").await;
    assert!(bed.pods.get("a", "x").is_none());
}

/// Scopes leave out what they should, however they are answered: point, index, range or all.
pub async fn lists_are_of_their_scope(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    for (path, labels, node) in [
        ("a/x", "app=web", "n1"),
        ("a/y", "app=db", "n2"),
        ("a-b/x", "app=web", "n2"),
        ("b/x", "", "n1"),
        ("b/z", "app=db", ""),
    ] {
        bed.put(path, labels, node).await;
    }
    let check = |text: &str, expected: &[&str]| assert_eq!(bed.paths(&scope(text), None), expected, "{text}");
    check("", &["a-b/x", "a/x", "a/y", "b/x", "b/z"]);
    check("a", &["a/x", "a/y"]);
    check("none", &[]);
    check("?app=web", &["a-b/x", "a/x"]);
    check("b?!app", &["b/x"]);
    check("??metadata.name=x", &["a-b/x", "a/x", "b/x"]);
    check("a??metadata.name=x", &["a/x"]);
    check("??metadata.name=x,metadata.namespace=b", &["b/x"]);
    check("a??metadata.namespace=b", &[]);
    check("??spec.nodeName=n1", &["a/x", "b/x"]);
    check("??spec.nodeName=", &["b/z"]);
    check("b??spec.nodeName!=n1", &["b/z"]);
    check("b??spec.nodeName=n1", &["b/x"]);
    check("??status.phase=", &["a-b/x", "a/x", "a/y", "b/x", "b/z"]);
    bed.put("b/x", "", "n2").await;
    bed.delete("a/x").await;
    check("??spec.nodeName=n1", &[]);
    check("??spec.nodeName=n2", &["a-b/x", "a/y", "b/x"]);
}

/// Pages follow one another, and can all be of the first one's revision.
pub async fn lists_come_in_pages_of_one_revision(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    for name in ["a", "b", "c", "d", "e"] {
        bed.put(&format!("n/{name}"), "", "").await;
    }
    let first = bed.pods.list(&scope("n"), Page { limit: 2, ..Page::default() }).unwrap();
    assert_eq!((first.objects.len(), first.remaining, first.next.as_deref()), (2, Some(3), Some("n/b")));
    bed.delete("n/c").await;
    bed.put("n/bb", "", "").await;
    let page = |after: &str| {
        let page = Page { after, limit: 2, revision: Some(first.revision) };
        let listing = bed.pods.list(&scope("n"), page).unwrap();
        let paths: Vec<String> = listing.objects.iter().map(|o| o.path().to_string()).collect();
        (paths.join(" "), listing.remaining, listing.next.is_some(), listing.revision)
    };
    assert_eq!(page("n/b"), ("n/c n/d".into(), Some(1), true, first.revision));
    assert_eq!(page("n/d"), ("n/e".into(), None, false, first.revision));
    assert_eq!(page("n/e"), (String::new(), None, false, first.revision));
    let selected = bed.pods.list(&scope("n?!x"), Page { limit: 1, ..Page::default() }).unwrap();
    assert_eq!((selected.remaining, selected.next.as_deref()), (None, Some("n/a")));
}
