"""The kubelet's contracts, as code generated from the `.proto` files here by `generate.py`."""
