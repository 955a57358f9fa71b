//! Use of the node behind a front, read from `system.nodes`. Its counters are cumulative and at
//! most 100 ms old, so that a phase is a difference of two readings.

use load::session::ResultRow;

use crate::error::DemoError;
use crate::results::NodeUse;
use crate::stage::Stage;

const COUNTS: &str =
    "SELECT service_level, window, in_flight, queued, requests, occupancy_us FROM system.nodes";

/// Returns the counters of each level since the start of the front. Empty without a front.
pub(crate) fn counts(stage: &mut Stage) -> Result<Vec<NodeUse>, DemoError> {
    if !stage.has_front() {
        return Ok(Vec::new());
    }
    let rows = stage.rows_of(COUNTS)?;
    let levels: Option<Vec<NodeUse>> = rows.iter().map(level).collect();
    levels
        .ok_or_else(|| DemoError::Failed("system.nodes has a row that the demo does not understand.".into()))
}

/// Returns the counters of a row with the columns of [`COUNTS`]. `None`: a cell is missing or has
/// another type.
fn level(row: &ResultRow) -> Option<NodeUse> {
    let [level, window, in_flight, queued, requests, occupancy_us] = row.as_slice() else { return None };
    let number = |cell: &Option<Vec<u8>>| match cell.as_deref()? {
        cell @ [_, _, _, _] => u64::try_from(i32::from_be_bytes(cell.try_into().ok()?)).ok(),
        cell => u64::try_from(i64::from_be_bytes(cell.try_into().ok()?)).ok(),
    };
    Some(NodeUse {
        phase: String::new(),
        level: String::from_utf8(level.clone()?).ok()?,
        window: number(window)?,
        in_flight: number(in_flight)?,
        queued: number(queued)?,
        requests: number(requests)?,
        occupancy_s: number(occupancy_us)? as f64 / 1e6,
    })
}

/// Returns the use of each level in a phase from the counters at its ends, with the numbers in
/// flight and queued at its end. A level without answers is left out.
pub(crate) fn since(phase: &str, before: &[NodeUse], after: &[NodeUse]) -> Vec<NodeUse> {
    let during = |after: &NodeUse| {
        let before = before.iter().find(|before| before.level == after.level).cloned().unwrap_or_default();
        NodeUse {
            phase: phase.to_string(),
            requests: after.requests.saturating_sub(before.requests),
            occupancy_s: (after.occupancy_s - before.occupancy_s).max(0.0),
            ..after.clone()
        }
    };
    after.iter().map(during).filter(|level| level.requests > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(level: &str, small: [i32; 3], large: [i64; 2]) -> ResultRow {
        let cells = small.map(|n| n.to_be_bytes().to_vec()).into_iter();
        let cells = cells.chain(large.map(|n| n.to_be_bytes().to_vec()));
        std::iter::once(level.as_bytes().to_vec()).chain(cells).map(Some).collect()
    }

    #[test]
    fn phase_is_the_difference_of_two_readings() {
        let read = |rows: &[ResultRow]| rows.iter().map(|row| level(row).expect("a row")).collect::<Vec<_>>();
        let before = read(&[row("load1", [16, 2, 0], [100, 1_000_000]), row("default", [16, 0, 0], [7, 9])]);
        let after = read(&[
            row("load1", [16, 3, 90], [300, 4_500_000]),
            row("load2", [16, 5, 80], [50, 500_000]),
            row("default", [16, 0, 0], [7, 9]),
        ]);
        let found = since("both", &before, &after);
        let shown: Vec<(&str, u64, f64)> =
            found.iter().map(|level| (&*level.level, level.requests, level.occupancy_s)).collect();
        assert_eq!(shown, [("load1", 200, 3.5), ("load2", 50, 0.5)]);
        let load1 = &found[0];
        assert_eq!((load1.window, load1.in_flight, load1.queued, &*load1.phase), (16, 3, 90, "both"));
        assert_eq!(load1.place_us(), 17_500.0);
    }

    #[test]
    fn rows_without_all_cells_are_refused() {
        let whole = row("load1", [16, 2, 0], [1, 2]);
        assert!(level(&whole).is_some());
        assert_eq!(level(&whole[..5].to_vec()), None);
        for (cell, broken) in [(0, None), (1, None), (2, Some(vec![1])), (3, Some(vec![255; 4]))] {
            let mut row = whole.clone();
            row[cell] = broken;
            assert_eq!(level(&row), None, "cell {cell}");
        }
    }
}
