"""A server whose keeper is a service of its own, and may be of another release."""

import pathlib
import shutil
import signal
import socket
import subprocess

from helpers.cove import CLEAR
from world import VOLUME, World, wait_for

CLIENT = "nobody"                       # whom the server becomes, by name: the keeper is told


class Apart(World):
    keep = None                         # its process
    program_of_keeper, shared = None, None          # to be set before it is made

    def start(self):
        """Its own keeper finds the place taken."""
        if not self.keep:
            self.start_keeper(self.program_of_keeper)
        try:
            super().start()
        except AssertionError:
            self.keep.kill()
            raise

    def start_keeper(self, program):
        self.folder.mkdir(exist_ok=True)
        copy = self.folder / "cove-of-keeper"
        copy.unlink(missing_ok=True)
        shutil.copy(program, copy)
        with open(self.folder / "keep.log", "ab") as log:
            self.keep = subprocess.Popen(
                [copy, "keep", "--data-dir", self.data, "--run-dir", self.run_dir, "--client", CLIENT,
                 "--allow-mount", self.shared, *VOLUME], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=CLEAR)
        wait_for(self.keeper_answers, lambda: f"no keeper: {(self.folder / 'keep.log').read_text()[-2000:]}", 60)

    def keeper_answers(self):
        assert self.keep.poll() is None, (self.folder / "keep.log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            return one.connect_ex(str(pathlib.Path(self.place, "keep.sock"))) == 0

    def end_keeper(self):
        """The server's own one takes its place within two seconds."""
        self.keep.send_signal(signal.SIGTERM)
        assert self.keep.wait(30) == 0, (self.folder / "keep.log").read_text()[-2000:]
        self.keep = None

    def stop(self):
        super().stop()
        if self.keep:
            self.end_keeper()

    def abandon(self):
        if self.keep:
            self.keep.kill()
            self.keep.wait(10)
        super().abandon()
