"""The HTTP surface: routes, the server, TLS, and the client of the command line.

Maps outcomes to HTTP and back; decides nothing.
"""
