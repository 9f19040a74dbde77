//! OpenAI's Responses in front of chat completions, for engines that lack them.

mod answer;
mod request;

pub(super) use self::{answer::Answer, request::request};

#[cfg(test)]
mod tests;
