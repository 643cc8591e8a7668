//! The way to containerd: one channel, which comes back by itself, and a client per service in our namespace.

use super::super::Error;
use containerd_client::services::v1 as api;
use containerd_client::tonic::metadata::MetadataValue;
use containerd_client::tonic::service::Interceptor;
use containerd_client::tonic::service::interceptor::InterceptedService;
use containerd_client::tonic::transport::{Channel, Endpoint};
use containerd_client::tonic::{Code, Request, Status};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// More than all containers of a full node take in one answer.
const LARGEST_MESSAGE_BYTES: usize = 64 << 20;

/// What may be on its way to us unread, of all answers together. One alone may have no more than 64 KB, so that many that
/// nobody reads at the moment leave room for those that somebody does.
const UNREAD_BYTES: u32 = 16 << 20;

/// A channel on which every request is in our namespace.
pub(crate) type Api = InterceptedService<Channel, Namespaced>;

/// Where containerd is, and in which of its namespaces we live.
#[derive(Clone)]
pub(crate) struct Connection {
    endpoint: Endpoint,
    namespace: Namespaced,
    channel: Arc<OnceLock<Channel>>,
}

/// Puts the namespace, and a lease where there is one, on every request.
#[derive(Clone)]
pub(crate) struct Namespaced {
    namespace: MetadataValue<containerd_client::tonic::metadata::Ascii>,
    lease: Option<MetadataValue<containerd_client::tonic::metadata::Ascii>>,
}

impl Interceptor for Namespaced {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("containerd-namespace", self.namespace.clone());
        if let Some(lease) = &self.lease {
            request.metadata_mut().insert("containerd-lease", lease.clone());
        }
        Ok(request)
    }
}

macro_rules! clients {
    ($($name:ident: $client:ty;)*) => {
        $(pub(crate) fn $name(&self) -> $client {
            <$client>::new(Api::new(self.channel(), self.namespace.clone()))
                .max_decoding_message_size(LARGEST_MESSAGE_BYTES)
        })*
    };
}

impl Connection {
    /// Connects when it is first needed.
    pub(crate) fn new(socket: &Path, namespace: &str) -> Result<Self, Error> {
        let namespace = namespace
            .parse()
            .map_err(|_| Error::Container(format!("containerd namespace {namespace:?} is not a name")))?;
        let socket = socket.display();
        let endpoint = Endpoint::new(format!("unix://{socket}")).map_err(|source| Error::Unavailable {
            doing: format!("use {socket} as containerd's socket"),
            source: source.into(),
        })?;
        let endpoint = endpoint.initial_connection_window_size(UNREAD_BYTES);
        Ok(Connection { endpoint, namespace: Namespaced { namespace, lease: None }, channel: Arc::default() })
    }

    /// The same, with everything that is made on it held by a lease.
    pub(crate) fn with_lease(&self, lease: &str) -> Self {
        let lease = lease.parse().ok();
        Connection { namespace: Namespaced { lease, ..self.namespace.clone() }, ..self.clone() }
    }

    clients! {
        containers: api::containers_client::ContainersClient<Api>;
        content: api::content_client::ContentClient<Api>;
        diff: api::diff_client::DiffClient<Api>;
        events: api::events_client::EventsClient<Api>;
        images: api::images_client::ImagesClient<Api>;
        leases: api::leases_client::LeasesClient<Api>;
        snapshots: api::snapshots::snapshots_client::SnapshotsClient<Api>;
        tasks: api::tasks_client::TasksClient<Api>;
        version: api::version_client::VersionClient<Api>;
    }

    /// Connects in a task of its own when the first request comes, and again when containerd was away: nobody who is not
    /// polled holds up the others.
    fn channel(&self) -> Channel {
        self.channel.get_or_init(|| self.endpoint.connect_lazy()).clone()
    }
}

/// Says what was being done when containerd refused.
pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(Status) -> Error {
    let doing = doing.into();
    move |status| Error::Unavailable {
        doing: format!("{doing}: {}", status.message()),
        source: status.into(),
    }
}

/// What is gone already, or there already, is no error.
pub(crate) trait Lenient<T> {
    /// Nothing where there is no such thing.
    fn if_found(self) -> Result<Option<T>, Status>;
    /// Nothing where there is one already.
    fn if_new(self) -> Result<Option<T>, Status>;
}

impl<T> Lenient<T> for Result<containerd_client::tonic::Response<T>, Status> {
    fn if_found(self) -> Result<Option<T>, Status> {
        without(Code::NotFound, self)
    }

    fn if_new(self) -> Result<Option<T>, Status> {
        without(Code::AlreadyExists, self)
    }
}

fn without<T>(
    code: Code,
    result: Result<containerd_client::tonic::Response<T>, Status>,
) -> Result<Option<T>, Status> {
    match result {
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == code => Ok(None),
        Err(status) => Err(status),
    }
}
