//! Nearest vectors: indexes on vectors, and `ORDER BY … ANN OF`.

use testkit::KEYSPACE;

use crate::common::run;

/// Runs the statements in a new keyspace on one core and on three. Checks that the results are the
/// same. Nearest rows come in one page.
fn check(steps: &[(&str, &str)]) {
    let script: Vec<&str> = [KEYSPACE].into_iter().chain(steps.iter().map(|(text, _)| *text)).collect();
    let script: &'static str = Box::leak(script.join(";\n").into_boxed_str());
    for cores in [1, 3] {
        let answers = run(cores, None, script);
        for ((text, expected), answer) in steps.iter().zip(&answers[1..]) {
            assert_eq!(answer, expected, "{text}, on {cores} cores");
        }
        assert_eq!(answers.len(), steps.len() + 1);
    }
}

const LIMIT: &str =
    "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than 1000. LIMIT was";

#[test]
fn nearest_rows_come_first() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, s text, v vector<float, 3>)", "CREATED t"),
        ("CREATE CUSTOM INDEX ON t (v) USING 'StorageAttachedIndex'", "UPDATED t"),
        ("SELECT k FROM t ORDER BY v ANN OF [2.5, 3.5, 4.5] LIMIT 3", ""),
        ("INSERT INTO t (k, s, v) VALUES (0, 'A', [1, 2, 3])", "void"),
        ("INSERT INTO t (k, s, v) VALUES (1, 'B', [2, -3, 4])", "void"),
        ("INSERT INTO t (k, s, v) VALUES (2, 'C', [-3, 4, 5])", "void"),
        ("INSERT INTO t (k, s) VALUES (3, 'D')", "void"),
        ("SELECT k, s FROM t ORDER BY v ANN OF [2, 4, 6.1] LIMIT 10", "0,'A' 2,'C' 1,'B'"),
        ("SELECT k FROM t ORDER BY v ANN OF [2, -3, 4] LIMIT 2", "1 0"),
        (
            "SELECT similarity_cosine(v, [1, 2, 3]) AS c, k FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 2",
            "1.0,0 0.8779645,2",
        ),
        ("SELECT similarity_euclidean([1.0, -2, 3], v) FROM t WHERE k = 0", "0.05882353"),
        ("SELECT JSON k FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 1", "'{\"k\": 0}'"),
        ("SELECT v, k FROM t WHERE k = 1 ORDER BY v ANN OF [1, 2, 3] LIMIT 2", "[2.0, -3.0, 4.0],1"),
        ("SELECT k FROM t WHERE token(k) > 0 ORDER BY v ANN OF [1, 2, 3] LIMIT 2", ""),
        ("SELECT k FROM t WHERE token(k) <= 0 ORDER BY v ANN OF [1, 2, 3] LIMIT 2", "0 2"),
    ]);
}

#[test]
fn measures_of_an_index_decide_the_order() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, c vector<float, 2>, d vector<float, 2>, e vector<float, 2>)",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (c) USING 'sai' WITH OPTIONS = {'similarity_function': 'cosine'}", "UPDATED t"),
        (
            "CREATE INDEX ON t (d) USING 'sai' WITH OPTIONS = {'similarity_function': 'DOT_PRODUCT'}",
            "UPDATED t",
        ),
        (
            "CREATE INDEX ON t (e) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
            "UPDATED t",
        ),
        ("INSERT INTO t (k, c, d, e) VALUES (0, [1, 0], [1, 0], [1, 0])", "void"),
        ("INSERT INTO t (k, c, d, e) VALUES (1, [5, 5], [5, 5], [5, 5])", "void"),
        ("INSERT INTO t (k, c, d, e) VALUES (2, [3, 0.3], [3, 0.3], [3, 0.3])", "void"),
        ("SELECT k FROM t ORDER BY c ANN OF [1, 0] LIMIT 3", "0 2 1"),
        ("SELECT k FROM t ORDER BY d ANN OF [1, 0] LIMIT 3", "1 2 0"),
        ("SELECT k FROM t ORDER BY e ANN OF [2.2, 0] LIMIT 3", "2 0 1"),
        ("INSERT INTO t (k, d, e) VALUES (3, [0, 0], [0, 0])", "void"),
        ("SELECT k FROM t ORDER BY e ANN OF [0, 0] LIMIT 2", "3 0"),
    ]);
}

#[test]
fn overwritten_deleted_and_expired_vectors_are_not_found() {
    check(&[
        ("CREATE TABLE t (k int, c int, v vector<float, 2>, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, v) VALUES (0, 0, [1, 1])", "void"),
        (
            "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
            "UPDATED t",
        ),
        ("INSERT INTO t (k, c, v) VALUES (0, 1, [2, 2]) USING TIMESTAMP 10", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, 0, [3, 3])", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 2", "0,0 0,1"),
        // The later timestamp wins, whatever is written last.
        ("UPDATE t USING TIMESTAMP 30 SET v = [9, 9] WHERE k = 0 AND c = 1", "void"),
        ("UPDATE t USING TIMESTAMP 20 SET v = [1, 1.1] WHERE k = 0 AND c = 1", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 2", "0,0 1,0"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [8, 8] LIMIT 1", "0,1"),
        ("UPDATE t SET v = null WHERE k = 0 AND c = 0", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5", "1,0 0,1"),
        ("DELETE FROM t WHERE k = 0", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5", "1,0"),
        ("INSERT INTO t (k, c, v) VALUES (0, 1, [2, 2])", "void"),
        ("INSERT INTO t (k, c, v) VALUES (0, 2, [2, 2]) USING TTL 0", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 2", "0,1 0,2"),
        ("DELETE FROM t WHERE k = 0 AND c > 1", "void"),
        ("UPDATE t SET v = [1, 1] WHERE k = 1 AND c = 0 IF v = [3, 3]", "true"),
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (2, 0, [1, 2]); INSERT INTO t (k, c, v) VALUES (3, 0, [1, 3]); \
             APPLY BATCH",
            "void",
        ),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5", "1,0 2,0 0,1 3,0"),
        ("SELECT k, c FROM t WHERE k = 2 ORDER BY v ANN OF [1, 1] LIMIT 5", "2,0"),
        ("TRUNCATE t", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5", ""),
        ("INSERT INTO t (k, c, v) VALUES (4, 0, [7, 7])", "void"),
        ("SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5", "4,0"),
        ("DROP INDEX t_v_idx", "UPDATED t"),
        (
            "SELECT k, c FROM t ORDER BY v ANN OF [1, 1] LIMIT 5",
            "! ANN ordering by vector requires the column to be indexed",
        ),
    ]);
}

#[test]
fn filters_are_exact_beside_nearest_vectors() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, n int, s text, st int static, v vector<float, 2>, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        (
            "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
            "UPDATED t",
        ),
        ("CREATE INDEX ON t (s) USING 'sai'", "UPDATED t"),
        ("INSERT INTO t (k, c, n, s, st, v) VALUES (0, 0, 1, 'a', 5, [1, 1])", "void"),
        ("INSERT INTO t (k, c, n, s, v) VALUES (0, 1, 2, 'b', [2, 2])", "void"),
        ("INSERT INTO t (k, c, n, s, v) VALUES (0, 2, 3, 'a', [3, 3])", "void"),
        ("INSERT INTO t (k, c, n, s, v) VALUES (1, 0, 2, 'b', [4, 4])", "void"),
        ("INSERT INTO t (k, st) VALUES (2, 5)", "void"),
        ("SELECT k, c FROM t WHERE s = 'b' ORDER BY v ANN OF [1, 1] LIMIT 5", "0,1 1,0"),
        ("SELECT k, c FROM t WHERE s = 'b' AND k = 0 ORDER BY v ANN OF [1, 1] LIMIT 5", "0,1"),
        ("SELECT k, c FROM t WHERE k = 0 AND c >= 1 ORDER BY v ANN OF [1, 1] LIMIT 5", "0,1 0,2"),
        ("SELECT k, c FROM t WHERE k = 0 AND c = 2 AND s = 'a' ORDER BY v ANN OF [1, 1] LIMIT 5", "0,2"),
        (
            "SELECT k, c FROM t WHERE n = 2 ORDER BY v ANN OF [1, 1] LIMIT 5",
            "! ANN ordering by vector requires all restricted column(s) to be indexed",
        ),
        (
            "SELECT k, c FROM t WHERE n = 2 ORDER BY v ANN OF [1, 1] LIMIT 5 ALLOW FILTERING",
            "! ANN ordering by vector requires all restricted column(s) to be indexed",
        ),
        (
            "SELECT k, c FROM t WHERE c = 2 ORDER BY v ANN OF [1, 1] LIMIT 5",
            "! ANN ordering by vector requires all restricted column(s) to be indexed",
        ),
        ("CREATE INDEX ON t (n) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (c) USING 'sai'", "UPDATED t"),
        ("SELECT k, c FROM t WHERE n = 2 AND s = 'b' ORDER BY v ANN OF [9, 9] LIMIT 5", "1,0 0,1"),
        ("SELECT k, c FROM t WHERE n > 1 ORDER BY v ANN OF [1, 1] LIMIT 2", "0,1 0,2"),
        ("SELECT k, c FROM t WHERE c = 0 ORDER BY v ANN OF [9, 9] LIMIT 5", "1,0 0,0"),
        (
            "SELECT k, c FROM t WHERE k IN (0, 1) ORDER BY v ANN OF [1, 1] LIMIT 5",
            "! Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
        ),
        (
            "CREATE TABLE u (k int, c vector<float, 2>, s vector<float, 2> static, PRIMARY KEY (k, c))",
            "CREATED u",
        ),
        (
            "CREATE INDEX ON u (c) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
            "UPDATED u",
        ),
        (
            "CREATE INDEX ON u (s) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
            "UPDATED u",
        ),
        ("INSERT INTO u (k, c, s) VALUES (0, [1, 1], [5, 5])", "void"),
        ("INSERT INTO u (k, c) VALUES (0, [2, 2])", "void"),
        ("INSERT INTO u (k, c, s) VALUES (1, [3, 3], [6, 6])", "void"),
        ("SELECT k, c FROM u ORDER BY c ANN OF [3, 3] LIMIT 2", "1,[3.0, 3.0] 0,[2.0, 2.0]"),
        ("SELECT k, c FROM u ORDER BY s ANN OF [5, 5] LIMIT 2", "0,[1.0, 1.0] 0,[2.0, 2.0]"),
        ("SELECT k FROM t WHERE v = [1, 1]", "! Vector indexes only support ANN queries"),
        ("SELECT k FROM t WHERE v = [1, 1] ALLOW FILTERING", "! Vector indexes only support ANN queries"),
    ]);
}

#[test]
fn statements_that_cassandra_refuses_are_refused() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, n int, v vector<float, 3>, w vector<float, 3>, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [2.5, 3.5, 4.5] LIMIT 5 ALLOW FILTERING",
            "! ANN ordering by vector requires the column to be indexed",
        ),
        (
            "SELECT * FROM t ORDER BY n ANN OF 1 LIMIT 5",
            "! ANN ordering is only supported on float vector indexes",
        ),
        ("CREATE INDEX ON t (v) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (w) USING 'sai'", "UPDATED t"),
        (
            "SELECT * FROM t ORDER BY v ANN OF [2.5, 3.5] LIMIT 5",
            "! Invalid vector literal for v of type vector<float, 3>; expected 3 elements, but given 2",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [1, 2, 3], w ANN OF [1, 2, 3] LIMIT 2",
            "! Cannot specify more than one ANN ordering",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [1, 2, 3] DESC LIMIT 2",
            "! Descending ANN ordering is not supported",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [1, 2, 3], c ASC LIMIT 2",
            "! ANN ordering does not support any other ordering",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [1, 2, 3]",
            "! Top-K queries must have a limit specified and the limit must be less than the query page size",
        ),
        ("SELECT * FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 1001", &format!("! {LIMIT} 1001")),
        ("SELECT * FROM t ORDER BY v ANN OF null LIMIT 5", "! Unsupported null value for column v"),
        (
            "SELECT * FROM t ORDER BY v ANN OF [1, 2, 3] PER PARTITION LIMIT 1 LIMIT 5",
            "! Top-K queries do not support per-partition limits",
        ),
        (
            "SELECT DISTINCT k FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 5",
            "! SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ),
        (
            "SELECT * FROM t WHERE v = [1, 2, 3] ORDER BY v ANN OF [1, 2, 3] LIMIT 5",
            "! v cannot be restricted by more than one relation if it includes an Equal",
        ),
        (
            "SELECT count(*) FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 5",
            "! Top-K queries can not be run with aggregation",
        ),
        (
            "SELECT * FROM t ORDER BY v ANN OF [0, 0, 0] LIMIT 5",
            "! Zero vectors cannot be indexed or queried with cosine similarity",
        ),
        (
            "INSERT INTO t (k, c, v) VALUES (0, 0, [0, 0, 0])",
            "! Zero vectors cannot be indexed or queried with cosine similarity",
        ),
        ("INSERT INTO t (k, c, v) VALUES (0, 0, [1, NaN, 0])", "! non-finite value at vector[1]=NaN"),
        ("SELECT * FROM t ORDER BY x ANN OF [1, 2] LIMIT 1", "! Undefined column name x in table ks.t"),
    ]);
}

#[test]
fn options_of_indexes_on_vectors_are_checked() {
    let create = |options: &str, column: &str| {
        format!("CREATE INDEX ON t ({column}) USING 'sai' WITH OPTIONS = {options}")
    };
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, n int, i vector<int, 2>, o vector<float, 1>, v vector<float, 2>)",
            "CREATED t",
        ),
        (
            "CREATE INDEX ON t (i) USING 'sai'",
            "! SAI ANN indexes are only allowed on vector columns with float elements",
        ),
        (
            "CREATE INDEX ON t (o) USING 'sai'",
            "! Cosine similarity is not supported for single-dimension vectors",
        ),
        (&create("{'similarity_function': 'euclidean'}", "o"), "UPDATED t"),
        (
            &create("{'similarity_function': 'far'}", "v"),
            "! Similarity function FAR was not recognized for index null. Valid values are: EUCLIDEAN, DOT_PRODUCT, \
             COSINE",
        ),
        (&create("{'similarity_function': 'cosine'}", "n"), "! CQL type int cannot have vector options"),
        (
            &create("{'bad': 'x'}", "v"),
            "! Properties specified [bad] are not understood by StorageAttachedIndex",
        ),
        (
            &create("{'maximum_node_connections': '10'}", "v"),
            "! Maximum node connections cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS",
        ),
        (
            &create("{'optimize_for': 'x'}", "v"),
            "! optimize_for 'X' was not recognized for index null. Valid values are: LATENCY, RECALL",
        ),
        (&create("{'case_sensitive': 'false'}", "v"), "! CQL type vector<float, 2> cannot be analyzed."),
        ("CREATE INDEX ON t (v)", "UPDATED t"),
        (
            "SELECT k FROM t ORDER BY v ANN OF [1, 2] LIMIT 5",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
             FILTERING",
        ),
        ("SELECT k FROM t WHERE v = [1, 2]", "! Vector indexes only support ANN queries"),
        ("DROP INDEX t_v_idx", "UPDATED t"),
        (&create("{'similarity_function': 'cosine', 'optimize_for': 'recall'}", "v"), "UPDATED t"),
    ]);
}
