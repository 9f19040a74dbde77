//! Means beside the published ones.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;

use crate::replay::Sums;

/// The means of one policy on one workload.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    workload: String,
    policy: String,
    means: Means,
    per_second: f64,
    states: usize,
}

/// Percent of all GPU memory: given out at 100 and 130 percent of demand, useless at 80.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    at_100: f64,
    at_130: f64,
    fragmented_at_80: f64,
}

/// What `published.csv` says; empty where there is none.
#[derive(Debug, Default)]
pub(crate) struct Published {
    means: BTreeMap<(String, String), Means>,
}

impl Row {
    pub(crate) fn of(workload: &str, policy: &str, sums: &Sums) -> Self {
        Self {
            workload: workload.to_owned(),
            policy: policy.to_owned(),
            means: Means {
                at_100: sums.at_100 / sums.runs,
                at_130: sums.at_130 / sums.runs,
                fragmented_at_80: sums.fragmented_at_80 / sums.runs,
            },
            per_second: f64::from(sums.decisions) / sums.took.as_secs_f64(),
            states: sums.states,
        }
    }

    /// Ours, what was published, and the difference.
    pub(crate) fn line(&self, published: Option<Means>) -> String {
        let beside = |ours: f64, theirs: Option<f64>| match theirs {
            Some(theirs) => format!("{ours:6.2} {theirs:6.2} {:+6.2}", ours - theirs),
            None => format!("{ours:6.2}      -      -"),
        };
        let Means {
            at_100,
            at_130,
            fragmented_at_80,
        } = self.means;
        format!(
            "{:<12} {:<14}  {}  {}  {}  {:>10.0} {:>7}",
            self.workload,
            self.policy,
            beside(at_100, published.map(|means| means.at_100)),
            beside(at_130, published.map(|means| means.at_130)),
            beside(
                fragmented_at_80,
                published.map(|means| means.fragmented_at_80)
            ),
            self.per_second,
            self.states,
        )
    }
}

impl Published {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut means = BTreeMap::new();
        for line in text.lines().skip(1) {
            if let [workload, policy, at_100, at_130, fragmented_at_80] =
                line.trim().split(',').collect::<Vec<_>>()[..]
            {
                let row = Means {
                    at_100: at_100.parse()?,
                    at_130: at_130.parse()?,
                    fragmented_at_80: fragmented_at_80.parse()?,
                };
                means.insert((workload.to_owned(), policy.to_owned()), row);
            }
        }
        Ok(Self { means })
    }

    pub(crate) fn of(&self, workload: &str, policy: &str) -> Option<Means> {
        self.means
            .get(&(workload.to_owned(), policy.to_owned()))
            .copied()
    }
}

/// The mean of a policy over the workloads, beside that of the published gradient on the same.
pub(crate) fn mean_line(rows: &[Row], published: &Published, policy: &str) -> String {
    let mine: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
    let count = mine.iter().map(|_| 1.0).sum::<f64>();
    let mean =
        |pick: fn(&Means) -> f64| mine.iter().map(|row| pick(&row.means)).sum::<f64>() / count;
    let theirs: Option<Vec<Means>> = mine
        .iter()
        .map(|row| published.of(&row.workload, "FGD"))
        .collect();
    let beside = theirs.map(|theirs| {
        let mean = |pick: fn(&Means) -> f64| theirs.iter().map(pick).sum::<f64>() / count;
        format!(
            "   published FGD {:6.2} at 100 %, {:6.2} at 130 %",
            mean(|means| means.at_100),
            mean(|means| means.at_130)
        )
    });
    format!(
        "mean of {count} workloads, {policy:<14} {:6.2} at 100 %, {:6.2} at 130 %{}",
        mean(|means| means.at_100),
        mean(|means| means.at_130),
        beside.unwrap_or_default()
    )
}

/// Whether the published policies come out as published.
pub(crate) fn verdict(rows: &[Row], published: &Published) -> (String, bool) {
    let mut compared = 0;
    let mut worst = (0.0, String::new());
    let mut holds = true;
    for row in rows {
        let Some(theirs) = published.of(&row.workload, &row.policy) else {
            continue;
        };
        compared += 1;
        let off = (row.means.at_100 - theirs.at_100)
            .abs()
            .max((row.means.at_130 - theirs.at_130).abs());
        // A coin that was tossed anew can't fall the same way.
        let allowed = if row.policy == "Random" { 0.3 } else { 0.05 };
        holds &= off <= allowed;
        if off > worst.0 && row.policy != "Random" || off > allowed {
            worst = (off, format!("{} on {}", row.policy, row.workload));
        }
    }
    let word = if holds {
        "as published"
    } else {
        "NOT as published"
    };
    let text = format!(
        "{compared} published means compared: {word}; the largest difference is {:.3} ({})",
        worst.0, worst.1
    );
    (text, holds)
}

/// In the columns of `published.csv`.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "workload,policy,allocated_gpu_pct_at_100,allocated_gpu_pct_at_130,fragmented_gpu_pct_of_capacity_at_80\n",
    );
    for Row {
        workload,
        policy,
        means,
        ..
    } in rows
    {
        let numbers = [means.at_100, means.at_130, means.fragmented_at_80];
        let numbers = numbers.map(|number| format!("{number:.2}")).join(",");
        text.push_str(&format!("{workload},{policy},{numbers}\n"));
    }
    text
}

pub(crate) const HEADING: &str = "workload     policy          at 100 %: ours, published, by  at 130 %             \
useless at 80 %       decisions/s  states";
