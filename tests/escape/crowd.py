"""crowd - many bad connections to a server, from several addresses, until standard input ends.

usage: python3 crowd.py PORT COUNT ADDRESSES KIND...

Says "there" when each was opened once. Of the kinds each has the same share: `silent` says nothing,
`head` half of one, `body` half of a body that nobody asked for, `kept` one request and no more.
What the server closes comes again a second later."""

import collections
import contextlib
import select
import socket
import sys
import time

PORT, COUNT, ADDRESSES, KINDS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
SAY = {"silent": b"", "head": b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half: ",
       "body": b"POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{",
       "kept": b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"}
AGAIN_S = 1

poll = select.epoll()
links = {}                              # descriptor: (number, socket)
closed = collections.deque()            # (when, number)


def start(number):
    link = socket.socket()
    link.setblocking(False)
    link.setsockopt(socket.IPPROTO_IP, 24, 1)   # IP_BIND_ADDRESS_NO_PORT: ports by pair, not by us
    link.bind((ADDRESSES[number % len(ADDRESSES)], 0))
    with contextlib.suppress(BlockingIOError):
        link.connect(("127.0.0.1", PORT))
    links[link.fileno()] = number, link
    poll.register(link, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)


def end(fd):
    number, link = links.pop(fd)
    link.close()
    closed.append((time.monotonic() + AGAIN_S, number))


def hear(fd, events):
    number, link = links[fd]
    try:
        if events & select.EPOLLIN:
            while link.recv(4096):
                pass
            end(fd)
        elif events & select.EPOLLOUT:
            link.send(SAY[KINDS[number % len(KINDS)]])
    except BlockingIOError:
        pass
    except OSError:
        end(fd)


def turn(wait_s):
    for fd, events in poll.poll(wait_s):
        if fd == sys.stdin.fileno():
            sys.exit()
        if fd in links:
            hear(fd, events)
    while closed and closed[0][0] <= time.monotonic():
        start(closed.popleft()[1])


poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
for each in range(COUNT):
    start(each)
    if each % 100 == 99:
        turn(0)
turn(1)
print("there", flush=True)
while True:
    turn(0.1)
