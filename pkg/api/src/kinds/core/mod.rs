//! The kinds of core/v1: one file each.
