//! The properties of the file system under a directory: its name, whether it survives a power cut, whether it
//! overwrites in place.
//!
//! Asked once at start, so that the operator is warned before mail is accepted into a place that cannot keep it. The
//! answer joins `statfs` (the kind), `/proc/self/mountinfo` (options and device) and `/sys/dev/block` (what the device
//! is). Where one is missing, as in some containers, the rest still counts.
//!
//! Not here: device-mapper stacks, write caches without a battery, hosts that lie about flushes. None can be seen from
//! here.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, IFlags, StatFs, StatxFlags};

use crate::disk::Space;

/// Overlays and loop devices may stand on each other; deeper than this we stop looking.
const DEPTH_MAX: u32 = 4;

/// A file system by the number `statfs` gives for it.
struct FileSystemKind {
    magic: u32,
    name: &'static str,
    volatile: bool,
    copy_on_write: bool,
}

const fn kind(magic: u32, name: &'static str) -> FileSystemKind {
    FileSystemKind { magic, name, volatile: false, copy_on_write: false }
}

const fn volatile(magic: u32, name: &'static str) -> FileSystemKind {
    FileSystemKind { magic, name, volatile: true, copy_on_write: false }
}

const fn copying(magic: u32, name: &'static str) -> FileSystemKind {
    FileSystemKind { magic, name, volatile: false, copy_on_write: true }
}

/// From `linux/magic.h`; zfs and bcachefs from their sources.
const KINDS: [FileSystemKind; 16] = [
    kind(0xef53, "ext4"),
    kind(0x5846_5342, "xfs"),
    copying(0x9123_683e, "btrfs"),
    copying(0x2fc1_2fc1, "zfs"),
    copying(0xca45_1a4e, "bcachefs"),
    kind(0xf2f5_2010, "f2fs"),
    volatile(0x0102_1994, "tmpfs"),
    volatile(0x8584_58f6, "ramfs"),
    kind(0x794c_7630, "overlay"),
    kind(0x6969, "nfs"),
    kind(0x6573_5546, "fuse"),
    kind(0x0102_1997, "9p"),
    kind(0xff53_4d42, "cifs"),
    kind(0xfe53_4d42, "smb2"),
    kind(0x00c3_6400, "ceph"),
    copying(0x3434, "nilfs2"),
];

/// Returns the file system of `dir`; `direct`: whether a file there could be opened for direct I/O.
pub(super) fn space(dir: &Path, direct: bool) -> io::Result<Space> {
    let stat = rustix::fs::statfs(dir)?;
    let kind = kind_of(&stat);
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_id(dir).and_then(|id| mount_of(&mountinfo, id));
    let in_memory = kind.is_some_and(|k| k.volatile);
    let bytes = |blocks: u64| blocks.saturating_mul(u64::try_from(stat.f_frsize).unwrap_or(0));
    Ok(Space {
        file_system: name(&stat, kind, mount.as_ref()),
        volatile: is_volatile(dir, DEPTH_MAX),
        copy_on_write: kind.is_some_and(|k| k.copy_on_write) && !overwrites_in_place(dir),
        // tmpfs takes the flag, but there is nothing behind its page cache.
        direct: direct && !in_memory,
        free: bytes(stat.f_bavail),
        total: bytes(stat.f_blocks),
    })
}

/// The kind of a file system, if we know it.
fn kind_of(stat: &StatFs) -> Option<&'static FileSystemKind> {
    let magic = magic_of(stat);
    KINDS.iter().find(|k| k.magic == magic)
}

/// The number of a file system; the kernel's field is a signed word of the machine, of which 32 bits count.
fn magic_of(stat: &StatFs) -> u32 {
    let [a, b, c, d, ..] = stat.f_type.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The mount's own name for its file system (it tells ext2 from ext4, and the file system behind FUSE), else ours, else
/// a number.
fn name(stat: &StatFs, kind: Option<&FileSystemKind>, mount: Option<&Mount<'_>>) -> String {
    match (mount, kind) {
        (Some(mount), _) => mount.file_system.to_owned(),
        (None, Some(kind)) => kind.name.to_owned(),
        (None, None) => format!("unknown {:#x}", magic_of(stat)),
    }
}

/// Whether files below `path` are gone after a power cut. A file system of an unknown kind counts as lasting.
fn is_volatile(path: &Path, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    let Ok(stat) = rustix::fs::statfs(path) else {
        return false;
    };
    if kind_of(&stat).is_some_and(|k| k.volatile) {
        return true;
    }
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(mount) = mount_id(path).and_then(|id| mount_of(&mountinfo, id)) else {
        return false;
    };
    if mount.file_system == "overlay" {
        // So mounted, the overlay answers every sync without doing it; container builders use that. Linux 5.10 shows
        // `volatile`, Linux 6.18 `fsync=volatile`.
        let ignores_sync = mount.option("volatile").is_some()
            || mount.option("fsync").is_some_and(|mode| mode == Path::new("volatile"));
        return ignores_sync || mount.option("upperdir").is_some_and(|upper| is_volatile(&upper, depth));
    }
    device_is_volatile(mount.device, depth)
}

/// Whether the block device `major:minor` lives in memory: zram, brd, or a loop over a file that does.
fn device_is_volatile(device: &str, depth: u32) -> bool {
    let sys = PathBuf::from(format!("/sys/dev/block/{device}"));
    let Ok(target) = std::fs::read_link(&sys) else {
        return false;
    };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    if in_memory_device(&name) {
        return true;
    }
    match std::fs::read_to_string(sys.join("loop/backing_file")) {
        Ok(file) => is_volatile(Path::new(file.trim_end_matches('\n')), depth),
        Err(_) => false,
    }
}

/// Whether the kernel's name of a block device says that it lives in memory: `zram0`, `ram3`.
fn in_memory_device(name: &str) -> bool {
    ["zram", "ram"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())))
}

/// Whether new files in `dir` of a copying file system are exempt (`chattr +C` on btrfs).
fn overwrites_in_place(dir: &Path) -> bool {
    let flags = std::fs::File::open(dir).map_err(|_| ()).and_then(|d| rustix::fs::ioctl_getflags(&d).map_err(|_| ()));
    flags.is_ok_and(|flags| flags.contains(IFlags::NOCOW))
}

/// The kernel's number for the mount that holds `path` (Linux 5.8).
fn mount_id(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// A line of `/proc/self/mountinfo`, as proc_pid_mountinfo(5) describes it.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    device: &'a str,
    file_system: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    /// The value of an option of the file system, empty for one without value, unescaped.
    fn option(&self, name: &str) -> Option<PathBuf> {
        self.options.split(',').find_map(|option| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            (key == name).then(|| PathBuf::from(unescape(value)))
        })
    }
}

/// Finds a mount by its number.
fn mount_of(mountinfo: &str, id: u64) -> Option<Mount<'_>> {
    mountinfo.lines().find_map(|line| {
        // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        let (place, rest) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        if place.next()?.parse() != Ok(id) {
            return None;
        }
        let device = place.nth(1)?;
        let mut rest = rest.split(' ');
        let file_system = rest.next()?;
        let options = rest.nth(1).unwrap_or_default();
        Some(Mount { device, file_system, options })
    })
}

/// Undoes the kernel's octal escapes for space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:50 / /var/lib/box rw - overlay overlay rw,lowerdir=/a,upperdir=/run/my\\040box/up,workdir=/w,volatile
broken line
41 27 0:51 / /home rw - fuse.sshfs me@there:/ rw,user_id=0
";

    #[test]
    fn a_mount_is_found_by_its_number() {
        let root = mount_of(MOUNTINFO, 27).unwrap();
        assert_eq!(root, Mount { device: "254:0", file_system: "ext4", options: "rw,discard" });
        assert_eq!(root.option("upperdir"), None);
        assert_eq!(mount_of(MOUNTINFO, 41).unwrap().file_system, "fuse.sshfs");
        assert_eq!(mount_of(MOUNTINFO, 1), None);
    }

    #[test]
    fn options_of_an_overlay() {
        let overlay = mount_of(MOUNTINFO, 40).unwrap();
        assert_eq!(overlay.option("upperdir"), Some(PathBuf::from("/run/my box/up")));
        assert_eq!(overlay.option("volatile"), Some(PathBuf::new()));
        assert_eq!(overlay.option("upper"), None);
    }

    #[test]
    fn devices_in_memory() {
        assert!(in_memory_device("zram0"));
        assert!(in_memory_device("ram12"));
        for name in ["ram", "rampart", "sda1", "vda", "nvme0n1", "loop0", ""] {
            assert!(!in_memory_device(name), "{name}");
        }
    }
}
