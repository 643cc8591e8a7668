//! What kubectl and kubeadm share: tables, progress, errors.
