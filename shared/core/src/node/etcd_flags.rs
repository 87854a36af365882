//! The command line of etcd that the agent writes, as far as a spec must agree with it.

/// Flags that the agent gives to etcd, in one release or another, whatever the spec says. etcd takes each from the command line or from the
/// environment, and does not start where both name it.
pub const ETCD_FLAGS: [&str; 21] = [
    "advertise-client-urls",
    "cert-file",
    "client-cert-auth",
    "data-dir",
    "experimental-initial-corrupt-check",
    "experimental-watch-progress-notify-interval",
    "feature-gates",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "key-file",
    "listen-client-urls",
    "listen-peer-urls",
    "name",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-key-file",
    "peer-trusted-ca-file",
    "trusted-ca-file",
    "watch-progress-notify-interval",
];

/// The flag that the agent gives to etcd only where the spec has `etcd.quota`.
pub const ETCD_QUOTA_FLAG: &str = "quota-backend-bytes";

/// The flag that an environment variable of etcd stands for: `ETCD_DATA_DIR` is `data-dir` (etcd `pkg/flags/flag.go`, `FlagToEnv`). `None` for
/// variables that etcd does not read.
#[must_use]
pub fn flag_of_variable(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("ETCD_")?;
    let known = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(known).then(|| name.to_ascii_lowercase().replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_as_etcd_names_it() {
        assert_eq!(flag_of_variable("ETCD_DATA_DIR").as_deref(), Some("data-dir"));
        assert_eq!(flag_of_variable("ETCD_NAME").as_deref(), Some("name"));
        for other in ["ETCDCTL_API", "GOMAXPROCS", "etcd_name", "ETCD_name"] {
            assert_eq!(flag_of_variable(other), None, "{other}");
        }
    }

    #[test]
    fn the_flags_are_in_order_and_each_is_there_once() {
        assert!(ETCD_FLAGS.is_sorted_by(|a, b| a < b));
        assert!(!ETCD_FLAGS.contains(&ETCD_QUOTA_FLAG));
    }
}
