//! One guest in QEMU, with the devices that Proxmox gives a VM: an IDE CD-ROM as `ide0`, virtio
//! network devices from slot 18 on, the agent's port on a virtio serial bus.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testbed::Process;
use testbed::say::say;

use super::root::Root;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// How long a kernel may take to its first line under KVM before KVM counts as unusable.
const FIRST_LINE: Duration = Duration::from_secs(20);

/// Between two looks at a console.
const LOOK: Duration = Duration::from_millis(500);

/// Who computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG (emulated)",
        }
    }

    const fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host,-arch-capabilities"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// KVM where a kernel really starts on it. That `/dev/kvm` opens is not enough: hosts that are
    /// guests themselves may have one on which no ordinary kernel runs.
    pub(crate) fn choose(root: &Root, log: &Path) -> Result<Self> {
        if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Self::Tcg);
        }
        let console = log.join("kvm-console.log");
        let mut arguments = Self::Kvm.arguments().map(str::to_owned).to_vec();
        arguments.extend(machine(root, &console, "earlyprintk=ttyS0 panic=-1")?);
        let _ = fs::remove_file(&console);
        let mut qemu = Process::start("kvm", Path::new(QEMU), arguments, &[], log)?;
        let start = Instant::now();
        while start.elapsed() < FIRST_LINE && qemu.exit_status().is_none() {
            if text(&console).contains("Linux version") {
                qemu.kill_hard()?;
                return Ok(Self::Kvm);
            }
            std::thread::sleep(LOOK);
        }
        qemu.kill_hard()?;
        say("/dev/kvm is there, but no kernel starts on it; emulating instead");
        Ok(Self::Tcg)
    }
}

/// What a network device of the VM is plugged into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// QEMU's user-mode network without a way out: `10.<n>.0.0/24` and `2001:db8:<n>::/64`, a
    /// gateway at 1 that answers, DHCP from 15 on.
    User(u8),
    /// The same without IPv6.
    UserV4(u8),
    /// A hub with nobody else on it.
    Isolated,
}

/// A running guest. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    qemu: Process,
    folder: PathBuf,
    socket: PathBuf,
}

impl Guest {
    /// Boots `image`, whose changes are thrown away, with the seed in `ide0`.
    pub(crate) fn start(
        accelerator: Accelerator,
        (root, image): (&Root, &Path),
        (uuid, iso): (&str, &[u8]),
        devices: &[(&str, Wire)],
        folder: &Path,
    ) -> Result<Self> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
        let seed = folder.join("seed.iso");
        fs::write(&seed, iso)?;
        // A socket's path may have some hundred bytes; a checkout's may be longer.
        let socket = std::env::temp_dir().join(format!("capmox-boot-{}.qga", std::process::id()));
        let _ = fs::remove_file(&socket);
        let mut arguments = accelerator.arguments().map(str::to_owned).to_vec();
        arguments.extend(machine(root, &folder.join("console.log"), "root=/dev/vda rw")?);
        let drive = |path: &Path, rest: &str| format!("file={},{rest}", path.display());
        let words = folder.join("words.log");
        for (key, value) in [
            ("-uuid", uuid.to_owned()),
            ("-drive", drive(image, "format=raw,if=virtio,snapshot=on")),
            ("-drive", drive(&seed, "format=raw,if=none,id=seed,media=cdrom,readonly=on")),
            ("-device", "ide-cd,bus=ide.0,unit=0,drive=seed".to_owned()),
            ("-serial", format!("file:{}", words.display())),
            ("-device", "virtio-serial".to_owned()),
            ("-chardev", format!("socket,id=qga0,path={},server=on,wait=off", socket.display())),
            ("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0".to_owned()),
        ] {
            arguments.extend([key.to_owned(), value]);
        }
        for (index, (mac, wire)) in devices.iter().enumerate() {
            arguments.extend(network(index, mac, *wire));
        }
        let temporary = [("TMPDIR".to_owned(), folder.display().to_string())];
        let qemu = Process::start("qemu", Path::new(QEMU), arguments, &temporary, folder)?;
        let mut guest = Self { qemu, folder: folder.to_owned(), socket };
        guest.wait("QEMU's socket", Duration::from_secs(20), |guest| guest.socket.exists())?;
        Ok(guest)
    }

    /// The agent's socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What the guest wrote to its second serial port.
    pub(crate) fn words(&self) -> String {
        text(&self.folder.join("words.log"))
    }

    /// Waits until `ready` says yes; fails with the end of the console.
    pub(crate) fn wait(
        &mut self,
        what: &str,
        within: Duration,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        while !ready(self) {
            if let Some(status) = self.qemu.exit_status() {
                bail!("{what}: QEMU ended with {status}: {}", self.qemu.log_tail(5));
            }
            if start.elapsed() > within {
                bail!("{what}: not within {} s; {}", within.as_secs(), self.last_words());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The end of the console.
    pub(crate) fn last_words(&self) -> String {
        let console = text(&self.folder.join("console.log"));
        let lines: Vec<&str> = console.lines().collect();
        let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default();
        format!("the console ends with:\n{}", last.join("\n"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill_hard();
        let _ = fs::remove_file(&self.socket);
    }
}

/// The bare machine with kernel and console.
fn machine(root: &Root, console: &Path, append: &str) -> Result<Vec<String>> {
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
    let words = ["-machine", "pc", "-m", "1024", "-smp", "2", "-display", "none", "-nodefaults"];
    let mut all: Vec<String> = words.map(str::to_owned).to_vec();
    for (key, value) in [
        ("-kernel", path(&root.kernel())?),
        ("-initrd", path(&root.initrd())?),
        ("-append", format!("console=ttyS0 {append}")),
        ("-serial", format!("file:{}", path(console)?)),
    ] {
        all.extend([key.to_owned(), value]);
    }
    all.push("-no-reboot".to_owned());
    Ok(all)
}

fn network(index: usize, mac: &str, wire: Wire) -> [String; 4] {
    let v4 = |n: u8| format!("restrict=on,net=10.{n}.0.0/24,host=10.{n}.0.1,dns=10.{n}.0.3");
    let backend = match wire {
        Wire::User(n) => format!(
            "user,id=net{index},{},ipv6-prefix=2001:db8:{n}::,ipv6-prefixlen=64,\
             ipv6-host=2001:db8:{n}::1,ipv6-dns=2001:db8:{n}::3",
            v4(n)
        ),
        Wire::UserV4(n) => format!("user,id=net{index},ipv6=off,{}", v4(n)),
        Wire::Isolated => format!("hubport,id=net{index},hubid={index}"),
    };
    // Proxmox' net0 is in slot 0x12.
    let slot = 0x12 + index;
    let device = format!("virtio-net-pci,netdev=net{index},mac={mac},addr={slot:#x},romfile=");
    ["-netdev".to_owned(), backend, "-device".to_owned(), device]
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
