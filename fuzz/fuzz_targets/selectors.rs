//! Any text as a label or field selector. What parses must print as something that parses to the same.
#![no_main]

use api::selector::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()).as_ref(), Ok(&selector));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert_eq!(FieldSelector::parse(&selector.to_string()).as_ref(), Ok(&selector));
    }
});
