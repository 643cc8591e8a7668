//! Bodies as kubectl sends them, and bodies that nobody should send.

use super::*;
use serde_json::json;

/// A member that is a run of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short enough");
    assert!(length < 0x80, "one byte of length");
    [&[number << 3 | 2, length], content].concat()
}

/// A member that is an integer below 128.
fn integer(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC, &bytes(1, &type_meta), &bytes(2, raw), &bytes(3, b""), &bytes(4, b"")].concat()
}

#[track_caller]
fn check(api_version: &str, kind: &str, raw: &[u8], expected: Value) {
    let mut expected = expected;
    expected["apiVersion"] = api_version.into();
    expected["kind"] = kind.into();
    assert_eq!(decode(&body(api_version, kind, raw)).expect("decodes").value, expected);
}

#[test]
fn zero_scalars_are_left_out_unless_they_were_given() {
    let name = bytes(1, &[bytes(1, b"web"), bytes(3, b""), bytes(8, b"")].concat());
    check("v1", "Namespace", &name, json!({"metadata": {"name": "web"}}));
    let replicas = bytes(2, &integer(1, 0));
    check("apps/v1", "Deployment", &replicas, json!({"spec": {"replicas": 0}}));
    let paused = bytes(2, &integer(7, 0));
    check("apps/v1", "Deployment", &paused, json!({"spec": {}}));
}

#[test]
fn special_types_become_what_they_are_in_json() {
    let entry = [bytes(1, b"a"), bytes(2, b"\x01\x02")].concat();
    check("v1", "Secret", &bytes(2, &entry), json!({"data": {"a": "AQI="}}));
    let port =
        [integer(3, 80), bytes(4, &[integer(1, 1), integer(2, 0), bytes(3, b"http")].concat())].concat();
    check(
        "v1",
        "Service",
        &bytes(2, &bytes(1, &port)),
        json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}),
    );
    let hard = [bytes(1, b"pods"), bytes(2, &bytes(1, b"10"))].concat();
    check("v1", "ResourceQuota", &bytes(2, &bytes(1, &hard)), json!({"spec": {"hard": {"pods": "10"}}}));
    let time = bytes(1, &bytes(9, &integer(1, 1)));
    check("v1", "ConfigMap", &time, json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:01Z"}}));
    let renewed = bytes(2, &bytes(4, &integer(1, 1)));
    check(
        "coordination.k8s.io/v1",
        "Lease",
        &renewed,
        json!({"spec": {"renewTime": "1970-01-01T00:00:01.000000Z"}}),
    );
}

#[test]
fn embedded_messages_are_inlined() {
    let volume = [bytes(1, b"tmp"), bytes(2, &bytes(2, b""))].concat();
    let raw = bytes(2, &bytes(1, &volume));
    check("v1", "Pod", &raw, json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}));
}

#[test]
fn options_have_the_version_of_what_they_are_about() {
    check("policy/v1", "DeleteOptions", &integer(1, 0), json!({"gracePeriodSeconds": 0}));
}

#[test]
fn every_message_is_there_and_every_member_has_its_own_number() {
    for (name, message) in messages() {
        for member in message.values() {
            if let Type::Message(target) = &member.ty {
                assert!(messages().contains_key(target.as_str()), "{name}.{} is a {target}", member.name);
            }
        }
    }
    let members: usize = messages().values().map(HashMap::len).sum();
    let words = include_str!("fields.txt").lines().filter(|line| !line.starts_with('#'));
    assert_eq!(members, words.map(|line| line.split(' ').count() - 1).sum::<usize>());
}

#[test]
fn members_are_those_of_the_schema() {
    for (name, message) in messages() {
        let prefix = match name.split('.').next() {
            Some("meta") => "io.k8s.apimachinery.pkg.apis.",
            Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.",
            Some("apiregistration") => "io.k8s.kube-aggregator.pkg.apis.",
            _ => "io.k8s.api.",
        };
        let Some(schema) = crate::schema::definitions().get(&format!("{prefix}{name}")) else { continue };
        for member in message.values().filter(|member| !matches!(member.name, "^" | "selfLink")) {
            assert!(schema.property(member.name).is_some(), "{name} has no {}", member.name);
        }
    }
}

#[test]
fn every_built_in_kind_has_a_message() {
    for kind in crate::kinds::all().iter().filter(|kind| kind.group != "minik8s.io") {
        assert!(message_of(&kind.api_version(), &kind.kind).is_some(), "{}", kind.kind);
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let check = |body: &[u8], expected: &str| {
        assert_eq!(decode(body).expect_err("refused").to_string(), expected);
    };
    check(b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    check(b"k8s\0\x0a", "proto: unexpected EOF");
    check(b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow");
    check(&body("v1", "Nonsense", b""), "no kind \"Nonsense\" is registered for version \"v1\"");
    check(&body("v1", "Pod", &integer(1, 3)), "proto: wrong wireType");
    check(&body("v1", "Pod", &bytes(1, &bytes(1, b"\xff"))), "proto: text that is not UTF-8");
}

#[test]
fn nesting_is_bounded() {
    // JSONSchemaProps.not within each other.
    let mut schema = Vec::new();
    for _ in 0..200 {
        let mut tag = vec![0xe2, 0x01];
        let mut length = schema.len();
        while length >= 0x80 {
            tag.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
            length >>= 7;
        }
        tag.push(u8::try_from(length).expect("seven bits"));
        schema = [tag, schema].concat();
    }
    assert!(message(SCHEMA, &schema, 0).is_err());
}
