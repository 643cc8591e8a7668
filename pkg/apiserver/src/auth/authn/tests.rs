use super::*;
use crate::auth::Identity;
use pki::{Authority, PrivateKey, Signer, Verifier};
use serde_json::{Value, json};
use std::collections::HashMap;

const ISSUER: &str = "https://kubernetes.default.svc";
const NOW: i64 = 1_790_000_000;

/// Identities by `resource namespace/name`.
#[derive(Clone)]
struct Objects(HashMap<&'static str, Identity>);

impl Lookup for Objects {
    fn object(&self, _: &str, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn identity(&self, resource: &str, namespace: &str, name: &str) -> Option<Identity> {
        self.0.get(format!("{resource} {namespace}/{name}").as_str()).cloned()
    }
}

struct World {
    signer: Signer,
    authenticator: Authenticator,
    objects: Objects,
}

fn world() -> World {
    let signer = Signer::new(PrivateKey::generate().unwrap());
    let tokens = ServiceAccountTokens::new(
        vec![ISSUER.into(), "https://old".into()],
        vec![ISSUER.into()],
        Verifier::new([signer.public().clone()]),
    );
    let identity = |uid: &str| Identity { uid: uid.into(), deleted: None };
    let objects = Objects(HashMap::from([
        ("serviceaccounts ns/sa", identity("sa-uid")),
        ("pods ns/web", identity("pod-uid")),
        ("secrets ns/secret", identity("secret-uid")),
        ("nodes /n1", identity("node-uid")),
    ]));
    World { signer, authenticator: Authenticator::new(tokens), objects }
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:ns:sa", "jti": "id",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa", "uid": "sa-uid"},
            "pod": {"name": "web", "uid": "pod-uid"}, "node": {"name": "n1", "uid": "node-uid"}}})
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut claims = claims();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    claims.pointer_mut(parent).unwrap()[name] = value;
    claims
}

impl World {
    fn token(&self, claims: &Value) -> Result<User, Rejected> {
        let header = format!("Bearer {}", self.signer.sign(claims).unwrap());
        self.authenticator.request(None, Some(&header), &self.objects, at(NOW))
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

#[test]
fn a_service_account_is_known_by_its_token() {
    let user = world().token(&claims()).unwrap();
    assert_eq!(
        user.to_json(),
        json!({"username": "system:serviceaccount:ns:sa", "uid": "sa-uid",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=id"],
                "authentication.kubernetes.io/node-name": ["n1"],
                "authentication.kubernetes.io/node-uid": ["node-uid"],
                "authentication.kubernetes.io/pod-name": ["web"],
                "authentication.kubernetes.io/pod-uid": ["pod-uid"]}})
    );
}

#[test]
fn a_token_counts_for_its_time_audience_and_issuer() {
    let world = world();
    let check = |claims: Value, expected: &str| {
        let outcome = world.token(&claims).map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        let expected = match expected {
            "" | "invalid bearer token" => expected.to_owned(),
            reason => format!("[invalid bearer token, {reason}]"),
        };
        assert_eq!(outcome, expected, "{claims}");
    };
    check(changed("/exp", json!(NOW - 59)), "");
    check(changed("/exp", json!(NOW - 61)), "service account token has expired");
    check(changed("/exp", Value::Null), "service account token has expired");
    check(changed("/nbf", json!(NOW + 59)), "");
    check(changed("/nbf", json!(NOW + 61)), "service account token is not valid yet");
    check(changed("/iat", json!(NOW + 61)), "service account token is issued in the future");
    check(changed("/iss", json!("https://old")), "");
    check(changed("/iss", json!("https://other")), "invalid bearer token");
    check(changed("/aud", json!(ISSUER)), "");
    check(changed("/aud", json!([])), "");
    check(
        changed("/aud", json!(["a", "b"])),
        r#"token audiences ["a" "b"] is invalid for the target audiences ["https://kubernetes.default.svc"]"#,
    );
    check(changed("/kubernetes.io", json!({})), "service account token claims could not be validated");
    check(changed("/kubernetes.io/pod", json!("web")), "service account token claims could not be validated");
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let check = |claims: &Value, object: &'static str, change: Option<Identity>, expected: &str| {
        let mut world = world();
        assert!(world.token(claims).is_ok());
        match change {
            Some(identity) => world.objects.0.insert(object, identity),
            None => world.objects.0.remove(object),
        };
        let outcome = world.token(claims).map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        let expected =
            if expected.is_empty() { String::new() } else { format!("[invalid bearer token, {expected}]") };
        assert_eq!(outcome, expected, "{object}");
    };
    let other = || Some(Identity { uid: "new".into(), deleted: None });
    let deleted = |uid: &str, ago: i64| Some(Identity { uid: uid.into(), deleted: Some(at(NOW - ago)) });
    let gone = "service account token has been invalidated";
    let pod = claims();
    check(&pod, "serviceaccounts ns/sa", None, r#"serviceaccounts "sa" not found"#);
    check(&pod, "serviceaccounts ns/sa", other(), "service account UID (new) does not match claim (sa-uid)");
    check(&pod, "serviceaccounts ns/sa", deleted("sa-uid", 61), "service account ns/sa has been deleted");
    check(&pod, "serviceaccounts ns/sa", deleted("sa-uid", 59), "");
    check(&pod, "pods ns/web", None, gone);
    check(&pod, "pods ns/web", deleted("pod-uid", 61), gone);
    check(
        &pod,
        "pods ns/web",
        other(),
        "pod UID (new) does not match service account pod ref claim (pod-uid)",
    );
    check(&pod, "nodes /n1", None, "");
    let node = changed("/kubernetes.io/pod", Value::Null);
    check(&node, "nodes /n1", None, gone);
    check(
        &node,
        "nodes /n1",
        other(),
        "node UID (new) does not match service account node ref claim (node-uid)",
    );
    let mut secret = node;
    secret["kubernetes.io"]["secret"] = json!({"name": "secret", "uid": "secret-uid"});
    check(&secret, "secrets ns/secret", None, gone);
}

#[test]
fn a_wrong_token_makes_nobody_anonymous() {
    let world = world();
    let check = |header: &str, expected: Result<&str, &str>| {
        let outcome = world.authenticator.request(None, Some(header), &world.objects, at(NOW));
        let outcome = outcome.map(|user| user.name).map_err(|error| error.to_string());
        assert_eq!(outcome, expected.map(str::to_owned).map_err(str::to_owned), "{header}");
    };
    check("Bearer rubbish", Err("invalid bearer token"));
    check("bearer abcdef.0123456789abcdef", Err("invalid bearer token"));
    let foreign = Signer::new(PrivateKey::generate().unwrap()).sign(&claims()).unwrap();
    check(&format!("Bearer {foreign}"), Err("[invalid bearer token, invalid signature, no keys found]"));
    check("Basic amFuZTpwYXNz", Ok("system:anonymous"));
    check("Bearer ", Ok("system:anonymous"));
    check("", Ok("system:anonymous"));
    let nobody = world.authenticator.request(None, None, &world.objects, at(NOW)).unwrap();
    assert_eq!(nobody, User::anonymous());
}

#[test]
fn a_certificate_names_user_and_groups() {
    let world = world();
    let authority = Authority::create("kubernetes", at(NOW)).unwrap();
    let identity = authority.client("jane", &["dev", "ops"], at(NOW)).unwrap();
    let der = der(&identity.certificate);
    let user =
        world.authenticator.request(Some(&der), Some("Bearer rubbish"), &world.objects, at(NOW)).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", ""));
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    let id = &user.extra[User::CREDENTIAL_ID][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == "X509SHA256=".len() + 64);
    // A certificate that names nobody leaves it to the token.
    let nameless = authority.client("", &["dev"], at(NOW)).unwrap();
    let nameless = self::der(&nameless.certificate);
    let ask =
        |authorization| world.authenticator.request(Some(&nameless), authorization, &world.objects, at(NOW));
    assert_eq!(ask(None).unwrap(), User::anonymous());
    assert!(ask(Some("Bearer rubbish")).is_err());
    assert!(matches!(user_of_certificate(b"rubbish"), Err(Rejected::Certificate(_))));
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn audiences_are_those_asked_about_that_the_token_has() {
    let world = world();
    let token = world.signer.sign(&changed("/aud", json!(["a", "b", "c"]))).unwrap();
    let asked = ["c".to_owned(), "x".to_owned(), "a".to_owned()];
    let found = world.authenticator.token(&token, Some(&asked), &world.objects, at(NOW)).unwrap();
    assert_eq!(found.audiences, ["c", "a"]);
}
