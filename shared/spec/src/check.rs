//! Relations between parts that were each read well.

pub(crate) mod cidr;
