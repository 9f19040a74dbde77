//! What whoever leads has written.

use std::collections::BTreeMap;

use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, OperatorToken},
        capacity::Capacity,
        order::{StoredOrder, Subject},
        settings::StoredSettings,
        tenancy::{Level, LevelPath, Price},
    },
    id::{KeyId, ModelName, ProfileName, TokenId},
    store::{StoreError, StoredModel, Write},
};

/// Intent, and what was measured. A clone takes several writes in, and then the place of the whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) models: BTreeMap<ModelName, StoredModel>,
    pub(super) keys: BTreeMap<KeyId, ApiKey>,
    pub(super) levels: BTreeMap<LevelPath, Level>,
    pub(super) prices: BTreeMap<(ModelName, Timestamp), Price>,
    /// By kind, then by name, as texts.
    pub(super) orders: BTreeMap<(&'static str, String), StoredOrder>,
    pub(super) tokens: BTreeMap<TokenId, OperatorToken>,
    pub(super) capacities: BTreeMap<(ModelName, ProfileName), Capacity>,
    pub(super) settings: BTreeMap<u64, StoredSettings>,
}

// === impl Kept ===

impl Kept {
    /// Takes one write in; says whether it changed anything.
    pub(super) fn apply(&mut self, write: &Write) -> Result<bool, StoreError> {
        let exists = || match write.exists() {
            Some(exists) => Err(exists),
            None => Ok(()),
        };
        match write {
            Write::AddModel(model) => {
                let name = model.model.name();
                if self.models.contains_key(name) {
                    exists()?;
                }
                self.models.insert(name.clone(), (**model).clone());
            }
            Write::RemoveModel(name) => return Ok(self.models.remove(name).is_some()),
            Write::AddKey(key) => {
                if self.keys.contains_key(&key.id) {
                    exists()?;
                }
                self.keys.insert(key.id, (**key).clone());
            }
            Write::RemoveKey(id) => return Ok(self.keys.remove(id).is_some()),
            Write::PutLevel(level) => {
                self.levels.insert(level.path.clone(), (**level).clone());
            }
            Write::RemoveLevel(path) => return Ok(self.levels.remove(path).is_some()),
            Write::PutPrice(price) => {
                let place = (price.model.clone(), price.valid_from);
                self.prices.insert(place, (**price).clone());
            }
            Write::PutOrder(order) => {
                let subject = order.order.subject();
                self.orders.insert(place(&subject), (**order).clone());
            }
            Write::LiftOrder(subject) => return Ok(self.orders.remove(&place(subject)).is_some()),
            Write::AddToken(token) => {
                if self.tokens.contains_key(&token.id) {
                    exists()?;
                }
                self.tokens.insert(token.id, token.clone());
            }
            Write::RemoveToken(id) => return Ok(self.tokens.remove(id).is_some()),
            Write::PutCapacity(capacity) => {
                let place = (capacity.model.clone(), capacity.measurement.profile.clone());
                self.capacities.insert(place, (**capacity).clone());
            }
            Write::AddSettings(settings) => {
                if self.settings.contains_key(&settings.version) {
                    exists()?;
                }
                self.settings.insert(settings.version, (**settings).clone());
            }
        }
        Ok(true)
    }
}

fn place(subject: &Subject) -> (&'static str, String) {
    (subject.kind(), subject.name())
}
