use super::*;
use crate::auth::authn::{Authenticator, ServiceAccountTokens};
use crate::auth::{Lookup, token};
use jiff::Timestamp;
use pki::{PrivateKey, Signer};

struct Objects;

impl Lookup for Objects {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let object = |uid: &str, spec: Value| json!({"metadata": {"name": name, "uid": uid}, "spec": spec});
        Some(match (resource, namespace, name) {
            ("serviceaccounts", "ns", "sa") => object("sa-uid", json!({})),
            ("pods", "ns", "web") => object("pod-uid", json!({"serviceAccountName": "sa", "nodeName": "n1"})),
            ("pods", "ns", "lost") => {
                object("lost-uid", json!({"serviceAccountName": "sa", "nodeName": "gone"}))
            }
            ("pods", "ns", "other") => object("other-uid", json!({"serviceAccountName": "other"})),
            ("secrets", "ns", "secret") => object("secret-uid", json!({})),
            ("nodes", "", "n1") => object("node-uid", json!({})),
            _ => return None,
        })
    }
}

const NOW: i64 = 1_790_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn settings() -> Settings {
    Settings {
        issuer: "https://issuer".into(),
        audiences: vec!["https://issuer".into(), "api".into()],
        max_expiration_seconds: None,
        extend_expiration: true,
    }
}

fn signer() -> Signer {
    Signer::new(PrivateKey::generate().unwrap())
}

fn request(spec: Value) -> Value {
    let mut request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec});
    set_defaults(&mut request);
    request
}

fn ask(settings: &Settings, request: Value) -> Result<TokenRequested, TokenRequestError> {
    request_token(settings, &signer(), ("ns", "sa"), request, &Objects, now(), "id")
}

fn claims(settings: &Settings, spec: Value) -> Value {
    let answer = ask(settings, request(spec)).unwrap().object;
    pki::unverified_claims(answer["status"]["token"].as_str().unwrap()).unwrap()
}

fn bound(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

#[test]
fn a_token_says_what_upstreams_say() {
    assert_eq!(
        claims(&settings(), json!({})),
        json!({"aud": ["https://issuer", "api"], "exp": NOW + 3600, "iat": NOW, "iss": "https://issuer", "jti": "id",
            "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa", "uid": "sa-uid"}},
            "nbf": NOW, "sub": "system:serviceaccount:ns:sa"})
    );
    let private = |reference: Value| {
        let mut private = claims(&settings(), json!({"boundObjectRef": reference}))["kubernetes.io"].take();
        let members = private.as_object_mut().unwrap();
        members.remove("namespace");
        members.remove("serviceaccount");
        private
    };
    assert_eq!(
        private(bound("Pod", "web", "pod-uid")),
        json!({"pod": {"name": "web", "uid": "pod-uid"}, "node": {"name": "n1", "uid": "node-uid"}})
    );
    assert_eq!(
        private(bound("Pod", "lost", "")),
        json!({"pod": {"name": "lost", "uid": "lost-uid"}, "node": {"name": "gone"}})
    );
    assert_eq!(
        private(bound("Secret", "secret", "")),
        json!({"secret": {"name": "secret", "uid": "secret-uid"}})
    );
    assert_eq!(private(bound("Node", "n1", "node-uid")), json!({"node": {"name": "n1", "uid": "node-uid"}}));
}

#[test]
fn the_answer_is_the_request_with_its_status() {
    let answer = ask(&settings(), request(json!({"expirationSeconds": 600, "audiences": ["x"]}))).unwrap();
    let mut object = answer.object;
    assert!(object["status"]["token"].take().is_string());
    assert_eq!(
        object,
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid", "creationTimestamp": "2026-09-21T14:13:20Z"},
            "spec": {"expirationSeconds": 600, "audiences": ["x"]},
            "status": {"token": null, "expirationTimestamp": "2026-09-21T14:23:20Z"}})
    );
}

#[test]
fn tokens_of_pods_outlive_what_was_asked_for() {
    let lifetime = |settings: &Settings, spec: Value| {
        let claims = claims(settings, spec);
        (
            claims["exp"].as_i64().unwrap() - NOW,
            claims["kubernetes.io"]["warnafter"].as_i64().map(|at| at - NOW),
        )
    };
    let pod = |seconds: i64, audiences: &[&str]| json!({"expirationSeconds": seconds, "audiences": audiences, "boundObjectRef": bound("Pod", "web", "")});
    assert_eq!(lifetime(&settings(), pod(3607, &[])), (31_536_000, Some(3607)));
    assert_eq!(lifetime(&settings(), pod(3607, &["api"])), (31_536_000, Some(3607)));
    assert_eq!(lifetime(&settings(), pod(3607, &["vault"])), (3607, None));
    assert_eq!(lifetime(&settings(), pod(3600, &[])), (3600, None));
    assert_eq!(lifetime(&settings(), json!({"expirationSeconds": 3607})), (3607, None));
    let exact = Settings { extend_expiration: false, ..settings() };
    assert_eq!(lifetime(&exact, pod(3607, &[])), (3607, None));
}

#[test]
fn a_longest_life_may_be_set() {
    let limited = Settings { max_expiration_seconds: Some(1200), ..settings() };
    let answer = ask(&limited, request(json!({"expirationSeconds": 7200}))).unwrap();
    assert_eq!(answer.object["spec"]["expirationSeconds"], 1200);
    assert_eq!(
        answer.warning.as_deref(),
        Some("requested expiration of 7200 seconds shortened to 1200 seconds")
    );
    assert_eq!(ask(&limited, request(json!({"expirationSeconds": 600}))).unwrap().warning, None);
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |request: Value, expected: &str| {
        let error = ask(&settings(), request).unwrap_err();
        let text = match &error {
            TokenRequestError::Invalid(errors) => errors[0].to_string(),
            other => other.to_string(),
        };
        assert_eq!(text, expected);
    };
    check(
        request(json!({"expirationSeconds": 599})),
        "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
    );
    check(
        request(json!({"expirationSeconds": (1i64 << 32) + 1})),
        "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
    );
    check(request(json!({"boundObjectRef": bound("Pod", "gone", "")})), "pods \"gone\" not found");
    check(
        request(json!({"boundObjectRef": bound("Pod", "other", "")})),
        "cannot bind token for serviceaccount \"sa\" to pod running with different serviceaccount name.",
    );
    check(
        request(json!({"boundObjectRef": bound("Pod", "web", "x")})),
        "Operation cannot be fulfilled on Pod \"web\": the UID in the bound object reference (x) does not match \
         the UID in record. The object might have been deleted and then recreated",
    );
    check(
        request(json!({"boundObjectRef": bound("ConfigMap", "c", "")})),
        "cannot bind token to object of type /v1, Kind=ConfigMap",
    );
    let mut named = request(json!({}));
    named["metadata"] = json!({"name": "x"});
    check(named, "metadata.name: Invalid value: \"x\": must match the service account name if specified");
    let mut stale = request(json!({}));
    stale["metadata"] = json!({"uid": "old"});
    check(
        stale,
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa\": the UID in the token request \
         (old) does not match the UID of the service account (sa-uid)",
    );
    let missing =
        request_token(&settings(), &signer(), ("ns", "gone"), request(json!({})), &Objects, now(), "id");
    assert_eq!(missing.unwrap_err().to_string(), "serviceaccounts \"gone\" not found");
}

#[test]
fn a_review_tells_whose_token_it_is() {
    let signer = signer();
    let spec = json!({"audiences": ["vault", "api"]});
    let answer =
        request_token(&settings(), &signer, ("ns", "sa"), request(spec), &Objects, now(), "id").unwrap();
    let verifier = pki::Verifier::new([signer.public().clone()]);
    let tokens = ServiceAccountTokens::new(vec!["https://issuer".into()], settings().audiences, verifier);
    let authenticator = Authenticator::new(tokens);
    let ask = |token: &Value, audiences: Value| {
        let object = json!({"spec": {"token": token, "audiences": audiences}});
        token::review(&object, &authenticator, &Objects, now())
    };
    let status = ask(&answer.object["status"]["token"], json!(["vault"])).unwrap();
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:ns:sa");
    assert_eq!(ask(&answer.object["status"]["token"], Value::Null).unwrap()["audiences"], json!(["api"]));
    let status = ask(&answer.object["status"]["token"], json!(["other"])).unwrap();
    assert_eq!(status.get("authenticated"), None);
    assert_eq!(
        status["error"],
        "[invalid bearer token, token audiences [\"vault\" \"api\"] is invalid for the target audiences [\"other\"]]"
    );
    assert_eq!(ask(&json!("rubbish"), Value::Null).unwrap()["error"], "invalid bearer token");
    assert_eq!(
        ask(&json!(""), Value::Null),
        Err("token is required for TokenReview in authentication".to_owned())
    );
}

#[test]
fn others_learn_how_to_verify() {
    let verifier = pki::Verifier::new([signer().public().clone()]);
    assert_eq!(
        openid_configuration("https://issuer", "https://issuer/openid/v1/jwks", &verifier),
        json!({"issuer": "https://issuer", "jwks_uri": "https://issuer/openid/v1/jwks",
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"]})
    );
}
