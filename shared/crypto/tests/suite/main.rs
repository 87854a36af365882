//! All tests of keys, certificates and their storage with real cryptography, in one program, so that it is linked once.
#![allow(clippy::unwrap_used)]

mod bring;
mod common;
mod credentials;
mod crypto;
mod damage;
mod flow;
mod histories;
mod imports;
mod interleavings;
mod judges;
mod layouts;
mod lint;
mod openssl;
mod renewal;
mod rolling;
mod rotation;
mod schedule;
mod tokens;
mod verify;
mod world;
