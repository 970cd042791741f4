//! `packtrain bench` as a user runs it.

mod program;

use program::{assert_documented, packtrain};

#[test]
fn our_side_alone_is_measured() {
    let args = ["bench", "offload", "--rounds", "1", "--only", "segment"];
    let ran = packtrain(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let document = ran.json();
    assert_documented(&document, &["all", "bench offload"]);
    let rows = document["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["row"].as_str().expect("a name").contains("segment"));
        assert!(row["ours_ns"].as_f64().expect("a figure") > 0.0, "{row}");
    }
    let table = packtrain(&args);
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(table.out.lines().count() > rows.len(), "{}", table.out);
}

#[test]
fn a_row_that_does_not_exist_is_a_usage_error() {
    let ran = packtrain(&["bench", "offload", "--only", "nonsense"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("--only nonsense"), "{}", ran.err);
}
