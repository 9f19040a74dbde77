//! What of the command line is of use apart from it: how configurations of other gateways are read.
//!
//! All of it is sync and asks nobody: text in, values out. The command itself is the binary of the same package.

pub mod litellm;
