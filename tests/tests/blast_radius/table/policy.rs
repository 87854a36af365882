//! Settings of the whole cluster: versions, images, access, Kubernetes, certificates, rollouts, tags.

use serde_json::{Value, json};

use super::super::case::{Case, case, each};
use super::{ALL, ALL_REPLACED, kubelet};

const AUTHORITY: &str = include_str!("../authority.pem");
const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";

pub(super) fn cases() -> Vec<Case> {
    let all = kubelet("kubernetes", "control-plane, pools", "controller replaced, pools replaced");
    let controllers = kubelet("controller", "control-plane", "controller replaced");
    [cluster(), kubernetes(), components(), all, controllers, roles(), certificates(), rollout()].concat()
}

fn cluster() -> Vec<Case> {
    let x86 = "/my/image-x86";
    let arm = "/my/image-arm";
    vec![
        case(
            "kubernetesVersion",
            json!("1.37"),
            "control-plane, pools",
            "controller replaced, pools replaced",
        )
        .because("etcd's release is raised with it only where none is named")
        .given("etcd.version", json!("3.6.16")),
        case(
            "kubernetesVersion",
            json!("1.36.7"),
            "control-plane, pools",
            "controller replaced, pools replaced",
        )
        .because("within a minor their order is free"),
        case("amiId", json!("ami-0123456789abcdef1"), ALL, ALL_REPLACED),
        case("image.amiId", json!("ami-0123456789abcdef1"), ALL, ALL_REPLACED),
        case("image.ssmParameters.x86_64", json!(x86), ALL, ALL_REPLACED)
            .along("image.ssmParameters.arm64", json!(arm)),
        case("image.rootDeviceName", json!("/dev/sda1"), ALL, ALL_REPLACED)
            .given("image.amiId", json!("ami-0123456789abcdef1")),
        case("software.source", json!("image"), ALL, ALL_REPLACED),
        case("software.baseURL", json!("https://mirror.example.com/slipway"), ALL, ALL_REPLACED),
        case(
            "software.imageRepository",
            json!("mirror.example.com/k8s"),
            "control-plane, pools",
            "controller replaced, pools replaced",
        ),
        case("keyName", json!("others"), ALL, ALL_REPLACED),
        case("sshAuthorizedKeys", json!([]), ALL, ALL_REPLACED),
        case("kmsKeyArn", json!(KEY), ALL, "")
            .because("nodes may use the other key, under which the same credentials are sealed once more"),
        case("deletionProtection", json!(true), "", "")
            .because("orders to destroy the cluster are refused from the upload on"),
        case("upgrades.everyDays", json!(30), "", "")
            .because("only when the pins are that old, newer ones become a plan of their own"),
        case("upgrades.pins", json!(["images"]), "", "")
            .given("upgrades.everyDays", json!(30))
            .because("only when the pins are that old, newer ones become a plan of their own"),
        case("stackTags", json!({ "cost": "42" }), "network, etcd, control-plane, pools", "")
            .because("instances get a new tag when they are next replaced"),
    ]
}

fn kubernetes() -> Vec<Case> {
    let controllers = ("control-plane", "controller replaced");
    vec![
        case("kubernetes.encryptionAtRest.enabled", json!(false), controllers.0, controllers.1),
        case("kubernetes.apiServer.auditLog.enabled", json!(false), controllers.0, controllers.1),
        case(
            "kubernetes.apiServer.certSANs",
            json!(["k8s.example.com"]),
            "control-plane",
            "controller refreshed",
        )
        .because("the certificate carries it, and is read anew without a restart"),
        case(
            "kubernetes.featureGates",
            json!({ "Example": true }),
            "control-plane, pools",
            "controller replaced, pools replaced",
        ),
    ]
}

/// Settings of the controllers' components.
fn group(group: &str, given: &Value, changes: Vec<(&str, Value)>) -> Vec<Case> {
    each(group, given, changes, "control-plane", "controller replaced")
}

fn components() -> Vec<Case> {
    let audit = json!({ "enabled": true });
    let policy =
        json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
    let oidc = json!({ "issuerURL": "https://id.example.com", "clientID": "kubernetes" });
    let resources = |component: &str| {
        let given = json!({
            "requests": { "cpu": "100m", "memory": "128Mi" },
            "limits": { "cpu": "2", "memory": "2Gi" },
        });
        let changes = vec![
            ("requests.cpu", json!("200m")),
            ("requests.memory", json!("256Mi")),
            ("limits.cpu", json!("4")),
            ("limits.memory", json!("4Gi")),
        ];
        each(
            &format!("kubernetes.{component}.resources"),
            &given,
            changes,
            "control-plane",
            "controller replaced",
        )
    };
    let flag = |component: &str, name: &str, other: &str| {
        let given = json!({ "name": name, "value": "1" });
        group(
            &format!("kubernetes.{component}.flags[0]"),
            &given,
            vec![("value", json!("2")), ("name", json!(other))],
        )
    };
    [
        group(
            "kubernetes.apiServer.auditLog",
            &audit,
            vec![
                ("logPath", json!("/var/log/audit.log")),
                ("maxAge", json!(7)),
                ("maxBackup", json!(3)),
                ("maxSize", json!(50)),
                ("policy", policy),
            ],
        ),
        group(
            "kubernetes.apiServer.oidc",
            &oidc,
            vec![
                ("issuerURL", json!("https://login.example.com")),
                ("clientID", json!("cluster")),
                ("usernameClaim", json!("email")),
                ("usernamePrefix", json!("oidc:")),
                ("groupsClaim", json!("groups")),
                ("requiredClaims", json!({ "team": "platform" })),
                ("certificateAuthority", json!(AUTHORITY)),
            ],
        ),
        group(
            "kubernetes.apiServer.oidc",
            &json!({ "issuerURL": "https://id.example.com", "clientID": "kubernetes", "groupsClaim": "groups" }),
            vec![("groupsPrefix", json!("oidc:"))],
        ),
        group("kubernetes.apiServer", &json!({}), vec![
            ("enableAdmissionPlugins", json!(["AlwaysPullImages"])),
            ("disableAdmissionPlugins", json!(["DefaultStorageClass"])),
        ]),
        group("kubernetes.apiServer.podSecurity", &json!({}), vec![
            ("enforce", json!("restricted")),
            ("audit", json!("baseline")),
            ("warn", json!("baseline")),
        ]),
        group(
            "kubernetes.apiServer.eventRateLimits[0]",
            &json!({ "type": "Server", "qps": 100, "burst": 200 }),
            vec![("type", json!("Namespace")), ("qps", json!(50)), ("burst", json!(300)), ("cacheSize", json!(10))],
        ),
        group(
            "kubernetes.apiServer.volumes[0]",
            &json!({ "name": "mine", "path": "/etc/mine" }),
            vec![("name", json!("other")), ("path", json!("/etc/other")), ("readOnly", json!(false))],
        ),
        flag("apiServer", "max-requests-inflight", "max-mutating-requests-inflight"),
        flag("controllerManager", "concurrent-gc-syncs", "concurrent-job-syncs"),
        flag("kubeScheduler", "kube-api-qps", "kube-api-burst"),
        group("kubernetes.controllerManager", &json!({}), vec![("nodeMonitorGracePeriod", json!("60s"))]),
        resources("apiServer"),
        resources("controllerManager"),
        resources("kubeScheduler"),
    ]
    .concat()
}

fn roles() -> Vec<Case> {
    let role = json!({ "name": "backup", "namespace": "ops", "serviceAccount": "backup",
        "managedPolicies": [{ "arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess" }] });
    let group = "iamRolesForServiceAccounts.roles[0]";
    let on = |case: Case| case.given("iamRolesForServiceAccounts.enabled", json!(true));
    let other = json!("arn:aws:iam::aws:policy/AmazonS3FullAccess");
    let mut cases: Vec<Case> = each(
        group,
        &role,
        vec![
            ("namespace", json!("tools")),
            ("serviceAccount", json!("other")),
            ("managedPolicies[0].arn", other),
        ],
        "identity",
        "",
    );
    cases.extend(each(group, &role, vec![("name", json!("store"))], "identity", ""));
    let mut cases: Vec<Case> = cases.into_iter().map(on).collect();
    cases.push(case(
        "iamRolesForServiceAccounts.enabled",
        json!(true),
        "refused: iamRolesForServiceAccounts.enabled: this switches the issuer of service-account tokens in one step: until every controller is replaced, those that are not answer 401 to tokens that the new ones issue",
        "",
    ));
    let step = case(
        "iamRolesForServiceAccounts.enabled",
        json!(true),
        "identity is new, control-plane",
        "controller replaced",
    );
    cases.push(
        step.given("iamRolesForServiceAccounts.enabled", json!(false))
            .because("the issuer is accepted already; add-ons go on under the controllers' role"),
    );
    cases
}

fn certificates() -> Vec<Case> {
    vec![
        case("certificatesConfiguration.keyAlgorithm", json!("ECDSA-P384"), "", "")
            .because("each certificate gets the new kind of key when it is next renewed"),
        case(
            "certificatesConfiguration.authorities.ca",
            json!({ "source": "imported", "certificate": "a.pem", "key": "a-key.pem", "passphraseParameter": "/slipway/prod/a" }),
            "refused: certificatesConfiguration.authorities.ca.source: the cluster has the authority ca already, and it is generated",
            "",
        )
        .because("where an authority comes from is said before the first upload: exchanging one is a rotation"),
        case(
            "certificatesConfiguration.authorities.kubelet-ca",
            json!({ "source": "imported", "certificate": "a.pem", "key": "a-key.pem", "passphraseParameter": "/slipway/prod/a" }),
            "refused: certificatesConfiguration.authorities.kubelet-ca.source: the cluster has the authority kubelet-ca already, and it is generated",
            "",
        )
        .because("where an authority comes from is said before the first upload: exchanging one is a rotation"),
        case(
            "certificatesConfiguration.authorities.etcd-ca",
            json!({ "source": "imported", "certificate": "a.pem", "key": "a-key.pem", "passphraseParameter": "/slipway/prod/a" }),
            "refused: certificatesConfiguration.authorities.etcd-ca.source: the cluster has the authority etcd-ca already, and it is generated",
            "",
        )
        .because("where an authority comes from is said before the first upload: exchanging one is a rotation"),
        case(
            "certificatesConfiguration.authorities.front-proxy-ca",
            json!({ "source": "imported", "certificate": "a.pem", "key": "a-key.pem", "passphraseParameter": "/slipway/prod/a" }),
            "refused: certificatesConfiguration.authorities.front-proxy-ca.source: the cluster has the authority front-proxy-ca already, and it is generated",
            "",
        )
        .because("where an authority comes from is said before the first upload: exchanging one is a rotation"),
        case("certificatesConfiguration.rolloutBeforeExpiry.enabled", json!(true), "", ""),
        case("certificatesConfiguration.rolloutBeforeExpiry.days", json!(21), "", "")
            .given("certificatesConfiguration.rolloutBeforeExpiry.enabled", json!(true)),
        case("certificatesConfiguration.rolloutBeforeExpiry.emergencyDays", json!(5), "", "")
            .given("certificatesConfiguration.rolloutBeforeExpiry.enabled", json!(true)),
        case("certificatesConfiguration.rolloutBeforeExpiry.strategy", json!("refresh"), "", "")
            .given("certificatesConfiguration.rolloutBeforeExpiry.enabled", json!(true)),
        case("certificatesConfiguration.caRotationDays", json!(90), "", "")
            .because("it says when a rotation begins; what a stage of it changes is in docs/pki.md"),
        case("tlsCADurationDays", json!(7300), "", "").because("it holds for what is issued from now on"),
        case("tlsCertDurationDays", json!(90), "", "").because("it holds for what is issued from now on"),
    ]
}

fn rollout() -> Vec<Case> {
    vec![
        case("rollout.approval", json!("manual"), "", ""),
        case("rollout.maxUnavailable", json!("25%"), "", ""),
        case("rollout.surge", json!(2), "pool-general", ""),
        case("rollout.drain.forceAfterMinutes", json!(60), "", ""),
        case("rollout.failureBudget", json!(3), "", ""),
        case("rollout.windows", json!([{ "days": ["sat"], "start": "02:00", "minutes": 120 }]), "", ""),
    ]
}
