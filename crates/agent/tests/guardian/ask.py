"""Asks a guardian and prints the answer. Arguments: its socket, the request, the program that comes along."""
import os, shutil, socket, sys

asker = socket.socket(socket.AF_UNIX)
asker.connect(sys.argv[1])
request = [sys.argv[2].encode() + b"\n"]
program = shutil.which(sys.argv[3]) if sys.argv[3] else None
files = [os.open(program, os.O_RDONLY)] if program else []
socket.send_fds(asker, request, files)
print(asker.makefile().readline(), end="")
