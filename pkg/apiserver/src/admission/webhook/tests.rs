use super::review::{Version, refusal, verdict};
use serde_json::{Value, json};

#[test]
fn answers_are_read_strictly() {
    let answer = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    let check = |review: &Value, is_mutating: bool, expected: Result<bool, &str>| {
        let said = verdict(review.to_string().as_bytes(), Version::V1, "u", is_mutating);
        assert_eq!(said.map(|verdict| verdict.is_allowed), expected.map_err(str::to_owned), "{review}");
    };
    check(&answer(json!({"uid": "u", "allowed": true})), true, Ok(true));
    check(&answer(json!({"uid": "u"})), false, Ok(false));
    check(&json!({}), true, Err("webhook response was absent"));
    check(&answer(json!({"uid": "v", "allowed": true})), true, Err("expected response.uid=\"u\", got \"v\""));
    check(
        &json!({"kind": "X", "apiVersion": "v1", "response": {"uid": "u"}}),
        true,
        Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got v1, Kind=X"),
    );
    let patch = "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL3gifV0=";
    check(
        &answer(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})),
        true,
        Ok(true),
    );
    check(
        &answer(json!({"uid": "u", "patch": patch})),
        true,
        Err("webhook returned response.patch but not response.patchType"),
    );
    check(
        &answer(json!({"uid": "u", "patchType": "JSONPatch"})),
        true,
        Err("webhook returned response.patchType but not response.patch"),
    );
    check(
        &answer(json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"})),
        false,
        Err("validating webhook may not return response.patch"),
    );
    let read = verdict(
        answer(
            json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["w"]}),
        )
        .to_string()
        .as_bytes(),
        Version::V1,
        "u",
        true,
    )
    .unwrap();
    assert_eq!(read.patch, Some(json!([{"op": "remove", "path": "/x"}])));
    assert_eq!(read.warnings, ["w"]);
}

#[test]
fn refusals_read_as_upstreams() {
    let check = |status: Value, expected: (u16, &str, &str)| {
        let error = refusal("a.b.c", status);
        assert_eq!((error.code.as_u16(), &*error.reason, error.message.as_str()), expected);
    };
    let denied = "admission webhook \"a.b.c\" denied the request";
    check(Value::Null, (400, "", &format!("{denied} without explanation")));
    check(json!({"message": "no"}), (400, "", &format!("{denied}: no")));
    check(json!({"reason": "Nope", "code": 200}), (400, "Nope", &format!("{denied}: Nope")));
    check(
        json!({"message": "no", "reason": "Forbidden", "code": 403}),
        (403, "Forbidden", &format!("{denied}: no")),
    );
}
