//! Organisations, teams, projects and keys, as the admin API answers them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    api::tenancy::{KeyRequest, LevelRequest},
    clock::Timestamp,
    cluster::tenancy::{LevelPath, Limits},
    control::check_key_name,
    terminal::one_line,
    units::Span,
};

use super::{
    document::{Fields, Node, Place},
    limits,
    told::Told,
};

/// What was found in all files, by what it is.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    organisations: Vec<Found>,
    teams: Vec<Found>,
    projects: Vec<Found>,
    keys: Vec<Found>,
    whole: Limits,
    /// Ids of what was found; it may be in several answers.
    ids: BTreeSet<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Organisation,
    Team,
    Project,
    Key,
}

#[derive(Debug)]
struct Found {
    place: Place,
    node: Node,
    id: String,
}

/// The levels that were made, by their ids there.
#[derive(Debug, Default)]
struct Levels {
    paths: BTreeMap<(Kind, String), LevelPath>,
    taken: BTreeSet<LevelPath>,
    made: Vec<LevelRequest>,
}

// === impl Kind ===

impl Kind {
    const ALL: [Self; 4] = [Self::Key, Self::Project, Self::Team, Self::Organisation];

    /// The field of its id.
    fn id(self) -> &'static str {
        match self {
            Self::Organisation => "organization_id",
            Self::Team => "team_id",
            Self::Project => "project_id",
            Self::Key => "token",
        }
    }

    /// The field of its name for people.
    fn alias(self) -> &'static str {
        match self {
            Self::Organisation => "organization_alias",
            Self::Team => "team_alias",
            Self::Project => "project_alias",
            Self::Key => "key_alias",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Organisation => "organisation",
            Self::Team => "team",
            Self::Project => "project",
            Self::Key => "key",
        }
    }

    /// Who answers them all.
    fn listed_by(self) -> &'static str {
        match self {
            Self::Organisation => "name the file with what /organization/list answered",
            Self::Team => "name the file with what /team/list answered",
            Self::Project => "name the file with what /project/list answered",
            Self::Key => "ask /key/list?return_full_object=true, and name the file with its answer",
        }
    }
}

// === impl Accounts ===

impl Accounts {
    /// Finds what is in an answer; `false` when it is none.
    pub(super) fn collect(&mut self, node: &Node, place: &Place, told: &mut Told) -> bool {
        if let Some(nodes) = node.list() {
            let mut any = nodes.is_empty();
            for (index, node) in nodes.iter().enumerate() {
                any |= self.collect(node, &place.index(index), told);
            }
            return any;
        }
        let known = |kind: &Kind| node.get(kind.id()).and_then(Node::text);
        if let Some((kind, id)) = Kind::ALL
            .iter()
            .find_map(|kind| Some((*kind, known(kind)?)))
        {
            let id = id.to_owned();
            if self.ids.insert((kind, id.clone())) {
                let all = match kind {
                    Kind::Organisation => &mut self.organisations,
                    Kind::Team => &mut self.teams,
                    Kind::Project => &mut self.projects,
                    Kind::Key => &mut self.keys,
                };
                all.push(Found {
                    place: place.clone(),
                    node: node.clone(),
                    id,
                });
            }
            // Answers on organisations and teams hold those that are in them.
            for inner in ["teams", "projects", "keys"] {
                self.lists(node, inner, place, told);
            }
            return true;
        }
        let pages = node.get("total_pages").and_then(Node::number);
        if let Some(pages) = pages.filter(|pages| *pages > 1.0) {
            let why = format!("it is one page of {pages}");
            told.left(
                &place.key("total_pages"),
                node,
                why,
                "name the other pages too",
            );
        }
        let lists = ["keys", "teams", "projects", "organizations", "data"];
        let found = lists.map(|key| self.lists(node, key, place, told));
        found.contains(&true)
    }

    fn lists(&mut self, node: &Node, key: &str, place: &Place, told: &mut Told) -> bool {
        let Some(list) = node.get(key).filter(|list| list.list().is_some()) else {
            return false;
        };
        let place = place.key(key);
        for (index, one) in list.list().unwrap_or_default().iter().enumerate() {
            if key == "keys" && one.text().is_some() {
                let why = "it is only the hash of a key";
                told.left(&place.index(index), one, why, Kind::Key.listed_by());
            } else {
                self.collect(one, &place.index(index), told);
            }
        }
        true
    }

    /// Reads what limits everybody, in a section of the configuration.
    pub(super) fn whole<'a>(&mut self, fields: &mut Fields<'a>, told: &mut Told) {
        let mut limits = Limits::default();
        if let Some(node) = fields.take("global_max_parallel_requests") {
            let place = fields.place.key("global_max_parallel_requests");
            match node.number().and_then(super::models::whole) {
                Some(number) if number > 0 => limits.concurrent = Some(number),
                _ => told.left(&place, node, "it is no limit", ""),
            }
        }
        if fields.place.path == "litellm_settings" {
            limits::budgets(fields, &mut limits, told);
        }
        self.whole.concurrent = self.whole.concurrent.or(limits.concurrent);
        if self.whole.budgets.is_empty() {
            self.whole.budgets = limits.budgets;
        }
        self.whole.models = self.whole.models.take().or(limits.models);
    }

    /// The levels, each after the one that it is in, and the keys.
    pub(super) fn finish(
        self,
        now: Timestamp,
        told: &mut Told,
    ) -> (Vec<LevelRequest>, Vec<KeyRequest>) {
        let Self {
            organisations,
            teams,
            projects,
            keys,
            whole,
            ids: _,
        } = self;
        let mut levels = Levels::default();
        if !whole.is_empty() {
            levels.made.push(LevelRequest {
                path: LevelPath::CLUSTER,
                limits: whole,
            });
        }
        for (kind, all) in [
            (Kind::Organisation, organisations),
            (Kind::Team, teams),
            (Kind::Project, projects),
        ] {
            for found in all {
                levels.make(kind, &found, told);
            }
        }
        let mut made: Vec<KeyRequest> = Vec::new();
        for (index, found) in keys.iter().enumerate() {
            made.extend(key(index, found, &levels, now, told));
        }
        (levels.made, made)
    }
}

// === impl Levels ===

impl Levels {
    fn make(&mut self, kind: Kind, found: &Found, told: &mut Told) {
        let Found { place, node, id } = found;
        let Some(mut fields) = Fields::of(node, place) else {
            return;
        };
        fields.pass_over(&ANSWERED);
        fields.pass_over(&[
            "teams",
            "projects",
            "keys",
            "budget_id",
            "description",
            kind.id(),
        ]);
        let above: &[Kind] = match kind {
            Kind::Organisation | Kind::Key => &[],
            Kind::Team => &[Kind::Organisation],
            Kind::Project => &[Kind::Team],
        };
        let Ok(parent) = self.parent(above, &mut fields, node, told) else {
            return;
        };
        let alias = fields.take(kind.alias()).and_then(Node::text);
        let name = alias.filter(|alias| !alias.trim().is_empty()).unwrap_or(id);
        let Some(path) = self.path(&parent, name) else {
            told.left(place, node, "its name has no letter and no digit", "");
            return;
        };
        if !path.to_string().ends_with(name) {
            let why = format!(
                "it is called {path}: names of levels are letters, digits, dots, dashes and underscores"
            );
            told.changed(&place.key(kind.alias()), node, why, "");
        }
        let limits = limits::read(&mut fields, told);
        limits::unknown(&fields, told);
        if let Err(error) = limits.check("limits") {
            told.left(place, node, error.to_string(), "");
            return;
        }
        self.taken.insert(path.clone());
        self.paths.insert((kind, id.clone()), path.clone());
        self.made.push(LevelRequest { path, limits });
    }

    /// The level that something is in: of the first of these kinds that it names. An error when that was not carried.
    fn parent<'a>(
        &self,
        kinds: &[Kind],
        fields: &mut Fields<'a>,
        node: &Node,
        told: &mut Told,
    ) -> Result<LevelPath, ()> {
        for kind in kinds {
            let Some(id) = fields
                .take(kind.id())
                .and_then(Node::text)
                .filter(|id| !id.is_empty())
            else {
                continue;
            };
            // What it is in is in the others.
            for other in kinds {
                fields.pass_over(&[other.id()]);
            }
            return match self.paths.get(&(*kind, id.to_owned())) {
                Some(path) => Ok(path.clone()),
                None => {
                    let kind_name = kind.as_str();
                    let why = format!(
                        "its {kind_name} is not carried, and it would lose that one's limits"
                    );
                    told.left(&fields.place, node, why, kind.listed_by());
                    Err(())
                }
            };
        }
        Ok(LevelPath::CLUSTER)
    }

    /// A path that is not taken, as like the name as there is one.
    fn path(&self, parent: &LevelPath, name: &str) -> Option<LevelPath> {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        };
        let name: String = name.chars().take(100).map(plain).collect();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let beneath = |name: &str| -> Option<LevelPath> {
            let above = if parent.is_cluster() {
                String::new()
            } else {
                format!("{parent}/")
            };
            format!("{above}{name}").parse().ok()
        };
        let first = beneath(name).filter(|path| !path.is_cluster())?;
        if !self.taken.contains(&first) {
            return Some(first);
        }
        let mut others = (2_usize..).filter_map(|number| beneath(&format!("{name}-{number}")));
        others.find(|path| !self.taken.contains(path))
    }
}

/// A key as it is to be asked for.
fn key(
    index: usize,
    found: &Found,
    levels: &Levels,
    now: Timestamp,
    told: &mut Told,
) -> Option<KeyRequest> {
    let Found { place, node, .. } = found;
    let mut fields = Fields::of(node, place)?;
    fields.pass_over(&ANSWERED);
    fields.pass_over(&["token", "key_name", "user_role", "budget_id", "key_type"]);
    // An answer on a key says again what holds for its team.
    let entries = node.map().unwrap_or_default().iter();
    for (name, _) in entries.filter(|(name, _)| name.starts_with("team_")) {
        if name != Kind::Team.id() {
            fields.pass_over(&[name]);
        }
    }
    if fields.take("blocked").is_some_and(Node::is_true) {
        told.left(place, node, "it is blocked: it opens nothing", "");
        return None;
    }
    let kinds = [Kind::Project, Kind::Team, Kind::Organisation];
    let level = levels.parent(&kinds, &mut fields, node, told).ok()?;
    let expires_in = match fields.take("expires") {
        None => None,
        Some(end) => {
            let place = place.key("expires");
            match end.text().and_then(moment) {
                None => {
                    told.left(
                        &place,
                        end,
                        "it is no point in time: the key would never end",
                        "",
                    );
                    return None;
                }
                Some(end_at) if end_at <= now => {
                    told.left(&place, end, "the key has ended", "");
                    return None;
                }
                Some(end_at) => Some(Span(end_at.since(now))),
            }
        }
    };
    let alias = fields.take("key_alias").and_then(Node::text);
    let name = alias
        .map(one_line)
        .filter(|name| check_key_name(name).is_ok());
    let name = name.unwrap_or_else(|| {
        let name = format!("imported {}", index + 1);
        told.changed(
            &place.key("key_alias"),
            node,
            "it has no name that people could tell it by: it is numbered",
            "",
        );
        name
    });
    let limits = limits::read(&mut fields, told);
    limits::unknown(&fields, told);
    if let Err(error) = limits.check("limits") {
        told.left(place, node, error.to_string(), "");
        return None;
    }
    Some(KeyRequest {
        name,
        level,
        expires_in: expires_in.map(|span| Span(Duration::from_secs(span.0.as_secs().max(1)))),
        limits,
    })
}

/// A point in time as the admin API writes it: with an offset or, in UTC, without.
fn moment(text: &str) -> Option<Timestamp> {
    let zoned: Option<jiff::Timestamp> = text.parse().ok();
    let plain = || {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::Offset::UTC.to_timestamp(civil).ok()
    };
    let moment = zoned.or_else(plain)?;
    Some(Timestamp(moment.as_millisecond()))
}

/// What answers say besides, of which nothing would be lost.
const ANSWERED: [&str; 16] = [
    "created_at",
    "created_by",
    "updated_at",
    "updated_by",
    "settings_updated_at",
    "last_active",
    "budget_reset_at",
    "soft_budget_cooldown",
    "rotation_count",
    "last_rotation_at",
    "key_rotation_at",
    "object_permission_id",
    "model_id",
    "last_refreshed_at",
    "team_member_permissions",
    "litellm_organization_table",
];
