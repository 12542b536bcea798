"""The warmed parent of Python kernels.

It imports what a kernel imports, once, and then forks kernels, which are ready in a few hundredths of a
second. Requests come as JSON on descriptor 0, a SEQPACKET socket; each is answered with the process id and
a pidfd. The parent never makes a thread, an event loop or a ZeroMQ context: none of them survives a fork.
It ends, and its kernels with it, when the other end of the socket is closed.
"""
import gc
gc.disable()  # imports make much that stays: looking through it again and again is a tenth of their time
import array  # noqa: E402
import json
import os
import select
import signal
import socket
import sys

sock = socket.socket(fileno=os.dup(0))
HEAD_START_S = 0.7
forked = []
null = os.open("/dev/null", os.O_RDWR)
os.dup2(null, 0)
os.close(null)
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # this program's directory is no place to import from


def die_with(parent):
    """The kernel gets SIGKILL when the parent ends: nobody would look after it any more."""
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def reseed():
    """random reseeds itself after a fork, numpy's global generator does not."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def output_thread(base):
    """Wakes the thread that sends messages once for all that wait for it. ipykernel wakes it for each, and
    two threads that hand the interpreter's lock to and fro for every message send half as many."""
    import threading

    class OutputThread(base):
        waker = None  # whose call is under way: each thread has a pipe of its own, which ends with it

        def schedule(self, f):
            if not self.thread.is_alive():
                return f()
            self._events.append(f)
            self.wake()

        def wake(self):
            me = threading.current_thread()
            if self.waker is not me:
                self.waker = me
                self._event_pipe.send(b"")

        def _handle_event(self, msg):
            self.waker = None  # before what waits is counted: who comes later wakes again
            try:
                super()._handle_event(msg)
            finally:
                if self._events:
                    self.wake()

    known = all(hasattr(base, name) for name in ("schedule", "_handle_event", "_event_pipe"))
    return OutputThread if known else base


def become_kernel(request, parent):
    sock.close()
    os.setsid()
    die_with(parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    reseed()
    sys.argv = ["ipykernel_launcher", "-f", request["file"]]
    import importlib
    importlib.invalidate_caches()
    import zmq
    from ipykernel import kernelapp
    kernelapp.IOPubThread = output_thread(kernelapp.IOPubThread)

    class KernelApp(kernelapp.IPKernelApp):
        def init_iopub(self, context):
            """Output that nobody takes yet makes the kernel wait; plain ZeroMQ would drop it."""
            context.setsockopt(zmq.XPUB_NODROP, 1)
            super().init_iopub(context)
            context.sockopts.pop(zmq.XPUB_NODROP, None)

        def start(self):
            """ipykernel next ends the thread that sends output. The control thread may still flush to it,
            and would wait for it, seconds or for ever: it ends first (bash.py does the same)."""
            gc.enable()
            super().start()
            control = getattr(self, "control_thread", None)
            if control:
                control.stop()
                control.join()

    # a history in memory: the file costs an fsync, and all kernels would wait for its lock
    KernelApp.launch_instance(sys.argv[1:] + ["--HistoryManager.hist_file=:memory:",
                                              "--IPKernelApp.parent_handle=1"])  # no poller thread


def answer(request):
    """True in the new kernel."""
    if len(os.listdir("/proc/self/task")) > 1:
        os._exit(3)  # something made a thread: a fork would copy its locks and not the thread
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_kernel(request, parent)
        return True
    forked.append(pid)
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:  # it has ended already; the others have not, and would end with us
        sock.send(json.dumps({"pid": pid}).encode())
        return False
    sock.sendmsg([json.dumps({"pid": pid}).encode()],
                 [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    return False


def serve(seconds):
    """Answers requests until none came for so long; True in a new kernel, which has nothing more to do here."""
    while select.select([sock], [], [], seconds)[0]:
        data = sock.recv(1 << 20)
        if not data:
            os._exit(0)
        if answer(json.loads(data)):
            return True
    return False


def warm():
    """Builds what every kernel builds, and takes it apart: traits are set up at their first use."""
    import atexit
    import builtins
    saved = sys.stdout, sys.stderr, sys.displayhook, sys.excepthook, sys.modules["__main__"]
    names = dict(vars(builtins))
    import comm, pdb, sqlite3, zmq.asyncio, tornado.platform.asyncio  # noqa: E401,F401
    import IPython.core.completer, IPython.core.history, IPython.core.completerlib  # noqa: E401,F401
    import IPython.core.magics, IPython.core.debugger, IPython.core.oinspect  # noqa: E401,F401
    import ipykernel.heartbeat, ipykernel.iostream, ipykernel.ipkernel  # noqa: E401,F401
    for name in ("jedi", "psutil", "ipykernel.debugger"):
        try:
            __import__(name)
        except Exception:
            pass  # each is only a help
    from traitlets.config import Config
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQInteractiveShell
    app = IPKernelApp()
    app.parse_command_line(["-f", "/nowhere", "--HistoryManager.hist_file=:memory:"])
    shell = ZMQInteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_cell("1 + 1\nasync def f(): pass\nawait f()", silent=True)
    shell.complete("impo")
    atexit.unregister(shell.atexit_operations)
    ZMQInteractiveShell.clear_instance()
    IPKernelApp.clear_instance()
    sys.stdout, sys.stderr, sys.displayhook, sys.excepthook, sys.modules["__main__"] = saved
    for name in set(vars(builtins)) - set(names):
        delattr(builtins, name)
    vars(builtins).update(names)


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects the kernels
    try:
        import ipykernel.kernelapp  # noqa: F401
    except Exception as e:
        sock.send(json.dumps({"error": f"{sys.executable}: {e}"}).encode())
        return
    gc.freeze()  # or collections in the children would unshare every page
    # Who waits already is not made to wait for the warming, nor to share the processor with it: his
    # kernel begins first.
    if serve(0) or (forked and serve(HEAD_START_S)):
        return
    try:
        warm()
    except Exception as e:  # another version of ipykernel: colder forks, but forks
        print("not warmed:", repr(e), file=sys.stderr)
    gc.collect()
    forked.clear()
    gc.freeze()
    sock.send(json.dumps({"ready": True, "modules": len(sys.modules)}).encode())
    serve(None)


main()
