//! The settings of the functions: environment variables, which a function reads once at start. All problems are reported together.
//!
//! A person's command reads those of the render function from an output of the installation's stack ([`Environment::of_lines`]), and so
//! plans as that function does.
//!
//! The AWS SDKs read variables of their own (`AWS_REGION`, credentials, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_<SERVICE>`), and so does
//! the Lambda runtime (`AWS_LAMBDA_RUNTIME_API` and others).

use std::collections::BTreeMap;

use slipway_core::allowed::{Allowed, AllowedZone, Boundaries};
use slipway_core::cluster::Approval;
use slipway_core::release::Site;

/// Name of the bucket that specs are uploaded to. Render and scan.
pub const SPEC_BUCKET: &str = "SLIPWAY_SPEC_BUCKET";
/// Name of the bucket for everything that Slipway makes. All functions.
pub const ASSET_BUCKET: &str = "SLIPWAY_ASSET_BUCKET";
/// Name of the public bucket with the clusters' verification keys; empty if the installation has none. Render.
pub const ISSUER_BUCKET: &str = "SLIPWAY_ISSUER_BUCKET";
/// ARN of the KMS key for the credentials of clusters that name no key of their own. Render and scan.
pub const KMS_KEY_ARN: &str = "SLIPWAY_KMS_KEY_ARN";
/// Name of the event bus. All functions.
pub const BUS_NAME: &str = "SLIPWAY_BUS_NAME";
/// ARN of the role that CloudFormation assumes for the clusters' stacks. Rollout.
pub const CLOUDFORMATION_ROLE_ARN: &str = "SLIPWAY_CLOUDFORMATION_ROLE_ARN";
/// ARN of the role that the schedule assumes to invoke the rollout function. Rollout.
pub const TICK_ROLE_ARN: &str = "SLIPWAY_TICK_ROLE_ARN";
/// Name of the schedule group of the ticks. Rollout.
pub const TICK_GROUP: &str = "SLIPWAY_TICK_GROUP";
/// `https://HOST/PATH` of a mirror that is asked for the digests of add-on images, as `PATH/REGISTRY/REPOSITORY`, instead of the
/// registries. Empty or not set: each registry is asked directly. Render. It does not change where nodes pull images from;
/// `addons.imageRepository` in the spec does.
pub const IMAGE_MIRROR: &str = "SLIPWAY_IMAGE_MIRROR";
/// Buckets that `software.baseURL` of a spec may name, separated by commas. Render.
pub const PROGRAM_BUCKETS: &str = "SLIPWAY_PROGRAM_BUCKETS";
/// Ids of the hosted zones in which specs may have records, separated by commas. Render.
pub const HOSTED_ZONE_IDS: &str = "SLIPWAY_HOSTED_ZONE_IDS";
/// For each of [`HOSTED_ZONE_IDS`] the domain at or below which the records must be, in the same order. Render.
pub const HOSTED_ZONE_DOMAINS: &str = "SLIPWAY_HOSTED_ZONE_DOMAINS";
/// Domains below which the private zones may be that Slipway makes, separated by commas. Render.
pub const PRIVATE_DOMAINS: &str = "SLIPWAY_PRIVATE_DOMAINS";
/// ARNs of the managed policies that specs may name, separated by commas. Render.
pub const MANAGED_POLICY_ARNS: &str = "SLIPWAY_MANAGED_POLICY_ARNS";
/// ARNs of the KMS keys that specs may name besides [`KMS_KEY_ARN`], separated by commas. Not set: not known. Render.
pub const CLUSTER_KEY_ARNS: &str = "SLIPWAY_CLUSTER_KEY_ARNS";
/// ARNs of the roles whose instance profiles specs may name, separated by commas. Not set: not known. Render.
pub const INSTANCE_ROLE_ARNS: &str = "SLIPWAY_INSTANCE_ROLE_ARNS";
/// `manual`: every plan waits for an approval. `auto`: each spec decides. Render.
pub const APPROVAL: &str = "SLIPWAY_APPROVAL";
/// ARN of the permissions boundary of the clusters' roles. Render.
pub const BOUNDARY_ARN: &str = "SLIPWAY_BOUNDARY_ARN";
/// ARN of the permissions boundary of the clusters' roles that have managed policies; empty if specs may name none. Render.
pub const MANAGED_POLICIES_BOUNDARY_ARN: &str = "SLIPWAY_MANAGED_POLICIES_BOUNDARY_ARN";
/// The region that the function runs in, set by Lambda. Render accepts only specs of that region.
pub const REGION: &str = "AWS_REGION";
/// The log level, such as `info`, or by module, `slipway_flows=debug,info`. Libraries never log below `info`. All functions.
pub const RUST_LOG: &str = "RUST_LOG";
/// Seconds to add to the clock, so that tests can let years pass; or the path of a file with the number, which each invocation reads
/// again. Only allowed with [`ENDPOINT_URL`]: in AWS, a function that has it set fails. All functions.
pub const CLOCK_AHEAD_S: &str = "SLIPWAY_CLOCK_AHEAD_S";
/// The endpoint that the SDKs use instead of AWS.
pub const ENDPOINT_URL: &str = "AWS_ENDPOINT_URL";

/// Settings that are missing or wrong: all of them, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

/// Environment variables.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables in a text with a line `NAME=value` for each.
    #[must_use]
    pub fn of_lines(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The variable's value; `None` if it is not set or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl<'a> FromIterator<(&'a str, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, String)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// The settings of the render function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Render {
    /// [`SPEC_BUCKET`].
    pub spec_bucket: String,
    /// [`ASSET_BUCKET`].
    pub asset_bucket: String,
    /// [`ISSUER_BUCKET`].
    pub issuer_bucket: Option<String>,
    /// [`KMS_KEY_ARN`].
    pub kms_key_arn: String,
    /// [`BUS_NAME`].
    pub bus_name: String,
    /// [`IMAGE_MIRROR`].
    pub image_mirror: Option<String>,
    /// What specs may use of the account.
    pub allowed: Allowed,
    /// [`REGION`].
    pub region: String,
}

impl Render {
    /// Reads them.
    ///
    /// # Errors
    /// All variables that are missing or wrong, in one.
    pub fn read(environment: &Environment) -> Result<Self, Invalid> {
        let mut reader = Reader::new(environment);
        let read = Self {
            spec_bucket: reader.bucket(SPEC_BUCKET),
            asset_bucket: reader.bucket(ASSET_BUCKET),
            issuer_bucket: reader.issuer_bucket(),
            kms_key_arn: reader.arn(KMS_KEY_ARN, "kms"),
            bus_name: reader.name(BUS_NAME),
            image_mirror: environment.get(IMAGE_MIRROR).map(str::to_owned),
            allowed: reader.allowed(),
            region: reader.name(REGION),
        };
        reader.done(read)
    }

    /// The installation, as rendering needs to know it.
    #[must_use]
    pub fn site(&self) -> Site {
        Site {
            asset_bucket: self.asset_bucket.clone(),
            kms_key_arn: self.kms_key_arn.clone(),
            region: Some(self.region.clone()),
            issuer_bucket: self.issuer_bucket.clone(),
            allowed: Some(self.allowed.clone()),
        }
    }
}

/// The settings of the scan function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// [`SPEC_BUCKET`].
    pub spec_bucket: String,
    /// [`ASSET_BUCKET`].
    pub asset_bucket: String,
    /// [`KMS_KEY_ARN`].
    pub kms_key_arn: String,
    /// [`BUS_NAME`].
    pub bus_name: String,
}

impl Scan {
    /// Reads them.
    ///
    /// # Errors
    /// All variables that are missing or wrong, in one.
    pub fn read(environment: &Environment) -> Result<Self, Invalid> {
        let mut reader = Reader::new(environment);
        let read = Self {
            spec_bucket: reader.bucket(SPEC_BUCKET),
            asset_bucket: reader.bucket(ASSET_BUCKET),
            kms_key_arn: reader.arn(KMS_KEY_ARN, "kms"),
            bus_name: reader.name(BUS_NAME),
        };
        reader.done(read)
    }
}

/// The settings of the rollout function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// [`ASSET_BUCKET`].
    pub asset_bucket: String,
    /// [`BUS_NAME`].
    pub bus_name: String,
    /// [`CLOUDFORMATION_ROLE_ARN`].
    pub cloudformation_role_arn: String,
    /// [`TICK_ROLE_ARN`].
    pub tick_role_arn: String,
    /// [`TICK_GROUP`].
    pub tick_group: String,
}

impl Rollout {
    /// Reads them.
    ///
    /// # Errors
    /// All variables that are missing or wrong, in one.
    pub fn read(environment: &Environment) -> Result<Self, Invalid> {
        let mut reader = Reader::new(environment);
        let read = Self {
            asset_bucket: reader.bucket(ASSET_BUCKET),
            bus_name: reader.name(BUS_NAME),
            cloudformation_role_arn: reader.arn(CLOUDFORMATION_ROLE_ARN, "iam"),
            tick_role_arn: reader.arn(TICK_ROLE_ARN, "iam"),
            tick_group: reader.name(TICK_GROUP),
        };
        reader.done(read)
    }
}

/// A domain in lower case, without dots around it.
fn plain(domain: &str) -> String {
    domain.trim_matches('.').to_ascii_lowercase()
}

/// Reads variables and collects the problems.
struct Reader<'a> {
    environment: &'a Environment,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(environment: &'a Environment) -> Self {
        Self { environment, problems: Vec::new() }
    }

    /// A variable that must be set. If it is not, an empty text is returned and the problem recorded.
    fn name(&mut self, name: &str) -> String {
        let Some(value) = self.environment.get(name) else {
            self.problems.push(format!("{name} is not set"));
            return String::new();
        };
        value.to_owned()
    }

    /// A bucket's name. An ARN or a URL, the usual mistakes, is recorded as a problem.
    fn bucket(&mut self, name: &str) -> String {
        let value = self.name(name);
        if value.contains([':', '/']) {
            self.problems.push(format!("{name} is {value:?}; it must be the bare name of a bucket"));
        }
        value
    }

    /// The optional issuer bucket. Its address is the URL of issuers, and the TLS certificate of S3 covers no bucket names with dots.
    fn issuer_bucket(&mut self) -> Option<String> {
        self.environment.get(ISSUER_BUCKET)?;
        let value = self.bucket(ISSUER_BUCKET);
        if value.contains('.') {
            self.problems.push(format!("{ISSUER_BUCKET} is {value:?}; its name must be one without dots"));
        }
        Some(value)
    }

    /// The items of a list that may be empty.
    fn list(&self, name: &str) -> Vec<String> {
        let items = self.environment.get(name).unwrap_or_default().split(',').map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    /// The items of a list that may be empty; `None`: the installation is older, and does not say.
    fn known_list(&self, name: &str) -> Option<Vec<String>> {
        self.environment.0.contains_key(name).then(|| self.list(name))
    }

    /// What specs may use of the account.
    fn allowed(&mut self) -> Allowed {
        let program_buckets = self.list(PROGRAM_BUCKETS);
        if let Some(assets) = self.environment.get(ASSET_BUCKET)
            && program_buckets.iter().any(|bucket| bucket == assets)
        {
            self.problems.push(format!(
                "{PROGRAM_BUCKETS} names the asset bucket: nodes of each cluster could read what belongs to the others; name a bucket that \
                 holds programs only"
            ));
        }
        let approval = match self.environment.get(APPROVAL) {
            None | Some("auto") => Approval::Auto,
            Some("manual") => Approval::Manual,
            Some(other) => {
                self.problems.push(format!("{APPROVAL} is {other:?}; it must be auto or manual"));
                Approval::Manual
            }
        };
        Allowed {
            program_buckets,
            hosted_zones: self.hosted_zones(),
            private_domains: self.list(PRIVATE_DOMAINS).iter().map(|domain| plain(domain)).collect(),
            managed_policy_arns: self.list(MANAGED_POLICY_ARNS),
            cluster_key_arns: self.known_list(CLUSTER_KEY_ARNS),
            instance_role_arns: self.known_list(INSTANCE_ROLE_ARNS),
            approval,
            boundaries: Boundaries {
                own: self.arn(BOUNDARY_ARN, "iam"),
                with_managed_policies: self.environment.get(MANAGED_POLICIES_BOUNDARY_ARN).map(str::to_owned),
            },
        }
    }

    /// The zones with their domains.
    fn hosted_zones(&mut self) -> Vec<AllowedZone> {
        let (ids, domains) = (self.list(HOSTED_ZONE_IDS), self.list(HOSTED_ZONE_DOMAINS));
        if ids.len() != domains.len() {
            self.problems.push(format!(
                "{HOSTED_ZONE_IDS} has {} items and {HOSTED_ZONE_DOMAINS} has {}; give the domain of each zone, in the same order",
                ids.len(),
                domains.len()
            ));
        }
        let zones = ids.into_iter().zip(domains);
        zones.map(|(id, domain)| AllowedZone { id, domain: plain(&domain) }).collect()
    }

    /// An ARN of `service`.
    fn arn(&mut self, name: &str, service: &str) -> String {
        let value = self.name(name);
        let parts: Vec<&str> = value.split(':').collect();
        let is_arn = parts.len() >= 6 && parts[0] == "arn" && parts[2] == service;
        if !value.is_empty() && !is_arn {
            self.problems.push(format!("{name} is {value:?}; it must be an ARN of {service}"));
        }
        value
    }

    fn done<T>(self, read: T) -> Result<T, Invalid> {
        if self.problems.is_empty() { Ok(read) } else { Err(Invalid(self.problems.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn environment(variables: &[(&'static str, &str)]) -> Environment {
        variables.iter().map(|&(name, value)| (name, value.to_owned())).collect()
    }

    #[test]
    fn every_problem_is_said_at_once() {
        let environment = environment(&[
            (ASSET_BUCKET, "arn:aws:s3:::assets"),
            (KMS_KEY_ARN, "alias/slipway"),
            (BUS_NAME, ""),
        ]);
        let failure = Render::read(&environment).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "SLIPWAY_SPEC_BUCKET is not set; SLIPWAY_ASSET_BUCKET is \"arn:aws:s3:::assets\"; it must be the bare name of a \
             bucket; SLIPWAY_KMS_KEY_ARN is \"alias/slipway\"; it must be an ARN of kms; SLIPWAY_BUS_NAME is not set; \
             SLIPWAY_BOUNDARY_ARN is not set; AWS_REGION is not set"
        );
    }

    #[test]
    fn a_text_of_lines_is_an_environment() {
        let read = Environment::of_lines("A=\nB=x=1, y\nno variable\n").with("C", "3");
        let all = ["A", "B", "C", "no variable"].map(|name| read.get(name));
        assert_eq!(all, [None, Some("x=1, y"), Some("3"), None]);
    }

    #[test]
    fn what_specs_may_use_is_read_and_checked() {
        let whole = |zones: &str, domains: &str, buckets: &str, approval: &str| {
            Render::read(&environment(&[
                (SPEC_BUCKET, "specs"),
                (ASSET_BUCKET, "assets"),
                (KMS_KEY_ARN, "arn:aws:kms:eu-west-1:123456789012:key/1"),
                (BUS_NAME, "slipway"),
                (REGION, "eu-west-1"),
                (BOUNDARY_ARN, "arn:aws:iam::123456789012:policy/own"),
                (HOSTED_ZONE_IDS, zones),
                (HOSTED_ZONE_DOMAINS, domains),
                (PROGRAM_BUCKETS, buckets),
                (APPROVAL, approval),
            ]))
        };
        let allowed = whole("Z1, Z2", "A.example.com.,b.example.com", "programs", "manual").unwrap().allowed;
        let zone = |id: &str, domain: &str| AllowedZone { id: id.to_owned(), domain: domain.to_owned() };
        assert_eq!(allowed.hosted_zones, [zone("Z1", "a.example.com"), zone("Z2", "b.example.com")]);
        assert_eq!(
            (allowed.program_buckets, allowed.approval),
            (vec!["programs".to_owned()], Approval::Manual)
        );
        assert_eq!((allowed.cluster_key_arns, allowed.instance_role_arns), (None, None), "an older template");
        let nothing = whole("", "", "", "").unwrap().allowed;
        assert_eq!((nothing.hosted_zones.len(), nothing.approval), (0, Approval::Auto));
        for (zones, domains, buckets, approval, part) in [
            ("Z1,Z2", "a.example.com", "", "", "give the domain of each zone"),
            ("", "", "programs,assets", "", "names the asset bucket"),
            ("", "", "", "perhaps", "must be auto or manual"),
        ] {
            let failure = whole(zones, domains, buckets, approval).unwrap_err();
            assert!(failure.to_string().contains(part), "{}", failure.to_string());
        }
    }

    #[test]
    fn a_whole_environment_is_read() {
        let environment = environment(&[
            (ASSET_BUCKET, "assets"),
            (BUS_NAME, "slipway"),
            (CLOUDFORMATION_ROLE_ARN, "arn:aws:iam::123456789012:role/cloudformation"),
            (TICK_ROLE_ARN, "arn:aws-cn:iam::123456789012:role/tick"),
            (TICK_GROUP, "slipway"),
        ]);
        let read = Rollout::read(&environment).unwrap();
        assert_eq!(read.tick_group, "slipway");
        assert_eq!(read.tick_role_arn, "arn:aws-cn:iam::123456789012:role/tick");
    }
}
