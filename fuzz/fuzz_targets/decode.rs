//! Any bytes: decoded, checked against every kind, defaulted, validated. Nothing may panic.
#![no_main]

use api::{Errors, Field, decode, kinds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, body)) = bytes.split_first() else { return };
    let Ok(decoded) = decode::decode(body) else { return };
    let all = kinds::all();
    let kind = &all[usize::from(first) % all.len()];
    let mut object = decoded.value;
    if kind.schema().check(&mut object).is_err() {
        return;
    }
    (kind.default)(&mut object);
    (kind.prepare)(&mut object, None);
    let mut errors = Errors::new();
    (kind.validate)(&Field::root(&object), &mut errors);
    (kind.validate_update)(&Field::root(&object), &Field::root(&object), &mut errors);
});
