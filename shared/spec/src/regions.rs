//! AWS regions and the shape of their availability zones.

/// Every region of the partitions `aws`, `aws-cn` and `aws-us-gov` (docs.aws.amazon.com, "AWS Regions").
pub(crate) const REGIONS: [&str; 38] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

/// Whether `zone` is named as the zones of `region` are: the region and one letter (`eu-west-1a`), or a local zone
/// (`us-west-2-lax-1a`). Which letters an account has, only AWS knows.
pub(crate) fn holds(region: &str, zone: &str) -> bool {
    let Some(rest) = zone.strip_prefix(region) else { return false };
    let letter = |text: &str| matches!(text.as_bytes(), [b'a'..=b'h']);
    letter(rest)
        || rest.strip_prefix('-').and_then(|local| local.split_once('-')).is_some_and(|(place, number)| {
            !place.is_empty()
                && place.bytes().all(|byte| byte.is_ascii_lowercase())
                && number.strip_prefix(|digit: char| digit.is_ascii_digit()).is_some_and(letter)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_belong_to_their_region() {
        assert!(holds("eu-west-1", "eu-west-1c"));
        assert!(holds("us-west-2", "us-west-2-lax-1a"));
        for zone in [
            "eu-west-1",
            "eu-west-2a",
            "eu-west-11",
            "eu-west-1A",
            "eu-west-1ab",
            "eu-west-1-",
            "eu-west-1-dub-a",
        ] {
            assert!(!holds("eu-west-1", zone), "{zone}");
        }
    }

    #[test]
    fn regions_are_sorted_and_unique() {
        assert!(REGIONS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
