"""A kernel for bash: one shell that keeps its variables, functions and directory between requests.

Used where the sandbox has no kernel spec for bash of its own. The shell reads commands from a pipe; the end of
each is told on a descriptor of its own, so that nothing a command prints can be taken for it.
"""
import os
import selectors
import signal
import subprocess
import sys

if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

try:
    from ipykernel.kernelapp import IPKernelApp  # noqa: E402
    from ipykernel.kernelbase import Kernel  # noqa: E402
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(78)  # engine.c says what to do


class BashKernel(Kernel):
    implementation = "cove-bash"
    implementation_version = "1"
    banner = "bash"
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.start_shell()

    def start_shell(self):
        report, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        self.report = report
        self.bash = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[theirs],
                                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.bash.stdin.write(b"trap ':' INT\n")  # ends what it runs, not the shell
        self.theirs = theirs

    def script(self, code):
        """Runs the code in the shell itself, and tells its status."""
        quoted = code.replace("'", "'\\''")
        return (f"eval '{quoted}' </dev/null {self.theirs}>&-\n"
                f"{{ printf '%d\\n' $? >&{self.theirs}; }} 2>/dev/null\n").encode()

    def send_text(self, name, data, silent):
        if data and not silent:
            self.send_response(self.iopub_socket, "stream",
                               {"name": name, "text": data.decode("utf-8", "replace")})

    def follow(self, silent):
        """Passes output on until the shell reports the status; None: the shell has ended."""
        status, streams = None, selectors.DefaultSelector()
        for file, name in ((self.bash.stdout, "stdout"), (self.bash.stderr, "stderr")):
            os.set_blocking(file.fileno(), False)
            streams.register(file.fileno(), selectors.EVENT_READ, name)
        streams.register(self.report, selectors.EVENT_READ, None)
        ended, open_streams = False, 2
        while True:
            ready = streams.select(0 if ended else 0.2)
            for key, _ in ready:
                if key.data is None:
                    status, ended = int(os.read(self.report, 64).split()[-1]), True
                    streams.unregister(self.report)
                    continue
                data = os.read(key.fd, 65536)
                if not data:
                    streams.unregister(key.fd)
                    open_streams -= 1
                self.send_text(key.data, data, silent)
            if (ended and not ready) or not open_streams or (not ready and self.bash.poll() is not None):
                streams.close()
                return status

    def run_code(self, code, silent):
        try:
            self.bash.stdin.write(self.script(code))
            self.bash.stdin.flush()
        except BrokenPipeError:
            return None
        while True:
            try:
                return self.follow(silent)
            except KeyboardInterrupt:
                self.interrupted = True  # the whole group was sent the signal, so the command ends

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **kwargs):
        if not code.strip():
            return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        self.interrupted = False
        status = self.run_code(code, silent)
        if status is None:
            status = self.bash.wait()
            os.close(self.report)
            os.close(self.theirs)
            self.start_shell()
        if status == 0 and not self.interrupted:
            return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        name = "KeyboardInterrupt" if self.interrupted else "ExitCode"
        error = {"ename": name, "evalue": str(status), "traceback": [f"exit status {status}"]}
        if not silent:
            self.send_response(self.iopub_socket, "error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}

    def do_shutdown(self, restart):
        self.bash.kill()
        self.bash.wait()  # as a zombie it is a child that ipykernel waits seconds for
        return {"status": "ok", "restart": restart}


class KernelApp(IPKernelApp):
    def start(self):
        """ipykernel next ends the thread that sends output. The control thread may still flush to it, and
        would wait for it, seconds or for ever: it ends first (warm.py does the same)."""
        super().start()
        control = getattr(self, "control_thread", None)
        if control:
            control.stop()
            control.join()


KernelApp.launch_instance(kernel_class=BashKernel)
