//! What keys say of the strings beneath them.

use super::Mode;

/// A key, as far as it matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Key {
    Choices,
    Delta,
    Text,
    /// The arguments of a tool, whatever they are called.
    Arguments,
    Input,
    Url,
    Description,
    Tools,
    Logprobs,
    /// A number that tells parts of an answer from each other.
    Index,
    /// Why a choice ended.
    Ended,
    /// What a request says, and some answers say again.
    EchoOfRequest,
    /// What a client sends for the model to read.
    Prompt,
    /// What a model writes.
    Answer,
    /// Both.
    Content,
    /// Ids, names of kinds, numbers in texts, data that is no text.
    NoText,
    Other,
}

impl Key {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"choices" => Self::Choices,
            b"delta" => Self::Delta,
            b"text" => Self::Text,
            b"arguments" => Self::Arguments,
            b"input" => Self::Input,
            b"url" | b"image_url" | b"file_url" => Self::Url,
            b"description" => Self::Description,
            b"tools" | b"functions" => Self::Tools,
            b"logprobs" => Self::Logprobs,
            b"index" | b"output_index" | b"content_index" => Self::Index,
            b"finish_reason" | b"stop_reason" | b"done_reason" => Self::Ended,
            b"instructions" => Self::EchoOfRequest,
            b"messages" | b"prompt" | b"system" | b"suffix" | b"query" | b"documents"
            | b"prediction" | b"texts" => Self::Prompt,
            b"output" | b"message" | b"response" | b"output_text" | b"part" | b"item"
            | b"content_block" | b"refusal" | b"reasoning" | b"thinking" => Self::Answer,
            b"content" => Self::Content,
            b"role"
            | b"type"
            | b"id"
            | b"object"
            | b"model"
            | b"status"
            | b"tool_call_id"
            | b"tool_use_id"
            | b"call_id"
            | b"item_id"
            | b"previous_response_id"
            | b"data"
            | b"file_data"
            | b"b64_json"
            | b"media_type"
            | b"mime_type"
            | b"format"
            | b"detail"
            | b"signature"
            | b"encrypted_content"
            | b"cache_control"
            | b"usage"
            | b"metadata"
            | b"error" => Self::NoText,
            _ => Self::Other,
        }
    }

    pub(super) fn is_no_text(self) -> bool {
        matches!(
            self,
            Self::NoText | Self::Index | Self::Ended | Self::Logprobs
        )
    }

    /// What stands beneath it at the top of a request.
    pub(super) fn opens_request(self) -> Mode {
        match self {
            Self::Prompt | Self::Input | Self::EchoOfRequest | Self::Text | Self::Content => {
                Mode::Text
            }
            Self::Tools => Mode::Tools,
            _ => Mode::Skip,
        }
    }

    /// What stands beneath it at the top of an answer or of an event.
    pub(super) fn opens_answer(self) -> Mode {
        match self {
            Self::Choices | Self::Delta | Self::Text | Self::Content | Self::Answer => Mode::Text,
            Self::Arguments => Mode::Free,
            _ => Mode::Skip,
        }
    }
}

/// Adds a part to a path, as a number: FNV-1a.
pub(super) fn fold(path: u64, part: &[u8]) -> u64 {
    let mut hash = path ^ 0xcbf2_9ce4_8422_2325;
    for byte in part {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // So that "ab", "c" is another path than "a", "bc".
    hash.wrapping_mul(0x0100_0000_01b3)
}
