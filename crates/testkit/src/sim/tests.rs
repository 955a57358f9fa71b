//! Tests of the guarantees of the simulated disk from both sides: each permitted outcome occurs
//! under some seed, and no other outcome under any.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::ErrorKind;
use std::path::Path;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;

const NEW: OpenOptions = OpenOptions {
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    direct: false,
    dsync: false,
};
const LOG: OpenOptions = OpenOptions { direct: true, dsync: true, ..NEW };

/// Runs a future. Returns `None` if the machine crashes first.
fn run<T>(disk: &Disk, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => return Some(answer),
            Poll::Pending if disk.is_down() => return None,
            Poll::Pending => {}
        }
    }
    panic!("never answered\n{}", disk.record());
}

async fn put(disk: &Disk, path: &str, bytes: &[u8]) -> io::Result<File> {
    let file = disk.open(Path::new(path), NEW).await?;
    file.write_at(0, Bytes::copy_from_slice(bytes)).await?;
    Ok(file)
}

fn contents(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    let read = async {
        let file = disk.open(Path::new(path), OpenOptions::default()).await?;
        let len = file.len().await?;
        file.read_at(0, len as usize).await
    };
    run(disk, read).expect("up").ok().map(Vec::from)
}

/// Returns the possible contents of `/f` after `work` and a crash, over many seeds.
fn outcomes(work: impl AsyncFn(&Disk) -> io::Result<()>) -> BTreeSet<Option<Vec<u8>>> {
    let outcome = |seed| {
        let disk = Disk::new(seed);
        run(&disk, work(&disk)).expect("up").expect("no fault");
        disk.crash();
        contents(&disk, "/f")
    };
    (0..200).map(outcome).collect()
}

#[test]
fn synced_changes_stay_and_others_are_lost_in_any_combination() {
    let durable = outcomes(async |disk| {
        put(disk, "/f", b"all").await?.sync_all().await?;
        disk.sync_dir(Path::new("/")).await
    });
    assert_eq!(durable, [Some(b"all".to_vec())].into());
    let nameless = outcomes(async |disk| put(disk, "/f", b"all").await?.sync_all().await);
    assert_eq!(nameless, [None, Some(b"all".to_vec())].into());
    let either = outcomes(async |disk| {
        let file = put(disk, "/f", &[0; 3]).await?;
        file.sync_all().await?;
        disk.sync_dir(Path::new("/")).await?;
        for at in 0..3 {
            file.write_at(at, Bytes::from_static(b"x")).await?;
        }
        Ok(())
    });
    assert_eq!(either.len(), 8, "each of three writes independently: {either:?}");
}

#[test]
fn write_at_a_crash_is_torn_at_sectors() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let disk = Disk::new(seed);
        let open = async {
            let file = disk.open(Path::new("/f"), LOG).await.expect("no fault");
            file.allocate(4096).await.expect("no fault");
            disk.sync_dir(Path::new("/")).await.expect("no fault");
            file
        };
        let file = run(&disk, open).expect("up");
        disk.crash_at(disk.steps() + 1);
        assert!(run(&disk, file.write_at(0, Bytes::from(vec![7; 4096]))).is_none());
        disk.crash();
        let after = contents(&disk, "/f").expect("it was durable");
        let sectors: Vec<u8> = after.chunks(512).map(|sector| sector[0]).collect();
        assert!(after.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        seen.insert(sectors);
        let old = std::pin::pin!(file.len());
        assert!(
            old.poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "a handle of an earlier life"
        );
    }
    assert!(seen.contains(&vec![0; 8]) && seen.contains(&vec![7; 8]) && seen.len() > 50, "{}", seen.len());
}

#[test]
fn rename_leaves_the_whole_old_or_new_file() {
    let left = outcomes(async |disk| {
        put(disk, "/f", b"old").await?.sync_all().await?;
        disk.sync_dir(Path::new("/")).await?;
        put(disk, "/new", b"new").await?.sync_all().await?;
        disk.rename(Path::new("/new"), Path::new("/f")).await
    });
    assert_eq!(left, [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
}

#[test]
fn lost_folder_loses_its_contents() {
    let work = async |disk: &Disk, both: bool| {
        disk.create_dir_all(Path::new("/a/b")).await?;
        put(disk, "/a/b/f", b"x").await?.sync_all().await?;
        disk.sync_dir(Path::new("/a/b")).await?;
        disk.sync_dir(Path::new("/a")).await?;
        if both { disk.sync_dir(Path::new("/")).await } else { Ok(()) }
    };
    for both in [false, true] {
        let left = |seed| {
            let disk = Disk::new(seed);
            run(&disk, work(&disk, both)).expect("up").expect("no fault");
            disk.crash();
            contents(&disk, "/a/b/f").is_some()
        };
        assert_eq!((0..50).all(left), both);
        assert!((0..50).any(left));
    }
}

#[test]
fn failed_sync_may_lose_earlier_writes() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = Disk::new(seed);
        let file = run(&disk, put(&disk, "/f", b"data")).expect("up").expect("no fault");
        run(&disk, disk.sync_dir(Path::new("/"))).expect("up").expect("no fault");
        disk.fault(Fault { times: 1, ..Fault::every(FaultKind::Sync, Effect::Broken) });
        let failed = run(&disk, file.sync_all()).expect("up").expect_err("a fault");
        assert_eq!(failed.raw_os_error(), Some(libc::EIO));
        run(&disk, file.sync_all()).expect("up").expect("the second sync returns success");
        assert_eq!(contents(&disk, "/f").as_deref(), Some(&b"data"[..]), "the cache still has it");
        disk.crash();
        lost += u32::from(contents(&disk, "/f").as_deref() != Some(b"data"));
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn full_disk_takes_a_prefix_and_recovers_with_free_space() {
    let disk = Disk::new(1);
    disk.set_capacity(1000);
    let kept = run(&disk, put(&disk, "/kept", &[1; 600])).expect("up").expect("there is free space");
    let full = run(&disk, put(&disk, "/f", &[2; 600])).expect("up").expect_err("no free space");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert_eq!((disk.size(Path::new("/f")), disk.used()), (400, 1000));
    run(&disk, kept.write_at(0, Bytes::from(vec![3; 600]))).expect("up").expect("no more space is needed");
    run(&disk, disk.remove_file(Path::new("/kept"))).expect("up").expect("no fault");
    assert_eq!(disk.used(), 1000, "it is still open");
    drop(kept);
    run(&disk, put(&disk, "/f", &[2; 600])).expect("up").expect("there is free space again");
}

#[test]
fn stalled_operation_waits_while_others_pass() {
    let disk = Disk::new(1);
    disk.fault(Fault { path: "slow".into(), ..Fault::every(FaultKind::Write, Effect::Stalled(u64::MAX)) });
    let slow = run(&disk, disk.open(Path::new("/slow"), NEW)).expect("up").expect("no fault");
    let mut write = std::pin::pin!(slow.write_at(0, Bytes::from_static(b"x")));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        assert!(write.as_mut().poll(&mut cx).is_pending());
    }
    run(&disk, put(&disk, "/quick", b"y")).expect("up").expect("no fault");
    disk.heal();
    run(&disk, write).expect("up").expect("it goes on");
}

#[test]
fn same_seed_gives_the_same_history() {
    let history = |seed| {
        let disk = Disk::new(seed);
        disk.fault(Fault { one_in: 3, ..Fault::every(FaultKind::Write, Effect::Broken) });
        for round in 0..40 {
            let path = format!("/{}", round % 5);
            let _ = run(&disk, put(&disk, &path, &[round; 1500])).expect("up");
        }
        let place = disk.flip_somewhere("/");
        disk.crash();
        let files = disk.files();
        let bytes: Vec<_> = files.iter().map(|path| contents(&disk, path.to_str().expect("ASCII"))).collect();
        (disk.record(), place, files, bytes)
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}

#[test]
fn lock_has_one_holder() {
    let disk = Disk::new(1);
    let path = Path::new("/LOCK");
    let lock = run(&disk, disk.lock_file(path)).expect("up").expect("free");
    let second = run(&disk, disk.lock_file(path)).expect("up").expect_err("held");
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    drop(lock);
    run(&disk, disk.lock_file(path)).expect("up").expect("free again");
}
