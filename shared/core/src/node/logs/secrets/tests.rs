//! What is removed from lines, and what stays.

use proptest::prelude::*;

use super::*;

const KEY: &str = KEY_REMOVED;

#[test]
fn p9_what_has_the_form_of_a_secret_leaves_no_machine() {
    for (line, shown) in [
        // Tokens.
        ("token abcdef.0123456789abcdef, next", "token (removed), next"),
        ("it is abcdef.0123456789abcdef.", "it is (removed)."),
        ("bootstrap-token-abcdef.0123456789abcdef/x", "bootstrap-token-(removed)/x"),
        ("got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_X: refused", "got (removed): refused"),
        ("a%20eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln x", "a%20(removed) x"),
        (
            "--token hunter2 --token=\"hun ter\" -token 'x'",
            "--token (removed) --token=\"(removed)\" -token '(removed)'",
        ),
        // HTTP.
        ("Authorization: Bearer c2VjcmV0, x", "Authorization: (removed)"),
        ("curl -H \"authorization: token abc\" https://a/b", "curl -H \"authorization: (removed)"),
        (r#"{"Authorization":["Bearer abc"],"a":1}"#, r#"{"Authorization":["(removed)],"a":1}"#),
        ("header BASIC  dXNlcjpw/+_%3D x", "header BASIC  (removed) x"),
        ("Bearer%20abc1~def", "Bearer%20(removed)"),
        ("Set-Cookie: session=\"abc\"; Secure", "Set-Cookie: (removed)"),
        ("X-aws-ec2-metadata-token: abcdef", "X-aws-ec2-metadata-token: (removed)"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026, Signature=0aff", "Authorization: (removed)"),
        (
            "GET \"https://b.s3.amazonaws.com/l?X-Amz-Credential=AKIA%2F2026&X-Amz-Security-Token=IQo%2Bx&X-Amz-Signature=0aff\": 403",
            "GET \"https://b.s3.amazonaws.com/l?X-Amz-Credential=(removed)&X-Amz-Security-Token=(removed)&X-Amz-Signature=(removed)\": 403",
        ),
        (
            "to=https%3A%2F%2Fb%3FX-Amz-Signature%3D0aff%26a%3D1",
            "to=https%3A%2F%2Fb%3FX-Amz-Signature%3D(removed)%26a%3D1",
        ),
        ("dial https://root:hun@ter2@10.0.0.1:2379/a", "dial https://(removed)@10.0.0.1:2379/a"),
        // Credentials of the metadata service, in an error that quotes them.
        (
            r#"bad body: {"AccessKeyId" : "ASIA1", "SecretAccessKey" : "a+b/c", "Token" : "IQ==", "Expiration" : "t"}"#,
            r#"bad body: {"AccessKeyId" : "(removed)", "SecretAccessKey" : "(removed)", "Token" : "(removed)", "Expiration" : "t"}"#,
        ),
        (
            r#"err="{\"SecretAccessKey\":\"a\\\"b\",\"x\":1}""#,
            r#"err="{\"SecretAccessKey\":\"(removed)\",\"x\":1}""#,
        ),
        (
            "AWS_SECRET_ACCESS_KEY=abc AWS_REGION=eu-west-1",
            "AWS_SECRET_ACCESS_KEY=(removed) AWS_REGION=eu-west-1",
        ),
        ("got wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY2 from it", "got (removed) from it"),
        // etcd.
        ("etcdctl --user root:hunter2 get /a", "etcdctl --user (removed) get /a"),
        ("etcdctl --user=root --password=hunter2 get", "etcdctl --user=root --password=(removed) get"),
        (
            r#"{"msg":"auth","name":"root","password":"hunter2"}"#,
            r#"{"msg":"auth","name":"root","password":"(removed)"}"#,
        ),
        ("ETCDCTL_USER=root:hunter2 etcdctl", "ETCDCTL_USER=(removed) etcdctl"),
        // Quotes in quotes, and in words.
        ("password='\"hunter2\"' a", "password='\"(removed)\"' a"),
        ("\"{\"\"password\"\":\"\"hunter2\"\"}\"", "\"{\"\"password\"\":\"\"(removed)\"\"}\""),
        ("password=hun\"ter2 a", "password=(removed) a"),
        (r#"{"msg":"bad token=abc","next":"x"}"#, r#"{"msg":"bad token=(removed)","next":"x"}"#),
        // Secrets of Kubernetes.
        (r#"{"data":{"a":"aHVudGVyMg=="},"kind":"Secret"}"#, "(removed): it had a Secret"),
        (r#"body="{\"data\":{},\"kind\":\"Secret\"}""#, "(removed): it had a Secret"),
        (
            "got &Secret{ObjectMeta:{a  b},Data:map[string][]byte{a: [104 117],},}",
            "got &Secret{ObjectMeta:{a  b}(removed)",
        ),
        // A kubeconfig, in lines of its own.
        ("    token: hunter", "    token: (removed)"),
        ("- password: hunter of pigs", "- password: (removed)"),
        ("    client-key-data: LS0tLS1C", "    client-key-data: (removed)"),
        // Maps and structures of Go.
        ("map[db_password:hunter2 user:a]", "map[db_password:(removed) user:a]"),
        ("{BearerToken:abc Username:b}", "{BearerToken:(removed) Username:b}"),
        (r#"{"passwords":["a","b"],"c":1}"#, r#"{"passwords":["(removed)],"c":1}"#),
        (
            "err=\"container &Container{Name:app,Image:a,Env:[]EnvVar{EnvVar{Name:URL,Value:my } secret,ValueFrom:nil,},},} start failed in pod app_a(1): ErrImagePull: no\"",
            "err=\"container &Container{Name:app(removed)} start failed in pod app_a(1): ErrImagePull: no\"",
        ),
        ("was &Container{Name:app,Env:[]EnvVar{EnvVar{Name:URL,Value:x", "was &Container{Name:app(removed)"),
    ] {
        assert_eq!(without_secrets(&[line]), [shown], "{line}");
    }
}

#[test]
fn what_says_what_is_wrong_stays() {
    for line in [
        "",
        "started kubelet v1.37.0 at 10.0.0.4:6443 a/b",
        "é … \u{1f980} bearer",
        "failed to get the token: Unauthorized",
        "Bearer token required; basic authentication failed.",
        "prod.eu-west-1.example.com a.b abcdef.short foobar.0123456789abcdef.eu-west-1.compute.internal",
        "secret \"regcred\" not found, password=\"\" user=\"a\"",
        "User: arn:aws:sts::123456789012:assumed-role/prod-control-plane-ControllerRole-1ABC2DEF3GHI/i-0123456789abcdef0 is not authorized to perform: kms:Decrypt",
        "policy arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
        "image a/b@sha256:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9 digest: sha256:0a1b",
        "pods/8f3ae1b2-1c4d-4e5f-8a9b-0c1d2e3f4a5b/volumes/kubernetes.io~projected/kube-api-access-x7k2p",
        r#"E1127 07:14:59.123456    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"app\" with ImagePullBackOff" pod="default/app" podUID="8f3ae1b2""#,
        r#"{"level":"warn","ts":"2026-11-27T07:14:59.123456Z","caller":"etcdserver/server.go:1","msg":"apply request took too long","took":"1s"}"#,
        "--tls-private-key-file=/etc/kubernetes/pki/kubelet.key --authorization-mode=Webhook",
    ] {
        assert_eq!(without_secrets(&[line]), [line]);
    }
}

#[test]
fn p9_no_line_of_a_private_key_leaves_a_machine() {
    let shown = |lines: &[&str]| without_secrets(lines);
    let [begin, end] = ["-----BEGIN EC PRIVATE KEY-----", "-----END EC PRIVATE KEY-----"];
    let body = "MHcCAQEEIJ0lyQ0Gg0cFrZ0sP9CJ1mH1mY5V2N4yW8m7oAoGCCqGSM49AwEHoUQD";
    assert_eq!(shown(&["a", begin, body, "c2hvcnQ=", end, "b"]), ["a", KEY, KEY, KEY, KEY, "b"]);
    // Its beginning, or its end, is not among the lines.
    assert_eq!(shown(&["not of it", body, "c2hvcnQ=", end, "b"]), ["not of it", KEY, KEY, KEY, "b"]);
    assert_eq!(shown(&["a", begin, body, "c2hvcnQ="]), ["a", KEY, KEY, KEY]);
    assert_eq!(shown(&[body]), ["(removed)"]);
    // Others write between its lines, or it has a header.
    assert_eq!(shown(&[begin, "Proc-Type: 4,ENCRYPTED", "", "c2hvcnQ=", end]), [KEY; 5]);
    // In one message, also escaped.
    let one = format!("read:\n{begin}\n{body}\nc2hvcnQ=\n{end}\nfrom a");
    assert_eq!(shown(&[&one]), [format!("read: {KEY} from a")]);
    assert_eq!(shown(&[&format!(r#"{{"key":"{begin}\nc2hvcnQ=\n{end}\n"}}"#), "b"]), [KEY, "b"]);
    // What only looks like the beginning of one hides no more than its line, or than a key can have.
    assert_eq!(shown(&["it is no -----BEGIN PRIVATE KEY----- block", "b"]), [KEY, "b"]);
    let many: Vec<&str> =
        std::iter::once(begin).chain(std::iter::repeat_n("b c", MOST_KEY_LINES + 1)).collect();
    assert_eq!(shown(&many).iter().filter(|line| *line == "b c").count(), 1);
}

/// A secret of letters, digits and what else base64 has, that no other text contains by chance.
fn secret() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+/_-]{11,80}Zq[0-9]X"
}

proptest! {
    #[test]
    fn p9_a_named_secret_is_removed_whatever_is_around_it(
        before in "[ -~é]{0,20}",
        name in prop::sample::select(vec!["token", "PASSWORD", "client-key-data", "SecretAccessKey", "x-amz-security-token", "Authorization"]),
        assigns in prop::sample::select(vec!["=", ": ", ":", " = ", "\":\"", "\\\":\\\"", "=\"", "='", "%3D", "\": [\"", "=>"]),
        secret in secret(),
        after in "[ -~é]{0,20}",
    ) {
        // A name that ends a longer one, and an opening quote before it, are of another test.
        let line = format!("{before} {name}{assigns}{secret} {after}");
        let shown = without_secrets(&[&line]).concat();
        prop_assert!(!shown.contains(&secret), "{line}: {shown}");
        prop_assert!(!shown.contains(&secret[secret.len() - 8..]), "{line}: {shown}");
    }

    #[test]
    fn any_text_is_cleaned_without_a_panic(lines in prop::collection::vec("\\PC{0,60}", 0..6)) {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let clean = without_secrets(&lines);
        prop_assert_eq!(clean.len(), lines.len());
    }
}
