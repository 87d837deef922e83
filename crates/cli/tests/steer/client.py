"""Asks a server of the tests of steering, N times, each time from another socket: client.py PROTOCOL ADDRESS PORT N.
Prints what came, and "none" where nothing came for five seconds."""

import socket
import sys

PROTOCOL, ADDRESS, PORT, N = sys.argv[1:]
FAMILY = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET
KIND = socket.SOCK_DGRAM if PROTOCOL == "udp" else socket.SOCK_STREAM
if ADDRESS == "::":
    ADDRESS = "::1"

for _ in range(int(N)):
    with socket.socket(FAMILY, KIND) as asks:
        asks.settimeout(5)
        try:
            asks.connect((ADDRESS, int(PORT)))
            asks.send(b"x")
            print(asks.recv(2048).decode())
        except OSError:
            print("none")
