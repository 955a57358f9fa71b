//! Opens a shard: recovers its folder (`recovery`) and puts its parts together.

use std::cell::RefCell;
use std::fmt::Debug;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::env::BLOCK;
use crate::env::Env;
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::Jobs;
use crate::log::bound::FREE_IDLE;
use crate::log::reserve::Reserve;
use crate::log::{Log, Recovered, Register};
use crate::manifest::Edit;
use crate::on_lanes::OnLanes;
use crate::options::StorageOptions;
use crate::recovery::{Opened, recover};
use crate::shard::Shard;
use crate::signal::Signal;
use crate::state::ShardState;
use crate::table::store::{FileStore, OpenManifest};

impl Shard {
    /// Opens a shard and recovers the data in its folder. Shard 0 must be opened first: it locks
    /// the folder, and reshards the data if the folder has another number of shards.
    ///
    /// # Errors
    /// The folder is in use, was written by a newer version, is damaged, or cannot be read or
    /// written. Or it has another number of shards, and this is not shard 0.
    pub fn open(options: StorageOptions) -> lanes::LocalBoxFuture<'static, Result<Rc<Shard>, StorageError>> {
        Box::pin(async move {
            let env = Arc::new(OnLanes::new(options.groups, options.event_sink.clone()));
            Shard::open_in(options, env).await
        })
    }

    pub(crate) async fn open_in(
        options: StorageOptions,
        env: Arc<dyn Env>,
    ) -> Result<Rc<Shard>, StorageError> {
        assert!(options.shard < options.shards, "a shard's number is below their count");
        assert!(
            options.segment_bytes.is_multiple_of(BLOCK as u64) && options.segment_bytes >= 4 * BLOCK as u64
        );
        let Some(root) = options.dir.clone() else {
            let state = ShardState::new(&options);
            return Ok(Shard::new(env, options, PathBuf::new(), OpenManifest::default(), state, None));
        };
        let opened = recover(&env, &root, &options).await?;
        let Opened { dir, lock, manifest, is_new, state, log, mut recovery, began_ns } = opened;
        let shard = Shard::new(env, options, dir, manifest, state, Some((log, lock)));
        let background = &shard.background;
        let log = shard.log.as_ref().expect("made above");
        match log.create_first_segment().await {
            // A new shard needs a log. Any other can be read until the disk has free space again.
            Err(error) if is_new || !error.is_full() => {
                log.fail(Arc::new(error.clone()));
                return Err(error);
            }
            _ => {}
        }
        log.release(&shard.store.manifest().log);
        log.trim(Some(FREE_IDLE)).await;
        background.reserve.make().await;
        shard.jobs.report_damaged();
        background.compactor.update_run_pressure();
        background.start();
        recovery.duration = Duration::from_nanos(shard.env.now_ns().saturating_sub(began_ns));
        background.recovery.set(recovery);
        let options = &shard.jobs.options;
        options.event_sink.send(&Event::Recovered { shard: options.shard, recovery });
        Ok(shard)
    }

    /// Puts the parts of a shard together. `log`: the recovered log and the locks of the folder;
    /// `None` for a shard in memory.
    fn new(
        env: Arc<dyn Env>,
        options: StorageOptions,
        dir: PathBuf,
        manifest: OpenManifest,
        state: ShardState,
        log: Option<(Recovered, Box<dyn Debug>)>,
    ) -> Rc<Shard> {
        let reserve = Rc::new(Reserve::new(env.clone(), &dir, options.reserve_bytes));
        let progress = Rc::<Signal>::default();
        let (state, log_dir) = (Rc::new(RefCell::new(state)), dir.join("log"));
        let store = FileStore::new(
            env.clone(),
            dir,
            manifest,
            options.cache_bytes,
            reserve.clone(),
            progress.clone(),
        );
        let store = Rc::new(store);
        let (recovered, lock) = log.unzip();
        let log = recovered.map(|recovered| {
            let mark = store.mark.clone().expect("a shard with a log has one");
            let register = register(store.clone());
            Log::start(env.clone(), log_dir, &options, recovered, register, reserve.clone(), mark)
        });
        let jobs = Jobs::new(env.clone(), options, state.clone(), store.clone(), log.clone(), progress);
        let jobs = Rc::new(jobs);
        let background = Rc::new(Background::new(jobs.clone(), reserve, lock));
        Rc::new(Shard { env, state, store, log, jobs, background })
    }
}

/// Returns the function that names a segment in the manifest before it is used.
fn register(store: Rc<FileStore>) -> Register {
    Box::new(move |log, segment| {
        let store = store.clone();
        Box::pin(async move {
            let name = |edit: &mut Edit| {
                let (mut live, durable) = log.live(store.manifest().flushed);
                if !live.contains(&segment) {
                    live.push(segment);
                }
                edit.log(live, durable);
            };
            store.edit(name).await
        })
    })
}
