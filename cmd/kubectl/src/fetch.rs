//! Files that stand behind URLs.

use anyhow::{Context, Result, bail};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::{Client, Config};

/// A file of objects is not larger.
const MOST_BYTES: usize = 64 * 1024 * 1024;
const MOST_REDIRECTS: usize = 10;

/// The text behind a URL. No credentials of any cluster are sent.
pub async fn fetch(url: &str) -> Result<String> {
    let mut uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
    for _ in 0..MOST_REDIRECTS {
        let authority = uri.authority().with_context(|| format!("{uri} names no host"))?.to_string();
        let scheme = uri.scheme_str().unwrap_or("http").to_owned();
        let server: Uri = format!("{scheme}://{authority}").parse()?;
        let client = Client::try_from(Config::new(server)).context("prepare the request")?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path).header(header::USER_AGENT, "kubectl").body(Body::empty())?;
        let response = client.send(request).await.with_context(|| format!("unable to read URL \"{uri}\""))?;
        let status = response.status();
        if let Some(next) = response.headers().get(header::LOCATION).filter(|_| status.is_redirection()) {
            let next = next.to_str().context("a redirection to nowhere")?;
            uri =
                if next.starts_with('/') { format!("{scheme}://{authority}{next}") } else { next.to_owned() }
                    .parse()
                    .with_context(|| format!("{url} redirects to {next:?}"))?;
            continue;
        }
        if status != StatusCode::OK {
            bail!("unable to read URL \"{uri}\", server reported {status}, status code={}", status.as_u16());
        }
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let bytes = body.map_err(|error| anyhow::anyhow!("read {uri}: {error}"))?.to_bytes();
        return String::from_utf8(bytes.to_vec()).with_context(|| format!("{uri} is not text"));
    }
    bail!("{url} redirects too often")
}
