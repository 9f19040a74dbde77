//! How much a header may hold.

/// Bounds for what a file says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of the whole header. Real ones have up to about 20 MiB, nearly all of it vocabulary.
    pub header_bytes: u64,
    /// Metadata keys. Real files have fewer than 100.
    pub keys: u64,
    /// Bytes of a metadata key.
    pub key_bytes: u64,
    /// Bytes of a string. Some files carry their whole `tokenizer.json` in one.
    pub string_bytes: u64,
    /// Bytes of a string up to which it is kept; longer ones are only counted.
    pub kept_string_bytes: u64,
    /// Elements of an array.
    pub array_elements: u64,
    /// Elements up to which an array is kept; longer ones are only counted. Arrays over layers are short.
    pub kept_array_elements: u64,
    /// Arrays within arrays.
    pub nesting: u32,
    /// Tensors of one file. The largest models have some thousand.
    pub tensors: u64,
    /// Bytes of a tensor's name. llama.cpp takes 63.
    pub tensor_name_bytes: u64,
    /// Files of a split model.
    pub files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 128 << 20,
            keys: 4_096,
            key_bytes: 1_024,
            string_bytes: 64 << 20,
            kept_string_bytes: 4_096,
            array_elements: 4 << 20,
            kept_array_elements: 2_048,
            nesting: 4,
            tensors: 100_000,
            tensor_name_bytes: 256,
            files: 1_000,
        }
    }
}
