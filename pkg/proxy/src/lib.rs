//! Services to iptables, DNS objects and ingresses to nginx, names to addresses.
