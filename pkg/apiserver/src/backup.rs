//! `GET /minik8s/backup`: everything the store holds, as one file, while it is in use. For those who may read every
//! path; what is a secret in the store stays encrypted in the file.

use crate::answer::{self, Answer};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::server::Server;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use std::sync::Arc;
use tokio::io::AsyncReadExt;

/// How much is read from the file at once.
const PIECE_BYTES: usize = 256 << 10;

/// Where it is asked for.
pub const PATH: &str = "/minik8s/backup";

/// Makes a backup and sends it. The file is gone when it was sent, or when the client went away.
pub async fn handle(server: &Arc<Server>) -> Result<Answer> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        tracing::error!(error, "cannot make a backup");
        ApiError::internal("the backup could not be made; the server's log says why")
    };
    let folder = tempfile::tempdir_in(&server.config.data_dir).map_err(|error| failed(&error))?;
    let path = folder.path().join("backup");
    store::backup::backup(&*server.store, &path).await.map_err(|error| failed(&error))?;
    let file = tokio::fs::File::open(&path).await.map_err(|error| failed(&error))?;
    let pieces = stream::unfold((file, folder), |(mut file, folder)| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).await {
            // A file cut short fails the check of whoever restores it.
            Ok(0) | Err(_) => None,
            Ok(_) => Some((Bytes::from(piece), (file, folder))),
        }
    });
    Ok(answer::octets(StatusCode::OK, Body::stream(pieces)))
}
