//! Reads a policy that was written, whole, and refuses what can't be meant.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Changes, Judge, Policy, Rule, RuleKind, Stages,
    definition::{JudgeDefinition, LevelDefinition, PolicyDefinition, RuleDefinition, StageNames},
};
use crate::{
    cluster::{catalog::DefinitionError, tenancy::LevelPath},
    error::Chain,
    id::RuleName,
};

impl Policy {
    /// Reads a policy; `field` is where it stands, for what is said of it. Whether a regular expression is one, and is
    /// small enough, is for whoever compiles it.
    ///
    /// # Errors
    /// The first thing that can't be meant, with its path, which names the rule.
    pub fn checked(definition: PolicyDefinition, field: &str) -> Result<Self, DefinitionError> {
        let PolicyDefinition { rules, levels } = &definition;
        let most = |what: &str, count: usize, most: usize| {
            if count <= most {
                return Ok(());
            }
            let problem = format!("there are {count}, and {most} are the most");
            Err(wrong(&format!("{field}.{what}"), problem, ""))
        };
        most("levels", levels.len(), MOST_LEVELS)?;
        let all = rules.len() + levels.values().map(|one| one.rules.len()).sum::<usize>();
        most("rules", all, MOST_RULES)?;
        let mut policy = Self {
            rules: read_rules(rules, &format!("{field}.rules"))?,
            levels: levels
                .keys()
                .map(|path| (path.clone(), Changes::default()))
                .collect(),
            is_baseline: false,
            definition: PolicyDefinition::default(),
        };
        // From the organisations down: what a level changes is seen by those beneath it.
        let mut down: Vec<&LevelPath> = levels.keys().collect();
        down.sort_by_key(|path| path.upwards().count());
        for path in down {
            if let Some(level) = levels.get(path) {
                let changes = policy.read_level(path, level, &format!("{field}.levels.{path}"))?;
                policy.levels.insert(path.clone(), changes);
            }
        }
        Ok(Self {
            definition,
            ..policy
        })
    }

    fn read_level(
        &self,
        path: &LevelPath,
        level: &LevelDefinition,
        field: &str,
    ) -> Result<Changes, DefinitionError> {
        if path.is_cluster() {
            let problem = "what holds for the whole cluster stands in `rules`";
            return Err(wrong(
                field,
                problem,
                "name an organisation, a team or a project",
            ));
        }
        let changes = Changes {
            off: level
                .off
                .iter()
                .map(|name| rule_name(name, &format!("{field}.off")))
                .collect::<Result<_, _>>()?,
            rules: read_rules(&level.rules, &format!("{field}.rules"))?,
        };
        // Nothing of its own is there yet: these are the rules from above.
        let above: Vec<_> = self.of(path).collect();
        let locked = |name: &RuleName| {
            let found = above.iter().find(|held| held.rule.name == *name);
            found.filter(|held| held.rule.locked)
        };
        for name in &changes.off {
            if let Some(held) = locked(name) {
                let problem = format!("{name} is locked by {}", maker(&held.by));
                return Err(wrong(&format!("{field}.off"), problem, LOCKED));
            }
            if !above.iter().any(|held| held.rule.name == *name) {
                let problem = format!("no rule {name} holds here that could be switched off");
                return Err(wrong(
                    &format!("{field}.off"),
                    problem,
                    "name a rule from above",
                ));
            }
        }
        for rule in &changes.rules {
            if let Some(held) = locked(&rule.name) {
                let problem = format!("the rule of that name is locked by {}", maker(&held.by));
                return Err(wrong(
                    &format!("{field}.rules[{}]", rule.name),
                    problem,
                    LOCKED,
                ));
            }
        }
        Ok(changes)
    }
}

fn maker(path: &LevelPath) -> String {
    if path.is_cluster() {
        "the cluster".to_owned()
    } else {
        format!("the {} {path}", path.kind())
    }
}

fn read_rules(rules: &[RuleDefinition], field: &str) -> Result<Vec<Rule>, DefinitionError> {
    let mut names = BTreeSet::new();
    let mut read = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let name = rule_name(&rule.name, &format!("{field}[{index}].name"))?;
        let field = format!("{field}[{name}]");
        if !names.insert(name.clone()) {
            return Err(wrong(
                &field,
                "there are two of this name",
                "give one of them another",
            ));
        }
        read.push(read_rule(rule, name, &field)?);
    }
    Ok(read)
}

fn read_rule(rule: &RuleDefinition, name: RuleName, field: &str) -> Result<Rule, DefinitionError> {
    let RuleDefinition {
        name: _,
        keywords,
        regex,
        pii,
        judge,
        stages,
        action,
        message,
        locked,
    } = rule;
    let kind = match (keywords, regex, pii, judge) {
        (Some(words), None, None, None) => RuleKind::Keywords(read_keywords(words, field)?),
        (None, Some(regex), None, None) => {
            if regex.is_empty() || regex.len() > LONGEST_REGEX {
                let problem = format!(
                    "it has {} bytes, and 1 to {LONGEST_REGEX} will do",
                    regex.len()
                );
                return Err(wrong(&format!("{field}.regex"), problem, ""));
            }
            RuleKind::Regex(regex.clone())
        }
        (None, None, Some(kinds), None) => {
            if kinds.is_empty() {
                let field = format!("{field}.pii");
                return Err(wrong(
                    &field,
                    "there is none",
                    "name kinds such as email and card",
                ));
            }
            let kinds: BTreeSet<_> = kinds.iter().copied().collect();
            RuleKind::Pii(kinds.into_iter().collect())
        }
        (None, None, None, Some(judge)) => {
            RuleKind::Judge(read_judge(judge, &format!("{field}.judge"))?)
        }
        _ => {
            let problem = "it must say exactly one of keywords, regex, pii and judge";
            return Err(wrong(field, problem, ONE_RULE));
        }
    };
    if matches!(kind, RuleKind::Judge(_)) && *action == super::Action::Redact {
        let problem = "a judge does not say which part of a text it means";
        return Err(wrong(&format!("{field}.action"), problem, "block or flag"));
    }
    if let Some(message) = message {
        let is_line = crate::terminal::line(message) == *message;
        if message.is_empty() || message.len() > LONGEST_MESSAGE || !is_line {
            let problem = format!("it is no line of up to {LONGEST_MESSAGE} bytes");
            return Err(wrong(&format!("{field}.message"), problem, ""));
        }
    }
    Ok(Rule {
        name,
        kind,
        stages: match stages {
            None | Some(StageNames::Input) => Stages::INPUT,
            Some(StageNames::Output) => Stages {
                input: false,
                output: true,
            },
            Some(StageNames::Both) => Stages {
                input: true,
                output: true,
            },
        },
        action: *action,
        message: message.clone(),
        locked: *locked,
        definition: Box::new(rule.clone()),
    })
}

fn read_keywords(words: &[String], field: &str) -> Result<Vec<String>, DefinitionError> {
    let field = format!("{field}.keywords");
    if words.is_empty() || words.len() > MOST_KEYWORDS {
        let problem = format!(
            "there are {}, and 1 to {MOST_KEYWORDS} will do",
            words.len()
        );
        return Err(wrong(&field, problem, ""));
    }
    let mut read = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        let word = word.trim();
        if word.is_empty() || word.len() > LONGEST_KEYWORD {
            let problem = format!(
                "it has {} bytes, and 1 to {LONGEST_KEYWORD} will do",
                word.len()
            );
            return Err(wrong(&format!("{field}[{index}]"), problem, ""));
        }
        read.push(word.to_owned());
    }
    let bytes: usize = read.iter().map(String::len).sum();
    if bytes > LONGEST_KEYWORDS {
        let problem = format!("they have {bytes} bytes, and {LONGEST_KEYWORDS} are the most");
        return Err(wrong(&field, problem, "make several rules of them"));
    }
    Ok(read)
}

fn read_judge(judge: &JudgeDefinition, field: &str) -> Result<Judge, DefinitionError> {
    let JudgeDefinition {
        model,
        prompt,
        threshold,
        timeout,
        on_error,
    } = judge;
    let model = model
        .parse()
        .map_err(|error| wrong(&format!("{field}.model"), Chain(&error).to_string(), ""))?;
    let prompt = prompt.trim();
    if prompt.is_empty() || prompt.len() > LONGEST_PROMPT {
        let problem = format!(
            "it has {} bytes, and 1 to {LONGEST_PROMPT} will do",
            prompt.len()
        );
        let hint = "say what makes a text one that matches";
        return Err(wrong(&format!("{field}.prompt"), problem, hint));
    }
    let threshold = threshold.unwrap_or(THRESHOLD);
    // Not a number is no number between these either.
    if !(threshold > 0.0 && threshold <= 1.0) {
        let problem = format!("{threshold} is not above 0 and at most 1");
        return Err(wrong(&format!("{field}.threshold"), problem, ""));
    }
    let timeout = timeout.map_or(TIMEOUT, Duration::from);
    if timeout < SHORTEST_TIMEOUT || timeout > LONGEST_TIMEOUT {
        let problem = "it is not from 100 ms to 5 min";
        return Err(wrong(&format!("{field}.timeout"), problem, ""));
    }
    Ok(Judge {
        model,
        prompt: prompt.to_owned(),
        threshold,
        timeout,
        on_error: *on_error,
    })
}

fn rule_name(text: &str, field: &str) -> Result<RuleName, DefinitionError> {
    let read = text.parse::<RuleName>();
    read.map_err(|error| wrong(field, error.to_string(), ""))
}

fn wrong(field: &str, problem: impl Into<String>, hint: &str) -> DefinitionError {
    DefinitionError {
        field: field.to_owned(),
        problem: problem.into(),
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

const ONE_RULE: &str = "write for example {name: secrets, pii: [secret], action: redact}";
const LOCKED: &str = "whoever locked it can unlock it";

/// Of all levels together.
const MOST_RULES: usize = 1_024;
const MOST_LEVELS: usize = 256;
const MOST_KEYWORDS: usize = 1_000;
const LONGEST_KEYWORD: usize = 128;
const LONGEST_KEYWORDS: usize = 16 << 10;
const LONGEST_REGEX: usize = 4 << 10;
const LONGEST_MESSAGE: usize = 512;
const LONGEST_PROMPT: usize = 8 << 10;
const THRESHOLD: f64 = 0.5;
const TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
