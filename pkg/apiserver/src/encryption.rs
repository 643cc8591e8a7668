//! Secrets at rest: values sealed with AES-256-GCM before they reach the store.
//!
//! ```text
//! k8s:enc:aesgcm:v1:<key name>:<nonce, 12 bytes><ciphertext><tag, 16 bytes>
//! ```
//!
//! The store key is authenticated along with the value, so that a sealed value counts only where it was written:
//! whoever can write to the store cannot move one Secret over another. Values without the prefix are read as they
//! are, so that encryption can be turned on for a store that has values already.
//!
//! # Limits
//! Nonces are random, 96 bits. NIST allows 2^32 values per key that way (the chance of two equal nonces stays under
//! 2^-32); that is a write of a Secret every second for 136 years. [`Keys::rotate`] starts a new count.

use pki::file::{self, Mode};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::path::Path;

const PREFIX: &[u8] = b"k8s:enc:aesgcm:v1:";
const FILE: &str = "encryption-keys.json";
/// Names are found by looking for the colon after them; none is longer than this.
const LONGEST_NAME: usize = 63;
const KEY_LENGTH: usize = 32;

/// Why a value could not be sealed or opened. Tells where, never what.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key file is there and cannot be used.
    #[error("unusable {FILE}: {0}")]
    KeyFile(&'static str),
    /// The key file could not be read or written.
    #[error("access {FILE}")]
    File(#[source] pki::Error),
    /// The system gave no random bytes.
    #[error("no random bytes")]
    Random,
    /// The value was sealed with a key that is not in the key file.
    #[error("the value of {key} is sealed with the key {name:?}, which is not in {FILE}")]
    UnknownKey {
        /// The store key.
        key: String,
        /// The key's name.
        name: String,
    },
    /// The value was changed, cut, moved from another store key, or sealed with another key of the same name.
    #[error("the value of {key} cannot be opened: it is corrupt, or was written for another key")]
    Corrupt {
        /// The store key.
        key: String,
    },
}

/// A value read from the store.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// The value itself.
    pub value: Vec<u8>,
    /// Whether it should be written again: it was plain, or sealed with a key that is no longer the first.
    pub is_stale: bool,
}

/// The keys: the first one seals, all of them open. Their `Debug` shows names only.
pub struct Keys(Vec<NamedKey>);

struct NamedKey {
    name: String,
    bytes: [u8; KEY_LENGTH],
    key: LessSafeKey,
}

/// The form of the key file.
#[derive(Serialize, Deserialize)]
struct Document {
    keys: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    /// Base64 of 32 bytes.
    secret: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.name)).finish()
    }
}

impl Keys {
    /// The keys of a data directory; the first one is made where there are none.
    pub fn load(dir: &Path) -> Result<Keys, Error> {
        match file::read(&dir.join(FILE)).map_err(Error::File)? {
            Some(text) => Keys::parse(&text),
            None => {
                let keys = Keys(vec![NamedKey::generate("key1".to_owned())?]);
                keys.write(dir)?;
                Ok(keys)
            }
        }
    }

    /// Puts a new key in front and keeps the others. It is in the file before anything is sealed with it.
    ///
    /// With more than one server on one store, all of them must have the file before one of them uses it.
    pub fn rotate(&mut self, dir: &Path) -> Result<(), Error> {
        let number = |key: &NamedKey| key.name.strip_prefix("key").and_then(|n| n.parse::<u64>().ok());
        let next = self.0.iter().filter_map(number).max().unwrap_or(0).saturating_add(1);
        self.0.insert(0, NamedKey::generate(format!("key{next}"))?);
        let written = self.write(dir);
        if written.is_err() {
            // What is not in the file must not be used: nobody could open it after a restart.
            self.0.remove(0);
        }
        written
    }

    /// Seals a value for a store key.
    pub fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        let first = self.0.first().ok_or(Error::KeyFile("it has no keys"))?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| Error::Random)?;
        let mut body = value.to_vec();
        first
            .key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(key.as_bytes()),
                &mut body,
            )
            .map_err(|_| Error::Corrupt { key: key.to_owned() })?;
        Ok([PREFIX, first.name.as_bytes(), b":", &nonce, &body].concat())
    }

    /// Opens what stands at a store key.
    pub fn open(&self, key: &str, stored: &[u8]) -> Result<Opened, Error> {
        let Some(rest) = stored.strip_prefix(PREFIX) else {
            return Ok(Opened { value: stored.to_vec(), is_stale: true });
        };
        let corrupt = || Error::Corrupt { key: key.to_owned() };
        let colon = rest.iter().take(LONGEST_NAME + 1).position(|&byte| byte == b':').ok_or_else(corrupt)?;
        let (name, body) = (&rest[..colon], &rest[colon + 1..]);
        let index = self.0.iter().position(|own| own.name.as_bytes() == name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            Error::UnknownKey { key: key.to_owned(), name }
        })?;
        let (nonce, body) = body.split_at_checked(NONCE_LEN).ok_or_else(corrupt)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| corrupt())?;
        let mut body = body.to_vec();
        let length = self.0[index]
            .key
            .open_in_place(nonce, Aad::from(key.as_bytes()), &mut body)
            .map_err(|_| corrupt())?
            .len();
        body.truncate(length);
        Ok(Opened { value: body, is_stale: index != 0 })
    }

    /// Whether what stands at a store key should be written again, told without opening it.
    pub fn is_stale(&self, stored: &[u8]) -> bool {
        let first = self.0.first().map(|key| key.name.as_bytes()).unwrap_or_default();
        let rest = stored.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(first));
        rest.is_none_or(|rest| rest.first() != Some(&b':'))
    }

    fn parse(text: &str) -> Result<Keys, Error> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        // The parser's message may quote the file, and the file is secret.
        let document: Document =
            serde_json::from_str(text).map_err(|_| Error::KeyFile("it is not the JSON of a key file"))?;
        let mut keys: Vec<NamedKey> = Vec::new();
        for entry in document.keys {
            let fine =
                !entry.name.is_empty() && entry.name.len() <= LONGEST_NAME && !entry.name.contains(':');
            if !fine {
                return Err(Error::KeyFile("a key's name must have 1 to 63 characters and no colon"));
            }
            if keys.iter().any(|key| key.name == entry.name) {
                return Err(Error::KeyFile("two keys have the same name"));
            }
            let bytes = BASE64_STANDARD.decode(&entry.secret).ok();
            let bytes = bytes.and_then(|bytes| <[u8; KEY_LENGTH]>::try_from(bytes).ok());
            let bytes = bytes.ok_or(Error::KeyFile("a key must be the base64 of 32 bytes"))?;
            keys.push(NamedKey::new(entry.name, bytes)?);
        }
        if keys.is_empty() { Err(Error::KeyFile("it has no keys")) } else { Ok(Keys(keys)) }
    }

    fn write(&self, dir: &Path) -> Result<(), Error> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let entry =
            |key: &NamedKey| Entry { name: key.name.clone(), secret: BASE64_STANDARD.encode(key.bytes) };
        let document = Document { keys: self.0.iter().map(entry).collect() };
        let text =
            serde_json::to_vec_pretty(&document).map_err(|_| Error::KeyFile("it cannot be encoded"))?;
        file::write(&dir.join(FILE), &text, Mode::Secret).map_err(Error::File)
    }
}

impl NamedKey {
    fn new(name: String, bytes: [u8; KEY_LENGTH]) -> Result<NamedKey, Error> {
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| Error::KeyFile("a key must be the base64 of 32 bytes"))?;
        Ok(NamedKey { name, bytes, key: LessSafeKey::new(key) })
    }

    fn generate(name: String) -> Result<NamedKey, Error> {
        let mut bytes = [0; KEY_LENGTH];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
        NamedKey::new(name, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const KEY: &str = "/registry/secrets/default/a";

    fn keys() -> (tempfile::TempDir, Keys) {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::load(dir.path()).unwrap();
        (dir, keys)
    }

    #[test]
    fn what_is_sealed_is_opened_and_shows_nothing() {
        let (dir, keys) = keys();
        let sealed = keys.seal(KEY, b"password").unwrap();
        assert!(sealed.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
        assert!(!sealed.windows(8).any(|window| window == b"password"));
        assert_ne!(sealed, keys.seal(KEY, b"password").unwrap(), "nonces differ");
        let again = Keys::load(dir.path()).unwrap();
        let opened = Opened { value: b"password".to_vec(), is_stale: false };
        assert_eq!(again.open(KEY, &sealed).unwrap(), opened);
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(keys.open(KEY, &keys.seal(KEY, b"").unwrap()).unwrap().value, b"");
    }

    #[test]
    fn plain_values_are_read_and_to_be_written_again() {
        let (_dir, keys) = keys();
        let opened = keys.open(KEY, b"{}").unwrap();
        assert_eq!(opened, Opened { value: b"{}".to_vec(), is_stale: true });
        assert!(keys.is_stale(b"{}"));
    }

    #[test]
    fn after_rotation_old_values_are_read_and_stale() {
        let (dir, mut keys) = keys();
        let old = keys.seal(KEY, b"x").unwrap();
        assert!(!keys.is_stale(&old));
        for _ in 0..10 {
            keys.rotate(dir.path()).unwrap();
        }
        assert!(keys.is_stale(&old));
        let new = keys.seal(KEY, b"x").unwrap();
        assert!(new.starts_with(b"k8s:enc:aesgcm:v1:key11:") && !keys.is_stale(&new));
        let again = Keys::load(dir.path()).unwrap();
        assert_eq!(again.open(KEY, &old).unwrap(), Opened { value: b"x".to_vec(), is_stale: true });
        assert_eq!(again.open(KEY, &new).unwrap(), Opened { value: b"x".to_vec(), is_stale: false });
    }

    #[test]
    fn a_key_name_that_begins_as_another_is_another() {
        let (dir, mut keys) = keys();
        for _ in 0..9 {
            keys.rotate(dir.path()).unwrap();
        }
        let tenth = keys.seal(KEY, b"x").unwrap();
        let first = Keys(vec![keys.0.pop().unwrap()]);
        assert!(tenth.starts_with(b"k8s:enc:aesgcm:v1:key10:") && first.is_stale(&tenth));
    }

    #[test]
    fn whatever_is_wrong_is_told_by_place_and_not_by_content() {
        let (_dir, own) = keys();
        let (_other_dir, other) = keys();
        let sealed = own.seal(KEY, b"password").unwrap();
        let corrupt =
            format!("the value of {KEY} cannot be opened: it is corrupt, or was written for another key");
        let check = |keys: &Keys, key: &str, stored: &[u8], expected: &str| {
            assert_eq!(keys.open(key, stored).unwrap_err().to_string(), expected);
        };
        let moved = corrupt.replace(KEY, "/registry/secrets/default/b");
        check(&own, "/registry/secrets/default/b", &sealed, &moved);
        check(&other, KEY, &sealed, &corrupt);
        check(&own, KEY, &sealed[..30], &corrupt);
        check(&own, KEY, b"k8s:enc:aesgcm:v1:", &corrupt);
        for at in [PREFIX.len() + 5, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            check(&own, KEY, &changed, &corrupt);
        }
        check(
            &own,
            KEY,
            b"k8s:enc:aesgcm:v1:gone:0123456789abcdef",
            &format!("the value of {KEY} is sealed with the key \"gone\", which is not in {FILE}"),
        );
    }

    #[test]
    fn a_broken_key_file_is_refused_not_replaced() {
        let check = |text: &str, expected: &str| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), text).unwrap();
            let error = Keys::load(dir.path()).unwrap_err().to_string();
            assert_eq!(error, format!("unusable {FILE}: {expected}"));
            assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), text);
        };
        let good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        check("", "it is not the JSON of a key file");
        check(r#"{"keys":[]}"#, "it has no keys");
        check(r#"{"keys":[{"name":"a","secret":"AA=="}]}"#, "a key must be the base64 of 32 bytes");
        check(
            &format!(r#"{{"keys":[{{"name":"a:b","secret":"{good}"}}]}}"#),
            "a key's name must have 1 to 63 characters and no colon",
        );
        check(
            &format!(r#"{{"keys":[{{"name":"a","secret":"{good}"}},{{"name":"a","secret":"{good}"}}]}}"#),
            "two keys have the same name",
        );
    }
}
