//! Names made by the server.

/// Characters that make no words and are not mistaken for each other.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them a generated name ends in.
const SUFFIX: usize = 5;
/// The longest prefix kept: with the suffix it makes a DNS label.
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// A name that begins with the prefix and is very likely new.
pub fn generate(prefix: &str) -> String {
    let mut kept = prefix;
    while kept.len() > LONGEST_PREFIX {
        let mut chars = kept.chars();
        chars.next_back();
        kept = chars.as_str();
    }
    let random = uuid::Uuid::new_v4();
    let suffix =
        random.as_bytes().iter().take(SUFFIX).map(|byte| ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    kept.chars().chain(suffix.map(char::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_their_prefix_and_fit_a_label() {
        let name = generate("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(generate(&"é".repeat(100)).chars().filter(|c| *c == 'é').count(), 29);
        assert!(generate(&"a".repeat(100)).len() <= 63);
    }
}
