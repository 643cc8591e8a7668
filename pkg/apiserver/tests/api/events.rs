//! Events, which two groups serve: the same objects under other names.

use crate::names;
use serde_json::{Value, json};
use testing::TestServer;

const CORE: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn event(name: &str, controller: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": controller, "reportingInstance": "i",
        "action": "Do", "reason": "Test", "type": "Normal", "note": "n",
        "regarding": {
            "kind": "Pod", "namespace": "default", "name": format!("of-{name}"), "uid": format!("uid-{name}"),
            "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "spec",
        },
    })
}

#[tokio::test]
async fn events_are_selected_by_the_names_of_their_group() {
    let server = TestServer::start().await;
    let http = server.http();
    for (name, controller) in [("a", "example.com/one"), ("b", "example.com/two")] {
        http.post(EVENTS, &event(name, controller)).await.expect(201);
    }
    let old = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "reason": "Old", "type": "Warning",
        "involvedObject": {"kind": "Node", "namespace": "default", "name": "n"}, "source": {"component": "three"},
    });
    http.post(CORE, &old).await.expect(201);
    let selected = async |path: &str, selector: &str| -> Vec<String> {
        let list = http.get(&format!("{path}?fieldSelector={selector}")).await.expect(200);
        names(&list).into_iter().map(str::to_owned).collect()
    };
    for (field, value) in [
        ("kind", "Pod"),
        ("namespace", "default"),
        ("name", "of-a"),
        ("uid", "uid-a"),
        ("apiVersion", "v1"),
        ("resourceVersion", "7"),
        ("fieldPath", "spec"),
    ] {
        let core = selected(CORE, &format!("involvedObject.{field}={value}")).await;
        assert!(core.contains(&"a".to_owned()), "{field}: {core:?}");
        assert_eq!(selected(EVENTS, &format!("regarding.{field}={value}")).await, core, "{field}");
    }
    assert_eq!(selected(EVENTS, "reportingController=example.com/one").await, ["a"]);
    assert_eq!(selected(EVENTS, "reportingController!=example.com/one").await, ["b", "c"]);
    assert_eq!(selected(CORE, "reportingComponent=example.com/two").await, ["b"]);
    assert_eq!(
        selected(CORE, "reportingComponent=three").await,
        [""; 0],
        "only source falls back on the other"
    );
    assert_eq!(selected(CORE, "source=example.com/one").await, ["a"]);
    assert_eq!(selected(CORE, "source=three").await, ["c"]);
    for path in [CORE, EVENTS] {
        assert_eq!(selected(path, "reason=Test,type=Normal").await, ["a", "b"]);
        assert_eq!(selected(path, "metadata.name=b").await, ["b"]);
    }
    for (path, field) in [
        (CORE, "regarding.name"),
        (CORE, "reportingController"),
        (EVENTS, "involvedObject.name"),
        (EVENTS, "source"),
    ] {
        let refused = http.get(&format!("{path}?fieldSelector={field}=x")).await;
        assert_eq!((refused.code, refused.message()), (400, format!("field label not supported: {field}")));
    }
    let mut watch =
        http.watch(&format!("{EVENTS}?watch=true&fieldSelector=reportingController=example.com/two")).await;
    assert_eq!(watch.next().await.unwrap().object["reportingController"], "example.com/two");
}
