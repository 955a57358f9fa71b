//! Bounds of each option, and the messages of values beyond them.

use super::*;

/// Sets options as in `CREATE SERVICE LEVEL x WITH …`, and compares the resulting specification
/// or the message.
fn check(options: &str, expected: Result<&str, &str>) {
    let statement = cql::parse(&format!("CREATE SERVICE LEVEL x WITH {options}")).expect(options);
    let cql::Statement::CreateServiceLevel(create) = statement else { panic!("{options}") };
    let mut spec = LevelSpec::new("x");
    let formatted = set_all(&mut spec, &create.options).map(|()| {
        let timeout_ms = spec.timeout.map(|timeout| timeout.as_millis());
        format!("{} {timeout_ms:?} {:?} {:?}", spec.shares, spec.workload_type, spec.cpu_limit_ppm)
    });
    let message = formatted.as_ref().map(String::as_str).map_err(ToString::to_string);
    assert_eq!(message, expected.map_err(str::to_owned), "{options}");
}

#[test]
fn null_restores_the_default_of_each_option() {
    let given = "shares = 7 AND shares_min = 1 AND shares_max = 900 AND timeout = 1s AND workload_type = 'batch' \
                 AND cpu_min = '1%' AND cpu_limit = '9%' AND io_limit = '1MB/s' AND max_concurrency = 3 AND \
                 max_queue_size = 5 AND queue_timeout = 1s AND memory_min = '1%' AND memory_limit = '2%' AND \
                 memory_overcommit = false AND spill = false AND query_limit = {'rows': 9} AND latency_target = \
                 'p99 < 5ms' AND tag = 'dc:a'";
    let statement = cql::parse(&format!("CREATE SERVICE LEVEL x WITH {given}")).expect("parses");
    let cql::Statement::CreateServiceLevel(create) = statement else { panic!("{given}") };
    let (mut spec, fresh) = (LevelSpec::new("x"), LevelSpec::new("x"));
    set_all(&mut spec, &create.options).expect("valid");
    for option in &OPTIONS {
        assert_ne!((option.get)(&spec), (option.get)(&fresh), "{} is given", option.name);
        (option.set)(&mut spec, &OptionValue::Null).expect(option.name);
        assert_eq!((option.get)(&spec), (option.get)(&fresh), "{}", option.name);
    }
}

#[test]
fn values_out_of_bounds_return_the_documented_message() {
    let shares = |given: &str| format!("'SHARES' can only take values of 1-1000 (given {given})");
    check("shares = 1", Ok("1 None None None"));
    check("SHARES=1000", Ok("1000 None None None"));
    check("shares = 0", Err(&shares("0")));
    check("shares = 1001", Err(&shares("1001")));
    check("shares = -5", Err(&shares("-5")));
    check("shares = 10.5", Err(&shares("10.5")));
    check("shares = null", Ok("1000 None None None"));
    check("timeout = 50ms", Ok("1000 Some(50) None None"));
    check("timeout = 1m30s", Ok("1000 Some(90000) None None"));
    check("timeout = '50ms'", Ok("1000 Some(50) None None"));
    check("timeout = null", Ok("1000 None None None"));
    check("timeout = 50us", Err("Timeout values must be expressed in millisecond granularity"));
    check("timeout = 1d", Err("Timeout values cannot have days, months or years"));
    check("timeout = 1mo", Err("Timeout values cannot have days, months or years"));
    check("timeout = 0s", Ok("1000 None None None"));
    check("timeout = 597h", Err("Timeout values must be from 1ms to 2147483647ms"));
    check("timeout = 50", Err("'timeout' takes a duration such as 50ms (given 50)"));
    check("workload_type = 'interactive'", Ok("1000 None Some(Interactive) None"));
    check("workload_type = 'batch'", Ok("1000 None Some(Batch) None"));
    check("workload_type = null", Ok("1000 None None None"));
    check("workload_type = 'fast'", Err("Invalid workload type: fast"));
    check("cpu_limit = '50%'", Ok("1000 None None Some(500000)"));
    check("cpu_limit = '1%'", Ok("1000 None None Some(10000)"));
    check("cpu_limit = '12.5%'", Ok("1000 None None Some(125000)"));
    check(
        "cpu_limit = '100%' AND cpu_limit_ = null",
        Err(&format!("unknown option 'cpu_limit_': expected one of {}", names())),
    );
    for bad in ["'0%'", "'0.9%'", "'101%'", "'50'", "50", "'%'", "'-5%'", "'5.%'", "'99999999999%'", "''"] {
        let given = bad.trim_matches('\'');
        let message = format!("'cpu_limit' can only take values of '1%' to '100%' (given {given})");
        check(&format!("cpu_limit = {bad}"), Err(&message));
    }
}

#[test]
fn unknown_options_return_a_remedy() {
    check("cpu_share = 10", Err("unknown option 'cpu_share': use 'shares'"));
    check("cpu_hard_limit = '10%'", Err("unknown option 'cpu_hard_limit': use 'cpu_limit'"));
    for (other, own) in NAMES_ELSEWHERE {
        assert!(OPTIONS.iter().any(|option| option.name == own), "{other}");
    }
}

/// Sets one option, and compares it in the form that sets it again, or the message.
fn check_one(option: &str, expected: Result<&str, &str>) {
    let statement = cql::parse(&format!("ALTER SERVICE LEVEL x WITH {option}")).expect(option);
    let cql::Statement::AlterServiceLevel(alter) = statement else { panic!("{option}") };
    let mut spec = LevelSpec::new("x");
    let name = &alter.options[0].0;
    let formatted = set_all(&mut spec, &alter.options).map(|()| {
        assert_eq!(of_text("x", &to_text(&spec)).as_ref(), Some(&spec), "stored: {option}");
        let option = OPTIONS.iter().find(|option| option.name == name).expect("it was set");
        (option.get)(&spec).to_string()
    });
    let message = formatted.as_ref().map(String::as_str).map_err(ToString::to_string);
    assert_eq!(message, expected.map_err(str::to_owned), "{option}");
}

#[test]
fn tag_is_stored_and_shown_in_one_form() {
    check_one("tag = 'rack:dc1/r2>nodes:10.0.0.4, 10.0.0.5'", Ok("'rack:dc1/r2 > nodes:10.0.0.4,10.0.0.5'"));
    check_one("tag = null", Ok("null"));
    let takes =
        "'tag' takes 'dc:NAME', 'rack:DC/NAME' or 'nodes:ADDRESS,...', at most 8 of them joined by ' > '";
    check_one("tag = 'a'", Err(&format!("{takes} (given a)")));
    assert_eq!(of_text("x", "shares = 7").expect("written by an older server").tag, None);
}

#[test]
fn slots_and_io_limits_have_bounds() {
    let counts =
        |name: &str, of: &str, given: &str| format!("'{name}' can only take values of {of} (given {given})");
    check_one("latency_target = 5ms", Ok("'p99 < 5ms'"));
    check_one("latency_target = 'P99<5ms'", Ok("'p99 < 5ms'"));
    let text = "'latency_target' takes a 99th percentile such as 'p99 < 5ms' (given p50 < 5ms)";
    check_one("latency_target = 'p50 < 5ms'", Err(text));
    check_one("latency_target = null", Ok("null"));
    check_one("shares_max = 1000", Ok("1000"));
    check_one("shares_min = null", Ok("null"));
    check_one("shares_max = 1001", Err(&counts("shares_max", "1-1000", "1001")));
    check_one("max_concurrency = 8", Ok("8"));
    check_one("max_concurrency = null", Ok("null"));
    check_one("max_concurrency = 'AUTO'", Ok("'auto'"));
    let of = "1-1000000 or 'auto'";
    check_one("max_concurrency = 0", Err(&counts("max_concurrency", of, "0")));
    check_one("max_concurrency = 'many'", Err(&counts("max_concurrency", of, "many")));
    check_one("max_queue_size = 0", Ok("0"));
    check_one("max_queue_size = null", Ok("1024"));
    check_one("max_queue_size = 1000001", Err(&counts("max_queue_size", "0-1000000", "1000001")));
    check_one("queue_timeout = 5s", Ok("5s"));
    check_one("queue_timeout = null", Ok("null"));
    let text = "'queue_timeout' values must be expressed in millisecond granularity";
    check_one("queue_timeout = 5us", Err(text));
    check_one("io_limit = '200MB/s'", Ok("'200MB/s'"));
    check_one("io_limit = '1.5 gib/s'", Ok("'1536MiB/s'"));
    check_one("io_limit = '100000/s'", Ok("'100KB/s'"));
    check_one("io_limit = '64KiB/s'", Ok("'64KiB/s'"));
    for bad in ["'200MB'", "'1KB/s'", "'65535/s'", "'x/s'", "5", "'-5MB/s'", "'1e9/s'", "'99999999999GB/s'"] {
        let given = bad.trim_matches('\'');
        let text = "'io_limit' takes bytes a second such as '200MB/s', at least '64KiB/s'";
        check_one(&format!("io_limit = {bad}"), Err(&format!("{text} (given {given})")));
    }
}

#[test]
fn cpu_min_has_bounds() {
    check_one("cpu_min = '20%'", Ok("'20%'"));
    check_one("cpu_min = '100%'", Ok("'100%'"));
    check_one("cpu_min = '0%'", Ok("null"));
    check_one("cpu_min = null", Ok("null"));
    for bad in ["'101%'", "'20'", "20", "'-1%'"] {
        let given = bad.trim_matches('\'');
        let message = format!("'cpu_min' can only take values of '0%' to '100%' (given {given})");
        check_one(&format!("cpu_min = {bad}"), Err(&message));
    }
}

#[test]
fn memory_options_and_query_limit_have_bounds() {
    check_one("memory_min = '25%'", Ok("'25%'"));
    check_one("memory_min = '0%'", Ok("null"));
    check_one("memory_limit = '30%'", Ok("'30%'"));
    let text = "'memory_limit' can only take values of '1%' to '100%' (given 0.5%)";
    check_one("memory_limit = '0.5%'", Err(text));
    let text = "'memory_min' can only take values of '0%' to '100%' (given 101%)";
    check_one("memory_min = '101%'", Err(text));
    check_one("memory_overcommit = false", Ok("false"));
    check_one("memory_overcommit = null", Ok("true"));
    check_one("spill = 7", Err("'spill' can only be true or false (given 7)"));
    let limit = "{'elapsed': '30s', 'rows': 1000000000, 'bytes': '10GB', 'action': 'demote:slow'}";
    check_one(&format!("query_limit = {limit}"), Ok(limit));
    check_one("query_limit = {'elapsed':'30s','rows':1e9,'bytes':'10GB','action':'demote:slow'}", Ok(limit));
    check_one("query_limit = {'rows': 5}", Ok("{'rows': 5, 'action': 'cancel'}"));
    check_one("query_limit = null", Ok("null"));
    check_one(
        "query_limit = {'overload': 'demote:slow,suspend'}",
        Ok("{'action': 'cancel', 'overload': 'demote:slow, suspend'}"),
    );
    let takes = "'query_limit' takes {'elapsed': '30s', 'rows': 1e9, 'bytes': '10GB', 'action': 'cancel', \
                 'overload': 'demote:LEVEL, suspend, cancel'}, with at least one limit, and 'cancel', \
                 'demote:LEVEL' or 'log' as the action";
    for (given, why) in [
        ("{'action': 'log'}", "no limit"),
        ("{'rows': 0}", "invalid value of 'rows': 0"),
        ("{'rows': 1.5}", "invalid value of 'rows': 1.5"),
        ("{'bytes': 'much'}", "invalid value of 'bytes': much"),
        ("{'rows': 1, 'action': 'kill'}", "invalid value of 'action': kill"),
        ("{'rows': 1, 'action': 'demote:'}", "invalid value of 'action': demote:"),
        ("{'overload': 'cancel, suspend'}", "invalid value of 'overload': cancel, suspend"),
        ("{'speed': 1}", "unknown key 'speed'"),
        ("5", "5 is not a map"),
    ] {
        check_one(&format!("query_limit = {given}"), Err(&format!("{why}: {takes}")));
    }
}
