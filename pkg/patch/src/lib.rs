//! Changing an object by saying what should change: the four kinds of patch, and who owns which field.
//!
//! ```text
//! json_patch    operations          ┐
//! merge_patch   objects, null       ├─ apply_patch(live, patch) ─> Value ─ track_update ─> with managedFields
//! strategic     merge keys          ┘
//! apply         what one manager wants ─────────────────────────────────────────────────> with managedFields
//! ```
//!
//! Pure functions of JSON and a [`Schema`]: nothing here reads, writes, defaults or validates objects, and no input,
//! however hostile, makes it panic or take more than linear time. Results may hold `null` and unknown members, as
//! requests do; [`Schema::check`] is what follows.

mod apply;
mod display;
mod field_set;
mod json_patch;
mod last_applied;
mod managed_fields;
mod merge_patch;
mod strategic;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod typed;
mod typed_merge;

pub use apply::{ApplyError, ConflictCause, apply, check_fields};
pub use field_set::{BadFields, FieldSet};
pub use json_patch::json_patch;
pub use managed_fields::{WriteContext, manager_or_user_agent, track_update};
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge_patch;

use api::Schema;
use serde_json::Value;

/// The kinds of patch other than apply, by their media types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`; custom kinds do not take it.
    StrategicMerge,
}

/// Why a patch was not applied, by what the answer should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not one: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not apply to this object: 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch is too large: 413.
    #[error("{0}")]
    TooLarge(String),
}

/// Applies a patch to an object.
pub fn apply_patch(
    patch_type: PatchType,
    schema: &Schema,
    live: Value,
    patch: Value,
) -> Result<Value, PatchError> {
    match patch_type {
        PatchType::Json => json_patch(live, &patch),
        PatchType::Merge if patch.is_object() => Ok(merge_patch(live, patch)),
        PatchType::Merge => Err(PatchError::BadRequest("Invalid JSON Patch".into())),
        PatchType::StrategicMerge => strategic_merge_patch(schema, live, patch),
    }
}
