//! Any document and any patch of it: an answer or an error, never a panic.
#![no_main]

use api::kinds;
use patch::{PatchType, apply_patch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(document), Ok(patch)) = (serde_json::from_slice(&bytes[..at]), serde_json::from_slice(&bytes[at..])) else {
        return;
    };
    let pod = kinds::all().iter().find(|kind| kind.plural == "pods").expect("pods are built in");
    let _ = apply_patch(PatchType::Json, pod.schema(), document, patch);
});
