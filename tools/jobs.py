"""jobs - runs what tools/check has to run, several at once, and counts.

A stage is what a line of the report is about; a job is one command of it. Tests are split by file into jobs of about
SHARD_S each, by what tests/seconds.tsv says of each file. Jobs that nothing waits for run by length, longest first."""
import collections
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache/check"
SECONDS = ROOT / "tests/seconds.tsv"
RED, OFF = ("\033[31m", "\033[m") if sys.stdout.isatty() else ("", "")
TAIL = 40
AT_ONCE = 4                             # runs of tests, beside a build: they mostly wait
TESTS = ("", "network")                 # lanes of tests
SHARD_S, UNKNOWN_S = 75, 10
DISK_GIB = 10                           # what the tests may hold at any moment
SLOWEST = 10


@dataclass
class Job:
    stage: str
    command: list
    count: object                       # of its log and status: passed, failed, skipped
    needs: list = field(default_factory=list)       # stages
    env: dict = field(default_factory=dict)
    seconds: float = UNKNOWN_S          # about
    lane: str = ""                      # one of a lane at a time: "build", "deps", "idle", "network"; "" is none
    result: Path = None                 # of pytest, with its cases
    number: int = 0                     # among those of its stage
    rank: float = 0                     # how long until the last of what waits for it is done
    process: object = None
    started: float = 0
    ended: float = 0

    def log(self):
        return LOGS / f"{self.stage.replace(' ', '-')}{f'-{self.number}' if self.number else ''}.log"


# --- what a job's output counts as: passed, failed, skipped -----------------------------------

def count_one(_job, status):
    return int(status == 0), int(status != 0), 0


def count_lint(job, _status):
    lines = job.log().read_text(errors="replace").splitlines()
    return sum(line.startswith("ok ") for line in lines), sum(line.startswith("FAIL ") for line in lines), 0


def count_meson(job, _status):
    """Meson's log: a line of JSON per program. TAP programs count case by case."""
    passed = failed = skipped = 0
    if not job.result.exists():
        return 0, 0, 0
    for line in job.result.read_text().splitlines():
        test = json.loads(line)
        cases = re.findall(r"^(not ok|ok)\b(.*)$", test.get("stdout") or "", re.M)
        bad = sum(verdict == "not ok" for verdict, _ in cases)
        skip = sum("# SKIP" in rest for _, rest in cases)
        good = test["result"] in ("OK", "EXPECTEDFAIL")
        passed += len(cases) - bad - skip if cases else good
        failed += bad or (not good and test["result"] != "SKIP")    # a crash is one failure
        skipped += skip or test["result"] == "SKIP"
    return passed, failed, skipped


def cases(job):
    """(file, name, seconds, verdict) of each."""
    if not job.result or job.result.suffix != ".xml" or not job.result.exists():
        return
    for case in xml.parse(job.result).iter("testcase"):
        file = case.get("classname", "").split(".")[-1]
        bad = case.find("failure") is not None or case.find("error") is not None
        skip = case.find("skipped") is not None
        yield file, case.get("name"), float(case.get("time", 0)), "failed" if bad else "skipped" if skip else "passed"


def count_pytest(job, status):
    verdicts = collections.Counter(verdict for *_, verdict in cases(job))
    # A file of which all is deselected is no failure: pytest says 5.
    return verdicts["passed"], verdicts["failed"] + (status not in (0, 1, 5) and not verdicts["failed"]), verdicts["skipped"]


# --- splitting --------------------------------------------------------------------------------

def known_seconds():
    """{(stage, file): seconds} of runs before."""
    if not SECONDS.exists():
        return {}
    lines = [line.split("\t") for line in SECONDS.read_text().splitlines() if line and not line.startswith("#")]
    return {(stage, file): float(seconds) for stage, file, seconds in lines}


def shards(stage, files):
    """Neighbours stay together, so that they share what a session starts. A build of which nothing is known takes as
    long as the release."""
    known, made, room = known_seconds(), [], 0
    kind, _, *rest = stage.split()
    for file in files:
        release = known.get((" ".join([kind, "release", *rest]), file.stem), UNKNOWN_S)
        seconds = known.get((stage, file.stem), release)
        if seconds > room:
            made.append(([], 0))
            room = SHARD_S
        room -= seconds
        made[-1] = made[-1][0] + [file], made[-1][1] + seconds
    return made


def write_seconds(jobs):
    """Of the runs just made; what was not run stays."""
    known = known_seconds()
    found = collections.Counter()
    for job in jobs:
        for file, _, seconds, _ in cases(job):
            found[job.stage, file] += seconds
    known.update(found)
    lines = [f"{stage}\t{file}\t{seconds:.1f}" for (stage, file), seconds in sorted(known.items()) if seconds >= 0.5]
    SECONDS.write_text("# stage, file, seconds: how tools/check splits its tests. Written by tools/check --seconds.\n"
                       + "\n".join(lines) + "\n")


# --- disk -------------------------------------------------------------------------------------

class DiskWatch(threading.Thread):
    """The most that the temporary directories of running jobs held at once."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.when, self.over = 0, "", threading.Event()

    @staticmethod
    def stage_of(path):
        """The stage that a scope's directory belongs to, if it is of this run."""
        pid = path.name.split("-")[2].split(".")[0]
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return None
        ours = f"COVE_CHECK={os.getpid()} "
        return next((word.removeprefix(ours) for word in words if word.startswith(ours)), None)

    def run(self):
        top, pause = Path(os.environ.get("TMPDIR", "/tmp")), 2
        while not self.over.wait(pause):
            begun, held = time.monotonic(), {}
            for path in top.glob("cove-scope-*.*"):
                stage = self.stage_of(path)
                if stage:
                    said = subprocess.run(["du", "-sxk", path], capture_output=True, text=True).stdout.split()
                    held[stage] = held.get(stage, 0) + int(said[0] if said else 0) * 1024
            if sum(held.values()) > self.most:
                self.most, self.when = sum(held.values()), max(held, key=held.get)
            pause = max(2, 20 * (time.monotonic() - begun))     # it costs the tests a twentieth at most

    def verdict(self):
        self.over.set()
        self.join()
        return self.most <= DISK_GIB << 30


# --- running ----------------------------------------------------------------------------------

class Run:
    def __init__(self):
        self.jobs, self.total, self.broken = [], collections.Counter(), set()
        self.counts = collections.defaultdict(collections.Counter)
        self.seconds = {}               # of each stage that is over
        self.notes = {}                 # stage: what is said of its log
        self.disk = DiskWatch()

    def add(self, stage, command, count=count_one, **more):
        job = Job(stage, command, count, **more)
        same = [other for other in self.jobs if other.stage == stage]
        job.number = len(same) + 1 if same else 0
        if len(same) == 1:
            same[0].number = 1
            job.number = 2
        self.jobs.append(job)
        return job

    def add_pytest(self, stage, command, files, suffix="", **more):
        """A job per shard of these files."""
        for part, seconds in shards(stage, files):
            job = self.add(stage, None, count_pytest, seconds=seconds + 5, **more)
            # by its first file: a number may still change
            job.result = LOGS / f"{stage.replace(' ', '-')}-{part[0].stem}{suffix}.xml"
            job.command = [*command, "-q", f"--junitxml={job.result}", *part]

    def rank(self):
        after = collections.defaultdict(list)
        for job in self.jobs:
            for stage in job.needs:
                after[stage].append(job)

        def of(job):
            if not job.rank:
                job.rank = job.seconds + max((of(later) for later in after[job.stage]), default=0)
            return job.rank
        for job in self.jobs:
            of(job)

    def begin(self, job):
        if job.result:
            job.result.unlink(missing_ok=True)
        first = ["chrt", "--idle", "0"] if job.lane == "idle" else []
        with job.log().open("w") as out:
            job.process = subprocess.Popen([*first, *map(str, job.command)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **job.env, "COVE_CHECK": f"{os.getpid()} {job.stage}"})
        job.started = time.monotonic()

    def end(self, job):
        status = job.process.returncode
        job.ended = time.monotonic()
        passed, failed, skipped = job.count(job, status)
        if status not in (0, 5) and failed == 0:
            failed += 1                 # it broke outside any test
        counts = self.counts[job.stage]
        counts.update(passed=passed, failed=failed, skipped=skipped)
        if failed:
            self.show(job)
        ours = [other for other in self.jobs if other.stage == job.stage]
        if all(other.ended for other in ours):
            self.report(job.stage, ours)

    @staticmethod
    def processor_s(job):
        return sum(map(int, re.findall(r"^scope: (\d+) s of processor time$", job.log().read_text(errors="replace"), re.M)))

    def show(self, job):
        lines = job.log().read_text(errors="replace").splitlines()
        print("\n".join("    " + line for line in lines[-TAIL:]))
        print(f"    {job.log().relative_to(ROOT)}", flush=True)

    def report(self, stage, jobs):
        counts = self.counts[stage]
        if not sum(counts.values()):
            counts["failed"] += 1       # it ran none at all
        if counts["failed"]:
            self.broken.add(stage)
        self.total.update(counts)
        ran = [job for job in jobs if job.process]
        wall = max(job.ended for job in ran) - min(job.started for job in ran)
        work = sum(job.ended - job.started for job in ran)
        processor = sum(map(self.processor_s, ran))
        self.seconds[stage] = wall
        words = [f"{counts['passed']} passed"] * (counts["passed"] > 1) + [f"{counts['failed']} failed"] * (counts["failed"] > 0) \
            + [f"{counts['skipped']} skipped"] * (counts["skipped"] > 0) \
            + [f"{len(ran)} runs of {work:.0f} s in all"] * (len(ran) > 1) + [f"{processor} s of processor"] * (processor > 0)
        verdict = f"{RED}FAIL{OFF}" if counts["failed"] else "ok  "
        print(f"{stage:28} {verdict} {wall:6.1f} s  {', '.join(words)}".rstrip(), flush=True)
        if stage in self.notes:
            print(f"{'':28} {self.notes[stage](jobs)}", flush=True)

    def over(self, stage):
        return all(job.ended for job in self.jobs if job.stage == stage)

    def skip(self, job, why):
        job.ended = time.monotonic()
        if all(other.ended and not other.process for other in self.jobs if other.stage == job.stage):
            print(f"{job.stage:28} not run: {why}", flush=True)

    def startable(self, job, running):
        if job.lane and any(other.lane == job.lane for other in running):
            return False
        if job.lane in TESTS and sum(other.lane in TESTS for other in running) >= AT_ONCE:
            return False
        return all(self.over(stage) for stage in job.needs)

    def all(self):
        """Runs everything there is. A failing stage stops only those that need it."""
        self.rank()
        self.disk.start()
        waiting, running = sorted(self.jobs, key=lambda job: -job.rank), []
        try:
            while waiting or running:
                for job in [job for job in waiting if self.broken & set(job.needs)]:
                    waiting.remove(job)
                    self.broken.add(job.stage)
                    self.skip(job, "without " + ", ".join(self.broken & set(job.needs)))
                for job in list(waiting):
                    if self.startable(job, running):
                        waiting.remove(job)
                        self.begin(job)
                        running.append(job)
                time.sleep(0.1)
                for job in [job for job in running if job.process.poll() is not None]:
                    running.remove(job)
                    self.end(job)
        finally:
            for job in running:         # with all that it started
                os.killpg(job.process.pid, signal.SIGTERM)
            for job in running:
                job.process.wait()
        return not self.total["failed"]

    def slowest(self):
        found = [(seconds, job.stage, f"{file}::{name}") for job in self.jobs for file, name, seconds, _ in cases(job)]
        return sorted(found, reverse=True)[:SLOWEST]
