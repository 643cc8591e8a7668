"""An image's server: goes on in another protocol if it is asked to, and otherwise sends each piece back as it comes."""

import os
import socket
import threading


def serve(connection):
    file = connection.makefile("rb")
    while line := file.readline():
        headers = {}
        while (header := file.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("upgrade"):
            head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n" % headers["upgrade"]
            connection.sendall(head.encode())
            while data := file.read1(65536):
                connection.sendall(data)
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Path: %s\r\n\r\n" % line.split()[1])
        while headers.get("transfer-encoding") == "chunked" and (size := int(file.readline(), 16)):
            data = file.read(size)
            file.readline()
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))
        if headers.get("transfer-encoding") == "chunked":
            file.readline()
        connection.sendall(b"0\r\n\r\n")


server = socket.create_server((os.environ["FUNCTION_ADDRESS"], int(os.environ["PORT"])), backlog=128)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
