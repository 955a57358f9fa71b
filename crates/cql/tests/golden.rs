//! Statements of the golden files, with their canonical text or their error.

mod common;

#[test]
fn statements_match_the_golden_files() {
    let cases = common::cases();
    assert!(cases.len() > 150, "only {} cases were read", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let actual = cql::parse(&case.text).map(|s| s.to_string()).map_err(|error| error.to_string());
        if actual != case.expected {
            wrong.push(format!(
                "{}\n  {}\n  expected {:?}\n  actually {actual:?}",
                case.place, case.text, case.expected
            ));
        }
        cql::fuzz::fuzz(case.text.as_bytes());
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
