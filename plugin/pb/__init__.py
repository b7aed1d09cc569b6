"""The kubelet's two APIs as messages: generated, see README.md beside this file."""
