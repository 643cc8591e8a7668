//! Bootstrap tokens: the short-lived secret by which a new machine and a cluster recognise each other.

use crate::Error;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use std::fmt;
use std::str::FromStr;

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// `<id>.<secret>`: the id may be known, the secret may not. Its `Debug` shows the id only.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: String,
}

impl BootstrapToken {
    /// A new random token.
    pub fn generate() -> Result<Self, Error> {
        Ok(BootstrapToken { id: random(ID_LENGTH)?, secret: random(SECRET_LENGTH)? })
    }

    /// The part that names the token.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The part that proves it.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The detached signature of a text, as `cluster-info` carries it under `jws-kubeconfig-<id>`.
    pub fn sign(&self, content: &str) -> String {
        let header = header_of(&self.id);
        let tag = hmac::sign(&self.key(), message(&header, content).as_bytes());
        format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether the detached signature is of that text and by this token.
    pub fn verify(&self, content: &str, signature: &str) -> bool {
        let Some((header, tag)) = signature.split_once("..") else { return false };
        let expected = header_of(&self.id);
        let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(tag) else { return false };
        header == expected && hmac::verify(&self.key(), message(header, content).as_bytes(), &tag).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes())
    }
}

impl FromStr for BootstrapToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let part = |part: &str, length| part.len() == length && part.bytes().all(|b| LETTERS.contains(&b));
        match text.split_once('.') {
            Some((id, secret)) if part(id, ID_LENGTH) && part(secret, SECRET_LENGTH) => {
                Ok(BootstrapToken { id: id.to_owned(), secret: secret.to_owned() })
            }
            _ => Err(Error::BootstrapToken),
        }
    }
}

/// The whole token: for the one who needs it.
impl fmt::Display for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret)
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapToken").field("id", &self.id).finish_non_exhaustive()
    }
}

fn header_of(id: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string())
}

fn message(header: &str, content: &str) -> String {
    format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content))
}

/// Random letters and digits, each as likely as the other: bytes that would favour some are thrown away.
fn random(length: usize) -> Result<String, Error> {
    let fair = 256 - 256 % LETTERS.len();
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
        let letters = bytes.iter().map(|&byte| usize::from(byte)).filter(|&byte| byte < fair);
        text.extend(letters.take(length - text.len()).map(|byte| LETTERS[byte % LETTERS.len()] as char));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_tokens_are_taken() {
        let check = |text: &str, good| assert_eq!(text.parse::<BootstrapToken>().is_ok(), good, "{text}");
        check("abcdef.0123456789abcdef", true);
        check("abcdef.0123456789abcde", false);
        check("ABCDEF.0123456789abcdef", false);
        check("abcdef-0123456789abcdef", false);
        check("abcdef.0123456789abcdef.", false);
        check("", false);
        let token = BootstrapToken::generate().unwrap();
        assert_eq!(token.to_string().parse::<BootstrapToken>().unwrap(), token);
        assert!(!format!("{token:?}").contains(token.secret()));
    }

    #[test]
    fn the_signature_is_a_jws_with_its_content_taken_out() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        // Computed with another implementation of HMAC.
        assert_eq!(
            token.sign("apiVersion: v1\n"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE"
        );
    }

    #[test]
    fn a_signature_is_of_one_text_and_one_token() {
        let (one, two) = (BootstrapToken::generate().unwrap(), BootstrapToken::generate().unwrap());
        let signature = one.sign("text");
        assert!(one.verify("text", &signature));
        assert!(!one.verify("other", &signature));
        assert!(!two.verify("text", &signature));
        assert!(!one.verify("text", "rubbish"));
        assert!(!one.verify("text", &signature.replace("..", ".x.")));
    }
}
