//! Termination messages: what an ended container left in its file, or the end of its log.

use crate::plan::container_of;
use crate::runtime::{ContainerId, ContainerState, ContainerView, PodView};
use crate::shared::Shared;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

const LONGEST_MESSAGE: usize = 4096;
const LONGEST_LOG: usize = 2048;
const LOG_LINES: usize = 80;

/// Reads those that have not been read, and forgets those of containers that are gone.
pub(super) async fn collect(
    shared: &Shared,
    pod: &Pod,
    view: &PodView,
    messages: &mut BTreeMap<ContainerId, String>,
) {
    let Some(host) = &shared.host else { return };
    messages.retain(|id, _| view.containers.iter().any(|container| container.id == *id));
    for container in &view.containers {
        let ContainerState::Exited { code, .. } = container.state else { continue };
        if messages.contains_key(&container.id) {
            continue;
        }
        let file = host.message_file(&view.pod, &container.name, container.attempt);
        let message = read(pod, container, &file, code).await;
        messages.insert(container.id.clone(), message);
    }
    messages.retain(|_, message| {
        // An empty one is kept as well, so that it is not read again.
        while message.len() > LONGEST_MESSAGE {
            message.pop();
        }
        true
    });
}

async fn read(pod: &Pod, container: &ContainerView, file: &Path, code: i32) -> String {
    let message = tail(file, LONGEST_MESSAGE, false).await;
    let policy = container_of(pod, &container.name)
        .and_then(|(_, spec)| spec.termination_message_policy.clone())
        .unwrap_or_default();
    if !message.is_empty() || code == 0 || policy != "FallbackToLogsOnError" {
        return message;
    }
    let log = tail(&container.log_path, 4 * LONGEST_LOG, true).await;
    let lines: Vec<(&str, &str)> = log.lines().filter_map(content).collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    let text: String = lines[from..].iter().flat_map(|(content, end)| [*content, *end]).collect();
    let cut = text.len().saturating_sub(LONGEST_LOG);
    let cut = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[cut..].to_owned()
}

/// What a line of a log in the CRI format says, `time stream tag content`, and how that ends: the tag `P` marks a part.
fn content(line: &str) -> Option<(&str, &str)> {
    let (tag, content) = line.splitn(3, ' ').nth(2)?.split_once(' ')?;
    Some((content, if tag == "P" { "" } else { "\n" }))
}

/// The beginning or the end of a file, as text.
async fn tail(file: &Path, most: usize, from_end: bool) -> String {
    let read = async {
        let mut opened = tokio::fs::File::open(file).await?;
        if from_end {
            let length = opened.metadata().await?.len();
            opened.seek(std::io::SeekFrom::Start(length.saturating_sub(most as u64))).await?;
        }
        let mut bytes = Vec::new();
        opened.take(most as u64).read_to_end(&mut bytes).await?;
        std::io::Result::Ok(bytes)
    };
    read.await.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
