//! One file: its tensors.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};

use crate::{header::Progress, units::Bytes};

/// All tensors of a file, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// The tensors, by name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// A tensor as the header lists it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tensor {
    /// How its elements are stored, such as `BF16`; not necessarily a name that is known here.
    pub dtype: String,
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// The size of its data.
    pub bytes: Bytes,
}

/// Bounds for what a file says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of the header. The format's own limit is 100 MB; real ones have up to about 10.
    pub header_bytes: u64,
    /// Tensors of one file. Models with many experts have some ten thousand.
    pub tensors: usize,
    /// Dimensions of a tensor.
    pub dimensions: usize,
    /// Files of a model.
    pub files: usize,
}

/// Says what in a header can't be right, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SafetensorsError {
    /// The path of the field, such as `tensors.lm_head.weight.data_offsets`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Reads the object one tensor at a time, so that an error knows where it is.
struct Tensors<'a> {
    limits: Limits,
    /// The tensor that is being read.
    current: &'a mut String,
}

// === impl Header ===

impl Header {
    /// Parses the beginning of a file.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError`] with the path of the field that can't be right.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Progress<Self>, SafetensorsError> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else {
            return Ok(Progress::NeedMore { bytes: 8 });
        };
        let length = u64::from_le_bytes(*length);
        if length < 2 || length > limits.header_bytes {
            let problem = format!(
                "{length} bytes; a header has 2 to {} of them",
                limits.header_bytes
            );
            return Err(refuse("header_length", problem));
        }
        let json = usize::try_from(length).ok().and_then(|end| rest.get(..end));
        let Some(json) = json else {
            let bytes = length.saturating_add(8);
            return Ok(Progress::NeedMore { bytes });
        };
        let mut current = String::new();
        let tensors = Tensors {
            limits: *limits,
            current: &mut current,
        };
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let tensors = tensors
            .deserialize(&mut deserializer)
            .and_then(|tensors| deserializer.end().map(|()| tensors));
        match tensors {
            Ok(tensors) => Ok(Progress::Done(Self { tensors })),
            Err(error) if current.is_empty() => Err(refuse("header", error.to_string())),
            Err(error) => Err(refuse(format!("tensors.{current}"), error.to_string())),
        }
    }
}

// === impl Tensor ===

impl Tensor {
    fn checked(entry: Entry, limits: &Limits) -> Result<Self, String> {
        let Entry {
            dtype,
            shape,
            data_offsets: [begin, end],
        } = entry;
        if shape.len() > limits.dimensions {
            return Err(format!(
                "shape has {} dimensions; at most {} are allowed",
                shape.len(),
                limits.dimensions
            ));
        }
        let bytes = end
            .checked_sub(begin)
            .ok_or_else(|| format!("data_offsets end at {end}, before they begin at {begin}"))?;
        let elements = shape
            .iter()
            .try_fold(1u64, |all, n| all.checked_mul(*n))
            .ok_or("the product of its shape is out of reach")?;
        if let Some(bits) = bits(&dtype) {
            let needed = elements
                .checked_mul(bits)
                .map(|bits| bits.div_ceil(8))
                .ok_or("the product of its shape is out of reach")?;
            if needed != bytes {
                return Err(format!(
                    "data_offsets span {bytes} bytes, but {elements} elements of {dtype} have {needed}"
                ));
            }
        }
        Ok(Self {
            dtype,
            shape,
            bytes: Bytes(bytes),
        })
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 << 20,
            tensors: 500_000,
            dimensions: 16,
            files: 1_000,
        }
    }
}

// === impl Tensors ===

impl<'de> DeserializeSeed<'de> for Tensors<'_> {
    type Value = BTreeMap<String, Tensor>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tensors<'_> {
    type Value = BTreeMap<String, Tensor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from names to tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            self.current.clone_from(&name);
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = map.next_value::<Entry>()?;
            let tensor = Tensor::checked(entry, &self.limits).map_err(A::Error::custom)?;
            if tensors.insert(name, tensor).is_some() {
                return Err(A::Error::custom("the tensor stands twice"));
            }
            if tensors.len() > self.limits.tensors {
                let problem = format!("more than {} tensors", self.limits.tensors);
                return Err(A::Error::custom(problem));
            }
        }
        self.current.clear();
        Ok(tensors)
    }
}

fn refuse(field: impl Into<String>, problem: String) -> SafetensorsError {
    SafetensorsError {
        field: field.into(),
        problem,
    }
}

/// Bits of an element, from `Dtype` of the crate `safetensors`; absent when the type is not known here.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Bytes of the header's length.
const LENGTH: usize = 8;
