//! Plain data: what a cluster is made of. No behaviour beyond checking itself at the border.

pub mod account;
pub mod audit;
pub mod capacity;
pub mod catalog;
pub mod engine;
pub mod guard;
pub mod node;
pub mod order;
pub mod pool;
pub mod release;
pub mod replica;
pub mod scaling;
pub mod settings;
pub mod tenancy;
pub mod variant;
pub mod weights;
