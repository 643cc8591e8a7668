//! What belongs to the cluster rather than to an application.

use super::*;

#[test]
fn priorities_are_fixed() {
    let class = object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1000}));
    assert_eq!(
        (&class["preemptionPolicy"], &class["metadata"]["generation"]),
        (&json!("PreemptLowerPriority"), &json!(1))
    );
    check_invalid(
        &class,
        &[
            (
                "/value",
                json!(1_000_000_001),
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
            ),
            ("/preemptionPolicy", json!("X"), "preemptionPolicy: Unsupported value"),
            (
                "/metadata/name",
                json!("system-x"),
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class",
            ),
            (
                "/metadata/name",
                json!("system-node-critical"),
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000",
            ),
        ],
    );
    check_update(
        &class,
        &[
            ("/description", json!("x"), ""),
            ("/value", json!(2), "value: Forbidden: may not be changed in an update."),
            (
                "/preemptionPolicy",
                json!("Never"),
                "preemptionPolicy: Invalid value: \"Never\": field is immutable",
            ),
        ],
    );
    assert_eq!(
        row(&class),
        "Name=x | Value=1000 | Global-Default=false | Age=5m | PreemptionPolicy=PreemptLowerPriority"
    );
}

#[test]
fn runtime_classes_keep_their_handler() {
    let class = object(
        "node.k8s.io/v1",
        "RuntimeClass",
        json!({"handler": "runc", "overhead": {"podFixed": {"cpu": "100m"}}}),
    );
    check_invalid(
        &class,
        &[
            ("/handler", json!(""), "handler: Invalid value: \"\""),
            ("/overhead/podFixed", json!({"apples": "1"}), "overhead.limits[apples]: Invalid value"),
            (
                "/scheduling",
                json!({"nodeSelector": {"a b": "c"}}),
                "scheduling.nodeSelector: Invalid value: \"a b\"",
            ),
            (
                "/scheduling",
                json!({"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": ""}]}),
                "scheduling.tolerations[1]: Duplicate value",
            ),
        ],
    );
    check_update(
        &class,
        &[("/handler", json!("kata"), "handler: Invalid value: \"kata\": field is immutable")],
    );
    assert_eq!(row(&class), "Name=x | Handler=runc | Age=5m");
}

const STORAGE: &str = "storage.k8s.io/v1";

#[test]
fn storage_classes_stay_as_they_are() {
    let class =
        object(STORAGE, "StorageClass", json!({"provisioner": "example.com/nfs", "parameters": {"a": "b"}}));
    assert_eq!(
        (&class["reclaimPolicy"], &class["volumeBindingMode"]),
        (&json!("Delete"), &json!("Immediate"))
    );
    let term = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]});
    check_invalid(
        &class,
        &[
            ("/provisioner", json!(""), "provisioner: Required value"),
            ("/provisioner", json!("a b"), "provisioner: Invalid value: \"a b\""),
            (
                "/reclaimPolicy",
                json!("Recycle"),
                "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
            ),
            ("/volumeBindingMode", json!("X"), "volumeBindingMode: Unsupported value"),
            ("/parameters", json!({"": "b"}), "parameters: Invalid value: \"\": field can not be empty."),
            (
                "/allowedTopologies",
                json!([term, term]),
                "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
            ),
        ],
    );
    check_update(
        &class,
        &[
            ("/allowVolumeExpansion", json!(true), ""),
            ("/parameters/a", json!("c"), "parameters: Forbidden: updates to parameters are forbidden."),
            ("/provisioner", json!("x"), "provisioner: Forbidden: updates to provisioner are forbidden."),
            (
                "/reclaimPolicy",
                json!("Retain"),
                "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.",
            ),
            ("/volumeBindingMode", json!("WaitForFirstConsumer"), "volumeBindingMode: Invalid value"),
        ],
    );
    let default =
        with(&class, "/metadata/annotations", json!({"storageclass.kubernetes.io/is-default-class": "true"}));
    assert_eq!(
        row(&default),
        "Name=x (default) | Provisioner=example.com/nfs | ReclaimPolicy=Delete | VolumeBindingMode=Immediate | AllowVolumeExpansion=false | Age=5m"
    );
}

#[test]
fn bad_storage_drivers_say_why() {
    let driver = object(STORAGE, "CSIDriver", json!({"spec": {"tokenRequests": [{"audience": "a"}]}}));
    check_invalid(
        &driver,
        &[
            ("/spec/attachRequired", json!(null), "spec.attachedRequired: Required value"),
            ("/spec/fsGroupPolicy", json!("X"), "spec.fsGroupPolicy: Unsupported value"),
            (
                "/spec/volumeLifecycleModes",
                json!(["X"]),
                "spec.volumeLifecycleModes: Unsupported value: \"X\"",
            ),
            (
                "/spec/tokenRequests/1",
                json!({"audience": "a"}),
                "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            ),
            (
                "/spec/tokenRequests/0/expirationSeconds",
                json!(5),
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
            ),
            (
                "/spec/nodeAllocatableUpdatePeriodSeconds",
                json!(5),
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
            ),
        ],
    );
    check_update(
        &driver,
        &[(
            "/spec/attachRequired",
            json!(false),
            "spec.attachedRequired: Invalid value: false: field is immutable",
        )],
    );
    assert_eq!(
        row(&driver),
        "Name=x | AttachRequired=true | PodInfoOnMount=false | StorageCapacity=false | TokenRequests=a | RequiresRepublish=false | Modes=Persistent | Age=5m"
    );
    let node = object(
        STORAGE,
        "CSINode",
        json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["zone"]}]}}),
    );
    check_invalid(
        &node,
        &[
            ("/spec/drivers/0/name", json!(""), "spec.drivers[0].name: Required value"),
            ("/spec/drivers/0/nodeID", json!(""), "spec.drivers[0].nodeID: Required value"),
            (
                "/spec/drivers/0/allocatable",
                json!({"count": -1}),
                "spec.drivers[0].allocatable.count: Invalid value: -1",
            ),
            (
                "/spec/drivers/1",
                json!({"name": "d", "nodeID": "m"}),
                "spec.drivers[1].name: Duplicate value: \"d\"",
            ),
            ("/spec/drivers/0/topologyKeys/1", json!("zone"), "spec.drivers[0]: Duplicate value: \"zone\""),
        ],
    );
    check_update(
        &node,
        &[
            ("/spec/drivers/0/allocatable", json!({"count": 3}), ""),
            ("/spec/drivers/0/nodeID", json!("m"), "spec.drivers: Invalid value"),
        ],
    );
    assert_eq!(row(&node), "Name=x | Drivers=1 | Age=5m");
    let attachment = object(
        STORAGE,
        "VolumeAttachment",
        json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
    );
    check_invalid(
        &attachment,
        &[
            ("/spec/attacher", json!(""), "spec.attacher: Required value"),
            (
                "/spec/source",
                json!({}),
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
            (
                "/spec/source/inlineVolumeSpec",
                json!({}),
                "spec.source: Forbidden: must specify exactly one of",
            ),
            ("/spec/nodeName", json!(""), "spec.nodeName: Invalid value: \"\""),
        ],
    );
    check_update(&attachment, &[("/spec/nodeName", json!("m"), "spec: Invalid value")]);
    assert_eq!(row(&attachment), "Name=x | Attacher=d | PV=pv | Node=n | Attached=false | Age=5m");
}

#[test]
fn bad_events_say_why() {
    let event = object(
        "events.k8s.io/v1",
        "Event",
        json!({"eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "c-1", "action": "Go", "reason": "Gone",
        "type": "Normal", "note": "went", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}}),
    );
    check_invalid(
        &event,
        &[
            ("/eventTime", json!(null), "eventTime: Required value"),
            ("/type", json!("X"), "type: Invalid value: \"\": has invalid value: X"),
            ("/reportingController", json!(""), "reportingController: Required value"),
            ("/reportingInstance", json!(""), "reportingInstance: Required value"),
            ("/action", json!(""), "action: Required value"),
            (
                "/reason",
                json!("x".repeat(129)),
                "reason: Invalid value: \"\": can have at most 128 characters",
            ),
            (
                "/note",
                json!("x".repeat(1025)),
                "message: Invalid value: \"\": can have at most 1024 characters",
            ),
            ("/deprecatedCount", json!(1), "count: Invalid value: \"\": needs to be unset"),
            (
                "/series",
                json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}),
                "series.count: Invalid value: \"\": should be at least 2",
            ),
        ],
    );
    check_update(
        &event,
        &[
            ("/series", json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}), ""),
            ("/note", json!("came"), "message: Invalid value: \"came\": field is immutable"),
            ("/regarding/name", json!("q"), "involvedObject: Invalid value"),
            (
                "/reportingController",
                json!("d"),
                "reportingController: Invalid value: \"d\": field is immutable",
            ),
        ],
    );
    assert_eq!(
        row(&event),
        "Last Seen=5m | Type=Normal | Reason=Gone | Object=pod/p | +Subobject= | +Source=example.com/c, c-1 | Message=went | +First Seen=5m | +Count=1 | +Name=x"
    );
}

fn definition() -> Value {
    let column = json!({"name": "Spec", "type": "string", "jsonPath": ".spec.cron"});
    let version = json!({"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [column],
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": metadata("crontabs.stable.example.com"),
        "spec": {"group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]}, "versions": [version]}});
    definition["metadata"].as_object_mut().expect("metadata").remove("namespace");
    created(definition)
}

#[test]
fn bad_definitions_say_why() {
    let definition = definition();
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "singular": "crontab", "listKind": "CronTabList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let name = "metadata.name: Invalid value: \"crontabs.stable.example.com\": must be spec.names.plural+\".\"+spec.group";
    check_invalid(
        &definition,
        &[
            ("/spec/group", json!(""), "spec.group: Required value"),
            (
                "/spec/group",
                json!("example"),
                "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
            ),
            ("/spec/group", json!("other.example.com"), name),
            ("/spec/scope", json!(""), "spec.scope: Required value"),
            (
                "/spec/scope",
                json!("X"),
                "spec.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespaced\"",
            ),
            ("/spec/names/kind", json!(""), "spec.names.kind: Required value"),
            (
                "/spec/names/kind",
                json!("Cron Tab"),
                "spec.names.kind: Invalid value: \"Cron Tab\": may have mixed case, but should otherwise match: ",
            ),
            ("/spec/names/singular", json!("A"), "spec.names.singular: Invalid value: \"A\""),
            (
                "/spec/names/listKind",
                json!("CronTab"),
                "spec.names.listKind: Invalid value: \"CronTab\": kind and listKind may not be the same",
            ),
            ("/spec/names/shortNames/0", json!("A"), "spec.names.shortNames[0]: Invalid value"),
            ("/spec/versions/0/name", json!("1"), "spec.versions[0].name: Invalid value: \"1\""),
            (
                "/spec/versions/0/schema",
                json!(null),
                "spec.versions[0].schema.openAPIV3Schema: Required value",
            ),
            ("/spec/versions/0/storage", json!(false), "spec.versions: Invalid value"),
            (
                "/spec/versions/0/deprecationWarning",
                json!("x"),
                "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
            ),
            (
                "/spec/versions/0/additionalPrinterColumns/0/type",
                json!("X"),
                "spec.additionalPrinterColumns[0].type: Invalid value: \"X\": must be one of boolean,date,integer,number,string",
            ),
            (
                "/spec/versions/0/additionalPrinterColumns/0/jsonPath",
                json!("x"),
                "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"x\": must be a simple json path starting with .",
            ),
            (
                "/spec/versions/0/subresources/scale/specReplicasPath",
                json!(".status.x"),
                "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec",
            ),
            ("/spec/conversion/strategy", json!("X"), "spec.conversion.strategy: Unsupported value"),
            (
                "/spec/conversion/strategy",
                json!("Webhook"),
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            ),
            (
                "/spec/preserveUnknownFields",
                json!(true),
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true",
            ),
            (
                "/status/storedVersions",
                json!(["v1", "v0"]),
                "status.storedVersions[1]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version",
            ),
        ],
    );
    let mut protected = with(&definition, "/spec/group", json!("x.k8s.io"));
    protected["metadata"]["name"] = json!("crontabs.x.k8s.io");
    assert_said(
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation",
        &complaints(&protected),
        "k8s.io",
    );
    check_update(
        &with(&definition, "/status/conditions", json!([{"type": "Established", "status": "True"}])),
        &[
            ("/spec/names/shortNames", json!([]), ""),
            ("/spec/scope", json!("Cluster"), "spec.scope: Invalid value: \"Cluster\": field is immutable"),
            (
                "/spec/names/kind",
                json!("Other"),
                "spec.names.kind: Invalid value: \"Other\": field is immutable",
            ),
            (
                "/spec/names/plural",
                json!("others"),
                "spec.names.plural: Invalid value: \"others\": field is immutable",
            ),
        ],
    );
    assert_eq!(row(&definition), "Name=crontabs.stable.example.com | Created At=2026-01-01T00:00:00Z");
}

#[test]
fn a_new_storage_version_is_remembered() {
    let old = definition();
    let mut new = with(&old, "/spec/versions/0/storage", json!(false));
    let second = with(&old["spec"]["versions"][0], "/name", json!("v2"));
    new["spec"]["versions"].as_array_mut().expect("versions").push(second);
    (kind_of(&old).prepare)(&mut new, Some(&old));
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(complaints(&new), Vec::<String>::new());
}
