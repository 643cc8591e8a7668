//! Clients, informers, leader election and events.
