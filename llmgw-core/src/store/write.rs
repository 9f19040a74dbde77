//! What can be written into a store by whoever leads.

use crate::{
    cluster::{
        account::{ApiKey, OperatorToken},
        capacity::Capacity,
        order::{StoredOrder, Subject},
        settings::StoredSettings,
        tenancy::{Level, LevelPath, Price},
    },
    id::{KeyId, ModelName, TokenId},
    store::{StoreError, StoredModel},
};

/// One change of what is kept. See [`Store::commit`](super::Store::commit).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// Adds a model; [`StoreError::Exists`] when one of that name is there.
    AddModel(Box<StoredModel>),
    /// Removes a model, when it is there.
    RemoveModel(ModelName),
    /// Adds a key; [`StoreError::Exists`] when the id is there.
    AddKey(Box<ApiKey>),
    /// Removes a key, when it is there.
    RemoveKey(KeyId),
    /// Keeps a level, in the place of the one of the same path.
    PutLevel(Box<Level>),
    /// Removes a level, when it is there.
    RemoveLevel(LevelPath),
    /// Keeps a price, in the place of the one of the same model and time.
    PutPrice(Box<Price>),
    /// Keeps an order, in the place of the one on the same subject.
    PutOrder(Box<StoredOrder>),
    /// Lifts the order on a subject, when there is one.
    LiftOrder(Subject),
    /// Adds an admin token; [`StoreError::Exists`] when the id is there.
    AddToken(OperatorToken),
    /// Removes an admin token, when it is there.
    RemoveToken(TokenId),
    /// Keeps a measurement, in the place of the one of the same model and profile.
    PutCapacity(Box<Capacity>),
    /// Adds a version of the settings; [`StoreError::Exists`] when one of that number is there.
    AddSettings(Box<StoredSettings>),
}

// === impl Write ===

impl Write {
    /// What is being done, for an error.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn doing(&self) -> &'static str {
        match self {
            Self::AddModel(_) => "adding a model",
            Self::RemoveModel(_) => "removing a model",
            Self::AddKey(_) => "adding a key",
            Self::RemoveKey(_) => "removing a key",
            Self::PutLevel(_) => "keeping a level",
            Self::RemoveLevel(_) => "removing a level",
            Self::PutPrice(_) => "keeping a price",
            Self::PutOrder(_) => "keeping an order",
            Self::LiftOrder(_) => "lifting an order",
            Self::AddToken(_) => "adding an admin token",
            Self::RemoveToken(_) => "removing an admin token",
            Self::PutCapacity(_) => "keeping a measurement",
            Self::AddSettings(_) => "keeping settings",
        }
    }

    /// Why it could not be added, when nothing was.
    pub(super) fn exists(&self) -> Option<StoreError> {
        let what = match self {
            Self::AddModel(model) => format!("model {}", model.model.name()),
            Self::AddKey(key) => key.id.to_string(),
            Self::AddToken(token) => token.id.to_string(),
            Self::AddSettings(settings) => format!("version {} of the settings", settings.version),
            Self::RemoveModel(_)
            | Self::RemoveKey(_)
            | Self::PutLevel(_)
            | Self::RemoveLevel(_)
            | Self::PutPrice(_)
            | Self::PutOrder(_)
            | Self::LiftOrder(_)
            | Self::RemoveToken(_)
            | Self::PutCapacity(_) => return None,
        };
        Some(StoreError::Exists { what })
    }
}
