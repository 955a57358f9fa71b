//! Guardrails in `system.guardrails` and their counters in `/metrics`.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{GUARDRAILS, Guardrails, Metric, VirtualTable};
use schema::CqlType;

use crate::core::Core;
use crate::exposition::Page;

const WARNED: Metric =
    Metric::counter("fairlane_guardrail_warnings_total", "Requests over a warn threshold, by guardrail.");
const FAILED: Metric = Metric::counter(
    "fairlane_guardrail_failures_total",
    "Requests refused at a fail threshold, by guardrail.",
);

/// Returns the table for a core's registry: a row for each guardrail, with its thresholds and the
/// counts of the whole server.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    let guardrails = core.engine.registry().guardrails().clone();
    let columns = [
        ("name", CqlType::Text),
        ("limits", CqlType::Text),
        ("warn_threshold", CqlType::BigInt),
        ("fail_threshold", CqlType::BigInt),
        ("warnings", CqlType::BigInt),
        ("failures", CqlType::BigInt),
        ("remedy", CqlType::Text),
    ];
    VirtualTable::new("system", "guardrails", 1, 0, &columns, move || {
        let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        let count =
            |n: u64| Some(Bytes::copy_from_slice(&i64::try_from(n).unwrap_or(i64::MAX).to_be_bytes()));
        let row = |spec: &engine::GuardrailSpec| {
            let (warned, failed) = guardrails.counts(spec.guardrail);
            vec![
                text(spec.name),
                text(spec.counts),
                count(guardrails.warn_threshold(spec.guardrail)),
                count(guardrails.fail_threshold(spec.guardrail)),
                count(warned),
                count(failed),
                text(spec.remedy),
            ]
        };
        GUARDRAILS.iter().map(row).collect()
    })
}

/// Appends the counters.
pub(crate) fn page(guardrails: &Arc<Guardrails>, page: &mut Page) {
    for (metric, of) in [(&WARNED, 0), (&FAILED, 1)] {
        page.head(metric);
        for spec in &GUARDRAILS {
            let (warned, failed) = guardrails.counts(spec.guardrail);
            page.value(metric, "guardrail", spec.name, [warned, failed][of] as f64);
        }
    }
}
