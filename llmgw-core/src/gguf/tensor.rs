//! Tensors as the header lists them, and the sizes of ggml's types.

use std::fmt;

use crate::units::Bytes;

/// A tensor as the header lists it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tensor {
    /// Its name, such as `blk.0.attn_k.weight`.
    pub name: String,
    /// Elements along each dimension; the first is the one that lies together in memory.
    pub dimensions: Vec<u64>,
    /// How its elements are stored.
    pub kind: TensorType,
    /// Where its data begins, counted from the start of all data.
    pub offset: u64,
}

/// How a tensor's elements are stored: ggml's number for it.
///
/// A number that is not known here is kept; only sizes can't be told then.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TensorType(pub u32);

/// The unit in which a type stores elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Block {
    /// Elements of a block.
    pub elements: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

// === impl Tensor ===

impl Tensor {
    /// All its elements; the parser refuses more than 2^64.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dimensions
            .iter()
            .fold(1, |product, n| u64::saturating_mul(product, *n))
    }

    /// The size of its data; absent when the type is not known.
    #[must_use]
    pub fn bytes(&self) -> Option<Bytes> {
        let block = self.kind.block()?;
        let blocks = self.elements() / block.elements;
        Some(Bytes(blocks.saturating_mul(block.bytes)))
    }
}

// === impl TensorType ===

impl TensorType {
    /// 32-bit floating point.
    pub const F32: Self = Self(0);
    /// 16-bit floating point.
    pub const F16: Self = Self(1);
    /// 4 bits with a scale for 32 elements.
    pub const Q4_0: Self = Self(2);
    /// 4 bits with a scale and an offset for 32 elements.
    pub const Q4_1: Self = Self(3);
    /// 5 bits with a scale for 32 elements.
    pub const Q5_0: Self = Self(6);
    /// 5 bits with a scale and an offset for 32 elements.
    pub const Q5_1: Self = Self(7);
    /// 8 bits with a scale for 32 elements.
    pub const Q8_0: Self = Self(8);
    /// 2 bits with scales and offsets for 16 elements, under one pair for 256.
    pub const Q2_K: Self = Self(10);
    /// 3 bits with scales for 16 elements, under one for 256.
    pub const Q3_K: Self = Self(11);
    /// 4 bits with scales and offsets for 32 elements, under one pair for 256.
    pub const Q4_K: Self = Self(12);
    /// 5 bits with scales and offsets for 32 elements, under one pair for 256.
    pub const Q5_K: Self = Self(13);
    /// 6 bits with scales for 16 elements, under one for 256.
    pub const Q6_K: Self = Self(14);
    /// 4 bits that stand for uneven levels, with a scale for 32 elements.
    pub const IQ4_NL: Self = Self(20);
    /// 4 bits that stand for uneven levels, with scales for 32 elements under one for 256.
    pub const IQ4_XS: Self = Self(23);
    /// 16-bit floating point with the range of 32.
    pub const BF16: Self = Self(30);
    /// 4-bit floating point with a power of two for 32 elements.
    pub const MXFP4: Self = Self(39);

    /// What ggml calls it; absent when it is not known.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// The unit in which it stores elements; absent when it is not known.
    #[must_use]
    pub fn block(self) -> Option<Block> {
        self.row().map(|row| Block {
            elements: row.2,
            bytes: row.3,
        })
    }

    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TYPES.iter().find(|row| row.0 == self.0)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// Number, name, elements of a block, bytes of a block.
///
/// From `enum ggml_type` in ggml's `ggml.h` and `GGML_QUANT_SIZES` in `gguf-py/gguf/constants.py`; each size is
/// the sum of a block's scales and packed elements. Missing numbers are types that ggml has removed.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 2 + 16),
    (3, "Q4_1", 32, 2 + 2 + 16),
    (6, "Q5_0", 32, 2 + 4 + 16),
    (7, "Q5_1", 32, 2 + 2 + 4 + 16),
    (8, "Q8_0", 32, 2 + 32),
    (9, "Q8_1", 32, 4 + 4 + 32),
    (10, "Q2_K", 256, 2 + 2 + 16 + 64),
    (11, "Q3_K", 256, 2 + 64 + 32 + 12),
    (12, "Q4_K", 256, 2 + 2 + 128 + 12),
    (13, "Q5_K", 256, 2 + 2 + 128 + 32 + 12),
    (14, "Q6_K", 256, 2 + 128 + 64 + 16),
    (15, "Q8_K", 256, 4 + 256 + 32),
    (16, "IQ2_XXS", 256, 2 + 64),
    (17, "IQ2_XS", 256, 2 + 64 + 8),
    (18, "IQ3_XXS", 256, 2 + 64 + 32),
    (19, "IQ1_S", 256, 2 + 32 + 16),
    (20, "IQ4_NL", 32, 2 + 16),
    (21, "IQ3_S", 256, 2 + 64 + 32 + 8 + 4),
    (22, "IQ2_S", 256, 2 + 64 + 16),
    (23, "IQ4_XS", 256, 2 + 2 + 128 + 4),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 32 + 16 + 8),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 2 + 4 * 13),
    (35, "TQ2_0", 256, 2 + 64),
    (39, "MXFP4", 32, 1 + 16),
    (40, "NVFP4", 64, 4 + 32),
    (41, "Q1_0", 128, 2 + 16),
    (42, "Q2_0", 64, 2 + 16),
];
