//! Blobs in containerd's content store.

use super::super::Error;
use super::super::containerd::connection::{Connection, Lenient, failed};
use bytes::Bytes;
use containerd_client::services::v1::{
    AbortRequest, Info, InfoRequest, ReadContentRequest, UpdateRequest, WriteAction, WriteContentRequest,
};
use containerd_client::tonic::Code;
use futures::StreamExt;
use futures::stream::BoxStream;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::fmt::Write;

/// Manifests and configurations are small; whoever says otherwise is not believed.
const LARGEST_DOCUMENT_BYTES: i64 = 8 << 20;

pub(super) type Labels = HashMap<String, String>;
/// A blob's bytes as they come.
pub(super) type Blob = BoxStream<'static, std::io::Result<Bytes>>;

/// The digest of some bytes, `sha256:…`.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().fold("sha256:".to_owned(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("strings take everything");
        hex
    })
}

/// A manifest or configuration.
pub(super) async fn read(connection: &Connection, digest: &str) -> Result<Vec<u8>, Error> {
    let doing = || format!("read content {digest}");
    let request = ReadContentRequest { digest: digest.to_owned(), offset: 0, size: 0 };
    let info = InfoRequest { digest: digest.to_owned() };
    let mut client = connection.content();
    let info = client.info(info).await.map_err(failed(doing()))?.into_inner().info.unwrap_or_default();
    if info.size > LARGEST_DOCUMENT_BYTES {
        return Err(Error::Container(format!("{digest} is too large for a manifest: {} bytes", info.size)));
    }
    let mut pieces = client.read(request).await.map_err(failed(doing()))?.into_inner();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.message().await.map_err(failed(doing()))? {
        bytes.extend_from_slice(&piece.data);
    }
    Ok(bytes)
}

/// Whether a blob is there, and labels it if so. A label is what keeps what it names from being collected.
pub(super) async fn label(connection: &Connection, digest: &str, labels: &Labels) -> Result<bool, Error> {
    let mut client = connection.content();
    if labels.is_empty() {
        let info = client.info(InfoRequest { digest: digest.to_owned() }).await;
        return Ok(info.if_found().map_err(failed(format!("look for content {digest}")))?.is_some());
    }
    let mut request = UpdateRequest {
        info: Some(Info { digest: digest.to_owned(), labels: labels.clone(), ..Info::default() }),
        ..UpdateRequest::default()
    };
    request.update_mask.get_or_insert_default().paths =
        labels.keys().map(|key| format!("labels.{key}")).collect();
    Ok(client.update(request).await.if_found().map_err(failed(format!("label content {digest}")))?.is_some())
}

/// Writes a blob, unless it is there. containerd refuses what does not have the digest.
pub(super) async fn write(
    connection: &Connection,
    digest: &str,
    size_bytes: i64,
    labels: Labels,
    blob: Blob,
) -> Result<(), Error> {
    let reference = format!("minik8s-{}", uuid::Uuid::new_v4());
    let mut client = connection.content();
    let (failure, broken) = tokio::sync::oneshot::channel();
    let requests = requests(reference.clone(), digest.to_owned(), size_bytes, labels.clone(), blob, failure);
    let written = async {
        let mut answers = client.write(requests).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok::<_, containerd_client::tonic::Status>(())
    };
    let status = match written.await {
        Ok(()) => match broken.await {
            // The stream ended early: nothing was committed.
            Ok(error) => {
                Err(Error::Unavailable { doing: format!("fetch {digest}: {error}"), source: error.into() })
            }
            Err(_) => return Ok(()),
        },
        Err(status) if status.code() == Code::AlreadyExists => {
            label(connection, digest, &labels).await?;
            return Ok(());
        }
        Err(status) => Err(failed(format!("write content {digest}"))(status)),
    };
    // What has come is of no use to anybody.
    let _ = connection.content().abort(AbortRequest { r#ref: reference }).await;
    status
}

fn requests(
    reference: String,
    digest: String,
    total: i64,
    labels: Labels,
    blob: Blob,
    failure: tokio::sync::oneshot::Sender<std::io::Error>,
) -> impl futures::Stream<Item = WriteContentRequest> + Send + 'static {
    let request = move |action: WriteAction, offset, data| WriteContentRequest {
        action: action as i32,
        r#ref: reference.clone(),
        total,
        expected: digest.clone(),
        offset,
        data,
        labels: if action == WriteAction::Commit { labels.clone() } else { Labels::new() },
    };
    futures::stream::unfold(Some((blob, 0i64, failure)), move |state| {
        let request = request.clone();
        async move {
            let (mut blob, offset, failure) = state?;
            match blob.next().await {
                Some(Ok(bytes)) => {
                    let next = offset + i64::try_from(bytes.len()).expect("a piece fits into memory");
                    Some((request(WriteAction::Write, offset, bytes.to_vec()), Some((blob, next, failure))))
                }
                Some(Err(error)) => {
                    // Nobody listens any more if the write has failed already.
                    let _ = failure.send(error);
                    None
                }
                None => Some((request(WriteAction::Commit, offset, Vec::new()), None)),
            }
        }
    })
}

/// A blob that is in memory.
pub(super) fn whole(bytes: Vec<u8>) -> Blob {
    futures::stream::iter([Ok(Bytes::from(bytes))]).boxed()
}
