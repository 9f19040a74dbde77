//! What people get wrong in changes that belong together.

use llmgw_core::{
    cluster::audit::{AuditEntry, NewAuditEntry},
    store::{Epoch, StoreError, Write},
};
use tokio::time::sleep;

use super::{BrokenStore, Bug, Data, STEP};

impl BrokenStore {
    pub(super) fn listed<T>(&self, mut list: Vec<T>) -> Vec<T> {
        if self.has(Bug::ListsAreReversed) {
            list.reverse();
        }
        list
    }

    pub(super) async fn commit_all(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        if !self.has(Bug::CommitIsNotFenced) {
            self.check(epoch)?;
        }
        if !self.has(Bug::CommitLeavesWhatWentBefore)
            && let Some(taken) = writes
                .iter()
                .find_map(|write| taken(&self.data(), write, self.has(Bug::SettingsAreReplaced)))
        {
            return Err(taken);
        }
        for write in writes {
            if self.has(Bug::CommitIsInSteps) {
                sleep(STEP).await;
            }
            if let Some(taken) = taken(&self.data(), write, self.has(Bug::SettingsAreReplaced)) {
                return Err(taken);
            }
            self.apply(write);
        }
        if self.has(Bug::CommitForgetsItsEntry) && !writes.is_empty() {
            return Ok(AuditEntry::chained(
                llmgw_core::cluster::audit::ChainHead::EMPTY,
                entry,
            ));
        }
        if self.has(Bug::CommitIsInSteps) {
            sleep(STEP).await;
        }
        self.append_entry(epoch, entry).await
    }

    fn apply(&self, write: &Write) {
        let mut data = self.data();
        match write.clone() {
            Write::AddModel(model) => {
                let name = model.model.name().to_string();
                data.models.insert(name, Some(*model));
            }
            Write::RemoveModel(name) => drop(data.models.remove(name.as_str())),
            Write::AddKey(key) if !self.has(Bug::CommitForgetsKeys) => {
                data.keys.insert(key.id, *key);
            }
            Write::RemoveKey(id) => drop(data.keys.remove(&id)),
            Write::PutOrder(order) => {
                let subject = order.order.subject();
                let place = (subject.kind().to_owned(), subject.name());
                if self.has(Bug::FirstOrderStays) {
                    data.orders.entry(place).or_insert(*order);
                } else {
                    data.orders.insert(place, *order);
                }
            }
            Write::LiftOrder(subject) if !self.has(Bug::LiftDoesNothing) => {
                let place = (subject.kind().to_owned(), subject.name());
                data.orders.remove(&place);
            }
            Write::PutLevel(level) if self.has(Bug::FirstLimitsStay) => {
                data.levels.entry(level.path.clone()).or_insert(*level);
            }
            Write::PutLevel(level) => drop(data.levels.insert(level.path.clone(), *level)),
            Write::RemoveLevel(path) if !self.has(Bug::LevelsStay) => {
                data.levels.remove(&path);
            }
            Write::PutPrice(price) => {
                let place = (price.model.clone(), price.valid_from);
                if self.has(Bug::FirstPriceStays) {
                    data.prices.entry(place).or_insert(*price);
                } else {
                    data.prices.insert(place, *price);
                }
            }
            Write::AddToken(token) => drop(data.tokens.insert(token.id, token)),
            Write::RemoveToken(id) => drop(data.tokens.remove(&id)),
            Write::PutCapacity(capacity) => {
                let profile = capacity.measurement.profile.to_string();
                let place = (capacity.model.to_string(), profile);
                if self.has(Bug::FirstMeasurementStays) {
                    data.capacities.entry(place).or_insert(*capacity);
                } else {
                    data.capacities.insert(place, *capacity);
                }
            }
            Write::AddSettings(one) => drop(data.settings.insert(one.version, *one)),
            Write::AddKey(_) | Write::LiftOrder(_) | Write::RemoveLevel(_) => {}
        }
    }
}

/// Why a change can't be made.
fn taken(data: &Data, write: &Write, is_replaced: bool) -> Option<StoreError> {
    let what = match write {
        Write::AddModel(model) => {
            let name = model.model.name().to_string();
            data.models.contains_key(&name).then_some(name)?
        }
        Write::AddKey(key) => data
            .keys
            .contains_key(&key.id)
            .then(|| key.id.to_string())?,
        Write::AddSettings(one) => {
            let version = one.version;
            let taken = data.settings.contains_key(&version) && !is_replaced;
            taken.then(|| format!("version {version}"))?
        }
        _ => return None,
    };
    Some(StoreError::Exists { what })
}
