//! Time as the API writes it.

use jiff::Timestamp;

/// `2026-01-01T00:00:00Z`: whole seconds, as `metav1.Time` is.
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
