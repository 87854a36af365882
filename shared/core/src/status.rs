//! `status.json`: what a person or a script asks first.
