//! Termination messages: what an ended container left in its file, or the end of its log.

use crate::beneath::read_own;
use crate::plan::container_of;
use crate::pod_logs;
use crate::runtime::{ContainerId, ContainerState, ContainerView, PodView};
use crate::shared::Shared;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::io::{Error, Read, Seek, SeekFrom};
use std::path::Path;

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
    let file = file.to_owned();
    let read = move || {
        let mut opened = if from_end { pod_logs::open(&file)? } else { read_own(&file)? };
        if from_end {
            let length = opened.metadata()?.len();
            opened.seek(SeekFrom::Start(length.saturating_sub(most as u64)))?;
        }
        let mut bytes = Vec::new();
        opened.take(most as u64).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let bytes = tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(Error::other(error)));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_words_are_a_file_and_short() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("long"), "x".repeat(3 * LONGEST_MESSAGE)).expect("written");
        std::os::unix::fs::symlink("long", at("link")).expect("a link");
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        for (name, length) in [("long", LONGEST_MESSAGE), ("link", 0), ("pipe", 0), ("missing", 0)] {
            assert_eq!(tail(&at(name), LONGEST_MESSAGE, false).await.len(), length, "{name}");
        }
    }
}
