//! Levels, keys and prices, made through the admin API.

use llmgw::litellm::Orders;
use llmgw_core::{
    api::tenancy::CreatedKey,
    cluster::tenancy::{LevelPath, Limits, Price},
    control::{Control, ControlError},
    error::Code,
};
use serde::Serialize;

use crate::{failure::Failure, grid::grid};

/// What was made, and what was not.
#[derive(Debug, Default, Serialize)]
pub(super) struct Applied {
    /// Keys with their secrets, which nobody sees again.
    keys: Vec<CreatedKey>,
    /// Levels that were made or limited.
    levels: Vec<LevelPath>,
    /// Models that were given a price.
    prices: Vec<String>,
    /// What is there already, and stays as it is.
    already: Vec<String>,
    /// What was refused.
    refused: Vec<Refused>,
}

/// Something that was refused.
#[derive(Debug, Serialize)]
struct Refused {
    what: String,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

// === impl Applied ===

impl Applied {
    pub(super) fn has_failures(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(super) fn people(&self) -> String {
        let mut text = String::new();
        if !self.keys.is_empty() {
            let rows = self.keys.iter().map(|made| {
                let key = &made.key;
                vec![
                    key.name.clone(),
                    key.level.to_string(),
                    key.id.to_string(),
                    made.secret.clone(),
                ]
            });
            text.push_str(&grid(
                &["NEW KEY", "LEVEL", "ID", "SECRET, SHOWN THIS ONCE"],
                &[],
                rows,
            ));
            text.push('\n');
        }
        text.push_str(&format!(
            "Made: {} levels, {} keys, {} prices\n",
            self.levels.len(),
            self.keys.len(),
            self.prices.len()
        ));
        for what in &self.already {
            text.push_str(&format!("{what} is there already, and stays as it is\n"));
        }
        if !self.refused.is_empty() {
            let rows = self.refused.iter().map(|refused| {
                let help = refused.help.clone().unwrap_or_else(|| "-".to_owned());
                vec![refused.what.clone(), refused.why.clone(), help]
            });
            text.push('\n');
            text.push_str(&grid(&["REFUSED", "WHY", "WHAT HELPS"], &[], rows));
        }
        text
    }

    fn refused(&mut self, what: String, error: ControlError) {
        self.refused.push(Refused {
            what,
            why: error.message,
            help: error.hint,
        });
    }
}

/// Makes what is not there. What is refused is told, and the rest goes on: secrets of keys that were made must be shown.
///
/// # Errors
/// When it can't be told what is there; then nothing was made.
pub(super) async fn apply(control: &Control, orders: &Orders) -> Result<Applied, Failure> {
    let levels = control.tenancy.levels().await?;
    let keys = control.tenancy.keys().await?;
    let prices = control.accounts.prices().await?;
    let models = control.catalog.models().await?;
    let mut applied = Applied::default();
    for level in &orders.levels {
        let path = level.path.clone();
        let known = levels.iter().find(|known| known.path == path);
        // The cluster is always there; it is limited by what was said of the whole, unless it is limited already.
        let unlimited =
            path.is_cluster() && known.is_none_or(|known| known.limits == Limits::default());
        let made = if unlimited {
            control.tenancy.limit_level(level.clone()).await
        } else if known.is_some() {
            applied.already.push(format!("the {} {path}", path.kind()));
            continue;
        } else {
            control.tenancy.create_level(level.clone()).await
        };
        match made {
            Ok(_) => applied.levels.push(path),
            Err(error) => applied.refused(format!("the {} {path}", path.kind()), error),
        }
    }
    for key in &orders.keys {
        let what = format!("the key {:?} of {}", key.name, key.level);
        if keys
            .iter()
            .any(|known| known.name == key.name && known.level == key.level)
        {
            applied.already.push(what);
            continue;
        }
        match control.tenancy.create_key(key.clone()).await {
            Ok(made) => applied.keys.push(made),
            Err(error) => applied.refused(what, error),
        }
    }
    for price in &orders.prices {
        let what = format!("the price of {}", price.model);
        // A price is kept under the model's own name.
        let names = |known: &Price| {
            let model = models.iter().find(|model| model.name == known.model);
            known.model == price.model
                || model.is_some_and(|model| model.aliases.contains(&price.model))
        };
        if prices.iter().any(names) {
            applied.already.push(what);
            continue;
        }
        match control.accounts.set_price(price.clone()).await {
            Ok(made) => applied.prices.push(made.model.to_string()),
            Err(error) if matches!(error.code, Code::NotFound | Code::ModelNotFound) => {
                let help = "start llmgw with the settings that --out wrote, then run this again";
                applied.refused(what, error.with_hint(help));
            }
            Err(error) => applied.refused(what, error),
        }
    }
    Ok(applied)
}
