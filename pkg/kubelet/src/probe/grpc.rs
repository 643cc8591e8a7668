//! The gRPC health check, `grpc.health.v1.Health/Check`: one message each way, small enough to be written by hand.

use super::task::plain;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use tokio::net::TcpStream;

/// Field 1, length-delimited.
const SERVICE_FIELD: u8 = 0x0a;
/// Field 1, a varint.
const STATUS_FIELD: u8 = 0x08;
const SERVING: u8 = 1;

/// Whether a service serves. An error: why not.
pub(super) async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), String> {
    let asked = tokio::time::timeout(timeout, ask(host, port, service)).await;
    asked.unwrap_or_else(|_| {
        Err(format!("timeout: health rpc did not complete within {}s", timeout.as_secs()))
    })
}

async fn ask(host: &str, port: u16, service: &str) -> Result<(), String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| {
        format!("timeout: failed to connect service \"{host}:{port}\" : {}", plain(&error))
    })?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    let request = http::Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.35")
        .body(Full::new(message(service)))
        .map_err(|error| error.to_string())?;
    let talk = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let headers = answer.headers().clone();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = trailers.get("grpc-status").or(headers.get("grpc-status"));
        match status.and_then(|status| status.to_str().ok()) {
            Some("0") | None => {}
            Some("12") => {
                return Err(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
                        .into(),
                );
            }
            Some(code) => return Err(format!("error: health rpc probe failed with status {code}")),
        }
        match serving(&body.to_bytes()) {
            SERVING => Ok(()),
            other => {
                let name = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]
                    .get(usize::from(other))
                    .unwrap_or(&"UNKNOWN");
                Err(format!("service unhealthy (responded with \"{name}\")"))
            }
        }
    };
    tokio::select! {
        answer = talk => answer,
        ended = connection => Err(ended.err().map_or("EOF".into(), |error| error.to_string())),
    }
}

/// A HealthCheckRequest in its frame: no compression, the length, the message.
fn message(service: &str) -> Bytes {
    let mut body = Vec::new();
    if !service.is_empty() {
        body.push(SERVICE_FIELD);
        let mut length = service.len();
        while length >= 0x80 {
            body.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        body.push(length as u8);
        body.extend_from_slice(service.as_bytes());
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(&body);
    frame.into()
}

/// The status in a framed HealthCheckResponse.
fn serving(frame: &[u8]) -> u8 {
    match frame.get(5..7) {
        Some([STATUS_FIELD, status]) => *status,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_as_protobuf_has_them() {
        assert_eq!(message(""), Bytes::from_static(&[0, 0, 0, 0, 0]));
        assert_eq!(message("ab"), Bytes::from_static(&[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']));
        assert_eq!(serving(&[0, 0, 0, 0, 2, 8, 1]), SERVING);
        assert_eq!(serving(&[0, 0, 0, 0, 0]), 0);
    }
}
