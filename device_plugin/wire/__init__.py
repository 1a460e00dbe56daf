"""gRPC over Unix sockets in the plugin's own event loop, on h2: what the kubelet's contracts need, no more.

Calls with one request and one answer or a stream of answers, without compression and without encryption.
There are no threads and no timers: a connection on which nothing happens costs nothing (decision 0121).
"""
