//! A claim that names no storage class gets the default one, if there is one.

use super::{Operation, Request, default_class};
use crate::error::Result;
use api::kinds::core::persistent_volume::storage_class;
use api::kinds::storage::storage_class::is_default;
use api::{Value, object};

pub(super) fn admit(request: &Request<'_>, claim: Option<&mut Value>) -> Result<()> {
    let Some(claim) = claim else { return Ok(()) };
    if request.operation != Operation::Create || !request.is_for("", "persistentvolumeclaims") {
        return Ok(());
    }
    // An empty name is one, too: it asks for a volume without a class.
    if storage_class(claim).is_none()
        && let Some(class) = default_class::find(request, "storage.k8s.io", "storageclasses", is_default)
    {
        object::object_mut(claim, "spec").insert("storageClassName".into(), class.into());
    }
    Ok(())
}
