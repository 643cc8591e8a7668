//! What tests share: a real apiserver on a free port, real etcd, conditions to wait for. Dev-dependency only.
