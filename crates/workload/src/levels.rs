//! Catalog of the levels of this process: an immutable value behind one pointer. A change builds a
//! new value and swaps the pointer. Readers on all cores take no lock, and see either the old or
//! the new catalog. Changes are serialized by the caller (`access` makes them on core 0).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use lanes::{Group, Lanes};
use units::percent_text;

use crate::candidates::Candidates;
use crate::limits::DefaultLimit;
use crate::{
    Action, DEFAULT_LEVEL, DRIVER_LEVEL, LatencyTarget, Level, LevelEntry, LevelSpec, Memory, SlotLease,
};

/// Bound of the number of levels. The lanes support ten times as many groups. A level needs at
/// least 256 bytes per core.
pub const LEVELS_MAX: usize = 100_000;

/// All levels at one time. `default` and `driver` always exist.
#[derive(Clone, Debug)]
pub struct Catalog {
    entries: BTreeMap<Arc<str>, Arc<LevelEntry>>,
}

impl Catalog {
    /// Returns the level of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<LevelEntry>> {
        self.entries.get(name)
    }

    /// Returns the level of roles without any other.
    #[must_use]
    pub fn default_level(&self) -> &Arc<LevelEntry> {
        &self.entries[DEFAULT_LEVEL]
    }

    /// Returns the level of handshakes.
    #[must_use]
    pub fn driver_level(&self) -> &Arc<LevelEntry> {
        &self.entries[DRIVER_LEVEL]
    }

    /// Returns true if there are [`LEVELS_MAX`] levels.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= LEVELS_MAX
    }

    /// Iterates over all levels by name.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<LevelEntry>> {
        self.entries.values()
    }
}

impl Catalog {
    /// Checks the options of a level against those of the other levels.
    ///
    /// # Errors
    /// One sentence for the client.
    pub fn check(&self, spec: &LevelSpec) -> Result<(), String> {
        self.check_minimum(spec, "memory", |spec| (spec.memory.min_ppm, spec.memory.limit_ppm))?;
        self.check_minimum(spec, "cpu", |spec| (spec.cpu_min_ppm, spec.cpu_limit_ppm))?;
        let LatencyTarget { shares_min, shares_max, .. } = spec.latency;
        if shares_min.is_some_and(|least| least > spec.shares) {
            return Err("'shares_min' cannot be more than 'shares'".to_owned());
        }
        if shares_max.is_some_and(|most| most < spec.shares) {
            return Err("'shares_max' cannot be less than 'shares'".to_owned());
        }
        let Some(limit) = &spec.query_limit else { return Ok(()) };
        for action in limit.overload.iter().chain([&limit.action]) {
            match action {
                Action::Demote(level) if *level == spec.name => {
                    return Err("A level cannot demote its statements to itself".to_owned());
                }
                Action::Demote(level) if self.get(level).is_none() => {
                    return Err(LevelError::Missing(level.clone()).to_string());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the minimum of a level is within its own limit, and within the rest left by the
    /// minimums of other levels.
    fn check_minimum(
        &self,
        spec: &LevelSpec,
        what: &str,
        of: fn(&LevelSpec) -> (u32, Option<u32>),
    ) -> Result<(), String> {
        let (min_ppm, limit_ppm) = of(spec);
        if limit_ppm.is_some_and(|limit_ppm| min_ppm > limit_ppm) {
            return Err(format!("'{what}_min' cannot be more than '{what}_limit'"));
        }
        let others = self.entries().filter(|entry| entry.spec.name != spec.name);
        let others_ppm = others.map(|entry| u64::from(of(&entry.spec).0)).sum::<u64>();
        let min_ppm = u64::from(min_ppm);
        let sum_ppm = others_ppm + min_ppm;
        if min_ppm == 0 || sum_ppm <= 1_000_000 {
            return Ok(());
        }
        Err(format!(
            "The '{what}_min' of all service levels cannot be more than 100%: it would be {} (the others have \
             {}, which leaves {}; given {})",
            percent_text(sum_ppm),
            percent_text(others_ppm),
            percent_text(1_000_000_u64.saturating_sub(others_ppm)),
            percent_text(min_ppm)
        ))
    }
}

/// A rejected change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LevelError {
    /// A level of this name exists.
    Exists(Arc<str>),
    /// No level has this name.
    Missing(Arc<str>),
    /// `default` and `driver` cannot be dropped.
    BuiltIn(Arc<str>),
    /// There are [`LEVELS_MAX`] levels.
    Full,
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LevelError::Exists(name) => write!(f, "The service level '{name}' already exists."),
            LevelError::Missing(name) => write!(f, "The service level '{name}' doesn't exist."),
            LevelError::BuiltIn(name) => write!(f, "The service level '{name}' cannot be dropped."),
            LevelError::Full => write!(f, "There are {LEVELS_MAX} service levels, which is the limit."),
        }
    }
}

impl std::error::Error for LevelError {}

/// The service levels of this process.
pub struct Levels {
    pub(crate) lanes: Lanes,
    memory: Arc<Memory>,
    /// Statements with actions for overload.
    pub(crate) candidates: Arc<Candidates>,
    current: ArcSwap<Catalog>,
    default_limit: Mutex<DefaultLimit>,
    /// True if slots are leased.
    leases_slots: AtomicBool,
}

impl Levels {
    /// Creates the levels `default` and `driver`. Query memory is unlimited until
    /// [`Memory::set_total`].
    #[must_use]
    pub fn new(lanes: Lanes) -> Arc<Levels> {
        let memory = Memory::new(u64::MAX);
        let candidates = Arc::default();
        let built_in =
            [(LevelSpec::default_level(), Group::DEFAULT), (LevelSpec::driver_level(), Group::DRIVER)];
        let entry = |(spec, group): (LevelSpec, Group)| {
            let level = Level::new(spec.name.clone(), group, lanes.cores(), &memory);
            let level = Arc::new(level.with_candidates(&candidates));
            (spec.name.clone(), Arc::new(LevelEntry { level, spec }))
        };
        let entries = built_in.into_iter().map(entry).collect();
        Arc::new(Levels {
            memory: memory.clone(),
            candidates: candidates.clone(),
            lanes,
            current: ArcSwap::from_pointee(Catalog { entries }),
            default_limit: Mutex::default(),
            leases_slots: AtomicBool::new(false),
        })
    }

    /// Returns the query memory of the server.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets the limit of levels without `max_concurrency`, also for those that exist.
    pub fn set_default_limit(&self, limit: DefaultLimit) {
        *self.default_limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        self.catalog().entries().for_each(|entry| entry.level.set_limit(&entry.spec, limit));
    }

    /// Lets levels with a `max_concurrency` grant slots by leases only, those that exist and those
    /// that are created later: see [`Levels::set_lease`].
    pub fn lease_slots(&self) {
        self.leases_slots.store(true, SeqCst);
        self.catalog().entries().for_each(|entry| self.set_lease(&entry.level, SlotLease::NONE));
    }

    /// Sets the lease of a level, immediately.
    pub fn set_lease(&self, level: &Arc<Level>, lease: SlotLease) {
        level.set_lease(&self.lanes, lease);
    }

    fn default_limit(&self) -> DefaultLimit {
        *self.default_limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present catalog.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Adds a level, usable on all cores when this returns.
    ///
    /// # Errors
    /// [`LevelError::Exists`], [`LevelError::Full`].
    pub fn create(&self, spec: LevelSpec) -> Result<(), LevelError> {
        let mut catalog = Catalog::clone(&self.catalog());
        if catalog.get(&spec.name).is_some() {
            return Err(LevelError::Exists(spec.name));
        }
        if catalog.is_full() {
            return Err(LevelError::Full);
        }
        let group = self.lanes.create_group(Group::USERS, spec.group_spec());
        let level = Level::new(spec.name.clone(), group, self.lanes.cores(), &self.memory);
        let level = Arc::new(level.with_candidates(&self.candidates));
        if self.leases_slots.load(SeqCst) {
            self.set_lease(&level, SlotLease::NONE);
        }
        level.set(&self.lanes, &spec, self.default_limit());
        catalog.entries.insert(spec.name.clone(), Arc::new(LevelEntry { level, spec }));
        self.current.store(Arc::new(catalog));
        Ok(())
    }

    /// Changes the options of a level immediately, also for running statements.
    ///
    /// # Errors
    /// [`LevelError::Missing`].
    pub fn alter(&self, spec: LevelSpec) -> Result<(), LevelError> {
        let mut catalog = Catalog::clone(&self.catalog());
        let Some(entry) = catalog.entries.get_mut(&spec.name) else {
            return Err(LevelError::Missing(spec.name));
        };
        let level = entry.level.clone();
        self.lanes.alter_group(level.group(), spec.group_spec());
        *entry = Arc::new(LevelEntry { level: level.clone(), spec: spec.clone() });
        self.current.store(Arc::new(catalog));
        level.set(&self.lanes, &spec, self.default_limit());
        Ok(())
    }

    /// Drops a level. Its running statements continue with the settings of `default`.
    ///
    /// # Errors
    /// [`LevelError::Missing`], [`LevelError::BuiltIn`].
    pub fn drop_level(&self, name: &str) -> Result<(), LevelError> {
        if name == DEFAULT_LEVEL || name == DRIVER_LEVEL {
            return Err(LevelError::BuiltIn(name.into()));
        }
        let mut catalog = Catalog::clone(&self.catalog());
        let Some(entry) = catalog.entries.remove(name) else {
            return Err(LevelError::Missing(name.into()));
        };
        self.current.store(Arc::new(catalog));
        entry.level.retire(&self.lanes);
        self.lanes.drop_group(entry.level.group());
        Ok(())
    }

    /// Replaces the catalog by the levels read from the tables: creates, alters and drops those
    /// that differ. `default` is unchanged. A `driver` level that is not in `specs` gets its
    /// initial options.
    pub fn replace(&self, mut specs: Vec<LevelSpec>) {
        specs.retain(|spec| &*spec.name != DEFAULT_LEVEL);
        if !specs.iter().any(|spec| &*spec.name == DRIVER_LEVEL) {
            specs.push(LevelSpec::driver_level());
        }
        let before = self.catalog();
        let is_wanted = |name: &str| name == DEFAULT_LEVEL || specs.iter().any(|spec| &*spec.name == name);
        let unwanted: Vec<_> = before.entries.keys().filter(|name| !is_wanted(name)).cloned().collect();
        let dropped = unwanted.into_iter().map(|name| self.drop_level(&name));
        dropped.for_each(|result| result.expect("the level exists, and changes are serialized"));
        for spec in specs {
            let changed = match before.get(&spec.name) {
                Some(entry) if entry.spec == spec => Ok(()),
                Some(_) => self.alter(spec),
                None => self.create(spec),
            };
            // The first of several levels with one name wins.
            drop(changed);
        }
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Levels").field("catalog", &self.catalog()).finish_non_exhaustive()
    }
}
