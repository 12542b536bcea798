"""Ordinary work in a sandbox on template host: what people and agents do all day has to work, as
the sandbox's user and as its root."""

import shutil

import pytest

WHEEL = r'''
import hashlib, base64, zipfile
files = {
    "hello_cove.py": "def greet():\n    return 'greetings'\n",
    "hello_cove-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello-cove\nVersion: 1.0\n",
    "hello_cove-1.0.dist-info/WHEEL":
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "hello_cove-1.0.dist-info/entry_points.txt":
        "[console_scripts]\nhello-cove = hello_cove:greet\n",
}
record = "hello_cove-1.0.dist-info/RECORD"
with zipfile.ZipFile("hello_cove-1.0-py3-none-any.whl", "w") as z:
    lines = []
    for name, text in files.items():
        z.writestr(name, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{name},sha256={digest.decode()},{len(text)}")
    z.writestr(record, "\n".join([*lines, record + ",,", ""]))
'''


def needs(*programs):
    missing = [
        name for name in programs if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    ]
    return pytest.mark.skipif(bool(missing), reason=f"this machine has no {' '.join(missing)}")


@pytest.fixture(params=["user", "root"])
def who(request):
    return request.param


@pytest.fixture
def said(cove, who):
    """What a login shell of this user prints."""
    return lambda script, *options, **more: cove.said(script, "--user", who, *options, **more)


def test_a_login_shell_is_at_home(said, who):
    home = "/root" if who == "root" else "/home/user"
    ids = {"user": "1000 1000", "root": "0 0"}[who]
    assert said("echo $(id -u) $(id -g); id -un; echo $HOME; pwd; echo $0; echo $SHELL").split(
        "\n"
    ) == [ids, who, home, home, "bash", "/bin/bash"]


def test_coreutils_do_what_they_do(said):
    assert said("""
        mkdir -p a/b && echo one > a/b/one && cp -a a c && mv c/b/one c/two && ln -s two c/link
        ln c/two c/hard && stat -c %h c/two && readlink c/link && cat c/link
        seq 1000 | sort -rn | head -n 1 && du -s a > /dev/null && df . > /dev/null
        find . -name one -newer /etc/passwd && rm -r a c && test ! -e a
        head -c 100000 /dev/urandom | sha256sum | wc -c && date +%Y > /dev/null && sleep 0.01
        tr a-z A-Z <<< done; mktemp > /dev/null; touch -d 2001-01-01 old; stat -c %Y old
    """).split("\n") == ["2", "two", "one", "1000", "./a/b/one", "68", "DONE", "978307200"]


@needs("ps")
def test_ps_shows_the_sandbox_and_nothing_else(said, who):
    lines = said("sleep 100 & ps -eo pid,user,args --no-headers").split("\n")
    assert [line.split()[0] for line in lines][0] == "1"
    assert "cove-guest" in lines[0]
    assert len(lines) <= 4, lines
    assert any("sleep 100" in line and f" {who} " in line for line in lines)


@needs("python3")
def test_python_with_its_batteries(said):
    assert (
        said("""cat > work.py <<'EOF'
import asyncio, multiprocessing, os, sqlite3, ssl, subprocess, sys, threading

def square(n):
    return n * n

if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(square, range(100))))
    with multiprocessing.Manager() as manager:
        shared = manager.list([1]); shared.append(2); print(list(shared))
    value = multiprocessing.Value("i", 7); print(value.value)
    db = sqlite3.connect("work.db"); db.execute("pragma journal_mode=wal")
    db.execute("create table t (n)")
    db.executemany("insert into t values (?)", [(n,) for n in range(10)])
    db.commit(); print(db.execute("select sum(n) from t").fetchone()[0]); db.close()
    print(len(ssl.create_default_context().get_ca_certs()) > 10)
    print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
    async def both():
        return await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.sleep(0.01, 2))
    print(asyncio.run(both()))
    t = threading.Thread(target=lambda: print("thread")); t.start(); t.join()
    print(os.cpu_count() >= 1, len(os.urandom(8)), sys.stdout.encoding)
EOF
/usr/bin/python3 work.py""").split("\n")
        == ["328350", "[1, 2]", "7", "45", "True", "child", "[1, 2]", "thread", "True 8 utf-8"]
    )


@pytest.mark.slow
@needs("python3")
def test_a_virtual_environment_takes_a_wheel_built_on_the_spot(cove, said):
    if cove.run("/usr/bin/python3", "-c", "import ensurepip, venv", status=None).returncode:
        pytest.skip("this machine's Python has no ensurepip")
    script = f"/usr/bin/python3 -m venv env\n/usr/bin/python3 - <<'EOF'\n{WHEEL}\nEOF\n"
    assert said(script + """
        export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
        env/bin/pip install -q ./hello_cove-1.0-py3-none-any.whl >&2
        env/bin/python -c 'import hello_cove; print(hello_cove.greet())'
        env/bin/pip list 2> /dev/null | grep -o hello.cove; test -x env/bin/hello-cove
        env/bin/pip uninstall -q -y hello-cove >&2
        ! env/bin/python -c 'import hello_cove' 2> /dev/null
    """).split("\n")[0] == "greetings"


@needs("gcc", "g++", "make")
def test_c_and_cplusplus_compile_and_run(said):
    assert said(r"""
        cat > a.c <<'EOF'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *work(void *p) { *(double *)p = sqrt(2); return 0; }
int main(void) { pthread_t t; double d = 0; pthread_create(&t, 0, work, &d); pthread_join(t, 0);
                 printf("%.3f\n", d); return 0; }
EOF
        cat > b.cc <<'EOF'
#include <iostream>
#include <vector>
int main() { std::vector<int> v{1, 2, 3}; int n = 0; for (int i : v) n += i; std::cout << n << "\n";
             try { throw 7; } catch (int e) { std::cout << e << "\n"; } }
EOF
        printf 'all: a b\na: a.c\n\t$(CC) -O2 -o $@ $< -lm -lpthread\n' > Makefile
        printf 'b: b.cc\n\t$(CXX) -O1 -o $@ $<\n' >> Makefile
        make -s -j2 && ./a && ./b && make -q
    """).split("\n") == ["1.414", "6", "7"]


@needs("git")
def test_git_commits_clones_and_branches(said):
    assert said("""
        git init -q -b main one && cd one
        git config user.name Someone && git config user.email someone@example.org
        echo text > file && git add file && git commit -q -m 'first words'
        git switch -q -c other && echo more >> file && git commit -qam second
        cd .. && git clone -q one two && cd two && git log --format=%s && git status --porcelain
        git fsck 2>&1 | grep -v notice || true
    """).split("\n") == ["second", "first words"]


@needs("perl")
def test_perl(said):
    program = 'print JSON::PP->new->canonical->encode({a=>[1,2]}), " ", floor(2.5)'
    assert said(f"perl -MJSON::PP -MPOSIX -e '{program}'") == '{"a":[1,2]} 2'


@needs("node")
def test_node(said):
    assert said("""cat > work.js <<'EOF'
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { parentPort.postMessage(6 * 7); return; }
new Worker(__filename).on('message', n => {
  const s = require('http').createServer((q, r) => r.end('served'));
  s.listen(0, '127.0.0.1', async () => {
    const t = await (await fetch(`http://127.0.0.1:${s.address().port}/`)).text();
    console.log(n, t, require('crypto').createHash('sha256').update('x').digest('hex').slice(0, 8));
    s.close();
  });
});
EOF
node work.js""") == "42 served 2d711642"


@needs("tmux")
def test_tmux_keeps_a_terminal(said):
    assert said("""
        export TERM=xterm
        tmux new-session -d -x 100 -y 30 'bash --norc'
        tmux send-keys 'echo $((6*7)) $(tty)' Enter
        for i in $(seq 100); do
            tmux capture-pane -p | grep '^42 /dev/pts/' && break; sleep 0.05
        done
        tmux kill-server
    """).startswith("42 /dev/pts/")


@needs("openssl", "curl", "python3")
def test_certificates_are_there_and_are_checked(said):
    lines = said("""
        cd /etc/ssl/certs
        ok=0
        for f in $(ls *.pem | head -n 20); do
            openssl verify -CApath . $f > /dev/null && ok=$((ok+1))
        done
        echo $ok; cd; test -s /etc/ssl/certs/ca-certificates.crt
        openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 \
            -subj /CN=localhost -addext subjectAltName=DNS:localhost 2> /dev/null
        cat > server.py <<'EOF'
import http.server, ssl
s = http.server.HTTPServer(("127.0.0.1", 4443), http.server.SimpleHTTPRequestHandler)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain("cert.pem", "key.pem")
s.socket = c.wrap_socket(s.socket, server_side=True); s.serve_forever()
EOF
        echo found > page; /usr/bin/python3 server.py 2> /dev/null &
        for i in $(seq 100); do
            curl -s --cacert cert.pem https://localhost:4443/page && break; sleep 0.05
        done
        curl -s https://localhost:4443/page || echo status $?
    """).split("\n")
    assert int(lines[0]) >= 15
    assert lines[1:] == ["found", "status 60"]


def test_locales_and_time_zones(said):
    assert said("""
        export LC_ALL=C.UTF-8; locale charmap; printf 'ä\\n' | wc -m
        TZ=UTC date -d @0 +%H:%M; TZ=Asia/Tokyo date -d @0 +%H:%M
        TZ=America/New_York date -d @0 +%Z
        python3 -c "import zoneinfo, datetime as d
print(d.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())"
    """).split("\n") == ["UTF-8", "2", "00:00", "09:00", "EST", "2:00:00"]


@needs("sudo")
def test_sudo_makes_the_user_root_without_a_password(cove):
    assert cove.said(
        "sudo -n id -u; sudo -n touch /root/x; sudo -n ls /root; sudo -n -u user id -un"
    ) == ("0\nx\nuser")


@needs("su", "useradd")
def test_root_adds_users_and_becomes_them(cove):
    assert cove.said("""
        useradd -m -s /bin/bash other && su - other -c 'id -un; pwd; touch mine; stat -c %U mine'
        usermod -aG audio other && id -nG other && echo other:secret | chpasswd
        userdel -r other 2> /dev/null; ! id other 2> /dev/null; su user -c 'id -u'
    """, "--user", "root").split("\n") == ["other", "/home/other", "other", "other audio", "1000"]


def test_root_changes_usr_and_the_machine_does_not_notice(cove):
    said = cove.said(
        """
        echo '#!/bin/sh' > /usr/bin/new-thing; echo echo new >> /usr/bin/new-thing
        chmod 755 /usr/bin/new-thing; new-thing; sed -i s/./#/ /usr/bin/new-thing
        mv /usr/bin/true /usr/bin/was-true; cp /usr/bin/false /usr/bin/true
        /usr/bin/true || echo replaced; rm /usr/bin/env; ls /usr/bin/env 2>&1 | grep -c 'No such'
        mkdir -p /usr/local/deep/er && echo kept > /usr/local/deep/er/file
        cat /usr/local/deep/er/file
        mv /usr/share/zoneinfo /usr/share/elsewhere && ls /usr/share/elsewhere/UTC
    """,
        "--user",
        "root",
    )
    assert said.split("\n") == ["new", "replaced", "1", "kept", "/usr/share/elsewhere/UTC"]
    assert not shutil.which("new-thing") and shutil.which("env") and shutil.which("true")


def test_root_owns_what_is_in_usr(cove):
    """Whatever may be done to a file of its own: the machine's bytes are copied when that is needed."""
    assert cove.said("""
        cd /usr/share/common-licenses
        stat -c '%U:%G %a' GPL-3 && md5sum < GPL-3 > /tmp/before
        ln GPL-3 hard && ln -s GPL-3 soft && stat -c %h hard && cmp hard soft
        echo appended >> GPL-3 && tail -n 1 hard
        sed -i '$d' GPL-3 && md5sum < GPL-3 | cmp - /tmp/before
        chmod 600 Artistic && chown user:user Artistic && stat -c '%U:%G %a' Artistic
        su user -c 'cat Artistic > /tmp/own' && test -s /tmp/own
        touch -d 2001-02-03 BSD && date -r BSD +%F && truncate -s 3 BSD && wc -c < BSD
        rm -r /usr/share/common-licenses && mkdir /usr/share/common-licenses && ls /usr/share/common-licenses
        cp -a /usr/bin/passwd /usr/local/bin/ && stat -c '%U %a' /usr/bin/passwd /usr/local/bin/passwd
    """, "--user", "root").split("\n") == [
        "root:root 644", "2", "appended", "user:user 600", "2001-02-03", "3", "root 4755", "root 4755"]


REPACK = """
    dpkg-query -W -f 'Package: ${Package}\nVersion: ${Version}\nArchitecture: ${Architecture}\nMaintainer: x\nDescription: x\n' $p \
        > control
    mkdir -p $p/DEBIAN && cp control $p/DEBIAN/ && chmod 755 $p $p/DEBIAN
    dpkg -L $p | while read -r f; do [ -d "$f" ] || [ ! -e "$f" ] || echo ".$f"; done > files
    tar -C / -cf - -T files | tar -C $p -xf -
    dpkg-deb -Znone -b $p $p.deb > /dev/null
"""


@needs("apt-get", "dpkg-deb")
@pytest.mark.parametrize("package", ["coreutils", "passwd"])
def test_a_package_of_the_machine_can_be_installed_again(cove, package):
    """Over files that are the machine's; what is set-id stays so, and sandbox root's."""
    said = cove.said(f"p={package}\n" + REPACK + """
        before=$(stat -L -c '%i %U %a' /usr/bin/chage /usr/bin/ls)
        apt-get install -qq -y --reinstall ./$p.deb > log 2>&1 || cat log
        grep -c Unpacking log; dpkg --audit; dpkg --verify $p
        after=$(stat -L -c '%i %U %a' /usr/bin/chage /usr/bin/ls); test "$before" != "$after"
        stat -L -c '%U:%G %a' /usr/bin/chage /usr/bin/passwd /usr/bin/ls; ls / > /dev/null
    """, "--user", "root", "--workdir", "/tmp")
    assert said.split("\n") == ["1", "root:shadow 2755", "root:root 4755", "root:root 755"]


def test_the_user_cannot_change_usr(cove):
    assert cove.run("touch", "/usr/bin/x", status=1).stderr.endswith(b"Permission denied\n")


@needs("apt-get", "dpkg")
def test_the_package_database_is_in_order(said):
    lines = said("""
        apt-get --version | head -n 1 | cut -d' ' -f1; dpkg --audit | wc -l
        dpkg -l | grep -c '^ii'; dpkg -S /usr/bin/env; dpkg-query -W -f '${Status}\\n' bash
        apt-get -s check > /dev/null 2>&1 && echo checked
    """).split("\n")
    assert lines[:2] == ["apt", "0"]
    assert int(lines[2]) > 50
    assert lines[3:] == ["coreutils: /usr/bin/env", "install ok installed", "checked"]


@needs("apt-get", "dpkg-deb")
def test_a_local_package_can_be_installed_and_removed(cove):
    assert (
        cove.said(
            """
        mkdir -p p/DEBIAN p/usr/share/tiny && echo hello > p/usr/share/tiny/file
        printf '%s\\n' 'Package: tiny' 'Version: 1' 'Architecture: all' \
            'Maintainer: x <x@example.org>' 'Description: x' > p/DEBIAN/control
        dpkg-deb -b p tiny.deb > /dev/null
        apt-get install -qq -y ./tiny.deb > log 2>&1 || cat log
        cat /usr/share/tiny/file && dpkg -s tiny | grep Status
        apt-get remove -qq -y tiny > log 2>&1 || cat log; test ! -e /usr/share/tiny && dpkg --audit
    """,
            "--user",
            "root",
            "--workdir",
            "/tmp",
        ).split("\n")
        == ["hello", "Status: install ok installed"]
    )


@needs("python3")
def test_shared_memory_sockets_low_ports_and_ping(said):
    assert said("""cat > net.py <<'EOF'
import mmap, os, socket, struct, posixpath
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=1 << 20); m.buf[:2] = b"ok"
n = shared_memory.SharedMemory(m.name); print(bytes(n.buf[:2]).decode())
n.close(); m.close(); m.unlink()
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("sock")
a, _ = s.accept(); c.send(b"unix"); print(a.recv(9).decode())
p = socket.socket(); p.bind(("0.0.0.0", 80)); p.listen()
q = socket.create_connection(("127.0.0.1", 80)); r, _ = p.accept()
q.send(b"low"); print(r.recv(9).decode())
v6 = socket.socket(socket.AF_INET6); v6.bind(("::1", 0)); v6.listen()
w = socket.create_connection(v6.getsockname()[:2]); print("six")
i = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); i.settimeout(5)
i.sendto(struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"ping", ("127.0.0.1", 0))
print(i.recv(99)[-4:].decode())
EOF
/usr/bin/python3 net.py""", "--ping").split("\n") == ["ok", "unix", "low", "six", "ping"]


PING = """/usr/bin/python3 - <<'EOF'
import socket
for family, protocol in (socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.IPPROTO_ICMPV6):
    try:
        socket.socket(family, socket.SOCK_DGRAM, protocol)
        print("open")
    except PermissionError:
        print("refused")
EOF"""


@needs("python3")
def test_ping_sockets_are_for_those_that_ask(said):
    assert said(PING).split("\n") == ["refused", "refused"]
    assert said(PING, "--ping").split("\n") == ["open", "open"]


@needs("python3")
def test_a_queue_keeps_its_size_and_who_asks_for_more_is_not_refused(said):
    assert said("""/usr/bin/python3 - <<'EOF'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for option in socket.SO_RCVBUF, socket.SO_SNDBUF:
    before = s.getsockopt(socket.SOL_SOCKET, option)
    s.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
    print(s.getsockopt(socket.SOL_SOCKET, option) == before)
EOF""").split("\n") == ["True", "True"]


def test_strict_is_without_privileges_for_good(cove):
    status = cove.said("cat /proc/self/status", "--strict")
    fields = dict(line.split(":\t", 1) for line in status.split("\n") if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert {fields[name] for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {
        "0" * 16
    }
    as_root = cove.said("cat /proc/self/status; id -u", "--strict", "--user", "root")
    assert "CapEff:\t" + "0" * 16 in as_root and as_root.endswith("\n0")
    assert cove.run("--strict", "su", "-c", "id", "user", status=1).stderr


@needs("sudo")
def test_sudo_in_strict_says_why_it_fails(cove):
    done = cove.run("--strict", "sudo", "-n", "id", status=1)
    assert b"no new privileges" in done.stderr
