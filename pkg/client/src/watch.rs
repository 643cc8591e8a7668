//! A watcher that always finds its way back.
//!
//! ```text
//! list ──> watch ──> … ──> cut off ──> watch from the last version ──> 410: that is history ──> list
//! ```
//!
//! A server says that a version is history in a watch's ERROR event, or as the answer to the request itself, as proxies and
//! older servers do.

use crate::follow::{Question, follow};
use futures::Stream;
use kube::core::Status;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The HTTP status of a version that is history.
const GONE: u16 = 410;
/// The cause in a refusal of a version that the server has not come to: it is another server's, or one of before a restore.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// All objects, and then their changes, for ever. An error is told, and is followed by [`Event::Init`] and a new list
/// where what was seen is no help any more; wait a while after one, as `default_backoff` does. For who follows one kind for a
/// moment: programs have [`crate::Informers`].
pub fn watcher<K>(api: Api<K>, config: Config) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let question = question(&api, &config);
    follow(api.into_client(), question, version, None)
}

/// What an API and a configuration ask for.
pub(crate) fn question<K: Resource>(api: &Api<K>, config: &Config) -> Question {
    Question {
        path: api.resource_url().to_owned(),
        labels: config.label_selector.clone(),
        fields: config.field_selector.clone(),
    }
}

/// The resourceVersion of an object.
pub(crate) fn version<K: Resource>(object: &K) -> Option<&str> {
    object.meta().resource_version.as_deref()
}

/// Whether a server says that nothing can be watched from the version that it was asked for: list, and watch from there.
pub fn must_list(refusal: &Status) -> bool {
    let mut causes = refusal.details.iter().flat_map(|details| &details.causes);
    refusal.code == GONE || causes.any(|cause| cause.reason == TOO_LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::runtime::WatchStreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that has one object at version 5, after a restore at 90, and refuses to be watched from 5 like this.
    async fn serve(listener: TcpListener, refusal: &str) {
        let mut version = 5;
        loop {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.expect("a request"));
            }
            let path = String::from_utf8(request).expect("text");
            let path = path.split(' ').nth(1).expect("a path");
            let object = format!("{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{version}\"}}}}");
            let answer = match path {
                _ if !path.contains("watch=true") => {
                    let list = format!(
                        "{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{object}]}}"
                    );
                    version = 90;
                    format!("200 OK\r\nconnection: close\r\n\r\n{list}")
                }
                _ if path.contains("resourceVersion=5") => refusal.to_owned(),
                _ => format!(
                    "200 OK\r\nconnection: close\r\n\r\n{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"
                ),
            };
            connection.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.expect("an answer");
        }
    }

    async fn check(refusal: &'static str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(serve(listener, refusal));
        let client = Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a client");
        let events = watcher(Api::<ConfigMap>::default_namespaced(client), Config::default());
        let told =
            events.default_backoff().filter_map(|event| async move { event.ok() }).map(|event| match event {
                Event::Init => "list",
                Event::InitApply(_) => "listed",
                Event::InitDone => "all",
                Event::Apply(_) => "changed",
                Event::Delete(_) => "deleted",
            });
        let told: Vec<&str> = told.take(7).collect().await;
        assert_eq!(told, ["list", "listed", "all", "list", "listed", "all", "changed"], "{refusal}");
        server.abort();
    }

    #[tokio::test]
    async fn what_is_history_is_listed_anew_however_that_is_said() {
        check(concat!(
            "410 Gone\r\nconnection: close\r\n\r\n",
            "{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Expired\",\"code\":410}"
        ))
        .await;
        check(concat!(
            "200 OK\r\nconnection: close\r\n\r\n",
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Expired\",\"code\":410}}\n"
        ))
        .await;
        check(concat!(
            "200 OK\r\nconnection: close\r\n\r\n",
            "{\"type\":\"ERROR\",\"object\":{\"status\":\"Failure\",\"reason\":\"Timeout\",\"code\":504,\"details\":",
            "{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"Too large resource version\"}]}}}\n"
        ))
        .await;
    }
}
