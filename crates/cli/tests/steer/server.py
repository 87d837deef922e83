"""A multi-process server for the tests of steering.

    server.py PROTOCOL ADDRESS PORT WORKERS HOW

PROTOCOL is udp or tcp; PORT may be 0. HOW: own (a socket with SO_REUSEPORT for each worker), shared (one socket for
all), marked (the same, with SO_REUSEPORT), epoll (own, with workers that wait in epoll). A worker answers each input
with its number and process. With SERVER_UID in the environment, the server runs as that user. It prints "ready PORT"
when all workers serve, then reads commands, one per line: "restart K" ends worker K and starts another, "stop K" only
ends it. It answers each with "done", and ends at the end of input.
"""

import ctypes
import os
import select
import signal
import socket
import sys

PROTOCOL, ADDRESS, PORT, WORKERS, HOW = sys.argv[1:]
ONE = HOW in ("shared", "marked")
FAMILY = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET
KIND = socket.SOCK_DGRAM if PROTOCOL == "udp" else socket.SOCK_STREAM


def bound(port):
    made = socket.socket(FAMILY, KIND)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) if PROTOCOL == "tcp" else None
    if HOW != "shared":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((ADDRESS, port))
    return made


def answer(sock, text):
    if PROTOCOL == "udp":
        _, peer = sock.recvfrom(2048)
        sock.sendto(text, peer)
        return
    connection, _ = sock.accept()
    with connection:
        connection.recv(2048)
        connection.sendall(text)


def work(number, sock):
    if HOW == "epoll":
        poll = select.epoll()
        poll.register(sock, select.EPOLLIN)
    while True:
        if HOW == "epoll":
            poll.poll()
        answer(sock, b"%d %d" % (number, os.getpid()))


def start(number, port, shared):
    ready, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        return pid
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: workers end with the server
    sock = shared
    if not ONE:
        shared.close()
        sock = bound(port)
        if PROTOCOL == "tcp":
            sock.listen(64)
    os.write(tell, b"x")
    work(number, sock)


def become(user):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its user may look into it again


def main():
    if "SERVER_UID" in os.environ:
        become(int(os.environ["SERVER_UID"]))
    first = bound(int(PORT))
    port = first.getsockname()[1]
    if ONE and PROTOCOL == "tcp":
        first.listen(64)
    workers = [start(k, port, first) for k in range(int(WORKERS))]
    if not ONE:
        first.close()
    print("ready", port, flush=True)
    for line in sys.stdin:
        what, k = line.split()
        os.kill(workers[int(k)], signal.SIGKILL)
        os.waitpid(workers[int(k)], 0)
        if what == "restart":
            spare = bound(0)
            workers[int(k)] = start(int(k), port, spare)
            spare.close()
        print("done", flush=True)
    for pid in workers:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


main()
