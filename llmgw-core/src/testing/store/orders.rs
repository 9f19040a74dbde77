//! Orders, admin tokens and measurements, and changes that are committed together with their entry in the log.

use super::{
    Checked, StoreFixture,
    audit::whole as whole_log,
    ensure,
    lease::{expect_fenced, unexpected},
    sample::{self, LONG, polled},
};
use crate::{
    cluster::{account::Role, order::StoredOrder, tenancy::Limits},
    store::{Epoch, Store, StoreError, Write},
};

pub(super) async fn orders_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    ensure!(store.orders().await?.is_empty(), "a new store has orders");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let orders = sample::orders()?;
    for order in orders.iter().rev() {
        put(&*store, epoch, order).await?;
    }
    let found = fixture.open().await?.orders().await?;
    ensure!(found == orders, "{orders:?} came back as {found:?}");
    Ok(())
}

pub(super) async fn a_later_order_takes_the_place_of_the_one_on_its_subject(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let (first, second) = (sample::scaled("m", 1)?, sample::scaled("m", 2)?);
    put(&*store, epoch, &first).await?;
    put(&*store, epoch, &second).await?;
    let found = store.orders().await?;
    ensure!(found == [second.clone()], "the orders are {found:?}");
    let entry = sample::audit_entry("m");
    for _ in 0..2 {
        // What is not there can't be lifted, and that is no fault.
        let lift = Write::LiftOrder(second.order.subject());
        store.commit(epoch, &[lift], &entry).await?;
        let found = store.orders().await?;
        ensure!(found.is_empty(), "a lifted order is still there: {found:?}");
    }
    Ok(())
}

pub(super) async fn tokens_and_measurements_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let roles = [Role::Viewer, Role::Operator, Role::Admin];
    let tokens: Vec<_> = roles.map(|role| sample::token("ops", role)).into();
    let measured = [("a", "p"), ("a", "q"), ("b", "p")];
    let measured = measured
        .iter()
        .map(|(model, profile)| sample::capacity(model, profile, 4))
        .collect::<Result<Vec<_>, _>>()?;
    let entry = sample::audit_entry("m");
    for token in tokens.iter().rev() {
        let write = Write::AddToken(token.clone());
        store.commit(epoch, &[write], &entry).await?;
    }
    for capacity in measured.iter().rev() {
        let write = Write::PutCapacity(Box::new(capacity.clone()));
        store.commit(epoch, &[write], &entry).await?;
    }
    let found = store.tokens().await?;
    ensure!(found == tokens, "{tokens:?} came back as {found:?}");
    let found = store.capacities().await?;
    ensure!(found == measured, "{measured:?} came back as {found:?}");

    let again = sample::capacity("a", "p", 9)?;
    let gone = sample::token("gone", Role::Viewer);
    let writes = [
        Write::PutCapacity(Box::new(again.clone())),
        Write::AddToken(gone.clone()),
        Write::RemoveToken(gone.id),
    ];
    store.commit(epoch, &writes, &entry).await?;
    let found = store.capacities().await?;
    ensure!(found.contains(&again), "{again:?} is not in {found:?}");
    ensure!(found.len() == 3, "an older measurement stayed: {found:?}");
    let found = store.tokens().await?;
    ensure!(found == tokens, "a removed token is still there: {found:?}");
    Ok(())
}

pub(super) async fn levels_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    ensure!(store.levels().await?.is_empty(), "a new store has levels");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    // In the order of their bytes.
    let in_order = ["/", "B", "a", "a-b", "a/b", "a/b/c", "b"];
    let mut levels = Vec::new();
    for (index, path) in in_order.into_iter().enumerate() {
        let models = ["m", "org/m:7b"].get(..index % 3).unwrap_or_default();
        levels.push(sample::level(path, sample::limits(models)?)?);
    }
    let entry = sample::audit_entry("m");
    for level in levels.iter().rev() {
        let write = Write::PutLevel(Box::new(level.clone()));
        store.commit(epoch, &[write], &entry).await?;
    }
    let found = fixture.open().await?.levels().await?;
    ensure!(found == levels, "{levels:?} came back as {found:?}");

    let again = sample::level("a", Limits::default())?;
    let gone = sample::level("b", Limits::default())?;
    let writes = [
        Write::PutLevel(Box::new(again.clone())),
        Write::RemoveLevel(gone.path.clone()),
        Write::RemoveLevel("nobody".parse()?),
    ];
    store.commit(epoch, &writes, &entry).await?;
    let found = store.levels().await?;
    ensure!(found.contains(&again), "{again:?} is not in {found:?}");
    ensure!(
        found.len() == levels.len() - 1,
        "a removed level, or an older one, stayed: {found:?}"
    );
    Ok(())
}

pub(super) async fn prices_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    ensure!(store.prices().await?.is_empty(), "a new store has prices");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let prices = [
        sample::price("B", 5, 5)?,
        sample::price("a", -1, 1)?,
        sample::price("a", 7, 2)?,
        sample::price("a/b", 0, i64::MAX)?,
    ];
    let entry = sample::audit_entry("m");
    for price in prices.iter().rev() {
        let write = Write::PutPrice(Box::new(price.clone()));
        store.commit(epoch, &[write], &entry).await?;
    }
    let found = fixture.open().await?.prices().await?;
    ensure!(found == prices, "{prices:?} came back as {found:?}");
    let again = sample::price("a", 7, 3)?;
    let write = Write::PutPrice(Box::new(again.clone()));
    store.commit(epoch, &[write], &entry).await?;
    let found = store.prices().await?;
    ensure!(found.contains(&again), "{again:?} is not in {found:?}");
    ensure!(
        found.len() == 4,
        "the price before is not in its place: {found:?}"
    );
    Ok(())
}

pub(super) async fn a_commit_is_its_changes_and_its_entry(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let (model, key) = (sample::model("m")?, sample::key("k"));
    let order = sample::scaled("m", 2)?;
    let writes = [
        Write::AddModel(Box::new(model.clone())),
        Write::AddKey(Box::new(key.clone())),
        Write::PutOrder(Box::new(order.clone())),
    ];
    let entry = sample::audit_entry("m");
    let noted = store.commit(epoch, &writes, &entry).await?;
    ensure!(noted.seq == 1, "the first entry has number {}", noted.seq);
    ensure!(
        (noted.at, &noted.actor, &noted.action, &noted.subject)
            == (entry.at, &entry.actor, &entry.action, &entry.subject),
        "{entry:?} was noted as {noted:?}"
    );
    let other = fixture.open().await?;
    let (models, keys) = (other.models().await?, other.keys().await?);
    ensure!(models == [model.clone()], "the models are {models:?}");
    ensure!(keys == [key.clone()], "the keys are {keys:?}");
    let orders = other.orders().await?;
    ensure!(orders == [order.clone()], "the orders are {orders:?}");
    let writes = [
        Write::RemoveModel(model.model.name().clone()),
        Write::RemoveKey(key.id),
        Write::LiftOrder(order.order.subject()),
    ];
    let second = store.commit(epoch, &writes, &entry).await?;
    ensure!(
        store.models().await?.is_empty()
            && store.keys().await?.is_empty()
            && store.orders().await?.is_empty(),
        "what was removed is still there"
    );
    let log = whole_log(&*store).await?;
    ensure!(log == [noted, second], "the log is {log:?}");
    Ok(())
}

pub(super) async fn a_commit_that_fails_leaves_nothing(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let there = sample::model("there")?;
    store.insert_model(epoch, &there).await?;
    let writes = [
        Write::PutOrder(Box::new(sample::scaled("there", 3)?)),
        Write::AddModel(Box::new(sample::model("new")?)),
        Write::AddModel(Box::new(there.clone())),
    ];
    let entry = sample::audit_entry("m");
    match store.commit(epoch, &writes, &entry).await {
        Err(StoreError::Exists { .. }) => {}
        answer => return Err(unexpected("Exists", answer)),
    }
    nothing_but(&*store, &["there"]).await?;

    let old = epoch;
    store.acquire_lease("a", LONG).await?;
    let writes = [Write::PutOrder(Box::new(sample::scaled("there", 3)?))];
    for another in [old, Epoch(0), Epoch(u64::MAX)] {
        expect_fenced(another, store.commit(another, &writes, &entry).await)?;
    }
    nothing_but(&*fixture.open().await?, &["there"]).await
}

pub(super) async fn a_dropped_commit_is_whole_or_nothing(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    for polls in 1..=DROPS {
        let name = format!("m{polls}");
        let writes = [
            Write::AddModel(Box::new(sample::model(&name)?)),
            Write::PutOrder(Box::new(sample::scaled(&name, 2)?)),
        ];
        let entry = sample::audit_entry(&name);
        let committed = polled(polls, store.commit(epoch, &writes, &entry)).await;
        // Whatever was under way has ended when the next write of the same store has.
        let after = sample::audit_entry("after");
        store.commit(epoch, &[], &after).await?;
        let has_model = sample::model_names(&*other).await?.contains(&name);
        let orders = other.orders().await?;
        let has_order = orders.iter().any(|one| one.order.subject().name() == name);
        let log = whole_log(&*other).await?;
        let has_entry = log.iter().any(|one| one.subject == name);
        ensure!(
            has_model == has_order && has_order == has_entry,
            "of a commit that was dropped at poll {polls}, the model is there: {has_model}, the order: {has_order}, \
             the entry: {has_entry}"
        );
        if let Some(committed) = committed {
            committed?;
            ensure!(has_model, "a commit that was acknowledged is lost");
        }
    }
    Ok(())
}

async fn put(store: &dyn Store, epoch: Epoch, order: &StoredOrder) -> Checked {
    let write = Write::PutOrder(Box::new(order.clone()));
    let entry = sample::audit_entry(&order.order.subject().to_string());
    store.commit(epoch, &[write], &entry).await?;
    Ok(())
}

async fn nothing_but(store: &dyn Store, names: &[&str]) -> Checked {
    let models = sample::model_names(store).await?;
    ensure!(models == names, "the models are {models:?}");
    let orders = store.orders().await?;
    ensure!(orders.is_empty(), "the orders are {orders:?}");
    let log = store.audit(0, 10).await?;
    ensure!(log.is_empty(), "the log is {log:?}");
    Ok(())
}

/// More polls than any write of ours needs.
const DROPS: usize = 40;
