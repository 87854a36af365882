//! The syntax of names that AWS, DNS and Kubernetes prescribe, and how private keys are recognized.

/// A DNS name: labels of letters, digits and hyphens, 63 characters each, 253 in all (RFC 1123).
pub(crate) fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// One label of a DNS name.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A name of ours that becomes part of stack names, exports and logical ids: a letter, then letters, digits and hyphens,
/// a letter or digit at the end.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && is_dns_label(text)
}

/// A prefixed or plain key of a label or taint
/// (kubernetes.io/docs/concepts/overview/working-with-objects/labels, "Syntax and character set").
pub(crate) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            is_dns_name(prefix)
                && !prefix.bytes().any(|byte| byte.is_ascii_uppercase())
                && !name.is_empty()
                && is_label_value(name)
        }
        None => !text.is_empty() && is_label_value(text),
    }
}

/// The value of a label or taint, perhaps empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.is_empty()
        || (bytes.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte)))
}

/// Labels in Kubernetes' own namespaces that a kubelet may set on itself; others make it refuse to start
/// (kubelet reference, `--node-labels`).
pub(crate) fn is_label_for_kubelet(key: &str) -> bool {
    const ALLOWED: [&str; 10] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((prefix, _)) = key.split_once('/') else { return true };
    let within = |domain: &str| {
        prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    within("kubelet.kubernetes.io") || within("node.kubernetes.io") || ALLOWED.contains(&key)
}

/// An EC2 id such as `vpc-0abc1234`: a hyphen, then 8 or 17 hexadecimal digits (docs.aws.amazon.com/ec2, "Resource IDs": longer ones
/// since 2016, older resources keep theirs).
pub(crate) fn is_id(text: &str, kind: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(kind)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|rest| matches!(rest.len(), 8 | 17) && rest.bytes().all(digit))
}

/// The parts of an ARN (docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arn<'t> {
    pub(crate) partition: &'t str,
    pub(crate) region: &'t str,
    pub(crate) resource: &'t str,
}

/// An ARN of that service, in an account of twelve digits; in IAM also of AWS' own policies.
pub(crate) fn arn<'t>(text: &'t str, service: &str) -> Option<Arn<'t>> {
    let mut parts = text.splitn(6, ':');
    let (arn, partition, of) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let of_aws = account == "aws" && of == "iam" && resource.starts_with("policy/");
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_arn = arn == "arn" && partition.starts_with("aws") && of == service;
    (is_arn && (is_account || of_aws) && !resource.is_empty()).then_some(Arn { partition, region, resource })
}

/// The last part of a path of IAM's, as policies and instance profiles may be named (IAM API, `CreatePolicy`, `PolicyName`).
pub(crate) fn is_iam_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte))
}

/// What a key or a value of a tag is written with. The tags of a stack are also those of its roles and load balancers, which take no
/// other characters (IAM API, `Tag`; Elastic Load Balancing API, `Tag`: `[\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]*`).
pub(crate) fn is_tag_text(text: &str) -> bool {
    text.chars().all(|letter| {
        letter.is_alphanumeric()
            || (letter.is_whitespace() && !letter.is_control())
            || "_.:/=+-@".contains(letter)
    })
}

/// An EC2 instance type such as `m7g.large`.
pub(crate) fn is_instance_type(text: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.split_once('.').is_some_and(|(family, size)| {
        word(family)
            && word(size)
            && family.starts_with(|letter: char| letter.is_ascii_lowercase())
            && family.bytes().any(|byte| byte.is_ascii_digit())
    })
}

/// The words at the head of every PEM private key, and the letters that they have in base64 wherever they begin
/// within a group of three bytes.
pub(crate) const PRIVATE_KEY_WORDS: [&str; 4] =
    ["PRIVATE KEY", "UFJJVkFURSBLRV", "BSSVZBVEUgS0VZ", "QUklWQVRFIEtFW"];

/// Whether a private key is in it.
pub(crate) fn holds_private_key(text: &str) -> bool {
    PRIVATE_KEY_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_kubernetes() {
        assert!(is_label_key("app.kubernetes.io/name") && is_label_key("a") && is_label_key("x_y.z-1"));
        for key in ["", "/a", "a/", "a b", "-a", "a-", "Example.com/a", &"a".repeat(64), "a/b/c"] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_3"));
        assert!(!is_label_value("a b") && !is_label_value("a/b") && !is_label_value("."));
    }

    #[test]
    fn kubelets_may_not_label_themselves_freely() {
        assert!(is_label_for_kubelet("team") && is_label_for_kubelet("example.com/team"));
        assert!(
            is_label_for_kubelet("node.kubernetes.io/pool")
                && is_label_for_kubelet("topology.kubernetes.io/zone")
        );
        assert!(!is_label_for_kubelet("node-role.kubernetes.io/worker") && !is_label_for_kubelet("k8s.io/a"));
        assert!(is_label_for_kubelet("notkubernetes.io/a"));
    }

    #[test]
    fn arns_ids_and_types_are_told_apart() {
        let parts = Arn { partition: "aws", region: "eu-west-1", resource: "key/x" };
        assert_eq!(arn("arn:aws:kms:eu-west-1:111122223333:key/x", "kms"), Some(parts));
        assert_eq!(arn("arn:aws:s3:::x", "kms"), None);
        assert!(
            arn("arn:aws:iam::aws:policy/a", "iam").is_some()
                && arn("arn:aws:iam::1:policy/a", "iam").is_none()
        );
        assert!(is_id("vpc-0abc1234", "vpc") && !is_id("vpc-", "vpc") && !is_id("subnet-0abc1234", "vpc"));
        assert!(is_id("ami-0123456789abcdef0", "ami") && !is_id("ami-0123456789", "ami"));
        assert!(!is_id("sg-xxxxxxxx", "sg") && !is_id("sg-0ABC1234", "sg"));
        assert!(is_instance_type("m7g.large") && is_instance_type("u-6tb1.56xlarge"));
        assert!(!is_instance_type("large") && !is_instance_type("m7g.") && !is_instance_type("M7g.large"));
    }

    #[test]
    fn tags_are_written_as_iam_takes_them() {
        assert!(is_tag_text("") && is_tag_text("Équipe réseau/2: a+b=c@d_e-f.g") && is_tag_text("平台"));
        for text in ["a,b", "(a)", "a&b", "5%", "a\"b", "a\nb", "a\tb", "a;b"] {
            assert!(!is_tag_text(text), "{text}");
        }
    }

    #[test]
    fn dns_names_follow_rfc_1123() {
        assert!(is_dns_name("api.example.com") && is_dns_name("a"));
        assert!(!is_dns_name("") && !is_dns_name("a..b") && !is_dns_name("-a.b") && !is_dns_name("a_b"));
        assert!(is_name("prod-1") && !is_name("1prod") && !is_name("prod-"));
    }
}
