"""The warmed parent of Python kernels.

It imports what a kernel imports, once, and then forks kernels, which are ready in a few hundredths of a
second. Requests come as JSON on descriptor 0, a SEQPACKET socket, each with a number and the end of a pipe, and
are answered with that number and the process id. The parent never makes a thread, an event loop or a ZeroMQ
context: none of them survives a fork. It ends when the other end of the socket is closed.

A kernel is the child of a child that has ended, and so of the service, which is a subreaper: what becomes of
this parent is nothing to it. It begins when it is told so on its pipe; one that nobody waits for any more reads
the pipe's end instead.
"""
import gc
gc.disable()  # imports make much that stays: looking through it again and again is a tenth of their time
import json  # noqa: E402
import os
import select
import signal
import socket
import sys

sock = socket.socket(fileno=os.dup(0))
HEAD_START_S = 0.7
forks = 0
service = os.getppid()
null = os.open("/dev/null", os.O_RDWR)
os.dup2(null, 0)
os.close(null)
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # this program's directory is no place to import from


def say(**words):
    try:
        sock.send(json.dumps(words).encode())
    except OSError:
        os._exit(0)  # nobody is there to be told


def die_with_service():
    """The kernel gets SIGKILL when the service ends: nobody would look after it any more."""
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != service:
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


def become_kernel(request, begin):
    sock.close()
    os.setsid()
    if os.read(begin, 1) != b"b":
        os._exit(0)
    os.close(begin)
    die_with_service()  # by now whoever forked us has ended: the service knows our number
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


def fork(request, begin):
    """A kernel's process id, 0 in the kernel itself; OSError: it could not be made."""
    global forks
    if select.select([begin], [], [], 0)[0]:
        raise OSError("nobody waits for it any more")
    number, told = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(number)
        os.close(told)
        raise
    if between == 0:
        pid = -1
        try:
            os.close(number)
            pid = os.fork()
            if pid:
                os.write(told, str(pid).encode())
        except OSError as e:
            os.write(told, str(e).encode())
        finally:
            if pid:
                os._exit(0)  # whatever happened: there is one parent
        os.close(told)
        return 0
    os.close(told)
    said = os.read(number, 256).decode()
    os.close(number)
    os.waitpid(between, 0)  # only then the kernel is the service's child
    if not said.isdigit():
        raise OSError(said or "the process between has ended")
    forks += 1
    return int(said)


def answer(data, begin):
    """True in the new kernel."""
    if len(os.listdir("/proc/self/task")) > 1:
        os._exit(3)  # something made a thread: a fork would copy its locks and not the thread
    request = json.loads(data)
    try:
        if not begin:
            raise OSError("no descriptor came with the request")
        pid = fork(request, begin[0])
    except OSError as e:
        pid = -1
        say(number=request["number"], failed=f"fork: {e}")
    if pid == 0:
        become_kernel(request, begin[0])
        return True
    if pid > 0:
        say(number=request["number"], pid=pid)
    for fd in begin:
        os.close(fd)
    return False


def serve(seconds):
    """Answers requests until none came for so long; True in a new kernel, which has nothing more to do here."""
    while select.select([sock], [], [], seconds)[0]:
        data, begin, _, _ = socket.recv_fds(sock, 1 << 20, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        if answer(data, begin):
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
    try:
        import ipykernel.kernelapp  # noqa: F401
    except (OSError, MemoryError):
        raise  # of the moment: it says nothing about the interpreter
    except Exception as e:
        say(error=f"{sys.executable}: {e}")
        return
    gc.freeze()  # or collections in the children would unshare every page
    # Who waits already is not made to wait for the warming, nor to share the processor with it: his
    # kernel begins first.
    if serve(0) or (forks and serve(HEAD_START_S)):
        return
    try:
        warm()
    except Exception as e:  # another version of ipykernel: colder forks, but forks
        print("not warmed:", repr(e), file=sys.stderr)
    gc.collect()
    gc.freeze()
    say(ready=True, modules=len(sys.modules))
    serve(None)


main()
