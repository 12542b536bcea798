"""Work that is put to sleep in the evening and goes on in the morning where it was: in a shell, in memory.

A paused sandbox uses no processor. On a server of its own (COVE_URL) it also survives the end of this program.
"""

import time

from cove import NotSupportedError, Sandbox


def main() -> None:
    sandbox = Sandbox.create(timeout=3600, on_expiry="pause", metadata={"work": "overnight"})
    try:
        # Whoever reads a file while it is written sees a part of it: a new one takes its place at once.
        work = sandbox.commands.start(
            "for i in $(seq 1 100000); do echo $i > new; mv new at; sleep 0.05; done"
        )
        time.sleep(0.5)
        try:
            sandbox.pause()
        except NotSupportedError as problem:
            print(f"this machine cannot pause: {problem}")
            return
        print("evening:", sandbox.info().state)

        # In the morning, perhaps in another process: found by its metadata, awake with the first call.
        info = Sandbox.list(metadata={"work": "overnight"}, client=sandbox.client)[0]
        again = Sandbox.connect(info.id, client=sandbox.client)
        first = int(again.files.read("at"))
        time.sleep(0.5)
        print(
            "morning:",
            again.info().state,
            "and counting" if int(again.files.read("at")) > first else "",
        )
        print(again.commands.list()[0].pid == work.pid)
        work.close()
    finally:
        sandbox.kill()
        sandbox.close()


if __name__ == "__main__":
    main()
