//! What happens, as it happens.

use std::fmt;

use async_trait::async_trait;

use super::ControlError;
use crate::api::event::Event;

/// What happens, as it happens.
///
/// # Contract
/// Events come in their order. A reader that is too slow never holds anybody up: it is told how many it missed, with
/// [`Event::Missed`], and goes on with what comes then.
#[async_trait]
pub trait Events: fmt::Debug + Send + Sync + 'static {
    /// What happens from now on.
    async fn follow(&self) -> Result<Box<dyn Following>, ControlError>;
}

/// A reader of [`Events`].
#[async_trait]
pub trait Following: fmt::Debug + Send + 'static {
    /// The next event; `None` when there will be none. Dropping the future loses nothing.
    async fn next(&mut self) -> Option<Result<Event, ControlError>>;
}
