//! Custom resources: defined, served, changed and gone.

use crate::names;
use serde_json::{Value, json};
use testing::{Engine, Http, TestServer, eventually};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object", "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "replicas": {"type": "integer"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            },
            "status": {
                "type": "object",
                "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}},
            },
        },
    });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
            },
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn define(http: &Http) {
    http.post(DEFINITIONS, &definition()).await.expect(201);
    eventually("the definition is established and served", async || {
        let definition = http.get(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        let served = http.get(WIDGETS).await.code == 200;
        (is("Established") && is("NamesAccepted") && served).then_some(())
    })
    .await;
}

#[tokio::test]
async fn custom_objects_are_objects_like_others() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        http.get(WIDGETS).await.expect(404);
        define(&http).await;
        let mut object = widget("w", 3);
        object["spec"]["unknown"] = 1.into();
        object["spec"]["free"] = json!({"any": ["thing", 1]});
        object["status"] = json!({"phase": "Done"});
        let made = http.post(WIDGETS, &object).await;
        let warning = made.headers.get("warning").map(|w| w.to_str().unwrap().to_owned()).unwrap_or_default();
        assert!(warning.contains("unknown field \\\"spec.unknown\\\""), "{warning}");
        let made = made.expect(201);
        assert_eq!(made["spec"], json!({"size": 3, "color": "red", "free": {"any": ["thing", 1]}}));
        assert!(made.get("status").is_none() && made["metadata"]["generation"] == 1, "{made}");

        let path = format!("{WIDGETS}/w");
        for (patch, field) in [
            (json!({"spec": {"size": 11}}), "spec.size"),
            (json!({"spec": {"size": null}}), "spec.size"),
            (json!({"spec": {"color": "green"}}), "spec.color"),
            (json!({"spec": {"size": "big"}}), "spec.size"),
        ] {
            let refused = http.patch(&path, "merge", &patch).await;
            assert_eq!(refused.code, 422, "{patch}: {}", refused.text());
            let status = refused.json();
            let causes = status["details"]["causes"].as_array().unwrap();
            assert!(causes.iter().any(|cause| cause["field"] == field), "{patch}: {causes:?}");
        }
        let strict = http.post(&format!("{WIDGETS}?fieldValidation=Strict"), &object).await;
        assert_eq!(strict.code, 400, "{}", strict.text());
        let strategic = http.patch(&path, "strategic-merge", &json!({"spec": {"size": 4}})).await;
        assert_eq!(strategic.code, 415, "{}", strategic.text());
        let changed =
            http.patch(&path, "merge", &json!({"spec": {"size": 4}, "status": {"phase": "No"}})).await;
        let changed = changed.expect(200);
        assert_eq!((&changed["metadata"]["generation"], changed.get("status")), (&json!(2), None));
        let status = http
            .patch(
                &format!("{path}/status"),
                "merge",
                &json!({"status": {"phase": "Yes"}, "spec": {"size": 9}}),
            )
            .await;
        let status = status.expect(200);
        assert_eq!((&status["status"]["phase"], &status["spec"]["size"]), (&json!("Yes"), &json!(4)));
        assert_eq!(status["metadata"]["generation"], 2);
        let scaled = http
            .patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 7}}))
            .await
            .expect(200);
        assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(7)));
        assert_eq!(http.get(&path).await.expect(200)["spec"]["replicas"], 7);
        let applied = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 2}});
        http.patch(&format!("{WIDGETS}/a?fieldManager=m"), "apply", &applied).await.expect(201);

        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let table = http.send("GET", &path, &table, "").await.expect(200);
        let columns: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(columns, ["Name", "Size", "Color"]);
        assert_eq!(table["rows"][0]["cells"], json!(["w", 4, "red"]));
    }
}

#[tokio::test]
async fn all_versions_show_the_same_objects() {
    let server = TestServer::start().await;
    let http = server.http();
    define(&http).await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    http.post(WIDGETS, &widget("w", 3)).await.expect(201);
    let other = http.get(&format!("{beta}/w")).await.expect(200);
    assert_eq!(other["apiVersion"], "example.com/v1beta1");
    let list = http.get(&beta).await.expect(200);
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
    let mut changed = other;
    changed["spec"]["size"] = 5.into();
    http.put(&format!("{beta}/w"), &changed).await.expect(200);
    let read = http.get(&format!("{WIDGETS}/w")).await.expect(200);
    assert_eq!((&read["apiVersion"], &read["spec"]["size"]), (&json!("example.com/v1"), &json!(5)));
    let mut watch = http.watch(&format!("{beta}?watch=true&resourceVersion=0")).await;
    assert_eq!(watch.next().await.unwrap().object["apiVersion"], "example.com/v1beta1");
}

#[tokio::test]
async fn a_definition_goes_with_its_objects_and_paths() {
    let server = TestServer::start().await;
    let http = server.http();
    define(&http).await;
    for name in ["a", "b"] {
        http.post(WIDGETS, &widget(name, 1)).await.expect(201);
    }
    let mut watch = http.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!((watch.next().await.unwrap().name(), watch.next().await.unwrap().name()), ("a", "b"));
    http.patch(&format!("{WIDGETS}/a"), "merge", &json!({"spec": {"size": 2}})).await.expect(200);
    assert_eq!(watch.next().await.unwrap().kind, "MODIFIED");

    let discovered = http.get("/apis/example.com/v1").await.expect(200);
    let resources: Vec<&str> =
        discovered["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert!(
        ["widgets", "widgets/status", "widgets/scale"].iter().all(|name| resources.contains(name)),
        "{resources:?}"
    );
    let openapi = http.get("/openapi/v3").await.expect(200);
    assert!(openapi["paths"].get("apis/example.com/v1").is_some());
    let document = http.get("/openapi/v3/apis/example.com/v1").await.expect(200);
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["color"]["default"], "red", "{schema}");

    http.delete(&format!("{DEFINITIONS}/widgets.example.com"), &Value::Null).await.expect(200);
    // Soon its kind takes nothing, or is not there; what it took until then goes with the others.
    let unnamed = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"generateName": "late-"}, "spec": {"size": 1}});
    eventually("the kind takes nothing more", async || {
        matches!(http.post(WIDGETS, &unnamed).await.code, 404 | 405).then_some(())
    })
    .await;
    let left = watch.until("an object goes", |event| event.kind == "DELETED").await;
    assert_eq!(left.name(), "a");
    eventually("the definition and its paths are gone", async || {
        let gone = http.get(&format!("{DEFINITIONS}/widgets.example.com")).await.code == 404;
        (gone && http.get(WIDGETS).await.code == 404 && http.get("/apis/example.com/v1").await.code == 404)
            .then_some(())
    })
    .await;
    assert!(http.get("/openapi/v3").await.expect(200)["paths"].get("apis/example.com/v1").is_none());
    define(&http).await;
    assert_eq!(names(&http.get(WIDGETS).await.expect(200)), [""; 0], "nothing of the old ones is left");
}

#[tokio::test]
async fn definitions_and_their_objects_survive_a_restart() {
    let mut server = TestServer::start().await;
    let http = server.http();
    define(&http).await;
    http.post(WIDGETS, &widget("w", 3)).await.expect(201);
    server.restart().await;
    let http = server.http();
    assert_eq!(http.get(&format!("{WIDGETS}/w")).await.expect(200)["spec"]["size"], 3);
}

#[tokio::test]
async fn a_wrong_definition_is_refused_or_not_accepted() {
    let server = TestServer::start().await;
    let http = server.http();
    let changed = |pointer: &str, value: Value| {
        let mut object = definition();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    for (object, field) in [
        (changed("/metadata/name", "wrong.example.com".into()), "metadata.name"),
        (changed("/spec/scope", "Everywhere".into()), "spec.scope"),
        (changed("/spec/versions/0/storage", false.into()), "spec.versions"),
        (
            changed("/spec/versions/0/schema/openAPIV3Schema/properties/spec/type", "strange".into()),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type",
        ),
    ] {
        let answer = http.post(DEFINITIONS, &object).await;
        assert_eq!(answer.code, 422, "{field}: {}", answer.text());
        assert!(answer.message().contains(field), "{field}: {}", answer.message());
    }
    let mut ruled = definition();
    ruled["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{"rule": "isIP(self.kind)"}]);
    let answer = http.post(&format!("{DEFINITIONS}?dryRun=All"), &ruled).await;
    answer.expect(201);
    let warning = answer.headers.get("warning").expect("a warning").to_str().unwrap();
    assert!(warning.contains("rules are stored but not evaluated"), "{warning}");
    assert!(warning.contains("isIP"), "{warning}");
    define(&http).await;
    let mut rival = definition();
    rival["metadata"]["name"] = "others.example.com".into();
    rival["spec"]["names"] = json!({"plural": "others", "singular": "other", "kind": "Widget"});
    http.post(DEFINITIONS, &rival).await.expect(201);
    eventually("the kind is taken", async || {
        let rival = http.get(&format!("{DEFINITIONS}/others.example.com")).await.expect(200);
        let conditions = rival["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "NamesAccepted" && c["status"] == "False").then_some(())
    })
    .await;
    http.get("/apis/example.com/v1/namespaces/default/others").await.expect(404);
}

#[tokio::test]
async fn rules_are_kept() {
    let server = TestServer::start().await;
    let http = server.http();
    let ruled = |rules: Value| {
        let mut ruled = definition();
        for version in ruled["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
                rules.clone();
        }
        ruled
    };
    let refused = http.post(DEFINITIONS, &ruled(json!([{"rule": "self.length > 1"}]))).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    let message = refused.message();
    assert!(message.contains(&format!("{place}: Invalid value: ")), "{message}");
    assert!(
        message
            .contains("compilation failed: ERROR: <input>:1:5: undefined field 'length'\n | self.length > 1"),
        "{message}"
    );

    let rules = json!([
        {"rule": "!has(self.replicas) || self.replicas <= self.size", "message": "more replicas than the size"},
        {"rule": "self.size >= oldSelf.size", "reason": "FieldValueForbidden", "fieldPath": ".size",
         "messageExpression": "'was ' + string(oldSelf.size)"},
    ]);
    let made = http.post(DEFINITIONS, &ruled(rules)).await;
    assert!(made.headers.get("warning").is_none(), "{:?}", made.headers);
    made.expect(201);
    let mut object = widget("w", 3);
    object["spec"]["replicas"] = 4.into();
    let refused = eventually("the kind is served", async || {
        let answer = http.post(WIDGETS, &object).await;
        (answer.code != 404).then_some(answer)
    })
    .await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    assert_eq!(
        refused.message(),
        "Widget.example.com \"w\" is invalid: spec: Invalid value: more replicas than the size"
    );
    object["spec"]["replicas"] = 2.into();
    http.post(WIDGETS, &object).await.expect(201);
    let path = format!("{WIDGETS}/w");
    let refused = http.patch(&path, "merge", &json!({"spec": {"size": 2}})).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    assert_eq!(refused.message(), "Widget.example.com \"w\" is invalid: spec.size: Forbidden: was 3");
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "FieldValueForbidden");
    http.patch(&path, "merge", &json!({"spec": {"size": 4}})).await.expect(200);
}

#[tokio::test]
async fn objects_are_stored_in_the_storage_version_and_old_versions_warn() {
    let mut server = TestServer::start().await;
    let http = server.http();
    let mut definition = definition();
    definition["spec"]["versions"][1]["deprecated"] = true.into();
    http.post(DEFINITIONS, &definition).await.expect(201);
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let mut object = widget("w", 3);
    object["apiVersion"] = "example.com/v1beta1".into();
    let made = eventually("the old version is served", async || {
        let answer = http.post(&beta, &object).await;
        (answer.code != 404).then_some(answer)
    })
    .await;
    assert_eq!(made.expect(201)["apiVersion"], "example.com/v1beta1");
    let warning = "299 - \"example.com/v1beta1 Widget is deprecated\"";
    assert_eq!(made.headers["warning"], warning);
    assert_eq!(http.get(&beta).await.headers["warning"], warning);
    assert!(http.get(WIDGETS).await.headers.get("warning").is_none());
    let patched = http.patch(&format!("{beta}/w"), "merge", &json!({"spec": {"size": 4}})).await.expect(200);
    assert_eq!(patched["apiVersion"], "example.com/v1beta1");

    definition["spec"]["versions"][1]["deprecationWarning"] = "use v1".into();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    http.patch(&path, "merge", &json!({"spec": {"versions": definition["spec"]["versions"]}}))
        .await
        .expect(200);
    eventually("the warning changes", async || {
        (http.get(&beta).await.headers["warning"] == "299 - \"use v1\"").then_some(())
    })
    .await;

    let key = "/registry/example.com/widgets/default/w";
    server.stop().await;
    let store = store::Embedded::open(&server.data_dir().join("store")).unwrap();
    let stored = store::Store::get(&store, key).await.unwrap().expect("it is stored");
    let stored: Value = serde_json::from_slice(&stored.value).unwrap();
    assert_eq!((&stored["apiVersion"], &stored["spec"]["size"]), (&json!("example.com/v1"), &json!(4)));
}

/// Changes the schema of `spec` in the stored version.
async fn redefine(http: &Http, patch: &Value) {
    let path = format!("{DEFINITIONS}/widgets.example.com");
    http.patch(&path, "json", patch).await.expect(200);
}

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";

#[tokio::test]
async fn stored_objects_are_read_as_they_are_defined_now() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        define(&http).await;
        http.post(WIDGETS, &widget("old", 3)).await.expect(201);
        let mut watch = http.watch(&format!("{WIDGETS}?watch=true")).await;
        assert_eq!(watch.next().await.unwrap().name(), "old");

        redefine(
            &http,
            &json!([
                {"op": "add", "path": format!("{SPEC}/replicas/default"), "value": 2},
                {"op": "remove", "path": format!("{SPEC}/color")},
            ]),
        )
        .await;
        let spec = json!({"size": 3, "replicas": 2});
        eventually("the new default is there", async || {
            let read = http.get(&format!("{WIDGETS}/old")).await.expect(200);
            (read["spec"] == spec).then_some(())
        })
        .await;
        assert!(watch.next().await.is_none(), "who watches is to read anew");
        assert_eq!(http.get(WIDGETS).await.expect(200)["items"][0]["spec"], spec);
        let mut watch = http.watch(&format!("{WIDGETS}?watch=true&resourceVersion=0")).await;
        assert_eq!(watch.next().await.unwrap().object["spec"], spec);
        let beta = WIDGETS.replace("/v1/", "/v1beta1/");
        assert_eq!(
            http.get(&format!("{beta}/old")).await.expect(200)["spec"],
            spec,
            "defaults are the stored version's"
        );

        // What was stored as a default stays when the default goes.
        http.post(WIDGETS, &widget("new", 4)).await.expect(201);
        redefine(
            &http,
            &json!([
                {"op": "remove", "path": format!("{SPEC}/replicas/default")},
                {"op": "add", "path": format!("{SPEC}/label"), "value": {"type": "string", "default": "b"}},
            ]),
        )
        .await;
        eventually("the next default is there", async || {
            let read = http.get(&format!("{WIDGETS}/new")).await.expect(200);
            (read["spec"] == json!({"size": 4, "replicas": 2, "label": "b"})).then_some(())
        })
        .await;
        let changed = json!({"spec": {"size": 5}});
        let old = http.patch(&format!("{WIDGETS}/old"), "merge", &changed).await.expect(200);
        assert_eq!(old["spec"], json!({"size": 5, "label": "b"}));
    }
}

#[tokio::test]
async fn every_version_is_selected_by_its_own_fields() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut definition = definition();
    definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    definition["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    http.post(DEFINITIONS, &definition).await.expect(201);
    eventually("it is served", async || (http.get(WIDGETS).await.code == 200).then_some(())).await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let mut watch = http.watch(&format!("{beta}?watch=true&fieldSelector=spec.size=3")).await;
    for (name, size) in [("a", 3), ("b", 4), ("c", 3)] {
        http.post(WIDGETS, &widget(name, size)).await.expect(201);
    }
    http.patch(&format!("{WIDGETS}/b"), "merge", &json!({"spec": {"color": "blue"}})).await.expect(200);
    let selected = http.get(&format!("{beta}?fieldSelector=spec.size=3")).await.expect(200);
    assert_eq!(names(&selected), ["a", "c"]);
    let selected = http.get(&format!("{WIDGETS}?fieldSelector=spec.color=blue")).await.expect(200);
    assert_eq!(names(&selected), ["b"]);
    for name in ["a", "c"] {
        assert_eq!(watch.next().await.unwrap().name(), name);
    }
    let refused = http.get(&format!("{beta}?fieldSelector=spec.color=blue")).await;
    assert_eq!((refused.code, refused.message().as_str()), (400, "field label not supported: spec.color"));
}

#[tokio::test]
async fn what_a_schema_does_not_have_is_complained_of_in_upstreams_words() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut definition = definition();
    *definition.pointer_mut(&format!("{SPEC}/free")).unwrap() = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        },
    });
    http.post(DEFINITIONS, &definition).await.expect(201);
    eventually("it is served", async || (http.get(WIDGETS).await.code == 200).then_some(())).await;
    let mut object = widget("w", 1);
    object["unknownField"] = 1.into();
    object["metadata"]["unknownMeta"] = 1.into();
    object["spec"]["free"] = json!({"any": 1, "template": {"apiVersion": "v1", "kind": "Sub", "strange": 1,
        "metadata": {"name": "sub", "unknownSubMeta": 1}}});
    let refused = http.post(&format!("{WIDGETS}?fieldValidation=Strict"), &object).await;
    let message = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: \
        unknown field \"metadata.unknownMeta\", unknown field \"spec.free.template.strange\", \
        unknown field \"unknownField\", unknown field \"spec.free.template.metadata.unknownSubMeta\"";
    assert_eq!((refused.code, refused.message().as_str()), (400, message));
    let kept = http.post(&format!("{WIDGETS}?dryRun=All"), &object).await.expect(201);
    assert_eq!(kept["spec"]["free"]["template"]["metadata"], json!({"name": "sub"}));

    for validation in ["Strict", "Warn", "Ignore"] {
        let path = format!("{WIDGETS}/w?fieldManager=m&fieldValidation={validation}");
        let refused = http.patch(&path, "apply", &object).await;
        let message = "failed to create typed patch object (/w; example.com/v1, Kind=Widget): errors:\n  \
            .metadata.unknownMeta: field not declared in schema\n  \
            .spec.free.template.metadata.unknownSubMeta: field not declared in schema\n  \
            .unknownField: field not declared in schema";
        assert_eq!((refused.code, refused.message().as_str()), (500, message), "{validation}");
    }
    let twice =
        "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 1\n  size: 2\n";
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{WIDGETS}/w?fieldManager=m&fieldValidation");
    let refused = http.send("PATCH", &format!("{path}=Strict"), &apply, twice).await;
    let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
        line 7: key \"size\" already set in map";
    assert_eq!((refused.code, refused.message().as_str()), (400, message));
    let warned = http.send("PATCH", &format!("{path}=Warn"), &apply, twice).await;
    assert_eq!(warned.expect(201)["spec"]["size"], 2);
    assert_eq!(warned.headers["warning"], "299 - \"line 7: key \\\"size\\\" already set in map\"");
}
