//! Removes images that no container uses, when the disk is getting full.

use crate::error::chain;
use crate::events::Events;
use crate::image_access::ImageAccess;
use crate::runtime::{Image, ImageId, PodView, Runtime};
use client::EventType;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// As upstream.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);
/// An image that has just come is about to be used.
const YOUNGEST: SignedDuration = SignedDuration::from_secs(2 * 60);

/// When to begin and when to stop, in percent of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Fuller than this: begin.
    pub high: u64,
    /// Less full than this: stop.
    pub low: u64,
}

/// When images were seen first and used last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    first_seen: Timestamp,
    last_used: Option<Timestamp>,
}

/// What is needed to look after images.
pub(crate) struct ImageGc {
    pub runtime: Arc<dyn Runtime>,
    pub access: Option<Arc<ImageAccess>>,
    pub events: Events,
    pub node_name: String,
    pub root: PathBuf,
    pub thresholds: Thresholds,
}

impl ImageGc {
    /// Until the token is cancelled.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut known = BTreeMap::new();
        let collect = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                self.look(&mut known, Timestamp::now()).await;
            }
        };
        tokio::select! {
            () = collect => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Removes whatever no container uses: the disk is needed for pods.
    pub async fn remove_all_unused(&self) {
        let (Ok(images), Ok(pods)) = (self.runtime.images().await, self.runtime.pods().await) else { return };
        let used = used(&pods);
        for image in unused(&images, &used) {
            if let Err(error) = self.runtime.remove_image(&image.id).await {
                tracing::warn!(image = image.id.0, error = chain(&error), "remove an image");
            }
        }
    }

    async fn look(&self, known: &mut BTreeMap<ImageId, Known>, now: Timestamp) {
        let (Ok(images), Ok(pods)) = (self.runtime.images().await, self.runtime.pods().await) else { return };
        let used = used(&pods);
        if let Some(access) = &self.access {
            let here = images.iter().map(|image| image.id.clone()).collect();
            if let Err(error) = access.prune(&here, now) {
                tracing::warn!(%error, "forget who may use images that are gone");
            }
        }
        remember(known, &images, &used, now);
        let Ok(disk) = nix::sys::statvfs::statvfs(&self.root) else { return };
        let size = disk.blocks() * disk.fragment_size();
        let free = disk.blocks_available() * disk.fragment_size();
        let Some(bytes) = to_free(size, free, self.thresholds) else { return };
        let mut freed = 0;
        for image in choose(&images, &used, known, bytes, now) {
            match self.runtime.remove_image(&image.id).await {
                Ok(()) => freed += image.size_bytes,
                Err(error) => tracing::warn!(image = image.id.0, error = chain(&error), "remove an image"),
            }
        }
        if freed < bytes {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {bytes} bytes, but only found {freed} bytes eligible to free."
            );
            self.events.node(&self.node_name, EventType::Warning, "FreeDiskSpaceFailed", message);
        }
    }
}

fn used(pods: &[PodView]) -> BTreeSet<ImageId> {
    pods.iter().flat_map(|pod| pod.containers.iter().map(|container| container.image.clone())).collect()
}

/// Those that may go.
fn unused<'a>(images: &'a [Image], used: &BTreeSet<ImageId>) -> impl Iterator<Item = &'a Image> {
    images.iter().filter(|image| !image.is_pinned && !used.contains(&image.id))
}

fn remember(
    known: &mut BTreeMap<ImageId, Known>,
    images: &[Image],
    used: &BTreeSet<ImageId>,
    now: Timestamp,
) {
    known.retain(|id, _| images.iter().any(|image| image.id == *id));
    for image in images {
        let entry = known.entry(image.id.clone()).or_insert(Known { first_seen: now, last_used: None });
        if used.contains(&image.id) {
            entry.last_used = Some(now);
        }
    }
}

/// How many bytes have to go, if any.
fn to_free(size: u64, free: u64, thresholds: Thresholds) -> Option<u64> {
    let used_percent = 100 - free.checked_mul(100)?.checked_div(size)?;
    if used_percent < thresholds.high {
        return None;
    }
    Some((size * (100 - thresholds.low) / 100).saturating_sub(free))
}

/// Which images go: those used longest ago first, until enough is freed.
fn choose<'a>(
    images: &'a [Image],
    used: &BTreeSet<ImageId>,
    known: &BTreeMap<ImageId, Known>,
    bytes: u64,
    now: Timestamp,
) -> Vec<&'a Image> {
    let mut unused: Vec<(&Image, &Known)> = unused(images, used)
        .filter_map(|image| Some((image, known.get(&image.id)?)))
        .filter(|(_, known)| known.first_seen + YOUNGEST <= now)
        .collect();
    unused.sort_by_key(|(_, known)| (known.last_used, known.first_seen));
    let mut freed = 0;
    let mut chosen = Vec::new();
    for (image, _) in unused {
        if freed >= bytes {
            break;
        }
        freed += image.size_bytes;
        chosen.push(image);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, size_bytes: u64) -> Image {
        Image {
            id: ImageId(name.into()),
            tags: vec![],
            digests: vec![],
            size_bytes,
            user: None,
            user_name: None,
            is_pinned: false,
        }
    }

    #[test]
    fn what_is_used_or_pinned_stays() {
        let images = [image("used", 1), Image { is_pinned: true, ..image("own", 1) }, image("old", 1)];
        let used = BTreeSet::from([ImageId("used".into())]);
        let gone: Vec<&str> = unused(&images, &used).map(|image| image.id.0.as_str()).collect();
        assert_eq!(gone, ["old"]);
    }

    #[test]
    fn a_full_disk_is_freed_down_to_the_low_mark() {
        let thresholds = Thresholds { high: 85, low: 80 };
        for (free, expected) in [(50, None), (16, None), (15, Some(5)), (0, Some(20))] {
            assert_eq!(to_free(100, free, thresholds), expected, "{free} of 100 free");
        }
        assert_eq!(to_free(0, 0, thresholds), None, "a disk of which nothing is known");
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let images =
            [image("used", 1), image("recent", 10), image("old", 10), image("never", 10), image("new", 10)];
        let mut known = BTreeMap::new();
        let of = |name: &str| BTreeSet::from([ImageId(name.into())]);
        remember(&mut known, &images[..4], &of("old"), at(1));
        remember(&mut known, &images[..4], &of("recent"), at(2));
        remember(&mut known, &images, &of("used"), at(500));
        let names = |bytes| -> Vec<String> {
            choose(&images, &of("used"), &known, bytes, at(510)).iter().map(|i| i.id.0.clone()).collect()
        };
        assert_eq!(names(15), ["never", "old"]);
        assert_eq!(names(1000), ["never", "old", "recent"], "neither what is used nor what has just come");
    }
}
