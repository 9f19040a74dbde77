//! What the workspace is made of, as cargo tells it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::job::Job;

/// The workspace's packages and where it is built.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// Where the workspace lies.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// Its packages, by name.
    pub(crate) packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    /// Its features, but for `default`.
    pub(crate) features: Vec<String>,
    /// What its `default` feature turns on.
    pub(crate) default_features: Vec<String>,
    /// The packages it names in any kind of dependency.
    pub(crate) dependencies: Vec<String>,
    pub(crate) targets: Vec<Target>,
}

/// Something that a package builds.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// Such as `lib`, `bin`, `example`, `bench`.
    pub(crate) kinds: Vec<String>,
}

// === impl Workspace ===

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let text = Job::cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .read()?;
        let metadata: Value = serde_json::from_str(&text).context("reading cargo metadata")?;
        let mut packages: Vec<Package> = array(&metadata, "packages").map(Package::read).collect();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            root: text_of(&metadata, "workspace_root").into(),
            target: text_of(&metadata, "target_directory").into(),
            packages,
        })
    }

    /// The targets of a kind, with their packages.
    pub(crate) fn targets(&self, kind: &str) -> impl Iterator<Item = (&Package, &Target)> {
        self.packages.iter().flat_map(move |package| {
            let of_kind = package.targets.iter().filter(move |target| target.is(kind));
            of_kind.map(move |target| (package, target))
        })
    }

    /// A workspace of packages with test files, for tests.
    #[cfg(test)]
    pub(crate) fn of(packages: &[(&str, &[&str])]) -> Self {
        let package = |(name, files): &(&str, &[&str])| Package {
            name: (*name).to_owned(),
            manifest: PathBuf::new(),
            features: Vec::new(),
            default_features: Vec::new(),
            dependencies: Vec::new(),
            targets: files
                .iter()
                .map(|file| Target {
                    name: (*file).to_owned(),
                    kinds: vec!["test".to_owned()],
                })
                .collect(),
        };
        Self {
            root: PathBuf::new(),
            target: PathBuf::new(),
            packages: packages.iter().map(package).collect(),
        }
    }

    /// The package of this name.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

// === impl Package ===

impl Package {
    /// Whether others can depend on it.
    pub(crate) fn is_library(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.is("lib") || target.is("rlib"))
    }

    /// The folder of its manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.manifest)
    }

    fn read(package: &Value) -> Self {
        let features = package.get("features").and_then(Value::as_object);
        let mut names: Vec<String> = features
            .into_iter()
            .flat_map(|features| features.keys().cloned())
            .filter(|name| name != "default")
            .collect();
        names.sort();
        let default = features.and_then(|features| features.get("default"));
        Self {
            name: text_of(package, "name"),
            manifest: text_of(package, "manifest_path").into(),
            features: names,
            default_features: default.map(texts).unwrap_or_default(),
            dependencies: array(package, "dependencies")
                .map(|dependency| text_of(dependency, "name"))
                .collect(),
            targets: array(package, "targets")
                .map(|target| Target {
                    name: text_of(target, "name"),
                    kinds: target.get("kind").map(texts).unwrap_or_default(),
                })
                .collect(),
        }
    }
}

// === impl Target ===

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kinds.iter().any(|own| own == kind)
    }
}

fn array<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn texts(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values
        .filter_map(|text| text.as_str().map(ToOwned::to_owned))
        .collect()
}

fn text_of(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
