//! Statements with their expected results.

use testkit::KEYSPACE;

use crate::common::run;

/// Runs the statements in a new keyspace, on one core and on three, unpaged and in pages of two.
/// Checks that the results are the same.
pub(crate) fn check(steps: &[(&str, &str)]) {
    let script: Vec<&str> = [KEYSPACE].into_iter().chain(steps.iter().map(|(text, _)| *text)).collect();
    let script: &'static str = Box::leak(script.join(";\n").into_boxed_str());
    for cores in [1, 3] {
        for page in [None, Some(2)] {
            let answers = run(cores, page, script);
            for ((text, expected), answer) in steps.iter().zip(&answers[1..]) {
                assert_eq!(answer, expected, "{text}, on {cores} cores, pages of {page:?}");
            }
            assert_eq!(answers.len(), steps.len() + 1);
        }
    }
}
