"""What both programs stand on: the API server as values, and their settings, log and metrics.

`client`, `objects` and `watch` are the one door to the API server: the client library, its types
and its errors do not leave them. `documents`, `settings`, `log` and `metrics` are here since both
programs need them, neither may import the other, and `topology` below may use none of their
libraries. Nothing here decides about pods or devices.
"""
