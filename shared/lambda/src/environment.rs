//! The environment of a function's process.

use jiff::SignedDuration;
pub use slipway_flows::environment::*;

use crate::InvocationError;

/// Slipway's variables and the region, and no others: the environment of a function also contains its credentials.
#[must_use]
pub fn of_process() -> Environment {
    let names = [
        SPEC_BUCKET,
        ASSET_BUCKET,
        ISSUER_BUCKET,
        KMS_KEY_ARN,
        BUS_NAME,
        IMAGE_MIRROR,
        PROGRAM_BUCKETS,
        HOSTED_ZONE_IDS,
        HOSTED_ZONE_DOMAINS,
        PRIVATE_DOMAINS,
        MANAGED_POLICY_ARNS,
        CLUSTER_KEY_ARNS,
        INSTANCE_ROLE_ARNS,
        APPROVAL,
        BOUNDARY_ARN,
        MANAGED_POLICIES_BOUNDARY_ARN,
        CLOUDFORMATION_ROLE_ARN,
        TICK_ROLE_ARN,
        TICK_GROUP,
        REGION,
        RUST_LOG,
        CLOCK_AHEAD_S,
        ENDPOINT_URL,
    ];
    names.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))).collect()
}

impl From<Invalid> for InvocationError {
    fn from(problem: Invalid) -> Self {
        Self::environment(problem)
    }
}

/// How far this function's clock is ahead of the machine's: zero except in tests.
///
/// # Errors
/// If the value is neither a number nor a file with one, or if the function runs in AWS.
pub fn clock_ahead(environment: &Environment) -> Result<SignedDuration, InvocationError> {
    let Some(value) = environment.get(CLOCK_AHEAD_S) else { return Ok(SignedDuration::ZERO) };
    if environment.get(ENDPOINT_URL).is_none() {
        let problem = format!("{CLOCK_AHEAD_S} is set, and this is AWS: it is for tests alone, remove it");
        return Err(InvocationError::environment(problem));
    }
    let wrong = |what: &str| InvocationError::environment(format!("{CLOCK_AHEAD_S} is {value:?}; {what}"));
    let text = if value.starts_with('/') {
        std::fs::read_to_string(value).map_err(|error| wrong(&format!("that cannot be read: {error}")))?
    } else {
        value.to_owned()
    };
    let seconds = text.trim().parse().map_err(|_| wrong("it must be a number of seconds"))?;
    Ok(SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn environment(variables: &[(&'static str, &str)]) -> Environment {
        variables.iter().map(|&(name, value)| (name, value.to_owned())).collect()
    }

    #[test]
    fn a_clock_is_moved_for_tests_alone() {
        let ahead = |variables: &[(&'static str, &str)]| clock_ahead(&environment(variables));
        assert_eq!(ahead(&[]).unwrap(), SignedDuration::ZERO);
        let failure = ahead(&[(CLOCK_AHEAD_S, "60")]).unwrap_err();
        assert!(failure.message().contains("this is AWS"), "{}", failure.message());
        let elsewhere = (ENDPOINT_URL, "http://127.0.0.1:1");
        assert_eq!(ahead(&[(CLOCK_AHEAD_S, "60"), elsewhere]).unwrap(), SignedDuration::from_secs(60));
        assert!(ahead(&[(CLOCK_AHEAD_S, "soon"), elsewhere]).is_err());
        let file = std::env::temp_dir().join(format!("slipway-clock-{}", std::process::id()));
        let path = file.to_str().unwrap();
        for seconds in [60, 7_200] {
            std::fs::write(&file, format!("{seconds}\n")).unwrap();
            let now = ahead(&[(CLOCK_AHEAD_S, path), elsewhere]).unwrap();
            assert_eq!(now, SignedDuration::from_secs(seconds), "read anew");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(ahead(&[(CLOCK_AHEAD_S, path), elsewhere]).is_err());
    }
}
