//! Doing what a plan says: the only place that writes.
//!
//! A create whose fate is unknown (the connection broke, the server timed out) is repeated under the same name until the
//! answer is definite, so that nothing is created twice.

use super::{Note, Target, Verb, Write};
use client::{Key, Recorder, version_number};
use futures::future::join_all;
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// So many writes of a plan are under way at once.
const AT_ONCE: usize = 16;
/// How often a create of unknown fate is repeated, with pauses that double from the first.
const REPEATS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A write that a cache has yet to see.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The object.
    pub target: Target,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion; `None` if it was deleted.
    pub version: Option<u64>,
    /// When it was answered.
    pub at: Instant,
}

/// A write that was not done.
#[derive(Debug)]
pub struct Failure {
    /// Which one.
    pub write: Write,
    /// Why.
    pub error: kube::Error,
}

impl Failure {
    /// The code of the apiserver; zero if it did not answer.
    pub fn code(&self) -> u16 {
        code(&self.error)
    }

    /// The reason of the apiserver's Status.
    pub fn reason(&self) -> &str {
        match &self.error {
            kube::Error::Api(status) => &status.reason,
            _ => "",
        }
    }

    /// The message, as upstream's clients show it.
    pub fn message(&self) -> String {
        message(&self.error)
    }

    /// Somebody else was faster: observe and plan again.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The namespace is going, so nothing can be created in it, and nothing needs to be.
    pub fn is_namespace_terminating(&self) -> bool {
        self.code() == 403 && self.message().contains("because it is being terminated")
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// What is read of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Answers {
    items: Vec<Answer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

/// Does the writes of a plan. What was done is there also when something failed.
pub async fn execute(
    client: &Client,
    recorder: &Recorder,
    writes: Vec<Write>,
) -> (Vec<Seen>, Option<Failure>) {
    let mut seen = Vec::new();
    let mut alive = BTreeMap::new();
    let mut writes = writes.into_iter().peekable();
    let mut batch_size = 1;
    while let Some(first) = writes.next() {
        let most = if first.verb == Verb::Create { batch_size } else { AT_ONCE };
        let mut batch = vec![first];
        while batch.len() < most.min(AT_ONCE) {
            let Some(next) = writes.next_if(|next| next.goes_with(&batch[0])) else { break };
            batch.push(next);
        }
        let goes_on = writes.peek().is_some_and(|next| next.goes_with(&batch[0]));
        batch_size = if goes_on { batch_size * 2 } else { 1 };
        for write in &batch {
            if let Some((owner, uid)) = &write.only_if
                && !alive.contains_key(uid)
            {
                if let Err(error) = check_alive(client, owner, uid).await {
                    return (seen, Some(Failure { write: write.clone(), error }));
                }
                alive.insert(uid.clone(), ());
            }
        }
        let answers = join_all(batch.iter().map(|one| write(client, one))).await;
        let mut failure = None;
        for (one, answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(done) => {
                    tell(recorder, &one.done, &done.target.key.name, "");
                    seen.push(done);
                }
                Err(error) => {
                    let failed = Failure { write: one, error };
                    if !failed.is_namespace_terminating() {
                        tell(
                            recorder,
                            &failed.write.failed,
                            &failed.write.target.key.name,
                            &failed.message(),
                        );
                    }
                    failure.get_or_insert(failed);
                }
            }
        }
        if failure.is_some() {
            return (seen, failure);
        }
    }
    (seen, None)
}

fn tell(recorder: &Recorder, note: &Option<Note>, name: &str, error: &str) {
    if let Some(Note { regarding, event_type, reason, message }) = note {
        let message = message.replace("{name}", name).replace("{error}", error);
        recorder.event(regarding.clone(), *event_type, reason.clone(), message);
    }
}

async fn check_alive(client: &Client, owner: &Target, uid: &str) -> kube::Result<()> {
    let answer: Answer = client.request(request("GET", owner.path(), None, Vec::new())?).await?;
    if answer.metadata.uid == uid && answer.metadata.deletion_timestamp.is_none() {
        return Ok(());
    }
    let why = format!("{} {} has just been deleted", owner.kind, owner.key);
    Err(kube::Error::Service(why.into()))
}

/// Does one write.
pub async fn write(client: &Client, write: &Write) -> kube::Result<Seen> {
    let mut target = write.target.clone();
    let answer = match write.verb {
        Verb::Create if write.target.subresource.is_empty() => create(client, &mut target, &write.body).await,
        verb => {
            let (method, content_type) = match verb {
                Verb::Create => ("POST", "application/json"),
                Verb::Update => ("PUT", "application/json"),
                Verb::MergePatch => ("PATCH", "application/merge-patch+json"),
                Verb::StrategicPatch => ("PATCH", "application/strategic-merge-patch+json"),
                Verb::Delete => ("DELETE", "application/json"),
            };
            let body = serde_json::to_vec(&write.body).map_err(kube::Error::SerdeError)?;
            client.request(request(method, target.path(), Some(content_type), body)?).await
        }
    };
    let at = Instant::now();
    let answer: Answer = match answer {
        Err(error) if write.tolerates.contains(&code(&error)) => Answer::default(),
        answer => answer?,
    };
    let uid = write.uid().map(str::to_owned).unwrap_or(answer.metadata.uid);
    let version = version_number(Some(&answer.metadata.resource_version));
    let version = (write.verb != Verb::Delete).then_some(version);
    Ok(Seen { target, uid, version, at })
}

async fn create(client: &Client, target: &mut Target, body: &Value) -> kube::Result<Answer> {
    let mut body = body.clone();
    if target.key.name.is_empty() {
        let prefix = body["metadata"]["generateName"].as_str().unwrap_or_default();
        target.key.name = generate_name(prefix);
        body["metadata"]["name"] = target.key.name.as_str().into();
    }
    let bytes = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
    let mut repeats = 0;
    loop {
        let sent = request("POST", target.collection(), Some("application/json"), bytes.clone())?;
        let mut answer = client.request(sent).await;
        if repeats > 0 && answer.as_ref().is_err_and(|error| code(error) == 409) {
            // Ours, from before. That must be seen by us as well: whoever does not know of it makes another.
            answer = find(client, target).await;
        }
        match answer {
            Err(error) if repeats < REPEATS && is_unknown(&error) => {
                tokio::time::sleep(FIRST_PAUSE * 2u32.pow(repeats)).await;
                repeats += 1;
            }
            answer => return answer,
        }
    }
}

/// The object, by listing: few controllers may get pods, all may list what they watch.
async fn find(client: &Client, target: &Target) -> kube::Result<Answer> {
    let path = format!("{}?fieldSelector=metadata.name%3D{}", target.collection(), target.key.name);
    match client.request::<Answers>(request("GET", path, None, Vec::new())?).await {
        Ok(found) => {
            found.items.into_iter().next().ok_or_else(|| kube::Error::Service("it is not there yet".into()))
        }
        Err(error) if code(&error) == 403 => {
            client.request(request("GET", target.path(), None, Vec::new())?).await
        }
        Err(error) => Err(error),
    }
}

/// Whether the write may or may not have been done.
fn is_unknown(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 500 | 502..=504),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        // An answer that was cut short.
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => true,
        _ => false,
    }
}

/// A name as the apiserver would choose it.
fn generate_name(prefix: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_PREFIX: usize = 63 - 5;
    let prefix: String = prefix.chars().take(LONGEST_PREFIX).collect();
    let suffix = (0..5).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())]));
    prefix + &suffix.collect::<String>()
}

fn request(
    method: &str,
    path: String,
    content_type: Option<&str>,
    body: Vec<u8>,
) -> kube::Result<Request<Vec<u8>>> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(content_type) = content_type {
        builder = builder.header("content-type", content_type);
    }
    builder.body(body).map_err(kube::Error::HttpError)
}

impl Seen {
    /// Where the object is.
    pub fn key(&self) -> &Key {
        &self.target.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    /// A server that answers one request per connection: with nothing, or with a code and a body. It tells what it was asked.
    async fn server(answers: Vec<Option<(u16, Value)>>) -> (Client, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound above"));
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut reader = BufReader::new(&mut stream);
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).await.expect("a request");
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).await.expect("a header");
                    if let Some(found) = line.to_lowercase().strip_prefix("content-length:") {
                        length = found.trim().parse().expect("a length");
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).await.expect("a body");
                asked.push(first.trim_end_matches(" HTTP/1.1\r\n").to_owned());
                if let Some((code, body)) = answer {
                    let body = body.to_string();
                    let head =
                        format!("HTTP/1.1 {code} x\r\nconnection: close\r\ncontent-length: {}", body.len());
                    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.expect("an answer");
                }
            }
            asked
        });
        let config = kube::Config::new(address.parse().expect("an address"));
        (Client::try_from(config).expect("a client"), asked)
    }

    #[tokio::test]
    async fn what_was_created_unheard_is_found_however_often_the_answer_is_lost() {
        let exists = serde_json::json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409});
        let object = serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let list = serde_json::json!({"items": [object]});
        let exists = || Some((409, exists.clone()));
        let (client, asked) = server(vec![None, exists(), None, exists(), Some((200, list))]).await;
        let mut config_map = ConfigMap::default();
        config_map.metadata.namespace = Some("default".into());
        config_map.metadata.name = Some("a".into());
        let seen = write(&client, &Write::create(&config_map)).await.expect("it is there");
        assert_eq!((seen.uid.as_str(), seen.version), ("u", Some(7)));
        let (post, get) = (
            "POST /api/v1/namespaces/default/configmaps",
            "GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
        );
        assert_eq!(asked.await.expect("the server"), [post, post, get, post, get]);
    }
}
