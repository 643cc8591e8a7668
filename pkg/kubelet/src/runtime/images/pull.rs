//! Images from registries.

use super::super::{Credentials, Error, Image, Progress, Pulled};
use super::content::{self, whole};
use super::hosts::{Endpoint, endpoints};
use super::manifest::{DOCKER_LIST, DOCKER_MANIFEST, Descriptor, Manifest, OCI_INDEX, OCI_MANIFEST};
use super::reference::{parse, stored_name};
use super::store::{Images, references};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use oci_client::Reference;
use oci_client::client::{Certificate, CertificateEncoding, Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Layers fetched at the same time.
const CONCURRENT_LAYERS: usize = 3;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A registry that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(60);

type Key = (String, Vec<(String, String)>);
type Outcome = Arc<tokio::sync::Mutex<Option<Result<Pulled, Refusal>>>>;
type Report<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// Pulls, of which those of one reference with the same credentials join.
pub(crate) struct Pulls {
    images: Images,
    registries: PathBuf,
    running: Mutex<HashMap<Key, Outcome>>,
}

/// An error that several can be told.
#[derive(Debug, Clone)]
enum Refusal {
    NotFound(String),
    Refused(String),
    Failed(String),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(text) => Error::ImageNotFound(text),
            Refusal::Refused(text) => Error::ImageRefused(text),
            Refusal::Failed(text) => Error::Unavailable { source: text.clone().into(), doing: text },
        }
    }
}

impl Pulls {
    /// `registries` is a folder as containerd's `certs.d`.
    pub(crate) fn new(images: Images, registries: PathBuf) -> Self {
        // Another part of the program may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Pulls { images, registries, running: Mutex::default() }
    }

    /// Fetches an image.
    pub(crate) async fn pull(
        &self,
        name: &str,
        credentials: &[Credentials],
        progress: Report<'_>,
    ) -> Result<Pulled, Error> {
        let reference = parse(name)?;
        let pairs = credentials.iter().map(|one| (one.username.clone(), one.password.clone())).collect();
        let key = (stored_name(&reference), pairs);
        let outcome = self.running.lock().entry(key.clone()).or_default().clone();
        let mut outcome = outcome.lock().await;
        if let Some(known) = &*outcome {
            return Ok(known.clone()?);
        }
        let result = self.fetch(&reference, credentials, progress).await;
        *outcome = Some(result.clone());
        self.running.lock().remove(&key);
        Ok(result?)
    }

    /// Tries the places in turn, and at each the credentials in turn and then none.
    async fn fetch(
        &self,
        reference: &Reference,
        credentials: &[Credentials],
        progress: Report<'_>,
    ) -> Result<Pulled, Refusal> {
        let name = stored_name(reference);
        let mut last = Refusal::NotFound(format!("{name}: not found"));
        let places = endpoints(&self.registries, reference.registry())
            .map_err(|error| Refusal::Failed(error.to_string()))?;
        let auths: Vec<RegistryAuth> = credentials
            .iter()
            .map(|one| RegistryAuth::Basic(one.username.clone(), one.password.clone()))
            .chain([RegistryAuth::Anonymous])
            .collect();
        for place in &places {
            for (index, auth) in auths.iter().enumerate() {
                let client = client(place).map_err(|error| Refusal::Failed(error.to_string()))?;
                let mut at = reference.clone();
                if place.host != at.resolve_registry() {
                    at.set_mirror_registry(place.host.clone());
                }
                let source = Source { client, reference: at, auth: auth.clone(), place: place.clone() };
                match self.images.fetch_from(source, &name, progress).await {
                    Ok(image) => {
                        let by = (index < credentials.len()).then_some(index);
                        return Ok(Pulled { image, by });
                    }
                    Err(refusal) => {
                        tracing::debug!(image = name, host = place.host, ?refusal, "not pulled");
                        // What the first credentials were told says more than what nobody is told.
                        if !matches!((&last, &refusal), (Refusal::Refused(_), Refusal::Refused(_))) {
                            last = refusal;
                        }
                    }
                }
            }
        }
        Err(worded(&name, last))
    }
}

/// As containerd's Kubernetes plugin says it, and so what people search for.
fn worded(name: &str, refusal: Refusal) -> Refusal {
    let text = |code: &str, why: &str| {
        format!("rpc error: code = {code} desc = failed to pull and unpack image {name:?}: {why}")
    };
    match refusal {
        Refusal::NotFound(why) => Refusal::NotFound(text("NotFound", &why)),
        Refusal::Refused(why) => Refusal::Refused(text("Unknown", &why)),
        Refusal::Failed(why) => Refusal::Failed(text("Unknown", &why)),
    }
}

struct Source {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    place: Endpoint,
}

impl Images {
    async fn fetch_from(&self, source: Source, name: &str, progress: Report<'_>) -> Result<Image, Refusal> {
        let fetched =
            self.leased(|images| async move { Ok(images.fetch_parts(&source, name, progress).await) });
        fetched.await.map_err(failed)?
    }

    async fn fetch_parts(&self, source: &Source, name: &str, progress: Report<'_>) -> Result<Image, Refusal> {
        let resolving = |error| source.refusal(name, error);
        let (bytes, target) = source.manifest(&source.reference).await.map_err(resolving)?;
        let (manifest, list) = match Manifest::parse(&bytes).map_err(failed)? {
            list if list.is_list() => {
                let chosen = list.for_this_platform().map_err(failed)?.digest.clone();
                let at = source.reference.clone_with_digest(chosen);
                (source.manifest(&at).await.map_err(resolving)?, Some((list, bytes)))
            }
            _ => ((bytes, target.clone()), None),
        };
        let (bytes, descriptor) = manifest;
        let manifest = Manifest::parse(&bytes).map_err(failed)?;
        self.fetch_blobs(source, name, &manifest, progress).await?;
        let mut documents = vec![(descriptor, references(&manifest), bytes)];
        documents.extend(list.map(|(list, bytes)| (target.clone(), references(&list), bytes)));
        for (descriptor, labels, bytes) in documents {
            let written =
                content::write(&self.connection, &descriptor.digest, descriptor.size, labels, whole(bytes));
            written.await.map_err(failed)?;
        }
        self.publish(&target, &[name.to_owned()]).await.map_err(failed)
    }

    async fn fetch_blobs(
        &self,
        source: &Source,
        name: &str,
        manifest: &Manifest,
        progress: Report<'_>,
    ) -> Result<(), Refusal> {
        let parts: Vec<&Descriptor> = manifest.config.iter().chain(&manifest.layers).collect();
        let size = |part: &Descriptor| u64::try_from(part.size).unwrap_or_default();
        let total_bytes = parts.iter().map(|part| size(part)).sum();
        let done = Arc::new(AtomicU64::new(0));
        let report =
            |done: &AtomicU64| progress(Progress { done_bytes: done.load(Ordering::Relaxed), total_bytes });
        report(&done);
        let fetches: Vec<BoxFuture<'_, Result<u64, Refusal>>> =
            parts.into_iter().map(|part| self.fetch_blob(source, name, part, done.clone()).boxed()).collect();
        let mut fetches = futures::stream::iter(fetches).buffer_unordered(CONCURRENT_LAYERS);
        while let Some(fetched) = fetches.next().await {
            fetched?;
            report(&done);
        }
        Ok(())
    }

    /// Fetches one part, unless it is here, counting its bytes as they come.
    async fn fetch_blob(
        &self,
        source: &Source,
        name: &str,
        part: &Descriptor,
        done: Arc<AtomicU64>,
    ) -> Result<u64, Refusal> {
        let size = u64::try_from(part.size).unwrap_or_default();
        let none = content::Labels::new();
        if content::label(&self.connection, &part.digest, &none).await.map_err(failed)? {
            done.fetch_add(size, Ordering::Relaxed);
            return Ok(size);
        }
        let descriptor = oci_client::manifest::OciDescriptor {
            digest: part.digest.clone(),
            size: part.size,
            media_type: part.media_type.clone(),
            ..Default::default()
        };
        let stream = source.client.pull_blob_stream(&source.reference, &descriptor).await;
        let stream = stream.map_err(|error| source.refusal(name, error))?.inspect_ok(move |bytes| {
            done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        });
        content::write(&self.connection, &part.digest, part.size, none, stream.boxed())
            .await
            .map_err(failed)?;
        Ok(size)
    }
}

impl Source {
    async fn manifest(&self, at: &Reference) -> Result<(Vec<u8>, Descriptor), OciDistributionError> {
        let accepted = [DOCKER_MANIFEST, DOCKER_LIST, OCI_MANIFEST, OCI_INDEX];
        let (bytes, digest) = self.client.pull_manifest_raw(at, &self.auth, &accepted).await?;
        let media_type =
            Manifest::parse(&bytes).map_or_else(|_| OCI_MANIFEST.to_owned(), |one| one.media_type());
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        Ok((bytes.to_vec(), Descriptor { media_type, digest, size, ..Descriptor::default() }))
    }

    fn refusal(&self, name: &str, error: OciDistributionError) -> Refusal {
        let resolving = format!("failed to resolve reference {name:?}");
        let missing = || Refusal::NotFound(format!("{resolving}: {name}: not found"));
        let denied = |why: &str| {
            let text = "pull access denied, repository does not exist or may require authorization";
            Refusal::Refused(format!("{resolving}: {text}: {why}"))
        };
        match &error {
            OciDistributionError::ImageManifestNotFoundError(_) => missing(),
            OciDistributionError::ServerError { code: 404, .. } => missing(),
            OciDistributionError::ServerError { code: 401 | 403, .. } => {
                denied("authorization failed: no basic auth credentials")
            }
            OciDistributionError::UnauthorizedError { .. } => {
                denied("authorization failed: no basic auth credentials")
            }
            OciDistributionError::AuthenticationFailure(why) => {
                denied(&format!("authorization failed: {why}"))
            }
            OciDistributionError::RegistryError { envelope, .. } => {
                let has =
                    |codes: &[OciErrorCode]| envelope.errors.iter().any(|error| codes.contains(&error.code));
                if has(&[OciErrorCode::ManifestUnknown, OciErrorCode::NameUnknown, OciErrorCode::NotFound]) {
                    missing()
                } else if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                    denied("authorization failed: no basic auth credentials")
                } else {
                    Refusal::Failed(format!("{resolving}: {error}"))
                }
            }
            _ => {
                let scheme = if self.place.is_plain { "http" } else { "https" };
                let url = format!("{scheme}://{}/v2/{}", self.place.host, self.reference.repository());
                let mut why = error.to_string();
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    why = format!("{why}: {cause}");
                    source = cause.source();
                }
                Refusal::Failed(format!("{resolving}: failed to do request: Head {url:?}: {why}"))
            }
        }
    }
}

fn client(place: &Endpoint) -> Result<Client, Error> {
    let mut authorities = Vec::new();
    for path in &place.authorities {
        let data = std::fs::read(path)
            .map_err(|error| Error::Container(format!("read authority {}: {error}", path.display())))?;
        authorities.push(Certificate { encoding: CertificateEncoding::Pem, data });
    }
    let config = ClientConfig {
        protocol: if place.is_plain { ClientProtocol::Http } else { ClientProtocol::Https },
        accept_invalid_certificates: place.skips_verification,
        extra_root_certificates: authorities,
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(SILENCE),
        ..ClientConfig::default()
    };
    Ok(Client::new(config))
}

fn failed(error: Error) -> Refusal {
    match error {
        Error::ImageNotFound(text) => Refusal::NotFound(text),
        other => Refusal::Failed(other.to_string()),
    }
}
