//! `slipway apply`, as far as it comes without AWS: what is refused before anything is uploaded.

use crate::Place;

/// Buckets that nobody may reach: whoever asks them anything fails otherwise than by refusing.
pub(crate) const NOWHERE: [(&str, &str); 5] = [
    ("SLIPWAY_ASSET_BUCKET", "assets"),
    ("SLIPWAY_SPEC_BUCKET", "specs"),
    ("AWS_REGION", "eu-west-1"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

#[test]
fn what_is_refused_here_reaches_no_bucket() {
    let place = Place::small();
    place.write("zebra.yaml", "zebra: 1\n");
    for (args, words) in
        [("apply zebra.yaml --cluster small", "zebra"), ("apply cluster.yaml --cluster other", "other")]
    {
        let run = place.run_in(args, &NOWHERE);
        assert_eq!(run.code, 1, "{args}: {}", run.output());
        assert!(run.stderr.contains(words), "{args}: {}", run.output());
    }
    let elsewhere = [NOWHERE[0], NOWHERE[1], ("AWS_REGION", "us-east-1"), NOWHERE[3], NOWHERE[4]];
    let run = place.run_in("apply cluster.yaml --cluster small", &elsewhere);
    assert!(run.code == 1 && run.stderr.contains("us-east-1"), "another region's: {}", run.output());
    // What is fine goes on to the bucket.
    let key = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_MAX_ATTEMPTS", "1")];
    let run = place.run_in("apply cluster.yaml --cluster small", &[&NOWHERE[..], &key[..]].concat());
    assert!(run.code == 3 && run.stderr.contains("s3:ListBucket"), "{}", run.output());
}
