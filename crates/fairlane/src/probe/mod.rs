//! What the disk can do: `fairlane probe-disk` measures it at length, `fairlane serve` briefly at its first start, and settings have
//! the last word. What is found bounds how much is sent to the disk at a time (`docs/scheduler.md`, 5).

mod kept;
mod measure;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lanes::{DISK_BOUNDLESS, DISK_UNMEASURED, Group, Lanes, Reporter};
use sched::{DiskModel, DiskSpeed};
use server::logging::{Level, Logger};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::settings::Settings;
use crate::{folder, machine};
use measure::{BRIEF, LONG, Plan, Say};

/// The disk's figures as settings give them, in the order of [`kept::NAMES`]; zero is none given.
pub(crate) type Given = [u64; kept::NAMES.len()];

/// Tells the lanes what the disk can do: as settings say, as it was measured before, or as it is measured now.
pub(crate) fn tell(lanes: &Lanes, settings: &Settings, logger: &Logger) {
    let known = match kept::read(&settings.data_dir) {
        Ok(known) => known,
        Err(reason) => {
            return logger.log(Level::Warn, &format!("{reason}; the disk is taken for a fast one"), &[]);
        }
    };
    let needed = settings.disk_speed.contains(&0);
    let speed = match known {
        Some(speed) => Some(speed),
        None if settings.disk_probe && needed => first_start(lanes, settings, logger),
        None => None,
    };
    let Some(model) = model(speed, settings.disk_speed) else { return };
    lanes.set_disk(model);
    logger.log(Level::Info, "disk", &[("model", &describe(&model))]);
}

/// The model of what was measured, if anything was, with what was given in its place.
fn model(speed: Option<DiskSpeed>, given: Given) -> Option<DiskModel> {
    if speed.is_none() && given == Given::default() {
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

fn first_start(lanes: &Lanes, settings: &Settings, logger: &Logger) -> Option<DiskSpeed> {
    logger.log(
        Level::Info,
        "measuring the disk for a second or two, once; `fairlane probe-disk` does so at length, --disk-probe off not at all",
        &[],
    );
    let stop = Arc::new(AtomicBool::new(false));
    let measured = run(lanes, &settings.data_dir, BRIEF, &stop, Box::new(|_, _| ()));
    // Until this is told otherwise.
    lanes.set_disk(DISK_UNMEASURED);
    let kept = measured.and_then(|speed| {
        kept::write(
            &settings.data_dir,
            &speed,
            "measured briefly, at first start; fairlane probe-disk does so at length",
        )?;
        Ok(speed)
    });
    kept.inspect_err(|reason| {
        let said = format!("the disk could not be measured ({reason}); it is taken for a fast one");
        logger.log(Level::Warn, &said, &[]);
    })
    .ok()
}

fn run(
    lanes: &Lanes,
    folder: &Path,
    plan: Plan,
    stop: &Arc<AtomicBool>,
    say: Say,
) -> Result<DiskSpeed, String> {
    lanes.set_disk(DISK_BOUNDLESS);
    let (folder, stop) = (folder.to_owned(), stop.clone());
    lanes.block_on(
        0,
        Group::CONTROL,
        move || async move { measure::measure(&folder, plan, &stop, &say).await },
    )
}

/// `fairlane probe-disk`: exit code 0 if everything was measured and kept.
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
            .map_err(|error| format!("Signals cannot be caught: {error}."))?;
    }
    folder::prepare(&settings.data_dir)?;
    let mut config = machine::lanes(settings)?;
    // Whoever measures a disk does not ask how late a lane was meanwhile.
    config.reporter = Reporter::new(|_| ());
    let lanes = Lanes::start(config).map_err(|error| format!("The lanes cannot start: {error}."))?;
    eprintln!(
        "Measuring the disk under {} for {} seconds, best while nobody else uses it.",
        settings.data_dir.display(),
        LONG.takes().as_secs()
    );
    let say: Say = Box::new(|what, rate| match rate {
        None => eprint!("  {what} "),
        Some((rate, bytes)) => {
            let moved = bytes_a_second(rate.saturating_mul(bytes));
            eprintln!("… {moved}, {} of {} KiB", times_a_second(rate), bytes >> 10);
        }
    });
    let measured = run(&lanes, &settings.data_dir, LONG, &stop, say);
    lanes.shutdown();
    let speed = measured.map_err(|reason| {
        eprintln!(); // behind what was being done
        format!("The disk was not measured: {reason}. What was known of it before is kept.")
    })?;
    kept::write(&settings.data_dir, &speed, "measured by fairlane probe-disk")?;
    for (name, value) in kept::NAMES.iter().zip(kept::values(&speed)) {
        println!("{name} = {value}");
    }
    eprintln!("Kept in {}; a server reads it when it starts.", kept::file(&settings.data_dir).display());
    Ok(())
}

/// `1.99 GB/s`.
fn bytes_a_second(bytes: u64) -> String {
    match bytes {
        ..1_000_000 => format!("{} KB/s", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB/s", bytes / 1_000_000),
        _ => format!("{:.2} GB/s", bytes as f64 / 1e9),
    }
}

/// `151000/s`.
fn times_a_second(times: u64) -> String {
    format!("{times}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_last_word() {
        assert_eq!(model(None, Given::default()), None, "nothing is known");
        let measured = kept::speed([2_000_000_000, 1_000_000_000, 100_000, 50_000, 80_000]);
        assert_eq!(model(Some(measured), Given::default()), Some(measured.model()));
        let slower = DiskSpeed { write_bandwidth: 300_000_000, ..measured };
        assert_eq!(model(Some(measured), [0, 300_000_000, 0, 0, 0]), Some(slower.model()));
        let given = [1_000_000, 2_000_000, 30, 40, 500_000];
        assert_eq!(model(None, given), Some(kept::speed(given).model()));
    }

    #[test]
    fn rates_are_said_shortly() {
        assert_eq!(bytes_a_second(1_987_654_321), "1.99 GB/s");
        assert_eq!([bytes_a_second(5_000_000), bytes_a_second(999_999)], ["5 MB/s", "999 KB/s"]);
    }
}
