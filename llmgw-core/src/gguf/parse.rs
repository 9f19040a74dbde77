//! From bytes to a [`Header`].

use std::collections::BTreeSet;

use super::{
    cursor::{Cursor, Stop},
    error::GgufError,
    limits::Limits,
    metadata::{Array, Metadata, Value, ValueKind},
    tensor::{Tensor, TensorType},
};
use crate::header::Progress;

/// All that stands in a file before the data of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The version of the format: 2 or 3.
    pub version: u32,
    /// Typed values under text keys.
    pub metadata: Metadata,
    /// The tensors in the order of the file.
    pub tensors: Vec<Tensor>,
    /// What the places of tensors are multiples of.
    pub alignment: u64,
    /// Where the data of tensors begins, in bytes from the start of the file.
    pub data_offset: u64,
}

// === impl Header ===

impl Header {
    /// Parses the beginning of a file.
    ///
    /// What it allocates is bounded by `limits` and by a small multiple of the bytes that are there.
    ///
    /// # Errors
    ///
    /// [`GgufError`] with the path of the field that can't be right, however many bytes followed.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Progress<Self>, GgufError> {
        match parse(&mut Cursor::new(bytes, limits.header_bytes), limits) {
            Ok(header) => Ok(Progress::Done(header)),
            Err(Stop::More(bytes)) => Ok(Progress::NeedMore { bytes }),
            Err(Stop::Broken(error)) => Err(error),
        }
    }
}

fn parse(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Header, Stop> {
    let version = version(cursor)?;
    let tensor_count = count(cursor, "tensor_count", limits.tensors)?;
    let key_count = count(cursor, "metadata_kv_count", limits.keys)?;
    let metadata = metadata(cursor, key_count, limits)?;
    let alignment = alignment(&metadata, cursor.at())?;
    let tensors = tensors(cursor, tensor_count, alignment, limits)?;
    Ok(Header {
        version,
        metadata,
        tensors,
        alignment,
        data_offset: cursor
            .at()
            .checked_next_multiple_of(alignment)
            .unwrap_or(u64::MAX),
    })
}

/// Checks the magic number and returns the version.
fn version(cursor: &mut Cursor<'_>) -> Result<u32, Stop> {
    let magic: [u8; 4] = cursor.array(|| "magic".to_owned())?;
    if magic != *MAGIC {
        return Err(
            GgufError::new("magic", "these bytes are no GGUF file", 0)
                .with_hint("a GGUF file begins with the letters GGUF; give the weights themselves, not a page about them")
                .into(),
        );
    }
    let at = cursor.at();
    let version = cursor.u32(|| "version".to_owned())?;
    let refuse = |problem: String, hint| {
        Err(GgufError::new("version", problem, at)
            .with_hint(hint)
            .into())
    };
    match version {
        2 | 3 => Ok(version),
        1 => refuse(
            "version 1 is not read: it was replaced in 2023, and llama.cpp refuses it too"
                .to_owned(),
            "convert the model again from its source",
        ),
        // The low half of a small number is empty when its bytes stand the other way round.
        big if big != 0 && big & 0xffff == 0 => refuse(
            "the file is big-endian; only little-endian files are read".to_owned(),
            "convert the model again without --bigendian",
        ),
        other => refuse(
            format!("version {other} is not known; 2 and 3 are"),
            "a newer llmgw may read it",
        ),
    }
}

fn count(cursor: &mut Cursor<'_>, field: &str, limit: u64) -> Result<u64, Stop> {
    let at = cursor.at();
    let count = cursor.u64(|| field.to_owned())?;
    if count > limit {
        let problem = format!("{count}; at most {limit} are allowed");
        return Err(GgufError::new(field, problem, at).into());
    }
    Ok(count)
}

fn metadata(cursor: &mut Cursor<'_>, count: u64, limits: &Limits) -> Result<Metadata, Stop> {
    let mut metadata = Metadata::default();
    for index in 0..count {
        let at = cursor.at();
        let place = || format!("metadata[{index}]");
        let key = cursor.string(limits.key_bytes, || format!("{}.key", place()))?;
        let key = std::str::from_utf8(key)
            .ok()
            .filter(|key| !key.is_empty())
            .ok_or_else(|| GgufError::new(format!("{}.key", place()), "is no text", at))?;
        let field = || format!("metadata[{index}].{key}");
        let kind = kind(cursor, field)?;
        let value = value(cursor, kind, limits, &field)?;
        if metadata.0.insert(key.to_owned(), value).is_some() {
            return Err(GgufError::new(field(), "the key stands twice", at).into());
        }
    }
    Ok(metadata)
}

fn kind(cursor: &mut Cursor<'_>, field: impl Fn() -> String) -> Result<ValueKind, Stop> {
    let at = cursor.at();
    let number = cursor.u32(&field)?;
    ValueKind::of(number).ok_or_else(|| {
        let problem = format!("{number} is no kind of value");
        GgufError::new(field(), problem, at).into()
    })
}

fn value(
    cursor: &mut Cursor<'_>,
    kind: ValueKind,
    limits: &Limits,
    field: &dyn Fn() -> String,
) -> Result<Value, Stop> {
    nested(cursor, kind, 0, limits, field)
}

fn nested(
    cursor: &mut Cursor<'_>,
    kind: ValueKind,
    depth: u32,
    limits: &Limits,
    field: &dyn Fn() -> String,
) -> Result<Value, Stop> {
    Ok(match kind {
        ValueKind::U8 => Value::U8(u8::from_le_bytes(cursor.array(field)?)),
        ValueKind::I8 => Value::I8(i8::from_le_bytes(cursor.array(field)?)),
        ValueKind::U16 => Value::U16(u16::from_le_bytes(cursor.array(field)?)),
        ValueKind::I16 => Value::I16(i16::from_le_bytes(cursor.array(field)?)),
        ValueKind::U32 => Value::U32(cursor.u32(field)?),
        ValueKind::I32 => Value::I32(i32::from_le_bytes(cursor.array(field)?)),
        ValueKind::F32 => Value::F32(f32::from_le_bytes(cursor.array(field)?)),
        ValueKind::U64 => Value::U64(cursor.u64(field)?),
        ValueKind::I64 => Value::I64(i64::from_le_bytes(cursor.array(field)?)),
        ValueKind::F64 => Value::F64(f64::from_le_bytes(cursor.array(field)?)),
        // llama.cpp takes every byte but 0 for yes.
        ValueKind::Bool => Value::Bool(cursor.array::<1>(field)? != [0]),
        ValueKind::Text => text(cursor, limits, field)?,
        ValueKind::Array => Value::Array(array(cursor, depth, limits, field)?),
    })
}

fn text(
    cursor: &mut Cursor<'_>,
    limits: &Limits,
    field: &dyn Fn() -> String,
) -> Result<Value, Stop> {
    let text = cursor.string(limits.string_bytes, field)?;
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok(if bytes > limits.kept_string_bytes {
        Value::LongText { bytes }
    } else {
        Value::Text(String::from_utf8_lossy(text).into_owned())
    })
}

fn array(
    cursor: &mut Cursor<'_>,
    depth: u32,
    limits: &Limits,
    field: &dyn Fn() -> String,
) -> Result<Array, Stop> {
    let at = cursor.at();
    if depth >= limits.nesting {
        let problem = format!("arrays within arrays, more than {} deep", limits.nesting);
        return Err(GgufError::new(field(), problem, at).into());
    }
    let kind = kind(cursor, field)?;
    let count = cursor.u64(field)?;
    if count > limits.array_elements {
        let problem = format!(
            "an array of {count} values; at most {} are allowed",
            limits.array_elements
        );
        return Err(GgufError::new(field(), problem, at).into());
    }
    // What is inside of an array is kept only at the top: nothing that is needed lies deeper.
    let kept = depth == 0 && count <= limits.kept_array_elements;
    if !kept && let Some(width) = kind.width() {
        cursor.take(count.saturating_mul(width), field)?;
        return Ok(Array {
            kind,
            count,
            elements: None,
        });
    }
    let mut elements = Vec::new();
    for index in 0..count {
        let element = || format!("{}[{index}]", field());
        if !kept && kind == ValueKind::Text {
            cursor.string(limits.string_bytes, element)?;
            continue;
        }
        let value = nested(cursor, kind, depth.saturating_add(1), limits, &element)?;
        if kept {
            elements.push(value);
        }
    }
    Ok(Array {
        kind,
        count,
        elements: kept.then_some(elements),
    })
}

fn alignment(metadata: &Metadata, at: u64) -> Result<u64, Stop> {
    let alignment = metadata.number(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        let problem = format!("{alignment} is no power of two up to {MAX_ALIGNMENT}");
        return Err(GgufError::new(format!("metadata.{ALIGNMENT_KEY}"), problem, at).into());
    }
    Ok(alignment)
}

fn tensors(
    cursor: &mut Cursor<'_>,
    count: u64,
    alignment: u64,
    limits: &Limits,
) -> Result<Vec<Tensor>, Stop> {
    let mut tensors = Vec::new();
    let mut names = BTreeSet::new();
    for index in 0..count {
        let at = cursor.at();
        let name = cursor.string(limits.tensor_name_bytes, || {
            format!("tensors[{index}].name")
        })?;
        let name = std::str::from_utf8(name)
            .map_err(|_| GgufError::new(format!("tensors[{index}].name"), "is no text", at))?;
        let tensor = tensor(cursor, name, index, alignment)?;
        if !names.insert(name) {
            let field = format!("tensors[{index}].{name}");
            return Err(GgufError::new(field, "the tensor stands twice", at).into());
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn tensor(cursor: &mut Cursor<'_>, name: &str, index: u64, alignment: u64) -> Result<Tensor, Stop> {
    let at = cursor.at();
    let field = |part: &str| format!("tensors[{index}].{name}.{part}");
    let rank = cursor.u32(|| field("n_dimensions"))?;
    if rank > MAX_DIMENSIONS {
        let problem = format!("{rank}; at most {MAX_DIMENSIONS} are allowed");
        return Err(GgufError::new(field("n_dimensions"), problem, at).into());
    }
    let mut dimensions = Vec::new();
    let mut elements: u64 = 1;
    for _ in 0..rank {
        let dimension = cursor.u64(|| field("dimensions"))?;
        elements = elements
            .checked_mul(dimension)
            .filter(|all| *all < MAX_ELEMENTS)
            .ok_or_else(|| {
                GgufError::new(field("dimensions"), "their product is out of reach", at)
            })?;
        dimensions.push(dimension);
    }
    let kind = TensorType(cursor.u32(|| field("type"))?);
    let offset = cursor.u64(|| field("offset"))?;
    if !offset.is_multiple_of(alignment) {
        let problem = format!("{offset} is no multiple of the alignment, {alignment}");
        return Err(GgufError::new(field("offset"), problem, at).into());
    }
    let row = dimensions.first().copied().unwrap_or(1);
    if let Some(block) = kind.block()
        && !row.is_multiple_of(block.elements)
    {
        let problem = format!(
            "rows of {row} are no whole blocks of {kind}, which have {}",
            block.elements
        );
        return Err(GgufError::new(field("dimensions"), problem, at).into());
    }
    Ok(Tensor {
        name: name.to_owned(),
        dimensions,
        kind,
        offset,
    })
}

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
/// Far more than any file uses; a larger one would only move the data out of reach.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// `GGML_MAX_DIMS`.
const MAX_DIMENSIONS: u32 = 4;
/// No type has more than 8 bytes for an element, so that sizes stay below 2^63.
const MAX_ELEMENTS: u64 = 1 << 60;
