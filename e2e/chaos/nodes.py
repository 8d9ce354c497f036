"""The nodes of the local cluster, which are containers of this machine: their processes, disks, clocks and power."""

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.support.waiting import eventually

from e2e.chaos.checks import Belongings, belongings_of
from tdcs_local import shell
from tdcs_local.containers import faketime
from tdcs_local.errors import LocalError

STATE = "/var/lib/tdcs"
"""What TDCS keeps on a node."""
RESULTS = "/var/lib/tdcs-chaos"
"""What the pods of a run have read, in a file for each pod: it outlives pods and power cuts."""
DISK = "/var/tdcs-disk.img"
DISK_SIZE = "2500M"
"""A little more than the capacity of the cache. The file is sparse."""
FILLER = f"{STATE}/filler"
CLOCK = "/var/lib/tdcs-clock"
"""On the node: the offset of its containers' clock, and the library that applies it."""
CLOCK_INSIDE = "/tdcs-clock"
"""The same in a container."""
CONTAINERS = "/etc/containerd/container-spec.json"
"""What every container of the node is made with."""
MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
AWAY = "/etc/kubernetes/kube-apiserver.yaml"
UNDO_SECONDS = 120.0

SIGNAL = r"""
ctr --namespace k8s.io tasks ps "$1" | while read -r process rest; do
  case $process in ''|*[!0-9]*) continue ;; esac
  if kill -s "$2" "$process" 2>/dev/null; then echo "$process"; fi
done
"""
# The table of file systems has it mounted again when the node starts, before kubelet does. A container has the loop
# devices that there were when it started, so the next one may have to be made.
GIVE_DISK = f"""
truncate --size={DISK_SIZE} {DISK}
mkfs.ext4 -q -m 0 {DISK}
mkdir -p {STATE}
echo '{DISK} {STATE} ext4 loop 0 0' >> /etc/fstab
# Which of them is free can change until it is mounted: other nodes take some, too.
for number in $(seq 0 255); do test -b /dev/loop$number || mknod /dev/loop$number b 7 $number; done
mount {STATE}
"""
# All but a little is only reserved, which takes no room on this machine's own disk.
FILL = f"""
free=$(df --block-size=1 --output=avail {STATE} | tail -n 1)
fallocate --length $((free > 4194304 ? free - 4194304 : 4096)) {FILLER}
cat /dev/zero >> {FILLER} 2>/dev/null || true
df --block-size=1 --output=avail {STATE} | tail -n 1
"""
# Each container from now on is made with the library; what runs already goes on without.
GIVE_CLOCK = f"""
chmod 0755 {CLOCK}
echo +0 > {CLOCK}/{faketime.OFFSET}
jq --argjson env "$1" --argjson mount "$2" '.process.env += $env | .mounts += [$mount]' {CONTAINERS} > {CONTAINERS}.new
mv {CONTAINERS}.new {CONTAINERS}
systemctl restart containerd
"""
# What is mounted for pods or inside of TDCS's folder, and what TDCS has written for a Dataset: blocks, also those that
# the worker does not have yet, notes of wrong ones, manifests, versions that the remote-read client shows, and views.
# One a line, with its kind. The place for manifests on their way stays.
BELONGINGS = f"""
files() {{
  kind=$1 && shift
  for path; do find {STATE} -path "$path" -type f 2>/dev/null | sed "s/^/$kind /" || true; done
}}
files block '*/alluxioworker/*' '*/agent/spool/*' '*/agent/kept/*' '*/agent/partial/*'
files refused '*/agent/refused/*'
files manifest '*/agent/manifests/*' '*/views/.manifests/*'
files registration {STATE}/reader/versions/'*'
find {STATE} -mindepth 4 -maxdepth 5 -path '*/views/*' ! -name .manifests -type d 2>/dev/null | sed 's/^/view /' || true
while read -r _ _ _ _ point _; do
  case $point in {STATE}/*|*/kubernetes.io~csi/*) echo "mount $point" ;; esac
done < /proc/self/mountinfo
"""


@dataclass(frozen=True)
class Node:
    """A node, by its name, which is its container's."""

    name: str

    def run(self, script: str, *words: str, timeout: float = 60) -> str:
        """Run a shell script as root on the node; what it prints. Raises :class:`LocalError` when it fails."""
        return shell.capture(
            ["docker", "exec", self.name, "sh", "-ec", script, "sh", *words], timeout=timeout
        )

    def signal(self, container: str, signal: str) -> int:
        """Send a signal to every process of a container of a pod; how many got it."""
        return len(self.run(SIGNAL, container, signal).split())

    def cut_power(self) -> None:
        """Kill everything on the node at once, and start it again."""
        # Not `docker restart`: it asks the node to stop first, and processes would hear of it.
        shell.capture(["docker", "kill", self.name], timeout=60)
        shell.capture(["docker", "start", self.name], timeout=180)

    def has_own_disk(self) -> bool:
        """Whether TDCS's folder is a file system of its own."""
        script = f"test -d {STATE} && mountpoint -q {STATE} && echo yes || echo no"
        return self.run(script) == "yes"

    def has_tdcs(self) -> bool:
        """Whether TDCS has written to the node."""
        # A file system of its own has a folder before TDCS does.
        return self.run(f"ls -A {STATE} 2>/dev/null | grep -v '^lost+found$' | head -n 1") != ""

    def give_disk(self) -> None:
        """Give TDCS's folder a small file system of its own. Only before TDCS is installed."""
        self.run(GIVE_DISK, timeout=120)

    def has_own_clock(self) -> bool:
        """Whether the containers of the node have a clock that can be set."""
        return self.run(f"test -e {CLOCK}/{faketime.OFFSET} && echo yes || echo no") == "yes"

    def give_clock(self, library: Path) -> None:
        """Give the containers of the node a clock of their own. Only before TDCS is installed."""
        self.run(f"mkdir -p {CLOCK}")
        shell.capture(["docker", "cp", str(library), f"{self.name}:{CLOCK}/{faketime.LIBRARY}"], timeout=60)
        environment = [f"{name}={value}" for name, value in faketime.environment(CLOCK_INSIDE).items()]
        mount = {"destination": CLOCK_INSIDE, "source": CLOCK, "type": "bind", "options": ["rbind", "ro"]}
        self.run(GIVE_CLOCK, json.dumps(environment), json.dumps(mount))

    def set_clock(self, seconds: float) -> None:
        """Set that clock so many seconds forward of the real time, or back; the containers see it within a second."""
        file = f"{CLOCK}/{faketime.OFFSET}"
        self.insist(f"echo {seconds:+.0f} > {file}.new && mv {file}.new {file}")

    def fill(self) -> int:
        """Fill that file system; the bytes that are free then."""
        return int(self.run(FILL, timeout=120))

    def free(self) -> None:
        """Free it again."""
        self.insist(f"rm -f {FILLER}")

    def stop_api_server(self) -> None:
        """Take the API server away: kubelet ends it when its manifest is gone."""
        self.run(f"mv {MANIFEST} {AWAY}")

    def start_api_server(self) -> None:
        """Give it back."""
        self.insist(f"if test -e {AWAY}; then mv {AWAY} {MANIFEST}; fi")

    def insist(self, script: str, *words: str) -> str:
        """Run a script that undoes something, again for a while when the node does not answer."""
        answer = eventually(
            lambda: [self.run(script, *words)],  # what it prints may be empty
            deadline=UNDO_SECONDS,
            retry_on=(LocalError,),
            interval=1.0,
            describe=f"node {self.name} was asked for: {script}",
        )
        return answer[0]

    def prepare_results(self) -> None:
        """Make the folder of what pods have read, empty, and for every user."""
        self.run(f"rm -rf {RESULTS} && mkdir {RESULTS} && chmod 1777 {RESULTS}")

    def results(self, kind: str) -> dict[str, str]:
        """What pods on the node have written into files of this suffix, by the name of the pod."""
        names = self.insist(f"ls {RESULTS}").split()
        return {
            PurePosixPath(name).stem: self.insist(f'cat "{RESULTS}/$1"', name)
            for name in names
            if PurePosixPath(name).suffix == kind
        }

    def remove_results(self) -> None:
        """Remove the folder."""
        self.insist(f"rm -rf {RESULTS}")

    def belongings(self) -> Belongings:
        """What TDCS has on the node."""
        return belongings_of(self.insist(BELONGINGS))
