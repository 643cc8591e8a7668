//! Any object and any configuration applied to it, twice: the second time changes nothing.
#![no_main]

use api::kinds;
use patch::{WriteContext, apply};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(live), Ok(mut config)) =
        (serde_json::from_slice::<Value>(&bytes[..at]), serde_json::from_slice::<Value>(&bytes[at..]))
    else {
        return;
    };
    if !config.is_object() || !live.is_object() {
        return;
    }
    config["apiVersion"] = "v1".into();
    let pod = kinds::all().iter().find(|kind| kind.plural == "pods").expect("pods are built in");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let context = WriteContext { manager: "m", api_version: "v1", subresource: "", reset_fields: &["status"], now };
    if let Ok(once) = apply(pod.schema(), Some(&live), &config, &context, true) {
        let twice = apply(pod.schema(), Some(&once), &config, &context, true);
        assert_eq!(twice.as_ref(), Ok(&once));
    }
});
