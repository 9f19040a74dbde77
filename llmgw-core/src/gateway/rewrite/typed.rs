//! Events that say their type: those of the Responses and the Messages API, and of sound and pictures.

use std::ops::Range;

use bytes::Bytes;

use super::{EventRewriter, Output, Places, Seen, is_told, splice};
use crate::gateway::{dialect::Typed, json::Member};

/// What such an event said.
#[derive(Debug, Default, Eq, PartialEq)]
pub(in crate::gateway) struct Part {
    /// Pieces of content.
    pub(in crate::gateway) pieces: u64,
    /// Usage, or the part of it that is known by now.
    pub(in crate::gateway) usage: Option<Bytes>,
    /// It is the last.
    pub(in crate::gateway) end: Option<Ending>,
}

/// How a stream ended, by the engine's own words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::gateway) enum Ending {
    Whole,
    Failed,
}

impl EventRewriter {
    /// Passes an event on whose data stand there, under the name that the client asked for.
    pub(super) fn typed_event(
        &self,
        typed: &Typed,
        event: Bytes,
        data: Range<usize>,
        out: &mut Output,
    ) -> Seen {
        let slice =
            |range: &Range<usize>| event.slice(data.start + range.start..data.start + range.end);
        let text = event.get(data.clone()).unwrap_or_default();
        let places = Places::find(text);
        let kind = text.get(places.kind.clone()).unwrap_or_default();
        let kind = kind
            .strip_prefix(b"\"")
            .and_then(|kind| kind.strip_suffix(b"\""));
        let kind = kind.unwrap_or_default();
        if kind == b"error" || (kind.is_empty() && is_told(text, &places.error)) {
            return Seen::Error(event.slice(data));
        }
        // The answer as far as it is known, within the event.
        let holder = match typed.holder {
            Some(Member::Message) => places.message.clone(),
            Some(_) => places.response.clone(),
            None => 0..0,
        };
        let held = Places::find(text.get(holder.clone()).unwrap_or_default());
        let within = |place: &Range<usize>| holder.start + place.start..holder.start + place.end;
        let usage = [places.usage.clone(), within(&held.usage)]
            .iter()
            .find(|place| is_told(text, place))
            .map(slice);
        let has_choices = places.count > 0;
        let is_of = |names: &[&str]| names.iter().any(|name| kind == name.as_bytes());
        let is_delta = typed
            .deltas
            .iter()
            .any(|end| kind.ends_with(end.as_bytes()));
        let part = Part {
            pieces: u64::from(is_delta || has_choices),
            usage,
            end: if is_of(typed.ends) {
                Some(Ending::Whole)
            } else {
                is_of(typed.fails).then_some(Ending::Failed)
            },
        };
        let mut edits: [(Range<usize>, &[u8]); 2] = Default::default();
        for (edit, place) in edits.iter_mut().zip([places.model, within(&held.model)]) {
            let engine_model = text.get(place.clone()).unwrap_or_default();
            if engine_model.starts_with(b"\"") && engine_model != self.model {
                *edit = (place, &self.model);
            }
        }
        splice(event, data.start, edits, out);
        Seen::Part(part)
    }
}
