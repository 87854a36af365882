//! URLs of the AWS services.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    S3,
    Kms,
    Ec2,
    Route53,
    AutoScaling,
    Ecr,
}

impl Service {
    const ALL: [Self; 6] = [Self::S3, Self::Kms, Self::Ec2, Self::Route53, Self::AutoScaling, Self::Ecr];

    pub(crate) fn signing_name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Kms => "kms",
            Self::Ec2 => "ec2",
            Self::Route53 => "route53",
            Self::AutoScaling => "autoscaling",
            Self::Ecr => "ecr",
        }
    }

    /// The suffix of `AWS_ENDPOINT_URL_…`, as in AWS' own tools.
    fn variable(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::Kms => "KMS",
            Self::Ec2 => "EC2",
            Self::Route53 => "ROUTE_53",
            Self::AutoScaling => "AUTO_SCALING",
            Self::Ecr => "ECR",
        }
    }
}

/// URLs of the services: AWS' own of the region, unless the environment overrides them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoints {
    all: Option<String>,
    one: BTreeMap<Service, String>,
    metadata: Option<String>,
}

impl Endpoints {
    /// Reads the variables that AWS' own tools read: `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_<SERVICE>`,
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    #[must_use]
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let url = |name: &str| {
            let value = variable(name)?;
            let trimmed = value.trim().trim_end_matches('/');
            (!trimmed.is_empty()).then(|| trimmed.to_owned())
        };
        let one =
            |service: Service| Some((service, url(&format!("AWS_ENDPOINT_URL_{}", service.variable()))?));
        Self {
            all: url("AWS_ENDPOINT_URL"),
            one: Service::ALL.into_iter().filter_map(one).collect(),
            metadata: url("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
        }
    }

    pub(crate) fn metadata(&self) -> &str {
        self.metadata.as_deref().unwrap_or("http://169.254.169.254")
    }

    /// The URL that replaces `service`'s own.
    fn stand_in(&self, service: Service) -> Option<&str> {
        self.one.get(&service).or(self.all.as_ref()).map(String::as_str)
    }

    /// The base URL of `service`, without a trailing slash.
    pub(crate) fn base(&self, service: Service, region: &str) -> String {
        if let Some(url) = self.stand_in(service) {
            return url.to_owned();
        }
        let suffix = dns_suffix(region);
        match service {
            Service::Route53 if region.starts_with("us-gov-") => format!("https://route53.us-gov.{suffix}"),
            Service::Route53 => format!("https://route53.{suffix}"),
            // Without `api.` it is the registries' own domain ("Amazon ECR endpoints and quotas", AWS general reference).
            Service::Ecr => format!("https://api.ecr.{region}.{suffix}"),
            Service::S3 | Service::Kms | Service::Ec2 | Service::AutoScaling => {
                format!("https://{}.{region}.{suffix}", service.signing_name())
            }
        }
    }

    /// The URL of an object. The bucket is in the host name, except where another server replaces S3 or where dots in the
    /// bucket's name would not match the certificate.
    pub(crate) fn object(&self, bucket: &str, key: &str, region: &str) -> String {
        let key = super::encoded(key, true);
        if self.stand_in(Service::S3).is_some() || bucket.contains('.') {
            return format!("{}/{bucket}/{key}", self.base(Service::S3, region));
        }
        format!("https://{bucket}.s3.{region}.{}/{key}", dns_suffix(region))
    }

    /// Route 53 has one endpoint in each partition, and requests are signed for one fixed region.
    pub(crate) fn signing_region<'a>(&self, service: Service, region: &'a str) -> &'a str {
        match service {
            Service::Route53 if region.starts_with("cn-") => "cn-northwest-1",
            Service::Route53 if region.starts_with("us-gov-") => "us-gov-west-1",
            Service::Route53 => "us-east-1",
            Service::S3 | Service::Kms | Service::Ec2 | Service::AutoScaling | Service::Ecr => region,
        }
    }
}

fn dns_suffix(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_answer_at_their_own_endpoints_in_each_partition() {
        let endpoints = Endpoints::default();
        let base = |service, region| endpoints.base(service, region);
        assert_eq!(base(Service::Kms, "eu-west-1"), "https://kms.eu-west-1.amazonaws.com");
        assert_eq!(
            base(Service::AutoScaling, "cn-north-1"),
            "https://autoscaling.cn-north-1.amazonaws.com.cn"
        );
        assert_eq!(base(Service::Ecr, "cn-north-1"), "https://api.ecr.cn-north-1.amazonaws.com.cn");
        assert_eq!(base(Service::Route53, "eu-west-1"), "https://route53.amazonaws.com");
        assert_eq!(base(Service::Route53, "cn-north-1"), "https://route53.amazonaws.com.cn");
        assert_eq!(base(Service::Route53, "us-gov-east-1"), "https://route53.us-gov.amazonaws.com");
        assert_eq!(endpoints.signing_region(Service::Route53, "eu-west-1"), "us-east-1");
        assert_eq!(endpoints.signing_region(Service::Ec2, "eu-west-1"), "eu-west-1");
        assert_eq!(
            endpoints.object("assets", "clusters/a b/c+d", "eu-west-1"),
            "https://assets.s3.eu-west-1.amazonaws.com/clusters/a%20b/c%2Bd"
        );
        assert_eq!(endpoints.object("a.b", "k", "eu-west-1"), "https://s3.eu-west-1.amazonaws.com/a.b/k");
        assert_eq!(endpoints.metadata(), "http://169.254.169.254");
    }

    #[test]
    fn the_environment_may_say_otherwise_for_all_or_for_one() {
        let variables = BTreeMap::from([
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:5000/"),
            ("AWS_ENDPOINT_URL_AUTO_SCALING", "http://127.0.0.1:6000"),
            ("AWS_ENDPOINT_URL_KMS", " "),
        ]);
        let endpoints = Endpoints::read(|name| variables.get(name).map(|&value| value.to_owned()));
        assert_eq!(endpoints.base(Service::Kms, "eu-west-1"), "http://127.0.0.1:5000");
        assert_eq!(endpoints.base(Service::AutoScaling, "eu-west-1"), "http://127.0.0.1:6000");
        assert_eq!(endpoints.object("assets", "k", "eu-west-1"), "http://127.0.0.1:5000/assets/k");
    }
}
