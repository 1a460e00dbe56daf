"""The plugin's edges, each against one outside thing: NVML, kubelet, API server, probes."""
