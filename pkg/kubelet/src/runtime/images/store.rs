//! The images that are on this node.

use super::super::containerd::connection::{Connection, Lenient, failed};
use super::super::{Error, Image, ImageId};
use super::content::{self, Labels};
use super::manifest::{Descriptor, ImageConfig, Manifest};
use super::reference;
use containerd_client::services::v1 as api;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, PrepareSnapshotRequest, RemoveSnapshotRequest, StatSnapshotRequest,
};
use containerd_client::tonic::{Code, Status};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// By this label containerd's own Kubernetes plugin, and so `crictl`, knows images of Kubernetes.
const MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");
/// By this containerd's own CRI knows an image that must not be removed.
const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");
/// Images of the cluster's own programs: there is no registry to have them from again.
const OWN_REGISTRY: &str = "minik8s.io/";
/// Configurations are remembered, being immutable; nobody has more images.
const REMEMBERED: usize = 1024;
/// A pull that takes longer has been abandoned.
const LEASE: SignedDuration = SignedDuration::from_hours(24);

/// The images of this node.
#[derive(Clone)]
pub(crate) struct Images {
    pub(super) connection: Connection,
    snapshotter: String,
    /// By the digest of what names them, and by id.
    remembered: Arc<Mutex<HashMap<String, Arc<ImageConfig>>>>,
}

impl Images {
    pub(crate) fn new(connection: Connection, snapshotter: &str) -> Self {
        Images { connection, snapshotter: snapshotter.to_owned(), remembered: Arc::default() }
    }

    /// How containers of an image are started.
    pub(crate) async fn config(&self, id: &ImageId) -> Result<Arc<ImageConfig>, Error> {
        if let Some(config) = self.remembered.lock().get(&id.0) {
            return Ok(config.clone());
        }
        let missing = || Error::ImageNotFound(format!("image {:?} not found", id.0));
        let target = self.target(&id.0).await?.ok_or_else(missing)?;
        self.resolve(&target).await
    }

    /// The image that a name means.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Image>, Error> {
        let stored = match reference::as_id(name) {
            Some(id) => id,
            None => reference::normalize(name)?,
        };
        let Some(target) = self.target(&stored).await? else { return Ok(None) };
        let config = self.resolve(&target).await?;
        Ok(self.list().await?.into_iter().find(|image| image.id == config.id))
    }

    /// All images, each once.
    pub(crate) async fn list(&self) -> Result<Vec<Image>, Error> {
        let mut client = self.connection.images();
        let named = client.list(api::ListImagesRequest::default()).await.map_err(failed("list images"))?;
        let mut images: BTreeMap<ImageId, Image> = BTreeMap::new();
        for named in named.into_inner().images {
            // One that is only half there, such as one of another platform, is no image of ours.
            let Ok(config) = self.resolve(&named.target.unwrap_or_default().digest).await else { continue };
            let image = images.entry(config.id.clone()).or_insert_with(|| blank(&config));
            image.is_pinned |= named.labels.get(PINNED.0).is_some_and(|value| value == PINNED.1);
            match named.name {
                name if reference::as_id(&name).is_some() => {}
                name if name.contains('@') => image.digests.push(name),
                name => image.tags.push(name),
            }
        }
        Ok(images.into_values().collect())
    }

    /// Removes all names of an image; containerd collects what belonged to it alone.
    pub(crate) async fn remove(&self, id: &ImageId) -> Result<(), Error> {
        let mut client = self.connection.images();
        let named = client.list(api::ListImagesRequest::default()).await.map_err(failed("list images"))?;
        let mut names = Vec::new();
        for named in named.into_inner().images {
            let target = named.target.unwrap_or_default().digest;
            let is_it =
                named.name == id.0 || self.resolve(&target).await.is_ok_and(|config| config.id == *id);
            if is_it {
                names.push(named.name);
            }
        }
        self.remembered.lock().retain(|_, config| config.id != *id);
        let last = names.len().saturating_sub(1);
        for (number, name) in names.into_iter().enumerate() {
            let doing = format!("remove image {name}");
            let request = api::DeleteImageRequest { name, sync: number == last, ..Default::default() };
            client.delete(request).await.if_found().map_err(failed(doing))?;
        }
        Ok(())
    }

    /// Does something whose results are held by a lease until they have names.
    pub(super) async fn leased<T, F: Future<Output = Result<T, Error>>>(
        &self,
        work: impl FnOnce(Images) -> F,
    ) -> Result<T, Error> {
        let mut leases = self.connection.leases();
        let id = format!("minik8s-{}", uuid::Uuid::new_v4());
        let expires = Timestamp::now().saturating_add(LEASE).expect("a day is no long time");
        let labels = HashMap::from([("containerd.io/gc.expire".to_owned(), format!("{expires:.0}"))]);
        let request = api::CreateRequest { id: id.clone(), labels };
        leases.create(request).await.map_err(failed("create a lease"))?;
        let result = work(Images { connection: self.connection.with_lease(&id), ..self.clone() }).await;
        let deleted = leases.delete(api::DeleteRequest { id, sync: false }).await.if_found();
        deleted.map_err(failed("delete a lease"))?;
        result
    }

    /// Labels the contents of an image, unpacks it, and gives it its names. All its contents must be there.
    pub(super) async fn publish(&self, target: &Descriptor, names: &[String]) -> Result<Image, Error> {
        let config = self.resolve(&target.digest).await?;
        self.unpack(&config).await?;
        let repositories: Vec<&str> = names.iter().filter_map(|name| repository(name)).collect();
        let mut all: Vec<String> = names.to_vec();
        all.extend(repositories.iter().map(|repository| format!("{repository}@{}", target.digest)));
        all.push(config.id.0.clone());
        all.sort();
        all.dedup();
        let mut labels = HashMap::from([(MANAGED.0.to_owned(), MANAGED.1.to_owned())]);
        if names.iter().any(|name| name.starts_with(OWN_REGISTRY)) {
            labels.insert(PINNED.0.to_owned(), PINNED.1.to_owned());
        }
        let mut client = self.connection.images();
        for name in &all {
            let image = api::Image {
                name: name.clone(),
                labels: labels.clone(),
                target: Some(target.for_containerd()),
                ..api::Image::default()
            };
            let request = api::CreateImageRequest { image: Some(image.clone()), ..Default::default() };
            let doing = || failed(format!("name image {name}"));
            if client.create(request).await.if_new().map_err(doing())?.is_none() {
                let request = api::UpdateImageRequest { image: Some(image), ..Default::default() };
                client.update(request).await.map_err(doing())?;
            }
        }
        let found = self.list().await?.into_iter().find(|image| image.id == config.id);
        found.ok_or_else(|| Error::ImageNotFound(format!("image {:?} not found", config.id.0)))
    }

    /// Makes a snapshot of each layer that has none.
    pub(crate) async fn unpack(&self, config: &ImageConfig) -> Result<(), Error> {
        let manifest = Manifest::parse(&content::read(&self.connection, &config.manifest).await?)?;
        let chain = config.chain_ids();
        if manifest.layers.len() != chain.len() {
            return Err(Error::Container(format!(
                "image {} has layers that its configuration lacks",
                config.id.0
            )));
        }
        let mut parent = String::new();
        for ((layer, name), diff_id) in manifest.layers.iter().zip(&chain).zip(&config.diff_ids) {
            self.unpack_layer(layer, diff_id, name, &parent).await?;
            parent.clone_from(name);
        }
        // The snapshots live as long as the configuration that says which they are.
        let labels = Labels::from([(format!("containerd.io/gc.ref.snapshot.{}", self.snapshotter), parent)]);
        content::label(&self.connection, &config.id.0, &labels).await?;
        Ok(())
    }

    /// Makes the snapshot `name` of a layer with the contents `diff_id`, above `parent`.
    async fn unpack_layer(
        &self,
        layer: &Descriptor,
        diff_id: &str,
        name: &str,
        parent: &str,
    ) -> Result<(), Error> {
        let mut snapshots = self.connection.snapshots();
        let snapshotter = self.snapshotter.clone();
        let stat = StatSnapshotRequest { snapshotter: snapshotter.clone(), key: name.to_owned() };
        if snapshots.stat(stat).await.if_found().map_err(failed(format!("look for layer {name}")))?.is_some()
        {
            return Ok(());
        }
        let key = format!("extract-{} {name}", uuid::Uuid::new_v4());
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: key.clone(),
            parent: parent.to_owned(),
            ..Default::default()
        };
        let doing = || failed(format!("failed to extract layer {name}"));
        let mounts = snapshots.prepare(prepare).await.map_err(doing())?.into_inner().mounts;
        let apply = api::ApplyRequest { diff: Some(layer.for_containerd()), mounts, ..Default::default() };
        let result = match self.connection.diff().apply(apply).await {
            Ok(applied) => {
                let applied = applied.into_inner().applied.unwrap_or_default().digest;
                let commit = CommitSnapshotRequest {
                    snapshotter: snapshotter.clone(),
                    name: name.to_owned(),
                    key: key.clone(),
                    ..Default::default()
                };
                // Otherwise it would be taken for the layer of another image, which does have these contents.
                if applied == diff_id {
                    snapshots.commit(commit).await.map(drop)
                } else {
                    Err(Status::data_loss(format!("wrong diff id calculated on extraction {applied:?}")))
                }
            }
            Err(status) => Err(status),
        };
        match result {
            Ok(()) => Ok(()),
            Err(status) => {
                // Somebody else may have been faster.
                let _ = snapshots.remove(RemoveSnapshotRequest { snapshotter, key }).await;
                if status.code() == Code::AlreadyExists { Ok(()) } else { Err(doing()(status)) }
            }
        }
    }

    async fn target(&self, name: &str) -> Result<Option<String>, Error> {
        let mut client = self.connection.images();
        let found = client.get(api::GetImageRequest { name: name.to_owned() }).await;
        let found = found.if_found().map_err(failed(format!("look for image {name}")))?;
        Ok(found.and_then(|found| found.image?.target).map(|target| target.digest))
    }

    /// The image of this platform that a manifest or list leads to.
    pub(super) async fn resolve(&self, target: &str) -> Result<Arc<ImageConfig>, Error> {
        if let Some(config) = self.remembered.lock().get(target) {
            return Ok(config.clone());
        }
        let mut bytes = content::read(&self.connection, target).await?;
        let mut digest = target.to_owned();
        let mut manifest = Manifest::parse(&bytes)?;
        if manifest.is_list() {
            digest = manifest.for_this_platform()?.digest.clone();
            bytes = content::read(&self.connection, &digest).await?;
            manifest = Manifest::parse(&bytes)?;
        }
        let config =
            manifest.config.ok_or_else(|| Error::Container(format!("{digest} names no configuration")))?;
        let size = bytes.len() as u64
            + manifest
                .layers
                .iter()
                .chain([&config])
                .map(|part| u64::try_from(part.size).unwrap_or(0))
                .sum::<u64>();
        let read = content::read(&self.connection, &config.digest).await?;
        let config = Arc::new(ImageConfig::parse(&read, &digest, size)?);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(target.to_owned(), config.clone());
        remembered.insert(config.id.0.clone(), config.clone());
        Ok(config)
    }
}

/// The labels by which a manifest or list keeps its parts.
pub(super) fn references(manifest: &Manifest) -> Labels {
    let mut labels = Labels::new();
    let mut refer = |kind: String, descriptor: &Descriptor| {
        labels.insert(format!("containerd.io/gc.ref.content.{kind}"), descriptor.digest.clone());
    };
    if manifest.is_list() {
        if let Ok(descriptor) = manifest.for_this_platform() {
            refer("m.0".to_owned(), descriptor);
        }
    } else if let Some(config) = &manifest.config {
        refer("config".to_owned(), config);
        for (number, layer) in manifest.layers.iter().enumerate() {
            refer(format!("l.{number}"), layer);
        }
    }
    labels
}

fn repository(name: &str) -> Option<&str> {
    let name = name.split('@').next()?;
    let (repository, tag) = name.rsplit_once(':').unwrap_or((name, ""));
    Some(if tag.contains('/') { name } else { repository })
}

fn blank(config: &ImageConfig) -> Image {
    let user = config.user.split(':').next().unwrap_or_default();
    let number = user.parse().ok();
    Image {
        id: config.id.clone(),
        tags: Vec::new(),
        digests: Vec::new(),
        size_bytes: config.size_bytes,
        user: number,
        user_name: (number.is_none() && !user.is_empty()).then(|| user.to_owned()),
        is_pinned: false,
    }
}
