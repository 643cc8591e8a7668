//! Tables of situations.
