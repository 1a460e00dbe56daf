"""What the scheduler extender costs a real kube-scheduler, with thousands of played nodes."""
