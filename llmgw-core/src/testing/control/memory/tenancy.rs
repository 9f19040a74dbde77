//! Keys and levels in memory.

use async_trait::async_trait;

use super::MemoryControl;
use crate::{
    api::tenancy::{CreatedKey, KeyRequest, KeyView, LevelRequest, LevelView},
    clock::Timestamp,
    cluster::{
        account::{ApiKey, KeyHash},
        tenancy::{Level, LevelPath, Limits},
    },
    control::{
        ControlError, Tenancy, Uses, check_key, check_level_removal, check_limited_key,
        check_limited_level, check_new_level, key_subject, key_view, level_views, ordered,
        unknown_level,
    },
    id::KeyId,
};

#[async_trait]
impl Tenancy for MemoryControl {
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError> {
        Ok(self.answering()?.keys.values().map(view).collect())
    }

    async fn create_key(&self, request: KeyRequest) -> Result<CreatedKey, ControlError> {
        let mut state = self.answering()?;
        // It opens nothing: there is no gateway here.
        let key = check_key(request, &state.levels, KeyHash([0; 32]), Timestamp(0))?;
        state.note(self.actor(), "key.create", &key_subject(&key));
        let view = view(&key);
        // Unique all the same, as a secret is.
        let secret = format!("sk-llmgw-{}", key.id.as_uuid().simple());
        state.keys.insert(key.id, key);
        Ok(CreatedKey { key: view, secret })
    }

    async fn limit_key(&self, id: KeyId, limits: Limits) -> Result<KeyView, ControlError> {
        let mut state = self.answering()?;
        let key = check_limited_key(id, limits, state.keys.values())?;
        state.note(self.actor(), "key.limit", &key_subject(&key));
        let view = view(&key);
        state.keys.insert(id, key);
        Ok(view)
    }

    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let key = state.keys.remove(&id);
        let key = key.ok_or_else(|| ControlError::unknown_key(id))?;
        state.note(self.actor(), "key.revoke", &key_subject(&key));
        Ok(())
    }

    async fn levels(&self) -> Result<Vec<LevelView>, ControlError> {
        let state = self.answering()?;
        let keys = state.keys.values().map(|key| &key.level);
        Ok(level_views(&state.levels, keys, Timestamp(0), &Uses::new()))
    }

    async fn create_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let level = check_new_level(request, &self.answering()?.levels, Timestamp(0))?;
        self.put("level.create", level)
    }

    async fn limit_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let level = check_limited_level(request, &self.answering()?.levels, Timestamp(0))?;
        self.put("level.limit", level)
    }

    async fn remove_level(&self, path: &LevelPath) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let keys = state.keys.values().map(|key| &key.level);
        check_level_removal(path, &state.levels, keys)?;
        state.note(self.actor(), "level.remove", &path.to_string());
        state.levels.retain(|level| level.path != *path);
        Ok(())
    }
}

impl MemoryControl {
    fn put(&self, action: &str, level: Level) -> Result<LevelView, ControlError> {
        let mut state = self.answering()?;
        let path = level.path.clone();
        let subject = ordered(&path.to_string(), &level.limits);
        state.note(self.actor(), action, &subject);
        state.levels.retain(|other| other.path != path);
        state.levels.push(level);
        let keys = state.keys.values().map(|key| &key.level);
        let views = level_views(&state.levels, keys, Timestamp(0), &Uses::new());
        let view = views.into_iter().find(|view| view.path == path);
        view.ok_or_else(|| unknown_level(&path))
    }
}

/// Nothing is spent here.
fn view(key: &ApiKey) -> KeyView {
    key_view(key, Timestamp(0), &Uses::new())
}
