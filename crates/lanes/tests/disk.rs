//! The disk service on both backends: what is written is read, by either lane, and ends are told from errors.

use std::io::ErrorKind;
use std::path::PathBuf;

use bytes::Bytes;
use lanes::disk::{self, AlignedBuf, OpenOptions};
use lanes::{Config, DiskBackend, Group, Lanes};

/// Runs one scenario in a fresh folder, on lanes of each backend.
#[expect(clippy::disallowed_methods, reason = "makes and clears the folder from outside of lanes")]
fn check<Fut>(name: &str, scenario: impl Fn(PathBuf) -> Fut + Copy + Send + 'static)
where
    Fut: Future<Output = ()> + 'static,
{
    for backend in [DiskBackend::Auto, DiskBackend::Threads] {
        let folder = std::env::temp_dir().join(format!("lanes-{name}-{backend:?}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let config = Config { cores: vec![0], pin: false, disk_backend: backend, ..Config::detect() };
        let lanes = Lanes::start(config).expect("lanes start");
        let inside = folder.clone();
        lanes.block_on(0, Group::LOG, move || scenario(inside));
        let usage = lanes.usage(Group::LOG);
        assert!(usage.disk_write_ops > 0, "{backend:?}: {usage:?}");
        lanes.shutdown();
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}

const NEW: OpenOptions = OpenOptions {
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    direct: false,
    dsync: false,
};

#[test]
fn what_is_written_is_read() {
    check("round-trip", |folder| async move {
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        file.write_at(10, Bytes::from(data.clone())).await.unwrap();
        file.sync_data().await.unwrap();
        file.sync_all().await.unwrap();
        assert_eq!(file.len().await.unwrap(), 300_010);
        assert_eq!(file.read_at(10, data.len()).await.unwrap(), data);
        assert_eq!(file.read_at(0, 10).await.unwrap(), [0; 10][..]);
        assert_eq!(file.read_at(300_000, 11).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.read_at(5, 0).await.unwrap().len(), 0);
        file.truncate(20).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 20);
        let usage = lanes::handle().usage(Group::LOG);
        assert!(usage.disk_write_bytes >= 300_000 && usage.disk_read_bytes >= 300_000, "{usage:?}");
    });
}

#[test]
fn direct_files_take_whole_blocks_and_give_any_range() {
    check("direct", |folder| async move {
        let options = OpenOptions { direct: true, dsync: true, ..NEW };
        let file = disk::open(&folder.join("log"), options).await.unwrap();
        file.allocate(1 << 20).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 1 << 20);
        let mut buffer = AlignedBuf::new(8192);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let buffer = file.write_aligned(4096, buffer).await.unwrap();
        let read = file.read_at(4096 + 100, 5000).await.unwrap();
        assert_eq!(read, buffer[100..5100]);
        assert_eq!(file.read_at((1 << 20) - 3, 3).await.unwrap(), [0; 3][..]);
        assert!(file.read_at((1 << 20) - 3, 4).await.is_err());
    });
}

#[test]
fn many_requests_at_once_and_a_heavy_task_too() {
    check("many", |folder| async move {
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        let tasks: Vec<_> = (0..500_u64)
            .map(|n| {
                let file = file.clone();
                lanes::spawn(Group::LOG, async move {
                    file.write_at(n * 100, Bytes::from(vec![n as u8; 100])).await.unwrap();
                    file.read_at(n * 100, 100).await.unwrap() == vec![n as u8; 100]
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await);
        }
        let read = lanes::heavy(Group::LOG, async move { file.read_at(100, 100).await.unwrap() }).await;
        assert_eq!(read, vec![1; 100]);
        // Asked for and dropped: the request runs to its end by itself.
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        drop(lanes::spawn(Group::LOG, async move { file.write_at(0, Bytes::from(vec![9; 1 << 20])).await }));
    });
}

#[test]
fn folders_and_names() {
    check("folders", |folder| async move {
        let inner = folder.join("x/y");
        disk::create_dir_all(&inner).await.unwrap();
        disk::open(&inner.join("one"), NEW).await.unwrap();
        let again = disk::open(&inner.join("one"), OpenOptions { create_new: true, ..NEW }).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let missing = disk::open(&inner.join("none"), OpenOptions::default()).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        disk::rename(&inner.join("one"), &inner.join("two")).await.unwrap();
        disk::hard_link(&inner.join("two"), &inner.join("three")).await.unwrap();
        disk::sync_dir(&inner).await.unwrap();
        assert_eq!(disk::list_dir(&inner).await.unwrap(), ["three", "two"]);
        disk::remove_file(&inner.join("two")).await.unwrap();
        assert!(!disk::exists(&inner.join("two")).await.unwrap() && disk::exists(&inner).await.unwrap());
        let lock = disk::lock_file(&inner.join("lock")).await.unwrap();
        assert_eq!(disk::lock_file(&inner.join("lock")).await.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(lock);
        assert!(disk::lock_file(&inner.join("lock")).await.is_ok());
        let (free, all) = disk::space(&folder).await.unwrap();
        assert!(free <= all && all > 0);
    });
}
