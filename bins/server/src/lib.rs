//! The control plane and the gateway, composed into a server.
//!
//! This library reads no environment and no file outside the data directory that it is given; `llmgw-server` and
//! `llmgw up` are thin programs around it.
//!
//! | module | holds |
//! |---|---|
//! | [`args`] | the flags that both programs share |
//! | [`lifecycle`] | build, run, drain |
//! | [`data_dir`] | what is kept on disk, and who may use it |
//! | [`admin`] | the admin API over the control roles |
//! | [`descriptors`] | how many files may be open, and how many of them clients get |
//! | [`cluster`] | the port that agents connect to |
//! | [`starter`] | the model that a first start runs |
//! | [`settings`] | the file that names models and engines |
//! | [`signals`] | signals and logging of a daemon |
//! | [`fault`] | why a start failed, with a hint and an exit code |

pub mod admin;
pub mod args;
pub mod cluster;
pub mod data_dir;
pub mod descriptors;
pub mod fault;
pub mod first_key;
pub mod lifecycle;
mod releases;
pub mod settings;
pub mod signals;
pub mod starter;
pub mod weights;
