"""The Open Inference Protocol (KServe v2) with Triton's extensions, over HTTP and gRPC.

Contract: https://github.com/kserve/open-inference-protocol and
https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""
