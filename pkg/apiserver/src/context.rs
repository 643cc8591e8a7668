//! Who asks, how, and when: what a request carries beside its object.

use crate::auth::User;
use crate::deletion::dry_run;
use crate::error::{ApiError, Result};
use crate::request::Query;
use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;

/// What a write carries beside its object.
pub struct Context {
    /// Who asks.
    pub user: Arc<User>,
    /// The time the request is taken to have been made at.
    pub now: Timestamp,
    /// Decide, but change nothing.
    pub dry_run: bool,
    /// The server writes by itself.
    pub is_internal: bool,
    /// What to do about fields that the kind does not have.
    pub field_validation: FieldValidation,
    /// Whose fields these are, in `metadata.managedFields`.
    pub field_manager: String,
    /// Server-side apply: take fields over from other managers.
    pub force: bool,
    /// Whether managed fields are kept by server-side apply itself.
    pub is_apply: bool,
    /// The text of a patch, for complaints about what it makes of the object.
    pub patch: Option<String>,
    /// What to tell the client in `Warning` headers.
    pub warnings: Mutex<Vec<String>>,
}

/// What to do about fields that the kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse the object.
    Strict,
}

/// The longest name of a field manager.
const LONGEST_MANAGER: usize = 128;

impl Context {
    /// From the parameters of a write.
    pub fn new(user: Arc<User>, query: &Query, headers: &HeaderMap, now: Timestamp) -> Result<Context> {
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                return Err(ApiError::unprocessable(format!(
                    "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
                )));
            }
        };
        let field_manager = match query.get("fieldManager") {
            Some(name) if name.len() > LONGEST_MANAGER => {
                return Err(ApiError::unprocessable(format!(
                    "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than {LONGEST_MANAGER} bytes"
                )));
            }
            Some(name) => name.to_owned(),
            None => patch::manager_or_user_agent("", user_agent(headers)),
        };
        Ok(Context {
            user,
            now,
            dry_run: dry_run(query.all("dryRun"))?,
            is_internal: false,
            field_validation,
            field_manager,
            force: query.flag("force"),
            is_apply: false,
            patch: None,
            warnings: Mutex::new(Vec::new()),
        })
    }

    /// For what the server writes by itself.
    pub fn internal(now: Timestamp) -> Context {
        let groups = vec![User::MASTERS.to_owned(), User::AUTHENTICATED.to_owned()];
        Context {
            user: Arc::new(User { name: "system:apiserver".to_owned(), groups, ..User::default() }),
            now,
            dry_run: false,
            is_internal: true,
            field_validation: FieldValidation::Ignore,
            field_manager: "kube-apiserver".to_owned(),
            force: false,
            is_apply: false,
            patch: None,
            warnings: Mutex::default(),
        }
    }

    /// Tells the client something that did not stop the request.
    pub fn warn(&self, warning: impl Into<String>) {
        let mut warnings = self.warnings.lock();
        let warning = warning.into();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown")
}
