//! The plan: what a change would do, per stack and per node, and why (P3).
