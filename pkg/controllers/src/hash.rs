//! Hashes of templates, in the shape that upstream gives them: ten safe letters at most.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;

/// The hash of a pod template; collisions make it another one.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hash = Fnv32::default();
    hash.json(template);
    if let Some(collisions) = collisions {
        hash.bytes(&i64::from(collisions).to_le_bytes());
    }
    safe(hash.0)
}

/// The hash of anything that is JSON, with a number beside it.
pub fn json_hash(value: &impl Serialize, number: Option<i32>) -> String {
    let mut hash = Fnv32::default();
    hash.json(value);
    if let Some(number) = number {
        hash.bytes(number.to_string().as_bytes());
    }
    safe(hash.0)
}

/// A number in letters and digits that spell no words.
fn safe(number: u32) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let encode = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    number.to_string().bytes().map(encode).collect()
}

struct Fnv32(u32);

impl Default for Fnv32 {
    fn default() -> Self {
        Fnv32(0x811c_9dc5)
    }
}

impl Fnv32 {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn json(&mut self, value: &impl Serialize) {
        // Through a Value, whose keys are sorted.
        let value = serde_json::to_value(value).unwrap_or_default();
        self.bytes(value.to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_upstreams_shape() {
        let mut hash = Fnv32::default();
        hash.bytes(b"hello");
        assert_eq!(hash.0, 0x4f9f_2cab);
        assert_eq!(safe(10), "54");
        let template = PodTemplateSpec::default();
        assert_ne!(template_hash(&template, None), template_hash(&template, Some(1)));
        assert_eq!(template_hash(&template, None), template_hash(&template, None));
    }
}
