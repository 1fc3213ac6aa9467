"""Where the servers of tests listen."""

import socket


def listening(port: int = 0) -> socket.socket:
    """A socket that takes connections at that port, or at a free one.

    It says that it is TCP: then asyncio does not hold back what is written in pieces, for 40 ms each time.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener
