"""Which GPUs belong together, purely: machines as data, the affinity graph, the one scorer.

The device plugin's preferred allocation, the extender's score and the CLI's explanation all call
`best_gpu_set`, so that they can never disagree.
"""
