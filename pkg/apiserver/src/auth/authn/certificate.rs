//! The user of a client certificate.

use super::Rejected;
use crate::auth::User;
use ring::digest::{SHA256, digest};
use x509_parser::oid_registry::asn1_rs::oid;
use x509_parser::x509::AttributeTypeAndValue;

/// Who a certificate (DER, verified already) is of; nobody, if it names nobody.
pub fn user_of_certificate(document: &[u8]) -> Result<Option<User>, Rejected> {
    let (_, certificate) = x509_parser::parse_x509_certificate(document)
        .map_err(|error| Rejected::Certificate(error.to_string()))?;
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    let subject = certificate.subject();
    let Some(name) = subject.iter_common_name().filter_map(text).last().filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    // Kubernetes' own attribute for the uid of a user.
    let uids: Vec<String> = subject.iter_by_oid(&oid!(1.3.6.1.4.1.57683.2)).filter_map(text).collect();
    let uid = match &uids[..] {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        [_] => return Err(Rejected::Certificate("UID cannot be an empty string".to_owned())),
        _ => return Err(Rejected::Certificate(format!("expected 1 UID, but found multiple: {uids:?}"))),
    };
    let fingerprint: String =
        digest(&SHA256, document).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(User {
        name,
        uid,
        groups: subject.iter_organization().filter_map(text).collect(),
        extra: [(User::CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into(),
    }))
}
