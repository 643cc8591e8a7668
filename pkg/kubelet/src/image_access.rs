//! Who may use the images that are on this node: an image that credentials brought is for pods that have them, too.
//!
//! ```text
//! pull ──> pulling/<hash of the name> ──> registry ──> pulled/<hash of the id>: name ─> whose credentials, or anybody
//! pod whose policy is IfNotPresent or Never ──> pulled ──> use it, or pull it with the pod's own credentials
//! ```
//!
//! The files are upstream's, in its form and at its places. A pull that a crash ended has left its intent: what came of it
//! was not preloaded by an administrator, and is for nobody until the registry has said for whom.

use crate::runtime::{Credentials, Image, ImageId, image_repository, normalize_image};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// An image remembers so many Secrets, as upstream.
const MOST_SECRETS: usize = 100;
/// A record that is younger than this may be of an image that nobody has listed yet.
const YOUNGEST: SignedDuration = SignedDuration::from_secs(2 * 60);

/// Of which images it is verified that a pod may use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ImageVerification {
    /// Of none.
    Never,
    /// Of those that the kubelet has pulled.
    #[default]
    NeverPreloaded,
    /// Of all but these, which have been here before: names without a tag; with `/*` at the end all below.
    NeverAllowlisted(Vec<String>),
    /// Of all.
    Always,
}

/// Credentials of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PullSecret {
    /// What they are.
    pub credentials: Credentials,
    /// Which Secret.
    pub source: SecretSource,
}

/// A Secret, and the hash of the credentials that it has for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretSource {
    uid: String,
    namespace: String,
    name: String,
    credential_hash: String,
}

impl SecretSource {
    /// The Secret that has these credentials.
    pub fn new(namespace: &str, name: &str, uid: &str, credentials: &Credentials) -> SecretSource {
        let Credentials { username, password } = credentials;
        let text = serde_json::json!({"username": username, "password": password}).to_string();
        let (uid, namespace, name) = (uid.to_owned(), namespace.to_owned(), name.to_owned());
        SecretSource { uid, namespace, name, credential_hash: hex(&text) }
    }

    fn is_of(&self, other: &SecretSource) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretSource>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PulledRecord {
    kind: String,
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    #[serde(default)]
    credential_mapping: BTreeMap<String, Granted>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullIntent {
    kind: String,
    api_version: String,
    image: String,
}

/// Whether a pod may use an image that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any pod may.
    Anybody,
    /// One that has the credentials of one of these Secrets.
    WhoHas(Vec<SecretSource>),
    /// Only the registry can tell.
    Unknown,
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullEnd<'a> {
    /// With an image, by the credentials of a Secret or of nobody.
    Pulled(&'a ImageId, Option<&'a SecretSource>),
    /// Without one.
    Failed,
    /// Nobody knows: who waited for it does not any more.
    Abandoned,
}

/// The records of who may use which image.
pub(crate) struct ImageAccess {
    dir: PathBuf,
    policy: ImageVerification,
    /// How many pulls of a name are under way. Held while files are read and written.
    pulling: Mutex<BTreeMap<String, usize>>,
}

impl ImageAccess {
    /// Below the kubelet's folder.
    pub fn new(root: &Path, policy: ImageVerification) -> ImageAccess {
        ImageAccess { dir: root.join("image_manager"), policy, pulling: Mutex::default() }
    }

    /// Who may use an image under this name.
    pub fn of(&self, name: &str, image: &Image) -> Result<Access> {
        let _pulling = self.pulling.lock();
        let repository = image_repository(name).unwrap_or_default();
        let record = self.record(&image.id)?;
        let was_pulled = record.is_some() || self.has_intent(image)?;
        Ok(access(&self.policy, record.as_ref(), was_pulled, &repository))
    }

    /// Whether one of these Secrets is among those that may. What is new of it is remembered.
    pub fn admits(&self, name: &str, id: &ImageId, granted: &[SecretSource], own: &[SecretSource]) -> bool {
        let known = |own: &&SecretSource| {
            granted.iter().any(|other| other.credential_hash == own.credential_hash || other.is_of(own))
        };
        let Some(source) = own.iter().find(known) else { return false };
        if !granted.contains(source)
            && let Err(error) = self.pulled(name, id, Some(source))
        {
            tracing::warn!(image = name, %error, "write down who may use an image");
        }
        true
    }

    /// An image is about to be pulled.
    pub fn begin(&self, name: &str) -> Result<()> {
        let mut pulling = self.pulling.lock();
        let intent = PullIntent {
            kind: "ImagePullIntent".into(),
            api_version: API_VERSION.into(),
            image: name.into(),
        };
        write(&self.intent(name), &intent)?;
        *pulling.entry(name.to_owned()).or_default() += 1;
        Ok(())
    }

    /// A pull has ended.
    pub fn end(&self, name: &str, ended: PullEnd<'_>) -> Result<()> {
        let written = match ended {
            PullEnd::Pulled(id, source) => self.pulled(name, id, source),
            PullEnd::Failed | PullEnd::Abandoned => Ok(()),
        };
        let mut pulling = self.pulling.lock();
        let left = pulling.remove(name).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            pulling.insert(name.to_owned(), left);
        } else if written.is_ok() && ended != PullEnd::Abandoned {
            forget(&self.intent(name))?;
        }
        written
    }

    /// Forgets images that are not here any more.
    pub fn prune(&self, here: &BTreeSet<ImageId>, now: Timestamp) -> Result<()> {
        let _pulling = self.pulling.lock();
        for path in files(&self.dir.join("pulled"))? {
            let record: Option<PulledRecord> = read(&path)?;
            let is_old = |record: &PulledRecord| now.duration_since(record.last_updated_time) > YOUNGEST;
            let is_here = |record: &PulledRecord| here.iter().any(|id| id.0 == record.image_ref);
            if record.is_some_and(|record| is_old(&record) && !is_here(&record)) {
                forget(&path)?;
            }
        }
        Ok(())
    }

    fn pulled(&self, name: &str, id: &ImageId, source: Option<&SecretSource>) -> Result<()> {
        let _pulling = self.pulling.lock();
        let repository = image_repository(name).ok_or(ErrorKind::InvalidInput)?;
        let mut record = self.record(id)?.unwrap_or_else(|| PulledRecord {
            kind: "ImagePulledRecord".into(),
            api_version: API_VERSION.into(),
            last_updated_time: Timestamp::now(),
            image_ref: id.0.clone(),
            credential_mapping: BTreeMap::new(),
        });
        grant(record.credential_mapping.entry(repository).or_default(), source);
        record.last_updated_time = Timestamp::now();
        write(&self.pulled_file(id), &record)
    }

    fn record(&self, id: &ImageId) -> Result<Option<PulledRecord>> {
        read(&self.pulled_file(id))
    }

    /// Whether an image, under any of its names, is being pulled, or was when the kubelet crashed.
    fn has_intent(&self, image: &Image) -> Result<bool> {
        for path in files(&self.dir.join("pulling"))? {
            let intent: Option<PullIntent> = read(&path)?;
            let name = intent.and_then(|intent| normalize_image(&intent.image).ok());
            if name.is_some_and(|name| image.tags.contains(&name) || image.digests.contains(&name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pulled_file(&self, id: &ImageId) -> PathBuf {
        self.dir.join("pulled").join(format!("sha256-{}", hex(&id.0)))
    }

    fn intent(&self, name: &str) -> PathBuf {
        self.dir.join("pulling").join(format!("sha256-{}", hex(name)))
    }
}

/// What a record and the policy say of an image under this name.
fn access(
    policy: &ImageVerification,
    record: Option<&PulledRecord>,
    was_pulled: bool,
    repository: &str,
) -> Access {
    let is_listed = |list: &[String]| {
        list.iter().any(|listed| match listed.strip_suffix("/*") {
            Some(above) => repository.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
            None => listed == repository,
        })
    };
    let is_verified = match policy {
        ImageVerification::Never => false,
        ImageVerification::NeverPreloaded => was_pulled,
        ImageVerification::NeverAllowlisted(list) => was_pulled || !is_listed(list),
        ImageVerification::Always => true,
    };
    if !is_verified {
        return Access::Anybody;
    }
    match record.and_then(|record| record.credential_mapping.get(repository)) {
        Some(granted) if granted.node_pods_accessible => Access::Anybody,
        Some(granted) if !granted.kubernetes_secrets.is_empty() => {
            Access::WhoHas(granted.kubernetes_secrets.clone())
        }
        _ => Access::Unknown,
    }
}

/// What credentials of nobody bring is everybody's. A Secret whose credentials have changed is remembered with the new.
fn grant(granted: &mut Granted, source: Option<&SecretSource>) {
    let Some(source) = source else {
        *granted = Granted { node_pods_accessible: true, ..Granted::default() };
        return;
    };
    if granted.node_pods_accessible || granted.kubernetes_secrets.contains(source) {
        return;
    }
    granted.kubernetes_secrets.retain(|other| !other.is_of(source));
    if granted.kubernetes_secrets.len() >= MOST_SECRETS {
        granted.kubernetes_secrets.remove(0);
    }
    granted.kubernetes_secrets.push(source.clone());
}

fn hex(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("strings take everything");
        hex
    })
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A file that is not what it should be is an error, and not "nothing is known": that would let everybody in.
fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(Error::other),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, content: &impl Serialize) -> Result<()> {
    path.parent().map_or(Ok(()), crate::host::make_private)?;
    let text = serde_json::to_vec(content)?;
    pki::file::write(path, &text, pki::file::Mode::Secret).map_err(Error::other)
}

fn forget(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "reg.example/team/app:1";

    fn secret(name: &str, uid: &str, password: &str) -> SecretSource {
        let credentials = Credentials { username: "me".into(), password: password.into() };
        SecretSource::new("ns", name, uid, &credentials)
    }

    fn id(number: u32) -> ImageId {
        ImageId(format!("sha256:{number:064x}"))
    }

    /// The first is the one that is pulled here.
    fn image(number: u32) -> Image {
        Image {
            id: id(number),
            tags: vec![if number == 1 { NAME.into() } else { format!("reg.example/team/app:{number}0") }],
            digests: vec![],
            size_bytes: 0,
            user: None,
            user_name: None,
            is_pinned: false,
        }
    }

    #[test]
    fn an_image_is_for_those_who_could_have_pulled_it() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImageAccess::new(dir.path(), ImageVerification::default());
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::Anybody, "it was here before");
        let own = secret("login", "u1", "p");
        images.begin(NAME).unwrap();
        assert_eq!(images.of("reg.example/team/app@sha256:1", &image(1)).unwrap(), Access::Unknown);
        images.end(NAME, PullEnd::Pulled(&id(1), Some(&own))).unwrap();
        let granted = vec![own.clone()];
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::WhoHas(granted.clone()));
        assert_eq!(images.of("reg.example/team/app:2", &image(1)).unwrap(), Access::WhoHas(granted.clone()));
        assert_eq!(images.of("other.example/app", &image(1)).unwrap(), Access::Unknown, "by another name");
        assert_eq!(images.of(NAME, &image(2)).unwrap(), Access::Anybody, "another image");

        for (asks, expected) in [
            (own, true),
            (secret("login", "u1", "changed"), true),
            (secret("other", "u2", "p"), true),
            (secret("other", "u2", "wrong"), false),
            (secret("login", "made anew", "wrong"), false),
        ] {
            assert_eq!(
                images.admits(NAME, &id(1), &granted, std::slice::from_ref(&asks)),
                expected,
                "{asks:?}"
            );
        }
        assert!(!images.admits(NAME, &id(1), &granted, &[]));

        // After a restart: the Secret's new password counts, and the other Secret's.
        let images = ImageAccess::new(dir.path(), ImageVerification::default());
        let Access::WhoHas(granted) = images.of(NAME, &image(1)).unwrap() else { panic!("it is known") };
        assert_eq!(granted, [secret("login", "u1", "changed"), secret("other", "u2", "p")]);
        // Somebody had it without any credentials.
        images.begin(NAME).unwrap();
        images.end(NAME, PullEnd::Pulled(&id(1), None)).unwrap();
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::Anybody);
    }

    #[test]
    fn a_pull_that_a_crash_ended_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        ImageAccess::new(dir.path(), ImageVerification::default()).begin(NAME).unwrap();
        let images = ImageAccess::new(dir.path(), ImageVerification::default());
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::Unknown);
        assert_eq!(images.of(NAME, &image(2)).unwrap(), Access::Anybody, "another of the repository");
        images.begin(NAME).unwrap();
        images.end(NAME, PullEnd::Abandoned).unwrap();
        images.begin(NAME).unwrap();
        images.begin(NAME).unwrap();
        images.end(NAME, PullEnd::Failed).unwrap();
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::Unknown, "another one goes on");
        images.end(NAME, PullEnd::Failed).unwrap();
        assert_eq!(images.of(NAME, &image(1)).unwrap(), Access::Anybody);
    }

    #[test]
    fn a_broken_record_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImageAccess::new(dir.path(), ImageVerification::default());
        images.begin(NAME).unwrap();
        images.end(NAME, PullEnd::Pulled(&id(1), None)).unwrap();
        std::fs::write(images.pulled_file(&id(1)), "{").unwrap();
        assert!(images.of(NAME, &image(1)).is_err());
    }

    #[test]
    fn the_policy_says_what_is_verified() {
        let of = |policy, was_pulled| access(&policy, None, was_pulled, "reg.example/team/app");
        let listed = |name: &str| ImageVerification::NeverAllowlisted(vec![name.to_owned()]);
        for (policy, expected) in [
            (ImageVerification::Never, Access::Anybody),
            (ImageVerification::NeverPreloaded, Access::Anybody),
            (ImageVerification::Always, Access::Unknown),
            (listed("reg.example/team/app"), Access::Anybody),
            (listed("reg.example/*"), Access::Anybody),
            (listed("reg.example/te/*"), Access::Unknown),
            (listed("reg.example/team"), Access::Unknown),
        ] {
            assert_eq!(of(policy.clone(), false), expected, "{policy:?}");
        }
        assert_eq!(of(ImageVerification::Never, true), Access::Anybody);
        assert_eq!(of(listed("reg.example/*"), true), Access::Unknown);
    }

    #[test]
    fn images_that_are_gone_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImageAccess::new(dir.path(), ImageVerification::default());
        for number in 1..3 {
            images.begin(NAME).unwrap();
            images.end(NAME, PullEnd::Pulled(&id(number), None)).unwrap();
        }
        let here = BTreeSet::from([id(2)]);
        images.prune(&here, Timestamp::now()).unwrap();
        assert_eq!(
            files(&dir.path().join("image_manager/pulled")).unwrap().len(),
            2,
            "it may just have come"
        );
        images.prune(&here, Timestamp::now() + SignedDuration::from_hours(1)).unwrap();
        assert!(images.record(&id(1)).unwrap().is_none() && images.record(&id(2)).unwrap().is_some());
    }
}
