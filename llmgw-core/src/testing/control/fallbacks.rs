//! The promises of fallbacks.

use super::{
    Fixture, Violation, promises,
    verdict::{done, equal, holds, refused},
};
use crate::{cluster::catalog::ModelDefinition, control::Control, error::Code, units::Bytes};

pub(super) async fn a_fallback_is_a_model_and_stays_one(
    control: &Control,
) -> Result<(), Violation> {
    let spare = promises::name("conformance/spare")?;
    let named = promises::name("conformance/with-spare")?;
    let definition = promises::definition(spare.as_str(), &[], Bytes::mib(64));
    done("an addition", control.catalog.add(definition).await)?;
    let with_spare = falling_back(named.as_str(), spare.as_str());
    done(
        "a model with a fallback is added",
        control.catalog.add(with_spare).await,
    )?;
    let view = promises::listed(control, &named).await?;
    equal("its fallbacks", &vec![spare.clone()], &view.fallbacks)?;
    let error = refused(
        "a model that others fall back to can't be removed",
        Code::Conflict,
        control.catalog.remove(&spare).await,
    )?;
    holds(
        "the refusal names the others",
        error.message.contains(named.as_str()),
        &error,
    )?;
    for name in [named, spare] {
        done("a removal", control.catalog.remove(&name).await)?;
    }
    Ok(())
}

pub(super) async fn a_fallback_that_is_no_model_is_refused(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let Fixture { control, alias, .. } = fixture;
    let before = promises::models(control).await?.len();
    for wrong in ["conformance/nobody", "conformance/a", alias.as_str(), "-"] {
        let error = refused(
            "a fallback is another model by its own name",
            Code::InvalidRequest,
            control
                .catalog
                .add(falling_back("conformance/a", wrong))
                .await,
        )?;
        holds(
            "the refusal names the field",
            error.message.starts_with("fallbacks[0]: "),
            &error,
        )?;
    }
    equal(
        "a refused definition leaves nothing behind",
        &before,
        &promises::models(control).await?.len(),
    )
}

fn falling_back(name: &str, fallback: &str) -> ModelDefinition {
    ModelDefinition {
        fallbacks: vec![fallback.to_owned()],
        ..promises::definition(name, &[], Bytes::mib(64))
    }
}
