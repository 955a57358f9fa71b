//! Speed of the disk. `fairlane probe-disk` measures it for half a minute, `fairlane serve` for two
//! seconds at its first start. Settings replace measured values. The speed bounds the disk time
//! that is in flight (`docs/scheduler.md`, 5).

mod kept;
mod measure;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lanes::{DISK_BOUNDLESS, DISK_UNMEASURED, Group, Lanes, Reporter};
use sched::{DiskModel, DiskSpeed};
use server::logging::{FieldValue, Level, Logger};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::settings::{DiskSpeedGiven, Settings};
use crate::{folder, machine};
use measure::{BRIEF, LONG, Plan, Progress};

/// Sets the disk model of the lanes, from the settings and an earlier measurement. Measures the
/// disk if neither has all values.
pub(crate) fn set_disk_model(lanes: &Lanes, settings: &Settings, logger: &Logger) {
    let known = match kept::read(&settings.data_dir) {
        Ok(known) => known,
        Err(reason) => {
            return logger.log(
                Level::Warn,
                "disk speed unknown, a fast disk is assumed",
                &[("error", FieldValue::text(&reason))],
            );
        }
    };
    let is_needed = settings.disk_speed.contains(&0);
    let speed = match known {
        Some(speed) => Some(speed),
        None if settings.disk_probe && is_needed => measure_and_keep_briefly(lanes, settings, logger),
        None => None,
    };
    let Some(model) = model(speed, settings.disk_speed) else { return };
    lanes.set_disk(model);
    logger.log(Level::Info, "disk", &[("model", describe(&model).into())]);
}

/// Returns the model of a measured speed, with the values of the settings. `None`: there are
/// neither.
fn model(speed: Option<DiskSpeed>, given: DiskSpeedGiven) -> Option<DiskModel> {
    if speed.is_none() && given == DiskSpeedGiven::default() {
        return None;
    }
    let unmeasured = DiskSpeed {
        read_bandwidth: DISK_UNMEASURED.read_bandwidth_max,
        write_bandwidth: DISK_UNMEASURED.write_bandwidth_max,
        read_ops: DISK_UNMEASURED.read_ops_max,
        write_ops: DISK_UNMEASURED.write_ops_max,
        read_latency_ns: 0,
    };
    let mut values = kept::values(&speed.unwrap_or(unmeasured));
    for (value, given) in values.iter_mut().zip(given).filter(|(_, given)| *given > 0) {
        *value = given;
    }
    Some(kept::speed(values).model())
}

/// Returns the text of the log for a model.
fn describe(model: &DiskModel) -> String {
    format!(
        "reads {} + {}, writes {} + {}, latency {} us",
        bytes_a_second(model.read_bandwidth_max),
        times_a_second(model.read_ops_max),
        bytes_a_second(model.write_bandwidth_max),
        times_a_second(model.write_ops_max),
        model.latency_ns / 1_000
    )
}

/// Measures the disk for two seconds and keeps the result. `None`: that failed and was logged.
fn measure_and_keep_briefly(lanes: &Lanes, settings: &Settings, logger: &Logger) -> Option<DiskSpeed> {
    logger.log(
        Level::Info,
        "measuring the disk for two seconds, once: `fairlane probe-disk` is more exact, --disk-probe off skips it",
        &[],
    );
    let stop = Arc::new(AtomicBool::new(false));
    let measured = run(lanes, &settings.data_dir, BRIEF, &stop, Box::new(|_, _| ()));
    // Stays if the measurement failed.
    lanes.set_disk(DISK_UNMEASURED);
    let kept = measured.and_then(|speed| {
        kept::write(
            &settings.data_dir,
            &speed,
            "measured briefly at the first start; fairlane probe-disk is more exact",
        )?;
        Ok(speed)
    });
    kept.inspect_err(|reason| {
        logger.log(
            Level::Warn,
            "disk not measured, a fast disk is assumed",
            &[("error", FieldValue::text(reason))],
        );
    })
    .ok()
}

/// Measures the disk without bounds on the requests in flight.
fn run(
    lanes: &Lanes,
    folder: &Path,
    plan: Plan,
    stop: &Arc<AtomicBool>,
    progress: Progress,
) -> Result<DiskSpeed, String> {
    lanes.set_disk(DISK_BOUNDLESS);
    let (folder, stop) = (folder.to_owned(), stop.clone());
    lanes.block_on(0, Group::CONTROL, move || async move {
        measure::measure(&folder, plan, &stop, &progress).await
    })
}

/// Runs `fairlane probe-disk`. Exit code 0: the speed was measured and kept.
pub(crate) fn probe_disk(settings: &Settings) -> ExitCode {
    match measure_and_keep(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("fairlane: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure_and_keep(settings: &Settings) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| format!("signals cannot be caught: {error}."))?;
    }
    folder::prepare(&settings.data_dir)?;
    let mut config = machine::lanes(settings)?;
    // Late wake-ups of lanes do not matter here.
    config.reporter = Reporter::new(|_| ());
    let lanes = Lanes::start(config).map_err(|error| format!("the lanes cannot start: {error}."))?;
    eprintln!(
        "Measuring the disk of {} for {} seconds. Other programs should not use it meanwhile.",
        settings.data_dir.display(),
        LONG.duration().as_secs()
    );
    let progress: Progress = Box::new(|phase, rate| match rate {
        None => eprint!("  {phase} "),
        Some((rate, bytes)) => {
            let moved = bytes_a_second(rate.saturating_mul(bytes));
            eprintln!("… {moved}, {} of {} KiB", times_a_second(rate), bytes >> 10);
        }
    });
    let measured = run(&lanes, &settings.data_dir, LONG, &stop, progress);
    lanes.shutdown();
    let speed = measured.map_err(|reason| {
        eprintln!(); // ends the line of the phase
        format!("the disk was not measured: {reason}. An earlier measurement stays.")
    })?;
    kept::write(&settings.data_dir, &speed, "measured by fairlane probe-disk")?;
    for (name, value) in kept::NAMES.iter().zip(kept::values(&speed)) {
        println!("{name} = {value}");
    }
    eprintln!("Written to {}. The server reads it at its start.", kept::file(&settings.data_dir).display());
    Ok(())
}

/// Returns a bandwidth as text: `1.99 GB/s`.
fn bytes_a_second(bytes: u64) -> String {
    match bytes {
        ..1_000_000 => format!("{} KB/s", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB/s", bytes / 1_000_000),
        _ => format!("{:.2} GB/s", bytes as f64 / 1e9),
    }
}

/// Returns a rate as text: `151000/s`.
fn times_a_second(times: u64) -> String {
    format!("{times}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_replace_measured_values() {
        assert_eq!(model(None, DiskSpeedGiven::default()), None, "nothing is known");
        let measured = kept::speed([2_000_000_000, 1_000_000_000, 100_000, 50_000, 80_000]);
        assert_eq!(model(Some(measured), DiskSpeedGiven::default()), Some(measured.model()));
        let slower = DiskSpeed { write_bandwidth: 300_000_000, ..measured };
        assert_eq!(model(Some(measured), [0, 300_000_000, 0, 0, 0]), Some(slower.model()));
        let given = [1_000_000, 2_000_000, 30, 40, 500_000];
        assert_eq!(model(None, given), Some(kept::speed(given).model()));
    }

    #[test]
    fn bandwidth_has_a_fitting_unit() {
        assert_eq!(bytes_a_second(1_987_654_321), "1.99 GB/s");
        assert_eq!([bytes_a_second(5_000_000), bytes_a_second(999_999)], ["5 MB/s", "999 KB/s"]);
    }
}
