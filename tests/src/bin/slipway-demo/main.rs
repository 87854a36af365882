//! Shows a launch in the embedded AWS.

fn main() {}
