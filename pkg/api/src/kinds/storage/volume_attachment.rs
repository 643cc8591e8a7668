//! VolumeAttachment: the wish to have a volume attached to a node.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Column, Kind, column};
use crate::kinds::{pod_spec, rules};
use crate::{names, printing};
use k8s_openapi::api::storage::v1::VolumeAttachment;

const MOST_METADATA_BYTES: usize = 256 * 1024;
const MOST_MESSAGE_BYTES: usize = 1024;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            Column {
                format: "name",
                ..column("Attacher", "string", |attachment, _| {
                    printing::text(attachment, "spec.attacher").into()
                })
            },
            column("PV", "string", |attachment, _| {
                printing::text(attachment, "spec.source.persistentVolumeName").into()
            }),
            column("Node", "string", |attachment, _| printing::text(attachment, "spec.nodeName").into()),
            column("Attached", "boolean", |attachment, _| (attachment["status"]["attached"] == true).into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| new.get("spec").immutable(&old.get("spec"), errors),
        validate_status: |new, _, errors| validate_status(new, errors),
        ..Kind::new::<VolumeAttachment>().with_status()
    }
}

fn validate(attachment: &Field<'_>, errors: &mut Errors) {
    let spec = attachment.get("spec");
    let attacher = spec.get("attacher");
    pod_spec::validate_csi_driver_name(&attacher, errors);
    let source = spec.get("source");
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let one_of = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.exists(), name.exists()) {
        (false, false) => source.complain(Reason::Required, one_of, errors),
        (true, true) => source.forbidden(one_of, errors),
        (false, true) => {
            if name.required_because("must specify non empty persistentVolumeName", errors) {
                name.conforms(names::is_dns1123_subdomain, errors);
            }
        }
        (true, false) => {}
    }
    spec.get("nodeName").conforms(names::is_dns1123_subdomain, errors);
    validate_status(attachment, errors);
}

fn validate_status(attachment: &Field<'_>, errors: &mut Errors) {
    let status = attachment.get("status");
    let metadata = status.get("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if bytes > MOST_METADATA_BYTES {
        metadata.too_long(MOST_METADATA_BYTES, errors);
    }
    for name in ["attachError", "detachError"] {
        let error = status.get(name);
        let (message, code) = (error.get("message"), error.get("errorCode"));
        if message.text().len() > MOST_MESSAGE_BYTES {
            // Upstream tells the wrong limit.
            let detail = format!("may not be more than {MOST_METADATA_BYTES} bytes");
            rules::complain_at(&message.path(), Reason::TooLong, None, &detail, errors);
        }
        code.in_range(0..=i64::from(i32::MAX), errors);
    }
}
