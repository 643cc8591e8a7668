//! HTTP requests of probes and hooks. Whoever answers is believed: certificates are not checked, as upstream.

use super::task::{plain, port};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::{Host, Url};

/// More of a body is not read.
const LONGEST_BODY: usize = 10 * 1024;
/// More redirects than this are an error.
const MOST_REDIRECTS: usize = 10;

/// A GET.
#[derive(Clone)]
pub(crate) struct Request {
    tls: bool,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
}

/// What came back.
pub(crate) struct Answer {
    /// The status code.
    pub status: u16,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// Where it leads, if that is where it says that the answer is.
    location: Option<String>,
}

impl Request {
    /// What an action asks of a container at an address.
    pub fn of(action: &HTTPGetAction, container: &Container, address: &str) -> Result<Request, String> {
        let headers = action.http_headers.iter().flatten();
        let path = action.path.as_deref().unwrap_or("/");
        Ok(Request {
            tls: action.scheme.as_deref() == Some("HTTPS"),
            host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_owned()),
            port: port(&action.port, container)?,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
        })
    }

    /// As people write it.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Sends it, and again to wherever the answer leads on the same host. What leads to another is the answer.
    pub async fn send(&self, timeout: Duration) -> Result<Answer, String> {
        let timed = tokio::time::timeout(timeout, self.follow()).await;
        timed.unwrap_or_else(|_| {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into())
        })
    }

    async fn follow(&self) -> Result<Answer, String> {
        let mut request = self.clone();
        for _ in 0..MOST_REDIRECTS {
            let answer = request.exchange().await?;
            let next = answer.location.as_deref().map(|location| request.redirected(location));
            match next.transpose()?.flatten() {
                Some(next) => request = next,
                None => return Ok(answer),
            }
        }
        Err(format!("stopped after {MOST_REDIRECTS} redirects"))
    }

    /// The request that a redirect asks for; nothing where that would leave the host.
    fn redirected(&self, location: &str) -> Result<Option<Request>, String> {
        let unusable = |error| format!("failed to parse Location header {location:?}: {error}");
        let here = Url::parse(&self.url()).map_err(unusable)?;
        let there = here.join(location).map_err(unusable)?;
        let (Some(host), Some(port)) = (there.host(), there.port_or_known_default()) else { return Ok(None) };
        if !matches!(there.scheme(), "http" | "https") || here.host() != Some(host.clone()) {
            return Ok(None);
        }
        let mut headers = self.headers.clone();
        if Url::parse(location).is_ok() {
            // The name that was asked for goes with the address that was given for it, not with another.
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
        }
        let path = there[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        let host = match host {
            Host::Ipv6(address) => address.to_string(),
            host => host.to_string(),
        };
        Ok(Some(Request { tls: there.scheme() == "https", host, port, path, headers }))
    }

    async fn exchange(&self) -> Result<Answer, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|error| format!("dial tcp {}: connect: {}", self.authority(), plain(&error)))?;
        if !self.tls {
            return self.speak(stream).await;
        }
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        self.speak(connector.connect(name, stream).await.map_err(|error| error.to_string())?).await
    }

    async fn speak<S>(&self, stream: S) -> Result<Answer, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| error.to_string())?;
        let mut request = http::Request::get(&self.path);
        let has = |name: &str| self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !has("host") {
            request = request.header("Host", self.authority());
        }
        if !has("user-agent") {
            request = request.header("User-Agent", "kube-probe/1.35");
        }
        if !has("accept") {
            request = request.header("Accept", "*/*");
        }
        request = request.header("Connection", "close");
        for (name, value) in self.headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let talk = async {
            let mut answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let location = answer.headers().get(http::header::LOCATION).and_then(|to| to.to_str().ok());
            let location =
                location.filter(|to| !to.is_empty() && matches!(status, 301 | 302 | 303 | 307 | 308));
            let location = location.map(str::to_owned);
            let mut body = Vec::new();
            while body.len() < LONGEST_BODY
                && let Some(frame) = answer.body_mut().frame().await
            {
                let frame = frame.map_err(|error| error.to_string())?;
                body.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            }
            body.truncate(LONGEST_BODY);
            Ok(Answer { status, body, location })
        };
        let connection = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            answer = talk => answer,
            () = connection => Err("EOF".into()),
        }
    }
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn a_redirect_is_followed_on_the_same_host_only() {
        let request = Request {
            tls: false,
            host: "10.0.0.5".into(),
            port: 8080,
            path: "/old/path?a=b".into(),
            headers: vec![("Host".into(), "shop".into()), ("X".into(), "y".into())],
        };
        let check = |location: &str, expected: Option<(&str, usize)>| {
            let next = request.redirected(location).expect("readable");
            let found = next.as_ref().map(|next| (next.url(), next.headers.len()));
            let expected = expected.map(|(url, headers)| (url.to_owned(), headers));
            assert_eq!(found, expected, "{location}");
        };
        check("/new", Some(("http://10.0.0.5:8080/new", 2)));
        check("new?x=1#part", Some(("http://10.0.0.5:8080/old/new?x=1", 2)));
        check("http://10.0.0.5/new", Some(("http://10.0.0.5:80/new", 1)));
        check("https://10.0.0.5:8443/", Some(("https://10.0.0.5:8443/", 1)));
        check("http://10.0.0.6:8080/new", None);
        check("//elsewhere/new", None);
        check("ftp://10.0.0.5/new", None);
        assert!(request.redirected("http://[").is_err());
    }

    /// Answers one request after the other, each by its path.
    async fn serve(listener: TcpListener, answer: impl Fn(&str) -> String) {
        loop {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.expect("a request"));
            }
            let request = String::from_utf8(request).expect("text");
            let answer = answer(request.split(' ').nth(1).expect("a path"));
            // Whoever has read enough hangs up.
            let _ = connection.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await;
        }
    }

    #[tokio::test]
    async fn answers_are_followed_and_read_as_far_as_they_matter() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(serve(listener, |path| match path {
            "/healthz" => "302 Found\r\nLocation: /ready\r\n\r\n".into(),
            "/ready" => "200 OK\r\nContent-Length: 2\r\n\r\nok".into(),
            "/away" => "302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 4\r\n\r\ngone".into(),
            "/nowhere" => "302 Found\r\nContent-Length: 0\r\n\r\n".into(),
            "/round" => "307 Temporary Redirect\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n".into(),
            // It says that more is to come, and nothing does.
            _ => format!("200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(20_000)),
        }));
        let ask = async |path: &str| {
            let (host, path) = ("127.0.0.1".into(), path.to_owned());
            let request = Request { tls: false, host, port, path, headers: Vec::new() };
            let answer = request.send(Duration::from_secs(60)).await?;
            Ok::<_, String>((answer.status, answer.body))
        };
        assert_eq!(ask("/healthz").await, Ok((200, b"ok".to_vec())));
        assert_eq!(ask("/away").await, Ok((302, b"gone".to_vec())));
        assert_eq!(ask("/nowhere").await, Ok((302, Vec::new())));
        assert_eq!(ask("/round").await, Err("stopped after 10 redirects".into()));
        assert_eq!(ask("/long").await, Ok((200, vec![b'x'; LONGEST_BODY])));
        server.abort();
    }
}
