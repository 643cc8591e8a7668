//! Who may do what: rbac, certificates and questions.

use super::*;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn bad_roles_say_why() {
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let role = object(RBAC, "Role", json!({"rules": [rule]}));
    let cases = [
        (
            "/rules/0/verbs",
            json!([]),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "/rules/0/apiGroups",
            json!([]),
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            "/rules/0/resources",
            json!([]),
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            "/rules/0/nonResourceURLs",
            json!(["/x"]),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
        ),
    ];
    check_invalid(&role, &cases);
    check_invalid(
        &role,
        &[(
            "/rules/0",
            json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        )],
    );
    let cluster_role = object(RBAC, "ClusterRole", json!({"rules": [rule]}));
    check_invalid(&cluster_role, &cases);
    check_valid(&cluster_role, &[("/rules/0", json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}))]);
    check_invalid(
        &cluster_role,
        &[(
            "/aggregationRule",
            json!({}),
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required",
        )],
    );
    assert_eq!(row(&role), "Name=x | Created At=2026-01-01T00:00:00Z");
    assert!((kind_of(&role).validate_name)("system:node/x").is_err());
    assert!((kind_of(&role).validate_name)("system:node").is_ok());
}

#[test]
fn bindings_keep_their_role() {
    let binding = object(
        RBAC,
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]}),
    );
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"][1].get("apiGroup"), None);
    let cases = [
        (
            "/roleRef/apiGroup",
            json!("x"),
            "roleRef.apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
        ),
        ("/roleRef/kind", json!("X"), "roleRef.kind: Unsupported value"),
        ("/roleRef/name", json!(""), "roleRef.name: Required value"),
        ("/roleRef/name", json!("a/b"), "roleRef.name: Invalid value: \"a/b\": may not contain '/'"),
        ("/subjects/0/name", json!(""), "subjects[0].name: Required value"),
        ("/subjects/0/kind", json!("X"), "subjects[0].kind: Unsupported value"),
        ("/subjects/0/apiGroup", json!("x"), "subjects[0].apiGroup: Unsupported value"),
        ("/subjects/1/apiGroup", json!("x"), "subjects[1].apiGroup: Unsupported value"),
    ];
    check_invalid(&binding, &cases);
    check_update(
        &binding,
        &[
            ("/subjects", json!([]), ""),
            (
                "/roleRef/name",
                json!("s"),
                "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"s\"}: cannot change roleRef",
            ),
        ],
    );
    assert_eq!(
        row(&binding),
        "Name=x | Role=Role/r | Age=5m | +Users=jane | +Groups= | +ServiceAccounts=default/sa"
    );
    let mut everywhere = binding.clone();
    everywhere["kind"] = json!("ClusterRoleBinding");
    everywhere["roleRef"]["kind"] = json!("ClusterRole");
    let everywhere = created(everywhere);
    check_invalid(&everywhere, &cases);
    check_invalid(
        &everywhere,
        &[
            (
                "/roleRef/kind",
                json!("Role"),
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
            ("/subjects/1/namespace", json!(null), "subjects[1].namespace: Required value"),
        ],
    );
}

/// `-----BEGIN CERTIFICATE REQUEST-----` and `-----BEGIN CERTIFICATE-----`, in base64.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";

#[test]
fn requests_for_certificates_are_decided_once() {
    use api::kinds::certificates::certificate_signing_request::{prepare_approval, validate_approval};
    let spec = json!({"request": REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "username": "root"});
    let csr = object("certificates.k8s.io/v1", "CertificateSigningRequest", json!({"spec": spec}));
    assert_eq!(csr["spec"].get("username"), None);
    check_invalid(
        &csr,
        &[
            (
                "/spec/request",
                json!("eA=="),
                "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
            ),
            ("/spec/usages", json!([]), "spec.usages: Required value"),
            ("/spec/usages", json!(["x"]), "spec.usages[0]: Unsupported value: \"x\""),
            ("/spec/usages", json!(["any", "any"]), "spec.usages[1]: Duplicate value: \"any\""),
            ("/spec/signerName", json!(""), "spec.signerName: Required value"),
            (
                "/spec/signerName",
                json!("x"),
                "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            ),
            ("/spec/signerName", json!("kubernetes.io/legacy-unknown"), "spec.signerName: Invalid value"),
            (
                "/spec/expirationSeconds",
                json!(5),
                "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
            ),
        ],
    );
    let approved = json!([{"type": "Approved", "status": "True"}]);
    check_update(
        &csr,
        &[
            ("/spec/usages", json!(["any"]), ""),
            (
                "/status",
                json!({"conditions": approved}),
                "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
            ),
        ],
    );
    check_status(
        &csr,
        &[
            ("/status", json!({"certificate": CERTIFICATE}), ""),
            (
                "/status",
                json!({"certificate": REQUEST}),
                "status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"",
            ),
            ("/status", json!({"conditions": approved}), "status.conditions: Forbidden: updates may not add"),
            (
                "/status",
                json!({"conditions": [{"type": "Failed", "status": "False"}]}),
                "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
            ),
        ],
    );
    let mut decided = with(&csr, "/status", json!({"conditions": approved, "certificate": CERTIFICATE}));
    prepare_approval(&mut decided, &csr);
    assert_eq!(decided["status"], json!({"conditions": approved}));
    let mut errors = Errors::new();
    validate_approval(&Field::root(&decided), &Field::root(&csr), &mut errors);
    assert_eq!(texts(errors), Vec::<String>::new());
    check_status(
        &with(&decided, "/status/certificate", json!(CERTIFICATE)),
        &[
            (
                "/status/conditions",
                json!([]),
                "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
            ),
            (
                "/status/certificate",
                json!("eA=="),
                "status.certificate: Forbidden: updates may not modify existing certificate content",
            ),
        ],
    );
    assert_eq!(
        row(&with(&decided, "/status/certificate", json!(CERTIFICATE))),
        "Name=x | Age=5m | SignerName=kubernetes.io/kube-apiserver-client | Requestor= | RequestedDuration=<none> | Condition=Approved,Issued"
    );
}

#[test]
fn bad_questions_say_why() {
    let question = |kind: &str, spec: Value| {
        let version =
            if kind == "TokenReview" { "authentication.k8s.io/v1" } else { "authorization.k8s.io/v1" };
        json!({"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec})
    };
    let spec = json!({"user": "jane", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}});
    let cases = [
        (
            "/spec/resourceAttributes",
            json!(null),
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "/spec/nonResourceAttributes",
            json!({"path": "/"}),
            "spec.nonResourceAttributes: Invalid value: {\"path\":\"/\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            "/spec/resourceAttributes/fieldSelector",
            json!({}),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified",
        ),
        ("/metadata", json!({"name": "x"}), "metadata: Invalid value: {\"name\":\"x\"}: must be empty"),
    ];
    let review = question("SubjectAccessReview", spec.clone());
    check_invalid(&review, &cases);
    check_invalid(
        &review,
        &[(
            "/spec/user",
            json!(""),
            "spec.user: Invalid value: \"\": at least one of user or group must be specified",
        )],
    );
    let mut own = spec.clone();
    own.as_object_mut().expect("a spec").remove("user");
    check_invalid(&question("SelfSubjectAccessReview", own), &cases);
    let mut local = question("LocalSubjectAccessReview", spec);
    local["metadata"] = json!({"namespace": "default"});
    check_invalid(
        &local,
        &[(
            "/spec/resourceAttributes/namespace",
            json!("x"),
            "spec.resourceAttributes.namespace: Invalid value: \"x\": must match metadata.namespace",
        )],
    );
    check_invalid(
        &question("SelfSubjectRulesReview", json!({"namespace": "default"})),
        &[("/spec/namespace", json!(""), "spec.namespace: Required value")],
    );
    check_invalid(
        &question("TokenReview", json!({"token": "t"})),
        &[("/spec/token", json!(""), "spec.token: Required value")],
    );
}
