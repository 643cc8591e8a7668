//! The whole chain in one process, against a real apiserver: virtual node, API server and plugin, each of which may be
//! replaced by what another program would say.

mod first;
mod hostile;
mod pods;
mod python;
mod world;
