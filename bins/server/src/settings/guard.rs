//! The key `guard`.

use llmgw_core::{
    cluster::{
        catalog::DefinitionError,
        guard::{Policy, PolicyDefinition},
    },
    guard::Rules,
};

/// Reads the policy, and makes it ready once, so that what can't be is refused with the file.
pub(super) fn checked(definition: PolicyDefinition) -> Result<Policy, DefinitionError> {
    let policy = Policy::checked(definition, "guard")?;
    Ok(Rules::ready(policy)?.policy().clone())
}
