//! What models cost: prices with their history, and what a call costs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    id::ModelName,
    units::{Micros, Tokens},
};

/// What a model costs from some time on, until the next price of that model; each in millionths of the cluster's currency
/// for a million tokens.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Price {
    /// The model, by its own name; a price outlives it.
    pub model: ModelName,
    /// From when on, in milliseconds since the Unix epoch.
    pub valid_from: Timestamp,
    /// Of tokens of prompts.
    pub prompt: Micros,
    /// Of tokens of prompts that the engine had in its cache.
    pub cached: Micros,
    /// Of tokens of answers.
    pub completion: Micros,
}

/// All prices, those that were too, as a snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PriceList(BTreeMap<ModelName, BTreeMap<Timestamp, Price>>);

// === impl Price ===

impl Price {
    /// The most that a million tokens may cost: a thousand million units.
    pub const MOST: Micros = Micros(1_000_000_000_000_000);

    /// What a call with so many tokens costs; `cached` are among those of the prompt. A fraction of a millionth is a whole
    /// one.
    #[must_use]
    pub fn cost(&self, prompt: Tokens, cached: Tokens, completion: Tokens) -> Micros {
        let cached = cached.min(prompt);
        let of = |price: Micros, tokens: u64| i128::from(price.0.max(0)) * i128::from(tokens);
        let sum = of(self.prompt, prompt.0 - cached.0)
            .saturating_add(of(self.cached, cached.0))
            .saturating_add(of(self.completion, completion.0));
        let micros = sum.saturating_add(999_999) / 1_000_000;
        Micros(i64::try_from(micros).unwrap_or(i64::MAX).min(MOST_COST))
    }
}

// === impl PriceList ===

impl PriceList {
    /// The list of these prices.
    #[must_use]
    pub fn new(prices: impl IntoIterator<Item = Price>) -> Self {
        let mut list = Self::default();
        for price in prices {
            let history = list.0.entry(price.model.clone()).or_default();
            history.insert(price.valid_from, price);
        }
        list
    }

    /// The price of a model at a time; `None` when it had none yet.
    #[must_use]
    pub fn at(&self, model: &ModelName, at: Timestamp) -> Option<&Price> {
        let (_, price) = self.0.get(model)?.range(..=at).next_back()?;
        Some(price)
    }
}

/// 2^53 millionths: nine thousand million units, for a call.
const MOST_COST: i64 = 1 << 53;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn price(model: &str, valid_from: i64, prompt: i64) -> Price {
        Price {
            model: model.parse().unwrap(),
            valid_from: Timestamp(valid_from),
            prompt: Micros(prompt),
            cached: Micros(prompt / 10),
            completion: Micros(prompt * 3),
        }
    }

    #[test]
    fn a_call_costs_its_tokens_by_their_kind_and_never_less_than_it_does() {
        // 0.50, 0.05 and 1.50 for a million.
        let price = price("m", 0, 500_000);
        let cost = |prompt, cached, completion| {
            price
                .cost(Tokens(prompt), Tokens(cached), Tokens(completion))
                .0
        };
        assert_eq!(cost(0, 0, 0), 0);
        assert_eq!(cost(1_000_000, 0, 0), 500_000);
        assert_eq!(
            cost(1_000_000, 400_000, 100_000),
            300_000 + 20_000 + 150_000
        );
        assert_eq!(cost(1, 0, 0), 1, "a fraction is a whole one");
        // More cached than there are is nonsense that an engine may say.
        assert_eq!(cost(10, 99, 0), 1);
    }

    #[test]
    fn the_price_that_was_valid_then_counts() {
        let model: ModelName = "m".parse().unwrap();
        let list = PriceList::new([price("m", 200, 2), price("m", 100, 1), price("n", 0, 9)]);
        let at = |at| list.at(&model, Timestamp(at)).map(|price| price.prompt.0);
        assert_eq!(
            [at(99), at(100), at(199), at(200), at(i64::MAX)],
            [None, Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!(list.at(&"x".parse().unwrap(), Timestamp(0)), None);
    }

    proptest! {
        #[test]
        fn a_cost_is_never_negative_and_never_panics(
            prompt in any::<u64>(), cached in any::<u64>(), completion in any::<u64>(), of in any::<i64>(),
        ) {
            let price = Price { prompt: Micros(of), cached: Micros(of), completion: Micros(of), ..price("m", 0, 1) };
            let cost = price.cost(Tokens(prompt), Tokens(cached), Tokens(completion));
            prop_assert!(cost.0 >= 0 && cost.0 <= MOST_COST);
        }
    }
}
