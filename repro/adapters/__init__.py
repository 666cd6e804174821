"""The only place with sockets, subprocesses, the clock and the environment."""
