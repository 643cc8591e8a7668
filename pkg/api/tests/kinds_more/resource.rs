//! Devices and claims on them, and what drivers say of storage.

use super::*;

const RESOURCE: &str = "resource.k8s.io/v1";

fn claim() -> Value {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}});
    object(RESOURCE, "ResourceClaim", json!({"spec": {"devices": {"requests": [request]}}}))
}

#[test]
fn claims_ask_for_devices_of_a_class() {
    let claim = claim();
    let exactly = &claim["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(exactly["allocationMode"], "ExactCount");
    assert_eq!(exactly["count"], 1);
    let requests = "/spec/devices/requests";
    check_invalid(
        &claim,
        &[
            (
                &format!("{requests}/0/name"),
                json!("A"),
                "spec.devices.requests[0].name: Invalid value: \"A\"",
            ),
            (
                &format!("{requests}/0/exactly"),
                json!(null),
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ),
            (
                &format!("{requests}/0/exactly/deviceClassName"),
                json!(""),
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
            ),
            (
                &format!("{requests}/0/exactly/allocationMode"),
                json!("Some"),
                "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"Some\"",
            ),
            (
                &format!("{requests}/0/exactly/count"),
                json!(0),
                "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero",
            ),
            (
                &format!("{requests}/1"),
                json!({"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "All"}}),
                "spec.devices.requests[1]: Duplicate value: \"gpu\"",
            ),
            (
                "/spec/devices/constraints",
                json!([{"requests": ["other"], "matchAttribute": "x.com/a"}]),
                "spec.devices.constraints[0].requests[0]: Invalid value: \"other\": must be the name of a request in the claim",
            ),
            (
                "/spec/devices/constraints",
                json!([{"matchAttribute": "a"}]),
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"a\": a fully qualified name",
            ),
            (
                "/spec/devices/config",
                json!([{"opaque": {"driver": "d.example.com", "parameters": "x"}}]),
                "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ),
        ],
    );
    check_update(&claim, &[("/spec/devices/requests/0/exactly/count", json!(2), "spec: Invalid value")]);
    assert_eq!(row(&claim), "Name=x | State=pending | Age=5m");
}

#[test]
fn what_a_claim_was_given_is_what_it_asked_for() {
    let claim = claim();
    let given = |request: &str| {
        json!({"devices": {"results": [
            {"request": request, "driver": "d.example.com", "pool": "n1", "device": "gpu-0"}]}})
    };
    let consumer = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    check_status(
        &claim,
        &[
            ("/status", json!({"allocation": given("gpu"), "reservedFor": consumer}), ""),
            (
                "/status",
                json!({"allocation": given("other")}),
                "status.allocation.devices.results[0].request: Invalid value: \"other\"",
            ),
            (
                "/status",
                json!({"reservedFor": consumer}),
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ),
            (
                "/status",
                json!({"allocation": given("gpu"), "devices": [{"driver": "d.example.com", "pool": "n1", "device": "x"}]}),
                "status.devices[0]: Invalid value",
            ),
        ],
    );
    let given = with(&claim, "/status", json!({"allocation": given("gpu"), "reservedFor": consumer}));
    let device = "/status/allocation/devices/results/0/device";
    check_status(&given, &[(device, json!("gpu-1"), "status.allocation: Invalid value")]);
    assert_eq!(row(&given), "Name=x | State=allocated,reserved | Age=5m");
}

#[test]
fn slices_say_which_nodes_reach_their_devices() {
    let spec = json!({"driver": "d.example.com", "nodeName": "n1", "pool": {"name": "n1", "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}}}]});
    let slice = object(RESOURCE, "ResourceSlice", json!({"spec": spec}));
    check_invalid(
        &slice,
        &[
            ("/spec/driver", json!(""), "spec.driver: Required value"),
            ("/spec/pool/name", json!(""), "spec.pool.name: Required value"),
            ("/spec/pool/resourceSliceCount", json!(0), "spec.pool.resourceSliceCount: Invalid value: 0"),
            ("/spec/nodeName", json!(null), "spec: Required value: exactly one of `nodeName`"),
            ("/spec/allNodes", json!(true), "spec: Invalid value: \"{`nodeName`, `allNodes`}\""),
            ("/spec/devices/0/name", json!("A"), "spec.devices[0].name: Invalid value"),
            (
                "/spec/devices/0/attributes/model",
                json!({}),
                "spec.devices[0].attributes[model]: Invalid value",
            ),
            (
                "/spec/devices/0/taints",
                json!([{"key": "a"}]),
                "spec.devices[0].taints[0].effect: Required value",
            ),
            ("/spec/devices/1", json!({"name": "gpu-0"}), "spec.devices[1]: Duplicate value: \"gpu-0\""),
        ],
    );
    check_update(
        &slice,
        &[
            ("/spec/nodeName", json!("n2"), "spec.nodeName: Invalid value: \"n2\": field is immutable"),
            ("/spec/devices", json!([]), ""),
        ],
    );
    assert_eq!(row(&slice), "Name=x | Node=n1 | Driver=d.example.com | Pool=n1 | Age=5m");
}

#[test]
fn classes_and_templates_are_checked_as_claims_are() {
    let class =
        object(RESOURCE, "DeviceClass", json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}}));
    check_invalid(
        &class,
        &[
            ("/spec/selectors/0/cel", json!(null), "spec.selectors[0].cel: Required value"),
            ("/spec/config", json!([{}]), "spec.config[0].opaque: Required value"),
        ],
    );
    let template = object(RESOURCE, "ResourceClaimTemplate", json!({"spec": {"spec": claim()["spec"]}}));
    let class = "/spec/spec/devices/requests/0/exactly/deviceClassName";
    check_invalid(
        &template,
        &[(class, json!(""), "spec.spec.devices.requests[0].exactly.deviceClassName: Required value")],
    );
    check_update(&template, &[(class, json!("other"), "spec: Invalid value")]);
}

#[test]
fn drivers_say_what_they_have_left_and_what_can_be_changed() {
    let capacity = object(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        json!({"storageClassName": "fast", "capacity": "1Gi"}),
    );
    check_invalid(
        &capacity,
        &[
            ("/storageClassName", json!(""), "storageClassName: Invalid value"),
            ("/capacity", json!("-1"), "capacity: Invalid value"),
        ],
    );
    check_update(
        &capacity,
        &[
            ("/capacity", json!("2Gi"), ""),
            ("/storageClassName", json!("slow"), "storageClassName: Invalid value"),
        ],
    );
    assert_eq!(row(&capacity), "Name=x | StorageClassName=fast | Capacity=1Gi");
    let attributes = json!({"driverName": "d.example.com", "parameters": {"iops": "100"}});
    let class = object("storage.k8s.io/v1", "VolumeAttributesClass", attributes);
    check_invalid(
        &class,
        &[
            ("/driverName", json!(""), "driverName: Required value"),
            (
                "/parameters",
                json!({}),
                "parameters: Required value: must contain at least one key/value pair",
            ),
        ],
    );
    check_update(
        &class,
        &[("/parameters/iops", json!("1"), "parameters: Forbidden: updates to parameters are forbidden.")],
    );
}
