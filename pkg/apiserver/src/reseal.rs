//! Secrets that an older key has sealed are sealed again with the present one, so that the older key can be thrown away.

use crate::server::Server;
use bytes::Bytes;
use std::sync::Arc;
use store::{Expect, Range, Write};

const PAGE: usize = 100;

/// Looks through all Secrets once. What is being changed at the same moment is sealed anew by that change.
pub async fn run(server: Arc<Server>) {
    let prefix = server.kind("", "secrets").prefix();
    let mut after = None;
    let mut count = 0;
    loop {
        let range = Range { prefix: prefix.clone(), after: after.clone(), limit: PAGE, revision: None };
        let page = match server.store.range(range).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot look for Secrets to encrypt again"
                );
                return;
            }
        };
        for entry in page.entries.iter().filter(|entry| server.encryption.is_stale(&entry.value)) {
            let sealed = server
                .encryption
                .open(&entry.key, &entry.value)
                .and_then(|opened| server.encryption.seal(&entry.key, &opened.value));
            let Ok(sealed) = sealed else { continue };
            let expect = Expect::Revision(entry.modified);
            let write = Write { key: entry.key.clone(), expect, value: Some(Bytes::from(sealed)) };
            count += usize::from(server.store.commit(vec![write]).await.is_ok());
        }
        after = page.entries.last().map(|entry| entry.key.clone());
        if page.remaining == 0 || after.is_none() {
            break;
        }
    }
    if count > 0 {
        tracing::info!(count, "encrypted Secrets again with the present key");
    }
}
