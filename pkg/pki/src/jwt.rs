//! JSON Web Tokens, as service accounts carry them: signed with ES256, ES384 or RS256, nothing else.
//!
//! What the claims mean is not known here; only who signed them.

use crate::Error;
use crate::key::{PrivateKey, PublicKey};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// More than any token of ours; what is longer is not looked at.
const LONGEST_TOKEN: usize = 32 * 1024;

/// Signs tokens.
#[derive(Debug)]
pub struct Signer {
    key: PrivateKey,
}

impl Signer {
    /// Signs with this key.
    pub fn new(key: PrivateKey) -> Self {
        Signer { key }
    }

    /// The key that verifies what is signed here.
    pub fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// A token that carries the claims.
    pub fn sign(&self, claims: &Value) -> Result<String, Error> {
        let public = self.key.public();
        let header = json!({"alg": public.algorithm().name(), "kid": public.id()});
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let message =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = self.key.sign(message.as_bytes())?;
        Ok(format!("{message}.{}", encode(&signature)))
    }
}

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is not a token at all.
    #[error("malformed token")]
    Malformed,
    /// It names a key that is not ours.
    #[error("invalid signature, no keys found")]
    NoKey,
    /// It was not signed by the key that it names, or changed since.
    #[error("invalid signature")]
    Signature,
}

/// Verifies tokens by any of several keys, so that keys can be changed while tokens live.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    keys: Vec<PublicKey>,
}

impl Verifier {
    /// Believes these keys. A key that is given twice counts once.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let mut known: Vec<PublicKey> = Vec::new();
        for key in keys {
            if !known.contains(&key) {
                known.push(key);
            }
        }
        Verifier { keys: known }
    }

    /// The keys, in the order they were given.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The claims of a token that one of the keys signed.
    pub fn verify(&self, token: &str) -> Result<Value, JwtError> {
        let (header, claims, signature) = split(token).ok_or(JwtError::Malformed)?;
        let signed = &token[..header.len() + 1 + claims.len()];
        let header = decode(header).ok_or(JwtError::Malformed)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        let algorithm = header.get("alg").and_then(Value::as_str).ok_or(JwtError::Malformed)?;
        let id = header.get("kid").and_then(Value::as_str).unwrap_or_default();
        let mut candidates = self.keys.iter().filter(|key| id.is_empty() || key.id() == id).peekable();
        if candidates.peek().is_none() {
            return Err(JwtError::NoKey);
        }
        // The key says which algorithm counts; the token only gets to agree.
        if !candidates
            .any(|key| key.algorithm().name() == algorithm && key.verify(signed.as_bytes(), &signature))
        {
            return Err(JwtError::Signature);
        }
        decode(claims).ok_or(JwtError::Malformed)
    }

    /// The JSON Web Key Set that others verify our tokens with.
    pub fn jwks(&self) -> Value {
        json!({"keys": self.keys.iter().map(PublicKey::jwk).collect::<Vec<_>>()})
    }
}

/// What a token claims, believed or not: to find out whose token it might be.
pub fn unverified_claims(token: &str) -> Option<Value> {
    let (_, claims, _) = split(token)?;
    decode(claims)
}

fn split(token: &str) -> Option<(&str, &str, &str)> {
    if token.len() > LONGEST_TOKEN {
        return None;
    }
    let mut parts = token.split('.');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

fn decode(part: &str) -> Option<Value> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        Signer::new(PrivateKey::generate().unwrap())
    }

    #[test]
    fn a_token_is_believed_by_its_own_key_only() {
        let (one, two) = (signer(), signer());
        let claims = json!({"iss": "x", "sub": "y"});
        let token = one.sign(&claims).unwrap();
        let both = Verifier::new([two.public().clone(), one.public().clone(), one.public().clone()]);
        assert_eq!(both.keys().len(), 2);
        assert_eq!(both.verify(&token), Ok(claims.clone()));
        assert_eq!(unverified_claims(&token), Some(claims));
        assert_eq!(Verifier::new([two.public().clone()]).verify(&token), Err(JwtError::NoKey));
    }

    #[test]
    fn a_changed_token_is_not_believed() {
        let one = signer();
        let token = one.sign(&json!({"sub": "y"})).unwrap();
        let verifier = Verifier::new([one.public().clone()]);
        let parts: Vec<&str> = token.split('.').collect();
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let check = |token: String, expected| assert_eq!(verifier.verify(&token), Err(expected), "{token}");
        check(format!("{}.{}.{}", parts[0], encode(r#"{"sub":"z"}"#), parts[2]), JwtError::Signature);
        check(format!("{}.{}.", parts[0], parts[1]), JwtError::Signature);
        check(format!("{}.{}.{}", encode(r#"{"alg":"none"}"#), parts[1], parts[2]), JwtError::Signature);
        check(format!("{}.{}.{}", encode(r#"{"alg":"HS256"}"#), parts[1], parts[2]), JwtError::Signature);
        check(format!("{}.{}", parts[0], parts[1]), JwtError::Malformed);
        check(format!("{token}.x"), JwtError::Malformed);
        check("a".repeat(LONGEST_TOKEN + 1), JwtError::Malformed);
        check(String::new(), JwtError::Malformed);
    }

    #[test]
    fn the_key_set_carries_what_verifies() {
        let one = signer();
        let set = Verifier::new([one.public().clone()]).jwks();
        let key = &set["keys"][0];
        assert_eq!(key["kid"], one.public().id());
        assert_eq!((&key["kty"], &key["crv"], &key["alg"]), (&json!("EC"), &json!("P-256"), &json!("ES256")));
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap().len(), 32);
    }
}
