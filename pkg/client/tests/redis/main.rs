//! Informers over Redis, on a real redis-server and a real apiserver: whatever becomes of either, what an informer knows in
//! the end is what the API lists, and its handlers heard every change in order and once.

mod between;
mod faults;
mod follower;
mod kills;
mod transport;
mod users;
