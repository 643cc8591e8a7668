//! The bridge, addresses and overlay that pods talk over.
