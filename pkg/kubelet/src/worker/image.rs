//! Makes sure that a container's image is on the node, as its pull policy says.

use super::execute::Execution;
use super::outcome::StartFailure;
use crate::image_access::{Access, ImageAccess, PullEnd, PullSecret};
use crate::runtime::{Credentials, Error, Image, Pulled};
use k8s_openapi::api::core::v1::Container;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OnceCell;

/// The image, pulled if need be.
pub(super) async fn ensure(execution: &Execution, container: &Container) -> Result<Image, StartFailure> {
    let Execution { shared, pod, .. } = execution;
    let reference = container.image.as_deref().unwrap_or_default();
    let name = &container.name;
    if !is_reference(reference) {
        let message = format!(
            "Failed to apply default image tag \"{reference}\": couldn't parse image name \"{reference}\": invalid reference format"
        );
        shared.events.container_warning(pod, name, "InspectFailed", message.clone());
        return Err(failed("InvalidImageName", message));
    }
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    let here = shared.runtime.image(reference).await.map_err(|error| {
        failed("ImageInspectError", format!("Failed to inspect image \"{reference}\": {error}"))
    })?;
    let secrets = PullSecrets { execution, reference, found: OnceCell::new() };
    match (policy, here) {
        ("IfNotPresent" | "Never", Some(image)) if may_use(&secrets, &image).await => {
            let message = format!(
                "Container image \"{reference}\" already present on machine and can be accessed by the pod"
            );
            shared.events.container(pod, name, "Pulled", message);
            Ok(image)
        }
        ("Never", _) => {
            let message = format!("Container image \"{reference}\" is not present with pull policy of Never");
            shared.events.container_warning(pod, name, "ErrImageNeverPull", message.clone());
            Err(failed("ErrImageNeverPull", message))
        }
        (policy, here) => pull(&secrets, name, policy == "Always" && here.is_some()).await,
    }
}

/// Said of an image that is on the node and yet must be asked for at a registry.
const IS_HERE: &str = " (it is on this node, but its imagePullPolicy is Always, as that of images without a tag or with \
    :latest is where none is named: IfNotPresent takes what is here)";

/// The credentials that a pod has for an image, looked for when they are needed.
struct PullSecrets<'a> {
    execution: &'a Execution,
    reference: &'a str,
    found: OnceCell<Vec<PullSecret>>,
}

impl PullSecrets<'_> {
    async fn get(&self) -> &[PullSecret] {
        let Execution { shared, pod, .. } = self.execution;
        let find = async || match &shared.host {
            Some(host) => host.pull_credentials(pod, self.reference).await,
            None => Vec::new(),
        };
        self.found.get_or_init(find).await
    }
}

/// Whether a pod may use an image that is here: it was here before, anybody gets it, or the pod has what brought it.
async fn may_use(secrets: &PullSecrets<'_>, image: &Image) -> bool {
    let Some(host) = &secrets.execution.shared.host else { return true };
    let name = secrets.reference;
    match host.image_access.of(name, image) {
        Ok(Access::Anybody) => true,
        Ok(Access::WhoHas(granted)) => {
            let own: Vec<_> = secrets.get().await.iter().map(|secret| secret.source.clone()).collect();
            host.image_access.admits(name, &image.id, &granted, &own)
        }
        Ok(Access::Unknown) => false,
        Err(error) => {
            tracing::warn!(image = name, %error, "read who may use an image");
            false
        }
    }
}

async fn pull(secrets: &PullSecrets<'_>, name: &str, is_here: bool) -> Result<Image, StartFailure> {
    let PullSecrets { execution: Execution { shared, pod, .. }, reference, .. } = *secrets;
    let own = secrets.get().await;
    let credentials: Vec<Credentials> = own.iter().map(|secret| secret.credentials.clone()).collect();
    let access = shared.host.as_ref().map(|host| host.image_access.clone());
    let unwritten = |error: std::io::Error| StartFailure {
        reason: "ErrImagePull".into(),
        message: format!("failed to record image pull intent for image \"{reference}\": {error}"),
        of_pull: true,
    };
    access.as_ref().map_or(Ok(()), |access| access.begin(reference)).map_err(unwritten)?;
    let mut intent = Intent { access, reference };
    shared.events.container(pod, name, "Pulling", format!("Pulling image \"{reference}\""));
    let began = Instant::now();
    match shared.runtime.pull(reference, &credentials, &|_| {}).await {
        Ok(Pulled { image, by }) => {
            let by = by.and_then(|index| own.get(index)).map(|secret| &secret.source);
            intent.end(PullEnd::Pulled(&image.id, by));
            let took = go_milliseconds(began.elapsed());
            let size = image.size_bytes;
            let message = format!(
                "Successfully pulled image \"{reference}\" in {took} ({took} including waiting). Image size: {size} bytes."
            );
            shared.events.container(pod, name, "Pulled", message);
            Ok(image)
        }
        Err(error) => {
            intent.end(PullEnd::Failed);
            let text = match &error {
                Error::Unavailable { .. } => crate::error::chain(&error),
                other => other.to_string(),
            };
            let hint = if is_here { IS_HERE } else { "" };
            let message = format!("Failed to pull image \"{reference}\": {text}{hint}");
            shared.events.container_warning(pod, name, "Failed", message);
            Err(StartFailure { reason: "ErrImagePull".into(), message: text, of_pull: true })
        }
    }
}

/// That an image is being pulled, as it is written down: until it is known what came of it.
struct Intent<'a> {
    access: Option<Arc<ImageAccess>>,
    reference: &'a str,
}

impl Intent<'_> {
    fn end(&mut self, how: PullEnd<'_>) {
        if let Some(access) = self.access.take()
            && let Err(error) = access.end(self.reference, how)
        {
            // The intent stays: whoever comes next asks the registry.
            tracing::warn!(image = self.reference, %error, "write down who may use an image");
        }
    }
}

impl Drop for Intent<'_> {
    /// Nobody waits for it any more, or it has ended already.
    fn drop(&mut self) {
        self.end(PullEnd::Abandoned);
    }
}

fn failed(reason: &str, message: String) -> StartFailure {
    StartFailure { reason: reason.into(), message, of_pull: false }
}

/// As Go prints durations of whole milliseconds: `12ms`, `1.5s`, `1m2.5s`.
fn go_milliseconds(took: std::time::Duration) -> String {
    let ms = took.as_millis();
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (minutes, ms) = (ms / 60_000, ms % 60_000);
    let seconds = format!("{}", ms as f64 / 1000.0);
    if minutes == 0 { format!("{seconds}s") } else { format!("{minutes}m{seconds}s") }
}

/// Whether a text can be an image's name.
fn is_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    let (path, tag) = match last.split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    let mut parts = path.split('/').peekable();
    let host =
        path.split_once('/').map(|(host, _)| host).filter(|h| h.contains(['.', ':']) || *h == "localhost");
    if host.is_some() {
        parts.next();
    }
    let is_part = |part: &str| {
        let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends_well(part.chars().next())
            && ends_well(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
    };
    let is_tag = |tag: &str| {
        !tag.is_empty()
            && tag.len() <= 128
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            && !tag.starts_with(['.', '-'])
    };
    let is_digest = |digest: &str| {
        digest
            .split_once(':')
            .is_some_and(|(_, hex)| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit()))
    };
    parts.peek().is_some() && parts.all(is_part) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for good in
            ["busybox", "busybox:1.36", "a/b_c", "localhost:5000/x/y:V1", "registry.k8s.io/pause", &digest]
        {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "Busybox", "a:", "a:b:c d", "-x", "a//b", "a@sha256:12", "example.com/"] {
            assert!(!is_reference(bad), "{bad}");
        }
    }

    #[test]
    fn durations_as_go_prints_them() {
        for (ms, text) in [(7, "7ms"), (1500, "1.5s"), (2000, "2s"), (62_500, "1m2.5s")] {
            assert_eq!(go_milliseconds(std::time::Duration::from_millis(ms)), text);
        }
    }
}
