//! Why something does not fit, as frozen classes.

use llmgw_core::{api::admin, reason};

use crate::view::{Many, Quantity, view};

view! {
    /// Why one check failed.
    Reason(reason::Reason) {
        /// Which check, such as `node`, `engine`, `gpu_memory`, `memory` or `disk`.
        check: &'static str,
        /// What was asked for: bytes, or a text.
        need: Quantity,
        /// What there is; None when it is not known.
        have: Option<Quantity>,
        /// How many bytes are missing, where that is a number.
        short_by: Option<u64>,
        /// The sentence for people.
        detail: String,
    }
}

view! {
    /// A node that can't take a replica with a profile.
    Rejection(reason::Rejection) {
        /// The node's id.
        node: String,
        /// What people call the node.
        hostname: String,
        /// The profile that was tried.
        profile: String,
        /// All checks that failed; at least one.
        reasons: Many<Reason>,
    }

    fn __str__(&self) -> String {
        reason::render::rejection(&self.0)
    }
}

view! {
    /// A place for a replica.
    Fit(reason::Fit) {
        /// The node's id.
        node: String,
        /// What people call the node.
        hostname: String,
        /// The profile.
        profile: String,
    }
}

view! {
    /// How many nodes fail first at a check.
    CheckCount(reason::CheckCount) {
        /// The check.
        check: &'static str,
        /// The nodes.
        nodes: usize,
    }
}

view! {
    /// A change after which a model was placed when it was tried. `str()` says it for people.
    Remedy(reason::remedy::Remedy) {
        /// Where the model is placed then; None for a node that is not there yet.
        places: Option<Fit>,
    }

    /// What kind of change: `context`, `slots`, `profile`, `stop`, `wait`, `ready`, `lift`, `disk` or `node`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.change.kind()
    }

    /// What to change, in a few words.
    #[getter]
    fn change(&self) -> String {
        self.0.change.to_string()
    }

    /// When it helps: `now`, `later`, or about how long it takes.
    #[getter]
    fn when(&self) -> String {
        self.0.when()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

view! {
    /// What became of a trial to place one more replica of a model. `str()` explains it for people.
    Report(reason::Report) {
        /// The model.
        model: String,
        /// How many nodes were looked at.
        nodes: usize,
        /// How many profiles were tried.
        profiles: usize,
        /// How many replicas it should have; 0 when one was only asked about.
        replicas: u32,
        /// How many of them have no place.
        missing: u32,
        /// Where it can go; None when nowhere.
        fits: Option<Fit>,
        /// Every node and profile that can't take it.
        rejections: Many<Rejection>,
        /// How many nodes fail first at which check.
        summary: Many<CheckCount>,
        /// The rejection that lacks least; None when it fits or when there is no node.
        nearest: Option<Rejection>,
        /// What would help, by kind in a fixed order; each was tried.
        remedies: Many<Remedy>,
    }

    /// The whole in one line.
    #[getter]
    fn headline(&self) -> String {
        reason::render::headline(&self.0)
    }

    fn __str__(&self) -> String {
        reason::render::explanation(&self.0)
    }
}

view! {
    /// Why a model is placed or not.
    Explanation(admin::Explanation) {
        /// The model, by its own name.
        model: String,
        /// Whether it has all the replicas it should have.
        placed: bool,
        /// The ids of its replicas.
        replicas: Many<String>,
        /// A fresh trial to place one more.
        report: Report,
        /// The same for people, in one line.
        headline: String,
    }

    fn __str__(&self) -> String {
        reason::render::explanation(&self.0.report)
    }
}
