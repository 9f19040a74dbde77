//! What a `Cargo.toml` must look like here. Reads the few lines it asks about, not the whole of TOML.

/// Everything that is wrong with a package's manifest.
pub(crate) fn package_problems(manifest: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let inherits_lints =
        entries(manifest).any(|(section, line)| section == "lints" && is_workspace_true(line));
    if !inherits_lints {
        problems.push("has no `[lints] workspace = true`".to_owned());
    }
    for (section, line) in entries(manifest) {
        if is_dependency_list(section) && !is_from_workspace(line) {
            let name = line.split(['=', '.']).next().unwrap_or(line).trim();
            problems.push(format!("`{name}` is not from the workspace's table"));
        }
    }
    problems.extend(own_tables(manifest));
    problems
}

/// Everything that is wrong with the workspace's own manifest.
pub(crate) fn workspace_problems(manifest: &str) -> Vec<String> {
    entries(manifest)
        .filter(|(section, _)| *section == "workspace.dependencies")
        .filter(|(_, line)| !line.replace(' ', "").contains("default-features=false"))
        .map(|(_, line)| {
            let name = line.split('=').next().unwrap_or(line).trim();
            format!("`{name}` has default features; say `default-features = false`")
        })
        .collect()
}

/// Dependencies that are written as tables of their own, without `workspace = true`.
fn own_tables(manifest: &str) -> Vec<String> {
    let sections = manifest.lines().filter_map(section_name);
    let tables = sections.filter(|section| {
        section
            .rsplit_once('.')
            .is_some_and(|(list, _)| is_dependency_list(list))
    });
    tables
        .filter(|table| {
            !entries(manifest).any(|(section, line)| section == *table && is_workspace_true(line))
        })
        .map(|table| format!("`[{table}]` is not from the workspace's table"))
        .collect()
}

/// Each line that is neither empty nor a comment nor the inside of a list, with its section.
fn entries(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        if let Some(name) = section_name(line) {
            section = name;
            return None;
        }
        let line = line.trim();
        let is_entry = line.contains('=') && !line.starts_with(['#', '"', ']']);
        is_entry.then_some((section, line))
    })
}

fn section_name(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    Some(name.trim_start_matches('[').trim_end_matches(']').trim())
}

fn is_dependency_list(section: &str) -> bool {
    let last = section.rsplit('.').next().unwrap_or(section);
    let is_list = ["dependencies", "dev-dependencies", "build-dependencies"].contains(&last);
    is_list && !section.starts_with("workspace")
}

fn is_from_workspace(line: &str) -> bool {
    let line = line.replace(' ', "");
    line.contains("{workspace=true")
        || line.contains(",workspace=true")
        || line.contains(".workspace=true")
}

fn is_workspace_true(line: &str) -> bool {
    line.replace(' ', "") == "workspace=true"
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[package]
name = "good"

[lints]
workspace = true

[features]
default = []

[dependencies]
# A reason.
serde = { workspace = true, features = ["derive"] }
tokio = { workspace = true, optional = true, features = [
    "sync",
] }
uuid.workspace = true

[target.'cfg(target_os = "linux")'.dependencies]
rustix = { workspace = true }

[dev-dependencies.proptest]
workspace = true
"#;

    #[test]
    fn a_manifest_that_takes_all_from_the_workspace_is_fine() {
        assert_eq!(package_problems(GOOD), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_with_a_version_of_its_own_is_named() {
        for (bad, name) in [
            ("[dependencies]\nrand = \"0.9\"", "`rand`"),
            ("[dev-dependencies]\nrand = { version = \"0.9\" }", "`rand`"),
            ("[target.x.dependencies]\nrand = \"0.9\"", "`rand`"),
            (
                "[build-dependencies.rand]\nversion = \"0.9\"",
                "`[build-dependencies.rand]`",
            ),
        ] {
            let problems = package_problems(&format!("{GOOD}\n{bad}\n"));
            assert_eq!(
                problems,
                [format!("{name} is not from the workspace's table")]
            );
        }
    }

    #[test]
    fn a_manifest_without_the_lint_table_is_named() {
        let problems = package_problems(&GOOD.replace("[lints]\nworkspace = true", ""));
        assert_eq!(problems, ["has no `[lints] workspace = true`"]);
    }

    #[test]
    fn default_features_in_the_workspace_table_are_named() {
        let manifest = "[workspace.dependencies]\na = { version = \"1\", default-features = false }\nb = \"1\"\n";
        assert_eq!(workspace_problems(manifest).len(), 1);
        assert!(
            workspace_problems(manifest)
                .iter()
                .all(|one| one.contains("`b`"))
        );
    }
}
