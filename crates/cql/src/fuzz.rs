//! Properties that hold for any input, for fuzzers and the seeded test.

/// Parses the bytes as a statement and checks that parsing does not panic. If the bytes are a
/// statement, its printed text parses to the same tree, and its markers are numbered from 0.
///
/// # Panics
/// Panics if one of these properties does not hold.
pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let statement = match crate::parse(text) {
        Ok(statement) => statement,
        Err(error) => {
            assert!(!error.message.is_empty(), "an error has a message");
            return;
        }
    };
    let printed = statement.to_cql_with_secrets();
    match crate::parse(&printed) {
        Ok(again) => assert_eq!(again, statement, "{text:?} was printed as {printed:?}"),
        Err(error) => panic!("{text:?} was printed as {printed:?}, which does not parse: {error}"),
    }
    let markers = statement.bind_markers();
    assert_eq!(markers.len(), statement.bind_marker_count());
    for (i, marker) in markers.iter().enumerate() {
        assert_eq!(usize::from(marker.index), i, "{text:?} returns each marker once");
    }
}
