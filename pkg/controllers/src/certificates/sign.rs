//! Signing of approved requests, for the signers that are the cluster's own.

use super::{
    CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, has, is_issued, kubelet_client, kubelet_serving, parse,
    usages,
};
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pki::{Authority, Facts, Usage};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Certificates are backdated a little; one that asks for less than that twice over is none.
const SHORTEST: Duration = Duration::from_secs(600);

/// What to do with an approved request.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is not ours.
    Leave,
    /// Sign it, for so long.
    Sign(Duration),
    /// Refuse it for good.
    Refuse(String),
}

fn decide(request: &CertificateSigningRequest, facts: &Facts, longest: Duration) -> Decision {
    let usages = usages(request);
    let fits = match request.spec.signer_name.as_str() {
        KUBELET_CLIENT => kubelet_client(facts, &usages),
        KUBELET_SERVING => kubelet_serving(facts, &usages),
        CLIENT => client(&usages),
        LEGACY => Ok(()),
        _ => return Decision::Leave,
    };
    let asked = request.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let asked = asked.map_or(longest, Duration::from_secs);
    match fits {
        Ok(()) => Decision::Sign(asked.max(SHORTEST).min(longest)),
        Err(why) => Decision::Refuse(why),
    }
}

fn client(usages: &BTreeSet<&str>) -> Result<(), String> {
    let fine = ["digital signature", "key encipherment", "client auth"];
    if let Some(usage) = usages.iter().find(|usage| !fine.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    if usages.contains("client auth") {
        Ok(())
    } else {
        Err("missing required usage for client certificate: client auth".to_owned())
    }
}

fn signed(request: &CertificateSigningRequest, certificate: String) -> Write {
    let mut next = request.clone();
    next.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
    Write::update_status(&next)
}

fn refused(request: &CertificateSigningRequest, why: String, now: Timestamp) -> Write {
    let mut next = request.clone();
    let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(why),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
    Write::update_status(&next)
}

struct View {
    request: Arc<CertificateSigningRequest>,
    parsed: pki::Request,
    authority: Authority,
}

struct Signer {
    requests: Cache<CertificateSigningRequest>,
    certificate_file: PathBuf,
    key_file: PathBuf,
    longest: Duration,
}

/// Makes it. Without an authority it does nothing.
pub fn start(context: &Context) -> Task {
    let config = &context.config;
    let (Some(certificate_file), Some(key_file)) =
        (config.cluster_signing_cert_file.clone(), config.cluster_signing_key_file.clone())
    else {
        return Box::pin(async {});
    };
    let requests: Cache<CertificateSigningRequest> = context.informers.cache();
    let longest = config.cluster_signing_duration;
    let signer = Signer { requests: requests.clone(), certificate_file, key_file, longest };
    Driver::new(context, signer).owns(&requests).task()
}

impl Controller for Signer {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(request) = self.requests.get(key) else { return Ok(None) };
        let waits = has(&request, "Approved")
            && !has(&request, "Denied")
            && !has(&request, "Failed")
            && !is_issued(&request);
        let Some(parsed) = parse(&request).filter(|_| waits) else { return Ok(None) };
        // Read anew: the authority may have been replaced since.
        let authority = self.authority().await.map_err(|error| kube::Error::Service(error.into()))?;
        Ok(Some(View { request, parsed, authority }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        let write = match decide(&view.request, &view.parsed.facts, self.longest) {
            Decision::Leave => None,
            Decision::Refuse(why) => Some(refused(&view.request, why, now)),
            Decision::Sign(lifetime) => {
                let usages: Vec<Usage> = usages(&view.request).into_iter().filter_map(Usage::parse).collect();
                match view.authority.sign(&view.parsed, &usages, lifetime, now) {
                    Ok(certificate) => Some(signed(&view.request, certificate)),
                    Err(error) => {
                        tracing::error!(%error, "a certificate was not signed");
                        None
                    }
                }
            }
        };
        Plan { status: write, ..Plan::default() }
    }
}

impl Signer {
    async fn authority(&self) -> Result<Authority, String> {
        let read = async |path: &PathBuf| {
            tokio::fs::read_to_string(path).await.map_err(|error| format!("read {}: {error}", path.display()))
        };
        let (certificate, key) = (read(&self.certificate_file).await?, read(&self.key_file).await?);
        Authority::load(&certificate, &key).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_signer_signs_what_it_is_for() {
        const CLIENT_USAGES: &[&str] = &["digital signature", "client auth"];
        let year = Duration::from_secs(365 * 24 * 3600);
        let of = |signer: &str, organization: &str, usages: &[&str]| {
            request(signer, "system:node:n1", &[organization], &[], usages, json!({}))
        };
        let refused = |why: &str| Decision::Refuse(why.to_owned());
        let cases = [
            (of(KUBELET_CLIENT, "system:nodes", CLIENT_USAGES), Decision::Sign(year)),
            (
                of(KUBELET_CLIENT, "others", CLIENT_USAGES),
                refused("subject organization is not system:nodes"),
            ),
            (
                of(KUBELET_SERVING, "system:nodes", CLIENT_USAGES),
                refused("DNS or IP subjectAltName is required"),
            ),
            (of(CLIENT, "others", CLIENT_USAGES), Decision::Sign(year)),
            (
                of(CLIENT, "others", &["server auth"]),
                refused("invalid usage for client certificate: server auth"),
            ),
            (
                of(CLIENT, "others", &["digital signature"]),
                refused("missing required usage for client certificate: client auth"),
            ),
            (of("example.com/mine", "others", CLIENT_USAGES), Decision::Leave),
        ];
        for (index, (request, expected)) in cases.into_iter().enumerate() {
            let facts = parse(&request).unwrap().facts;
            assert_eq!(decide(&request, &facts, year), expected, "case {index}");
        }
    }

    #[test]
    fn lifetimes_are_as_asked_within_bounds() {
        let day = Duration::from_secs(24 * 3600);
        for (asked, seconds) in
            [(None, 24 * 3600), (Some(3600), 3600), (Some(60), 600), (Some(1_000_000), 24 * 3600)]
        {
            let mut request = request(CLIENT, "bob", &[], &[], &["client auth"], json!({}));
            request.spec.expiration_seconds = asked;
            let facts = parse(&request).unwrap().facts;
            assert_eq!(
                decide(&request, &facts, day),
                Decision::Sign(Duration::from_secs(seconds)),
                "{asked:?}"
            );
        }
    }
}
