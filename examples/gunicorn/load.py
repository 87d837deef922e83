"""Open-loop load: load.py PORT SECONDS. 100 requests per second at random times, 5 % of them slow. Latency counts from
the due time. Prints the percentiles of the short ones."""

import random
import socket
import sys
import threading
import time

PORT, SECONDS = int(sys.argv[1]), float(sys.argv[2])
RATE, SLOW = 100.0, 0.05


def ask(path, due, latencies):
    try:
        with socket.create_connection(("127.0.0.1", PORT), timeout=10) as connection:
            connection.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path)
            while connection.recv(4096):
                pass
        latencies.append((path, time.monotonic() - due))
    except OSError as error:
        latencies.append((b"failed", error))


def main():
    random.seed(1)
    latencies, threads = [], []
    due = time.monotonic()
    end = due + SECONDS
    while due < end:
        due += random.expovariate(RATE)
        path = b"/slow" if random.random() < SLOW else b"/"
        time.sleep(max(0.0, due - time.monotonic()))
        thread = threading.Thread(target=ask, args=(path, due, latencies))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    short = sorted(latency * 1000 for path, latency in latencies if path == b"/")
    failed = sum(path == b"failed" for path, _ in latencies)
    at = lambda percent: short[min(len(short) - 1, int(len(short) * percent / 100))]
    tail = f"p50 {at(50):.0f} ms, p90 {at(90):.0f} ms, p99 {at(99):.0f} ms"
    print(f"short requests: {len(short)}, {tail}; failed: {failed}")


main()
