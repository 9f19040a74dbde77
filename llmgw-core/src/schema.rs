//! JSON Schemas of what is written as one text or number; those of all else are derived.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    cluster::{
        node::MajorMinor,
        tenancy::LevelPath,
        variant::Variant,
        weights::{Sha256Digest, Source},
    },
    fingerprint::Fingerprint,
    id::{
        EngineName, HoldName, KeyId, ModelName, NodeId, ProfileName, ReplicaId, RequestId,
        RuleName, TokenId,
    },
    units::{Bytes, Cores, Span},
};

macro_rules! written {
    ($($type:ty, $name:literal: $schema:tt;)+) => {
        $(
            impl JsonSchema for $type {
                fn schema_name() -> Cow<'static, str> {
                    Cow::Borrowed($name)
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )+
    };
}

written! {
    ModelName, "ModelName": {
        "type": "string",
        "description": "What clients call a model.",
        "pattern": "^[A-Za-z0-9]([A-Za-z0-9._/:@+-]{0,126}[A-Za-z0-9])?$"
    };
    ProfileName, "ProfileName": {
        "type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
    };
    EngineName, "EngineName": {
        "type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
    };
    HoldName, "HoldName": {
        "type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
    };
    RuleName, "RuleName": {
        "type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
    };
    LevelPath, "LevelPath": {
        "type": "string",
        "description": "A level: / for the cluster, or the names of an organisation, a team and a project, as far as it goes.",
        "pattern": "^(/|[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2})$"
    };
    NodeId, "NodeId": { "type": "string", "pattern": "^node-[0-9a-f-]+$" };
    ReplicaId, "ReplicaId": { "type": "string", "pattern": "^r-[0-9a-f-]+$" };
    KeyId, "KeyId": { "type": "string", "pattern": "^key-[0-9a-f-]+$" };
    TokenId, "TokenId": { "type": "string", "pattern": "^token-[0-9a-f-]+$" };
    RequestId, "RequestId": { "type": "string" };
    Sha256Digest, "Sha256Digest": { "type": "string", "pattern": "^[0-9a-fA-F]{64}$" };
    Fingerprint, "Fingerprint": { "type": "string", "pattern": "^[0-9a-f]{16}$" };
    Source, "Source": {
        "type": "string",
        "description": "Where weights come from, such as hf:owner/repo/file.gguf."
    };
    Variant, "Variant": { "type": "string", "description": "A form of a build, such as cpu." };
    MajorMinor, "MajorMinor": { "type": "string", "description": "Two numbers, such as 8.9." };
    Bytes, "Bytes": {
        "type": ["integer", "string"],
        "minimum": 0,
        "description": "Bytes: a whole number, or going in a text such as 24GiB."
    };
    Cores, "Cores": {
        "type": ["number", "string"],
        "minimum": 0,
        "description": "Cores: a number, or thousandths such as 1500m."
    };
    Span, "Span": {
        "type": ["integer", "string"],
        "minimum": 0,
        "description": "A length of time: a text such as 15m, or whole nanoseconds."
    };
}
