//! One probe of one container: asks again and again, and tells the verdict when it changes.

use super::{Count, Found, Kind, exec, grpc, http};
use crate::plan::container_of;
use crate::runtime::ContainerId;
use crate::shared::Shared;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// What a probe needs.
pub(super) struct Task {
    pub shared: Arc<Shared>,
    pub pod: Arc<Pod>,
    pub name: String,
    pub id: ContainerId,
    pub kind: Kind,
    pub started_at: Timestamp,
    pub address: Option<String>,
    pub tell: mpsc::Sender<Found>,
}

/// How one question was answered.
enum Answer {
    Success,
    /// It succeeds, and there is something to be said of it.
    Warning(String),
    Failure(String),
    Error(String),
}

impl Task {
    /// Until the verdict is final, or the task is dropped.
    pub async fn run(self) {
        let Some((_, container)) = container_of(&self.pod, &self.name) else { return };
        let Some(probe) = self.kind.of(&container) else { return };
        let first =
            self.started_at + SignedDuration::from_secs(i64::from(probe.initial_delay_seconds.unwrap_or(0)));
        let wait = first.duration_since(Timestamp::now());
        tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
        let seconds = |value: Option<i32>, default| {
            Duration::from_secs(u64::try_from(value.unwrap_or(default).max(1)).unwrap_or(1))
        };
        let timeout = seconds(probe.timeout_seconds, 1);
        let mut ticks = tokio::time::interval(seconds(probe.period_seconds, 10));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = Count::new(probe);
        let mut told = None;
        loop {
            ticks.tick().await;
            let answer = self.ask(probe, &container, timeout).await;
            self.say(&answer);
            let is_success = matches!(answer, Answer::Success | Answer::Warning(_));
            let Some(verdict) = count.answer(is_success) else { continue };
            if told != Some(verdict) {
                told = Some(verdict);
                let (pod, probe) = (&self.pod.metadata.name, self.kind.name());
                tracing::info!(pod, container = self.name, probe, success = verdict, "a probe's verdict");
                let found = Found { container: self.id.clone(), kind: self.kind, success: verdict };
                if self.tell.send(found).await.is_err() {
                    return;
                }
            }
            if Count::is_last(self.kind, verdict) {
                return;
            }
        }
    }

    fn say(&self, answer: &Answer) {
        let kind = self.kind.name();
        let (reason, message) = match answer {
            Answer::Success => return,
            Answer::Warning(output) => ("ProbeWarning", format!("{kind} probe warning: {output}")),
            Answer::Failure(output) => ("Unhealthy", format!("{kind} probe failed: {output}")),
            Answer::Error(error) => {
                ("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {error}"))
            }
        };
        self.shared.events.probe(&self.pod, &self.name, reason, message);
    }

    async fn ask(&self, probe: &Probe, container: &Container, timeout: Duration) -> Answer {
        if let Some(action) = &probe.exec {
            let command = action.command.clone().unwrap_or_default();
            return match exec::run(&*self.shared.runtime, &self.id, command, timeout).await {
                Ok((0, _)) => Answer::Success,
                Ok((_, output)) => Answer::Failure(output),
                Err(error) => Answer::Error(error),
            };
        }
        let Some(address) = self.address.clone() else {
            return Answer::Error("the pod has no address".into());
        };
        if let Some(action) = &probe.http_get {
            return match http::Request::of(action, container, &address) {
                Err(error) => Answer::Error(error),
                Ok(request) => match request.send(timeout).await {
                    Ok(answer) if (200..300).contains(&answer.status) => Answer::Success,
                    Ok(answer) if (300..400).contains(&answer.status) => {
                        let body = String::from_utf8_lossy(&answer.body);
                        Answer::Warning(format!("Probe terminated redirects, Response body: {body}"))
                    }
                    Ok(answer) => {
                        Answer::Failure(format!("HTTP probe failed with statuscode: {}", answer.status))
                    }
                    Err(error) => Answer::Failure(format!("Get \"{}\": {error}", request.url())),
                },
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or(address);
            return match port(&action.port, container) {
                Err(error) => Answer::Error(error),
                Ok(port) => connect(&host, port, timeout).await,
            };
        }
        if let Some(action) = &probe.grpc {
            let port = u16::try_from(action.port).unwrap_or(0);
            let service = action.service.clone().unwrap_or_default();
            return match grpc::check(&address, port, &service, timeout).await {
                Ok(()) => Answer::Success,
                Err(error) => Answer::Failure(error),
            };
        }
        Answer::Error(format!("missing probe handler for {}", self.name))
    }
}

async fn connect(host: &str, port: u16, timeout: Duration) -> Answer {
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Answer::Success,
        Ok(Err(error)) => Answer::Failure(format!("dial tcp {host}:{port}: connect: {}", plain(&error))),
        Err(_) => Answer::Failure(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

/// The words of an error of the system, without its number.
pub(super) fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        std::io::ErrorKind::HostUnreachable => "no route to host".into(),
        std::io::ErrorKind::ConnectionReset => "connection reset by peer".into(),
        _ => error.to_string(),
    }
}

/// A port given by number or by the name that the container has for it.
pub(super) fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| format!("couldn't find port: {name} in container"))?,
            }
        }
    };
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or(format!("invalid port number: {number}"))
}
