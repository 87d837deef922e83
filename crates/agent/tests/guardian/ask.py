"""Asks a guardian: its socket, then the request. The answer goes to standard output."""
import socket, sys

asker = socket.socket(socket.AF_UNIX)
asker.connect(sys.argv[1])
asker.sendall(sys.argv[2].encode() + b"\n")
print(asker.makefile().readline(), end="")
