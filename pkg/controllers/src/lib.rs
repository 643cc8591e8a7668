//! One module per controller, all of one shape.

pub mod endpoints;
